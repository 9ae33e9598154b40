//! Structures of the whole volume: superblock, group descriptors, bitmaps, MMP, orphan file, quota
//! files.

use crate::shape::Shape;
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::group_desc::{self, GroupDesc, GroupFlags, RawGroupDesc};
use extant_ondisk::mmp::{Mmp, RawMmp};
use extant_ondisk::orphan_file::{OrphanFileFormat, orphans, set_orphan};
use extant_ondisk::quota::{
    QUOTA_BLOCK_SIZE, QuotaBlock, QuotaHeader, QuotaKind, QuotaRecord, QuotaTree, build_quota_file,
};
use extant_ondisk::superblock::{RawSuperblock, Superblock};
use extant_ondisk::{BlockNo, FileBlock, FormatError, Geometry, GroupNo, InodeNo};
use extant_testkit::fuzz::{Damage, FUZZ_TIME};
use zerocopy::{FromZeros, IntoBytes};

#[test]
fn superblock() {
    bolero::check!().with_type::<(Shape, Damage, bool)>().with_test_time(FUZZ_TIME).for_each(
        |(shape, damage, is_mended)| {
            let damaged = damage.to(shape.superblock().as_bytes());
            let Ok(mut raw) = RawSuperblock::from_bytes(&damaged, GroupNo(0)) else {
                assert!(damaged.len() < size_of::<RawSuperblock>());
                return;
            };
            let _ = raw.verify(GroupNo(0));
            if *is_mended {
                raw.seal();
            }
            let decoded = Superblock::decode(&raw);
            let mut again = raw;
            decoded.encode_into(&mut again);
            assert_eq!(Superblock::decode(&again), decoded);
            let Ok(geometry) = Geometry::new(&raw) else { return };
            sound(&geometry);
        },
    );
}

/// Asserts the properties of a geometry on which arithmetic relies.
fn sound(geometry: &Geometry) {
    let last = GroupNo(geometry.groups_count - 1);
    for group in [GroupNo(0), GroupNo(last.0 / 2), last] {
        let start = geometry.group_start(group);
        assert_eq!(geometry.group_of(start), Some(group));
        assert!((1..=geometry.blocks_per_group).contains(&geometry.group_blocks(group)));
        assert!(geometry.group_clusters(group) <= geometry.clusters_per_group);
        let (index, at) = geometry.desc_place(group);
        assert!(index < geometry.desc_blocks());
        assert!(at + usize::from(geometry.desc_size) <= geometry.block_len());
        let _ = (geometry.desc_block(index), geometry.desc_block_backup(index, group));
        let _ = geometry.has_super(group);
    }
    assert!(geometry.byte_of(BlockNo(geometry.blocks_count)) >= geometry.blocks_count);
    assert_eq!(geometry.inode_place(InodeNo(geometry.inodes_count)).map(|it| it.0), Some(last));
    assert!(geometry.clusters_count() <= geometry.blocks_count);
    assert!(geometry.itable_blocks() > 0 && geometry.inodes_per_block() > 0);
}

#[test]
fn group_descriptor() {
    bolero::check!().with_type::<(Shape, Damage, u16, bool)>().with_test_time(FUZZ_TIME).for_each(
        |(shape, damage, group, is_mended)| {
            let geometry = shape.geometry();
            let group = GroupNo(u32::from(*group) % geometry.groups_count);
            let desc = GroupDesc {
                block_bitmap: BlockNo(100),
                inode_bitmap: BlockNo(116),
                inode_table: BlockNo(132),
                free_clusters: 17,
                free_inodes: 2000,
                used_dirs: 3,
                flags: GroupFlags::INODE_ZEROED,
                itable_unused: 1990,
                block_bitmap_checksum: 0x1234,
                inode_bitmap_checksum: 0x5678,
            };
            let mut raw = RawGroupDesc::new_zeroed();
            desc.encode_into(&mut raw);
            let mut stored = vec![0; usize::from(geometry.desc_size)];
            raw.write_to(&mut stored, &geometry);
            group_desc::seal(&mut stored, group, &geometry);
            assert_eq!(group_desc::verify(&stored, group, &geometry), Ok(()));

            let mut damaged = damage.to(&stored);
            if *is_mended && damaged.len() == stored.len() {
                group_desc::seal(&mut damaged, group, &geometry);
            }
            let is_right = group_desc::verify(&damaged, group, &geometry).is_ok();
            let Ok(raw) = RawGroupDesc::from_bytes(&damaged, group, &geometry) else {
                assert!(damaged.len() < stored.len());
                return;
            };
            assert!(is_right || !is_mended);
            let lenient = GroupDesc::unchecked(&raw);
            assert!(lenient.itable_used(&geometry) <= geometry.inodes_per_group);
            if let Ok(decoded) = GroupDesc::decode(&raw, group, &geometry) {
                assert!(geometry.contains(decoded.block_bitmap, 1));
                let table = u64::from(geometry.itable_blocks());
                assert!(geometry.contains(decoded.inode_table, table));
            }
            let mut again = raw;
            lenient.encode_into(&mut again);
            assert_eq!(again.as_bytes(), raw.as_bytes());
        },
    );
}

#[test]
fn bitmap_checks() {
    type Input = (Shape, Damage, bool, u16, u16);
    bolero::check!().with_type::<Input>().with_test_time(FUZZ_TIME).for_each(
        |(shape, damage, is_inodes, from, to)| {
            let geometry = shape.geometry();
            let group = GroupNo(geometry.groups_count - 1);
            let kind = if *is_inodes { BitmapKind::Inode } else { BitmapKind::Block };
            let used = kind.used_bits(group, &geometry);
            let mut sound = vec![0; geometry.block_len()];
            bitmap::set_range(&mut sound, 0..used / 3);
            bitmap::pad(&mut sound, used);
            let mut desc = GroupDesc::unchecked(&RawGroupDesc::new_zeroed());
            bitmap::seal(&sound, kind, &mut desc, &geometry);
            assert_eq!(bitmap::verify(&sound, kind, group, &desc, &geometry), Ok(()));

            let damaged = damage.to(&sound);
            let _ = bitmap::verify(&damaged, kind, group, &desc, &geometry);
            let _ = bitmap::is_padded(&damaged, used);
            let bits = u32::from(*from.min(to))..u32::from(*from.max(to));
            let within =
                bits.start.min(damaged.len() as u32 * 8)..bits.end.min(damaged.len() as u32 * 8);
            let runs: Vec<_> = bitmap::clear_runs(&damaged, within.clone()).collect();
            let clear: u32 = runs.iter().map(|run| run.end - run.start).sum();
            assert_eq!(
                clear + bitmap::count_set(&damaged, within.clone()),
                within.end - within.start
            );
            assert_eq!(
                bitmap::next_clear(&damaged, within.clone()),
                runs.first().map(|run| run.start)
            );
            let first_set = within.clone().find(|&bit| bitmap::test(&damaged, bit));
            assert_eq!(bitmap::next_set(&damaged, within), first_set);
            assert!(!bitmap::test(&damaged, u32::MAX));
        },
    );
}

#[test]
fn multiple_mount_protection() {
    bolero::check!().with_type::<(Shape, Damage, bool)>().with_test_time(FUZZ_TIME).for_each(
        |(shape, damage, is_mended)| {
            let geometry = shape.geometry();
            let mut raw = RawMmp::new_zeroed();
            Mmp::new(5, 1_700_000_000).encode_into(&mut raw);
            raw.seal(&geometry);
            let block = BlockNo(77);
            assert_eq!(raw.verify(block, &geometry), Ok(()));
            let Ok(mut raw) = RawMmp::from_bytes(&damage.to(raw.as_bytes()), block) else { return };
            if *is_mended {
                raw.seal(&geometry);
            }
            let _ = raw.verify(block, &geometry);
            let decoded = Mmp::decode(&raw);
            let mut again = raw;
            decoded.encode_into(&mut again);
            assert_eq!(Mmp::decode(&again), decoded);
        },
    );
}

#[test]
fn orphan_file_block() {
    bolero::check!().with_type::<(Shape, Damage, bool)>().with_test_time(FUZZ_TIME).for_each(
        |(shape, damage, is_mended)| {
            let geometry = shape.geometry();
            let format = OrphanFileFormat::new(&geometry, InodeNo(12), 3);
            let (at, block_no) = (FileBlock(1), BlockNo(500));
            let mut block = vec![0; geometry.block_len()];
            assert!(set_orphan(&mut block, 3, Some(InodeNo(15))));
            format.seal(&mut block, block_no);
            assert_eq!(format.verify(&block, at, block_no), Ok(()));

            let mut damaged = damage.to(&block);
            if *is_mended {
                format.seal(&mut damaged, block_no);
            }
            let _ = format.verify(&damaged, at, block_no);
            assert_eq!(orphans(&damaged).count(), OrphanFileFormat::capacity(damaged.len()));
            assert!(!set_orphan(&mut damaged, usize::MAX, None));
        },
    );
}

#[test]
fn quota_file() {
    let records: Vec<_> = (0..40)
        .chain([300, 70_000, u32::MAX])
        .map(|id| QuotaRecord { id, inodes: 1, space: 4096, ..Default::default() })
        .collect();
    let file = build_quota_file(QuotaKind::Group, &records).unwrap();
    bolero::check!().with_type::<(Damage, u32)>().with_test_time(FUZZ_TIME).for_each(
        |(damage, id)| {
            let inode = InodeNo::GROUP_QUOTA;
            let damaged = damage.to(&file);
            let (blocks, _) = damaged.as_chunks::<QUOTA_BLOCK_SIZE>();
            let count = blocks.len() as u32;
            let Ok(header) = QuotaHeader::decode(&damaged, QuotaKind::Group, inode, count) else {
                return;
            };
            let read = |block: u32| Ok::<QuotaBlock, FormatError>(blocks[block as usize]);
            let mut tree = QuotaTree::new(header, inode, read);
            let _ = tree.find(*id);
            if let Ok(found) = tree.records() {
                assert!(found.len() <= blocks.len() * QUOTA_BLOCK_SIZE / 4);
            }
        },
    );
}
