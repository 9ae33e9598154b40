//! Truncation: the end first, then the blocks behind it in steps that fit a handle. Between two steps the file is an orphan, so that
//! whoever opens the volume after power loss goes on.

use super::super::{Creator, credits};
use super::range::{Edges, max_size, zero_in_frames};
use super::{check_writable, set_size, touch};
use crate::edit::write_inode;
use crate::error::Error;
use crate::live::edit::LiveEdit;
use crate::live::inodes::LockAs;
use crate::read::inode::LoadedInode;
use crate::volume::Volume;
use crate::write::{inline, mapping, orphans};
use extant_ondisk::inode::InodeFlags;
use extant_ondisk::{FileBlock, InodeNo, MAX_FILE_BLOCKS};

impl Volume {
    /// Cuts a file off at `size`, or lets it end in zeros there. Blocks behind the end are given back. The file loses setuid and
    /// setgid.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn truncate(&self, file: InodeNo, size: u64) -> Result<(), Error> {
        self.truncate_by(file, size, &Creator::default())
    }

    /// As [`Self::truncate`], for somebody who may use reserved blocks and keep setuid.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn truncate_by(&self, file: InodeNo, size: u64, by: &Creator) -> Result<(), Error> {
        self.with_space(|| {
            let live = self.live()?;
            let file = live.inodes.get(file);
            let mut inode = file.write(self, LockAs::File)?;
            check_writable(&inode)?;
            file.set_unsynced();
            if inode.flags.contains(InodeFlags::APPEND) {
                return Err(Error::NotPermitted(inode.number));
            }
            if inode.is_inline() {
                if size <= inline::room(self, &inode)? as u64 {
                    let mut contents = inline::contents(self, &inode)?;
                    contents.resize(size as usize, 0); // within the inode
                    let is_stored = self.store_inline(&mut inode, &contents, by)?;
                    assert!(is_stored, "the room was asked for");
                    return Ok(());
                }
                self.leave_inode(live, &mut inode, by)?;
            }
            if size > max_size(self.geometry(), &inode) {
                return Err(Error::FileTooLarge);
            }
            self.set_end(&mut inode, size, by)
        })
    }

    /// Moves the end of a file with blocks.
    fn set_end(&self, file: &mut LoadedInode, size: u64, by: &Creator) -> Result<(), Error> {
        let edges = self.behind_end(file, size)?;
        let is_journalled = self.is_journalled(file);
        if !is_journalled {
            self.zero_on_device(&edges)?;
        }
        let is_shorter = size < file.size;
        let own = credits::INODE + credits::SUPERBLOCK + edges.len() as u32;
        let steps = if is_shorter { credits::remove_step(file) + orphans::CREDITS } else { 0 };
        let mut edit = self.edit(own + steps)?;
        if is_journalled {
            zero_in_frames(&mut edit, &edges)?;
        }
        touch(&edit, file, by);
        set_size(&mut edit, file, size)?;
        if is_shorter {
            self.cut(&mut edit, file)?;
        }
        write_inode(&mut edit, file.number, &file.inode)
    }

    /// The part of a block between old and new end that must read as zeros: behind the shorter one.
    fn behind_end(&self, file: &LoadedInode, size: u64) -> Result<Edges, Error> {
        if size >= file.size {
            return self.gap(file, size);
        }
        let block_end = size.next_multiple_of(u64::from(self.geometry().block_size));
        self.edges(file, &(size..block_end))
    }

    /// Gives back the blocks behind the file's end. The caller writes the inode afterwards, in the same operation.
    pub(crate) fn cut(&self, edit: &mut LiveEdit<'_>, file: &mut LoadedInode) -> Result<(), Error> {
        let size = u64::from(self.geometry().block_size);
        let first = FileBlock(file.size.div_ceil(size));
        self.remove_in_steps(edit, file, first, FileBlock(MAX_FILE_BLOCKS))
    }

    /// Gives back the blocks of a range that reaches past the file's end, as an orphan while there is more to do.
    pub(crate) fn remove_in_steps(
        &self,
        edit: &mut LiveEdit<'_>,
        file: &mut LoadedInode,
        first: FileBlock,
        end: FileBlock,
    ) -> Result<(), Error> {
        let live = self.live()?;
        let mut next = Some(first);
        while let Some(from) = next {
            next = mapping::remove_step(edit, file, from..end, credits::RUNS_OF_STEP)?;
            if next.is_some() {
                live.orphans.lock().add(edit, file.number)?;
                write_inode(edit, file.number, &file.inode)?;
                edit.continue_with(credits::remove_step(file) + credits::INODE + orphans::CREDITS)?;
            }
        }
        if file.links > 0 {
            live.orphans.lock().remove(edit, file.number)?;
        }
        Ok(())
    }
}
