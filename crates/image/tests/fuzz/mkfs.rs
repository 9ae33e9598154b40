//! mkfs: configurations and options of all sorts are taken or refused, and figures that are given
//! can be laid out.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use bolero::TypeGenerator;
use extant_image::mkfs::config::{TypeRequest, TypedConfig};
use extant_image::mkfs::params::params;
use extant_image::mkfs::{Config, DeviceInfo, Identity, NewVolume, Options, Program};
use extant_layout::RunSet;
use extant_testkit::fuzz::{Damage, FUZZ_TIME};

const CONFIG: &str = r#"[defaults]
	base_features = sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr
	default_mntopts = acl,user_xattr
	enable_periodic_fsck = 0
	blocksize = 4096
	inode_size = 256
	inode_ratio = 16384

[fs_types]
	ext4 = {
		features = has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize
		flex_bg_size = 16
		reserved_ratio = 5.0
	}
	small = {
		blocksize = -1024
		cluster_size = "16k" ; a comment
		inode_ratio = 4096
	}

[devices]
	/dev/fd0 = {
		usage_types = small
	}

[options]
	proceed_delay = 1
"#;

#[test]
fn mke2fs_conf() {
    bolero::check!().with_type::<(Damage, Vec<u8>)>().with_test_time(FUZZ_TIME).for_each(
        |(damage, bytes)| {
            for bytes in [damage.to(CONFIG.as_bytes()), bytes.clone()] {
                let text = String::from_utf8_lossy(&bytes);
                let Ok(config) = Config::of_text(&text, Path::new("c")) else { continue };
                let _ = (config.option_text("proceed_delay"), config.default_text("blocksize"));
                let request = TypeRequest {
                    fs_type: Some("ext4"),
                    implied: None,
                    usage_types: None,
                    journal: false,
                    hurd: false,
                    device: Path::new("/dev/fd0"),
                    size: 1 << 20,
                    force: true,
                };
                let typed = TypedConfig::resolve(&config, &request).unwrap();
                let _ = (typed.integer("blocksize"), typed.fraction("reserved_ratio"));
                let _ = (typed.boolean("lazy_itable_init"), typed.cumulative("features").count());
                let options = Options::parse(["-F", "x"].map(OsString::from)).unwrap();
                lay_out(&options, &config, 8 << 20);
            }
        },
    );
}

/// A word of a command line.
#[derive(Clone, Debug, TypeGenerator)]
enum Word {
    Flag(u8),
    Number(u8, Size),
    Features(Vec<(u8, bool)>),
    Extended(Vec<(u8, Size)>),
    Journal(Vec<(u8, Size)>),
    Type(u8),
    Text(u8, Vec<u8>),
    Operand(Size),
}

/// Plausible numbers, and others.
#[derive(Clone, Debug, TypeGenerator)]
enum Size {
    Power(u8),
    Small(u8),
    Any(u64),
    With(u16, u8),
    Negative(u16),
    Fraction(u16, u8),
    Text(String),
}

const FLAGS: &[u8] = b"cDFjKnqSvVxZ0-";
const NUMBERS: &[u8] = b"bCgGiImN";
const TEXTS: &[u8] = b"eLMoUTtEOJR";
const FEATURES: [&str; 28] = [
    "has_journal",
    "extent",
    "64bit",
    "metadata_csum",
    "uninit_bg",
    "bigalloc",
    "flex_bg",
    "meta_bg",
    "resize_inode",
    "sparse_super",
    "sparse_super2",
    "quota",
    "project",
    "inline_data",
    "ea_inode",
    "large_dir",
    "orphan_file",
    "casefold",
    "encrypt",
    "mmp",
    "journal_dev",
    "huge_file",
    "verity",
    "fast_commit",
    "stable_inodes",
    "dir_index",
    "metadata_csum_seed",
    "none",
];
const EXTENDED: [&str; 24] = [
    "stride",
    "stripe_width",
    "resize",
    "lazy_itable_init",
    "lazy_journal_init",
    "packed_meta_blocks",
    "num_backup_sb",
    "offset",
    "root_owner",
    "desc_size",
    "hash_seed",
    "mmp_update_interval",
    "quotatype",
    "revision",
    "encoding",
    "encoding_flags",
    "test_fs",
    "discard",
    "nodiscard",
    "no_copy_xattrs",
    "assume_storage_prezeroed",
    "root_perms",
    "orphan_file_size",
    "nosuch",
];
const JOURNAL: [&str; 5] = ["size", "location", "fast_commit_size", "device", "nosuch"];
const TYPES: [&str; 6] = ["ext2", "ext3", "ext4", "hurd", "floppy", "nosuch"];

impl Size {
    fn text(&self) -> String {
        match self {
            Self::Power(power) => (1_u64 << (power % 64)).to_string(),
            Self::Small(value) => value.to_string(),
            Self::Any(value) => value.to_string(),
            Self::With(value, unit) => {
                format!("{value}{}", ["k", "M", "g", "T", "s", "%", "b"][usize::from(*unit) % 7])
            }
            Self::Negative(value) => format!("-{value}"),
            Self::Fraction(whole, part) => format!("{}.{part}", whole % 120),
            Self::Text(text) => text.clone(),
        }
    }
}

fn pick<T: Copy>(of: &[T], at: u8) -> T {
    of[usize::from(at) % of.len()]
}

fn list(names: &[&str], chosen: &[(u8, Size)]) -> String {
    let entry = |(name, value): &(u8, Size)| format!("{}={}", pick(names, *name), value.text());
    chosen.iter().take(4).map(entry).collect::<Vec<_>>().join(",")
}

impl Word {
    fn words(&self) -> Vec<OsString> {
        let lettered = |letter: char, text: String| vec![format!("-{letter}").into(), text.into()];
        match self {
            Self::Flag(flag) => vec![format!("-{}", char::from(pick(FLAGS, *flag))).into()],
            Self::Number(letter, value) => {
                lettered(char::from(pick(NUMBERS, *letter)), value.text())
            }
            Self::Features(features) => {
                let name = |(name, is_set): &(u8, bool)| {
                    format!("{}{}", if *is_set { "" } else { "^" }, pick(&FEATURES, *name))
                };
                lettered('O', features.iter().take(5).map(name).collect::<Vec<_>>().join(","))
            }
            Self::Extended(options) => lettered('E', list(&EXTENDED, options)),
            Self::Journal(options) => lettered('J', list(&JOURNAL, options)),
            Self::Type(name) => lettered('t', pick(&TYPES, *name).to_owned()),
            Self::Text(letter, bytes) => vec![
                format!("-{}", char::from(pick(TEXTS, *letter))).into(),
                OsString::from_vec(bytes.clone()),
            ],
            Self::Operand(size) => vec![size.text().into()],
        }
    }
}

/// The figures of a command line, and where there are few groups also the layout.
fn lay_out(options: &Options, config: &Config, size: u64) {
    let info = DeviceInfo {
        size: Some(size),
        logical_sector: 512,
        physical_sector: 512,
        first_meta_bg: None,
    };
    let Ok(params) = params(Program::Extant, options, config, &info) else { return };
    assert!(params.blocks > 0 && params.groups > 0 || params.is_journal_device());
    if params.is_journal_device() || params.groups > 200 {
        return;
    }
    let Ok(identity) = Identity::new(options, &params, Some(1_000_000_000)) else { return };
    let bad = RunSet::new();
    let Ok(mut volume) = NewVolume::new(params, identity, &bad) else { return };
    if volume.add_special_inodes(&bad).is_ok() && volume.add_huge_files().is_ok() {
        assert!(volume.free_blocks() <= volume.geometry.blocks_count);
        assert!(volume.free_inodes() <= u64::from(volume.geometry.inodes_count));
    }
}

#[test]
fn mkfs_options() {
    let config = Config::built_in();
    type Input = (Vec<Word>, u32);
    bolero::check!().with_type::<Input>().with_test_time(FUZZ_TIME).for_each(|(words, size)| {
        let mut words: Vec<_> = words.iter().take(6).flat_map(Word::words).collect();
        // A first operand, so that many command lines are whole.
        words.insert(0, "/nonexistent/x.img".into());
        words.insert(0, "-F".into());
        let Ok(options) = Options::parse(words) else { return };
        let _ = options.uuid_choice();
        lay_out(&options, &config, u64::from(*size) << (size % 16));
    });
}
