//! The changes of an operation so far, and how they are undone.
//!
//! Other operations of the same transaction share its frames, so nothing is taken back by giving
//! frames up. Blocks that only the operation changes (blocks of directories, maps and attributes
//! under its inode's lock, records of inodes) get their bytes back: they are copied before the
//! first change. Shared state is counted back: clusters and inodes, orphans, quotas, users of
//! shared blocks.

use crate::edit::{Undo, Usage};
use crate::write::quota::Owners;
use extant_ondisk::{BlockNo, InodeNo};
use extant_reader::BlockKind;
use std::cell::Cell;

/// Entries that are looked through for a copy that was made before. A second copy does no harm: the
/// older one is put back last.
const MAX_EXAMINED: usize = 32;
/// Entries of an operation that continues in steps.
const LONG: usize = 4096;
/// Bytes of copies that are kept for the next operation of the thread.
const KEPT: usize = 1 << 20;

/// One change.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entry {
    /// A range of bytes of a block from `start` on; the earlier bytes lie at `at` among the copies.
    Part { block: BlockNo, kind: BlockKind, start: u32, len: u32, at: usize },
    /// A block that was not in memory was filled: the device has what it held.
    Unread { block: BlockNo },
    /// An inode's record but for `i_dtime`, likewise.
    Record { number: InodeNo, at: usize },
    /// `i_dtime` of a record, as it was.
    Dtime { number: InodeNo, dtime: u32 },
    /// The changes that the algorithms record.
    Recorded(Undo),
    /// An inode was taken, or given back.
    Inode { number: InodeNo, is_dir: bool, is_taken: bool },
    /// Owners were charged.
    Charged { owners: Owners, usage: Usage },
}

/// The changes of an operation, in order.
#[derive(Debug, Default)]
pub(super) struct UndoLog {
    entries: Vec<Entry>,
    copies: Vec<u8>,
    /// Copies before this entry do not count: what follows may be taken back alone.
    scope: usize,
    /// There may be entries of what is done when the operation ends well.
    has_offers: bool,
}

/// A place in the log that changes may be taken back to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    entries: usize,
    copies: usize,
    scope: usize,
}

thread_local! {
    /// The log of the thread's last operation, for its memory.
    static SPARE: Cell<Option<Box<UndoLog>>> = const { Cell::new(None) };
}

impl UndoLog {
    /// An empty log.
    pub(super) fn take() -> Box<Self> {
        SPARE.take().unwrap_or_default()
    }

    /// Keeps its memory for the thread's next operation.
    pub(super) fn keep(mut self: Box<Self>) {
        self.clear();
        if self.copies.capacity() <= KEPT {
            SPARE.set(Some(self));
        }
    }

    /// Whether it is time to let what was changed stay, where it may.
    pub(super) fn is_long(&self) -> bool {
        self.entries.len() > LONG || self.copies.len() > KEPT
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether what is offered was given back after that entry, or holds something else.
    pub(super) fn gives_back(&self, offered: Undo, at: usize) -> bool {
        let is_gone = |entry: &Entry| match (*entry, offered) {
            (Entry::Recorded(Undo::Gave(run)), Undo::OffersBlock(_, block)) => {
                (run.start.0..run.start.0 + run.count).contains(&block.0)
            }
            (Entry::Recorded(Undo::OffersBlock(_, again)), Undo::OffersBlock(_, block)) => {
                again == block
            }
            (Entry::Inode { number, is_taken: false, .. }, Undo::OffersValue(_, value)) => {
                number == value
            }
            _ => false,
        };
        matches!(offered, Undo::OffersBlock(..) | Undo::OffersValue(..))
            && self.entries[at + 1..].iter().any(is_gone)
    }

    /// Whether something may be left to be done when the operation ends well.
    pub(super) fn has_offers(&self) -> bool {
        self.has_offers
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.copies.clear();
        self.scope = 0;
        self.has_offers = false;
    }

    pub(super) fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    /// Keeps what the algorithms note.
    pub(super) fn record_undo(&mut self, undo: Undo) {
        self.has_offers |=
            matches!(undo, Undo::Forgets(_) | Undo::OffersBlock(..) | Undo::OffersValue(..));
        self.push(Entry::Recorded(undo));
    }

    /// Keeps bytes of a block as they are before a change. Not inlined: most blocks that are
    /// changed are not copied.
    #[inline(never)]
    pub(super) fn copy_part(
        &mut self,
        block: BlockNo,
        kind: BlockKind,
        start: usize,
        bytes: &[u8],
    ) {
        // A block has 64 KiB at most.
        let (start, len) = (start as u32, bytes.len() as u32);
        let has_these = |entry: &Entry| match *entry {
            Entry::Part { block: known, start: from, len: known_len, .. } => {
                known == block && from <= start && start + len <= from + known_len
            }
            _ => false,
        };
        if !self.has(has_these) {
            let at = self.copy(bytes);
            self.entries.push(Entry::Part { block, kind, start, len, at });
        }
    }

    /// Whether a block was taken by the operation, as far as it is looked for.
    pub(super) fn took(&self, block: BlockNo) -> bool {
        let is_in = |entry: &Entry| match entry {
            Entry::Recorded(Undo::Took(run)) => {
                (run.start.0..run.start.0 + run.count).contains(&block.0)
            }
            _ => false,
        };
        self.entries.iter().rev().take(MAX_EXAMINED).any(is_in)
    }

    /// Keeps a record's bytes as they are before a change, unless the operation took the inode:
    /// they were zeros then.
    #[inline(never)]
    pub(super) fn copy_record(&mut self, number: InodeNo, bytes: &[u8]) {
        let has_it = |entry: &Entry| match *entry {
            Entry::Record { number: known, .. }
            | Entry::Inode { number: known, is_taken: true, .. } => known == number,
            _ => false,
        };
        if !self.has(has_it) {
            let at = self.copy(bytes);
            self.entries.push(Entry::Record { number, at });
        }
    }

    fn has(&self, is_this: impl Fn(&Entry) -> bool) -> bool {
        let from = self.scope.max(self.entries.len().saturating_sub(MAX_EXAMINED));
        self.entries[from..].iter().any(is_this)
    }

    fn copy(&mut self, bytes: &[u8]) -> usize {
        let at = self.copies.len();
        self.copies.extend_from_slice(bytes);
        at
    }

    /// The bytes of a copy.
    pub(super) fn copied(&self, at: usize, len: usize) -> &[u8] {
        &self.copies[at..at + len]
    }

    /// From here on changes may be taken back alone, until [`Self::leave`].
    pub(super) fn mark(&mut self) -> Mark {
        let mark =
            Mark { entries: self.entries.len(), copies: self.copies.len(), scope: self.scope };
        self.scope = mark.entries;
        mark
    }

    /// Changes since the mark belong to the changes before it.
    pub(super) fn leave(&mut self, mark: Mark) {
        self.scope = mark.scope;
    }

    /// Forgets the entries since the mark.
    pub(super) fn cut(&mut self, mark: Mark) {
        self.entries.truncate(mark.entries);
        self.copies.truncate(mark.copies);
        self.scope = mark.scope;
    }

    /// Takes the last entry after the mark out.
    pub(super) fn pop(&mut self, mark: Mark) -> Option<Entry> {
        if self.entries.len() > mark.entries { self.entries.pop() } else { None }
    }

    /// Where the log begins.
    pub(super) const START: Mark = Mark { entries: 0, copies: 0, scope: 0 };
}
