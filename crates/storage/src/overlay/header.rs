//! The header of an upper file: its format, and which base it belongs to.
//!
//! All numbers are little-endian. The header has the first 512 bytes of the file, so that a write
//! of it is never torn; the rest of its 4096 bytes is zero.
//!
//! | byte | bytes | |
//! |---|---|---|
//! | 0 | 8 | `EXTOVERL` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | state: 0 in use, 1 while the changes are brought into the base |
//! | 16 | 8 | bytes of a block, a power of two from 4096 to 1 MiB |
//! | 24 | 8 | bytes of the base |
//! | 32 | 8 | CRC-64/NVME of the sizes and modification times of the base's regular files |
//! | 40 | 8 | CRC-64/NVME of the first and the last 64 KiB of the base |
//! | 508 | 4 | CRC-32C of the bytes before |
//!
//! The bitmap begins at byte 4096: one bit for each block of the base, the lowest bit of a byte
//! first, set where the block is in this file. The blocks follow from the next whole block on, each
//! at its place in the base; a block that reads as zeroes is a hole.

use crc_fast::{CrcAlgorithm, checksum};
use extant_device::{Device, DeviceError};

use super::error::OverlayError;

const MAGIC: &[u8; 8] = b"EXTOVERL";
const VERSION: u32 = 1;
const STATE_AT: usize = 12;
const BLOCK_SIZE_AT: usize = 16;
const SIZE_AT: usize = 24;
const TIMES_AT: usize = 32;
const ENDS_AT: usize = 40;
const CHECKSUM_AT: usize = 508;
/// Bytes of the header that are used.
const HEADER: usize = 512;
/// Where the bitmap begins.
pub(super) const BITMAP_AT: u64 = 4096;
const BLOCK_SIZE_MIN: u64 = 4096;
const BLOCK_SIZE_MAX: u64 = 1 << 20;
/// Number of blocks from which on blocks are larger: the bitmap has 32 MiB then, and is in memory.
const BLOCKS_MAX: u64 = 1 << 28;
/// Bytes at either end of the base that its identity has.
const END: u64 = 64 << 10;

/// The identity of a base. The superblock of a volume is in the first 64 KiB: a mount by the
/// kernel changes it also on a block device, which has no time of its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct BaseIdentity {
    pub(super) size: u64,
    times: u64,
    ends: u64,
}

impl BaseIdentity {
    /// The identity of `base`. `times` are the sizes and modification times of its files.
    pub(super) fn of(base: &dyn Device, times: &[u8]) -> Result<Self, DeviceError> {
        let size = base.size();
        let first = END.min(size);
        let last = END.min(size - first);
        let mut bytes = vec![0; (first + last) as usize];
        let (head, tail) = bytes.split_at_mut(first as usize);
        base.read_at(0, head)?;
        base.read_at(size - last, tail)?;
        let crc = |bytes: &[u8]| checksum(CrcAlgorithm::Crc64Nvme, bytes);
        Ok(Self { size, times: crc(times), ends: crc(&bytes) })
    }

    /// The first difference to what the base was, in words.
    pub(super) fn difference(&self, before: &Self) -> Option<&'static str> {
        if self.size != before.size {
            return Some("its size is another");
        }
        if self.ends != before.ends {
            return Some("its first or last 64 KiB are not the same");
        }
        (self.times != before.times)
            .then_some("its file was modified, or copied without its time (use cp -p)")
    }
}

/// The use of an upper file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    InUse,
    /// The base has some of the changes: nothing but the rest of the commit may follow.
    Committing,
}

/// The header, decoded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Header {
    pub(super) state: State,
    pub(super) block_size: u64,
    pub(super) base: BaseIdentity,
}

impl Header {
    /// The header of a new upper file.
    pub(super) fn new(base: BaseIdentity) -> Result<Self, OverlayError> {
        let mut block_size = BLOCK_SIZE_MIN;
        while base.size.div_ceil(block_size) > BLOCKS_MAX {
            block_size *= 2;
        }
        match block_size <= BLOCK_SIZE_MAX {
            true => Ok(Self { state: State::InUse, block_size, base }),
            false => Err(OverlayError::TooLarge { size: base.size }),
        }
    }

    /// Number of blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.base.size.div_ceil(self.block_size)
    }

    /// Bytes of the bitmap.
    pub(super) fn bitmap_size(&self) -> u64 {
        self.blocks().div_ceil(8)
    }

    /// Where block 0 is in the file.
    pub(super) fn data_at(&self) -> u64 {
        (BITMAP_AT + self.bitmap_size()).next_multiple_of(self.block_size)
    }

    /// Bytes of the whole file.
    pub(super) fn file_size(&self) -> u64 {
        self.data_at() + self.blocks() * self.block_size
    }

    /// Refuses a base that is not the one that the header names.
    pub(super) fn check_base(&self, base: &dyn Device, times: &[u8]) -> Result<(), OverlayError> {
        let difference = match base.size() == self.base.size {
            true => BaseIdentity::of(base, times)?.difference(&self.base),
            false => Some("its size is another"),
        };
        difference.map_or(Ok(()), |difference| Err(OverlayError::BaseChanged { difference }))
    }

    pub(super) fn write(&self, upper: &dyn Device) -> Result<(), DeviceError> {
        let mut bytes = [0; HEADER];
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        bytes[8..STATE_AT].copy_from_slice(&VERSION.to_le_bytes());
        let state = u32::from(self.state == State::Committing);
        bytes[STATE_AT..BLOCK_SIZE_AT].copy_from_slice(&state.to_le_bytes());
        let fields = [
            (BLOCK_SIZE_AT, self.block_size),
            (SIZE_AT, self.base.size),
            (TIMES_AT, self.base.times),
            (ENDS_AT, self.base.ends),
        ];
        for (at, value) in fields {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        let sum = crc32c(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
        upper.write_at(0, &bytes)
    }

    /// Reads the header; `None` for a file in which nothing was written.
    pub(super) fn read(upper: &dyn Device) -> Result<Option<Self>, OverlayError> {
        let size = upper.size();
        if size < HEADER as u64 {
            return if size == 0 { Ok(None) } else { Err(OverlayError::NotAnOverlay) };
        }
        let mut bytes = [0; HEADER];
        upper.read_at(0, &mut bytes)?;
        if bytes == [0; HEADER] && upper.next_data(0..size)?.is_none() {
            return Ok(None);
        }
        if !bytes.starts_with(MAGIC) {
            return Err(OverlayError::NotAnOverlay);
        }
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let short = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        if short(8) != VERSION {
            return Err(OverlayError::Version { version: short(8) });
        }
        if short(CHECKSUM_AT) != crc32c(&bytes[..CHECKSUM_AT]) {
            return Err(OverlayError::Corrupt { what: "the header's checksum is wrong" });
        }
        let state = match short(STATE_AT) {
            0 => State::InUse,
            1 => State::Committing,
            _ => return Err(OverlayError::Corrupt { what: "unknown state" }),
        };
        let base =
            BaseIdentity { size: number(SIZE_AT), times: number(TIMES_AT), ends: number(ENDS_AT) };
        let header = Self { state, block_size: number(BLOCK_SIZE_AT), base };
        let block_size = header.block_size;
        let has_size = block_size.is_power_of_two()
            && (BLOCK_SIZE_MIN..=BLOCK_SIZE_MAX).contains(&block_size)
            && header.blocks() <= BLOCKS_MAX;
        if !has_size {
            return Err(OverlayError::Corrupt { what: "invalid block size" });
        }
        match size >= header.file_size() {
            true => Ok(Some(header)),
            false => Err(OverlayError::Corrupt { what: "the file is too short" }),
        }
    }
}

fn crc32c(bytes: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}
