//! Orphans: inodes whose deletion or truncation must be finished after a crash.
//!
//! Source: `orphan.rst`. They are in a list that starts in the superblock and continues through
//! `i_dtime`, the newest first; on volumes with an orphan file in one of its slots, as long as
//! there are free ones.

use crate::edit::{Edit, Undo, change_superblock, set_dtime, superblock};
use extant_ondisk::orphan_file::{orphans, set_orphan};
use extant_ondisk::{
    BlockNo, CompatFeatures, FileBlock, Flaw, GroupNo, InodeNo, Location, RoCompatFeatures,
};
use extant_reader::read::inode::{LoadedInode, dir_blocks, load, load_any};
use extant_reader::read::mapping::{MappingTarget, map};
use extant_reader::{BlockKind, Error, MetadataRead};
use rangemap::RangeSet;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Blocks that adding or taking out one orphan may change: the superblock, and two inodes' blocks
/// or a block of the orphan file.
pub const CREDITS: u32 = 3;

/// The position of an orphan.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum OrphanPosition {
    /// In the list; later ones have higher numbers.
    List(u64),
    /// A slot of the orphan file: block and position.
    File(usize, usize),
}

/// A block of the orphan file.
#[derive(Clone, Copy, Debug)]
struct OrphanBlock {
    place: BlockNo,
    kind: BlockKind,
}

/// The free slots of the orphan file. As ranges: an empty file, the usual case, has 32,000 and one
/// range for each block.
#[derive(Debug, Default)]
struct FreeSlots {
    /// Numbers of slots, each block's from its own multiple of [`Self::BLOCK`] on.
    ranges: RangeSet<usize>,
}

impl FreeSlots {
    /// More than the slots of a block of 64 KiB.
    const BLOCK: usize = 1 << 16;

    fn first(&self) -> Option<(usize, usize)> {
        let number = self.ranges.first()?.start;
        Some((number / Self::BLOCK, number % Self::BLOCK))
    }

    fn insert(&mut self, block: usize, slots: Range<usize>) {
        if !slots.is_empty() {
            let first = block * Self::BLOCK;
            self.ranges.insert(first + slots.start..first + slots.end);
        }
    }

    fn remove(&mut self, block: usize, slot: usize) {
        let number = block * Self::BLOCK + slot;
        self.ranges.remove(number..number + 1);
    }
}

/// All orphans of a volume with their positions, so that none is searched for on disk.
#[derive(Debug, Default)]
pub struct Orphans {
    positions: HashMap<InodeNo, OrphanPosition>,
    list: BTreeMap<u64, InodeNo>,
    blocks: Vec<OrphanBlock>,
    free_slots: FreeSlots,
    /// The list on the volume continues to an inode that is not an orphan.
    goes_wrong: bool,
    /// Slots of what can be no orphan.
    wrong_slots: Vec<(usize, usize)>,
}

impl Orphans {
    /// Reads the list and the orphan file. Corruption is reported to `broken` and skipped, as in
    /// the kernel: a list ends where it names an invalid inode or comes back to itself, and a
    /// broken block of the orphan file has no slots.
    ///
    /// # Errors
    /// The device failed.
    pub fn load<S: MetadataRead>(source: &S, mut broken: impl FnMut(Error)) -> Result<Self, Error> {
        let mut all = Self::default();
        if let Err(error) = all.load_list(source) {
            all.goes_wrong = true;
            broken(corruption_only(error)?);
        }
        if source.geometry().has_compat(CompatFeatures::ORPHAN_FILE)
            && let Err(error) = all.load_file(source, &mut broken)
        {
            broken(corruption_only(error)?);
        }
        Ok(all)
    }

    fn load_list<S: MetadataRead>(&mut self, source: &S) -> Result<(), Error> {
        let raw = superblock(source)?;
        let mut place = Location::Superblock(GroupNo(0));
        let mut next = raw.s_last_orphan.get();
        let mut position = u64::MAX / 2;
        while next != 0 {
            let number = checked(source, InodeNo(next), place)?;
            let orphan = match load_any(source, number) {
                Err(Error::FreeInode(_)) => None,
                other => Some(other?),
            };
            let Some(orphan) = orphan.filter(|_| !self.positions.contains_key(&number)) else {
                return Err(Flaw::bad_value("next orphan", next).at(place).into());
            };
            self.positions.insert(number, OrphanPosition::List(position));
            self.list.insert(position, number);
            position -= 1;
            place = Location::Inode(number);
            next = orphan.dtime;
        }
        Ok(())
    }

    fn load_file<S: MetadataRead>(
        &mut self,
        source: &S,
        broken: &mut impl FnMut(Error),
    ) -> Result<(), Error> {
        let number = InodeNo(superblock(source)?.s_orphan_file_inum.get());
        let file = load(source, number)?;
        for at in (0..dir_blocks(source, &file)?.0).map(FileBlock) {
            if let Err(error) = self.load_file_block(source, &file, at, broken) {
                broken(corruption_only(error)?);
            }
        }
        Ok(())
    }

    fn load_file_block<S: MetadataRead>(
        &mut self,
        source: &S,
        file: &LoadedInode,
        at: FileBlock,
        broken: &mut impl FnMut(Error),
    ) -> Result<(), Error> {
        let here = Location::OrphanFile(file.number, at);
        let MappingTarget::Written(place) = map(source, file, at)?.target else {
            return Err(Flaw::Rule("the orphan file has a hole").at(here).into());
        };
        let kind = BlockKind::OrphanFile { inode: file.number, generation: file.generation, at };
        let bytes = source.metadata(place, kind)?;
        let block = self.blocks.len();
        self.blocks.push(OrphanBlock { place, kind });
        let mut free = 0..0;
        for (slot, orphan) in orphans(&bytes).enumerate() {
            let Some(orphan) = orphan else {
                free.end = slot + 1;
                continue;
            };
            self.free_slots.insert(block, free);
            free = slot + 1..slot + 1;
            let is_new = !self.positions.contains_key(&orphan);
            match checked(source, orphan, here) {
                Ok(orphan) if is_new => {
                    self.positions.insert(orphan, OrphanPosition::File(block, slot));
                }
                wrong => {
                    let twice = || Flaw::bad_value("orphan", orphan.0).at(here).into();
                    broken(corruption_only(wrong.err().unwrap_or_else(twice))?);
                    self.wrong_slots.push((block, slot));
                }
            }
        }
        self.free_slots.insert(block, free);
        Ok(())
    }

    /// Whether there is something to [`mend`](Self::mend).
    pub(crate) fn is_broken(&self) -> bool {
        self.goes_wrong || !self.wrong_slots.is_empty()
    }

    /// Repairs a list that continues to an inode that is not an orphan, and clears slots of such
    /// inodes. All others were finished or left out before.
    ///
    /// # Errors
    /// The change failed.
    pub(crate) fn mend<E: Edit>(&mut self, edit: &mut E) -> Result<(), Error> {
        if self.goes_wrong && self.list.is_empty() {
            change_superblock(edit, |raw| raw.s_last_orphan.set(0))?;
            self.goes_wrong = false;
        }
        for (block, slot) in std::mem::take(&mut self.wrong_slots) {
            self.set_slot(edit, block, slot, None)?;
            self.free_slots.insert(block, slot..slot + 1);
        }
        Ok(())
    }

    /// All of them, those of the list first, the newest before older ones.
    pub fn all(&self) -> Vec<InodeNo> {
        let in_file =
            |number: &InodeNo| matches!(self.positions.get(number), Some(OrphanPosition::File(..)));
        let mut all: Vec<_> = self.list.values().rev().copied().collect();
        let mut others: Vec<_> = self.positions.keys().copied().filter(in_file).collect();
        others.sort_unstable();
        all.extend(others);
        all
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// Whether the inode is one of them.
    pub fn contains(&self, number: InodeNo) -> bool {
        self.positions.contains_key(&number)
    }

    /// Makes an inode an orphan; one that is one already stays as it is.
    ///
    /// # Errors
    /// The change failed; then nothing is changed.
    pub fn add<E: Edit>(&mut self, edit: &mut E, number: InodeNo) -> Result<(), Error> {
        if self.contains(number) {
            return Ok(());
        }
        let position = match self.free_slots.first() {
            Some((block, slot)) => {
                self.set_slot(edit, block, slot, Some(number))?;
                self.free_slots.remove(block, slot);
                OrphanPosition::File(block, slot)
            }
            None => {
                let before = superblock(edit)?.s_last_orphan.get();
                edit.unlogged(|edit| set_dtime(edit, number, before))?;
                change_superblock(edit, |raw| raw.s_last_orphan.set(number.0))
                    .inspect_err(|_| edit.take_back(|edit| set_dtime(edit, number, 0)))?;
                let position =
                    self.list.last_key_value().map_or(u64::MAX / 2, |(position, _)| position + 1);
                self.list.insert(position, number);
                OrphanPosition::List(position)
            }
        };
        self.positions.insert(number, position);
        edit.record_undo(Undo::Orphan { number, is_one: true });
        Ok(())
    }

    /// The inode is no orphan any more; its `i_dtime` is 0 then. One that was none stays as it is.
    ///
    /// # Errors
    /// The change failed; then nothing is changed.
    pub fn remove<E: Edit>(&mut self, edit: &mut E, number: InodeNo) -> Result<(), Error> {
        match self.positions.get(&number).copied() {
            None => return Ok(()),
            Some(OrphanPosition::File(block, slot)) => {
                self.set_slot(edit, block, slot, None)?;
                self.free_slots.insert(block, slot..slot + 1);
            }
            Some(OrphanPosition::List(position)) => {
                let older = self.list.range(..position).next_back().map_or(0, |(_, older)| older.0);
                let newer = self.list.range(position + 1..).next().map(|(_, newer)| *newer);
                edit.unlogged(|edit| set_dtime(edit, number, 0))?;
                let passed = match newer {
                    Some(newer) => edit.unlogged(|edit| set_dtime(edit, newer, older)),
                    None => change_superblock(edit, |raw| raw.s_last_orphan.set(older)),
                };
                passed.inspect_err(|_| edit.take_back(|edit| set_dtime(edit, number, older)))?;
                self.list.remove(&position);
            }
        }
        self.positions.remove(&number);
        edit.record_undo(Undo::Orphan { number, is_one: false });
        Ok(())
    }

    /// Fills or empties a slot. The first one that is filled sets the superblock's flag that there
    /// may be some.
    fn set_slot<E: Edit>(
        &self,
        edit: &mut E,
        block: usize,
        slot: usize,
        orphan: Option<InodeNo>,
    ) -> Result<(), Error> {
        if orphan.is_some() {
            let mut features = superblock(edit)?.features();
            if !features.ro_compat.contains(RoCompatFeatures::ORPHAN_PRESENT) {
                features.ro_compat.insert(RoCompatFeatures::ORPHAN_PRESENT);
                change_superblock(edit, |raw| raw.set_features(features))?;
            }
        }
        let OrphanBlock { place, kind } = self.blocks[block];
        let was_there = edit.modify(place, kind, |bytes| set_orphan(bytes, slot, orphan))?;
        assert!(was_there, "the slot was counted when the file was read");
        Ok(())
    }
}

/// Records in the superblock that the orphan file is empty: at a clean end.
///
/// # Errors
/// As [`Edit::modify`].
///
/// # Panics
/// If there are orphans, which is a bug.
pub fn clear_present<E: Edit>(edit: &mut E, orphans: &Orphans) -> Result<(), Error> {
    assert!(orphans.is_empty(), "orphans are left: {orphans:?}");
    let mut features = superblock(edit)?.features();
    if features.ro_compat.contains(RoCompatFeatures::ORPHAN_PRESENT) {
        features.ro_compat.remove(RoCompatFeatures::ORPHAN_PRESENT);
        change_superblock(edit, |raw| raw.set_features(features))?;
    }
    Ok(())
}

/// Returns an error of corruption as a value; others stay errors.
fn corruption_only(error: Error) -> Result<Error, Error> {
    if error.is_corruption() || matches!(error, Error::NoSuchInode(_) | Error::FreeInode(_)) {
        Ok(error)
    } else {
        Err(error)
    }
}

/// An inode that may be an orphan: one of the volume's, and none of its own.
fn checked<S: MetadataRead>(
    source: &S,
    number: InodeNo,
    place: Location,
) -> Result<InodeNo, Error> {
    let geometry = source.geometry();
    if number.0 < geometry.first_inode.0 || number.0 > geometry.inodes_count {
        return Err(Flaw::bad_value("orphan", number.0).at(place).into());
    }
    Ok(number)
}
