//! Finding the log: by the journal's inode, by copies of its map in superblocks, or by a search for
//! its own superblock.

use std::ops::Range;
use std::sync::Arc;

use extant_device::{Device, data_runs};
use extant_journal::{BlockRuns, JournalLocation, Log, LogHistory};
use extant_offline::back_up_journal;
use extant_ondisk::inode::{self, Inode};
use extant_ondisk::jbd2::{BlockType, Header, JournalSuperblock, RawJournalSuperblock};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use extant_ondisk::{BlockNo, CompatFeatures, Geometry, GroupNo, InodeNo, Uuid};
use zerocopy::{FromZeros, IntoBytes};

/// Backups whose copy of the journal's map is tried.
const BACKUPS: usize = 4;
/// Bytes of one read of the search.
const CHUNK: u64 = 1 << 20;
/// Larger devices are searched at the places where makers put a journal: in the middle and at the
/// start, this many bytes each.
const SEARCHED: u64 = 128 << 30;
/// Journal superblocks that the search tries at most: each costs a read of its log.
const MOST_LOGS: usize = 16;

/// A log.
pub(super) struct FoundLog {
    pub(super) device: Arc<dyn Device>,
    pub(super) place: JournalLocation,
    pub(super) superblock: JournalSuperblock,
    /// Its blocks after the first are not known by a map.
    pub(super) is_guess: bool,
}

/// The log of a volume.
pub(super) fn find(
    device: &Arc<dyn Device>,
    external: Option<&Arc<dyn Device>>,
    superblock: &RawSuperblock,
    geometry: &Geometry,
) -> Option<FoundLog> {
    if superblock.s_journal_inum.get() == 0
        && let Some(external) = external
    {
        let place = JournalLocation::external(&**external, superblock, geometry).ok()?;
        return opened(external, place, false);
    }
    // A repair may have taken the feature from the superblock, and not from the backups yet.
    let has_journal =
        |raw: &RawSuperblock| raw.features().compat.contains(CompatFeatures::HAS_JOURNAL);
    let backups = || backups(&**device, superblock, geometry).filter(has_journal);
    let superblock = match has_journal(superblock) {
        true => *superblock,
        false => backups().next()?,
    };
    let geometry = &Geometry::new(&superblock).ok()?;
    let internal = |raw: &RawSuperblock| {
        let place = JournalLocation::internal(&**device, raw, geometry).ok()?;
        opened(device, place, false)
    };
    internal(&superblock)
        .or_else(|| backups().find_map(|raw| internal(&raw)))
        .or_else(|| searched(device, &superblock, geometry))
}

fn opened(device: &Arc<dyn Device>, place: JournalLocation, is_guess: bool) -> Option<FoundLog> {
    let (_, superblock) = Log { device: &**device, place: &place }.superblock().ok()?;
    Some(FoundLog { device: device.clone(), place, superblock, is_guess })
}

/// Backup superblocks of the same volume.
fn backups<'a>(
    device: &'a dyn Device,
    superblock: &'a RawSuperblock,
    geometry: &'a Geometry,
) -> impl Iterator<Item = RawSuperblock> + 'a {
    let groups = geometry.backup_superblock_groups().into_iter().take(BACKUPS);
    groups.filter_map(move |group| {
        let mut raw = RawSuperblock::new_zeroed();
        let at = geometry.byte_of(geometry.group_start(group));
        device.read_at(at, raw.as_mut_bytes()).ok()?;
        let is_same = raw.s_uuid == superblock.s_uuid && raw.verify(group).is_ok();
        is_same.then_some(raw)
    })
}

/// The parts of the device that are searched.
fn parts(geometry: &Geometry) -> [Range<u64>; 2] {
    let size = geometry.byte_of(BlockNo(geometry.blocks_count));
    if size <= 2 * SEARCHED {
        return [0..size, 0..0];
    }
    let middle = (size / 2 - SEARCHED / 2) / CHUNK * CHUNK;
    [middle..middle + SEARCHED, 0..SEARCHED.min(middle)]
}

/// The log that a search of the device finds. It is taken for that of the volume if it holds a copy
/// of the journal's inode that leads back to it, or of the volume's superblock: a file of the
/// volume may be an image with a journal of its own.
fn searched(
    device: &Arc<dyn Device>,
    superblock: &RawSuperblock,
    geometry: &Geometry,
) -> Option<FoundLog> {
    let mut guess = None;
    let mut left = MOST_LOGS;
    for part in parts(geometry) {
        let part = part.start..part.end.min(device.size());
        if part.is_empty() {
            continue;
        }
        for run in data_runs(&**device, part).map_while(Result::ok) {
            let start = run.start / CHUNK * CHUNK;
            for at in (start..run.end).step_by(CHUNK as usize) {
                for block in starts(&**device, at..run.end.min(at + CHUNK), superblock, geometry) {
                    left = left.checked_sub(1)?;
                    match tried(device, block, superblock, geometry) {
                        Some(found) if !found.is_guess => return Some(found),
                        other => guess = guess.or(other),
                    }
                }
            }
        }
    }
    guess
}

/// Blocks of a range of bytes that are the superblock of an internal journal of this volume, by
/// their own words.
fn starts(
    device: &dyn Device,
    range: Range<u64>,
    superblock: &RawSuperblock,
    geometry: &Geometry,
) -> Vec<BlockNo> {
    let size = u64::from(geometry.block_size);
    let mut bytes = vec![0; (range.end - range.start) as usize];
    // Sectors that cannot be read hold no superblock.
    if device.read_at(range.start, &mut bytes).is_err() {
        return Vec::new();
    }
    let blocks = bytes.chunks_exact(geometry.block_len()).zip(range.start / size..);
    let is_start = |block: &[u8]| {
        let header = Header::of(block)?;
        let is_superblock =
            matches!(header.block_type, BlockType::SuperblockV1 | BlockType::SuperblockV2);
        let raw = RawJournalSuperblock::from_bytes(block).ok().filter(|_| is_superblock)?;
        raw.verify().ok()?;
        let journal = JournalSuperblock::decode(&raw).ok()?;
        let is_own = journal.uuid.is_nil() || journal.uuid == Uuid(superblock.s_uuid);
        (is_own && journal.block_size == geometry.block_size).then_some(())
    };
    let found = blocks.filter(|(block, _)| is_start(block).is_some());
    found.map(|(_, number)| BlockNo(number)).collect()
}

/// The log whose superblock is in a block: with the map of the journal's inode, of which the log
/// itself holds a copy, else in the blocks after it.
fn tried(
    device: &Arc<dyn Device>,
    start: BlockNo,
    superblock: &RawSuperblock,
    geometry: &Geometry,
) -> Option<FoundLog> {
    let mut block = vec![0; geometry.block_len()];
    device.read_at(geometry.byte_of(start), &mut block).ok()?;
    let journal =
        JournalSuperblock::decode(&RawJournalSuperblock::from_bytes(&block).ok()?).ok()?;
    let mut runs = BlockRuns::new();
    let is_there = geometry.contains(start, u64::from(journal.blocks_count));
    if !is_there || !runs.push(start, journal.blocks_count) {
        return None;
    }
    let place = JournalLocation { runs, superblock_at: 0, block_size: geometry.block_size };
    let guess = opened(device, place, true)?;
    let log = Log { device: &**device, place: &guess.place };
    let history = LogHistory::read(&log, &guess.superblock).ok()?;
    let copies = || history.transactions.iter().rev().flat_map(|it| it.copies.iter().rev());
    for copy in copies() {
        let Ok(bytes) = copy.read(&log) else { continue };
        let Some(place) = place_in_copy(device, copy.home, &bytes, superblock, geometry) else {
            continue;
        };
        if place.runs.runs().first().is_some_and(|run| run.start == start) {
            return opened(device, place, false);
        }
    }
    let is_own = copies().filter(|copy| copy.home == geometry.superblock_block()).any(|copy| {
        let offset = (SUPERBLOCK_OFFSET % u64::from(geometry.block_size)) as usize;
        copy.read(&log).is_ok_and(|bytes| {
            let raw =
                bytes.get(offset..).and_then(|it| RawSuperblock::from_bytes(it, GroupNo(0)).ok());
            raw.is_some_and(|raw| raw.s_uuid == superblock.s_uuid && raw.verify(GroupNo(0)).is_ok())
        })
    });
    is_own.then_some(guess)
}

/// The location of the journal by a copy of the block with its inode. Where the descriptors are
/// lost it is not known which block that is: it is the one whose record has the inode's checksum,
/// and whose map leads to a journal.
fn place_in_copy(
    device: &Arc<dyn Device>,
    home: BlockNo,
    block: &[u8],
    superblock: &RawSuperblock,
    geometry: &Geometry,
) -> Option<JournalLocation> {
    let number = InodeNo::JOURNAL;
    let (group, index) = geometry.inode_place(number)?;
    let per_block = geometry.inodes_per_block();
    // The first blocks of a table may be anywhere in its flex group.
    if index >= per_block && geometry.group_of(home) != Some(group) {
        return None;
    }
    let size = usize::from(geometry.inode_size);
    let at = (index % per_block) as usize * size;
    let record = block.get(at..at + size)?;
    inode::verify(record, number, geometry).ok()?;
    let inode = Inode::decode(record, number, geometry).ok()?;
    if inode.links == 0 || inode.size == 0 {
        return None;
    }
    // As the superblock keeps it.
    let mut raw = *superblock;
    raw.s_journal_inum.set(number.0);
    back_up_journal(&mut raw, &inode);
    JournalLocation::internal(&**device, &raw, geometry).ok()
}
