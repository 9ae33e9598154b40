//! Ranges of files preallocated, punched out, zeroed, taken out and put in.

use super::super::{Credentials, credits};
use super::range::{max_size, touched, volume_max_size, whole, zero_in_frames};
use super::write_plan::{claim_for, take_and_place};
use super::{check_writable, set_size, touch};
use crate::alloc::Claim;
use crate::edit::{AllocationRequest, BlockRange, Purpose, write_inode};
use crate::engine::Engine;
use crate::engine::inodes::LockClass;
use crate::engine::operation::Operation;
use crate::write::mapping::{self, ExtentState};
use crate::write::{inline, shift};
use extant_ondisk::inode::InodeFlags;
use extant_ondisk::{FileBlock, InodeNo, MAX_FILE_BLOCKS};
use extant_reader::Error;
use extant_reader::read::inode::LoadedInode;
use extant_reader::read::mapping::{MappingTarget, map};
use std::ops::Range;

/// The change of a file's range.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FallocateMode {
    /// Holes get blocks that read as zeros, and the file reaches at least to the range's end.
    Allocate,
    /// Holes get blocks; the size stays.
    KeepSize,
    /// Blocks are given back: a hole. The size stays.
    PunchHole,
    /// All of it reads as zeros and has blocks, and the file reaches at least to the range's end.
    ZeroRange,
    /// As [`Self::ZeroRange`]; the size stays.
    ZeroRangeKeepSize,
    /// The range is taken out: what follows moves up.
    CollapseRange,
    /// Inserts a hole: the data there move to after it.
    InsertRange,
}

impl FallocateMode {
    fn keeps_size(self) -> bool {
        matches!(self, Self::KeepSize | Self::PunchHole | Self::ZeroRangeKeepSize)
    }
}

/// A hole with the space that was claimed for it.
struct Filler {
    at: FileBlock,
    run: BlockRange,
    claim: Option<Claim>,
}

impl Engine {
    /// Bytes of the longest file that the volume takes.
    pub fn max_file_size(&self) -> u64 {
        volume_max_size(self.geometry())
    }

    /// Changes how a range of a file is allocated, as `fallocate` does.
    ///
    /// Preallocation is all or nothing. Only files with extents have unwritten blocks: in others
    /// holes can be punched, and nothing else. Ranges are taken out and put in by whole blocks
    /// (clusters with bigalloc); with more extents than one transaction takes, power loss may leave
    /// part of them moved, as it does in the kernel.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty range, or one that is not of whole blocks or does not lie in
    /// the file where it must; [`Error::FileTooLarge`] for one that ends after the longest file of
    /// the volume; [`Error::NotSupported`] for files without extents; and as [`Self::write`].
    pub fn fallocate(
        &self,
        file: InodeNo,
        mode: FallocateMode,
        offset: u64,
        length: u64,
    ) -> Result<(), Error> {
        self.fallocate_by(file, mode, offset, length, &Credentials::default())
    }

    /// As [`Self::fallocate`], for a caller that may use reserved blocks and keep setuid.
    ///
    /// # Errors
    /// As [`Self::fallocate`].
    pub fn fallocate_by(
        &self,
        file: InodeNo,
        mode: FallocateMode,
        offset: u64,
        length: u64,
        by: &Credentials,
    ) -> Result<(), Error> {
        if length == 0 {
            return Err(Error::Invalid("empty range"));
        }
        self.with_space(|| {
            let file = self.inodes.get(file);
            let mut inode = file.write(self, LockClass::File)?;
            check_writable(&inode)?;
            let is_plain = matches!(mode, FallocateMode::Allocate | FallocateMode::KeepSize);
            if inode.flags.contains(InodeFlags::APPEND) && !is_plain {
                return Err(Error::NotPermitted(inode.number));
            }
            let end = offset.checked_add(length).ok_or(Error::FileTooLarge)?;
            // As in the kernel, for any kind of map.
            if end > volume_max_size(self.geometry()) {
                return Err(Error::FileTooLarge);
            }
            file.set_unsynced();
            self.write_back(&file, &mut inode);
            if inode.is_inline() {
                if mode == FallocateMode::PunchHole {
                    self.drop_capabilities(&file, &mut inode)?;
                    return self.punch_inline(&mut inode, offset..end, by);
                }
                self.leave_inode(&mut inode, by)?;
            }
            if mode != FallocateMode::PunchHole && !inode.is_extent_mapped() {
                return Err(Error::NotSupported("preallocation in a file without extents"));
            }
            match mode {
                FallocateMode::CollapseRange => self.check_collapse(&inode, &(offset..end))?,
                FallocateMode::InsertRange => self.check_insert(&inode, &(offset..end))?,
                _ => {}
            }
            self.drop_capabilities(&file, &mut inode)?;
            match mode {
                FallocateMode::Allocate | FallocateMode::KeepSize => {
                    self.preallocate(&mut inode, offset..end, mode, by)
                }
                FallocateMode::PunchHole => {
                    // There are no blocks after the last one that can be mapped.
                    let end = end.min(max_size(self.geometry(), &inode));
                    self.punch(&mut inode, offset.min(end)..end, by)
                }
                FallocateMode::ZeroRange | FallocateMode::ZeroRangeKeepSize => {
                    self.zero_range(&mut inode, offset..end, mode, by)
                }
                FallocateMode::CollapseRange => self.collapse(&mut inode, offset..end, by),
                FallocateMode::InsertRange => self.insert_range(&mut inode, offset..end, by),
            }
        })
    }

    /// Gives the holes of a range blocks that read as zeros.
    fn preallocate(
        &self,
        file: &mut LoadedInode,
        bytes: Range<u64>,
        mode: FallocateMode,
        by: &Credentials,
    ) -> Result<(), Error> {
        let blocks = touched(self.geometry(), &bytes);
        let fillers = self.fillers(file, &blocks, by)?;
        let size = if mode.keeps_size() { file.size } else { file.size.max(bytes.end) };
        let gap = self.gap(file, size)?;
        let is_journalled = self.is_journalled(file);
        if !is_journalled {
            self.zero_on_device(&gap)?;
        }
        let fixed = credits::INODE + credits::SUPERBLOCK + credits::quotas(self) + 1;
        let mut edit = self.edit(fixed + credits::map_block(file))?.privileged(by.is_privileged);
        if is_journalled {
            zero_in_frames(&mut edit, &gap)?;
        }
        let mut placed: Vec<Range<FileBlock>> = Vec::new();
        for Filler { at, run, claim } in fillers {
            edit.continue_with(fixed + credits::map_block(file))?;
            let state = ExtentState::Unwritten;
            let part =
                edit.attempt(file, |edit, file| take_and_place(edit, file, at, run, claim, state));
            match part {
                Ok(()) => placed.push(at..FileBlock(at.0 + run.count)),
                Err(error) => {
                    for range in placed {
                        self.remove_range(&mut edit, file, range)?;
                    }
                    write_inode(&mut edit, file.number, &file.inode)?;
                    edit.finish();
                    return Err(error);
                }
            }
            write_inode(&mut edit, file.number, &file.inode)?;
        }
        // The kernel sets both times in all cases.
        touch(&edit, file, by);
        if size != file.size {
            set_size(&mut edit, file, size)?;
        }
        write_inode(&mut edit, file.number, &file.inode)?;
        edit.finish();
        Ok(())
    }

    /// Sets space aside for all holes of a range.
    fn fillers(
        &self,
        file: &LoadedInode,
        blocks: &Range<FileBlock>,
        by: &Credentials,
    ) -> Result<Vec<Filler>, Error> {
        let mut fillers: Vec<Filler> = Vec::new();
        let mut at = blocks.start;
        let mut goal = None;
        while at < blocks.end {
            let mapping = map(self, file, at)?;
            if !mapping.is_hole() {
                at = mapping.end();
                continue;
            }
            let request = AllocationRequest {
                inode: file.number,
                purpose: Purpose::Data,
                goal,
                count: mapping.len.min(blocks.end.0 - at.0),
                part: None,
            };
            let before = fillers.last().map(|last| (last.at, last.run));
            let (run, claim) = match self.rest_of_cluster(before, at, request.count) {
                Some(run) => (run, None),
                None => {
                    let plan = mapping::plan(self, file, at, request, ExtentState::Unwritten)?;
                    let claim = claim_for(&plan, |request| self.claim(request, by))?;
                    (plan.run(claim.as_ref().map(Claim::run)), claim)
                }
            };
            goal = run.start.checked_add(run.count);
            fillers.push(Filler { at, run, claim });
            at = FileBlock(at.0 + run.count);
        }
        Ok(fillers)
    }

    /// Gives back the blocks of a range; after power loss a part of it may be done.
    fn remove_range(
        &self,
        edit: &mut Operation<'_>,
        file: &mut LoadedInode,
        blocks: Range<FileBlock>,
    ) -> Result<(), Error> {
        let mut next = Some(blocks.start);
        while let Some(from) = next {
            next = self.remove_step(edit, file, from..blocks.end)?;
            write_inode(edit, file.number, &file.inode)?;
            if next.is_some() {
                edit.continue_with(
                    credits::remove_step(file) + credits::INODE + credits::quotas(self),
                )?;
            }
        }
        Ok(())
    }

    fn punch_inline(
        &self,
        file: &mut LoadedInode,
        bytes: Range<u64>,
        by: &Credentials,
    ) -> Result<(), Error> {
        let mut contents = inline::contents(self, file)?;
        // Within the contents.
        let to = bytes.end.min(contents.len() as u64) as usize;
        let from = bytes.start.min(to as u64) as usize;
        contents[from..to].fill(0);
        let is_stored = self.store_inline(file, &contents, by)?;
        assert!(is_stored, "the contents are as long as before");
        Ok(())
    }

    fn punch(
        &self,
        file: &mut LoadedInode,
        bytes: Range<u64>,
        by: &Credentials,
    ) -> Result<(), Error> {
        // After the end there is nothing to keep: the last block is freed too.
        let last = file.size.next_multiple_of(u64::from(self.geometry().block_size));
        let end = if bytes.end >= file.size { bytes.end.max(last) } else { bytes.end };
        let bytes = bytes.start..end.max(bytes.start);
        let edges = self.edges(file, &bytes)?;
        let own = credits::INODE + credits::quotas(self);
        let rest = own + edges.len() as u32;
        let mut edit = self.edit(rest + credits::remove_step(file))?;
        // First, since there may be no space for the parts of an extent: then nothing changes.
        self.remove_range(&mut edit, file, whole(self.geometry(), &bytes))?;
        edit.continue_with(rest)?;
        touch(&edit, file, by);
        write_inode(&mut edit, file.number, &file.inode)?;
        if self.is_journalled(file) {
            zero_in_frames(&mut edit, &edges)?;
        } else {
            self.zero_on_device(&edges)?;
        }
        edit.finish();
        Ok(())
    }

    fn zero_range(
        &self,
        file: &mut LoadedInode,
        bytes: Range<u64>,
        mode: FallocateMode,
        by: &Credentials,
    ) -> Result<(), Error> {
        // Space for the holes first: without it nothing changes.
        self.preallocate(file, bytes.clone(), mode, by)?;
        let edges = self.edges(file, &bytes)?;
        let is_journalled = self.is_journalled(file);
        if !is_journalled {
            self.zero_on_device(&edges)?;
        }
        let step = credits::INODE + credits::quotas(self) + 2 * credits::map_block(file);
        let mut edit = self.edit(step + edges.len() as u32)?.privileged(by.is_privileged);
        if is_journalled {
            zero_in_frames(&mut edit, &edges)?;
        }
        touch(&edit, file, by);
        let blocks = whole(self.geometry(), &bytes);
        let mut next = (blocks.start < blocks.end).then_some(blocks.start);
        while let Some(from) = next {
            edit.continue_with(step)?;
            let range = from..blocks.end;
            let step = edit.attempt(file, |edit, file| {
                mapping::set_state_step(edit, file, range.clone(), ExtentState::Unwritten)
            });
            match step {
                Ok(after) => next = after,
                // Fallback: no node for the runs that would be cut, so the data are overwritten.
                Err(Error::NoSpace) => {
                    self.zero_blocks(&mut edit, file, range, is_journalled)?;
                    next = None;
                }
                Err(error) => return Err(error),
            }
            write_inode(&mut edit, file.number, &file.inode)?;
        }
        write_inode(&mut edit, file.number, &file.inode)?;
        edit.finish();
        Ok(())
    }

    /// Overwrites the data of whole blocks with zeros.
    fn zero_blocks(
        &self,
        edit: &mut Operation<'_>,
        file: &LoadedInode,
        blocks: Range<FileBlock>,
        is_journalled: bool,
    ) -> Result<(), Error> {
        let mut at = blocks.start;
        while at < blocks.end {
            let run = map(self, file, at)?;
            let end = run.end().min(blocks.end);
            if let MappingTarget::Written(start) = run.target {
                for block in start.0..start.0 + (end.0 - at.0) {
                    let edge =
                        vec![(extant_ondisk::BlockNo(block), 0..self.geometry().block_len())];
                    if is_journalled {
                        edit.continue_with(credits::INODE + 1)?;
                        zero_in_frames(edit, &edge)?;
                    } else {
                        self.zero_on_device(&edge)?;
                    }
                }
            }
            at = end;
        }
        Ok(())
    }

    /// Whether ranges may be taken out and put in there: whole blocks, and with bigalloc whole
    /// clusters.
    fn check_whole(&self, bytes: &Range<u64>) -> Result<Range<FileBlock>, Error> {
        let unit = self.geometry().cluster_size();
        if !bytes.start.is_multiple_of(unit) || !bytes.end.is_multiple_of(unit) {
            return Err(Error::Invalid("range not aligned to the cluster size"));
        }
        Ok(whole(self.geometry(), bytes))
    }

    fn check_collapse(&self, file: &LoadedInode, bytes: &Range<u64>) -> Result<(), Error> {
        self.check_whole(bytes)?;
        if bytes.end >= file.size {
            return Err(Error::Invalid("collapse range must end before end of file"));
        }
        Ok(())
    }

    fn check_insert(&self, file: &LoadedInode, bytes: &Range<u64>) -> Result<(), Error> {
        let blocks = self.check_whole(bytes)?;
        if bytes.start >= file.size {
            return Err(Error::Invalid("insert offset must be before end of file"));
        }
        let (length, count) = (bytes.end - bytes.start, blocks.end.0 - blocks.start.0);
        let size = file.size.checked_add(length).ok_or(Error::FileTooLarge)?;
        let mapped_end = shift::mapped_end(self, file)?.0;
        if size > max_size(self.geometry(), file) || mapped_end + count > MAX_FILE_BLOCKS {
            return Err(Error::FileTooLarge);
        }
        Ok(())
    }

    fn collapse(
        &self,
        file: &mut LoadedInode,
        bytes: Range<u64>,
        by: &Credentials,
    ) -> Result<(), Error> {
        let blocks = self.check_whole(&bytes)?;
        let all = credits::INODE + credits::SUPERBLOCK + credits::quotas(self) + shift::CREDITS;
        let mut edit = self.edit(credits::remove_step(file) + 2 * all)?;
        edit.refuse_fast_commit("blocks moved within a file");
        touch(&edit, file, by);
        self.remove_range(&mut edit, file, blocks.clone())?;
        let count = blocks.end.0 - blocks.start.0;
        let mut next = Some(blocks.end);
        while let Some(from) = next {
            edit.continue_with(all)?;
            next = shift::collapse_step(&mut edit, file, from, count)?;
            write_inode(&mut edit, file.number, &file.inode)?;
        }
        let size = file.size - (bytes.end - bytes.start);
        set_size(&mut edit, file, size)?;
        write_inode(&mut edit, file.number, &file.inode)?;
        edit.finish();
        Ok(())
    }

    fn insert_range(
        &self,
        file: &mut LoadedInode,
        bytes: Range<u64>,
        by: &Credentials,
    ) -> Result<(), Error> {
        let blocks = self.check_whole(&bytes)?;
        let (length, count) = (bytes.end - bytes.start, blocks.end.0 - blocks.start.0);
        let size = file.size.checked_add(length).ok_or(Error::FileTooLarge)?;
        let all = credits::INODE + credits::SUPERBLOCK + credits::quotas(self) + shift::CREDITS;
        let credits = credits::map_block(file) + 2 * all;
        let mut edit = self.edit(credits)?.privileged(by.is_privileged);
        edit.refuse_fast_commit("blocks moved within a file");
        shift::split_at(&mut edit, file, blocks.start)?;
        touch(&edit, file, by);
        // The size first: if it is interrupted, no data lie after the end.
        set_size(&mut edit, file, size)?;
        write_inode(&mut edit, file.number, &file.inode)?;
        let mut next = Some(FileBlock(MAX_FILE_BLOCKS));
        while let Some(before) = next {
            edit.continue_with(all)?;
            next = shift::expand_step(&mut edit, file, blocks.start, count, before)?;
            write_inode(&mut edit, file.number, &file.inode)?;
        }
        edit.finish();
        Ok(())
    }
}
