//! Errors of the volume that were met while it is open: recorded in its superblock, and answered as `errors=` says.
//!
//! A call that meets corruption returns it with its place, and it is noted here, in memory. The next operation that changes the
//! volume, or its end, records it in the superblock first: no handle is open then.

use super::Live;
use super::edit::LiveEdit;
use super::ranks::StatusLock;
use crate::edit::change_superblock;
use crate::error::Error;
use crate::volume::{Source, Volume};
use extant_device::sync::Mutex;
use extant_device::sync::atomic::{AtomicBool, Ordering};
use extant_device::{DeviceError, Operation};
use extant_ondisk::superblock::{ErrorPolicy, RawSuperblock, State};
use extant_ondisk::{BlockNo, Flaw, FormatError, InodeNo, Place};
use std::io;

/// Bytes of the text that the superblock keeps of an error.
const TEXT_LEN: usize = 32;
/// `s_first_error_errcode` of a wrong checksum and of other corruption, as dumpe2fs names them.
const BAD_CHECKSUM: u8 = 4;
const CORRUPTED: u8 = 5;

/// What the superblock keeps of an error.
#[derive(Clone, Debug)]
struct Met {
    /// Seconds since 1970.
    time: u64,
    inode: InodeNo,
    block: BlockNo,
    /// Where it was: the place in words, as much as fits.
    text: [u8; TEXT_LEN],
    code: u8,
}

#[derive(Debug, Default)]
struct Unrecorded {
    count: u32,
    first: Option<Met>,
    last: Option<Met>,
}

/// What a live volume knows of its own errors.
#[derive(Debug, Default)]
pub(crate) struct Status {
    /// An error has ended all changes.
    is_read_only: AtomicBool,
    /// Another host has taken the volume.
    is_lost: AtomicBool,
    is_shut_down: AtomicBool,
    has_unrecorded: AtomicBool,
    unrecorded: Mutex<Unrecorded, StatusLock>,
}

impl Met {
    fn new(place: Place, flaw: &Flaw, time: u64) -> Self {
        let (inode, block) = whereabouts(place);
        let mut text = [0; TEXT_LEN];
        let words = place.to_string();
        // The last byte stays zero.
        let len = words.len().min(TEXT_LEN - 1);
        text[..len].copy_from_slice(&words.as_bytes()[..len]);
        let code = if matches!(flaw, Flaw::Checksum { .. }) { BAD_CHECKSUM } else { CORRUPTED };
        Self { time, inode, block, text, code }
    }
}

/// The inode and the block that a place names; 0 for none.
fn whereabouts(place: Place) -> (InodeNo, BlockNo) {
    const NO_INODE: InodeNo = InodeNo(0);
    const NO_BLOCK: BlockNo = BlockNo(0);
    match place {
        Place::Inode(inode)
        | Place::ExtentNode(inode, None)
        | Place::DirBlock(inode, _)
        | Place::DirEntry(inode, ..)
        | Place::Htree(inode, _)
        | Place::InodeXattr(inode)
        | Place::EaInode(inode)
        | Place::InlineData(inode)
        | Place::Symlink(inode)
        | Place::OrphanFile(inode, _)
        | Place::Quota(inode, _) => (inode, NO_BLOCK),
        Place::ExtentNode(inode, Some(block)) | Place::IndirectBlock(inode, block) => {
            (inode, block)
        }
        Place::XattrBlock(block) | Place::Mmp(block) | Place::Block(block) => (NO_INODE, block),
        _ => (NO_INODE, NO_BLOCK),
    }
}

fn low_and_high(time: u64) -> (u32, u8) {
    ((time & 0xffff_ffff) as u32, (time >> 32 & 0xff) as u8)
}

fn set_first(raw: &mut RawSuperblock, met: &Met) {
    let (low, high) = low_and_high(met.time);
    raw.s_first_error_time.set(low);
    raw.s_first_error_time_hi = high;
    raw.s_first_error_ino.set(met.inode.0);
    raw.s_first_error_block.set(met.block.0);
    raw.s_first_error_func = met.text;
    raw.s_first_error_line.set(0);
    raw.s_first_error_errcode = met.code;
}

fn set_last(raw: &mut RawSuperblock, met: &Met) {
    let (low, high) = low_and_high(met.time);
    raw.s_last_error_time.set(low);
    raw.s_last_error_time_hi = high;
    raw.s_last_error_ino.set(met.inode.0);
    raw.s_last_error_block.set(met.block.0);
    raw.s_last_error_func = met.text;
    raw.s_last_error_line.set(0);
    raw.s_last_error_errcode = met.code;
}

impl Status {
    /// An error was met.
    pub(crate) fn note(&self, place: Place, flaw: &Flaw, time: u64, policy: ErrorPolicy) {
        let met = Met::new(place, flaw, time);
        let mut unrecorded = self.unrecorded.lock();
        unrecorded.count = unrecorded.count.saturating_add(1);
        unrecorded.first.get_or_insert_with(|| met.clone());
        unrecorded.last = Some(met);
        drop(unrecorded);
        self.has_unrecorded.store(true, Ordering::Release);
        if policy != ErrorPolicy::Continue {
            self.set_read_only();
        }
    }

    /// Nothing is changed from now on.
    pub(crate) fn set_read_only(&self) {
        self.is_read_only.store(true, Ordering::Release);
    }

    /// Another host has taken the volume: nothing is written any more.
    pub(crate) fn set_lost(&self) {
        self.is_lost.store(true, Ordering::Release);
        self.set_read_only();
    }

    /// The volume is shut down: nothing is written any more.
    pub(crate) fn set_shut_down(&self) {
        self.is_shut_down.store(true, Ordering::Release);
        self.set_read_only();
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// What writes fail with once nothing may be written any more.
    pub(crate) fn refusal(&self) -> Option<DeviceError> {
        let why = if self.is_lost() {
            "another host has taken the volume"
        } else if self.is_shut_down.load(Ordering::Acquire) {
            "the volume was shut down"
        } else {
            return None;
        };
        Some(DeviceError::io(Operation::Write, 0, 0, io::Error::other(why)))
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only.load(Ordering::Acquire)
    }
}

impl Volume {
    /// Whether nothing can be changed: the volume was opened so, or an error has made it so.
    pub fn is_read_only(&self) -> bool {
        match &self.source {
            Source::Cached(_) => true,
            Source::Live(live) => live.status.is_read_only() || live.journal.aborted().is_some(),
        }
    }

    /// Notes what a call met, and hands it on.
    pub(crate) fn noted<R>(&self, result: Result<R, Error>) -> Result<R, Error> {
        if let Err(Error::Format(FormatError::Corrupt { place, flaw })) = &result
            && let Source::Live(live) = &self.source
        {
            let policy = live.options.errors.unwrap_or(self.superblock.errors);
            tracing::error!(%place, %flaw, ?policy, "the volume is broken");
            live.status.note(*place, flaw, live.seconds(), policy);
        }
        result
    }

    /// Records noted errors in the superblock. No handle is open.
    pub(crate) fn record_errors(&self, live: &Live) -> Result<(), Error> {
        if !live.status.has_unrecorded.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let found = std::mem::take(&mut *live.status.unrecorded.lock());
        let mut edit = LiveEdit::start(self, live, 1)?;
        change_superblock(&mut edit, |raw| {
            let count = raw.s_error_count.get().saturating_add(found.count);
            raw.s_error_count.set(count);
            raw.s_state.set(raw.s_state.get() | State::ERRORS.bits());
            if let Some(first) = &found.first
                && raw.s_first_error_time.get() == 0
                && raw.s_first_error_time_hi == 0
            {
                set_first(raw, first);
            }
            if let Some(last) = &found.last {
                set_last(raw, last);
            }
        })?;
        edit.finish();
        Ok(())
    }
}
