//! A volume with checksums, of blocks of 4 KiB: enough of its format to damage it. What is written
//! by [`Volume::write_inode`] and the like has the checksum that fits.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::Failure;

/// Bytes of a block.
pub(super) const BLOCK: usize = 4096;
/// Offset of the superblock in bytes, and its own length.
const SUPERBLOCK: (u64, usize) = (1024, 1024);
/// The flag of inodes that have a tree of extents.
const EXTENTS_FLAG: u32 = 0x8_0000;
/// The flag of directories that have an index.
const INDEX_FLAG: u32 = 0x1000;
/// The magic number of a node of extents.
const EXTENT_MAGIC: u16 = 0xf30a;

/// A volume that is damaged.
pub(super) struct Volume {
    file: File,
    /// The seed of all checksums but the superblock's.
    seed: u32,
    /// Blocks of the volume.
    pub(super) blocks: u64,
    inodes_per_group: u32,
    inode_len: usize,
    desc_len: usize,
    /// The group descriptors, as read.
    descs: Vec<u8>,
}

/// An inode in use.
#[derive(Clone)]
pub(super) struct Inode {
    pub(super) number: u32,
    pub(super) record: Vec<u8>,
}

/// Where a file's content lies.
#[derive(Default)]
pub(super) struct Map {
    /// First block and number of blocks of each extent.
    pub(super) runs: Vec<(u64, u64)>,
    /// Blocks of the tree.
    pub(super) nodes: Vec<u64>,
}

impl Inode {
    fn mode(&self) -> u16 {
        u16_at(&self.record, 0)
    }

    pub(super) fn is_dir(&self) -> bool {
        self.mode() & 0xf000 == 0x4000
    }

    pub(super) fn is_file(&self) -> bool {
        self.mode() & 0xf000 == 0x8000
    }

    /// Whether it is a directory with an index.
    pub(super) fn is_indexed(&self) -> bool {
        self.is_dir() && u32_at(&self.record, 32) & INDEX_FLAG != 0
    }

    /// The block of its attributes; 0 for none.
    pub(super) fn attributes(&self) -> u64 {
        u64::from(u32_at(&self.record, 104))
    }
}

impl Volume {
    /// Opens an image for damage.
    pub(super) fn open(image: &Path) -> Result<Self, Failure> {
        let file = File::options().read(true).write(true).open(image)?;
        let mut raw = vec![0; SUPERBLOCK.1];
        file.read_exact_at(&mut raw, SUPERBLOCK.0)?;
        if u16_at(&raw, 0x38) != 0xef53 || u32_at(&raw, 24) != 2 {
            return Err("the volume to damage has blocks of 4 KiB".into());
        }
        let has_seed = u32_at(&raw, 0x60) & 0x2000 != 0;
        let seed = if has_seed { u32_at(&raw, 0x270) } else { crc32c(!0, &raw[0x68..0x78]) };
        let (blocks, per_group) = (u64::from(u32_at(&raw, 4)), u64::from(u32_at(&raw, 32)));
        let desc_len = match u32_at(&raw, 0x60) & 0x80 {
            0 => 32,
            _ => usize::from(u16_at(&raw, 0xfe)),
        };
        let mut descs = vec![0; blocks.div_ceil(per_group) as usize * desc_len];
        file.read_exact_at(&mut descs, BLOCK as u64)?;
        let (inodes_per_group, inode_len) = (u32_at(&raw, 40), usize::from(u16_at(&raw, 88)));
        Ok(Self { file, seed, blocks, inodes_per_group, inode_len, desc_len, descs })
    }

    pub(super) fn groups(&self) -> usize {
        self.descs.len() / self.desc_len
    }

    fn desc(&self, group: usize) -> &[u8] {
        &self.descs[group * self.desc_len..][..self.desc_len]
    }

    /// The block of a group that a descriptor has at a byte: 0 the bitmap of blocks, 4 that of
    /// inodes, 8 the table; `None` where the bitmap is not in use yet.
    pub(super) fn place(&self, group: usize, at: usize) -> Option<u64> {
        let desc = self.desc(group);
        let is_unused = match at {
            0 => u16_at(desc, 18) & 2 != 0,
            4 => u16_at(desc, 18) & 1 != 0,
            _ => false,
        };
        (!is_unused).then(|| u64::from(u32_at(desc, at)))
    }

    /// Adds to the counts of a group's free blocks, free inodes and directories.
    pub(super) fn change_counts(&mut self, group: usize, more: u16) -> Result<(), Failure> {
        let seed = crc32c(self.seed, &(group as u32).to_le_bytes());
        let at = group * self.desc_len;
        let desc = &mut self.descs[at..at + self.desc_len];
        for at in [12, 14, 16] {
            let count = u16_at(desc, at).wrapping_add(more);
            desc[at..at + 2].copy_from_slice(&count.to_le_bytes());
        }
        desc[30..32].fill(0);
        let sum = crc32c(seed, desc) as u16;
        desc[30..32].copy_from_slice(&sum.to_le_bytes());
        Ok(self.file.write_all_at(desc, BLOCK as u64 + at as u64)?)
    }

    pub(super) fn read(&self, block: u64) -> Result<Vec<u8>, Failure> {
        let mut bytes = vec![0; BLOCK];
        self.file.read_exact_at(&mut bytes, block * BLOCK as u64)?;
        Ok(bytes)
    }

    pub(super) fn write(&self, block: u64, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.file.write_all_at(bytes, block * BLOCK as u64)?)
    }

    /// Overwrites a block with zeros.
    pub(super) fn zero(&self, block: u64) -> Result<(), Failure> {
        self.write(block, &[0; BLOCK])
    }

    /// Inodes in use that are not reserved, ascending.
    pub(super) fn inodes(&self) -> Result<Vec<Inode>, Failure> {
        let mut all = Vec::new();
        let mut table = vec![0; self.inodes_per_group as usize * self.inode_len];
        for group in 0..self.groups() {
            let start = self.place(group, 8).unwrap_or_default();
            self.file.read_exact_at(&mut table, start * BLOCK as u64)?;
            for (at, record) in table.chunks_exact(self.inode_len).enumerate() {
                let number = group as u32 * self.inodes_per_group + 1 + at as u32;
                if u16_at(record, 26) > 0 && (number == 2 || number > 11) {
                    all.push(Inode { number, record: record.to_vec() });
                }
            }
        }
        Ok(all)
    }

    /// Writes the record of an inode as it is.
    pub(super) fn write_raw_inode(&self, inode: &Inode) -> Result<(), Failure> {
        let (group, at) = (
            (inode.number - 1) / self.inodes_per_group,
            (inode.number - 1) % self.inodes_per_group,
        );
        let table = self.place(group as usize, 8).unwrap_or_default();
        let offset = table * BLOCK as u64 + u64::from(at) * self.inode_len as u64;
        Ok(self.file.write_all_at(&inode.record, offset)?)
    }

    /// Writes the record of an inode with its checksum.
    pub(super) fn write_inode(&self, inode: &mut Inode) -> Result<(), Failure> {
        for at in [124, 130] {
            inode.record[at..at + 2].fill(0);
        }
        let sum = crc32c(self.seed_of(inode), &inode.record);
        inode.record[124..126].copy_from_slice(&(sum as u16).to_le_bytes());
        inode.record[130..132].copy_from_slice(&((sum >> 16) as u16).to_le_bytes());
        self.write_raw_inode(inode)
    }

    /// The seed of the checksums of an inode's blocks.
    fn seed_of(&self, inode: &Inode) -> u32 {
        let seed = crc32c(self.seed, &inode.number.to_le_bytes());
        crc32c(seed, &inode.record[100..104])
    }

    /// Writes a block of names with its checksum.
    pub(super) fn write_names(
        &self,
        dir: &Inode,
        block: u64,
        bytes: &mut [u8],
    ) -> Result<(), Failure> {
        let sum = crc32c(self.seed_of(dir), &bytes[..BLOCK - 12]);
        bytes[BLOCK - 4..].copy_from_slice(&sum.to_le_bytes());
        self.write(block, bytes)
    }

    /// Sets the count of owners of a block of attributes.
    pub(super) fn set_owners(&self, block: u64, owners: u32) -> Result<(), Failure> {
        let mut bytes = self.read(block)?;
        bytes[4..8].copy_from_slice(&owners.to_le_bytes());
        bytes[16..20].fill(0);
        let sum = crc32c(crc32c(self.seed, &block.to_le_bytes()), &bytes);
        bytes[16..20].copy_from_slice(&sum.to_le_bytes());
        self.write(block, &bytes)
    }

    /// Sets the first inode of the list of orphans.
    pub(super) fn set_first_orphan(&self, number: u32) -> Result<(), Failure> {
        let mut raw = vec![0; SUPERBLOCK.1];
        self.file.read_exact_at(&mut raw, SUPERBLOCK.0)?;
        raw[0xe8..0xec].copy_from_slice(&number.to_le_bytes());
        let sum = crc32c(!0, &raw[..SUPERBLOCK.1 - 4]);
        raw[SUPERBLOCK.1 - 4..].copy_from_slice(&sum.to_le_bytes());
        Ok(self.file.write_all_at(&raw, SUPERBLOCK.0)?)
    }

    /// The map of an inode with extents.
    pub(super) fn map(&self, inode: &Inode) -> Result<Map, Failure> {
        let mut map = Map::default();
        if u32_at(&inode.record, 32) & EXTENTS_FLAG != 0 {
            self.add_node(&inode.record[40..100], &mut map)?;
        }
        Ok(map)
    }

    fn add_node(&self, node: &[u8], map: &mut Map) -> Result<(), Failure> {
        if u16_at(node, 0) != EXTENT_MAGIC {
            return Err("a node of extents lacks its magic number".into());
        }
        let (count, depth) = (usize::from(u16_at(node, 2)), u16_at(node, 6));
        for record in node[12..].chunks_exact(12).take(count) {
            if depth > 0 {
                let child = u64::from(u32_at(record, 4));
                map.nodes.push(child);
                self.add_node(&self.read(child)?, map)?;
            } else {
                let len = u64::from(u16_at(record, 4) & 0x7fff);
                map.runs.push((u64::from(u32_at(record, 8)), len));
            }
        }
        Ok(())
    }
}

/// The records of a block of names: the place of each in bytes.
pub(super) fn records(bytes: &[u8]) -> Vec<usize> {
    let (mut all, mut at) = (Vec::new(), 0);
    while at + 12 <= BLOCK - 12 {
        all.push(at);
        at += usize::from(u16_at(bytes, at + 4)).max(12);
    }
    all
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let (mut value, mut bit) = (at as u32, 0);
        while bit < 8 {
            value = if value & 1 == 0 { value >> 1 } else { value >> 1 ^ 0x82f6_3b78 };
            bit += 1;
        }
        table[at] = value;
        at += 1;
    }
    table
};

/// CRC32C of some bytes from a seed on, not inverted at the end, as ext4 has it.
fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(seed, |sum, byte| sum >> 8 ^ TABLE[((sum ^ u32::from(*byte)) & 0xff) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_the_castagnoli_one() {
        assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
    }
}
