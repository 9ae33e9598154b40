//! Damage aimed at structures: one field of one of them becomes zero, all ones, one more, or
//! anything, with its checksum made to fit or left as it was.

use std::path::Path;

use extant_device::Device;
use extant_offline::OfflineVolume;
use extant_ondisk::dirent::DirFormat;
use extant_ondisk::extent::{NodeOwner, RawExtentHeader};
use extant_ondisk::htree::{HtreeFormat, IndexKind};
use extant_ondisk::inode::{Inode, InodeFlags};
use extant_ondisk::jbd2::RawJournalSuperblock;
use extant_ondisk::mmp::RawMmp;
use extant_ondisk::orphan_file::OrphanFileFormat;
use extant_ondisk::superblock::RawSuperblock;
use extant_ondisk::{BlockNo, FileBlock, Geometry, GroupNo, InodeNo, bitmap, xattr};
use extant_testkit::tree::Random;
use zerocopy::FromBytes;

use super::common::open;

/// A structure, and what its checksum needs to know.
#[derive(Clone, Copy, Debug)]
pub(super) enum Structure {
    Superblock,
    Desc(GroupNo),
    BlockBitmap(GroupNo),
    InodeBitmap(GroupNo),
    Inode(InodeNo),
    ExtentNode(NodeOwner),
    Indirect,
    Leaf(DirFormat),
    Index(HtreeFormat, IndexKind),
    Attributes(BlockNo),
    Journal,
    Orphans(OrphanFileFormat, BlockNo),
    Mmp,
    Quota,
}

/// A structure and where it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(super) structure: Structure,
    pub(super) offset: u64,
    pub(super) length: usize,
}

/// All structures of a healthy volume, each kind by itself, so that rare ones are met as often as
/// others.
pub(crate) struct Targets {
    pub(super) geometry: Geometry,
    pub(super) kinds: Vec<Vec<Target>>,
}

impl Targets {
    pub(crate) fn of(image: &Path) -> Self {
        let volume = OfflineVolume::open(open(image, false)).expect("a healthy volume opens");
        let geometry = volume.geometry().clone();
        let mut targets = Self { kinds: Vec::new(), geometry };
        targets.add(Structure::Superblock, 1024, 1024);
        for group in (0..targets.geometry.groups_count).map(GroupNo) {
            let (index, at) = targets.geometry.desc_place(group);
            let place = targets.geometry.desc_block(index);
            let offset = targets.geometry.byte_of(place) + at as u64;
            targets.add(Structure::Desc(group), offset, usize::from(targets.geometry.desc_size));
            let desc = volume.desc(group);
            targets.add_block(Structure::BlockBitmap(group), desc.block_bitmap);
            targets.add_block(Structure::InodeBitmap(group), desc.inode_bitmap);
        }
        if let Some(block) = volume.mmp_block() {
            targets.add_block(Structure::Mmp, block);
        }
        for number in (1..=targets.geometry.inodes_count).map(InodeNo) {
            let record = volume.read_inode(number).expect("reads");
            let Ok(inode) = Inode::decode(&record, number, &targets.geometry) else { continue };
            if inode.links == 0 {
                continue;
            }
            let offset = volume.inode_offset(number).expect("it exists");
            targets.add(Structure::Inode(number), offset, record.len());
            if inode.file_acl.0 != 0 {
                targets.add_block(Structure::Attributes(inode.file_acl), inode.file_acl);
            }
            targets.add_blocks_of(&volume, number, &inode);
        }
        targets
    }

    fn add(&mut self, structure: Structure, offset: u64, length: usize) {
        let target = Target { structure, offset, length };
        let kind = std::mem::discriminant(&structure);
        let is_same = |kinds: &&mut Vec<Target>| {
            kinds.first().is_some_and(|it| std::mem::discriminant(&it.structure) == kind)
        };
        match self.kinds.iter_mut().find(is_same) {
            Some(kind) => kind.push(target),
            None => self.kinds.push(vec![target]),
        }
    }

    fn add_block(&mut self, structure: Structure, block: BlockNo) {
        self.add(structure, self.geometry.byte_of(block), self.geometry.block_len());
    }

    /// The blocks of a file: nodes of its map, and its content if it is the volume's own file.
    fn add_blocks_of(&mut self, volume: &OfflineVolume, number: InodeNo, inode: &Inode) {
        let raw = &volume.raw;
        let is_quota = [&raw.s_usr_quota_inum, &raw.s_grp_quota_inum, &raw.s_prj_quota_inum]
            .iter()
            .any(|it| it.get() == number.0);
        let map = volume.read_map(number, inode).expect("a healthy map");
        let generation = inode.generation;
        for node in map.nodes.iter().copied() {
            let owner = NodeOwner { inode: number, generation, block: Some(node) };
            let is_extents = inode.is_extent_mapped();
            self.add_block(
                if is_extents { Structure::ExtentNode(owner) } else { Structure::Indirect },
                node,
            );
        }
        for (at, block) in map.blocks() {
            if inode.is_dir() {
                self.add_directory_block(volume, number, inode, at, block);
            } else if number == InodeNo::JOURNAL {
                if at.0 == 0 {
                    self.add_block(Structure::Journal, block);
                }
            } else if is_quota {
                self.add_block(Structure::Quota, block);
            } else if raw.s_orphan_file_inum.get() == number.0 {
                let format = OrphanFileFormat::new(&self.geometry, number, generation);
                self.add_block(Structure::Orphans(format, block), block);
            }
        }
    }

    fn add_directory_block(
        &mut self,
        volume: &OfflineVolume,
        number: InodeNo,
        inode: &Inode,
        at: FileBlock,
        block: BlockNo,
    ) {
        let bytes = volume.read(block).expect("reads");
        let is_indexed = inode.flags.contains(InodeFlags::INDEX);
        // A node of an index starts with a record that spans the block.
        let is_node = bytes[..4] == [0; 4]
            && usize::from(u16::from_le_bytes([bytes[4], bytes[5]])) == bytes.len()
            && bytes[6] == 0;
        let structure = if is_indexed && (at.0 == 0 || is_node) {
            let kind = if at.0 == 0 { IndexKind::Root } else { IndexKind::Node };
            Structure::Index(HtreeFormat::new(&self.geometry, number, inode.generation), kind)
        } else {
            Structure::Leaf(DirFormat::new(&self.geometry, number, inode.generation))
        };
        self.add_block(structure, block);
    }
}

/// Spoils one field of some structure; what was done.
pub(crate) fn damage(image: &Path, targets: &Targets, seed: u64) -> String {
    let mut random = Random::new(seed);
    let device = open(image, true);
    let kind = &targets.kinds[random.below(targets.kinds.len() as u64) as usize];
    let target = kind[random.below(kind.len() as u64) as usize];
    let mut bytes = vec![0; target.length];
    device.read_at(target.offset, &mut bytes).expect("reads");
    // Most fields are at the start of a structure.
    let reach = match random.below(4) {
        0 => bytes.len() as u64,
        1 => 256,
        _ => 64,
    };
    let width = 1 << random.below(3);
    let at = (random.below(reach.min(bytes.len() as u64)) as usize) / width * width;
    let field = &mut bytes[at..at + width];
    let before = field.to_vec();
    let how = match random.below(5) {
        0 => {
            field.fill(0);
            "zero"
        }
        1 => {
            field.fill(0xff);
            "all ones"
        }
        2 => {
            for byte in field.iter_mut() {
                let carry;
                (*byte, carry) = byte.overflowing_add(1);
                if !carry {
                    break;
                }
            }
            "one more"
        }
        3 => {
            let bit = random.below(width as u64 * 8) as usize;
            field[bit / 8] ^= 1 << (bit % 8);
            "a bit"
        }
        _ => {
            field.copy_from_slice(&random.number().to_le_bytes()[..width]);
            "anything"
        }
    };
    let after = field.to_vec();
    let is_sealed = random.below(2) == 0;
    if is_sealed {
        seal(&mut bytes, &target, &targets.geometry, &*device);
    }
    device.write_at(target.offset, &bytes).expect("writes");
    let said = target.name();
    format!(
        "{said}, byte {at:#x} of what lies at {:#x}: {before:02x?} becomes {after:02x?} ({how}), sealed: {is_sealed}",
        target.offset
    )
}

/// Writes a structure over another of its kind, or swaps the two, sealed where they come to lie or
/// as they were; what was done.
pub(crate) fn displace(image: &Path, targets: &Targets, seed: u64) -> String {
    let mut random = Random::new(seed);
    let device = open(image, true);
    let several: Vec<_> = targets.kinds.iter().filter(|kind| kind.len() > 1).collect();
    let kind = several[random.below(several.len() as u64) as usize];
    let first = random.below(kind.len() as u64) as usize;
    let second = (first + 1 + random.below(kind.len() as u64 - 1) as usize) % kind.len();
    let (from, to) = (&kind[first], &kind[second]);
    let (is_swap, is_sealed) = (random.below(2) == 0, random.below(4) != 0);
    let read = |target: &Target| {
        let mut bytes = vec![0; target.length];
        device.read_at(target.offset, &mut bytes).expect("reads");
        bytes
    };
    let (mut source, mut other) = (read(from), read(to));
    let put = |bytes: &mut Vec<u8>, target: &Target| {
        bytes.resize(target.length, 0);
        if is_sealed {
            seal(bytes, target, &targets.geometry, &*device);
        }
        device.write_at(target.offset, bytes).expect("writes");
    };
    put(&mut source, to);
    if is_swap {
        put(&mut other, from);
    }
    let how = if is_swap { "changes places with" } else { "lies on" };
    format!(
        "{} of {:#x} {how} {} of {:#x}, sealed: {is_sealed}",
        from.name(),
        from.offset,
        to.name(),
        to.offset
    )
}

impl Target {
    pub(super) fn name(&self) -> String {
        match self.structure {
            Structure::Inode(number) => format!("inode {number}"),
            Structure::Desc(group) => format!("descriptor {group}"),
            other => format!("{other:?}").split(['(', ' ']).next().unwrap_or_default().to_owned(),
        }
    }
}

pub(super) fn seal(bytes: &mut [u8], target: &Target, geometry: &Geometry, device: &dyn Device) {
    match target.structure {
        Structure::Superblock => {
            if let Ok((raw, _)) = RawSuperblock::mut_from_prefix(bytes) {
                raw.seal();
            }
        }
        Structure::Desc(group) => extant_ondisk::group_desc::seal(bytes, group, geometry),
        Structure::BlockBitmap(group) => {
            seal_bitmap(bytes, bitmap::BitmapKind::Block, group, geometry, device);
        }
        Structure::InodeBitmap(group) => {
            seal_bitmap(bytes, bitmap::BitmapKind::Inode, group, geometry, device);
        }
        Structure::Inode(number) => extant_ondisk::inode::seal(bytes, number, geometry),
        Structure::ExtentNode(owner) => {
            // If the header was damaged, the location of the checksum may be unknown.
            let header = RawExtentHeader::read_from_prefix(bytes).map(|(header, _)| header);
            let is_possible = header.is_ok_and(|header| {
                let (entries, max) = (header.eh_entries.get(), usize::from(header.eh_max.get()));
                header.eh_magic.get() == extant_ondisk::extent::EXTENT_MAGIC
                    && 12 * (max + 1) + 4 <= bytes.len()
                    && entries > 0
                    && usize::from(entries) <= max
            });
            if is_possible {
                extant_ondisk::extent::seal(bytes, &owner, geometry);
            }
        }
        Structure::Leaf(format) => format.seal(bytes),
        Structure::Index(format, kind) => format.seal(bytes, kind),
        Structure::Attributes(block) => xattr::seal_block(bytes, block, geometry),
        Structure::Journal => {
            if let Ok((raw, _)) = RawJournalSuperblock::mut_from_prefix(bytes) {
                raw.seal();
            }
        }
        Structure::Orphans(format, block) => format.seal(bytes, block),
        Structure::Mmp => {
            if let Ok((raw, _)) = RawMmp::mut_from_prefix(bytes) {
                raw.seal(geometry);
            }
        }
        Structure::Indirect | Structure::Quota => {}
    }
}

/// The checksum of a bitmap is in the group's descriptor.
fn seal_bitmap(
    bytes: &[u8],
    kind: bitmap::BitmapKind,
    group: GroupNo,
    geometry: &Geometry,
    device: &dyn Device,
) {
    use extant_ondisk::group_desc::{GroupDesc, RawGroupDesc};
    let (index, at) = geometry.desc_place(group);
    let offset = geometry.byte_of(geometry.desc_block(index)) + at as u64;
    let mut stored = vec![0; usize::from(geometry.desc_size)];
    device.read_at(offset, &mut stored).expect("reads");
    let mut raw = RawGroupDesc::from_bytes(&stored, group, geometry).expect("a healthy one");
    let mut desc = GroupDesc::unchecked(&raw);
    bitmap::seal(bytes, kind, &mut desc, geometry);
    desc.encode_into(&mut raw);
    raw.write_to(&mut stored, geometry);
    extant_ondisk::group_desc::seal(&mut stored, group, geometry);
    device.write_at(offset, &stored).expect("writes");
}
