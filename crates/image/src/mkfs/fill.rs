//! A new volume full of empty files, streamed: for experiments with hundreds of millions of inodes,
//! which no tree in memory holds. Directories are packed as `extant build` packs them.
//!
//! Inodes are numbered consecutively: a directory, then its files. Directories are in others of up
//! to [`SUBDIRECTORIES`], which are in the root; their blocks lie in the group of their inode, or
//! in its flex group.

use extant_device::{Device, DeviceError};
use extant_layout::pack::{DirItem, DirectoryPacker, ExtentTree};
use extant_ondisk::dirent::FileType;
use extant_ondisk::dx_hash::{DirHasher, HashVersion};
use extant_ondisk::inode::{self, Inode, InodeFlags};
use extant_ondisk::{BlockNo, CompatFeatures, InodeNo};

use super::error::{Conflict, MkfsError, Shortage};
use super::volume::NewVolume;
use super::write::WriteRules;

/// Directories of files in each directory of directories.
const SUBDIRECTORIES: u64 = 1000;
/// Bytes that are written at once.
const BATCH: usize = 4 << 20;
const DIRECTORY: u16 = 0o040_755;
const FILE: u16 = 0o100_644;

/// The inode table of the group that is being filled.
struct Table {
    group: u32,
    bytes: Vec<u8>,
    /// Bytes up to the last record.
    end: usize,
}

/// Blocks that follow each other, to be written together.
struct Stream<'d> {
    device: &'d dyn Device,
    at: u64,
    bytes: Vec<u8>,
}

impl Stream<'_> {
    fn put(&mut self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        if at != self.at + self.bytes.len() as u64 || self.bytes.len() >= BATCH {
            self.flush()?;
            self.at = at;
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        if !self.bytes.is_empty() {
            self.device.write_at(self.at, &self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }
}

struct Filler<'v, 'd> {
    volume: &'v mut NewVolume,
    packer: DirectoryPacker,
    /// Directories' blocks, and the tables.
    stream: Stream<'d>,
    table: Table,
    /// The record of an empty file, without its checksum.
    empty: Vec<u8>,
}

/// The names of a directory: one letter and nine digits each.
fn names(letter: u8, first: u64, count: u64) -> Vec<[u8; 10]> {
    let mut names = Vec::with_capacity(count as usize);
    for number in first..first + count {
        let (mut name, mut rest) = ([letter; 10], number);
        for digit in name[1..].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        names.push(name);
    }
    names
}

impl NewVolume {
    /// Writes the volume with its special inodes and `inodes` more in use, directories among them;
    /// the device must read as zero. Each directory gets the given number of files.
    ///
    /// # Errors
    /// The volume has too few inodes or blocks, or the device failed.
    pub fn write_filled(
        &mut self,
        device: &dyn Device,
        inodes: u64,
        files_per_directory: u64,
    ) -> Result<(), MkfsError> {
        if inodes > 0 && !self.has_extents() {
            return Err(Conflict::FillWithoutExtents.into());
        }
        let numbers =
            u64::from(self.geometry.first_inode.0)..u64::from(self.geometry.inodes_count) + 1;
        let free = self.inodes.next_gap(numbers).unwrap_or(0..0);
        if free.end - free.start < inodes {
            let room = free.end - free.start;
            return Err(Shortage::Files { files: inodes, inodes: room }.into());
        }
        let rules = WriteRules { prezeroed: true, one_thread: true, ..WriteRules::default() };
        let zeroed = self.clear(device, rules)?;
        if inodes > 0 {
            let index = match self.geometry.has_compat(CompatFeatures::DIR_INDEX) {
                true => HashVersion::decode(self.superblock.def_hash_version)
                    .zip(DirHasher::of_volume(&self.superblock).ok()),
                false => None,
            };
            let packer = DirectoryPacker::new(&self.geometry, index);
            let mut file = self.new_inode(FILE, 1);
            file.flags |= InodeFlags::EXTENTS;
            let none = ExtentTree::new(None);
            file.i_block = none.write(InodeNo(0), 0, &self.geometry, None, |_, _| ());
            let mut empty = vec![0; usize::from(self.geometry.inode_size)];
            file.encode_into(&mut empty, &self.geometry);
            let table = Table { group: 0, bytes: Vec::new(), end: 0 };
            let stream = Stream { device, at: 0, bytes: Vec::with_capacity(BATCH) };
            let mut filler = Filler { volume: self, packer, stream, table, empty };
            filler.fill(free.start, free.start + inodes, files_per_directory.max(1))?;
            self.inodes.insert(free.start..free.start + inodes);
        }
        Ok(self.write_metadata(device, rules, zeroed)?)
    }
}

impl Filler<'_, '_> {
    fn fill(&mut self, first: u64, end: u64, files: u64) -> Result<(), MkfsError> {
        let mut number = first;
        let mut tops = Vec::new();
        while number < end {
            let top = number;
            tops.push(top);
            number += 1;
            let count = (end - number).div_ceil(files + 1).min(SUBDIRECTORIES);
            let subs = (0..count).map(|index| number + index * (files + 1));
            self.directory(top, u64::from(InodeNo::ROOT.0), b'd', FileType::Directory, subs)?;
            for _ in 0..count {
                let dir = number;
                let last = end.min(dir + 1 + files);
                self.directory(dir, top, b'f', FileType::Regular, dir + 1..last)?;
                for file in dir + 1..last {
                    let mut record = std::mem::take(&mut self.empty);
                    inode::seal(&mut record, to_inode(file), &self.volume.geometry);
                    self.put_record(file, &record)?;
                    self.empty = record;
                }
                number = last;
            }
        }
        self.root(&tops)?;
        self.finish_table()?;
        self.stream.flush()?;
        // The volume's own inodes share tables with these.
        let (volume, device) = (&mut *self.volume, self.stream.device);
        for (number, record) in std::mem::take(&mut volume.records) {
            let Some((group, index)) = volume.geometry.inode_place(InodeNo(number)) else {
                continue;
            };
            let Some(tables) = volume.tables.get(group.0 as usize) else { continue };
            let at = volume.geometry.byte_of(tables.inode_table)
                + u64::from(index) * record.len() as u64;
            device.write_at(at, &record)?;
        }
        Ok(())
    }

    /// A directory of files or directories that are numbered so.
    fn directory(
        &mut self,
        number: u64,
        parent: u64,
        letter: u8,
        file_type: FileType,
        members: impl Iterator<Item = u64> + Clone,
    ) -> Result<(), MkfsError> {
        let count = members.clone().count() as u64;
        let first = members.clone().next().unwrap_or(0);
        let names = names(letter, first, count);
        let items = names.iter().zip(members);
        let mut items: Vec<DirItem<'_>> =
            items.map(|(name, inode)| DirItem::new(name, to_inode(inode), file_type)).collect();
        let inode = to_inode(number);
        let plan = self.packer.plan(&mut items);
        let plan = plan.map_err(Shortage::from)?;
        let volume = &mut *self.volume;
        let map = volume.map_file(inode, volume.goal_of(inode), u64::from(plan.blocks()))?;
        let geometry = &volume.geometry;
        let seed = geometry.has_metadata_csum().then(|| geometry.inode_checksum_seed(inode, 0));
        let mut bytes = vec![0; plan.blocks() as usize * geometry.block_len()];
        self.packer.write(&plan, inode, to_inode(parent), seed, &items, &mut bytes);
        let links = if file_type == FileType::Directory { 2 + count as u16 } else { 2 };
        let mut record = volume.new_inode(DIRECTORY, links);
        record.size = bytes.len() as u64;
        if plan.is_indexed {
            record.flags |= InodeFlags::INDEX;
        }
        volume.set_map(&mut record, &map);
        let group = (inode.0 - 1) / volume.geometry.inodes_per_group;
        *volume.directories.entry(group).or_default() += 1;
        let mut rest = &bytes[..];
        for run in &map.data {
            let length =
                ((run.end - run.start) as usize * volume.geometry.block_len()).min(rest.len());
            let (now, later) = rest.split_at(length);
            self.stream.put(volume.geometry.byte_of(BlockNo(run.start)), now)?;
            rest = later;
        }
        let mut encoded = vec![0; usize::from(volume.geometry.inode_size)];
        record.encode_into(&mut encoded, &volume.geometry);
        inode::seal(&mut encoded, inode, &volume.geometry);
        self.put_record(number, &encoded)
    }

    /// The root's block again, with the directories of directories in it.
    fn root(&mut self, tops: &[u64]) -> Result<(), MkfsError> {
        let volume = &mut *self.volume;
        let names = names(b't', 0, tops.len() as u64);
        let lost_found =
            [DirItem::new(b"lost+found", volume.geometry.first_inode, FileType::Directory)];
        let tops = names.iter().zip(tops);
        let tops = tops.map(|(name, top)| DirItem::new(name, to_inode(*top), FileType::Directory));
        let mut items: Vec<DirItem<'_>> = lost_found.into_iter().chain(tops).collect();
        let plan = self.packer.plan(&mut items);
        let plan = plan.map_err(Shortage::from)?;
        let map = volume.grow_root(u64::from(plan.blocks()))?;
        let geometry = &volume.geometry;
        let seed =
            geometry.has_metadata_csum().then(|| geometry.inode_checksum_seed(InodeNo::ROOT, 0));
        let mut bytes = vec![0; plan.blocks() as usize * geometry.block_len()];
        self.packer.write(&plan, InodeNo::ROOT, InodeNo::ROOT, seed, &items, &mut bytes);
        volume.put_file(&map, &bytes);
        let old = volume.records.get(&InodeNo::ROOT.0).cloned().unwrap_or_default();
        let mut record = Inode::decode(&old, InodeNo::ROOT, &volume.geometry)?;
        record.links = 2 + items.len() as u16;
        record.size = bytes.len() as u64;
        record.flags.set(InodeFlags::INDEX, plan.is_indexed);
        volume.set_map(&mut record, &map);
        volume.put_inode(InodeNo::ROOT, &record, |_| ());
        Ok(())
    }

    /// Puts a record into its table: numbers ascend.
    fn put_record(&mut self, number: u64, record: &[u8]) -> Result<(), MkfsError> {
        let geometry = &self.volume.geometry;
        let index = number - 1;
        let group = (index / u64::from(geometry.inodes_per_group)) as u32;
        if group != self.table.group {
            self.finish_table()?;
            self.table.group = group;
        }
        let geometry = &self.volume.geometry;
        let at = (index % u64::from(geometry.inodes_per_group)) as usize * record.len();
        if self.table.bytes.is_empty() {
            self.table.bytes = vec![0; geometry.itable_blocks() as usize * geometry.block_len()];
        }
        self.table.bytes[at..at + record.len()].copy_from_slice(record);
        self.table.end = at + record.len();
        Ok(())
    }

    /// Writes the table up to its last record.
    fn finish_table(&mut self) -> Result<(), MkfsError> {
        let table =
            std::mem::replace(&mut self.table, Table { group: 0, bytes: Vec::new(), end: 0 });
        let volume = &mut *self.volume;
        let Some(tables) = volume.tables.get(table.group as usize).filter(|_| table.end > 0) else {
            return Ok(());
        };
        let offset = volume.geometry.byte_of(tables.inode_table);
        let length = table.end.next_multiple_of(volume.geometry.block_len());
        self.stream.flush()?;
        Ok(self.stream.device.write_at(offset, &table.bytes[..length])?)
    }
}

fn to_inode(number: u64) -> InodeNo {
    // The volume has that many.
    InodeNo(u32::try_from(number).unwrap_or(u32::MAX))
}
