//! The root and lost+found: made where they are missing, and what is put there.

use crate::context::Check;
use crate::finding::{Code, Finding};
use crate::store::CheckError;
use crate::tables::{DirFlags, Kind};
use extant_ondisk::dirent::FileType;
use extant_ondisk::inode::Inode;
use extant_ondisk::{FileBlock, InodeNo};
use std::sync::atomic::Ordering::Relaxed;

const NAME: &[u8] = b"lost+found";

impl Check<'_> {
    /// Creates a missing root directory.
    pub(super) fn make_root(&mut self) -> Result<(), CheckError> {
        self.make_directory(Some(InodeNo::ROOT), Some(InodeNo::ROOT), 0o755)?;
        Ok(())
    }

    /// lost+found, once pass 3 has found or made it.
    pub(crate) fn lost_found(&self) -> Option<InodeNo> {
        let ino = self.lost_found.load(Relaxed);
        (ino != 0).then_some(InodeNo(ino))
    }

    /// The entry of that name in the root.
    fn find_in_root(&self, name: &[u8]) -> Result<Option<InodeNo>, CheckError> {
        let Some(root) = self.dirs.get(InodeNo::ROOT) else { return Ok(None) };
        let format = self.dir_format(root);
        let record = self.record(InodeNo::ROOT)?;
        if root.has(DirFlags::INLINE) {
            let Some((first, second)) = self.inline_content(&record, InodeNo::ROOT)? else {
                return Ok(None);
            };
            for part in [&first[4..], &second[..]] {
                let entries = format.inline(part.len()).entries(part, FileBlock(0));
                let found = entries.flatten().find(|entry| entry.name == name);
                if let Some(ino) = found.and_then(|entry| entry.inode) {
                    return Ok(Some(ino));
                }
            }
            return Ok(None);
        }
        let Ok(inode) = Inode::decode(&record, InodeNo::ROOT, self.geometry) else {
            return Ok(None);
        };
        for (at, block) in self.read_map(InodeNo::ROOT, &inode)?.blocks() {
            let bytes = self.store.read(block)?;
            let found = format
                .entries(&bytes, FileBlock(at))
                .flatten()
                .find(|entry| entry.name == name && entry.inode.is_some());
            if let Some(ino) = found.and_then(|entry| entry.inode) {
                return Ok(Some(ino));
            }
        }
        Ok(None)
    }

    pub(super) fn check_lost_found(&mut self) -> Result<(), CheckError> {
        if let Some(ino) = self.find_in_root(NAME)? {
            let is_dir = self.kind_of(ino)? == Some(Kind::Directory);
            let flaw = match self.dirs.get(ino).filter(|_| is_dir) {
                Some(dir) if dir.has(DirFlags::ENCRYPTED) => Some(Code::LostFoundEncrypted),
                Some(dir) if dir.has(DirFlags::INLINE) => Some(Code::LostFoundInline),
                _ => (!is_dir).then_some(Code::LostFoundNotDirectory),
            };
            let stays = if is_dir { ino } else { InodeNo::ROOT };
            let Some(code) = flaw else {
                self.lost_found.store(stays.0, Relaxed);
                return Ok(());
            };
            // It loses the name, and is put where it then belongs.
            if !self.inodes.is_used(ino) || !self.should_fix(Finding::new(code).inode(ino))? {
                self.lost_found.store(stays.0, Relaxed);
                return Ok(());
            }
            self.remove_entry(InodeNo::ROOT, &|entry| entry.name == NAME)?;
            self.inodes.uncount_name(ino);
            if let Some(dir) = self.dirs.get(ino) {
                dir.parent.store(0, Relaxed);
            }
        }
        if !self.should_fix(Finding::new(Code::LostFoundMissing))? {
            return Ok(());
        }
        let made = self.make_directory(None, Some(InodeNo::ROOT), 0o700)?;
        if self.must_restart() {
            return Ok(());
        }
        let made = match made {
            Some(ino) if self.add_entry(InodeNo::ROOT, NAME, ino, FileType::Directory)? => {
                self.inodes.count_name(ino);
                self.count_made_name();
                Some(ino)
            }
            Some(ino) => {
                self.deallocate(ino)?;
                self.inodes.uncount_name(InodeNo::ROOT);
                self.inodes.uncount_name(ino);
                None
            }
            None => None,
        };
        if made.is_none() {
            let detail = "no free blocks or inodes".into();
            self.report(Finding::new(Code::NoRoomForLostFound).detail(detail))?;
        }
        self.lost_found.store(made.unwrap_or(InodeNo::ROOT).0, Relaxed);
        Ok(())
    }

    /// Puts an inode into lost+found as `#N`; false when that cannot be.
    pub(crate) fn reconnect(&self, ino: InodeNo) -> Result<bool, CheckError> {
        let Some(to) = self.lost_found() else { return Ok(false) };
        let kind = self.kind_of(ino)?.unwrap_or(Kind::Unknown);
        let name = format!("#{}", ino.0);
        if !self.add_entry(to, name.as_bytes(), ino, kind)? {
            let detail = format!("no room for {name}");
            self.report(Finding::new(Code::NoRoomForLostFound).detail(detail))?;
            return Ok(false);
        }
        self.inodes.count_name(ino);
        self.count_made_name();
        Ok(true)
    }
}
