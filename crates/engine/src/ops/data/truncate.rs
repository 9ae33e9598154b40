//! Truncation: the end first, then the blocks after it in steps that fit a handle. Between two
//! steps the file is an orphan, so that recovery continues the truncation after power loss.

use super::super::{Credentials, credits};
use super::range::{Edges, max_size, zero_in_frames};
use super::{check_writable, set_size, touch};
use crate::edit::write_inode;
use crate::engine::Engine;
use crate::engine::inodes::{InodeWrite, LockClass};
use crate::engine::operation::Operation;
use crate::write::{inline, mapping, orphans};
use extant_ondisk::inode::InodeFlags;
use extant_ondisk::{FileBlock, GroupNo, InodeNo, MAX_FILE_BLOCKS};
use extant_reader::Error;
use extant_reader::read::inode::LoadedInode;
use extant_reader::read::mapping::map;
use std::ops::Range;

impl Engine {
    /// Cuts a file off at `size`, or lets it end in zeros there. Blocks after the end are given
    /// back. The file loses setuid and setgid.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn truncate(&self, file: InodeNo, size: u64) -> Result<(), Error> {
        self.truncate_by(file, size, &Credentials::default())
    }

    /// As [`Self::truncate`], for a caller that may use reserved blocks and keep setuid.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn truncate_by(&self, file: InodeNo, size: u64, by: &Credentials) -> Result<(), Error> {
        self.with_space(|| {
            let file = self.inodes.get(file);
            let mut inode = file.write(self, LockClass::File)?;
            check_writable(&inode)?;
            file.set_unsynced();
            if inode.flags.contains(InodeFlags::APPEND) {
                return Err(Error::NotPermitted(inode.number));
            }
            if inode.is_inline() {
                if size <= inline::room(self, &inode)? as u64 {
                    self.drop_capabilities(&file, &mut inode)?;
                    let mut contents = inline::contents(self, &inode)?;
                    contents.resize(size as usize, 0); // within the inode
                    let is_stored = self.store_inline(&mut inode, &contents, by)?;
                    assert!(is_stored, "the room was asked for");
                    return Ok(());
                }
                self.leave_inode(&mut inode, by)?;
            }
            if size > max_size(self.geometry(), &inode) {
                return Err(Error::FileTooLarge);
            }
            self.drop_capabilities(&file, &mut inode)?;
            if size == 0 && inode.delayed().size(inode.size) > 0 {
                file.set_replaced(self.options.auto_da_alloc);
            }
            self.cut_delayed(&mut inode, size);
            // The rest is mapped before the size is set.
            let is_replaced = file.is_replaced();
            self.write_back(&file, &mut inode);
            file.set_replaced(is_replaced);
            self.set_end(&mut inode, size, by)
        })
    }

    /// Drops delayed data after a new end.
    fn cut_delayed(&self, file: &mut InodeWrite<'_>, size: u64) {
        let geometry = self.geometry();
        let block_size = u64::from(geometry.block_size);
        let (inode, delayed) = file.parts();
        if delayed.is_empty() || delayed.end() <= size {
            return;
        }
        delayed.zero(size..size.next_multiple_of(block_size), geometry);
        delayed.cut_size(size);
        self.drop_delayed(inode, delayed, size.div_ceil(block_size));
    }

    /// Moves the end of a file with blocks.
    fn set_end(&self, file: &mut LoadedInode, size: u64, by: &Credentials) -> Result<(), Error> {
        self.allocator.discard_preallocation(file.number);
        let edges = self.after_end(file, size)?;
        let is_journalled = self.is_journalled(file);
        // At the same size too: there may be preallocated blocks after the end.
        let cuts = size <= file.size;
        let own = credits::INODE + credits::SUPERBLOCK + edges.len() as u32;
        let steps = if cuts { credits::remove_step(file) + orphans::CREDITS } else { 0 };
        let own = own + credits::quotas(self);
        let mut edit = self.edit(own + steps)?;
        if is_journalled {
            zero_in_frames(&mut edit, &edges)?;
        }
        touch(&edit, file, by);
        set_size(&mut edit, file, size)?;
        // A change that cannot be undone comes last, and before anything is committed.
        let mut is_zeroed = is_journalled;
        let mut zero = || match std::mem::replace(&mut is_zeroed, true) {
            true => Ok(()),
            false => self.zero_on_device(&edges),
        };
        if cuts {
            self.cut(&mut edit, file, &mut zero)?;
        }
        write_inode(&mut edit, file.number, &file.inode)?;
        zero()?;
        edit.finish();
        Ok(())
    }

    /// The part of a block between old and new end that must read as zeros: after the shorter one.
    fn after_end(&self, file: &LoadedInode, size: u64) -> Result<Edges, Error> {
        if size >= file.size {
            return self.gap(file, size);
        }
        let block_end = size.next_multiple_of(u64::from(self.geometry().block_size));
        self.edges(file, &(size..block_end))
    }

    /// Gives back the blocks after the file's end. The caller writes the inode afterwards, in the
    /// same operation. `settling` as for [`Self::remove_to_end`].
    pub(crate) fn cut(
        &self,
        edit: &mut Operation<'_>,
        file: &mut LoadedInode,
        settling: impl FnMut() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let size = u64::from(self.geometry().block_size);
        let first = FileBlock(file.size.div_ceil(size));
        self.remove_to_end(edit, file, first, credits::INODE + orphans::CREDITS, settling)?;
        if file.links > 0 {
            self.orphans.lock().remove(edit, file.number)?;
        }
        Ok(())
    }

    /// Gives back all blocks from `first` on; while there is more to do in later transactions the
    /// file is an orphan. The operation has `rest` credits for what follows. `settling` is called
    /// whenever the changes so far are about to stay, even if the rest fails.
    pub(crate) fn remove_to_end(
        &self,
        edit: &mut Operation<'_>,
        file: &mut LoadedInode,
        first: FileBlock,
        rest: u32,
        mut settling: impl FnMut() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut next = Some(first);
        while let Some(from) = next {
            next = self.remove_step(edit, file, from..FileBlock(MAX_FILE_BLOCKS))?;
            let step = credits::remove_step(file) + credits::quotas(self);
            if next.is_some() && !edit.extends(step + rest)? {
                self.orphans.lock().add(edit, file.number)?;
                write_inode(edit, file.number, &file.inode)?;
                edit.settle();
                settling()?;
                edit.continue_with(step + rest)?;
            }
        }
        Ok(())
    }

    /// Gives back some blocks of a range, as many as [`credits::remove_step`] is enough for. Where
    /// the next step begins.
    pub(super) fn remove_step(
        &self,
        edit: &mut Operation<'_>,
        file: &mut LoadedInode,
        range: Range<FileBlock>,
    ) -> Result<Option<FileBlock>, Error> {
        let is_revoked = file.is_dir() || self.is_journalled(file);
        let most = if is_revoked {
            credits::REVOKED_OF_STEP
        } else {
            u64::from(self.geometry().group_blocks(GroupNo(0))) * credits::GROUPS_OF_STEP as u64
        };
        let first = self.first_mapped(file, &range)?;
        // Blocks of pointers that map nothing go too; what they do map lies in few groups by
        // itself.
        let (start, end) = match file.is_extent_mapped() {
            true if first >= range.end => return Ok(None),
            true => (first, first.0.saturating_add(most)),
            false if is_revoked => (range.start, first.0.saturating_add(most)),
            false => (range.start, u64::MAX),
        };
        let end = range.end.min(FileBlock(end));
        let next = mapping::remove_step(edit, file, start..end, credits::GROUPS_OF_STEP)?;
        if next.is_some() || end >= range.end {
            return Ok(next);
        }
        // Most files end here: that is no step of its own.
        let rest = self.first_mapped(file, &(end..range.end))?;
        Ok((rest < range.end || !file.is_extent_mapped()).then_some(end))
    }

    /// The first block of a range that is no hole, or the range's end.
    fn first_mapped(
        &self,
        file: &LoadedInode,
        range: &Range<FileBlock>,
    ) -> Result<FileBlock, Error> {
        let mut first = range.start;
        while first < range.end {
            let run = map(self, file, first)?;
            if !run.is_hole() {
                break;
            }
            first = run.end();
        }
        Ok(first.min(range.end))
    }
}
