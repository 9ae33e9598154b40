//! The one entry that a directory has: of two the one of the directory that `..` names, else the
//! first.

use super::block::Entry;
use crate::context::Check;
use crate::finding::{Code, Finding};
use crate::store::CheckError;
use crate::tables::{DirFlags, DirInfo};
use extant_ondisk::dirent::DirEntry;
use extant_ondisk::inode::Inode;
use extant_ondisk::{FileBlock, InodeNo};
use std::sync::atomic::Ordering::Relaxed;

impl Check<'_> {
    /// A directory has one entry. False if this is a second one, to be cleared.
    pub(super) fn claim_directory(&self, entry: &Entry<'_, '_>) -> Result<bool, CheckError> {
        let Some(child) = self.dirs.get(entry.target()) else { return Ok(true) };
        let dir = entry.chain.dir;
        let claimed = child.parent.compare_exchange(0, dir.inode.0, Relaxed, Relaxed).is_ok();
        if claimed {
            return Ok(true);
        }
        child.set(DirFlags::LINKED_TWICE);
        if !self.is_repair() {
            // The first thread to get here.
            child.parent.fetch_min(dir.inode.0, Relaxed);
            return Ok(true);
        }
        if self.takes_over(dir, child)? {
            return Ok(true);
        }
        Ok(!self.should_fix(entry.finding(Code::EntryLinkToDirectory))?)
    }

    /// If `..` of a directory names `dir`, and the entry found first is in another one, as in a
    /// copy of `dir`: the first entry is cleared.
    fn takes_over(&self, dir: &DirInfo, child: &DirInfo) -> Result<bool, CheckError> {
        let (first, ino) = (child.parent(), child.inode);
        if first == dir.inode || self.stored_parent(child)? != dir.inode {
            return Ok(false);
        }
        let is_it = |entry: &DirEntry<'_>| entry.inode == Some(ino) && !entry.is_dot();
        let Some(name) = self.name_of(first, &is_it)? else { return Ok(false) };
        let finding = Finding::new(Code::EntryLinkToDirectory).dir(first).inode(ino).name(name);
        if !self.should_fix(finding)? {
            return Ok(false);
        }
        self.remove_entry(first, &is_it)?;
        self.inodes.uncount_name(ino);
        child.parent.store(dir.inode.0, Relaxed);
        Ok(true)
    }

    /// The inode that `..` of a directory names, whether its first block was checked before or not;
    /// 0 if it names none.
    fn stored_parent(&self, dir: &DirInfo) -> Result<InodeNo, CheckError> {
        if dir.dotdot().0 != 0 {
            return Ok(dir.dotdot());
        }
        let record = self.record(dir.inode)?;
        if dir.has(DirFlags::INLINE) {
            let [a, b, c, d, ..] = match self.inline_content(&record, dir.inode)? {
                Some((first, _)) => first,
                None => return Ok(InodeNo(0)),
            };
            return Ok(InodeNo(u32::from_le_bytes([a, b, c, d])));
        }
        let Ok(inode) = Inode::decode(&record, dir.inode, self.geometry) else {
            return Ok(InodeNo(0));
        };
        let Some(block) = self.read_map(dir.inode, &inode)?.physical(0) else {
            return Ok(InodeNo(0));
        };
        let bytes = self.store.read(block)?;
        let second = self.dir_format(dir).entries(&bytes, FileBlock(0)).flatten().nth(1);
        let dotdot = second.filter(|entry| entry.name == b"..").and_then(|entry| entry.inode);
        Ok(dotdot.unwrap_or(InodeNo(0)))
    }
}
