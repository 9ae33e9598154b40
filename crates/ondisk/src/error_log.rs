//! The errors recorded in a superblock: their number, the first and the last.
//!
//! Source: the kernel's `super.rst`; the error codes as dumpe2fs names them.

use alloc::string::ToString;

use crate::superblock::{RawSuperblock, State, low_and_high};
use crate::{BlockNo, Flaw, InodeNo, Location};

/// Bytes of `s_first_error_func`.
const TEXT_LEN: usize = 32;

/// `s_first_error_errcode`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum ErrorCode {
    /// The device failed.
    Io = 2,
    /// A checksum was wrong.
    BadChecksum = 4,
    /// Other corruption.
    Corrupted = 5,
}

/// One error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LoggedError {
    /// Seconds since 1970, of which the superblock keeps 40 bits.
    pub time: u64,
    /// The inode of the error; 0 without one.
    pub inode: InodeNo,
    /// The block of the error; 0 without one.
    pub block: BlockNo,
    /// The kind of error.
    pub code: ErrorCode,
    text: [u8; TEXT_LEN],
}

/// Errors to be added to a superblock.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ErrorLog {
    count: u32,
    ends: Option<(LoggedError, LoggedError)>,
}

impl LoggedError {
    /// Records corruption at a location.
    #[must_use]
    pub fn of_corruption(location: Location, flaw: &Flaw, time: u64) -> Self {
        let (inode, block) = numbers_of(location);
        let code = match flaw {
            Flaw::Checksum { .. } => ErrorCode::BadChecksum,
            _ => ErrorCode::Corrupted,
        };
        Self { time, inode, block, code, text: text_of(&location.to_string()) }
    }

    /// Records a failure of the device during the operation `text`.
    #[must_use]
    pub fn of_device(text: &str, time: u64) -> Self {
        let (inode, block) = (InodeNo(0), BlockNo(0));
        Self { time, inode, block, code: ErrorCode::Io, text: text_of(text) }
    }
}

/// The start of a text, up to the field's length; the last byte stays zero.
fn text_of(text: &str) -> [u8; TEXT_LEN] {
    let mut kept = [0; TEXT_LEN];
    let len = text.len().min(TEXT_LEN - 1);
    kept[..len].copy_from_slice(&text.as_bytes()[..len]);
    kept
}

/// The inode and the block of a location; 0 for none.
fn numbers_of(location: Location) -> (InodeNo, BlockNo) {
    const NO_INODE: InodeNo = InodeNo(0);
    const NO_BLOCK: BlockNo = BlockNo(0);
    match location {
        Location::Inode(inode)
        | Location::ExtentNode(inode, None)
        | Location::DirBlock(inode, _)
        | Location::DirEntry(inode, ..)
        | Location::Htree(inode, _)
        | Location::InodeXattr(inode)
        | Location::EaInode(inode)
        | Location::InlineData(inode)
        | Location::Symlink(inode)
        | Location::OrphanFile(inode, _)
        | Location::Quota(inode, _) => (inode, NO_BLOCK),
        Location::ExtentNode(inode, Some(block)) | Location::IndirectBlock(inode, block) => {
            (inode, block)
        }
        Location::XattrBlock(block) | Location::Mmp(block) | Location::Block(block) => {
            (NO_INODE, block)
        }
        _ => (NO_INODE, NO_BLOCK),
    }
}

impl ErrorLog {
    /// Adds an error.
    pub fn push(&mut self, error: LoggedError) {
        self.count = self.count.saturating_add(1);
        let first = self.ends.map_or(error, |(first, _)| first);
        self.ends = Some((first, error));
    }
}

impl RawSuperblock {
    /// Adds errors to the recorded ones, and sets [`State::ERRORS`]. The first error ever is kept.
    pub fn add_errors(&mut self, log: &ErrorLog) {
        self.s_state.set(self.s_state.get() | State::ERRORS.bits());
        self.s_error_count.set(self.s_error_count.get().saturating_add(log.count));
        let Some((first, last)) = &log.ends else { return };
        if self.s_first_error_time.get() == 0 && self.s_first_error_time_hi == 0 {
            let (low, high) = low_and_high(first.time);
            self.s_first_error_time.set(low);
            self.s_first_error_time_hi = high;
            self.s_first_error_ino.set(first.inode.0);
            self.s_first_error_block.set(first.block.0);
            self.s_first_error_func = first.text;
            self.s_first_error_line.set(0);
            self.s_first_error_errcode = first.code as u8;
        }
        let (low, high) = low_and_high(last.time);
        self.s_last_error_time.set(low);
        self.s_last_error_time_hi = high;
        self.s_last_error_ino.set(last.inode.0);
        self.s_last_error_block.set(last.block.0);
        self.s_last_error_func = last.text;
        self.s_last_error_line.set(0);
        self.s_last_error_errcode = last.code as u8;
    }

    /// Clears the recorded errors if their number is not zero. [`State::ERRORS`] stays.
    pub fn clear_errors(&mut self) {
        if self.s_error_count.get() == 0 {
            return;
        }
        self.s_error_count.set(0);
        self.s_first_error_time.set(0);
        self.s_first_error_ino.set(0);
        self.s_first_error_block.set(0);
        self.s_first_error_func = [0; TEXT_LEN];
        self.s_first_error_line.set(0);
        self.s_last_error_time.set(0);
        self.s_last_error_ino.set(0);
        self.s_last_error_line.set(0);
        self.s_last_error_block.set(0);
        self.s_last_error_func = [0; TEXT_LEN];
        (self.s_first_error_time_hi, self.s_last_error_time_hi) = (0, 0);
        (self.s_first_error_errcode, self.s_last_error_errcode) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    fn corruption(block: u64, time: u64) -> LoggedError {
        let flaw = Flaw::Checksum { found: 1, computed: 2 };
        LoggedError::of_corruption(Location::XattrBlock(BlockNo(block)), &flaw, time)
    }

    #[test]
    fn the_first_error_stays_and_the_last_is_replaced() {
        let mut raw = RawSuperblock::new_zeroed();
        let mut log = ErrorLog::default();
        log.push(corruption(7, 100));
        log.push(corruption(8, 1 << 33));
        raw.add_errors(&log);
        let mut more = ErrorLog::default();
        more.push(LoggedError::of_device("a text that is longer than the field for it", 300));
        raw.add_errors(&more);
        assert_eq!(raw.s_error_count.get(), 3);
        assert_eq!(raw.s_state.get(), State::ERRORS.bits());
        assert_eq!((raw.s_first_error_time.get(), raw.s_first_error_block.get()), (100, 7));
        assert_eq!((raw.s_first_error_errcode, raw.s_last_error_errcode), (4, 2));
        assert_eq!((raw.s_last_error_time.get(), raw.s_last_error_block.get()), (300, 0));
        assert_eq!(&raw.s_last_error_func, b"a text that is longer than the \0");
        raw.clear_errors();
        raw.s_state.set(0);
        assert_eq!(zerocopy::IntoBytes::as_bytes(&raw), [0; 1024]);
    }

    #[test]
    fn times_have_forty_bits() {
        let mut raw = RawSuperblock::new_zeroed();
        let mut log = ErrorLog::default();
        log.push(corruption(7, 0x12_3456_789a));
        raw.add_errors(&log);
        assert_eq!((raw.s_first_error_time.get(), raw.s_first_error_time_hi), (0x3456_789a, 0x12));
    }
}
