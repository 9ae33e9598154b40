//! What fast commits change, written so that a power cut during recovery leaves all of it or none.
//!
//! Fast commits are replayed on top of what the last transaction left: directories and extent trees are read and
//! rebuilt. If the first recovery was cut off, a second one would read half-written blocks. So the changes become a transaction
//! of the log with the TID that the fast commits depend on: once it is committed, the fast commits are stale, and the next
//! recovery replays the transaction in their place.

use extant_device::Device;
use extant_ondisk::BlockNo;
use extant_ondisk::jbd2::{JournalSuperblock, RawJournalSuperblock};

use super::scan::Found;
use crate::built::{Built, Flushes, needed};
use crate::{JournalError, Log, home};

/// Commits the blocks to the log, which is home; nothing where there are none. Where the log is too
/// short for them nothing is done either: a power cut while they are written may leave some of them
/// then.
pub(super) fn log(
    target: &dyn Device,
    log: &Log<'_>,
    (raw, superblock): (&mut RawJournalSuperblock, &mut JournalSuperblock),
    found: &Found,
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
        tracing::warn!(blocks = changed.len(), "the log has no room for what fast commits change");
        return Ok(());
    }
    // All transactions are home: the log starts behind them, and has all its blocks for the next one.
    target.flush()?;
    (superblock.start, superblock.sequence) = (found.head, found.end);
    log.write_superblock(raw, superblock)?;
    log.device.flush()?;
    let built = Built::new(&format, found.end, found.last_commit, changed, &[]);
    built.write(log, &range, found.head, changed, Flushes::Both)?;
    Ok(())
}

/// Writes the blocks home.
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
    use crate::JournalPlace;
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
        let place = JournalPlace::internal(&device, &volume, &geometry).unwrap();
        let of_device = Log { device: &device, place: &place };
        let (mut raw, mut superblock) = of_device.superblock().unwrap();
        let head = superblock.log().start;
        let found = Found { head, end: superblock.sequence.next(), ..Found::default() };
        let mut commit = |changed: &[(BlockNo, Vec<u8>)]| {
            log(&device, &of_device, (&mut raw, &mut superblock), &found, changed).unwrap();
            device.to_vec() == before
        };
        assert!(commit(&[]));
        assert!(!commit(&[(BlockNo(9000), vec![1; 1024])]));
    }
}
