//! Short writes of a batch under way at the same time, by io_uring: a disk that takes many at once
//! waits for each that comes alone.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::thread;

use io_uring::register::Restriction;
use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;

use super::aligned::AlignedBuffer;
use extant_runtime::sync::Mutex;

/// Writes that are under way at the same time.
const AT_ONCE: usize = 32;
/// Bytes of the longest write that waits for others here: a longer one keeps a disk busy by itself.
pub(super) const LONGEST: usize = 64 << 10;
/// With this number of requests under way, the caller waits for at most half of them: the disk
/// never idles.
const WAIT_FOR: usize = AT_ONCE / 2;

/// Writes around the page cache, many at a time.
pub(super) struct Ring {
    parts: Mutex<Parts>,
    alignment: usize,
}

struct Parts {
    /// `None` when the system has refused it.
    ring: Option<IoUring>,
    /// Data are copied here first, so that they stay in place until they are written. Made for the
    /// first batch.
    slots: Vec<AlignedBuffer>,
}

/// A write: the first byte, and what is written there in pieces that lie side by side.
pub(super) struct Write<'a> {
    pub(super) offset: u64,
    pub(super) pieces: Vec<&'a [u8]>,
    /// Whether all of it was written.
    pub(super) is_done: bool,
}

impl Write<'_> {
    pub(super) fn length(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }

    /// Copies all pieces to the beginning of `slot`; how many bytes.
    fn copy_to(&self, slot: &mut [u8]) -> usize {
        let mut at = 0;
        for piece in &self.pieces {
            slot[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        at
    }
}

impl Ring {
    /// A ring that can do nothing but write. Addresses of a direct file's memory are multiples of
    /// `alignment`. `None` where the system makes none.
    pub(super) fn new(alignment: usize) -> Option<Self> {
        let ring = IoUring::builder().setup_r_disabled().build(AT_ONCE as u32).ok()?;
        let mut allowed = [Restriction::sqe_op(opcode::Write::CODE)];
        ring.submitter().register_restrictions(&mut allowed).ok()?;
        ring.submitter().register_enable_rings().ok()?;
        Some(Self { parts: Mutex::new(Parts { ring: Some(ring), slots: Vec::new() }), alignment })
    }

    /// Carries out `writes`, none longer than [`LONGEST`], in any order, and returns when none is
    /// under way. Runs that are not done then are to be tried again: they failed, or another batch
    /// has the ring.
    pub(super) fn write(&self, file: &File, writes: &mut [Write<'_>]) {
        let Some(mut parts) = self.parts.try_lock() else { return };
        let Parts { ring: kept, slots } = &mut *parts;
        let Some(ring) = kept else { return };
        if slots.is_empty() {
            slots.extend((0..AT_ONCE).map(|_| AlignedBuffer::new(LONGEST, self.alignment)));
        }
        let mut free: Vec<usize> = (0..slots.len()).collect();
        let mut next = 0;
        let mut is_refused = false;
        // In the queue, and with the system.
        let (mut queued, mut under_way) = (0, 0);
        loop {
            while next < writes.len() && !is_refused {
                let Some(slot) = free.pop() else { break };
                let length = writes[next].copy_to(&mut slots[slot]);
                push(ring, file, writes[next].offset, &slots[slot][..length], Tag { slot, next });
                (queued, next) = (queued + 1, next + 1);
            }
            if queued + under_way == 0 {
                break;
            }
            match ring.submit_and_wait((queued + under_way).min(WAIT_FOR)) {
                Ok(count) => {
                    queued -= count;
                    under_way += count;
                }
                Err(error) => {
                    let errno = Errno::from_io_error(&error);
                    is_refused |= !matches!(errno, Some(Errno::INTR | Errno::AGAIN | Errno::BUSY));
                    if under_way == 0 && errno != Some(Errno::INTR) {
                        break;
                    }
                    // A request that it has taken is completed whether or not the caller waits.
                    thread::yield_now();
                }
            }
            for completion in ring.completion() {
                let Tag { slot, next } = Tag::of(completion.user_data());
                let write = &mut writes[next];
                write.is_done = usize::try_from(completion.result()) == Ok(write.length());
                free.push(slot);
                under_way -= 1;
            }
        }
        if is_refused || queued > 0 {
            // With the ring goes what is still queued.
            *kept = None;
        }
    }
}

/// The request of a completion.
struct Tag {
    slot: usize,
    /// The number of the write.
    next: usize,
}

impl Tag {
    fn number(&self) -> u64 {
        (self.next * AT_ONCE + self.slot) as u64
    }

    fn of(number: u64) -> Self {
        let number = number as usize; // it was one
        Self { slot: number % AT_ONCE, next: number / AT_ONCE }
    }
}

/// Queues a write of `bytes`, which are part of a slot.
#[allow(unsafe_code)]
fn push(ring: &mut IoUring, file: &File, offset: u64, bytes: &[u8], tag: Tag) {
    // At most LONGEST.
    let length = bytes.len() as u32;
    let entry = opcode::Write::new(types::Fd(file.as_raw_fd()), bytes.as_ptr(), length)
        .offset(offset)
        .build()
        .user_data(tag.number());
    // SAFETY: the slot is memory of the ring's owner, that is neither moved nor given back while it
    // lives, and whose only user is `Ring::write`, with the lock: it does not return before each
    // write that the system has taken is answered, and copies to a slot only when its write was
    // answered or never queued. The file is open for as long.
    let is_queued = unsafe { ring.submission().push(&entry) };
    is_queued.expect("it has an entry for each slot");
}
