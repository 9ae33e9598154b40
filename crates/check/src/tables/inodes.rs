//! What each inode is and how many names it has: two compact arrays a group, as long as its table was ever used.

use super::Budget;
use extant_ondisk::{Geometry, GroupNo, InodeNo};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering::Relaxed};

/// What an inode is, as dirents number it; 0 where its mode says nothing known.
pub(crate) type Kind = extant_ondisk::dirent::FileType;

bitflags::bitflags! {
    /// What pass 1 notes of an inode.
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub(crate) struct Mark: u32 {
        /// It is in use.
        const USED = 1 << 27;
        /// Pass 2 looks at it again when it meets its name: mode, device number, target or a field is suspect.
        const SUSPECT = 1 << 28;
        /// It has the encryption flag.
        const ENCRYPTED = 1 << 29;
        /// It holds the value of an extended attribute.
        const EA_INODE = 1 << 30;
        /// Its record lies in a bad block.
        const BAD_BLOCK = 1 << 31;
    }
}

const KIND_SHIFT: u32 = 24;
const COUNT_MASK: u32 = (1 << KIND_SHIFT) - 1;

struct GroupInodes {
    /// Names counted (24 bits), kind (3 bits), marks (5 bits).
    states: Box<[AtomicU32]>,
    /// `i_links_count` as stored.
    links: Box<[AtomicU16]>,
}

/// Facts of all inodes.
pub(crate) struct InodeTable {
    groups: Vec<OnceLock<GroupInodes>>,
    per_group: u32,
    count: u32,
}

/// The place of one inode in the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<'t>(&'t AtomicU32);

impl Slot<'_> {
    pub(crate) fn state(self) -> State {
        State(self.0.load(Relaxed))
    }

    /// Counts one more name. A count that nears its end stays there: no link count goes so far.
    pub(crate) fn count_name(self) {
        if self.0.load(Relaxed) & COUNT_MASK < COUNT_MASK - 0xffff {
            self.0.fetch_add(1, Relaxed);
        }
    }
}

/// What is known of one inode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct State(u32);

impl State {
    pub(crate) fn names(self) -> u32 {
        self.0 & COUNT_MASK
    }

    pub(crate) fn kind(self) -> Kind {
        Kind::decode((self.0 >> KIND_SHIFT & 7) as u8)
    }

    pub(crate) fn has(self, mark: Mark) -> bool {
        self.0 & mark.bits() != 0
    }

    pub(crate) fn is_used(self) -> bool {
        self.has(Mark::USED)
    }
}

impl InodeTable {
    pub(crate) fn new(geometry: &Geometry) -> Self {
        Self {
            groups: (0..geometry.groups_count).map(|_| OnceLock::new()).collect(),
            per_group: geometry.inodes_per_group,
            count: geometry.inodes_count,
        }
    }

    /// Makes room for the first `used` inodes of a group. A group gets its room once.
    pub(crate) fn open(&self, group: GroupNo, used: u32, budget: &Budget) {
        self.groups[group.0 as usize].get_or_init(|| {
            budget.take(used as usize * 6);
            GroupInodes {
                states: (0..used).map(|_| AtomicU32::new(0)).collect(),
                links: (0..used).map(|_| AtomicU16::new(0)).collect(),
            }
        });
    }

    fn place(&self, inode: InodeNo) -> Option<(&GroupInodes, usize)> {
        let at = inode.0.checked_sub(1)?;
        if inode.0 > self.count {
            return None;
        }
        let group = self.groups[(at / self.per_group) as usize].get()?;
        let at = (at % self.per_group) as usize;
        (at < group.states.len()).then_some((group, at))
    }

    /// What is known of an inode; `None` past the high-water mark of its group.
    pub(crate) fn state(&self, inode: InodeNo) -> Option<State> {
        let (group, at) = self.place(inode)?;
        Some(State(group.states[at].load(Relaxed)))
    }

    /// Whether an inode is in use.
    pub(crate) fn is_used(&self, inode: InodeNo) -> bool {
        self.state(inode).is_some_and(State::is_used)
    }

    /// Notes what an inode is.
    pub(crate) fn note(&self, inode: InodeNo, kind: Kind, marks: Mark, links: u16) {
        if let Some((group, at)) = self.place(inode) {
            let names = group.states[at].load(Relaxed) & COUNT_MASK;
            let state = names | u32::from(kind.encode()) << KIND_SHIFT | marks.bits();
            group.states[at].store(state, Relaxed);
            group.links[at].store(links, Relaxed);
        }
    }

    /// Adds marks.
    pub(crate) fn mark(&self, inode: InodeNo, marks: Mark) {
        if let Some((group, at)) = self.place(inode) {
            group.states[at].fetch_or(marks.bits(), Relaxed);
        }
    }

    /// Takes marks away.
    pub(crate) fn unmark(&self, inode: InodeNo, marks: Mark) {
        if let Some((group, at)) = self.place(inode) {
            group.states[at].fetch_and(!marks.bits(), Relaxed);
        }
    }

    /// Forgets an inode that was cleared; names counted so far stay counted.
    pub(crate) fn forget(&self, inode: InodeNo) {
        if let Some((group, at)) = self.place(inode) {
            group.states[at].fetch_and(COUNT_MASK, Relaxed);
            group.links[at].store(0, Relaxed);
        }
    }

    /// An inode's place in the table, to be looked up once for all that a name asks of it; `None` past the high-water mark.
    pub(crate) fn slot(&self, inode: InodeNo) -> Option<Slot<'_>> {
        let (group, at) = self.place(inode)?;
        Some(Slot(&group.states[at]))
    }

    /// Counts one more name.
    pub(crate) fn count_name(&self, inode: InodeNo) {
        if let Some(slot) = self.slot(inode) {
            slot.count_name();
        }
    }

    /// Counts one name less.
    pub(crate) fn uncount_name(&self, inode: InodeNo) {
        if let Some((group, at)) = self.place(inode)
            && group.states[at].load(Relaxed) & COUNT_MASK > 0
        {
            group.states[at].fetch_sub(1, Relaxed);
        }
    }

    /// The stored link count.
    pub(crate) fn links(&self, inode: InodeNo) -> u16 {
        self.place(inode).map_or(0, |(group, at)| group.links[at].load(Relaxed))
    }

    /// Changes what is noted as the stored link count.
    pub(crate) fn set_links(&self, inode: InodeNo, links: u16) {
        if let Some((group, at)) = self.place(inode) {
            group.links[at].store(links, Relaxed);
        }
    }

    /// Inodes of a group that are noted at all: its high-water mark, 0 where nothing was read.
    pub(crate) fn opened(&self, group: GroupNo) -> u32 {
        self.groups[group.0 as usize].get().map_or(0, |group| group.states.len() as u32)
    }

    /// Visits the inodes in use of a group.
    pub(crate) fn for_used(&self, group: GroupNo, mut visit: impl FnMut(InodeNo, State, u16)) {
        let Some(inodes) = self.groups[group.0 as usize].get() else { return };
        let first = group.0 * self.per_group + 1;
        for (at, (state, links)) in inodes.states.iter().zip(&inodes.links).enumerate() {
            let state = State(state.load(Relaxed));
            if state.is_used() {
                visit(InodeNo(first + at as u32), state, links.load(Relaxed));
            }
        }
    }
}
