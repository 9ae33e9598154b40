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
use extant_ondisk::inode::{InodeFlags, MANY_LINKS, RawInode};
use extant_ondisk::jbd2::{FastCommitDentry, FastCommitRecord};
use extant_ondisk::{BlockNo, Flaw, InodeNo};
use zerocopy::FromBytes;

use super::damaged::{Damaged, Replayed, inode_of, is_of_device};
use super::file::File;
use super::inline;
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
    Ok(replay_records(target, found, None)?.changed)
}

/// Replays what can be replayed of complete fast commits on top of a damaged volume, which is only
/// read. The bitmaps are not right afterwards: a check must follow.
pub(crate) fn replay_possible(
    target: &dyn Device,
    found: &FastCommits,
) -> Result<Replayed, JournalError> {
    replay_records(target, found, Some(Damaged::new(found)))
}

fn replay_records(
    target: &dyn Device,
    found: &FastCommits,
    damaged: Option<Damaged>,
) -> Result<Replayed, JournalError> {
    let mut replay = Replay {
        volume: volume::open(target)?,
        files: BTreeMap::new(),
        names: BTreeMap::new(),
        freed: Vec::new(),
        damaged,
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
    /// The volume is damaged: what cannot be replayed is left out.
    damaged: Option<Damaged>,
}

/// Link counts in one fast commit: an inode that it logs already has the right count.
struct Counted {
    logged: HashSet<InodeNo>,
    /// Inodes that a later record of this commit creates: until then the number means an older
    /// file.
    to_come: HashMap<InodeNo, u32>,
}

/// Whether the data of a logged inode is in it.
fn is_inline(logged: &[u8]) -> bool {
    RawInode::ref_from_prefix(logged).is_ok_and(|(raw, _)| {
        InodeFlags::from_bits_retain(raw.i_flags.get()).contains(InodeFlags::INLINE_DATA)
    })
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
            if self.leaves_inode(record, &counted) {
                self.apply_or_leave_out(record, &mut counted)?;
            }
        }
        for record in records {
            self.apply_or_leave_out(record, &mut counted)?;
        }
        Ok(())
    }

    /// Whether a record gives a map to a file whose data is in its inode. The ranges come before
    /// it.
    fn leaves_inode(&mut self, record: &FastCommitRecord<'_>, counted: &Counted) -> bool {
        match record {
            FastCommitRecord::Inode(inode, logged) if !counted.to_come.contains_key(inode) => {
                !is_inline(logged) && self.file(*inode).is_ok_and(|file| file.inode.is_inline())
            }
            _ => false,
        }
    }

    fn apply_or_leave_out(
        &mut self,
        record: &FastCommitRecord<'_>,
        counted: &mut Counted,
    ) -> Result<(), JournalError> {
        if let Err(error) = self.apply(record, counted) {
            self.leave_out(inode_of(record), error)?;
            self.keep_range(record)?;
        }
        Ok(())
    }

    /// The blocks of a range that was left out are not given to others.
    fn keep_range(&mut self, record: &FastCommitRecord<'_>) -> Result<(), JournalError> {
        let FastCommitRecord::AddRange(_, extent) = record else { return Ok(()) };
        let Ok(extent) = RawExtent::read_from_bytes(extent).map(|raw| raw.decode()) else {
            return Ok(());
        };
        let len = u64::from(extent.len);
        if !self.volume.geometry().contains(extent.start, len) {
            return Ok(());
        }
        match self.volume.claim_blocks([run(extent.start, len)]).map_err(JournalError::from) {
            Err(error) if is_of_device(&error) => Err(error),
            _ => Ok(()), // a bitmap that cannot be read gives no blocks either
        }
    }

    fn apply(
        &mut self,
        record: &FastCommitRecord<'_>,
        counted: &mut Counted,
    ) -> Result<(), JournalError> {
        match *record {
            FastCommitRecord::Inode(inode, logged) => self.inode(inode, logged),
            FastCommitRecord::AddRange(inode, extent) => self.add_range(inode, &extent),
            FastCommitRecord::DelRange(inode, first, count) => {
                let gone = self.file(inode)?.unmap(u64::from(first), u64::from(count));
                self.freed.extend(gone);
                Ok(())
            }
            FastCommitRecord::Create(dentry) => {
                if let Some(count) = counted.to_come.get_mut(&dentry.inode) {
                    *count -= 1;
                }
                self.create(&dentry, counted)
            }
            FastCommitRecord::Link(dentry) => self.link(&dentry, counted),
            FastCommitRecord::Unlink(dentry) => self.unlink(&dentry, counted),
            FastCommitRecord::Pad | FastCommitRecord::Tail(..) | FastCommitRecord::Head(..) => {
                Ok(())
            }
        }
    }

    /// On a damaged volume, a change that cannot be replayed is left out.
    fn leave_out(&mut self, inode: InodeNo, error: JournalError) -> Result<(), JournalError> {
        match &mut self.damaged {
            Some(damaged) if !is_of_device(&error) => {
                damaged.left_out.entry(inode).or_insert_with(|| error.to_string());
                Ok(())
            }
            _ => Err(error),
        }
    }

    fn file(&mut self, inode: InodeNo) -> Result<&mut File, JournalError> {
        if !self.files.contains_key(&inode) {
            let file = match (File::load(&mut self.volume, inode), &mut self.damaged) {
                (Err(error), Some(damaged)) => damaged.restore(&mut self.volume, inode, error)?,
                (file, _) => file?,
            };
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
        let was_inline = file.inode.is_inline();
        file.take_fields(&self.volume, logged)?;
        if was_inline && !file.inode.is_inline() {
            inline::drop_data(&self.volume, file)?;
        }
        let is_dir = file.inode.is_dir();
        Ok(self.volume.mark_inode(inode, is_dir)?)
    }

    fn add_range(&mut self, inode: InodeNo, extent: &[u8]) -> Result<(), JournalError> {
        let broken = JournalError::FastCommit("invalid range");
        let extent = RawExtent::read_from_bytes(extent).map_err(|_| broken.clone())?.decode();
        self.file(inode)?;
        let file = &self.files[&inode];
        if !self.volume.has_map(&file.inode) {
            return Err(JournalError::FastCommit("range of a file without a map"));
        }
        let is_indirect = !file.inode.is_extent_mapped();
        let end = extent.start.0.saturating_add(u64::from(extent.len));
        if extent.len == 0
            || extent.end().stored().is_none()
            || is_indirect && (extent.is_unwritten || end > 1 << 32)
        {
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

    fn finish(mut self) -> Result<Replayed, JournalError> {
        self.for_directories(|names, volume, file| names.shrink(volume, file))?;
        // On a damaged volume another file may have the blocks: the check finds what is free.
        if self.damaged.is_none() {
            let freed = self.freed.iter().map(|(start, count)| run(*start, *count));
            self.volume.free_blocks_of(freed)?;
        }
        self.for_files(|file, volume| file.claim(volume))?;
        self.for_directories(|names, volume, file| names.store(volume, file).map(|()| Vec::new()))?;
        self.for_files(|file, volume| file.store(volume))?;
        let changed = volume::finish(self.volume, self.damaged.is_some())?;
        let (restored, left_out) = match self.damaged {
            Some(damaged) => (damaged.restored, damaged.left_out),
            None => Default::default(),
        };
        let (restored, left_out) = (restored.into_iter().collect(), left_out.into_iter().collect());
        Ok(Replayed { changed, restored, left_out })
    }

    /// Calls `work` for each directory whose names changed; the blocks that it returns become free.
    fn for_directories(
        &mut self,
        mut work: impl FnMut(
            &Names,
            &mut Volume<'_>,
            &mut File,
        ) -> Result<Vec<(BlockNo, u64)>, JournalError>,
    ) -> Result<(), JournalError> {
        for (inode, names) in std::mem::take(&mut self.names) {
            let Some(file) = self.files.get_mut(&inode) else { continue };
            match work(&names, &mut self.volume, file) {
                Ok(gone) => {
                    self.freed.extend(gone);
                    self.names.insert(inode, names);
                }
                Err(error) => {
                    self.files.remove(&inode);
                    self.leave_out(inode, error)?;
                }
            }
        }
        Ok(())
    }

    fn for_files(
        &mut self,
        mut work: impl FnMut(&mut File, &mut Volume<'_>) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        for (inode, mut file) in std::mem::take(&mut self.files) {
            match work(&mut file, &mut self.volume) {
                Ok(()) => drop(self.files.insert(inode, file)),
                Err(error) => self.leave_out(inode, error)?,
            }
        }
        Ok(())
    }
}
