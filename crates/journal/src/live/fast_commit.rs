//! Fast commits of a live journal: the changes of the running transaction, logged per inode and
//! directory entry in the fast-commit area instead of per block in the log.
//!
//! A fast commit holds what changed since the one before it, so that all of them together, on top
//! of the last transaction, are the state at the last fsync. The next transaction makes them stale.
//! Handles say what they changed in these terms ([`FastChanges`](super::FastChanges)). A
//! transaction commits the other changes
//! ([`Handle::refuse_fast_commit`](super::Handle::refuse_fast_commit)).

use std::collections::{BTreeMap, HashSet};

use extant_device::Request;
use extant_ondisk::extent::RawExtent;
use extant_ondisk::jbd2::{
    FastCommitChecksum, FastCommitRecord, FastCommitRecords, FastCommitTag, push_fast_commit_record,
};
use extant_ondisk::{InodeNo, Tid};
use zerocopy::IntoBytes;

use super::checkpoint::Tail;
use super::core::Core;
use super::fast_changes::{AREA_FULL, FastFile, FastName, FastNameChange, FastRange};
use crate::{JournalError, Log};

/// The reason where the log is not emptied for a few fast commits.
const TOO_FEW: &str = "few fast commits in transactions before";

impl Core {
    /// Makes all operations that have ended durable by a fast commit. Returns false where a
    /// transaction must be committed for that.
    pub(super) fn fast_commit(&self) -> Result<bool, JournalError> {
        let Some(fast) = &self.fast else { return Ok(false) };
        let tid = self.gate.state().tid;
        let changes = fast.changes_of(tid).lock();
        let (is_running, asked) = (changes.tid == tid, changes.operations);
        drop(changes);
        if !is_running {
            return Ok(false);
        }
        // Fast commits continue the transaction before.
        self.wait_committed(Tid(tid.0.wrapping_sub(1)))?;
        if asked == 0 {
            return Ok(true);
        }

        let mut written = fast.written.lock();
        self.latch.check()?;
        if written.tid != tid {
            written.begin(tid);
        }
        if written.operations >= asked {
            return Ok(true);
        }
        if written.is_passed_over {
            *written.counts.full.entry(TOO_FEW).or_default() += 1;
            return Ok(false);
        }
        let mut changes = fast.changes_of(tid).lock();
        if changes.tid != tid {
            // A transaction has committed what the caller waits for.
            return Ok(false);
        }
        if let Some(reason) = changes.refused {
            *written.counts.full.entry(reason).or_default() += 1;
            return Ok(false);
        }
        if written.blocks == 0 {
            drop(changes);
            // e2fsck 1.47.0, which replays the log and then fast commits, writes blocks that it has
            // read before the log was replayed.
            self.checkpoint_committed(Tail::Stored)?;
            changes = fast.changes_of(tid).lock();
            if changes.tid != tid || changes.refused.is_some() {
                return Ok(false);
            }
        }
        let operations = changes.operations;
        let (names, files) =
            (std::mem::take(&mut changes.names), std::mem::take(&mut changes.files));
        let needs_flush = std::mem::take(&mut changes.needs_flush);
        drop(changes);
        let area = encode(tid, written.blocks == 0, &names, &files, self.block_size);
        let count = u32::try_from(area.len() / self.block_size as usize).unwrap_or(u32::MAX);
        if count > fast.area.end - fast.area.start - written.blocks {
            *written.counts.full.entry(AREA_FULL).or_default() += 1;
            // The changes were taken out: only a transaction has them now.
            fast.changes_of(tid).lock().refuse(AREA_FULL);
            return Ok(false);
        }
        let wrote = self.write_fast(fast.area.start + written.blocks, &area, needs_flush);
        if let Err(error) = wrote {
            self.abort(error);
            self.latch.check()?;
        }
        written.blocks += count;
        written.commits += 1;
        written.operations = operations;
        written.counts.fast += 1;
        Ok(true)
    }

    /// Clears the fast commits of a transaction that is committed. They are stale, but e2fsck
    /// 1.47.0 replays no log where it finds stale ones.
    pub(super) fn clear_fast_commits(&self, tid: Tid) -> Result<(), JournalError> {
        let (Some(fast), Some(log)) = (&self.fast, &self.log) else { return Ok(()) };
        let written = fast.written.lock();
        if written.tid == tid && written.blocks > 0 {
            log.clear_fast_commit_area()?;
            if self.options.barriers {
                log.on.device.flush()?;
            }
        }
        Ok(())
    }

    /// Writes blocks of the area and makes them durable; what was written before, first if it
    /// `needs_flush`: a range that is mapped must not show other data.
    fn write_fast(&self, at: u32, bytes: &[u8], needs_flush: bool) -> Result<(), JournalError> {
        let Some(log) = &self.log else { return Ok(()) };
        let barriers = self.options.barriers;
        if barriers && log.on.is_external {
            self.device.flush()?;
        }
        let on = Log { device: &*log.on.device, place: &log.on.place };
        let pieces: Vec<&[u8]> = bytes.chunks(self.block_size as usize).collect();
        let mut batch = Vec::new();
        if barriers && needs_flush && !log.on.is_external {
            batch.push(Request::flush());
        }
        batch.extend(on.writes(at, &pieces)?);
        if barriers {
            batch.push(Request::flush());
        }
        Ok(log.on.device.submit(&mut batch)?)
    }
}

/// The blocks of a fast commit. A new file comes before its name; all files come after names, which
/// change their link counts.
fn encode(
    tid: Tid,
    is_first: bool,
    names: &[FastName],
    files: &BTreeMap<InodeNo, FastFile>,
    block_size: u32,
) -> Vec<u8> {
    let block_size = block_size as usize;
    let mut area = Vec::new();
    let mut push = |tag, value: &[u8]| {
        let fits = push_fast_commit_record(&mut area, block_size, tag, value);
        assert!(fits, "a record of {} bytes fits into a block", value.len());
    };
    if is_first {
        push(FastCommitTag::Head, [0, tid.0].map(u32::to_le_bytes).as_flattened());
    }
    let mut is_named = HashSet::new();
    for name in names {
        let tag = match name.change {
            FastNameChange::Create => FastCommitTag::Create,
            FastNameChange::Link => FastCommitTag::Link,
            FastNameChange::Unlink => FastCommitTag::Unlink,
        };
        if name.change == FastNameChange::Create
            && is_named.insert(name.inode)
            && let Some(file) = files.get(&name.inode)
        {
            push_inode(&mut push, file);
            push_ranges(&mut push, file);
        }
        let mut value = [name.dir.0, name.inode.0].map(u32::to_le_bytes).concat();
        value.extend_from_slice(&name.name);
        push(tag, &value);
    }
    for file in files.values() {
        if !is_named.contains(&file.inode) {
            push_ranges(&mut push, file);
        }
        // Of a new file too: the kernel counts the blocks that it has by then.
        push_inode(&mut push, file);
    }
    // The checksum comes below.
    push(FastCommitTag::Tail, [tid.0, 0].map(u32::to_le_bytes).as_flattened());
    seal(&mut area, block_size);
    area
}

fn push_inode(push: &mut impl FnMut(FastCommitTag, &[u8]), file: &FastFile) {
    let value = [&file.inode.0.to_le_bytes()[..], &file.record].concat();
    push(FastCommitTag::Inode, &value);
}

fn push_ranges(push: &mut impl FnMut(FastCommitTag, &[u8]), file: &FastFile) {
    for range in &file.ranges {
        match *range {
            FastRange::Mapped(extent) => {
                let extent = RawExtent::encode(&extent);
                let value = [&file.inode.0.to_le_bytes()[..], extent.as_bytes()].concat();
                push(FastCommitTag::AddRange, &value);
            }
            FastRange::Unmapped(first, count) => {
                let value = [file.inode.0, first, count].map(u32::to_le_bytes);
                push(FastCommitTag::DelRange, value.as_flattened());
            }
        }
    }
}

/// Puts the checksum into the tail, the last record.
fn seal(area: &mut [u8], block_size: usize) {
    const CHECKSUM_IN_TAIL: usize = 8;
    let mut checksum = FastCommitChecksum::new();
    let mut place = None;
    for (index, block) in area.chunks(block_size).enumerate() {
        for record in FastCommitRecords::new(block) {
            let Ok((at, bytes, record)) = record else { continue };
            checksum.record(bytes, &record);
            if matches!(record, FastCommitRecord::Tail(..)) {
                place = Some(index * block_size + at + CHECKSUM_IN_TAIL);
            }
        }
    }
    let at = place.expect("a fast commit ends with a tail");
    area[at..at + size_of::<u32>()].copy_from_slice(&checksum.value().to_le_bytes());
}
