//! Changes of a volume that is not open elsewhere, on top of the log.
//!
//! A request changes the volume through the offline editor on an overlay in memory. What it changed
//! then goes into the log as one transaction, and home when the log is closed. Without a sound
//! journal, and where a change is larger than a transaction or is about the journal itself, it is
//! written in place; the log is empty then.

use std::sync::Arc;

use extant::debug::DebugVolume;
use extant::rooms::device::{Device, OverlayDevice};
use extant::rooms::journal::{
    Finish, Journal, JournalLocation, JournalOptions, NoHooks, OpenLog, recover_volume,
};
use extant::rooms::ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use extant::rooms::ondisk::{
    BlockNo, CompatFeatures, Geometry, GroupNo, IncompatFeatures, mmp::MmpSequence, mmp::RawMmp,
};
use extant::rooms::runtime::env::Env;
use zerocopy::IntoBytes;

/// A block that a request changed, with its new contents.
type Change = (BlockNo, Vec<u8>);

/// Replays the journal of a volume that will be changed. Whether it has one that changes may go
/// through; why not is a warning.
pub(super) fn prepare(device: &Arc<dyn Device>, volume: &DebugVolume) -> (bool, Option<String>) {
    let raw = volume.raw();
    let features = raw.features();
    if !features.compat.contains(CompatFeatures::HAS_JOURNAL) {
        return (false, None);
    }
    if raw.s_journal_inum.get() == 0 {
        let needs_it = features.incompat.contains(IncompatFeatures::RECOVER);
        let why =
            "the journal is on another device and is not replayed: changes are not journalled";
        return (false, needs_it.then(|| why.to_owned()));
    }
    match recover_volume(&**device, None, Finish::Reset) {
        Ok(recovered) => {
            let is_whole = recovered.is_none_or(|recovered| recovered.damage.is_empty());
            let why = "the journal is damaged: changes are not journalled";
            (is_whole, (!is_whole).then(|| why.to_owned()))
        }
        Err(error) => (false, Some(format!("{error}: changes are not journalled"))),
    }
}

/// Refuses a volume that another host has open, by its block of multiple mount protection.
pub(super) fn check_mmp(volume: &DebugVolume) -> Result<(), String> {
    if !volume.geometry().has_incompat(IncompatFeatures::MMP) {
        return Ok(());
    }
    let block = BlockNo(volume.raw().s_mmp_block.get());
    let bytes = volume.block(block).map_err(|error| error.to_string())?;
    let raw = RawMmp::from_bytes(&bytes, block).map_err(|error| error.to_string())?;
    match MmpSequence::decode(raw.mmp_seq.get()) {
        MmpSequence::Clean => Ok(()),
        MmpSequence::Fsck => Err("MMP: fsck being run".to_owned()),
        MmpSequence::Mounted(_) => Err("MMP: device currently active".to_owned()),
    }
}

/// Stores what an overlay holds, in one transaction where that is possible.
pub(super) fn store(
    device: &Arc<dyn Device>,
    overlay: &OverlayDevice,
    before: &DebugVolume,
    env: &Env,
    has_journal: bool,
) -> Result<(), String> {
    let geometry = before.geometry();
    let changes = changes(&**device, overlay, geometry)?;
    if changes.is_empty() {
        return Ok(());
    }
    let is_about_journal = journal_fields(before.raw(), &changes, geometry);
    if has_journal && !is_about_journal && store_logged(device, before, env, &changes)? {
        return Ok(());
    }
    for (block, bytes) in &changes {
        device.write_at(geometry.byte_of(*block), bytes).map_err(|error| error.to_string())?;
    }
    device.flush().map_err(|error| error.to_string())
}

fn changes(
    device: &dyn Device,
    overlay: &OverlayDevice,
    geometry: &Geometry,
) -> Result<Vec<Change>, String> {
    let size = u64::from(geometry.block_size);
    let mut changes = Vec::new();
    for range in overlay.changed() {
        for block in range.start / size..range.end.div_ceil(size) {
            // A block at the end of the device may be cut.
            let len = size.min(device.size().saturating_sub(block * size));
            let mut old = vec![0; len as usize];
            let mut new = old.clone();
            device.read_at(block * size, &mut old).map_err(|error| error.to_string())?;
            overlay.read_at(block * size, &mut new).map_err(|error| error.to_string())?;
            // Ranges that end within a block meet in it.
            let is_new = changes.last().is_none_or(|(last, _): &Change| last.0 != block);
            if old != new && is_new {
                changes.push((BlockNo(block), new));
            }
        }
    }
    Ok(changes)
}

/// Where the primary superblock is: its block, and the byte in it.
fn superblock_place(geometry: &Geometry) -> (BlockNo, usize) {
    let size = u64::from(geometry.block_size);
    // Less than a block.
    (BlockNo(SUPERBLOCK_OFFSET / size), (SUPERBLOCK_OFFSET % size) as usize)
}

/// Whether the features or the fields that say where the journal is change.
fn journal_fields(before: &RawSuperblock, changes: &[Change], geometry: &Geometry) -> bool {
    let (place, offset) = superblock_place(geometry);
    let Some((_, bytes)) = changes.iter().find(|(block, _)| *block == place) else { return false };
    let Ok(after) = RawSuperblock::from_bytes(&bytes[offset..], GroupNo(0)) else { return true };
    before.features() != after.features()
        || before.s_journal_inum != after.s_journal_inum
        || before.s_log_block_size != after.s_log_block_size
        || before.s_blocks_count_lo != after.s_blocks_count_lo
        || before.s_blocks_count_hi != after.s_blocks_count_hi
        || before.s_uuid != after.s_uuid
}

/// Commits the changes as a transaction; false where they are more than one takes.
fn store_logged(
    device: &Arc<dyn Device>,
    before: &DebugVolume,
    env: &Env,
    changes: &[Change],
) -> Result<bool, String> {
    let geometry = before.geometry();
    let said = |error: &dyn std::fmt::Display| error.to_string();
    let place = JournalLocation::internal(&**device, before.raw(), geometry);
    let place = place.map_err(|error| said(&error))?;
    let log = OpenLog { device: device.clone(), place, is_external: false };
    let options = JournalOptions::default();
    let opened =
        Journal::open(device.clone(), geometry, Some(log), env, options, Arc::new(NoHooks));
    let journal = opened.map_err(|error| said(&error))?;
    let fits = u32::try_from(changes.len()).is_ok_and(|count| count <= journal.max_credits());
    if fits {
        let tid = write_frames(&journal, geometry, changes).map_err(|error| said(&error))?;
        journal.commit(tid).map_err(|error| said(&error))?;
    }
    journal.close().map_err(|error| said(&error))?;
    Ok(fits)
}

fn write_frames(
    journal: &Journal,
    geometry: &Geometry,
    changes: &[Change],
) -> Result<extant::rooms::ondisk::Tid, extant::rooms::journal::JournalError> {
    let (place, offset) = superblock_place(geometry);
    // No more than the credits of a handle.
    let handle = journal.start(changes.len() as u32)?;
    for (block, bytes) in changes {
        let frame = handle.create(*block)?;
        let mut frame = handle.write(&frame)?;
        frame[..bytes.len()].copy_from_slice(bytes);
        if *block == place
            && let Ok(mut raw) = RawSuperblock::from_bytes(&frame[offset..], GroupNo(0))
        {
            // The log is in use until it is closed.
            let mut features = raw.features();
            features.incompat |= IncompatFeatures::RECOVER;
            raw.set_features(features);
            raw.seal();
            frame[offset..offset + size_of::<RawSuperblock>()].copy_from_slice(raw.as_bytes());
        }
    }
    Ok(handle.tid())
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use extant::debug::DebugChoice;
    use extant::rooms::device::{
        DeviceError, MemoryDevice, Request, RequestKind, check_batch, run_batch,
    };
    use extant::{Formatter, InodeNo};

    /// A device on which the power fails: later writes are lost.
    #[derive(Debug)]
    struct Cut {
        inner: Arc<MemoryDevice>,
        left: AtomicUsize,
    }

    impl Device for Cut {
        fn size(&self) -> u64 {
            self.inner.size()
        }

        fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
            check_batch(self, batch)?;
            run_batch(batch, |request| {
                let is_read = matches!(request.kind, RequestKind::Read { .. });
                let less = |left: usize| left.checked_sub(1);
                let has_power = is_read
                    || self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok();
                match has_power {
                    true => self.inner.submit(std::slice::from_mut(request)),
                    false => Ok(()),
                }
            })
        }

        fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
            self.inner.next_data(range)
        }

        fn is_read_only(&self) -> bool {
            false
        }
    }

    fn opened(device: Arc<dyn Device>) -> DebugVolume {
        let choice = DebugChoice { is_writable: true, ..DebugChoice::default() };
        DebugVolume::open(device, &choice).unwrap().0
    }

    /// A label, an owner and a bit, in three blocks that are far apart.
    fn state(volume: &mut DebugVolume) -> [bool; 3] {
        let owner = volume.inode(InodeNo::ROOT).unwrap().uid();
        let is_used = volume.is_block_used(BlockNo(15_000)).unwrap();
        [volume.raw().s_volume_name[0] == b'x', owner == 7, is_used]
    }

    #[test]
    fn a_change_is_there_as_a_whole_or_not_at_all_after_a_power_cut() {
        let sound = MemoryDevice::new(16 << 20);
        Formatter::new().format(&sound).unwrap();
        let mut seen = [0, 0];
        for cut in 0.. {
            let inner = Arc::new(sound.fork());
            let device: Arc<Cut> =
                Arc::new(Cut { inner: inner.clone(), left: AtomicUsize::new(cut) });
            let base: Arc<dyn Device> = device.clone();
            let before = opened(base.clone());
            let overlay = Arc::new(OverlayDevice::new(base.clone()));
            let mut volume = opened(overlay.clone());
            let mut record = volume.inode(InodeNo::ROOT).unwrap();
            record.set_bytes(2, &7_u16.to_le_bytes());
            volume.write_inode(&mut record).unwrap();
            volume.mark_blocks(15_000, 1, true).unwrap();
            let editor = volume.editor_mut();
            editor.update_superblock(|raw| raw.s_volume_name[0] = b'x').unwrap();
            editor.commit().unwrap();
            store(&base, &overlay, &before, &Env::threads(), true).unwrap();

            recover_volume(&*inner, None, Finish::Reset).unwrap();
            let found = state(&mut opened(inner));
            assert!(found == [false; 3] || found == [true; 3], "after {cut} writes: {found:?}");
            seen[usize::from(found[0])] += 1;
            if device.left.load(Ordering::SeqCst) > 0 {
                assert_eq!(found, [true; 3]);
                break;
            }
        }
        assert!(seen.iter().all(|count| *count > 1), "both were seen: {seen:?}");
    }
}
