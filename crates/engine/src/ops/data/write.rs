//! Writing: blocks are claimed, filled, and mapped, one [`WritePlan`] at a time.

use super::super::{Credentials, credits};
use super::delayed::DelayResult;
use super::range::{ZEROS, max_size, touched};
use super::write_plan::{PreviousState, WritePlan, claim_for, take_and_place};
use super::{check_takes_writes, set_size, touch};
use crate::alloc::Claim;
use crate::edit::{AllocationRequest, Purpose, write_inode, write_loaded};
use crate::engine::Engine;
use crate::engine::delay::memory::Admission;
use crate::engine::inodes::{CachedInode, InodeWrite, LockClass};
use crate::engine::space::ReclaimSteps;
use crate::write::inline;
use crate::write::mapping::{self, ExtentState};
use extant_device::Request;
use extant_ondisk::inode::InodeFlags;
use extant_ondisk::{FileBlock, InodeNo};
use extant_reader::Error;
use extant_reader::read::inode::LoadedInode;
use extant_runtime::sync::Arc;
use std::io::IoSlice;
use std::mem;
use std::ops::Range;

/// How far a write came.
struct Written {
    /// Its first byte; for an append it is known only under the file's lock.
    offset: Option<u64>,
    done: usize,
    /// Whether it is a write at the end.
    appends: bool,
    /// Whether every write of the file must be durable (flag S).
    is_sync: bool,
}

/// Whether a call waits for the writeback of its file's delayed data.
#[derive(Clone, Copy)]
enum DuringWriteback {
    Wait,
    /// It proceeds during writeback as far as it can.
    Proceed,
}

/// How a write ended.
enum WriteEnd {
    Done,
    /// The rest of it waits for the writeback of delayed data.
    WritebackPending,
}

impl Engine {
    /// Writes bytes into a file and returns their number: fewer than given only where the volume or
    /// the format ends, then at least one. The gap between the file's end and `offset` reads as
    /// zeros. Blocks that are reserved are not used, and the file loses setuid and setgid: see
    /// [`Self::write_by`].
    ///
    /// # Errors
    /// [`Error::IsADirectory`], [`Error::WrongFileType`], [`Error::Encrypted`],
    /// [`Error::NotPermitted`], [`Error::NoSpace`], [`Error::QuotaExceeded`],
    /// [`Error::FileTooLarge`], [`Error::ReadOnly`], a broken map, or the journal or device failed.
    pub fn write(&self, file: InodeNo, offset: u64, bytes: &[u8]) -> Result<usize, Error> {
        self.write_by(file, offset, bytes, &Credentials::default())
    }

    /// As [`Self::write`], for a caller that may use reserved blocks and keep setuid.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_by(
        &self,
        file: InodeNo,
        offset: u64,
        bytes: &[u8],
        by: &Credentials,
    ) -> Result<usize, Error> {
        self.record_corruption(self.write_from(file, Some(offset), bytes, by))
            .map(|(_, count)| count)
    }

    /// Writes bytes at a file's end, wherever it is by then: where they are, and how many.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn append_by(
        &self,
        file: InodeNo,
        bytes: &[u8],
        by: &Credentials,
    ) -> Result<(u64, usize), Error> {
        self.record_corruption(self.write_from(file, None, bytes, by))
    }

    /// Writes bytes from a place on, or at the end: where they are, and how many.
    fn write_from(
        &self,
        file: InodeNo,
        offset: Option<u64>,
        bytes: &[u8],
        by: &Credentials,
    ) -> Result<(u64, usize), Error> {
        self.check_writable()?;
        self.wait_for_thaw()?;
        let shared = self.inodes.get(file);
        if let Some(offset) = offset
            && self.overwrite(&shared, offset, bytes, by)?
        {
            return Ok((offset, bytes.len()));
        }
        let mut written = Written { offset, done: 0, appends: offset.is_none(), is_sync: false };
        let mut write =
            |during_writeback| self.write_all(&shared, &mut written, bytes, by, during_writeback);
        // A write at the end is done under one lock, so that no other comes between its parts.
        let mut during_writeback =
            if offset.is_some() { DuringWriteback::Proceed } else { DuringWriteback::Wait };
        let outcome = self.retry_for_space(ReclaimSteps::LockReleased, || {
            match write(mem::replace(&mut during_writeback, DuringWriteback::Wait)) {
                Ok(WriteEnd::WritebackPending) => write(DuringWriteback::Wait),
                other => other,
            }
        });
        match outcome {
            Err(Error::NoSpace | Error::QuotaExceeded) if written.done > 0 => {}
            outcome => {
                outcome?;
            }
        }
        if written.is_sync {
            self.fsync(file)?;
        }
        Ok((written.offset.unwrap_or(0), written.done))
    }

    /// Writes what is left of the bytes. `written` holds the progress, however it ends.
    fn write_all(
        &self,
        shared: &Arc<CachedInode>,
        written: &mut Written,
        bytes: &[u8],
        by: &Credentials,
        during_writeback: DuringWriteback,
    ) -> Result<WriteEnd, Error> {
        // Before the lock: a caller that waits for memory holds none.
        let mut admission = self.admit(bytes.len() as u64);
        let mut file = match during_writeback {
            DuringWriteback::Wait => shared.write(self, LockClass::File)?,
            DuringWriteback::Proceed => shared.write_during_writeback(self, LockClass::File)?,
        };
        check_takes_writes(&file, by)?;
        written.is_sync = file.flags.contains(InodeFlags::SYNC);
        let size = file.delayed().size(file.size);
        if written.appends && written.offset.is_some_and(|at| at + written.done as u64 != size) {
            // The lock was released to gain space, and another call changed the size: what is left
            // does not follow what was written.
            if written.done > 0 {
                return Ok(WriteEnd::Done);
            }
            written.offset = None;
        }
        let offset = *written.offset.get_or_insert(size);
        let is_barred = file.flags.contains(InodeFlags::APPEND) && !by.writes_back;
        if is_barred && offset + (written.done as u64) < size {
            return Err(Error::NotPermitted(file.number));
        }
        if bytes.is_empty() {
            return Ok(WriteEnd::Done);
        }
        let room = max_size(self.geometry(), &file).saturating_sub(offset);
        if room == 0 {
            return Err(Error::FileTooLarge);
        }
        self.drop_capabilities(shared, &mut file)?;
        // At most the length of a slice.
        let bytes = &bytes[..room.min(bytes.len() as u64) as usize];
        let is_in_frames = file.is_inline() || self.is_journalled(&file);
        if is_in_frames || offset + bytes.len() as u64 > size {
            shared.set_unsynced();
        }
        let outcome = self.retry_for_space(ReclaimSteps::LockHeld, || {
            while written.done < bytes.len() {
                let (at, rest) = (offset + written.done as u64, &bytes[written.done..]);
                match self.write_some(shared, &mut file, admission.as_mut(), at, rest, by)? {
                    Some(count) => written.done += count,
                    None => return Ok(WriteEnd::WritebackPending),
                }
            }
            Ok(WriteEnd::Done)
        });
        let (_, delayed) = file.parts();
        self.schedule_writeback(shared, delayed);
        outcome
    }

    /// Writes some of the bytes, from the first on; how many. `None` if it waits for the writeback
    /// of delayed data.
    fn write_some(
        &self,
        shared: &Arc<CachedInode>,
        file: &mut InodeWrite<'_>,
        admission: Option<&mut Admission<'_>>,
        offset: u64,
        bytes: &[u8],
        by: &Credentials,
    ) -> Result<Option<usize>, Error> {
        if file.is_inline() {
            if self.write_inline(file, offset, bytes, by)? {
                return Ok(Some(bytes.len()));
            }
            self.leave_inode(file, by)?;
        }
        if self.is_journalled(file) {
            return self.write_journalled(shared, file, offset, bytes, by).map(Some);
        }
        let bytes = match self.delay_some(shared, file, admission, offset, bytes, by)? {
            DelayResult::Done(count) => return Ok(Some(count)),
            DelayResult::WritebackPending => return Ok(None),
            DelayResult::AtOnce(count) => &bytes[..count],
        };
        let wanted = touched(self.geometry(), &(offset..offset + bytes.len() as u64));
        let mut write_plan = WritePlan::new(self);
        self.plan_blocks(file, wanted.start.0..wanted.end.0, &mut write_plan, |request| {
            self.claim(request, by)
        })?;
        if write_plan.maps_something() {
            shared.set_unsynced();
        }
        let plan_end = write_plan.range().end << self.geometry().block_bits();
        let end = (offset + bytes.len() as u64).min(plan_end);
        // At most the length of the slice.
        let bytes = &bytes[..(end - offset) as usize];
        self.fill(file, &write_plan, offset, bytes)?;
        let is_overwriting = !write_plan.maps_something() && end <= file.size;
        if is_overwriting && self.touch_lazily(shared, file, by) {
            return Ok(Some(bytes.len()));
        }
        self.finish_plan(file, write_plan, offset..end, by).map(Some)
    }

    /// Writes the data of a plan, and zeros around them in blocks that held none.
    fn fill(
        &self,
        file: &LoadedInode,
        write_plan: &WritePlan,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let geometry = self.geometry();
        let bits = geometry.block_bits();
        let end = offset + bytes.len() as u64;
        let gap = self.gap(file, offset)?;
        let mut batch: Vec<Request<'_>> = gap.iter().map(|part| self.zeros(part)).collect();
        for segment in &write_plan.segments {
            let (first, last) = (segment.blocks.start << bits, segment.blocks.end << bits);
            let (from, to) = (offset.max(first), end.min(last));
            // Parts of the slice.
            let data = &bytes[(from - offset) as usize..(to - offset) as usize];
            let place = geometry.byte_of(segment.start);
            if matches!(segment.state, PreviousState::Written) {
                batch.push(Request::write(place + (from - first), data));
                continue;
            }
            // Less than a block each.
            let (before, after) = ((from - first) as usize, (last - to) as usize);
            let parts = [&ZEROS[..before], data, &ZEROS[..after]];
            let parts = parts.into_iter().filter(|part| !part.is_empty()).map(IoSlice::new);
            batch.push(Request::write_vectored(place, parts.collect()));
        }
        Ok(self.device.submit(&mut batch)?)
    }

    /// Maps the filled blocks of a plan, and stores that bytes `range` are the file's. How many of
    /// them are.
    fn finish_plan(
        &self,
        file: &mut LoadedInode,
        write_plan: WritePlan,
        range: Range<u64>,
        by: &Credentials,
    ) -> Result<usize, Error> {
        let mut edit = self.edit(write_plan.credits())?.privileged(by.is_privileged);
        let mut covered = range.end;
        if let Err((from, error)) = self.place_segments(&mut edit, file, write_plan.segments) {
            covered = covered.min(from.max(range.start));
            if covered == range.start {
                return Err(error);
            }
        }
        touch(&edit, file, by);
        let size = file.size.max(covered);
        set_size(&mut edit, file, size)?;
        write_inode(&mut edit, file.number, &file.inode)?;
        edit.finish();
        // A part of the slice's length.
        Ok((covered - range.start) as usize)
    }

    /// Writes into an inline file in its inode. False when there is no room for it.
    fn write_inline(
        &self,
        file: &mut LoadedInode,
        offset: u64,
        bytes: &[u8],
        by: &Credentials,
    ) -> Result<bool, Error> {
        let Some(end) = usize::try_from(offset).ok().and_then(|at| at.checked_add(bytes.len()))
        else {
            return Ok(false);
        };
        if end > inline::room(self, file)? {
            return Ok(false);
        }
        let mut contents = inline::contents(self, file)?;
        contents.resize(contents.len().max(end), 0);
        contents[end - bytes.len()..end].copy_from_slice(bytes);
        self.store_inline(file, &contents, by)
    }

    /// Gives an inline file its contents. False when they do not fit.
    pub(super) fn store_inline(
        &self,
        file: &mut LoadedInode,
        contents: &[u8],
        by: &Credentials,
    ) -> Result<bool, Error> {
        let mut edit = self.edit(credits::INODE)?;
        let mut changed = file.clone();
        if !inline::set_contents(self, &mut changed, contents)? {
            return Ok(false);
        }
        touch(&edit, &mut changed, by);
        write_loaded(&mut edit, &changed)?;
        edit.finish();
        *file = changed;
        Ok(true)
    }

    /// Moves the data of an inline file to a block.
    pub(super) fn leave_inode(
        &self,
        file: &mut LoadedInode,
        by: &Credentials,
    ) -> Result<(), Error> {
        let contents = inline::contents(self, file)?;
        let mut changed = file.clone();
        inline::leave(self, &mut changed)?;
        let credits = credits::INODE + credits::quotas(self) + credits::map_block(&changed) + 1;
        if contents.is_empty() {
            let mut edit = self.edit(credits::INODE)?;
            write_loaded(&mut edit, &changed)?;
            edit.finish();
        } else if self.is_journalled(file) {
            let mut edit = self.edit(credits)?.privileged(by.is_privileged);
            self.create_journalled(&mut edit, &mut changed, FileBlock(0), &contents)?;
            write_loaded(&mut edit, &changed)?;
            edit.finish();
        } else {
            let request = AllocationRequest {
                inode: file.number,
                purpose: Purpose::Data,
                goal: None,
                count: 1,
                part: None,
            };
            let plan = mapping::plan(self, &changed, FileBlock(0), request, ExtentState::Written)?;
            let claim = claim_for(&plan, |request| self.claim(request, by))?;
            let run = plan.run(claim.as_ref().map(Claim::run));
            let mut block = contents;
            block.resize(self.geometry().block_len(), 0);
            self.device.write_at(self.geometry().byte_of(run.start), &block)?;
            let mut edit = self.edit(credits)?.privileged(by.is_privileged);
            let at = FileBlock(0);
            take_and_place(&mut edit, &mut changed, at, run, claim, ExtentState::Written)?;
            write_loaded(&mut edit, &changed)?;
            edit.finish();
        }
        *file = changed;
        Ok(())
    }
}
