//! The type of each inode and its number of names: two compact arrays per group, as long as the
//! used part of its table.

use super::{BYTES_OF_INODE, Budget, Window};
use extant_ondisk::{Geometry, GroupNo, InodeNo};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The type of an inode, as dirents number it; 0 if its mode has no known type.
pub(crate) type Kind = extant_ondisk::dirent::FileType;

bitflags::bitflags! {
    /// Facts about an inode that pass 1 records.
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub(crate) struct Mark: u32 {
        /// It is in use.
        const USED = 1 << 27;
        /// Pass 2 checks it again with its name: mode, device number, target or a field is suspect.
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

/// Facts of the inodes of one group of the window.
struct GroupInodes {
    /// Names counted (24 bits), kind (3 bits), marks (5 bits).
    states: Box<[AtomicU32]>,
    /// `i_links_count` as stored.
    links: Box<[AtomicU16]>,
}

/// Data about a group's inodes outside of the window: which ones are in use.
type UsedBits = Box<[AtomicU64]>;

/// Facts of all inodes. Of those outside of the window only whether they are in use.
pub(crate) struct InodeTable {
    groups: Vec<OnceLock<GroupInodes>>,
    /// The groups of the window.
    window: Range<u32>,
    /// Of all groups, where the window is not the whole volume.
    used: Vec<OnceLock<UsedBits>>,
    per_group: u32,
    count: u32,
}

/// The place of one inode in the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<'t>(&'t AtomicU32);

impl Slot<'_> {
    pub(crate) fn state(self) -> InodeState {
        InodeState(self.0.load(Relaxed))
    }

    /// Counts one more name. The counter saturates: no link count is that large.
    pub(crate) fn count_name(self) {
        if self.0.load(Relaxed) & COUNT_MASK < COUNT_MASK - 0xffff {
            self.0.fetch_add(1, Relaxed);
        }
    }
}

/// Data about one inode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct InodeState(u32);

impl InodeState {
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
    pub(crate) fn new(geometry: &Geometry, window: &Window) -> Self {
        let groups_outside = if window.is_whole() { 0 } else { geometry.groups_count };
        Self {
            groups: window.groups.clone().map(|_| OnceLock::new()).collect(),
            window: window.groups.clone(),
            used: (0..groups_outside).map(|_| OnceLock::new()).collect(),
            per_group: geometry.inodes_per_group,
            count: geometry.inodes_count,
        }
    }

    /// Makes room for the first `used` inodes of a group. A group gets its room once.
    pub(crate) fn open(&self, group: GroupNo, used: u32, budget: &Budget) {
        if let Some(outside) = self.used.get(group.0 as usize) {
            outside.get_or_init(|| {
                budget.take(used.div_ceil(64) as usize * 8);
                (0..used.div_ceil(64)).map(|_| AtomicU64::new(0)).collect()
            });
        }
        if !self.window.contains(&group.0) {
            return;
        }
        self.groups[(group.0 - self.window.start) as usize].get_or_init(|| {
            budget.take(used as usize * BYTES_OF_INODE);
            GroupInodes {
                states: (0..used).map(|_| AtomicU32::new(0)).collect(),
                links: (0..used).map(|_| AtomicU16::new(0)).collect(),
            }
        });
    }

    fn group(&self, group: u32) -> Option<&GroupInodes> {
        self.groups.get(group.checked_sub(self.window.start)? as usize)?.get()
    }

    fn place(&self, inode: InodeNo) -> Option<(&GroupInodes, usize)> {
        let at = inode.0.checked_sub(1)?;
        if inode.0 > self.count {
            return None;
        }
        let group = self.group(at / self.per_group)?;
        let at = (at % self.per_group) as usize;
        (at < group.states.len()).then_some((group, at))
    }

    /// Whether facts of an inode are kept: not of one outside of the window.
    pub(crate) fn is_in_window(&self, inode: InodeNo) -> bool {
        self.used.is_empty() || self.window.contains(&(inode.0.saturating_sub(1) / self.per_group))
    }

    /// The bit of an inode among those in use, where the window is not the whole volume.
    fn used_bit(&self, inode: InodeNo) -> Option<(&AtomicU64, u64)> {
        let at = inode.0.checked_sub(1)?;
        let bits = self.used.get((at / self.per_group) as usize)?.get()?;
        let at = at % self.per_group;
        Some((bits.get((at / 64) as usize)?, 1 << (at % 64)))
    }

    /// Data about an inode; `None` past the high-water mark of its group, and outside of the
    /// window.
    pub(crate) fn state(&self, inode: InodeNo) -> Option<InodeState> {
        let (group, at) = self.place(inode)?;
        Some(InodeState(group.states[at].load(Relaxed)))
    }

    /// Whether an inode is in use.
    pub(crate) fn is_used(&self, inode: InodeNo) -> bool {
        if self.is_in_window(inode) {
            return self.state(inode).is_some_and(InodeState::is_used);
        }
        self.used_bit(inode).is_some_and(|(bits, bit)| bits.load(Relaxed) & bit != 0)
    }

    /// Notes what an inode is.
    pub(crate) fn note(&self, inode: InodeNo, kind: Kind, marks: Mark, links: u16) {
        if let Some((bits, bit)) = self.used_bit(inode) {
            bits.fetch_or(bit, Relaxed);
        }
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
        if let Some((bits, bit)) = self.used_bit(inode) {
            bits.fetch_and(!bit, Relaxed);
        }
        if let Some((group, at)) = self.place(inode) {
            group.states[at].fetch_and(COUNT_MASK, Relaxed);
            group.links[at].store(0, Relaxed);
        }
    }

    /// An inode's index in the table, to be looked up once for all uses of a name; `None` past the
    /// high-water mark.
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

    /// Inodes of a group that are noted at all: its high-water mark, 0 where nothing was read and
    /// outside of the window.
    pub(crate) fn opened(&self, group: GroupNo) -> u32 {
        self.group(group.0).map_or(0, |group| group.states.len() as u32)
    }

    /// Inodes of all groups that are noted at all.
    pub(crate) fn all_opened(&self) -> u64 {
        self.groups.iter().filter_map(OnceLock::get).map(|group| group.states.len() as u64).sum()
    }

    /// Visits the inodes in use of a group of the window.
    pub(crate) fn for_used(&self, group: GroupNo, mut visit: impl FnMut(InodeNo, InodeState, u16)) {
        let Some(inodes) = self.group(group.0) else { return };
        let first = group.0 * self.per_group + 1;
        for (at, (state, links)) in inodes.states.iter().zip(&inodes.links).enumerate() {
            let state = InodeState(state.load(Relaxed));
            if state.is_used() {
                visit(InodeNo(first + at as u32), state, links.load(Relaxed));
            }
        }
    }

    /// The inodes in use of any group.
    pub(crate) fn used_of(&self, group: GroupNo) -> Vec<InodeNo> {
        let mut used = Vec::new();
        if self.used.is_empty() {
            self.for_used(group, |ino, _, _| used.push(ino));
        } else if let Some(bits) = self.used.get(group.0 as usize).and_then(OnceLock::get) {
            let first = group.0 * self.per_group + 1;
            for (at, word) in bits.iter().enumerate() {
                let mut word = word.load(Relaxed);
                while word != 0 {
                    used.push(InodeNo(first + at as u32 * 64 + word.trailing_zeros()));
                    word &= word - 1;
                }
            }
        }
        used
    }
}
