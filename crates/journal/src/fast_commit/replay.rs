//! Replay of fast commits. Each records the state of files, ranges and names at its time, and the
//! replay restores that state.
//!
//! Fast commits do not log the block and inode bitmaps. The blocks and inodes of every file that
//! they name are marked in use at the end, after freed ones were cleared. Directories that they
//! name are packed again, since directory block splits are not logged either.

use std::collections::{BTreeMap, HashMap, HashSet};

use extant_device::Device;
use extant_ondisk::dirent;
use extant_ondisk::extent::RawExtent;
use extant_ondisk::inode::MANY_LINKS;
use extant_ondisk::jbd2::{FastCommitDentry, FastCommitRecord};
use extant_ondisk::{BlockNo, Flaw, InodeNo};
use zerocopy::FromBytes;

use super::file::File;
use super::names::Names;
use super::scan::FastCommits;
use super::volume::{self, Volume, run};
use crate::JournalError;

/// Replays complete fast commits on top of `target`, which is only read. Returns the blocks that
/// change.
pub(crate) fn replay(
    target: &dyn Device,
    found: &FastCommits,
) -> Result<Vec<(BlockNo, Vec<u8>)>, JournalError> {
    let mut replay = Replay {
        volume: volume::open(target)?,
        files: BTreeMap::new(),
        names: BTreeMap::new(),
        freed: Vec::new(),
    };
    let mut records = Vec::new();
    for record in found.records() {
        match record {
            FastCommitRecord::Tail(..) => replay.commit(&std::mem::take(&mut records))?,
            other => records.push(other),
        }
    }
    replay.finish()
}

struct Replay<'a> {
    volume: Volume<'a>,
    files: BTreeMap<InodeNo, File>,
    names: BTreeMap<InodeNo, Names>,
    freed: Vec<(BlockNo, u64)>,
}

/// Link counts in one fast commit: an inode that it logs already has the right count.
struct Counted {
    logged: HashSet<InodeNo>,
    /// Inodes that a later record of this commit creates: until then the number means an older
    /// file.
    to_come: HashMap<InodeNo, u32>,
}

impl Replay<'_> {
    fn commit(&mut self, records: &[FastCommitRecord<'_>]) -> Result<(), JournalError> {
        let mut counted = Counted { logged: HashSet::new(), to_come: HashMap::new() };
        for record in records {
            match record {
                FastCommitRecord::Inode(inode, _) => {
                    counted.logged.insert(*inode);
                }
                FastCommitRecord::Create(dentry) => {
                    *counted.to_come.entry(dentry.inode).or_default() += 1;
                }
                _ => {}
            }
        }
        for record in records {
            match *record {
                FastCommitRecord::Inode(inode, logged) => self.inode(inode, logged)?,
                FastCommitRecord::AddRange(inode, extent) => self.add_range(inode, &extent)?,
                FastCommitRecord::DelRange(inode, first, count) => {
                    let gone = self.file(inode)?.unmap(u64::from(first), u64::from(count));
                    self.freed.extend(gone);
                }
                FastCommitRecord::Create(dentry) => {
                    if let Some(count) = counted.to_come.get_mut(&dentry.inode) {
                        *count -= 1;
                    }
                    self.create(&dentry, &counted)?;
                }
                FastCommitRecord::Link(dentry) => {
                    self.link(&dentry, &counted)?;
                }
                FastCommitRecord::Unlink(dentry) => self.unlink(&dentry, &counted)?,
                FastCommitRecord::Pad | FastCommitRecord::Tail(..) | FastCommitRecord::Head(..) => {
                }
            }
        }
        Ok(())
    }

    fn file(&mut self, inode: InodeNo) -> Result<&mut File, JournalError> {
        if !self.files.contains_key(&inode) {
            let file = File::load(&mut self.volume, inode)?;
            self.files.insert(inode, file);
        }
        Ok(self.files.get_mut(&inode).expect("inserted above"))
    }

    fn names(&mut self, dir: InodeNo) -> Result<&mut Names, JournalError> {
        if !self.names.contains_key(&dir) {
            self.file(dir)?;
            let names = Names::load(&self.volume, &self.files[&dir])?;
            self.names.insert(dir, names);
        }
        Ok(self.names.get_mut(&dir).expect("inserted above"))
    }

    fn inode(&mut self, inode: InodeNo, logged: &[u8]) -> Result<(), JournalError> {
        let is_known = self.files.contains_key(&inode);
        if !is_known && !self.volume.is_inode_used(inode)? {
            let file = File::fresh(&mut self.volume, inode)?;
            self.files.insert(inode, file);
        }
        self.file(inode)?;
        let file = self.files.get_mut(&inode).expect("made above");
        file.take_fields(&self.volume, logged)?;
        let is_dir = file.inode.is_dir();
        Ok(self.volume.mark_inode(inode, is_dir)?)
    }

    fn add_range(&mut self, inode: InodeNo, extent: &[u8]) -> Result<(), JournalError> {
        let broken = JournalError::FastCommit("invalid range");
        let extent = RawExtent::read_from_bytes(extent).map_err(|_| broken.clone())?.decode();
        let file = self.file(inode)?;
        if !file.inode.is_extent_mapped() {
            return Err(JournalError::FastCommit("range of a file not mapped by extents"));
        }
        if extent.len == 0 || extent.end().stored().is_none() {
            return Err(broken);
        }
        let location = file.location();
        let geometry = self.volume.geometry();
        if !geometry.contains(extent.start, u64::from(extent.len)) {
            let flaw = Flaw::above_limit("block", extent.start.0, geometry.blocks_count);
            return Err(flaw.at(location).into());
        }
        let gone = self.file(inode)?.map(extent);
        self.freed.extend(gone);
        Ok(())
    }

    fn create(
        &mut self,
        dentry: &FastCommitDentry<'_>,
        counted: &Counted,
    ) -> Result<(), JournalError> {
        let is_dir = self.file(dentry.inode)?.inode.is_dir();
        if is_dir {
            self.names.insert(dentry.inode, Names::empty(dentry.parent));
        }
        if self.name(dentry)? && is_dir {
            self.count(dentry.parent, 1, counted)?;
        }
        Ok(())
    }

    fn link(
        &mut self,
        dentry: &FastCommitDentry<'_>,
        counted: &Counted,
    ) -> Result<(), JournalError> {
        if self.name(dentry)? {
            if self.file(dentry.inode)?.inode.is_dir() {
                // A directory has one name: it was moved here.
                let parent = dentry.parent;
                self.names(dentry.inode)?.parent = parent;
                self.count(parent, 1, counted)?;
            } else {
                self.count(dentry.inode, 1, counted)?;
            }
        }
        Ok(())
    }

    /// Adds a directory entry. Returns false if it was there already.
    fn name(&mut self, dentry: &FastCommitDentry<'_>) -> Result<bool, JournalError> {
        if dentry.name.is_empty() || dentry.name.len() > 255 {
            return Err(JournalError::FastCommit("invalid file name"));
        }
        let mode = self.file(dentry.inode)?.inode.mode;
        let entry = (dentry.inode, dirent::FileType::of_mode(mode));
        let before = self.names(dentry.parent)?.entries.insert(dentry.name.to_vec(), entry);
        Ok(before.is_none_or(|(inode, _)| inode != dentry.inode))
    }

    fn unlink(
        &mut self,
        dentry: &FastCommitDentry<'_>,
        counted: &Counted,
    ) -> Result<(), JournalError> {
        let names = self.names(dentry.parent)?;
        if names.entries.get(dentry.name).is_none_or(|(inode, _)| *inode != dentry.inode) {
            return Ok(());
        }
        names.entries.remove(dentry.name);
        let is_older = counted.to_come.get(&dentry.inode).is_some_and(|count| *count > 0);
        let is_counted = counted.logged.contains(&dentry.inode) && !is_older;
        let file = self.file(dentry.inode)?;
        if file.inode.is_dir() {
            let is_moved = self.is_named_elsewhere(dentry);
            self.count(dentry.parent, -1, counted)?;
            if is_moved || is_counted && self.file(dentry.inode)?.inode.links > 0 {
                return Ok(());
            }
            return self.delete(dentry.inode);
        }
        if !is_counted {
            file.inode.links = file.inode.links.saturating_sub(1);
            if file.inode.links == 0 {
                return self.delete(dentry.inode);
            }
        }
        Ok(())
    }

    /// Whether a rename has given a directory another name.
    fn is_named_elsewhere(&self, dentry: &FastCommitDentry<'_>) -> bool {
        self.names
            .values()
            .any(|names| names.entries.values().any(|(inode, _)| *inode == dentry.inode))
    }

    /// Changes the link count of an inode that this commit does not log.
    fn count(
        &mut self,
        inode: InodeNo,
        change: i32,
        counted: &Counted,
    ) -> Result<(), JournalError> {
        if counted.logged.contains(&inode) {
            return Ok(());
        }
        let file = self.file(inode)?;
        let is_many = file.inode.is_dir() && file.inode.links == MANY_LINKS;
        if !is_many {
            let links = i32::from(file.inode.links) + change;
            file.inode.links = u16::try_from(links.max(0)).unwrap_or(MANY_LINKS);
        }
        Ok(())
    }

    /// Deletes a file whose last name was removed.
    fn delete(&mut self, inode: InodeNo) -> Result<(), JournalError> {
        self.names.remove(&inode);
        self.file(inode)?;
        let Some(mut file) = self.files.remove(&inode) else { return Ok(()) };
        self.freed.extend(file.clear_map());
        let acl = file.inode.file_acl;
        if acl.0 != 0 {
            const REFERENCES: std::ops::Range<usize> = 4..8;
            if self.volume.read(acl)?[REFERENCES] != 1_u32.to_le_bytes() {
                return Err(JournalError::FastCommit("deleted file with a shared attribute block"));
            }
            self.freed.push((acl, 1));
            file.inode.file_acl = BlockNo(0);
        }
        let is_dir = file.inode.is_dir();
        file.inode.dtime = u32::try_from(file.inode.ctime.seconds).unwrap_or(1).max(1);
        (file.inode.links, file.inode.size, file.inode.blocks) = (0, 0, 0);
        file.store(&mut self.volume)?;
        Ok(self.volume.free_inode(inode, is_dir)?)
    }

    fn finish(mut self) -> Result<Vec<(BlockNo, Vec<u8>)>, JournalError> {
        for (inode, names) in &self.names {
            let file = self.files.get_mut(inode).expect("a directory's file is loaded before it");
            self.freed.extend(names.shrink(&self.volume, file)?);
        }
        self.volume.free_blocks_of(self.freed.iter().map(|(start, count)| run(*start, *count)))?;
        for file in self.files.values() {
            file.claim(&mut self.volume)?;
        }
        for (inode, names) in &self.names {
            let file = self.files.get_mut(inode).expect("a directory's file is loaded before it");
            names.store(&mut self.volume, file)?;
        }
        for file in self.files.values_mut() {
            file.store(&mut self.volume)?;
        }
        volume::finish(self.volume)
    }
}
