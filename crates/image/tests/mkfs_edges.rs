//! Cases outside of the option table: used devices, bad blocks, external journals, offsets, mounts
//! by the kernel.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use extant_image::mkfs::{self, Environment, MkfsError, Options, Program, Prompt};
use extant_testkit::{LoopMount, Scratch, debugfs, dumpe2fs_h, e2fsck_fn, is_root, skipped, tool};

/// Records the output; answers no.
#[derive(Default)]
struct Recorded {
    said: String,
    questions: usize,
}

impl Prompt for Recorded {
    fn say(&mut self, text: &str) {
        self.said.push_str(text);
    }
    fn warn(&mut self, _text: &str) {}
    fn is_interactive(&self) -> bool {
        true
    }
    fn confirm(&mut self, _question: &str) -> bool {
        self.questions += 1;
        false
    }
}

/// The built-in configuration, whatever the machine's is.
fn environment() -> Environment {
    Environment {
        config: Some(PathBuf::from("/nonexistent/mke2fs.conf")),
        ..Environment::default()
    }
}

/// Runs `mke2fs` on an image; IMAGE in the line is its path.
fn make(line: &str, image: &Path) -> Result<Recorded, MkfsError> {
    let words = line.split_whitespace().map(|word| match word {
        "IMAGE" => OsString::from(image),
        word => OsString::from(word),
    });
    let mut recorded = Recorded::default();
    let options = Options::parse(words)?;
    mkfs::run(Program::Mke2fs, options, &environment(), &mut recorded).map(|()| recorded)
}

fn has_oracles() -> bool {
    let has = tool("e2fsck").is_some() && tool("dumpe2fs").is_some() && tool("debugfs").is_some();
    if !has {
        skipped("e2fsprogs is not installed");
    }
    has
}

fn file_of(path: &Path, bytes: usize, value: u8) {
    fs::write(path, vec![value; bytes]).expect("a scratch file");
}

#[test]
fn a_device_full_of_garbage_becomes_a_clean_volume() {
    if !has_oracles() {
        return;
    }
    for line in [
        "-t ext2 -E nodiscard IMAGE",
        "-t ext3 -E nodiscard IMAGE",
        "-t ext4 -E nodiscard IMAGE",
        "-t ext4 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 IMAGE",
        "-t ext4 -O quota,mmp,inline_data -E nodiscard IMAGE",
        "-t ext4 -b 4096 -O bigalloc IMAGE",
        "-t ext4 -O ^metadata_csum,uninit_bg -E nodiscard IMAGE",
        "-t ext4 -O meta_bg,^resize_inode IMAGE",
    ] {
        let scratch = Scratch::new();
        let image = scratch.join("disk.img");
        file_of(&image, 48 << 20, 0xa5);
        make(line, &image).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(e2fsck_fn(&image), Ok(()), "{line}");
    }
}

#[test]
fn what_is_there_is_named_and_kept() {
    let scratch = Scratch::new();
    let image = scratch.join("disk.img");
    make("-q -t ext4 -L mine IMAGE 8M", &image).expect("an empty place");
    let before = fs::read(&image).expect("made");
    match make("-q -t ext4 IMAGE", &image) {
        Err(MkfsError::Occupied { found, .. }) => {
            assert_eq!(found, "an ext4 file system labelled 'mine'");
        }
        other => panic!("not refused: {:?}", other.map(|recorded| recorded.said)),
    }
    assert_eq!(fs::read(&image).expect("still there"), before);
    make("-q -F -t ext4 IMAGE", &image).expect("forced");

    let mut table = vec![0; 8 << 20];
    table[510..512].copy_from_slice(&[0x55, 0xaa]);
    table[446 + 4] = 0x83;
    table[446 + 12] = 1;
    fs::write(&image, &table).expect("a scratch file");
    assert!(matches!(make("-q IMAGE", &image), Err(MkfsError::Occupied { .. })));
    // After the table there is room for a volume.
    make("-q -t ext4 -E offset=1048576 IMAGE 4M", &image).expect("nothing at the offset");
}

#[test]
fn dry_runs_and_refusals_write_nothing() {
    let scratch = Scratch::new();
    let image = scratch.join("disk.img");
    file_of(&image, 8 << 20, 7);
    let recorded = make("-n -t ext4 IMAGE", &image).expect("a dry run");
    assert!(recorded.said.contains("Creating filesystem with 8192 1k blocks"), "{}", recorded.said);
    for line in ["-t ext4 -O bogus IMAGE", "-t ext4 -d /etc IMAGE", "-t ext4 -J size=400 IMAGE"] {
        assert!(make(line, &image).is_err(), "{line}");
    }
    assert!(fs::read(&image).expect("still there").iter().all(|byte| *byte == 7));
}

#[test]
fn bad_blocks_are_kept_out_of_use() {
    if !has_oracles() {
        return;
    }
    let scratch = Scratch::new();
    let (image, list) = (scratch.join("disk.img"), scratch.join("bad"));
    let numbers: String = (4000..4600).map(|block| format!("{block}\n")).collect();
    for (line, bad) in [
        ("-q -t ext2 -b 1024", "9\n300\n301\n5000\n8000\n"),
        ("-q -t ext4 -b 1024", numbers.as_str()),
        ("-q -t ext3 -b 4096", "600\n700\n701\n"),
    ] {
        fs::write(&list, bad).expect("a scratch file");
        let line = format!("{line} -F -l {} IMAGE 16M", list.display());
        if bad.starts_with("9\n") {
            // In the descriptors: their location is fixed.
            assert!(make(&line, &image).is_err(), "{line}");
            continue;
        }
        make(&line, &image).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(e2fsck_fn(&image), Ok(()), "{line}");
        let text = tool("dumpe2fs").expect("looked for").text([Path::new("-b"), &image]);
        assert_eq!(text.expect("dumpe2fs"), bad, "{line}");
    }
    make("-q -F -c -t ext4 IMAGE 16M", &image).expect("a good file");
    assert_eq!(e2fsck_fn(&image), Ok(()));
    make("-q -F -c -c -t ext4 IMAGE 16M", &image).expect("a good file");
    assert_eq!(e2fsck_fn(&image), Ok(()));
}

#[test]
fn an_external_journal_is_attached() {
    if !has_oracles() {
        return;
    }
    let scratch = Scratch::new();
    let (image, journal) = (scratch.join("disk.img"), scratch.join("journal.img"));
    for size in ["1024", "4096"] {
        make(&format!("-q -F -O journal_dev -b {size} IMAGE 8M"), &journal).expect("a journal");
        let device = journal.display();
        make(&format!("-q -F -t ext4 -b {size} -J device={device} IMAGE 16M"), &image)
            .expect("a volume");
        let e2fsck = tool("e2fsck").expect("looked for");
        let said = e2fsck.text([Path::new("-fn"), Path::new("-j"), &journal, &image]);
        said.unwrap_or_else(|said| panic!("{said}"));
        let (shown, of_journal) = (dumpe2fs_h(&image), dumpe2fs_h(&journal));
        let uuid = shown.expect("a volume")["Journal UUID"].clone();
        assert_eq!(uuid, of_journal.expect("a journal")["Filesystem UUID"]);
        let wrong = if size == "1024" { "4096" } else { "1024" };
        let line = format!("-q -F -t ext4 -b {wrong} -J device={device} IMAGE 16M");
        assert!(make(&line, &image).is_err(), "blocks of another size");
    }
}

#[test]
fn revision_0_has_no_features() {
    if !has_oracles() {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.join("disk.img");
    make("-q -t ext2 -E revision=0 IMAGE 8M", &image).expect("a volume of 1993");
    assert_eq!(e2fsck_fn(&image), Ok(()));
    let shown = dumpe2fs_h(&image).expect("a volume");
    assert_eq!(shown["Filesystem revision #"], "0 (original)");
    assert_eq!(shown["Filesystem features"], "(none)");
    assert!(make("-q -F -t ext2 -E revision=0 -j IMAGE 8M", &image).is_err());
}

#[test]
fn superblocks_alone_are_rewritten_around_the_files() {
    if !has_oracles() {
        return;
    }
    let scratch = Scratch::new();
    let (image, file) = (scratch.join("disk.img"), scratch.join("file"));
    make("-q -t ext4 IMAGE 16M", &image).expect("a volume");
    fs::write(&file, b"kept").expect("a scratch file");
    let write = tool("debugfs").expect("looked for");
    let command = format!("write {} kept", file.display());
    write.text([Path::new("-w"), Path::new("-R"), Path::new(&command), &image]).expect("written");
    // The same seed of checksums: the UUID stays.
    let uuid = dumpe2fs_h(&image).expect("a volume")["Filesystem UUID"].clone();
    make(&format!("-q -F -S -t ext4 -U {uuid} IMAGE"), &image).expect("superblocks");
    let e2fsck = tool("e2fsck").expect("looked for");
    let repaired = e2fsck.run([Path::new("-fy"), &image]);
    assert_eq!(repaired.status.code(), Some(1), "corrected");
    assert_eq!(debugfs(&image, "cat /kept").expect("there"), "kept");
}

#[test]
fn the_root_directory_is_as_requested() {
    if !has_oracles() {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.join("disk.img");
    let line =
        "-q -F -t ext4 -E root_owner=12:34,root_perms=2750,root_selinux=system_u:object_r:root_t";
    for size in ["-I 256", "-I 128"] {
        make(&format!("{line} {size} IMAGE 8M"), &image).expect("a volume");
        assert_eq!(e2fsck_fn(&image), Ok(()), "{size}");
        let shown = debugfs(&image, "stat <2>").expect("a root");
        assert!(shown.contains("Mode:  02750"), "{shown}");
        assert!(shown.contains("User:    12   Group:    34"), "{shown}");
        let label = debugfs(&image, "ea_get <2> security.selinux").expect("a label");
        assert!(label.contains("system_u:object_r:root_t"), "{label}");
    }
}

#[test]
fn source_date_epoch_stands_in_for_the_clock() {
    let scratch = Scratch::new();
    let image = scratch.join("disk.img");
    let words = ["-q", "-t", "ext4"].map(OsString::from).into_iter();
    let words = words.chain([image.clone().into_os_string(), "8M".into()]);
    let environment = Environment { epoch: Some("1234567890".into()), ..environment() };
    let options = Options::parse(words).expect("known options");
    mkfs::run(Program::Mke2fs, options, &environment, &mut Recorded::default()).expect("a volume");
    let bytes = fs::read(&image).expect("made");
    let made = &bytes[1024 + 0x108..1024 + 0x10c];
    assert_eq!(made, 1_234_567_890_u32.to_le_bytes());
}

/// The kernel takes our volumes wherever it takes mke2fs's.
#[test]
fn the_kernel_mounts_what_it_mounts_of_mke2fs() {
    if !is_root() || !has_oracles() || tool("mke2fs").is_none() {
        return skipped("no root or no e2fsprogs");
    }
    for line in [
        "-t ext2 IMAGE 16M",
        "-t ext3 IMAGE 32M",
        "-t ext4 IMAGE 64M",
        "-t ext4 -b 4096 IMAGE 64M",
        "-t ext4 -b 2048 -O bigalloc IMAGE 64M",
        "-t ext4 -O meta_bg,^resize_inode IMAGE 300M",
        "-t ext4 -O sparse_super2 -G 4 -g 1024 -b 1024 IMAGE 64M",
        "-t ext4 -O inline_data,ea_inode,large_dir,encrypt,verity IMAGE 64M",
        "-t ext4 -O fast_commit,mmp -J size=16 IMAGE 64M",
        "-t ext4 -O quota,project IMAGE 64M",
        "-t ext4 -O casefold IMAGE 64M",
        "-t ext4 -O orphan_file,^64bit,^metadata_csum,uninit_bg IMAGE 64M",
        "-t ext4 -E packed_meta_blocks=1,lazy_itable_init=0,stride=16,stripe_width=64 IMAGE 64M",
        "-t ext4 -b 65536 IMAGE 64M",
    ] {
        let scratch = Scratch::new();
        let (ours, theirs) = (scratch.join("ours.img"), scratch.join("theirs.img"));
        make(&format!("-q -F {line}"), &ours).unwrap_or_else(|error| panic!("{line}: {error}"));
        let words = line.split_whitespace().map(|word| match word {
            "IMAGE" => theirs.clone().into_os_string(),
            word => OsString::from(word),
        });
        let words = ["-q", "-F"].map(OsString::from).into_iter().chain(words);
        let made = tool("mke2fs").expect("looked for").run(words);
        assert!(made.status.success(), "{line}");
        let taken = LoopMount::new(&theirs, "").map(LoopMount::unmount).is_ok();
        let mount = LoopMount::new(&ours, "");
        assert_eq!(mount.is_ok(), taken, "{line}: {:?}", mount.err());
        let Ok(mount) = mount else { continue };
        fs::create_dir(mount.path().join("d")).expect("room");
        fs::write(mount.path().join("d/f"), vec![3; 100_000]).expect("room");
        mount.unmount().expect("idle");
        assert_eq!(e2fsck_fn(&ours), Ok(()), "{line}");
    }
}

/// 64 TiB take no more than their descriptors do.
#[test]
fn a_volume_past_2_to_the_32_blocks_is_laid_out_in_memory() {
    use extant_image::mkfs::{Config, DeviceInfo, Identity, NewVolume, Options, params};
    use extant_layout::RunSet;
    let words = ["-t", "ext4", "IMAGE", "64T"].map(OsString::from);
    let options = Options::parse(words).expect("valid");
    let info = DeviceInfo { logical_sector: 512, physical_sector: 512, ..DeviceInfo::default() };
    let config = Config::built_in();
    let params = params::params(Program::Mke2fs, &options, &config, &info).expect("possible");
    assert_eq!(params.blocks, 1 << 34);
    let identity = Identity::new(&options, &params, Some(0)).expect("random bytes");
    let mut volume = NewVolume::new(params, identity, &RunSet::new()).expect("room");
    volume.add_special_inodes(&RunSet::new()).expect("room");
    assert!(volume.free_blocks() > (1 << 34) - (1 << 28));
}

/// With clusters the first data block is 0 even where blocks have 1 KiB, and nothing lies before a
/// backup superblock.
#[test]
fn the_resize_inode_is_sound_with_clusters_of_small_blocks() {
    if !has_oracles() {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.join("disk.img");
    for line in [
        "-q -F -t ext4 -O bigalloc IMAGE 500M",
        "-q -F -t ext4 -b 1024 -O bigalloc -C 4096 IMAGE 100M",
        "-q -F -t ext4 -b 1024 -O bigalloc -C 4096 IMAGE 3G",
        "-q -F -t ext4 -b 1024 -O bigalloc IMAGE 3G",
        "-q -F -t ext4 -b 1024 -O bigalloc,sparse_super2 IMAGE 500M",
    ] {
        drop(fs::remove_file(&image));
        make(line, &image).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(e2fsck_fn(&image), Ok(()), "{line}");
    }
}
