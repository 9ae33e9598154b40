//! The superblock and the geometry drawn from it, against images of mke2fs as dumpe2fs shows them.

use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, Superblock};
use extant_ondisk::{BlockNo, Flaw, FormatError, Geometry, GroupNo, IncompatFeatures, Location};
use extant_testkit::{TempImage, dumpe2fs_h, mke2fs, skip, tool};
use proptest::prelude::*;
use std::path::Path;
use zerocopy::{FromBytes, IntoBytes};

const LOCATION: Location = Location::Superblock(GroupNo(0));

fn superblock_of(image: &Path) -> RawSuperblock {
    use std::os::unix::fs::FileExt;
    let mut bytes = [0_u8; 1024];
    let file = std::fs::File::open(image).unwrap();
    file.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET).unwrap();
    RawSuperblock::from_bytes(&bytes, GroupNo(0)).unwrap()
}

/// A superblock by mke2fs, or `None` if mke2fs is not installed.
fn made_by_mke2fs(options: &[&str], size: u64) -> Option<(TempImage, RawSuperblock)> {
    tool("mke2fs")?;
    let image = TempImage::of_size(size).unwrap();
    let path = image.path().to_str().unwrap().to_owned();
    mke2fs([&["-q", "-F"], options, &[path.as_str()]].concat()).unwrap();
    let raw = superblock_of(&image.path());
    Some((image, raw))
}

const OPTION_SETS: &[(&[&str], u64)] = &[
    (&["-t", "ext4"], 64 << 20),
    (&["-t", "ext4", "-b", "1024"], 300 << 20),
    (&["-t", "ext4", "-O", "bigalloc", "-C", "65536"], 1 << 30),
    (&["-t", "ext4", "-O", "meta_bg,^resize_inode"], 1 << 34),
    (&["-t", "ext4", "-O", "sparse_super2"], 1 << 34),
    (&["-t", "ext4", "-O", "^metadata_csum,uninit_bg", "-G", "64"], 1 << 33),
    (&["-t", "ext3", "-I", "128"], 200 << 20),
    (&["-t", "ext2", "-r", "0", "-O", "none", "-b", "1024"], 20 << 20),
    (&["-t", "ext4", "-b", "65536"], 1 << 30),
    (&["-t", "ext4", "-O", "^64bit"], 1 << 32),
    (&["-t", "ext4"], 1 << 43),
];

#[test]
fn every_figure_is_the_one_that_dumpe2fs_shows() {
    for &(options, size) in OPTION_SETS {
        let Some((image, raw)) = made_by_mke2fs(options, size) else { skip!("no mke2fs here") };
        raw.verify(GroupNo(0)).unwrap_or_else(|error| panic!("{options:?}: {error}"));
        let geometry = Geometry::new(&raw).unwrap();
        let superblock = Superblock::decode(&raw);
        let shown = dumpe2fs_h(&image.path()).unwrap();
        let show = |field: &str| shown.get(field).cloned().unwrap_or_default();
        let figures = [
            ("Block count", geometry.blocks_count.to_string()),
            ("Inode count", geometry.inodes_count.to_string()),
            ("Block size", geometry.block_size.to_string()),
            ("First block", geometry.first_data_block.to_string()),
            ("Blocks per group", geometry.blocks_per_group.to_string()),
            ("Inodes per group", geometry.inodes_per_group.to_string()),
            ("Inode blocks per group", geometry.itable_blocks().to_string()),
            ("Inode size", geometry.inode_size.to_string()),
            ("Free blocks", superblock.free_blocks.to_string()),
            ("Free inodes", superblock.free_inodes.to_string()),
            ("Reserved block count", superblock.reserved_blocks.to_string()),
            ("Filesystem UUID", superblock.uuid.to_string()),
            (
                "Filesystem features",
                match superblock.features.names().join(" ").as_str() {
                    "" => "(none)".to_owned(),
                    names => names.to_owned(),
                },
            ),
        ];
        for (field, found) in figures {
            if field == "Inode size" && superblock.revision == 0 {
                continue; // dumpe2fs shows none: revision 0 knows only 128
            }
            assert_eq!(found, show(field), "{field} of {options:?}");
        }
    }
}

#[test]
fn backups_lie_in_the_groups_that_dumpe2fs_names() {
    for &(options, size) in OPTION_SETS {
        let Some((image, raw)) = made_by_mke2fs(options, size) else { skip!("no mke2fs here") };
        let dumpe2fs = tool("dumpe2fs").unwrap();
        let text = dumpe2fs.text([image.path()]).unwrap();
        let named: Vec<u64> = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Backup superblock at "))
            .map(|rest| rest.split(',').next().unwrap().parse().unwrap())
            .collect();
        let geometry = Geometry::new(&raw).unwrap();
        let found: Vec<u64> = geometry
            .backup_superblock_groups()
            .into_iter()
            .map(|group| geometry.group_start(group).0)
            .collect();
        assert_eq!(found, named, "{options:?}");
    }
}

#[test]
fn decoding_and_encoding_change_no_byte() {
    for &(options, size) in OPTION_SETS {
        let Some((_image, raw)) = made_by_mke2fs(options, size) else { skip!("no mke2fs here") };
        let mut again = raw;
        Superblock::decode(&raw).encode_into(&mut again);
        again.seal();
        assert_eq!(again.as_bytes(), raw.as_bytes(), "{options:?}");
    }
}

#[test]
fn a_flipped_bit_is_a_wrong_checksum() {
    let Some((_image, mut raw)) = made_by_mke2fs(&["-t", "ext4"], 16 << 20) else {
        skip!("no mke2fs here")
    };
    raw.s_free_inodes_count.set(raw.s_free_inodes_count.get() ^ 1);
    let error = raw.verify(GroupNo(0)).unwrap_err();
    assert!(matches!(
        error,
        FormatError::Corrupt { location: LOCATION, flaw: Flaw::Checksum { .. } }
    ));
    raw.seal();
    assert_eq!(raw.verify(GroupNo(0)), Ok(()));
}

#[test]
fn an_unreadable_feature_is_refused_by_name() {
    let Some((_image, mut raw)) = made_by_mke2fs(&["-t", "ext4"], 16 << 20) else {
        skip!("no mke2fs here")
    };
    let mut features = raw.features();
    features.incompat |= IncompatFeatures::COMPRESSION;
    raw.set_features(features);
    let error = Geometry::new(&raw).unwrap_err();
    assert_eq!(error, FormatError::Unsupported(IncompatFeatures::COMPRESSION));
    assert_eq!(error.to_string(), "feature not supported: compression");
}

#[test]
fn geometry_rejects_figures_that_no_volume_has() {
    let Some((_image, good)) = made_by_mke2fs(&["-t", "ext4", "-b", "1024"], 64 << 20) else {
        skip!("no mke2fs here")
    };
    let refused = |change: fn(&mut RawSuperblock)| {
        let mut raw = good;
        change(&mut raw);
        Geometry::new(&raw).unwrap_err()
    };
    assert_eq!(
        refused(|raw| raw.s_log_block_size.set(7)),
        Flaw::above_limit("s_log_block_size", 7_u32, 6_u32).at(LOCATION)
    );
    assert_eq!(
        refused(|raw| raw.s_inodes_per_group.set(0)),
        Flaw::below_limit("s_inodes_per_group", 0_u32, 1_u32).at(LOCATION)
    );
    assert_eq!(
        refused(|raw| raw.s_inode_size.set(384)),
        Flaw::bad_value("s_inode_size", 384_u32).at(LOCATION)
    );
    assert_eq!(
        refused(|raw| raw.s_blocks_count_lo.set(0)),
        Flaw::below_limit("s_blocks_count", 0_u32, 2_u32).at(LOCATION)
    );
    assert_eq!(
        refused(|raw| raw.s_desc_size.set(32)),
        Flaw::bad_value("s_desc_size", 32_u32).at(LOCATION)
    );
}

#[test]
fn blocks_and_inodes_know_their_groups() {
    let Some((_image, raw)) = made_by_mke2fs(&["-t", "ext4", "-b", "1024"], 300 << 20) else {
        skip!("no mke2fs here")
    };
    let geometry = Geometry::new(&raw).unwrap();
    assert_eq!(geometry.group_of(BlockNo(0)), None, "the boot block lies before group 0");
    assert_eq!(geometry.group_of(BlockNo(1)), Some(GroupNo(0)));
    assert_eq!(geometry.group_of(BlockNo(8193)), Some(GroupNo(1)));
    assert_eq!(geometry.group_of(BlockNo(geometry.blocks_count)), None);
    let last = GroupNo(geometry.groups_count - 1);
    let end = geometry.group_start(last).0 + u64::from(geometry.group_blocks(last));
    assert_eq!(end, geometry.blocks_count);
}

proptest! {
    /// Random bytes may be rejected but must not panic; accepted ones are safe for arithmetic.
    #[test]
    fn any_bytes_give_a_sound_geometry_or_an_error(bytes in prop::collection::vec(any::<u8>(), 1024), small in any::<bool>()) {
        let mut raw = RawSuperblock::read_from_bytes(&bytes).unwrap();
        if small {
            raw.s_log_block_size.set(raw.s_log_block_size.get() % 7);
            raw.s_log_cluster_size = raw.s_log_block_size;
            raw.s_inode_size.set(256);
            raw.s_desc_size.set(64);
            raw.s_first_data_block.set(1);
            raw.s_feature_incompat.set(raw.s_feature_incompat.get() & IncompatFeatures::READABLE.bits());
            raw.s_blocks_per_group.set(1 + raw.s_blocks_per_group.get() % 8192);
            raw.s_inodes_per_group.set(1 + raw.s_inodes_per_group.get() % 8192);
        }
        let _ = raw.verify(GroupNo(0));
        if let Ok(geometry) = Geometry::new(&raw) {
            for group in [0, geometry.groups_count / 2, geometry.groups_count - 1] {
                let group = GroupNo(group);
                prop_assert!(geometry.group_blocks(group) <= geometry.blocks_per_group);
                prop_assert_eq!(geometry.group_of(geometry.group_start(group)), Some(group));
            }
            prop_assert!(geometry.descs_per_block() > 0);
            prop_assert!(geometry.inodes_per_block() > 0);
        }
        let decoded = Superblock::decode(&raw);
        let mut again = raw;
        decoded.encode_into(&mut again);
        prop_assert_eq!(Superblock::decode(&again), decoded);
    }
}
