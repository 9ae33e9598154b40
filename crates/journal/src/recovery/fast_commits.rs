//! Commits the changes of fast commits as a transaction, so that a power cut during recovery leaves
//! all of them or none.
//!
//! Fast commits are replayed on top of the last transaction: directories and extent trees are read
//! and rebuilt. If a first recovery was interrupted, a second one would read partly written blocks.
//! So the changes become a transaction in the log with the TID that the fast commits depend on:
//! once it is committed, the fast commits are stale, and the next recovery replays the transaction
//! instead.

use extant_device::Device;
use extant_ondisk::BlockNo;
use extant_ondisk::jbd2::{JournalSuperblock, RawJournalSuperblock};

use super::scan::LogContents;
use crate::transaction_blocks::{Built, Flushes, needed};
use crate::{JournalError, Log, home};

/// Commits the blocks to the log, all of whose transactions must have been replayed. Does nothing
/// if there are no blocks, or if the log is too short for them: a power cut while they are written
/// may leave only some of them then.
pub(super) fn log(
    target: &dyn Device,
    log: &Log<'_>,
    (raw, superblock): (&mut RawJournalSuperblock, &mut JournalSuperblock),
    found: &LogContents,
    changed: &[(BlockNo, Vec<u8>)],
) -> Result<(), JournalError> {
    if changed.is_empty() {
        return Ok(());
    }
    let (range, format) = (superblock.log(), superblock.log_format());
    let count = u32::try_from(changed.len()).unwrap_or(u32::MAX);
    let has_room = needed(&format, count, 0) < range.end - range.start;
    let may_name = |(block, _): &(BlockNo, Vec<u8>)| format.is_64bit || block.0 >> 32 == 0;
    if !has_room || !changed.iter().all(may_name) {
        tracing::warn!(
            blocks = changed.len(),
            "log too small for the blocks that fast commits change"
        );
        return Ok(());
    }
    // All transactions are replayed: the log starts after them, and all its blocks are free for the
    // next one.
    target.flush()?;
    (superblock.start, superblock.sequence) = (found.head, found.end);
    log.write_superblock(raw, superblock)?;
    log.device.flush()?;
    let built = Built::new(&format, found.end, found.last_commit, changed, &[]);
    built.write(log, &range, found.head, changed, Flushes::Both)?;
    Ok(())
}

/// Writes the blocks to their home locations.
pub(super) fn write_home(
    target: &dyn Device,
    log: &Log<'_>,
    changed: &[(BlockNo, Vec<u8>)],
) -> Result<(), JournalError> {
    let mut homes: Vec<_> = changed.iter().map(|(home, bytes)| (*home, &bytes[..])).collect();
    Ok(home::write_home(target, log.block_size(), &mut homes)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JournalLocation;
    use extant_device::MemoryDevice;
    use extant_offline::read_primary_superblock;
    use extant_ondisk::Geometry;
    use extant_testkit::{TempImage, skip};

    #[test]
    fn fast_commits_that_change_nothing_leave_the_log_alone() {
        let image = match TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-b", "1024"]) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        let before = std::fs::read(image.path()).unwrap();
        let device = MemoryDevice::from_bytes(&before);
        let volume = read_primary_superblock(&device).unwrap();
        let geometry = Geometry::new(&volume).unwrap();
        let place = JournalLocation::internal(&device, &volume, &geometry).unwrap();
        let of_device = Log { device: &device, place: &place };
        let (mut raw, mut superblock) = of_device.superblock().unwrap();
        let head = superblock.log().start;
        let found = LogContents { head, end: superblock.sequence.next(), ..LogContents::default() };
        let mut commit = |changed: &[(BlockNo, Vec<u8>)]| {
            log(&device, &of_device, (&mut raw, &mut superblock), &found, changed).unwrap();
            device.to_vec() == before
        };
        assert!(commit(&[]));
        assert!(!commit(&[(BlockNo(9000), vec![1; 1024])]));
    }
}
