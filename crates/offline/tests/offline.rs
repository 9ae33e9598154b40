//! Changes to volumes that are not mounted, checked by e2fsck.

use std::iter;
use std::path::Path;
use std::sync::Arc;

use extant_device::FileDevice;
use extant_device::FileDeviceOptions;
use extant_offline::{JournalShape, MapError, OfflineError, OfflineVolume};
use extant_ondisk::extent::{ExtentIndex, NodeEntries, OwnedNode};
use extant_ondisk::group_desc::GroupFlags;
use extant_ondisk::inode::{Inode, InodeFlags};
use extant_ondisk::time::Timestamp;
use extant_ondisk::{BlockNo, CompatFeatures, FileBlock, FormatError, GroupNo, InodeNo, Location};
use extant_testkit::{TempImage, debugfs, e2fsck_fn, skip, tool};

fn open(path: &Path) -> OfflineVolume {
    let device: FileDevice = FileDeviceOptions::new().write(true).open(path).unwrap();
    OfflineVolume::open(Arc::new(device)).unwrap()
}

/// Volumes without a journal: extents, indirect maps, clusters, one-kilobyte blocks.
const SHAPES: [&[&str]; 4] = [
    &["-t", "ext4", "-O", "^has_journal", "-b", "4096"],
    &["-t", "ext2", "-b", "1024"],
    &["-t", "ext4", "-O", "^has_journal,bigalloc", "-C", "16384", "-b", "4096"],
    &["-t", "ext4", "-O", "^has_journal,^metadata_csum,uninit_bg", "-b", "1024"],
];

#[test]
fn a_journal_is_made_and_removed_and_e2fsck_agrees() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("no e2fsprogs");
    }
    for args in SHAPES {
        let image = TempImage::by_mke2fs(48 << 20, args).unwrap();
        let path = image.path();
        let mut volume = open(&path);
        let shape = JournalShape { blocks: 1024, fast_commit_blocks: 0, goal: BlockNo(0) };
        volume.make_journal(shape, 1_700_000_000).unwrap();
        volume.commit().unwrap();
        volume.write_backups().unwrap();
        drop(volume);
        e2fsck_fn(&path).unwrap_or_else(|said| panic!("{args:?}: {said}"));
        let log = debugfs(&path, "logdump").unwrap();
        assert!(log.contains("Journal starts at block 0"), "{args:?}: {log}");

        let mut volume = open(&path);
        volume.remove_file(InodeNo::JOURNAL).unwrap();
        volume
            .update_superblock(|raw| {
                let mut features = raw.features();
                features.compat -= CompatFeatures::HAS_JOURNAL;
                raw.set_features(features);
                raw.s_journal_inum.set(0);
                raw.s_jnl_backup_type = 0;
                raw.s_jnl_blocks = Default::default();
            })
            .unwrap();
        volume.commit().unwrap();
        drop(volume);
        e2fsck_fn(&path).unwrap_or_else(|said| panic!("{args:?}, removed: {said}"));
    }
}

/// A truncated file frees its blocks, and its map is valid, at any depth.
#[test]
fn a_truncated_map_is_written_anew() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("no e2fsprogs");
    }
    for args in SHAPES {
        let image = TempImage::by_mke2fs(48 << 20, args).unwrap();
        let path = image.path();
        let mut volume = open(&path);
        let block = u64::from(volume.geometry().block_size);
        // The journal serves as a file here.
        let shape = JournalShape { blocks: 5000, fast_commit_blocks: 0, goal: BlockNo(0) };
        volume.make_journal(shape, 1_700_000_000).unwrap();
        let number = InodeNo::JOURNAL;
        let mut record = volume.read_inode(number).unwrap();
        let mut inode = Inode::decode(&record, number, volume.geometry()).unwrap();
        let mut map = volume.read_map(number, &inode).unwrap();
        assert_eq!(map.blocks().count(), 5000);
        let gone = map.truncate(3001);
        let ratio = u64::from(volume.geometry().blocks_per_cluster);
        let (root, unused) = volume.write_map(number, &inode, &map).unwrap();
        let nodes = (map.nodes.len() - unused.len()) as u64;
        let whole = |run: std::ops::Range<u64>| run.start.next_multiple_of(ratio)..run.end;
        volume.free_blocks_of(gone.into_iter().map(whole)).unwrap();
        volume.free_blocks_of(unused.iter().map(|node| node.0..node.0 + 1)).unwrap();
        inode.i_block = root;
        inode.size = 3001 * block;
        inode.set_space(volume.geometry(), 3001_u64.next_multiple_of(ratio) + nodes * ratio);
        inode.encode_into(&mut record, volume.geometry());
        volume.write_inode(number, &mut record).unwrap();
        assert!(!inode.flags.contains(InodeFlags::HUGE_FILE));
        // Only the journal's length is wrong now; without the feature it is an ordinary file.
        let read = volume.read_map(number, &inode).unwrap();
        assert_eq!(read.blocks().count(), 3001);
        volume.commit().unwrap();
        let free = volume.free_blocks();
        volume.remove_file(number).unwrap();
        assert_eq!(volume.free_blocks() - free, 3001_u64.next_multiple_of(ratio) + nodes * ratio);
    }
}

#[test]
fn an_extent_node_that_is_met_twice_breaks_the_map() {
    let image = match TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-b", "1024"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let volume = open(&image.path());
    let leaf = BlockNo(9000);
    let mut bytes = [0; 1024];
    OwnedNode::empty_leaf(1024).encode_into(&mut bytes);
    volume.write(leaf, &bytes).unwrap();
    let number = volume.geometry().first_inode;
    let mut inode = Inode::new(volume.geometry(), 0o100_600, Timestamp::new(0, 0));
    inode.flags |= InodeFlags::EXTENTS;
    for (pointers, expected) in [(1, Ok(vec![leaf])), (2, Err(MapError::Broken(number)))] {
        let pointer = |at: u64| ExtentIndex { block: FileBlock(at * 8), leaf, unused: 0 };
        let indexes = (0..pointers).map(pointer).collect();
        let entries = NodeEntries::Index(indexes, 0);
        OwnedNode { max: 4, generation: 0, entries }.encode_into(&mut inode.i_block);
        let nodes = match volume.read_map(number, &inode) {
            Ok(map) => Ok(map.nodes),
            Err(OfflineError::Map(error)) => Err(error),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(nodes, expected);
    }
}

#[test]
fn opened_strictly_a_volume_is_changed_only_by_what_is_sound() {
    let args = ["-t", "ext4", "-b", "1024", "-O", "metadata_csum,64bit,^flex_bg"];
    let image = match TempImage::by_mke2fs(24 << 20, &args) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let path = image.path();
    let healthy = open(&path);
    let bitmap = healthy.desc(GroupNo(0)).block_bitmap;
    let mut bits = healthy.read(bitmap).unwrap();
    bits[100] ^= 1;
    healthy.write(bitmap, &bits).unwrap();
    // A count of the second descriptor.
    let mut table = healthy.read(BlockNo(2)).unwrap();
    table[64 + 12] ^= 1;
    healthy.write(BlockNo(2), &table).unwrap();
    let number = InodeNo(healthy.geometry().inodes_per_group + 1);
    drop(healthy);

    let one = |block: u64| iter::once(block..block + 1);
    let of_group = |group: u64| one(group * 8192 + 4000);
    let off = BlockNo(1 << 40);
    let mut lenient = open(&path);
    lenient.claim_blocks(of_group(0)).unwrap();
    lenient.claim_blocks(of_group(1)).unwrap();
    lenient.claim_blocks(one(off.0)).unwrap();
    lenient.read_inode(number).unwrap();
    drop(lenient);

    let mut strict = OfflineVolume::open_strict(FileDevice::open(&path).unwrap()).unwrap();
    let place = |result: Result<(), OfflineError>| match result {
        Err(OfflineError::Format(FormatError::Corrupt { location, .. })) => Some(location),
        _ => None,
    };
    assert_eq!(place(strict.claim_blocks(of_group(0))), Some(Location::BlockBitmap(GroupNo(0))));
    assert_eq!(place(strict.claim_blocks(of_group(1))), Some(Location::GroupDesc(GroupNo(1))));
    assert_eq!(place(strict.claim_blocks(one(off.0))), Some(Location::Block(off)));
    assert_eq!(place(strict.read(off).map(drop)), Some(Location::Block(off)));
    let read = strict.read_inode(number).map(drop);
    assert_eq!(place(read), Some(Location::GroupDesc(GroupNo(1))));
    strict.claim_blocks(of_group(2)).unwrap();
}

/// Uninitialized bitmaps are stored, and the used part of the inode table grows as needed.
#[test]
fn what_is_free_is_counted_anew_from_the_bitmaps() {
    let args = ["-t", "ext4", "-b", "1024", "-O", "^has_journal,^flex_bg"];
    let image = match TempImage::by_mke2fs(48 << 20, &args) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let mut volume = open(&image.path());
    let (group, per_group) = (GroupNo(4), volume.geometry().inodes_per_group);
    let uninit = GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT;
    let before = volume.desc(group);
    assert!(before.flags.contains(uninit), "{before:?}");
    let sum = volume.free_blocks();
    // The later inode first.
    volume.mark_inode(InodeNo(4 * per_group + 9), true).unwrap();
    volume.mark_inode(InodeNo(4 * per_group + 5), false).unwrap();
    assert!(volume.is_inode_used(InodeNo(4 * per_group + 5)).unwrap());
    assert!(!volume.is_inode_used(InodeNo(4 * per_group + 6)).unwrap());
    volume.update_desc(group, |desc| (desc.free_clusters, desc.free_inodes) = (7, 7));
    volume.recount().unwrap();
    volume.commit().unwrap();
    drop(volume);

    let mut stored = open(&image.path());
    let after = stored.desc(group);
    assert_eq!(after.free_clusters, before.free_clusters);
    assert_eq!((after.free_inodes, after.used_dirs), (per_group - 2, 1));
    assert_eq!(after.itable_unused, per_group - 9);
    assert!(!after.flags.intersects(uninit));
    assert_eq!(stored.free_blocks(), sum);
    assert!(stored.is_inode_used(InodeNo(4 * per_group + 9)).unwrap());
}
