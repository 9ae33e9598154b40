//! Damaged bytes in journals and in the metadata that leads to them may be refused, but never cause
//! a panic.

use std::sync::{Arc, OnceLock};

use extant_device::{Device, MemoryDevice, OverlayDevice};
use extant_journal::{Finish, JournalLocation, recover_volume};
use extant_ondisk::jbd2::{
    FastCommitChecksum, FastCommitRecord, FastCommitRecords, JournalSuperblock,
    RawJournalSuperblock,
};
use extant_ondisk::superblock::RawSuperblock;
use extant_ondisk::{Geometry, GroupNo};
use extant_testkit::{TempImage, is_root, left_dirty};
use proptest::prelude::*;

/// A dirty image with fast commits, and the blocks of its journal.
struct Dirty {
    bytes: Vec<u8>,
    block: usize,
    journal: Vec<usize>,
    superblock: JournalSuperblock,
}

fn dirty() -> Option<&'static Dirty> {
    static DIRTY: OnceLock<Option<Dirty>> = OnceLock::new();
    DIRTY.get_or_init(make).as_ref()
}

fn make() -> Option<Dirty> {
    if !is_root() {
        return None;
    }
    let args = ["-t", "ext4", "-b", "1024", "-O", "fast_commit,^metadata_csum", "-J", "size=4"];
    let image = TempImage::by_mke2fs(16 << 20, &args).ok()?;
    let copy =
        left_dirty(&image.path(), "", |dir| crate::fast_commit::work(dir, 60, 40_000)).ok()?;
    let bytes = std::fs::read(copy.path()).ok()?;
    let raw = RawSuperblock::from_bytes(&bytes[1024..], GroupNo(0)).ok()?;
    let geometry = Geometry::new(&raw).ok()?;
    let device = MemoryDevice::from_bytes(&bytes);
    let place = JournalLocation::internal(&device, &raw, &geometry).ok()?;
    let block = geometry.block_len();
    let journal: Vec<_> = place
        .runs
        .runs()
        .iter()
        .flat_map(|run| (0..run.count as usize).map(|at| run.start.0 as usize + at))
        .map(|at| at * block)
        .collect();
    let raw = RawJournalSuperblock::from_bytes(&bytes[journal[0]..]).ok()?;
    let superblock = JournalSuperblock::decode(&raw).ok()?;
    Some(Dirty { bytes, block, journal, superblock })
}

/// Corrects the checksums of the fast commits, so that the replay accepts them.
fn reseal(dirty: &Dirty, bytes: &mut [u8]) {
    let mut checksum = FastCommitChecksum::new();
    for at in dirty.superblock.fast_commit_area() {
        let start = dirty.journal[at as usize];
        let block = &bytes[start..start + dirty.block];
        let mut tail = None;
        for record in FastCommitRecords::new(block) {
            let Ok((at, record_bytes, record)) = record else { return };
            checksum.record(record_bytes, &record);
            if let FastCommitRecord::Tail(..) = record {
                tail = Some(start + at + 8);
                break;
            }
        }
        if let Some(at) = tail {
            bytes[at..at + 4].copy_from_slice(&checksum.value().to_le_bytes());
            checksum = FastCommitChecksum::new();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_journal_with_changed_bytes_is_replayed_or_refused(
        changes in proptest::collection::vec((any::<u32>(), any::<u8>(), 0_u8..4), 1..12),
    ) {
        let Some(dirty) = dirty() else { return Ok(()) };
        let mut bytes = dirty.bytes.clone();
        let in_use = 1 + dirty.superblock.fast_commit_area().start as usize;
        for (at, value, region) in changes {
            let at = at as usize;
            let place = match region {
                // The journal's superblock and log.
                0 => dirty.journal[at / 1024 % 200] + at % 1024,
                // The fast commits.
                1 | 2 => dirty.journal[in_use - 1 + at / 1024 % 12] + at % 400,
                // Descriptors, bitmaps, inodes.
                _ => 2048 + at % (300 * 1024),
            };
            bytes[place] = value;
        }
        reseal(dirty, &mut bytes);
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&bytes));
        let overlay = OverlayDevice::new(device);
        let _ = recover_volume(&overlay, None, Finish::Reset);
    }
}
