//! Files and directories without a name get back one that an older copy of a directory's block in
//! the journal has, before they would be put into lost+found under their numbers.

use crate::context::Check;
use crate::finding::{Code, Finding};
use crate::older_names::OlderName;
use crate::store::CheckError;
use crate::tables::{DirFlags, DirInfo, Kind, Mark};
use extant_ondisk::InodeNo;
use extant_ondisk::dirent::NewEntry;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;

impl Check<'_> {
    /// Proposes the names of the window.
    pub(super) fn restore_older_names(&self) -> Result<(), CheckError> {
        if !self.is_repair() {
            return Ok(());
        }
        // The names that directories have, as they are compared.
        let mut taken: BTreeMap<InodeNo, BTreeSet<Vec<u8>>> = BTreeMap::new();
        let mut named = BTreeSet::new();
        for name in self.store.older_names().iter() {
            let Some(dir) = self.dirs.get(name.dir).filter(|_| self.inodes.is_used(name.dir))
            else {
                continue;
            };
            let is_possible = dir.has(DirFlags::ENCRYPTED)
                || !name.name.is_empty() && !name.name.iter().any(|it| matches!(it, 0 | b'/'));
            if !is_possible || !self.is_without_name(name, named.contains(&name.inode))? {
                continue;
            }
            let taken = match taken.entry(name.dir) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(self.keys_of(dir)?),
            };
            let key = self.key_of(dir, &name.name);
            if taken.contains(&key) {
                continue;
            }
            let finding = Finding::new(Code::OlderName)
                .inode(name.inode)
                .dir(name.dir)
                .block(name.block)
                .name(name.name.clone())
                .found(u64::from(name.tid.0))
                .detail(format!("{}, committed at {}", name.what, name.committed));
            if self.should_fix(finding)? && self.give_name(name)? {
                taken.insert(key);
                named.insert(name.inode);
            }
        }
        Ok(())
    }

    /// Whether no other name leads to an inode, and its links allow for one more. `is_named`: it
    /// has older names alone.
    fn is_without_name(&self, name: &OlderName, is_named: bool) -> Result<bool, CheckError> {
        let inode = name.inode;
        let Some(state) = self.inodes.state(inode).filter(|state| state.is_used()) else {
            return Ok(false);
        };
        let is_other = name.file_type != Kind::Unknown && name.file_type != state.kind();
        let is_encrypted = self.dirs.get(name.dir).is_some_and(|it| it.has(DirFlags::ENCRYPTED));
        let can_be = matches!(state.kind(), Kind::Regular | Kind::Directory | Kind::Symlink);
        if is_encrypted
            && can_be
            && (!state.has(Mark::ENCRYPTED) || self.policies.differ(name.dir, inode))
        {
            return Ok(false);
        }
        let is_special = state.has(Mark::EA_INODE) || state.has(Mark::SUSPECT);
        if is_other
            || is_special
            || self.is_nameless(inode)
            || !self.is_nameable(inode)
            || self.copies.lock().contains(&inode)
        {
            return Ok(false);
        }
        if state.kind() != Kind::Directory {
            let has_room = state.names() < u32::from(self.inodes.links(inode));
            return Ok((state.names() == 0 || is_named) && has_room);
        }
        let Some(below) = self.dirs.get(inode) else { return Ok(false) };
        let parent = match below.dotdot().0 {
            0 => name.parent,
            _ => Some(below.dotdot()),
        };
        let is_free = below.parent().0 == 0 && inode != InodeNo::ROOT;
        Ok(is_free && parent == Some(name.dir) && inode != name.dir)
    }

    /// The form of a name that is compared with others.
    fn key_of(&self, dir: &DirInfo, name: &[u8]) -> Vec<u8> {
        let is_folded = dir.has(DirFlags::CASEFOLD) && !dir.has(DirFlags::ENCRYPTED);
        match self.dir_context().casefold.filter(|_| is_folded) {
            Some(casefold) => casefold.key(name).into_owned(),
            None => name.to_vec(),
        }
    }

    /// The names that a directory has.
    fn keys_of(&self, dir: &DirInfo) -> Result<BTreeSet<Vec<u8>>, CheckError> {
        let mut keys = BTreeSet::new();
        self.for_entries(dir.inode, &mut |entry| {
            keys.insert(self.key_of(dir, entry.name));
        })?;
        Ok(keys)
    }

    fn give_name(&self, name: &OlderName) -> Result<bool, CheckError> {
        let mut entry = NewEntry::new(name.inode, name.file_type, &name.name);
        entry.hash = name.hash.unwrap_or_default();
        if !self.insert_entry(name.dir, &entry)? {
            return Ok(false); // it is put into lost+found
        }
        self.inodes.count_name(name.inode);
        if let Some(below) = self.dirs.get(name.inode) {
            below.parent.store(name.dir.0, Relaxed);
        }
        Ok(true)
    }
}
