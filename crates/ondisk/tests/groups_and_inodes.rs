//! Descriptors, bitmaps, inodes and extent nodes on images of mke2fs and the kernel: every
//! checksum, every count.

use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::extent::{self, ExtentNode, NodeLimits, NodeOwner, OwnedNode, child_limits};
use extant_ondisk::group_desc::{self, GroupDesc, GroupFlags, RawGroupDesc};
use extant_ondisk::inode::{self, FileType, Inode};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use extant_ondisk::time::Timestamp;
use extant_ondisk::{BlockNo, Geometry, GroupNo, InodeNo};
use extant_testkit::{LoopMount, Scratch, TempImage, debugfs, is_root, mke2fs, skip, tool, tree};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

struct Image {
    file: File,
    geometry: Geometry,
}

impl Image {
    fn open(path: &Path) -> Self {
        let file = File::open(path).unwrap();
        let mut bytes = [0_u8; 1024];
        file.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET).unwrap();
        let raw = RawSuperblock::from_bytes(&bytes, GroupNo(0)).unwrap();
        Self { file, geometry: Geometry::new(&raw).unwrap() }
    }

    fn block(&self, block: BlockNo) -> Vec<u8> {
        let mut bytes = vec![0; self.geometry.block_len()];
        self.file.read_exact_at(&mut bytes, self.geometry.byte_of(block)).unwrap();
        bytes
    }

    fn stored_desc(&self, group: GroupNo) -> Vec<u8> {
        let (index, at) = self.geometry.desc_place(group);
        let table = self.block(self.geometry.desc_block(index));
        table[at..at + usize::from(self.geometry.desc_size)].to_vec()
    }

    fn groups(&self) -> impl Iterator<Item = GroupNo> {
        (0..self.geometry.groups_count).map(GroupNo)
    }

    fn record(&self, desc: &GroupDesc, index: u32) -> Vec<u8> {
        let size = self.geometry.inode_size;
        let mut bytes = vec![0; usize::from(size)];
        let at = self.geometry.byte_of(desc.inode_table) + u64::from(index) * u64::from(size);
        self.file.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }
}

/// Statistics of a walk over a whole image.
#[derive(Default)]
struct Seen {
    inodes: u32,
    directories: u32,
    extent_blocks: u32,
    deepest: u16,
}

/// Verifies and decodes every descriptor, bitmap, used inode and extent node; encodes each again to
/// the same bytes; compares the descriptors' counts with bitmaps and inodes.
fn walk(path: &Path) -> Seen {
    let image = Image::open(path);
    let geometry = &image.geometry;
    let mut seen = Seen::default();
    for group in image.groups() {
        let stored = image.stored_desc(group);
        group_desc::verify(&stored, group, geometry).unwrap();
        let mut raw = RawGroupDesc::from_bytes(&stored, group, geometry).unwrap();
        let desc = GroupDesc::decode(&raw, group, geometry).unwrap();
        desc.encode_into(&mut raw);
        let mut again = stored.clone();
        raw.write_to(&mut again, geometry);
        group_desc::seal(&mut again, group, geometry);
        assert_eq!(again, stored, "descriptor of group {group}");

        if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            let bits = image.block(desc.block_bitmap);
            bitmap::verify(&bits, BitmapKind::Block, group, &desc, geometry).unwrap();
            let used = BitmapKind::Block.used_bits(group, geometry);
            assert_eq!(used - bitmap::count_set(&bits, 0..used), desc.free_clusters);
            assert!(bitmap::is_padded(&bits, used), "block bitmap of group {group}");
        }
        if desc.flags.contains(GroupFlags::INODE_UNINIT) {
            assert_eq!(desc.itable_used(geometry), 0);
            continue;
        }
        let bits = image.block(desc.inode_bitmap);
        bitmap::verify(&bits, BitmapKind::Inode, group, &desc, geometry).unwrap();
        let used = BitmapKind::Inode.used_bits(group, geometry);
        assert_eq!(used - bitmap::count_set(&bits, 0..used), desc.free_inodes);
        assert!(bitmap::is_padded(&bits, used), "inode bitmap of group {group}");
        let mut directories = 0;
        for run in bitmap::runs(&bits, 0..used).filter(|run| run.is_set) {
            for index in run.bits {
                assert!(index < desc.itable_used(geometry));
                let number = InodeNo(group.0 * geometry.inodes_per_group + index + 1);
                directories += check_inode(&image, number, image.record(&desc, index), &mut seen);
            }
        }
        assert_eq!(directories, desc.used_dirs, "directories of group {group}");
        seen.directories += directories;
    }
    seen
}

/// Returns 1 for a directory, otherwise 0.
fn check_inode(image: &Image, number: InodeNo, record: Vec<u8>, seen: &mut Seen) -> u32 {
    let geometry = &image.geometry;
    let inode = Inode::decode(&record, number, geometry).unwrap();
    if inode.links == 0 && inode.mode == 0 && number < geometry.first_inode {
        return 0; // reserved and never made: all zeros
    }
    inode::verify(&record, number, geometry).unwrap();
    let mut again = record.clone();
    inode.encode_into(&mut again, geometry);
    inode::seal(&mut again, number, geometry);
    assert_eq!(again, record, "inode {number}");
    seen.inodes += 1;
    let has_blocks = matches!(inode.file_type(), Some(FileType::Regular | FileType::Directory));
    if has_blocks && inode.is_extent_mapped() {
        let owner = NodeOwner { inode: number, generation: inode.generation, block: None };
        check_node(image, &inode.i_block, owner, &NodeLimits::ROOT, seen);
    }
    u32::from(inode.is_dir())
}

fn check_node(image: &Image, bytes: &[u8], owner: NodeOwner, limits: &NodeLimits, seen: &mut Seen) {
    extent::verify(bytes, &owner, &image.geometry).unwrap();
    let node = ExtentNode::check(bytes, &owner, limits, &image.geometry).unwrap();
    let mut again = bytes.to_vec();
    OwnedNode::decode(bytes, &owner, limits, &image.geometry).unwrap().encode_into(&mut again);
    extent::seal(&mut again, &owner, &image.geometry);
    assert_eq!(again, bytes, "{}", owner.location());
    seen.deepest = seen.deepest.max(node.depth());
    let ExtentNode::Index(indexes, below) = node else { return };
    for at in 0..indexes.len() {
        let (index, limits) = child_limits(indexes, below, at, limits).unwrap();
        seen.extent_blocks += 1;
        let owner = NodeOwner { block: Some(index.leaf), ..owner };
        check_node(image, &image.block(index.leaf), owner, &limits, seen);
    }
}

const OPTION_SETS: &[&[&str]] = &[
    &["-t", "ext4"],
    &["-t", "ext4", "-b", "1024", "-g", "2048"],
    &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "8192"],
    &["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode", "-g", "1024"],
    &["-t", "ext4", "-O", "^64bit"],
    &["-t", "ext4", "-E", "desc_size=128"],
    &["-t", "ext4", "-O", "^metadata_csum,uninit_bg", "-g", "2048", "-b", "2048"],
    &["-t", "ext4", "-O", "^metadata_csum,uninit_bg,^64bit", "-I", "128"],
    &["-t", "ext4", "-I", "128"],
    &["-t", "ext4", "-I", "1024", "-O", "metadata_csum_seed"],
    &["-t", "ext3", "-I", "128"],
    &["-t", "ext2", "-O", "none", "-b", "1024"],
    &["-t", "ext4", "-b", "65536"],
];

#[test]
fn everything_that_mke2fs_writes_is_read_and_written_again_to_the_same_bytes() {
    if tool("mke2fs").is_none() {
        skip!("no mke2fs here");
    }
    let scratch = Scratch::new();
    let source = scratch.join("source");
    let options = tree::Options { many: 300, block: 1024, ..tree::Options::default() };
    tree::grow(&source, 5, &options).unwrap();
    for options in OPTION_SETS {
        let image = TempImage::of_size(96 << 20).unwrap();
        let (path, source) = (image.path(), source.to_str().unwrap());
        let args = [&["-q", "-F", "-d", source], *options, &[path.to_str().unwrap()]].concat();
        mke2fs(&args).unwrap();
        let seen = walk(&path);
        assert!(seen.inodes > 300 && seen.directories > 5, "{options:?}");
    }
}

#[test]
fn deep_extent_trees_of_the_kernel_are_read() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    for block_size in ["1024", "4096"] {
        let image = match TempImage::by_mke2fs(64 << 20, &["-t", "ext4", "-b", block_size]) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        let mount = match LoopMount::new(&image.path(), "") {
            Ok(mount) => mount,
            Err(why) => skip!("no loop mount here: {why}"),
        };
        let step = 2 * block_size.parse::<u64>().unwrap();
        let file = File::create(mount.path().join("every-other-block")).unwrap();
        for at in 0..8000 {
            file.write_all_at(&[7], at * step).unwrap();
        }
        file.sync_all().unwrap();
        drop(file);
        mount.unmount().unwrap();
        let seen = walk(&image.path());
        assert!(seen.extent_blocks > 20, "{} blocks", seen.extent_blocks);
        assert!(seen.deepest >= 1, "{block_size}: depth {}", seen.deepest);
    }
}

/// debugfs prints the 34 bits of seconds as `0xLOW:EXTRA`.
#[test]
fn times_of_the_kernel_past_2038_are_those_it_was_given() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let image = match TempImage::by_mke2fs(16 << 20, &["-t", "ext4"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let mount = match LoopMount::new(&image.path(), "") {
        Ok(mount) => mount,
        Err(why) => skip!("no loop mount here: {why}"),
    };
    let moments = [-0x7fff_ffff_i64, -1, 0, 0x7fff_ffff, 0x8000_0000, 0x1_2345_6789, 0x3_7fff_fffe];
    for (number, seconds) in moments.iter().enumerate() {
        let file = File::create(mount.path().join(format!("time-{number}"))).unwrap();
        let away = Duration::from_secs(seconds.unsigned_abs());
        let second = if *seconds < 0 { UNIX_EPOCH - away } else { UNIX_EPOCH + away };
        file.set_modified(second + Duration::from_nanos(987_654_321)).unwrap();
    }
    mount.unmount().unwrap();
    let opened = Image::open(&image.path());
    for (number, seconds) in moments.iter().enumerate() {
        let shown = debugfs(&image.path(), &format!("stat /time-{number}")).unwrap();
        let field = |name: &str| {
            let rest = shown.split(name).nth(1).unwrap_or_else(|| panic!("{name} in {shown}"));
            rest.split_whitespace().next().unwrap().to_owned()
        };
        let inode = InodeNo(field("Inode:").parse().unwrap());
        let (group, index) = opened.geometry.inode_place(inode).unwrap();
        let stored = opened.stored_desc(group);
        let raw = RawGroupDesc::from_bytes(&stored, group, &opened.geometry).unwrap();
        let record = opened.record(&GroupDesc::unchecked(&raw), index);
        let inode = Inode::decode(&record, inode, &opened.geometry).unwrap();
        assert_eq!(inode.mtime, Timestamp::new(*seconds, 987_654_321));
        let (low, extra) = inode.mtime.encode(true);
        assert_eq!(field("mtime:"), format!("0x{low:08x}:{extra:08x}"));
    }
}
