//! Huge files: made with the file system, each in one run where it can be, their directories and
//! maps before them.

use std::ops::Range;

use extant_layout::pack::extent_blocks;
use extant_ondisk::dirent::{DirFormat, FileType, NewEntry};
use extant_ondisk::extent::MAX_WRITTEN_LEN;
use extant_ondisk::{InodeNo, RoCompatFeatures};

use super::error::{MkfsError, Shortage};
use super::params::HugeFiles;
use super::volume::NewVolume;

/// Files per block of the directory, for the space reserved for it.
const FILES_A_DIRECTORY_BLOCK: u64 = 16;
const DIRECTORY: u16 = 0o040_000;
const REGULAR: u16 = 0o100_000;

impl NewVolume {
    /// Makes the files that the configuration lists.
    pub fn add_huge_files(&mut self) -> Result<(), MkfsError> {
        let Some(files) = self.params.huge_files.clone() else { return Ok(()) };
        // Directories on the way hold one name each; the last one holds the files.
        let mut parents = vec![(InodeNo::ROOT, InodeNo::ROOT)];
        for _ in &files.directory {
            let above = parents.last().map_or(InodeNo::ROOT, |(number, _)| *number);
            parents.push((self.take_inode()?, above));
        }
        let (count, blocks) = self.shape_of(&files)?;
        let mut numbers = Vec::new();
        for _ in 0..count {
            numbers.push(self.take_inode()?);
        }
        let names: Vec<Vec<u8>> = (0..count).map(|index| name_of(&files, count, index)).collect();
        let lost_found = self.geometry.first_inode;
        for (level, (number, parent)) in parents.iter().enumerate() {
            let mut entries = Vec::new();
            if *number == InodeNo::ROOT {
                entries.push(NewEntry::new(lost_found, FileType::Directory, b"lost+found"));
            }
            match files.directory.get(level) {
                Some(name) => {
                    let below = parents[level + 1].0;
                    entries.push(NewEntry::new(below, FileType::Directory, name.as_bytes()));
                }
                None => entries.extend(
                    numbers
                        .iter()
                        .zip(&names)
                        .map(|(number, name)| NewEntry::new(*number, FileType::Regular, name)),
                ),
            }
            let subdirectories = u16::from(level < files.directory.len());
            self.put_linear_directory(*number, *parent, &entries, subdirectories, &files)?;
        }
        let goal = self.first_aligned(files.align);
        for number in numbers {
            self.put_huge_file(number, goal, blocks, &files)?;
        }
        Ok(())
    }

    /// How many files of how many blocks.
    fn shape_of(&self, files: &HugeFiles) -> Result<(u64, u64), MkfsError> {
        let free = self.free_blocks().checked_sub(files.slack).ok_or(Shortage::Slack)?;
        if files.blocks > 0 {
            let blocks = files.blocks.next_multiple_of(files.align);
            if files.count > 0 {
                return Ok((files.count, blocks));
            }
            let extents = blocks.div_ceil(u64::from(MAX_WRITTEN_LEN));
            let each = blocks + extent_blocks(extents, self.geometry.block_size);
            let directory = (free / each).div_ceil(FILES_A_DIRECTORY_BLOCK);
            let count = free.saturating_sub(directory) / each;
            if count > self.free_inodes() {
                return Err(Shortage::HugeFiles(count).into());
            }
            return Ok((count, blocks));
        }
        let count = files.count.max(1);
        let start = self.first_aligned(files.align);
        let end = self.geometry.blocks_count;
        let usable = (end - start) - self.used.count_in(start..end);
        let usable = usable.saturating_sub(files.slack);
        // The map's own blocks, unless they find room before the files.
        let extents = usable.div_ceil(u64::from(MAX_WRITTEN_LEN));
        let nodes = extent_blocks(extents, self.geometry.block_size);
        let directories = files.directory.len() as u64;
        let before = self.geometry.first_data_block.0..start;
        let room = before.end - before.start - self.used.count_in(before);
        let usable = usable.saturating_sub((nodes * count + directories).saturating_sub(room));
        let blocks = usable / count;
        Ok((count, blocks - blocks % files.align))
    }

    /// The first free block at a multiple of `align`.
    fn first_aligned(&self, align: u64) -> u64 {
        let end = self.geometry.blocks_count;
        let first = self.used.next_gap(self.geometry.first_data_block.0..end);
        first.map_or(end, |gap| gap.start).next_multiple_of(align).min(end)
    }

    /// A directory of blocks in the order of its entries, without an index.
    fn put_linear_directory(
        &mut self,
        number: InodeNo,
        parent: InodeNo,
        entries: &[NewEntry<'_>],
        subdirectories: u16,
        files: &HugeFiles,
    ) -> Result<(), MkfsError> {
        let format = DirFormat::new(&self.geometry, number, 0);
        let dots = [
            NewEntry::new(number, FileType::Directory, b"."),
            NewEntry::new(parent, FileType::Directory, b".."),
        ];
        let mut blocks = Vec::new();
        let mut left = dots.iter().chain(entries).peekable();
        while left.peek().is_some() {
            let mut bytes = vec![0; self.geometry.block_len()];
            let mut packer = format.packer(&mut bytes);
            while left.next_if(|entry| packer.push(entry)).is_some() {}
            packer.finish();
            format.seal(&mut bytes);
            blocks.push(bytes);
        }
        let count = blocks.len() as u64;
        let (map, is_root) = if number == InodeNo::ROOT {
            (self.grow_root(count)?, true)
        } else {
            (self.map_file(number, self.goal_of(number), count)?, false)
        };
        for (block, bytes) in map.blocks().zip(blocks) {
            self.put_contents(block, bytes);
        }
        let links = 2 + subdirectories + u16::from(is_root);
        let permissions = if is_root { self.identity.root_perms } else { 0o777 & !files.umask };
        let mut inode = self.new_inode(DIRECTORY | permissions, links);
        (inode.uid, inode.gid) =
            if is_root { self.identity.root_owner } else { (files.uid, files.gid) };
        inode.size = count * u64::from(self.geometry.block_size);
        self.set_map(&mut inode, &map);
        self.put_inode(number, &inode, |_| ());
        Ok(())
    }

    fn put_huge_file(
        &mut self,
        number: InodeNo,
        goal: u64,
        blocks: u64,
        files: &HugeFiles,
    ) -> Result<(), MkfsError> {
        let goal = self.next_aligned_gap(goal, files.align);
        let data: Vec<Range<u64>> = self.take_blocks(goal, blocks)?;
        if files.zero {
            self.zeroes.extend(data.iter().cloned());
        }
        let map = self.map_runs(number, data, self.group_start(0))?;
        let mut inode = self.new_inode(REGULAR | (0o666 & !files.umask), 1);
        (inode.uid, inode.gid) = (files.uid, files.gid);
        inode.size = blocks * u64::from(self.geometry.block_size);
        if inode.size > i32::MAX as u64 {
            self.superblock.features.ro_compat |= RoCompatFeatures::LARGE_FILE;
        }
        self.set_map(&mut inode, &map);
        self.put_inode(number, &inode, |_| ());
        Ok(())
    }

    /// The first free multiple of `align` from `goal` on; `goal` itself if there are none.
    fn next_aligned_gap(&self, goal: u64, align: u64) -> u64 {
        let end = self.geometry.blocks_count;
        let mut at = goal;
        while let Some(gap) = self.used.next_gap(at..end) {
            let start = gap.start.next_multiple_of(align);
            if start < gap.end {
                return start;
            }
            at = gap.end;
        }
        goal
    }
}

fn name_of(files: &HugeFiles, count: u64, index: u64) -> Vec<u8> {
    let mut name = files.name.clone();
    if files.digits > 0 || count > 1 {
        name.push_str(&format!("{index:0width$}", width = files.digits));
    }
    name.into_bytes()
}
