//! `overlay:`: a device that keeps its changes in a file of their own, over a base that is never
//! written.
//!
//! **What a power cut leaves.** A block goes into the upper file before the bitmap has it: a flush
//! makes the blocks durable, then writes the bits of those that were there when it began, and makes
//! these durable. Between the two, a block is the base's, which is what it was before. A block that
//! the bitmap has is written in place, as on any device.

mod blocks;
mod commit;
mod error;
mod header;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use extant_device::{
    Device, DeviceError, Request, RequestKind, check_batch, check_range, run_batch,
};
use extant_runtime::sync::{Mutex, RwLock};

use blocks::{Blocks, write_pages};
use header::{BaseIdentity, Header, State};

pub use commit::Committed;
pub(crate) use commit::commit;
pub use error::OverlayError;

/// A device whose changes are in an upper file. See the [module](self).
pub(crate) struct FileOverlay {
    base: Arc<dyn Device>,
    upper: Arc<dyn Device>,
    header: Header,
    blocks: RwLock<Blocks>,
    /// Held while bits are written: an older page must not follow a newer one.
    flush: Mutex<()>,
}

/// The bytes that a new upper file of `base` has.
pub(crate) fn new_file_size(base: &dyn Device, times: &[u8]) -> Result<u64, OverlayError> {
    Ok(Header::new(BaseIdentity::of(base, times)?)?.file_size())
}

/// Whether nothing was written to `upper` yet.
pub(crate) fn is_new(upper: &dyn Device) -> Result<bool, OverlayError> {
    Ok(Header::read(upper)?.is_none())
}

/// Where the superblock of a volume is, and the fields that tell of its journal: `s_magic`,
/// `s_feature_compat` with its bit `has_journal`, `s_journal_inum`.
const SUPERBLOCK_AT: u64 = 1024;
const MAGIC_AT: usize = 0x38;
const MAGIC: [u8; 2] = [0x53, 0xef];
const COMPAT_AT: usize = 0x5c;
const HAS_JOURNAL: u8 = 0x4;
const JOURNAL_INODE_AT: usize = 0xe0;

/// Refuses a volume whose journal is on another device, for changes: the log would be written, and
/// the base would not.
pub(crate) fn refuse_external_journal(device: &dyn Device) -> Result<(), OverlayError> {
    let mut superblock = [0; JOURNAL_INODE_AT + 4];
    if device.size() < SUPERBLOCK_AT + superblock.len() as u64 {
        return Ok(());
    }
    device.read_at(SUPERBLOCK_AT, &mut superblock)?;
    let is_outside = superblock[MAGIC_AT..MAGIC_AT + 2] == MAGIC
        && superblock[COMPAT_AT] & HAS_JOURNAL != 0
        && superblock[JOURNAL_INODE_AT..] == [0; 4];
    if is_outside { Err(OverlayError::ExternalJournal) } else { Ok(()) }
}

impl FileOverlay {
    /// The overlay of `upper` on `base`. `times` are the sizes and modification times of the base's
    /// files. A new file gets its header, and has [`new_file_size`] bytes already.
    pub(crate) fn open(
        base: Arc<dyn Device>,
        times: &[u8],
        upper: Arc<dyn Device>,
    ) -> Result<Self, OverlayError> {
        let header = match Header::read(&*upper)? {
            Some(header) => {
                if header.state == State::Committing {
                    return Err(OverlayError::CommitInterrupted);
                }
                header.check_base(&*base, times)?;
                header
            }
            None => {
                let header = Header::new(BaseIdentity::of(&*base, times)?)?;
                header.write(&*upper)?;
                upper.flush()?;
                header
            }
        };
        let blocks = RwLock::new(Blocks::read(&header, &*upper)?);
        Ok(Self { base, upper, header, blocks, flush: Mutex::new(()) })
    }

    /// Where a byte of the device is in the upper file.
    fn in_upper(&self, at: u64) -> u64 {
        self.header.data_at() + at
    }

    /// The blocks that a range of bytes touches.
    fn blocks_of(&self, range: &Range<u64>) -> Range<u64> {
        let size = self.header.block_size;
        range.start / size..range.end.div_ceil(size)
    }

    /// The first run of a range that is in one of the two, and whether that is the upper file.
    fn run(&self, range: &Range<u64>) -> (bool, u64) {
        let (is_upper, end) = self.blocks.read().run(self.blocks_of(range));
        (is_upper, (end * self.header.block_size).min(range.end))
    }

    fn read(&self, mut offset: u64, mut to: &mut [u8]) -> Result<(), DeviceError> {
        while !to.is_empty() {
            let end = offset + to.len() as u64;
            let (is_upper, end) = self.run(&(offset..end));
            let (piece, rest) = to.split_at_mut((end - offset) as usize);
            match is_upper {
                true => self.upper.read_at(self.in_upper(offset), piece),
                false => self.base.read_at(offset, piece),
            }?;
            (offset, to) = (end, rest);
        }
        Ok(())
    }

    fn write(&self, offset: u64, from: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        let length: u64 = from.iter().map(|buffer| buffer.len() as u64).sum();
        self.change(offset..offset + length, || {
            self.upper.write_vectored_at(self.in_upper(offset), from)
        })
    }

    fn zero(&self, range: Range<u64>) -> Result<(), DeviceError> {
        if range.is_empty() {
            return Ok(());
        }
        // Zeroes of the base stay there.
        let is_base = self.run(&range) == (false, range.end);
        if is_base && self.base.next_data(range.clone())?.is_none() {
            return Ok(());
        }
        let place = self.in_upper(range.start)..self.in_upper(range.end);
        self.change(range, || self.upper.write_zeroes(place))
    }

    /// Changes a range of the upper file by `write`, after the rest of its blocks came there.
    fn change(
        &self,
        range: Range<u64>,
        write: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let blocks = self.blocks_of(&range);
        if self.blocks.read().has_all(blocks.clone()) {
            return write();
        }
        // Under the lock, so that two changes of one block do not lose each other's bytes.
        let mut map = self.blocks.write();
        let block_size = self.header.block_size;
        if !map.has(blocks.start) {
            self.copy_up(blocks.start * block_size..range.start)?;
        }
        if !map.has(blocks.end - 1) {
            self.copy_up(range.end..(blocks.end * block_size).min(self.size()))?;
        }
        write()?;
        map.set(blocks);
        Ok(())
    }

    /// Copies less than a block.
    fn copy_up(&self, range: Range<u64>) -> Result<(), DeviceError> {
        if range.is_empty() {
            return Ok(());
        }
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.base.read_at(range.start, &mut bytes)?;
        self.upper.write_at(self.in_upper(range.start), &bytes)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        let _flush = self.flush.lock();
        // Blocks that come later are not sure to be on the medium after this flush.
        let pages = self.blocks.write().take_dirty();
        let mut written = self.upper.flush();
        if written.is_ok() && !pages.is_empty() {
            written = write_pages(&pages, &*self.upper).and_then(|()| self.upper.flush());
        }
        if written.is_err() {
            self.blocks.write().put_back(&pages);
        }
        written
    }

    fn perform(&self, request: &mut Request<'_>) -> Result<(), DeviceError> {
        match &mut request.kind {
            RequestKind::Read { offset, buffers } => {
                buffers.fill(*offset, |at, buffer| self.read(at, buffer))
            }
            RequestKind::Write { buffers, .. } if buffers.length() == 0 => Ok(()),
            RequestKind::Write { offset, buffers } => self.write(*offset, buffers.slices()),
            RequestKind::Discard { offset, length }
            | RequestKind::WriteZeroes { offset, length } => self.zero(*offset..*offset + *length),
            RequestKind::Flush if self.is_read_only() => Ok(()),
            RequestKind::Flush => self.sync(),
        }
    }
}

impl Device for FileOverlay {
    fn size(&self) -> u64 {
        self.header.base.size
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        check_batch(self, batch)?;
        run_batch(batch, |request| {
            let (operation, offset, length) =
                (request.operation(), request.offset(), request.length());
            // Places in the upper file mean nothing to the caller.
            self.perform(request).map_err(|error| DeviceError {
                operation,
                offset,
                length,
                cause: error.cause,
            })
        })
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        check_range(self.size(), &range)?;
        let mut at = range.start;
        while at < range.end {
            let (is_upper, end) = self.run(&(at..range.end));
            let found = match is_upper {
                true => {
                    let found = self.upper.next_data(self.in_upper(at)..self.in_upper(end))?;
                    let start = self.in_upper(0);
                    found.map(|run| run.start - start..run.end - start)
                }
                false => self.base.next_data(at..end)?,
            };
            if found.is_some() {
                return Ok(found);
            }
            at = end;
        }
        Ok(None)
    }

    fn is_read_only(&self) -> bool {
        self.upper.is_read_only()
    }

    fn sector_size(&self) -> u32 {
        self.upper.sector_size()
    }

    fn discard_reads_zero(&self) -> bool {
        true
    }

    fn will_need(&self, range: Range<u64>) {
        self.base.will_need(range);
    }
}

impl fmt::Debug for FileOverlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileOverlay")
            .field("base", &self.base)
            .field("upper", &self.upper)
            .finish_non_exhaustive()
    }
}
