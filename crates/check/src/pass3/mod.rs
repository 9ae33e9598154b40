//! Pass 3: every directory hangs from the root.

mod edit;
mod lost_found;
mod older;
mod rebuild;

use crate::context::Check;
use crate::finding::{Code, Finding};
use crate::store::CheckError;
use crate::tables::{DirFlags, DirInfo, Kind};
use extant_ondisk::InodeNo;
use extant_ondisk::dirent::DirEntry;
use std::sync::atomic::Ordering::Relaxed;

/// Directories that are worth the start of a thread.
const SHARE: usize = 2048;
/// Number of steps towards the root that are followed without a test for loops.
const MAX_DEPTH: usize = 128;

impl Check<'_> {
    pub(crate) fn pass3(&mut self) -> Result<(), CheckError> {
        let has_root = self.kind_of(InodeNo::ROOT)? == Some(Kind::Directory);
        if !has_root {
            let finding = Finding::new(Code::RootMissing).inode(InodeNo::ROOT);
            if self.should_fix(finding)? {
                self.make_root()?;
                self.need_restart();
            }
            return Ok(());
        }
        if let Some(root) = self.dirs.get(InodeNo::ROOT) {
            root.parent.store(InodeNo::ROOT.0, Relaxed);
            root.set(DirFlags::CONNECTED);
        }
        self.check_lost_found()?;
        if self.must_restart() {
            return Ok(());
        }
        self.restore_older_names()?;
        let count = self.dirs.len();
        self.for_all(count, count / SHARE, |at| {
            let dir = self.dirs.at(at).filter(|dir| self.inodes.is_used(dir.inode));
            if let Some(dir) = dir {
                self.follow_to_root(dir);
            }
            Ok(())
        })?;
        for dir in self.dirs.iter() {
            if !dir.has(DirFlags::CONNECTED) && self.inodes.is_used(dir.inode) {
                self.check_connected(dir.inode)?;
            }
        }
        self.for_all(count, count / SHARE, |at| match self.dirs.at(at) {
            Some(dir) if self.inodes.is_used(dir.inode) => self.check_parent(dir),
            _ => Ok(()),
        })?;
        self.rebuild_directories()
    }

    /// Marks the directories on the way to the root, where there is one that is not very long. Any
    /// number of threads does this at once: what is marked in the end does not depend on them.
    fn follow_to_root(&self, dir: &DirInfo) {
        let mut way = [dir; MAX_DEPTH];
        let mut steps = 0;
        let mut at = dir;
        while !at.has(DirFlags::CONNECTED) {
            let parent = at.parent();
            let above = self.dirs.get(parent).filter(|_| self.inodes.is_used(parent));
            let (Some(above), Some(step)) = (above, way.get_mut(steps)) else { return };
            *step = at;
            steps += 1;
            at = above;
        }
        for dir in &way[..steps] {
            dir.set(DirFlags::CONNECTED);
        }
    }

    /// Follows the parents up to one that is known to hang from the root. Where the way ends or
    /// closes, the first directory of it is connected to lost+found.
    fn check_connected(&self, ino: InodeNo) -> Result<(), CheckError> {
        let mut way = Vec::new();
        let mut at = ino;
        while let Some(dir) = self.dirs.get(at) {
            if dir.has(DirFlags::CONNECTED) {
                break;
            }
            dir.set(DirFlags::VISITED);
            way.push(dir);
            let parent = dir.parent();
            let above = self.dirs.get(parent).filter(|_| self.inodes.is_used(parent));
            // A path that returns to a directory on it is a loop.
            if parent.0 == 0 || above.is_none_or(|above| above.has(DirFlags::VISITED)) {
                self.connect_directory(at)?;
                break;
            }
            at = parent;
        }
        for dir in way {
            dir.unset(DirFlags::VISITED);
            dir.set(DirFlags::CONNECTED);
        }
        Ok(())
    }

    fn connect_directory(&self, ino: InodeNo) -> Result<(), CheckError> {
        let Some(dir) = self.dirs.get(ino) else { return Ok(()) };
        let finding = Finding::new(Code::UnconnectedDirectory).inode(ino).dir(dir.dotdot());
        if self.should_fix(finding)?
            && self.reconnect(ino)?
            && let Some(lost_found) = self.lost_found()
        {
            let parent = dir.parent();
            if parent.0 != 0 && self.inodes.is_used(parent) {
                // The entry that closes a circle: a directory has one.
                let is_it = |entry: &DirEntry<'_>| entry.inode == Some(ino) && !entry.is_dot();
                self.remove_entry(parent, &is_it)?;
                self.inodes.uncount_name(ino);
                self.count_removed_name();
            }
            dir.parent.store(lost_found.0, Relaxed);
        }
        Ok(())
    }

    /// `..` names the directory that has the entry.
    fn check_parent(&self, dir: &DirInfo) -> Result<(), CheckError> {
        let ino = dir.inode;
        let (found, expected) = (dir.dotdot(), dir.parent());
        if found == expected || expected.0 == 0 {
            return Ok(());
        }
        if dir.has(DirFlags::LINKED_TWICE) && !self.is_repair() {
            return Ok(()); // which entry counts is not known yet
        }
        let finding = Finding::new(Code::DotDotWrong)
            .inode(ino)
            .found(u64::from(found.0))
            .expected(u64::from(expected.0));
        if self.should_fix(finding)? {
            self.set_dotdot(ino, expected)?;
            if found.0 != 0 {
                self.inodes.uncount_name(found);
            }
            self.inodes.count_name(expected);
            dir.dotdot.store(expected.0, Relaxed);
        }
        Ok(())
    }
}
