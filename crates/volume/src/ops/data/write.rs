//! Writing: rounds of blocks set aside, filled, and mapped.

use super::super::{Creator, credits};
use super::range::{ZEROS, max_size, touched};
use super::{check_writable, set_size, touch};
use crate::alloc::{Budget, Claim};
use crate::edit::{AllocationRequest, Edit, Purpose, Run, write_inode, write_loaded};
use crate::error::Error;
use crate::live::Live;
use crate::live::edit::LiveEdit;
use crate::live::inodes::{LiveInode, LockAs};
use crate::read::inode::LoadedInode;
use crate::read::mapping::{Target, map};
use crate::volume::Volume;
use crate::write::inline;
use crate::write::mapping::{self, Plan, State};
use extant_device::Request;
use extant_ondisk::inode::InodeFlags;
use extant_ondisk::{BlockNo, FileBlock, InodeNo};
use std::io::IoSlice;
use std::ops::Range;

/// Runs that one round maps at most.
const RUNS_OF_ROUND: usize = 64;

/// A run of blocks that a round writes.
struct Segment {
    blocks: Range<u64>,
    start: BlockNo,
    state: Was,
}

impl Segment {
    /// Its first block in the file, and its run.
    fn placed(&self) -> (FileBlock, Run) {
        let count = self.blocks.end - self.blocks.start;
        (FileBlock(self.blocks.start), Run { start: self.start, count })
    }
}

/// What the blocks were before.
enum Was {
    /// In use, and holding data.
    Written,
    /// In use, reading as zeros.
    Unwritten,
    /// A hole. The clusters are set aside, unless the file had them.
    Hole(Option<Claim>),
}

/// Blocks that are written together.
struct Round {
    segments: Vec<Segment>,
    credits: u32,
}

impl Round {
    fn end(&self) -> u64 {
        self.segments.last().map_or(0, |segment| segment.blocks.end)
    }
}

impl Volume {
    /// Writes bytes into a file and says how many: fewer than given only where the volume or the format ends, then at least one.
    /// What lies between the file's end and `offset` reads as zeros. Blocks that are reserved are not used, and the file loses
    /// setuid and setgid: see [`Self::write_by`].
    ///
    /// # Errors
    /// [`Error::IsADirectory`], [`Error::WrongFileType`], [`Error::Encrypted`], [`Error::NotPermitted`], [`Error::NoSpace`],
    /// [`Error::QuotaExceeded`], [`Error::FileTooLarge`], [`Error::ReadOnly`], a broken map, or the journal or device failed.
    pub fn write(&self, file: InodeNo, offset: u64, bytes: &[u8]) -> Result<usize, Error> {
        self.write_by(file, offset, bytes, &Creator::default())
    }

    /// As [`Self::write`], for somebody who may use reserved blocks and keep setuid.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_by(
        &self,
        file: InodeNo,
        offset: u64,
        bytes: &[u8],
        by: &Creator,
    ) -> Result<usize, Error> {
        self.noted(self.write_from(file, Some(offset), bytes, by)).map(|(_, count)| count)
    }

    /// Writes bytes at a file's end, wherever it is by then: where they are, and how many.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn append_by(
        &self,
        file: InodeNo,
        bytes: &[u8],
        by: &Creator,
    ) -> Result<(u64, usize), Error> {
        self.noted(self.write_from(file, None, bytes, by))
    }

    /// Writes bytes from a place on, or at the end: where they are, and how many.
    fn write_from(
        &self,
        file: InodeNo,
        offset: Option<u64>,
        bytes: &[u8],
        by: &Creator,
    ) -> Result<(u64, usize), Error> {
        let live = self.writable()?;
        let file = live.inodes.get(file);
        let mut inode = file.write(self, LockAs::File)?;
        check_writable(&inode)?;
        let offset = offset.unwrap_or(inode.size);
        if inode.flags.contains(InodeFlags::APPEND) && offset < inode.size {
            return Err(Error::NotPermitted(inode.number));
        }
        if bytes.is_empty() {
            return Ok((offset, 0));
        }
        let room = max_size(self.geometry(), &inode).saturating_sub(offset);
        if room == 0 {
            return Err(Error::FileTooLarge);
        }
        // At most the length of a slice.
        let bytes = &bytes[..room.min(bytes.len() as u64) as usize];
        let is_in_frames = inode.is_inline() || self.is_journalled(&inode);
        if is_in_frames || offset + bytes.len() as u64 > inode.size {
            file.set_unsynced();
        }
        let mut done = 0;
        let mut has_waited = false;
        while done < bytes.len() {
            let (at, rest) = (offset + done as u64, &bytes[done..]);
            match self.write_round(live, &file, &mut inode, at, rest, by) {
                Ok(count) => done += count,
                // Space that was freed may be used after a commit; no handle is held here.
                Err(Error::NoSpace) if !has_waited && live.allocator.has_pending() => {
                    has_waited = true;
                    live.journal.sync()?;
                }
                Err(Error::NoSpace | Error::QuotaExceeded) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok((offset, done))
    }

    /// Writes some of the bytes, from the first on; how many.
    fn write_round(
        &self,
        live: &Live,
        shared: &LiveInode,
        file: &mut LoadedInode,
        offset: u64,
        bytes: &[u8],
        by: &Creator,
    ) -> Result<usize, Error> {
        if file.is_inline() {
            if self.write_inline(file, offset, bytes, by)? {
                return Ok(bytes.len());
            }
            self.leave_inode(live, file, by)?;
        }
        if self.is_journalled(file) {
            return self.write_journalled(file, offset, bytes, by);
        }
        let wanted = touched(self.geometry(), &(offset..offset + bytes.len() as u64));
        let round = self.plan_round(live, file, wanted.start.0..wanted.end.0, by)?;
        if round.segments.iter().any(|segment| !matches!(segment.state, Was::Written)) {
            shared.set_unsynced();
        }
        let end = (offset + bytes.len() as u64).min(round.end() << self.geometry().block_bits());
        // At most the length of the slice.
        let bytes = &bytes[..(end - offset) as usize];
        self.fill(file, &round, offset, bytes)?;
        self.finish_round(live, file, round, offset..end, by)
    }

    /// Finds the runs that a range of blocks lies in, and sets space aside for its holes.
    fn plan_round(
        &self,
        live: &Live,
        file: &LoadedInode,
        blocks: Range<u64>,
        by: &Creator,
    ) -> Result<Round, Error> {
        let most_credits = live.journal.max_credits() / 2;
        let mut round = Round {
            segments: Vec::new(),
            credits: credits::INODE + credits::SUPERBLOCK + credits::quotas(self),
        };
        let mut goal = None;
        let mut at = blocks.start;
        while at < blocks.end && round.segments.len() < RUNS_OF_ROUND {
            let mapping = map(self, file, FileBlock(at))?;
            let mut len = mapping.len.min(blocks.end - at);
            let cost = credits::map_run(self.geometry(), file, len);
            if !round.segments.is_empty() && round.credits + cost > most_credits {
                break;
            }
            let (start, state) = match mapping.target {
                Target::Written(start) => (start, Was::Written),
                Target::Unwritten(start) => (start, Was::Unwritten),
                Target::Hole => {
                    let request = AllocationRequest {
                        inode: file.number,
                        purpose: Purpose::Data,
                        goal,
                        count: len,
                        part: None,
                    };
                    let before = round.segments.last().map(Segment::placed);
                    let (run, claim) = match self.rest_of_cluster(before, FileBlock(at), len) {
                        Some(run) => (run, None),
                        None => {
                            let state = State::Written;
                            let plan = mapping::plan(self, file, FileBlock(at), request, state)?;
                            let claim = match self.claim(live, &plan, by) {
                                Err(Error::NoSpace) if !round.segments.is_empty() => break,
                                other => other?,
                            };
                            (plan.run(claim.as_ref().map(Claim::run)), claim)
                        }
                    };
                    len = run.count;
                    goal = run.start.checked_add(run.count);
                    (run.start, Was::Hole(claim))
                }
            };
            if !matches!(state, Was::Written) {
                round.credits += cost;
            }
            round.segments.push(Segment { blocks: at..at + len, start, state });
            at += len;
        }
        Ok(round)
    }

    /// With bigalloc: where a hole goes on in the last cluster of the run before it, which the map does not know of yet.
    pub(super) fn rest_of_cluster(
        &self,
        before: Option<(FileBlock, Run)>,
        at: FileBlock,
        most: u64,
    ) -> Option<Run> {
        let skipped = at.0 % u64::from(self.geometry().blocks_per_cluster);
        let (start, run) = before.filter(|_| skipped > 0)?;
        let left = u64::from(self.geometry().blocks_per_cluster) - skipped;
        let follows = start.0 + run.count == at.0;
        follows.then(|| Run { start: BlockNo(run.start.0 + run.count), count: left.min(most) })
    }

    /// Sets aside what a plan needs.
    pub(super) fn claim(
        &self,
        live: &Live,
        plan: &Plan,
        by: &Creator,
    ) -> Result<Option<Claim>, Error> {
        match plan {
            Plan::Shared(_) => Ok(None),
            Plan::Fresh { request, .. } => {
                let budget = Budget::Free { is_privileged: by.is_privileged };
                live.allocator.claim(self, *request, budget).map(Some)
            }
        }
    }

    /// Writes the data of a round, and zeros around them in blocks that held none.
    fn fill(
        &self,
        file: &LoadedInode,
        round: &Round,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let geometry = self.geometry();
        let bits = geometry.block_bits();
        let end = offset + bytes.len() as u64;
        let gap = self.gap(file, offset)?;
        let mut batch: Vec<Request<'_>> = gap.iter().map(|part| self.zeros(part)).collect();
        for segment in &round.segments {
            let (first, last) = (segment.blocks.start << bits, segment.blocks.end << bits);
            let (from, to) = (offset.max(first), end.min(last));
            // Parts of the slice.
            let data = &bytes[(from - offset) as usize..(to - offset) as usize];
            let place = geometry.byte_of(segment.start);
            if matches!(segment.state, Was::Written) {
                batch.push(Request::write(place + (from - first), data));
                continue;
            }
            // Less than a block each.
            let (before, behind) = ((from - first) as usize, (last - to) as usize);
            let parts = [&ZEROS[..before], data, &ZEROS[..behind]];
            let parts = parts.into_iter().filter(|part| !part.is_empty()).map(IoSlice::new);
            batch.push(Request::write_vectored(place, parts.collect()));
        }
        Ok(self.device.submit(&mut batch)?)
    }

    /// Maps what a round has filled, and stores that bytes `range` are the file's. How many of them are.
    fn finish_round(
        &self,
        live: &Live,
        file: &mut LoadedInode,
        round: Round,
        range: Range<u64>,
        by: &Creator,
    ) -> Result<usize, Error> {
        let mut edit = self.edit(round.credits)?.privileged(by.is_privileged);
        let mut covered = range.end;
        let mut failure = None;
        for segment in round.segments {
            let start = segment.blocks.start << self.geometry().block_bits();
            let mapped = match segment.state {
                Was::Written => Ok(()),
                Was::Unwritten => {
                    let blocks = FileBlock(segment.blocks.start)..FileBlock(segment.blocks.end);
                    self.set_written(&mut edit, file, blocks)
                }
                Was::Hole(claim) => {
                    let count = segment.blocks.end - segment.blocks.start;
                    let run = Run { start: segment.start, count };
                    let at = FileBlock(segment.blocks.start);
                    take_and_place(live, &mut edit, file, at, run, claim, State::Written)
                }
            };
            if let Err(error) = mapped {
                covered = covered.min(start.max(range.start));
                failure = Some(error);
                break;
            }
        }
        if let Some(error) = failure
            && covered == range.start
        {
            write_inode(&mut edit, file.number, &file.inode)?;
            return Err(error);
        }
        touch(&edit, file, by);
        let size = file.size.max(covered);
        set_size(&mut edit, file, size)?;
        write_inode(&mut edit, file.number, &file.inode)?;
        // A part of the slice's length.
        Ok((covered - range.start) as usize)
    }

    /// Marks unwritten blocks that were filled as written. Where the tree has no room for the parts of an extent, and the volume none
    /// for the tree, the rest of the extent is filled with zeros and all of it marked: what was preallocated can always be written.
    fn set_written(
        &self,
        edit: &mut LiveEdit<'_>,
        file: &mut LoadedInode,
        blocks: Range<FileBlock>,
    ) -> Result<(), Error> {
        let mut next = Some(blocks.start);
        while let Some(from) = next {
            let range = from..blocks.end;
            match mapping::set_state_step(edit, file, range.clone(), State::Written) {
                Ok(after) => next = after,
                Err(Error::NoSpace) => {
                    let Some(extent) = mapping::unwritten_extent(self, file, from)? else {
                        return Err(Error::NoSpace);
                    };
                    let end = blocks.end.min(extent.end());
                    self.zero_run(extent.start, from.0 - extent.block.0)?;
                    let behind = BlockNo(extent.start.0 + (end.0 - extent.block.0));
                    self.zero_run(behind, extent.end().0 - end.0)?;
                    set_state(edit, file, extent.block..extent.end(), State::Written)?;
                    next = (end < blocks.end).then_some(end);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes zeros to a run of blocks on the device.
    fn zero_run(&self, start: BlockNo, count: u64) -> Result<(), Error> {
        let geometry = self.geometry();
        let from = geometry.byte_of(start);
        let to = from + count * u64::from(geometry.block_size);
        for at in (from..to).step_by(ZEROS.len()) {
            // At most the length of a slice.
            let length = (to - at).min(ZEROS.len() as u64) as usize;
            self.device.write_at(at, &ZEROS[..length])?;
        }
        Ok(())
    }

    /// Writes into an inline file in its inode. False when there is no room for it.
    fn write_inline(
        &self,
        file: &mut LoadedInode,
        offset: u64,
        bytes: &[u8],
        by: &Creator,
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
        by: &Creator,
    ) -> Result<bool, Error> {
        let mut edit = self.edit(credits::INODE)?;
        let mut changed = file.clone();
        if !inline::set_contents(self, &mut changed, contents)? {
            return Ok(false);
        }
        touch(&edit, &mut changed, by);
        write_loaded(&mut edit, &changed)?;
        *file = changed;
        Ok(true)
    }

    /// Moves the data of an inline file to a block.
    pub(super) fn leave_inode(
        &self,
        live: &Live,
        file: &mut LoadedInode,
        by: &Creator,
    ) -> Result<(), Error> {
        let contents = inline::contents(self, file)?;
        let mut changed = file.clone();
        inline::leave(self, &mut changed)?;
        let credits = credits::INODE + credits::quotas(self) + credits::map_block(&changed) + 1;
        if contents.is_empty() {
            let mut edit = self.edit(credits::INODE)?;
            write_loaded(&mut edit, &changed)?;
        } else if self.is_journalled(file) {
            let mut edit = self.edit(credits)?.privileged(by.is_privileged);
            self.create_journalled(&mut edit, &mut changed, FileBlock(0), &contents)?;
            write_loaded(&mut edit, &changed)?;
        } else {
            let request = AllocationRequest {
                inode: file.number,
                purpose: Purpose::Data,
                goal: None,
                count: 1,
                part: None,
            };
            let plan = mapping::plan(self, &changed, FileBlock(0), request, State::Written)?;
            let claim = self.claim(live, &plan, by)?;
            let run = plan.run(claim.as_ref().map(Claim::run));
            let mut block = contents;
            block.resize(self.geometry().block_len(), 0);
            self.device.write_at(self.geometry().byte_of(run.start), &block)?;
            let mut edit = self.edit(credits)?.privileged(by.is_privileged);
            let at = FileBlock(0);
            take_and_place(live, &mut edit, &mut changed, at, run, claim, State::Written)?;
            write_loaded(&mut edit, &changed)?;
        }
        *file = changed;
        Ok(())
    }
}

/// Takes what was set aside and maps a run of it. A failed call has given it back.
pub(super) fn take_and_place(
    live: &Live,
    edit: &mut LiveEdit<'_>,
    file: &mut LoadedInode,
    at: FileBlock,
    run: Run,
    claim: Option<Claim>,
    state: State,
) -> Result<(), Error> {
    let taken = claim.map(|claim| live.allocator.take(edit, claim)).transpose()?;
    mapping::place(edit, file, at, run, taken, state).or_else(|error| {
        if let Some(taken) = taken {
            edit.free(taken, Purpose::Data)?;
        }
        Err(error)
    })
}

/// Marks mapped blocks of a range in one operation.
pub(super) fn set_state(
    edit: &mut LiveEdit<'_>,
    file: &mut LoadedInode,
    blocks: Range<FileBlock>,
    state: State,
) -> Result<(), Error> {
    let mut next = Some(blocks.start);
    while let Some(from) = next {
        next = mapping::set_state_step(edit, file, from..blocks.end, state)?;
    }
    Ok(())
}
