//! The end of a file: its last link is gone, and no pin is left.

use super::credits;
use crate::edit::{Edit, EditInodes, Limits, Usage, clear_inode, write_inode};
use crate::engine::Engine;
use crate::engine::inodes::{CachedInode, InodeWrite, LockClass};
use crate::engine::operation::Operation;
use crate::write::{orphans, xattr};
use extant_ondisk::{FileBlock, InodeNo};
use extant_reader::Error;
use extant_reader::read::inode::{self, LoadedInode};
use extant_reader::read::mapping::has_blocks;

impl Engine {
    /// Pins an inode: it stays, even without links, until it is released as often. Pins for a
    /// mount's lookups and open files.
    ///
    /// # Errors
    /// [`Error::FreeInode`], a broken inode, or the device failed.
    pub fn acquire(&self, inode: InodeNo) -> Result<LoadedInode, Error> {
        let file = self.inodes.get(inode);
        let locked = file.read(self, LockClass::File)?;
        file.pin(&locked);
        Ok(self.seen(&locked, locked.delayed()))
    }

    /// Gives `count` holds of an inode back. With the last one a file without links goes.
    ///
    /// # Errors
    /// The file could not be deleted.
    pub fn release(&self, inode: InodeNo, count: u64) -> Result<(), Error> {
        if let Some(was_last) = self.inodes.unpin_absent(inode, count) {
            // It has links.
            if was_last {
                self.allocator.discard_preallocation(inode);
            }
            return Ok(());
        }
        let file = self.inodes.get(inode);
        if !file.unpin(count) {
            return Ok(());
        }
        file.set_closed(true);
        self.allocator.discard_preallocation(inode);
        let load = |_| inode::load_any(self, inode);
        let locked = match file.write_with(LockClass::File, load) {
            Err(Error::FreeInode(_)) => return Ok(()),
            other => other?,
        };
        if locked.links > 0 {
            return Ok(());
        }
        if !self.orphans.lock().contains(inode) {
            // Another thread has deleted it since, and the number may belong to another file.
            self.lazy_times.forget(&locked);
            locked.set_freed();
            return Ok(());
        }
        if file.is_pinned() {
            return Ok(());
        }
        let edit = self.edit(self.delete_credits(&locked))?;
        self.record_corruption(self.delete(edit, locked, ()))
    }

    /// Number of files without links that are pinned: their space is freed when they are released.
    pub fn open_unlinked_count(&self) -> usize {
        self.orphans.lock().all().len()
    }

    /// Releases all pinned inodes.
    pub(crate) fn unpin_all(&self) -> Result<(), Error> {
        for inode in self.inodes.pinned() {
            self.release(inode, u64::MAX)?;
        }
        // Inodes whose deletion or truncation has failed half way. The next open of the volume
        // tries again.
        let left = self.orphans.lock().all();
        for number in left {
            if let Err(error) = self.record_corruption(self.finish_orphan(number)) {
                tracing::warn!(%error, inode = %number, "an orphan is left");
            }
        }
        Ok(())
    }

    /// Credits for the first step of a deletion.
    pub(super) fn delete_credits(&self, file: &LoadedInode) -> u32 {
        let blocks = if has_blocks(self, file) { credits::remove_step(file) } else { 0 };
        blocks
            + credits::INODE_NUMBER
            + credits::quotas(self)
            + orphans::CREDITS
            + credits::XATTR_BLOCK
    }

    /// The last link of a file is gone: it is deleted, or kept without links as long as it is
    /// pinned. The directories that had its name are locked until that may not be undone any more.
    pub(super) fn drop_file<D>(
        &self,
        edit: Operation<'_>,
        file: &CachedInode,
        inode: InodeWrite<'_>,
        dirs: D,
    ) -> Result<(), Error> {
        if file.is_pinned() {
            // Gone before what is locked, however this ends.
            let mut edit = edit;
            self.orphans.lock().add(&mut edit, inode.number)?;
            write_inode(&mut edit, inode.number, &inode.inode)?;
            edit.finish();
            file.set_unlinked();
            drop(dirs);
            return Ok(());
        }
        file.set_unlinked();
        self.delete(edit, inode, dirs)
    }

    /// Deletes a file: its blocks, its attributes, its inode.
    pub(super) fn delete<D>(
        &self,
        edit: Operation<'_>,
        mut inode: InodeWrite<'_>,
        dirs: D,
    ) -> Result<(), Error> {
        let mut dirs = Some(dirs);
        // Gone before what is locked, however this ends.
        let mut edit = edit;
        // Corruption there is found before anything is given back.
        xattr::check(self, &inode)?;
        let (number, file_type) = (inode.number, inode.file_type());
        self.allocator.discard_preallocation(number);
        if has_blocks(self, &inode) {
            let rest = self.delete_credits(&inode);
            let settling = || {
                drop(dirs.take());
                Ok(())
            };
            self.remove_to_end(&mut edit, &mut inode, FileBlock(0), rest, settling)?;
        }
        xattr::release_all(&mut edit, &mut inode)?;
        edit.charge(&inode, Usage { space: 0, inodes: -1 }, Limits::Ignored)?;
        self.orphans.lock().remove(&mut edit, number)?;
        clear_inode(&mut edit, number)?;
        edit.free_inode(number, file_type)?;
        edit.finish();
        drop(dirs);
        let (loaded, delayed) = inode.parts();
        self.drop_delayed(loaded, delayed, 0);
        self.lazy_times.forget(&inode);
        inode.set_freed();
        Ok(())
    }
}
