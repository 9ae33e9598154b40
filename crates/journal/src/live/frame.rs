//! A frame: a block in memory, and what the journal still has to do with it.
//!
//! Content is shared and copied on write: a snapshot, a commit or a checkpoint holds the version that it took, and
//! whoever changes the block meanwhile changes a copy. So nobody waits for a log write.

use std::ops::{Deref, DerefMut};

use extant_ondisk::{BlockNo, Tid};
use extant_runtime::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use extant_runtime::sync::{Arc, Mutex, MutexGuard};

use super::ranks::FrameLock;
use crate::home::Turn;

/// A version of a block.
pub type Snapshot = Arc<[u8]>;

/// What completes a block before it leaves memory: stamps the checksums of its parts, each a bit. Made once for many changes.
pub type Seal = Box<dyn Fn(&mut [u8], u64) + Send>;

/// What a block still lacks.
struct Unsealed {
    /// A number of the caller's for what completes it.
    number: u64,
    /// The parts that lack it.
    parts: u64,
    seal: Seal,
}

/// A block in memory. Cheap to clone; all clones are the same block.
#[derive(Clone)]
pub struct Frame(Arc<Inner>);

struct Inner {
    block: BlockNo,
    /// Looked at since the cache last thought of giving it up.
    is_referenced: AtomicBool,
    /// What the content was last checked as; 0 for nothing yet.
    verified_as: AtomicU64,
    /// Whether `content` is the block's; else it must be read.
    is_loaded: AtomicBool,
    content: Mutex<Content, FrameLock>,
}

/// What a frame holds.
pub(super) struct Content {
    /// The newest version.
    pub(super) data: Snapshot,
    /// The transaction that the newest version belongs to, until its commit took it.
    pub(super) dirty_in: Option<Tid>,
    /// The version of the committing transaction, which has not taken it yet, where a later one has changed the block.
    pub(super) frozen: Option<(Tid, Snapshot, Turn)>,
    /// When the newest version is written where there is no log.
    turn: Turn,
    /// The last committed version, while the log alone has it.
    pub(super) home: Option<(Tid, Snapshot)>,
    /// `home` is being written.
    pub(super) is_going_home: bool,
    /// What the newest version still lacks.
    unsealed: Option<Unsealed>,
}

impl Content {
    /// Makes the newest version nobody else's.
    fn make_own(&mut self) {
        if Arc::get_mut(&mut self.data).is_none() {
            self.data = Arc::from(&self.data[..]);
        }
    }

    /// Completes the newest version.
    fn seal_now(&mut self) {
        if let Some(Unsealed { parts, seal, .. }) = self.unsealed.take() {
            self.make_own();
            seal(Arc::get_mut(&mut self.data).expect("made its own under the lock"), parts);
        }
    }

    /// A transaction joins that has not changed the block yet: keeps the version of one that is
    /// committing and has not taken it.
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

    /// The version that transaction `tid` commits; `None` when the block was forgotten since.
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
                is_going_home: false,
                unsealed: None,
            }),
        }))
    }

    /// Which block it is.
    pub fn block(&self) -> BlockNo {
        self.0.block
    }

    /// The newest version. It stays as it is while others change the block; kept across a change of one's own, it costs
    /// a copy.
    pub fn snapshot(&self) -> Snapshot {
        self.lock().data.clone()
    }

    /// The newest version, completed.
    pub fn sealed(&self) -> Snapshot {
        let mut content = self.lock();
        content.seal_now();
        content.data.clone()
    }

    /// The newest version, and the parts of it that are not sealed yet: what they hold was put there since the block was read.
    pub fn snapshot_and_unsealed(&self) -> (Snapshot, u64) {
        let content = self.lock();
        let unsealed = content.unsealed.as_ref().map_or(0, |unsealed| unsealed.parts);
        (content.data.clone(), unsealed)
    }

    /// Runs `check` on the content unless the last check that went well since the block was read or created had the
    /// same `kind`, a number of the caller's (not 0) for what the block should be.
    ///
    /// # Errors
    /// What `check` says.
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

    /// Whether the newest version is here.
    pub(super) fn is_loaded(&self) -> bool {
        self.0.is_loaded.load(Ordering::Acquire)
    }

    /// Under the lock: the content was read, or made by us.
    pub(super) fn set_loaded(&self, content: &mut Content, data: Snapshot) {
        content.data = data;
        content.unsealed = None;
        self.0.verified_as.store(0, Ordering::Release);
        self.0.is_loaded.store(true, Ordering::Release);
    }

    /// Under the lock: the next reader reads the block anew.
    pub(super) fn set_unloaded(&self, content: &mut Content) {
        content.unsealed = None;
        self.0.is_loaded.store(false, Ordering::Release);
    }

    pub(super) fn reference(&self) {
        // A flag that is set already is not written again: the line stays shared.
        if !self.0.is_referenced.load(Ordering::Relaxed) {
            self.0.is_referenced.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the cache alone holds it and nobody looked at it lately. Asked under the cache's lock, so that nobody can
    /// take hold of it meanwhile.
    pub(super) fn is_idle(&self) -> bool {
        Arc::strong_count(&self.0) == 1 && !self.0.is_referenced.swap(false, Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Frame").field(&self.0.block).finish()
    }
}

/// A frame being changed by a handle: its bytes. Others wait for it meanwhile, so it is held for moments; no other frame
/// is touched while it is held, unless its block number is higher.
pub struct FrameWrite<'a> {
    content: MutexGuard<'a, Content, FrameLock>,
}

impl<'a> FrameWrite<'a> {
    pub(super) fn new(mut content: MutexGuard<'a, Content, FrameLock>) -> Self {
        content.make_own();
        Self { content }
    }

    /// Parts of the block are completed before it is committed or checked, not now: who changes it often pays once. `number`
    /// stands for what completes it, which `seal` makes where it is not known yet.
    pub fn seal_later(&mut self, number: u64, parts: u64, seal: impl FnOnce() -> Seal) {
        match &mut self.content.unsealed {
            Some(unsealed) if unsealed.number == number => unsealed.parts |= parts,
            unsealed => *unsealed = Some(Unsealed { number, parts, seal: seal() }),
        }
    }

    /// When the block is written where there is no log; a new block's turn stays.
    pub fn set_turn(&mut self, turn: Turn) {
        if self.content.turn != Turn::First {
            self.content.turn = turn;
        }
    }

    /// The block is complete as it is.
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
