//! Directories, orphan file and MMP block as the kernel and mke2fs write them.

use extant_ondisk::dirent::{DirFormat, FileType, dot_entries};
use extant_ondisk::dx_hash::DirHasher;
use extant_ondisk::htree::{HtreeFormat, IndexKind};
use extant_ondisk::inline_data::InlineDir;
use extant_ondisk::mmp::{Mmp, MmpSequence, RawMmp};
use extant_ondisk::orphan_file::{OrphanFileFormat, orphans};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, Superblock};
use extant_ondisk::{BlockNo, FileBlock, Geometry, GroupNo, InodeNo};
use extant_testkit::{LoopMount, TempImage, debugfs, is_root, skip, tool};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

/// An image with debugfs's view of it.
struct Volume {
    image: TempImage,
    superblock: Superblock,
    geometry: Geometry,
}

impl Volume {
    fn open(image: TempImage) -> Self {
        let mut bytes = [0; 1024];
        let file = File::open(image.path()).unwrap();
        file.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET).unwrap();
        let raw = RawSuperblock::from_bytes(&bytes, GroupNo(0)).unwrap();
        let geometry = Geometry::new(&raw).unwrap();
        Self { image, superblock: Superblock::decode(&raw), geometry }
    }

    fn block(&self, block: BlockNo) -> Vec<u8> {
        let mut bytes = vec![0; self.geometry.block_len()];
        let file = File::open(self.image.path()).unwrap();
        file.read_exact_at(&mut bytes, self.geometry.byte_of(block)).unwrap();
        bytes
    }

    fn blocks_of(&self, path: &str) -> Vec<BlockNo> {
        let text = debugfs(&self.image.path(), &format!("blocks {path}")).unwrap();
        text.split_whitespace().map(|number| BlockNo(number.parse().unwrap())).collect()
    }

    /// Inode number and generation.
    fn inode_of(&self, path: &str) -> (InodeNo, u32) {
        let text = debugfs(&self.image.path(), &format!("stat {path}")).unwrap();
        let number = |label: &str| -> u32 {
            let after = text.split_once(label).unwrap().1.trim_start();
            after.split_whitespace().next().unwrap().parse().unwrap()
        };
        (InodeNo(number("Inode:")), number("Generation:"))
    }
}

/// A volume of 1 KiB blocks on which the kernel filled `/dir` with names; the error is the reason
/// for a skip.
fn filled_by_kernel(unsigned: bool, names: &BTreeSet<Vec<u8>>) -> Result<Volume, String> {
    if !is_root() {
        return Err("a loop mount needs root".into());
    }
    let image = TempImage::by_mke2fs(64 << 20, &["-t", "ext4", "-b", "1024", "-N", "8192"])?;
    if unsigned {
        let debugfs = tool("debugfs").ok_or("no debugfs here")?;
        let path = image.path();
        debugfs.text(["-w", "-R", "ssv flags 2", path.to_str().unwrap()])?;
    }
    let mount = LoopMount::new(&image.path(), "")?;
    let dir = mount.path().join("dir");
    fs::create_dir(&dir).unwrap();
    for name in names {
        File::create(dir.join(OsStr::from_bytes(name))).unwrap();
    }
    mount.unmount()?;
    Ok(Volume::open(image))
}

#[test]
fn directories_of_the_kernel_are_read_whole_and_by_hash() {
    let names: BTreeSet<Vec<u8>> = (0..4000_u32)
        .map(|at| match at % 3 {
            0 => format!("name-{at}").into_bytes(),
            1 => [b"n\xe4\xff\x80-", &at.to_le_bytes().map(|byte| byte | 0x80)[..], b"x"].concat(),
            _ => format!("{at:-<40}").into_bytes(),
        })
        .collect();
    for unsigned in [false, true] {
        let volume = match filled_by_kernel(unsigned, &names) {
            Ok(volume) => volume,
            Err(why) => skip!("{why}"),
        };
        assert_eq!(volume.superblock.hash_is_unsigned(), unsigned);
        let (inode, generation) = volume.inode_of("/dir");
        let dirents = DirFormat::new(&volume.geometry, inode, generation);
        let index = HtreeFormat::new(&volume.geometry, inode, generation);
        // The directory has few extents, so debugfs lists its blocks in logical order.
        let blocks: Vec<_> =
            volume.blocks_of("/dir").into_iter().map(|block| volume.block(block)).collect();
        assert_eq!(dot_entries(&dirents, &blocks[0]), Ok((inode, InodeNo::ROOT)));

        let (root, top) = index.root(&blocks[0]).unwrap();
        assert_eq!(root.indirect_levels, 1);
        assert_eq!(top.limit, index.capacity(IndexKind::Root));
        index.verify(&blocks[0], FileBlock(0), IndexKind::Root).unwrap();
        top.check_order(extant_ondisk::Location::Volume).unwrap();

        let mut found = BTreeSet::new();
        let mut leaves = 0;
        for pointer in top.entries() {
            let block = &blocks[pointer.block.0 as usize];
            index.verify(block, pointer.block, IndexKind::Node).unwrap();
            let node = index.node(block, pointer.block, IndexKind::Node).unwrap();
            assert_eq!(node.limit, index.capacity(IndexKind::Node));
            for leaf in node.entries() {
                let block = &blocks[leaf.block.0 as usize];
                dirents.verify(block, leaf.block).unwrap();
                leaves += 1;
                for entry in dirents.entries(block, leaf.block) {
                    let entry = entry.unwrap();
                    if entry.is_used() {
                        assert_eq!(entry.file_type, FileType::Regular);
                        found.insert(entry.name.to_vec());
                    }
                }
            }
        }
        assert!(leaves > 123, "{leaves} leaves need a second level");
        assert_eq!(found, names);

        let version = root.hash_version.with_signedness(unsigned);
        let hasher = DirHasher::new(version, volume.superblock.hash_seed).unwrap();
        assert_eq!(DirHasher::of_volume(&volume.superblock), Ok(hasher));
        for name in &names {
            let hash = hasher.hash(name).hash;
            let pointer = top.entry(top.search(hash)).unwrap().block;
            let node = index.node(&blocks[pointer.0 as usize], pointer, IndexKind::Node).unwrap();
            let leaf = node.entry(node.search(hash)).unwrap().block;
            let mut entries = dirents.entries(&blocks[leaf.0 as usize], leaf);
            assert!(entries.any(|entry| entry.unwrap().name == name), "{name:?} by its hash");
        }
    }
}

#[test]
fn the_orphan_file_of_mke2fs_is_believed() {
    let options = ["-t", "ext4", "-O", "orphan_file"];
    let volume = match TempImage::by_mke2fs(64 << 20, &options) {
        Ok(image) => Volume::open(image),
        Err(why) => skip!("{why}"),
    };
    let inode = volume.superblock.orphan_file_inode.unwrap();
    let path = format!("<{inode}>");
    let format = OrphanFileFormat::new(&volume.geometry, inode, volume.inode_of(&path).1);
    let blocks = volume.blocks_of(&path);
    assert!(!blocks.is_empty());
    for (at, &block_no) in blocks.iter().enumerate() {
        let block = volume.block(block_no);
        format.verify(&block, FileBlock(at as u64), block_no).unwrap();
        assert_eq!(orphans(&block).flatten().count(), 0);
        let mut resealed = block.clone();
        format.seal(&mut resealed, block_no);
        assert_eq!(resealed, block);
    }
}

#[test]
fn the_mmp_block_of_mke2fs_is_believed() {
    let volume = match TempImage::by_mke2fs(64 << 20, &["-t", "ext4", "-O", "mmp"]) {
        Ok(image) => Volume::open(image),
        Err(why) => skip!("{why}"),
    };
    let block_no = volume.superblock.mmp_block;
    let mut raw = RawMmp::from_bytes(&volume.block(block_no), block_no).unwrap();
    raw.verify(block_no, &volume.geometry).unwrap();
    let mmp = Mmp::decode(&raw);
    assert_eq!(mmp.sequence, MmpSequence::Clean);
    assert_eq!(mmp.check_interval, volume.superblock.mmp_interval);
    let stored = raw.mmp_checksum.get();
    raw.seal(&volume.geometry);
    assert_eq!(raw.mmp_checksum.get(), stored);
}

/// The bytes of `i_block` as debugfs dumps them: `0000  0200 0000 …`, repeated (here zero) lines as
/// `*`.
fn i_block_of(volume: &Volume, path: &str) -> [u8; 60] {
    let text = debugfs(&volume.image.path(), &format!("inode_dump -b {path}")).unwrap();
    let mut bytes = [0; 60];
    for line in text.lines().filter(|line| !line.starts_with('*')) {
        let mut groups = line.split_whitespace();
        let Some(at) = groups.next().and_then(|at| usize::from_str_radix(at, 8).ok()) else {
            continue;
        };
        for (pair, group) in groups.take(8).enumerate() {
            let Ok(value) = u16::from_str_radix(group, 16) else { break };
            bytes[at + pair * 2..at + pair * 2 + 2].copy_from_slice(&value.to_be_bytes());
        }
    }
    bytes
}

#[test]
fn an_inline_directory_of_the_kernel_is_read() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let image = match TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-O", "inline_data"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let mount = LoopMount::new(&image.path(), "").unwrap();
    fs::create_dir(mount.path().join("dir")).unwrap();
    for name in ["one", "two"] {
        File::create(mount.path().join("dir").join(name)).unwrap();
    }
    mount.unmount().unwrap();
    let volume = Volume::open(image);
    let (inode, generation) = volume.inode_of("/dir");
    let format = DirFormat::new(&volume.geometry, inode, generation);
    let i_block = i_block_of(&volume, "/dir");
    let dir = InlineDir::decode(&format, &i_block, &[], 60).unwrap();
    assert_eq!(dir.parent, InodeNo::ROOT);
    let entries: Vec<_> = dir.entries().map(Result::unwrap).collect();
    assert_eq!(entries.iter().map(|entry| entry.name).collect::<Vec<_>>(), [&b"one"[..], b"two"]);
}
