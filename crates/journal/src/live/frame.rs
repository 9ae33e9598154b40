//! A frame: a block in memory with its journal state.
//!
//! Content is shared and copied on write: a snapshot, a commit or a checkpoint holds the version
//! that it took, and a later change is made to a copy. So changes do not wait for log writes.

use std::ops::{Deref, DerefMut};

use extant_ondisk::{BlockNo, Tid};
use extant_runtime::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use extant_runtime::sync::{Arc, Mutex, MutexGuard};

use super::ranks::FrameLock;
use crate::home::Turn;

/// A version of a block.
pub type Snapshot = Arc<[u8]>;

/// Completes a block before it is written: sets the checksums of its parts, a bitmap. Called once
/// for many changes.
pub type Seal = Box<dyn Fn(&mut [u8], u64) + Send>;

/// The checksums that a block still needs.
struct Unsealed {
    /// The caller's number for the function that sets them.
    number: u64,
    /// Bitmap of the parts that need one.
    parts: u64,
    seal: Seal,
}

/// A block in memory. Cheap to clone; all clones are the same block.
#[derive(Clone)]
pub struct Frame(Arc<Inner>);

struct Inner {
    block: BlockNo,
    /// Whether it was used since the cache last considered it for eviction.
    is_referenced: AtomicBool,
    /// The `kind` of the last successful check of the content; 0 for none.
    verified_as: AtomicU64,
    /// Whether `content` is that of the block; otherwise it must be read.
    is_loaded: AtomicBool,
    content: Mutex<Content, FrameLock>,
}

/// The content of a frame.
pub(super) struct Content {
    /// The newest version.
    pub(super) data: Snapshot,
    /// The transaction of the newest version, until its commit takes the version.
    pub(super) dirty_in: Option<Tid>,
    /// The version of the committing transaction, until it takes it, if a later one has changed the
    /// block.
    pub(super) frozen: Option<(Tid, Snapshot, Turn)>,
    /// When the newest version is written if there is no log.
    turn: Turn,
    /// The last committed version, until it is checkpointed.
    pub(super) home: Option<(Tid, Snapshot)>,
    /// Whether `home` is being written.
    pub(super) is_being_written: bool,
    /// The checksums that the newest version still needs.
    unsealed: Option<Unsealed>,
}

impl Content {
    /// Makes the newest version exclusive, by a copy if it is shared.
    fn make_own(&mut self) {
        if Arc::get_mut(&mut self.data).is_none() {
            self.data = Arc::from(&self.data[..]);
        }
    }

    /// Sets the missing checksums of the newest version.
    fn seal_now(&mut self) {
        if let Some(Unsealed { parts, seal, .. }) = self.unsealed.take() {
            self.make_own();
            seal(Arc::get_mut(&mut self.data).expect("made its own under the lock"), parts);
        }
    }

    /// Keeps the version of the committing transaction, if that has not taken it, for a transaction
    /// that changes the block for the first time.
    pub(super) fn freeze(&mut self, joining: Tid) {
        if let Some(tid) = self.dirty_in
            && tid != joining
        {
            assert_eq!(tid.next(), joining, "only one transaction commits at a time");
            self.seal_now();
            self.frozen = Some((tid, self.data.clone(), self.turn));
            self.dirty_in = None;
        }
        self.turn = Turn::default();
    }

    /// The version that transaction `tid` commits; `None` if the block was forgotten since.
    pub(super) fn take(&mut self, tid: Tid) -> Option<(Snapshot, Turn)> {
        if let Some((_, data, turn)) = self.frozen.take_if(|(frozen, ..)| *frozen == tid) {
            return Some((data, turn));
        }
        self.dirty_in.take_if(|dirty| *dirty == tid)?;
        self.seal_now();
        Some((self.data.clone(), self.turn))
    }
}

impl Frame {
    pub(super) fn new(block: BlockNo) -> Self {
        Self(Arc::new(Inner {
            block,
            is_referenced: AtomicBool::new(false),
            verified_as: AtomicU64::new(0),
            is_loaded: AtomicBool::new(false),
            content: Mutex::ranked(Content {
                data: Arc::from([]),
                dirty_in: None,
                frozen: None,
                turn: Turn::default(),
                home: None,
                is_being_written: false,
                unsealed: None,
            }),
        }))
    }

    /// The block number.
    pub fn block(&self) -> BlockNo {
        self.0.block
    }

    /// The newest version. Later changes do not affect it. Holding it during a change by the caller
    /// costs a copy of the block.
    pub fn snapshot(&self) -> Snapshot {
        self.lock().data.clone()
    }

    /// The newest version, with its checksums set.
    pub fn sealed(&self) -> Snapshot {
        let mut content = self.lock();
        content.seal_now();
        content.data.clone()
    }

    /// The newest version, and the parts whose checksums are not set yet: these were changed since
    /// the block was read.
    pub fn snapshot_and_unsealed(&self) -> (Snapshot, u64) {
        let content = self.lock();
        let unsealed = content.unsealed.as_ref().map_or(0, |unsealed| unsealed.parts);
        (content.data.clone(), unsealed)
    }

    /// Runs `check` on the content, unless the last successful check since the block was read or
    /// created had the same `kind`. `kind` is the caller's number (not 0) for the block's expected
    /// type.
    ///
    /// # Errors
    /// The error of `check`.
    pub fn verify_once<E>(
        &self,
        kind: u64,
        check: impl FnOnce(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.0.verified_as.load(Ordering::Acquire) == kind {
            return Ok(());
        }
        let mut content = self.lock();
        content.seal_now();
        let data = content.data.clone();
        drop(content);
        check(&data)?;
        self.0.verified_as.store(kind, Ordering::Release);
        Ok(())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Content, FrameLock> {
        self.0.content.lock_keyed(self.0.block.0)
    }

    /// Whether the newest version is in memory.
    pub(super) fn is_loaded(&self) -> bool {
        self.0.is_loaded.load(Ordering::Acquire)
    }

    /// Sets the content, read or created, under its lock.
    pub(super) fn set_loaded(&self, content: &mut Content, data: Snapshot) {
        content.data = data;
        content.unsealed = None;
        self.0.verified_as.store(0, Ordering::Release);
        self.0.is_loaded.store(true, Ordering::Release);
    }

    /// Makes the next reader read the block again. The caller holds the lock.
    pub(super) fn set_unloaded(&self, content: &mut Content) {
        content.unsealed = None;
        self.0.is_loaded.store(false, Ordering::Release);
    }

    pub(super) fn reference(&self) {
        // A flag that is set already is not written again: the cache line stays shared.
        if !self.0.is_referenced.load(Ordering::Relaxed) {
            self.0.is_referenced.store(true, Ordering::Relaxed);
        }
    }

    /// Whether only the cache holds the frame and it was not used recently. The caller holds the
    /// cache's lock, so no other thread can take the frame.
    pub(super) fn is_idle(&self) -> bool {
        Arc::strong_count(&self.0) == 1 && !self.0.is_referenced.swap(false, Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Frame").field(&self.0.block).finish()
    }
}

/// Write access of a handle to a frame's bytes. Other threads wait for it, so it is held briefly.
/// While it is held, only frames with higher block numbers may be locked.
pub struct FrameWrite<'a> {
    content: MutexGuard<'a, Content, FrameLock>,
}

impl<'a> FrameWrite<'a> {
    pub(super) fn new(mut content: MutexGuard<'a, Content, FrameLock>) -> Self {
        content.make_own();
        Self { content }
    }

    /// Defers the checksums of parts of the block until it is committed or checked, so that
    /// frequent changes compute them once. `number` identifies the function that sets them, which
    /// `seal` creates if it is not known yet.
    pub fn seal_later(&mut self, number: u64, parts: u64, seal: impl FnOnce() -> Seal) {
        match &mut self.content.unsealed {
            Some(unsealed) if unsealed.number == number => unsealed.parts |= parts,
            unsealed => *unsealed = Some(Unsealed { number, parts, seal: seal() }),
        }
    }

    /// Sets when the block is written if there is no log. The turn of a new block stays.
    pub fn set_turn(&mut self, turn: Turn) {
        if self.content.turn != Turn::First {
            self.content.turn = turn;
        }
    }

    /// Marks all checksums of the block as set.
    pub fn set_sealed(&mut self) {
        self.content.unsealed = None;
    }
}

impl Deref for FrameWrite<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.content.data
    }
}

impl DerefMut for FrameWrite<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        Arc::get_mut(&mut self.content.data)
            .expect("made its own under the lock, which is held since")
    }
}

impl std::fmt::Debug for FrameWrite<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FrameWrite")
    }
}
