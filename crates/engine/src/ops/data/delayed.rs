//! Writes into holes, kept in memory until they get their blocks; reads that see them; and writes
//! over blocks that hold data, which change nothing of the file but its times.

use super::super::xattrs::may_have_capabilities;
use super::super::{Credentials, credits};
use super::range::touched;
use super::{check_takes_writes, set_changed, touch};
use crate::edit::write_inode;
use crate::engine::Engine;
use crate::engine::delay::memory::Admission;
use crate::engine::delay::{DataPart, DelayedData};
use crate::engine::inodes::{CachedInode, InodeWrite, LockClass};
use extant_device::Request;
use extant_ondisk::inode::InodeFlags;
use extant_ondisk::{FileBlock, Geometry};
use extant_reader::Error;
use extant_reader::read::data;
use extant_reader::read::inode::LoadedInode;
use extant_reader::read::mapping::{MappingTarget, map};
use extant_runtime::sync::Arc;
use std::ops::Range;

/// The result for the first bytes of a write.
pub(super) enum DelayResult {
    /// This number of bytes is delayed.
    Done(usize),
    /// This number of bytes must be written at once.
    AtOnce(usize),
    /// Nothing before the end of the running writeback.
    WritebackPending,
}

/// Memory that a write may take at most beyond its bytes: blocks that it does not fill, and room
/// for what follows.
fn beyond(geometry: &Geometry) -> u64 {
    4 * u64::from(geometry.block_size)
}

impl Engine {
    /// Waits until a write of `bytes` bytes may be delayed; `None` if it is written at once.
    pub(super) fn admit(&self, bytes: u64) -> Option<Admission<'_>> {
        let memory = &self.delalloc.memory;
        let is_delayed = self.delalloc.is_on && bytes > 0 && bytes <= memory.largest();
        is_delayed.then(|| {
            let wanted = bytes + beyond(self.geometry());
            memory.admit(&self.env, wanted, |waits| self.help_to_write(waits))
        })
    }

    /// DelayedAllocation the first bytes of a write where they fall on a hole or on delayed data.
    pub(super) fn delay_some(
        &self,
        shared: &CachedInode,
        file: &mut InodeWrite<'_>,
        admission: Option<&mut Admission<'_>>,
        offset: u64,
        bytes: &[u8],
        by: &Credentials,
    ) -> Result<DelayResult, Error> {
        shared.set_closed(false);
        let geometry = self.geometry();
        let bits = geometry.block_bits();
        let blocks = touched(geometry, &(offset..offset + bytes.len() as u64));
        let blocks = blocks.start.0..blocks.end.0;
        let next = file.delayed().next(blocks.start, geometry);
        let is_under_writeback = file.delayed().is_under_writeback();
        let at_once = |count| match is_under_writeback {
            true => DelayResult::WritebackPending,
            false => DelayResult::AtOnce(count),
        };
        // Also between runs under writeback: all of that range is no longer delayed after it.
        if file.delayed().is_block_under_writeback(blocks.start) {
            return Ok(DelayResult::WritebackPending);
        }
        if next == Some(blocks.start) {
            self.wait_for_thaw()?;
            self.touch_delayed(file, by)?;
            shared.set_unsynced();
            let (_, delayed) = file.parts();
            return Ok(DelayResult::Done(delayed.write(offset, bytes, geometry)));
        }
        // A block is either delayed or mapped.
        let end = blocks.end.min(next.unwrap_or(u64::MAX));
        let until = |end: u64| ((end << bits) - offset).min(bytes.len() as u64) as usize;
        let Some(admission) = admission else { return Ok(at_once(until(end))) };
        let run = map(self, file, FileBlock(blocks.start))?;
        let end = end.min(run.end().0);
        if !run.is_hole() {
            return Ok(at_once(until(end)));
        }
        self.wait_for_thaw()?;
        let (inode, delayed) = file.parts();
        if delayed.end() <= inode.size {
            // When delayed data lie after the stored end, the gap reads as zeros. Before any
            // reservation: this may fail.
            let gap = self.gap(inode, offset)?;
            self.zero_on_device(&gap)?;
        }
        match self.reserve(inode, delayed, &(blocks.start..end), by) {
            Ok(()) => {}
            // Fallback: what is written at once needs no more than it needs.
            Err(Error::NoSpace) => return Ok(at_once(until(end))),
            Err(error) => return Err(error),
        }
        let before = delayed.memory();
        let count = until(end);
        let written = offset..offset + count as u64;
        delayed.insert(blocks.start..end, &written, geometry, &self.delalloc.buffers);
        admission.spend(delayed.memory() - before);
        let mut done = 0;
        while done < count {
            done += delayed.write(offset + done as u64, &bytes[done..count], geometry);
        }
        shared.set_unsynced();
        self.touch_delayed(file, by)?;
        Ok(DelayResult::Done(count))
    }

    /// The file's data change now. The times are stored with the data; what a program may run as
    /// changes at once.
    fn touch_delayed(&self, file: &mut LoadedInode, by: &Credentials) -> Result<(), Error> {
        set_changed(file, self.now(), by);
        if by.mode_after_change(file) == file.mode {
            return Ok(());
        }
        let mut edit = self.edit(credits::INODE)?;
        touch(&edit, file, by);
        write_inode(&mut edit, file.number, &file.inode)?;
        edit.finish();
        Ok(())
    }

    /// The file's data change now, and nothing else of it but its times: true where these wait in
    /// memory.
    pub(super) fn touch_lazily(
        &self,
        shared: &Arc<CachedInode>,
        file: &mut InodeWrite<'_>,
        by: &Credentials,
    ) -> bool {
        let is_lazy = by.mode_after_change(file) == file.mode && self.keep_times(shared, file);
        if is_lazy {
            set_changed(file, self.now(), by);
        }
        is_lazy
    }

    /// Reads a file of which some data are delayed.
    pub(crate) fn read_delayed(
        &self,
        file: &LoadedInode,
        delayed: &DelayedData,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, Error> {
        let left = delayed.size(file.size).saturating_sub(offset);
        // At most the buffer's length.
        let count = left.min(buffer.len() as u64) as usize;
        let mut at = offset;
        let mut rest = &mut buffer[..count];
        for part in delayed.parts(offset..offset + count as u64, self.geometry()) {
            match part {
                DataPart::Delayed(bytes) => {
                    let (piece, after) = std::mem::take(&mut rest).split_at_mut(bytes.len());
                    piece.copy_from_slice(bytes);
                    at += bytes.len() as u64;
                    rest = after;
                }
                DataPart::Stored(len) => {
                    // A part of the buffer.
                    let (piece, after) = std::mem::take(&mut rest).split_at_mut(len as usize);
                    data::read_blocks(self, file, at, piece)?;
                    at += len;
                    rest = after;
                }
            }
        }
        Ok(count)
    }

    /// Writes over blocks that hold data, all of them in the file: such a write makes only other
    /// changes of the file wait. False where it is another kind of write.
    pub(super) fn overwrite(
        &self,
        shared: &Arc<CachedInode>,
        offset: u64,
        bytes: &[u8],
        by: &Credentials,
    ) -> Result<bool, Error> {
        let file = shared.read(self, LockClass::File)?;
        check_takes_writes(&file, by)?;
        let end = offset.checked_add(bytes.len() as u64).ok_or(Error::FileTooLarge)?;
        if bytes.is_empty()
            || end > file.size
            || file.is_inline()
            || self.is_journalled(&file)
            || file.flags.intersects(InodeFlags::APPEND | InodeFlags::SYNC)
            || may_have_capabilities(&file) && !shared.has_no_capabilities()
        {
            return Ok(false);
        }
        let blocks = touched(self.geometry(), &(offset..end));
        if file.delayed().overlaps(&(blocks.start.0..blocks.end.0), self.geometry()) {
            return Ok(false);
        }
        let Some(mut batch) = self.in_place(&file, offset..end, bytes)? else { return Ok(false) };
        self.wait_for_thaw()?;
        self.device.submit(&mut batch)?;
        drop(file);
        // The file may be another by now: its times are all that is touched.
        match shared.write(self, LockClass::File) {
            Ok(mut file) => {
                if !self.touch_lazily(shared, &mut file, by) {
                    let mut edit = self.edit(credits::INODE)?;
                    touch(&edit, &mut file, by);
                    write_inode(&mut edit, file.number, &file.inode)?;
                    edit.finish();
                }
            }
            Err(Error::FreeInode(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// The requests that write bytes where the file has them; `None` where not all of them lie in
    /// blocks that hold data.
    fn in_place<'b>(
        &self,
        file: &LoadedInode,
        range: Range<u64>,
        bytes: &'b [u8],
    ) -> Result<Option<Vec<Request<'b>>>, Error> {
        let geometry = self.geometry();
        let bits = geometry.block_bits();
        let mut batch = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let run = map(self, file, FileBlock(at >> bits))?;
            let MappingTarget::Written(start) = run.target else { return Ok(None) };
            let end = range.end.min(run.end().0.saturating_mul(1 << bits));
            let place = geometry.byte_of(start) + (at - (run.block.0 << bits));
            // Parts of the slice.
            let part = (at - range.start) as usize..(end - range.start) as usize;
            batch.push(Request::write(place, &bytes[part]));
            at = end;
        }
        Ok(Some(batch))
    }
}
