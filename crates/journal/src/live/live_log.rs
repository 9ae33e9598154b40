//! The log of a live journal: which features it has, and the blocks of one transaction on their way into it.

use std::ops::Range;

use extant_device::sync::{Arc, Mutex};
use extant_device::{Device, Request};
use extant_ondisk::checksum::crc32_be;
use extant_ondisk::jbd2::{
    CommitBlock, DescriptorWriter, JournalChecksum, JournalCompat, JournalIncompat,
    JournalSuperblock, LogFormat, RawJournalSuperblock, RevokeWriter, escape, needs_escape,
};
use extant_ondisk::{BlockNo, FormatError, Geometry, IncompatFeatures, Tid};

use super::Options;
use super::frame::Snapshot;
use super::ranks::SuperblockLock;
use crate::{JournalError, JournalPlace, Log};
use extant_device::env::WallTime;

/// Fewest blocks that a log must have; the kernel wants 1,024 for the journal.
const MIN_LOG: u32 = 64;

/// A journal that can be written, and the device it is on.
#[derive(Clone, Debug)]
pub struct LogOnDevice {
    /// The volume's device, or the journal's own.
    pub device: Arc<dyn Device>,
    /// Where it is there.
    pub place: JournalPlace,
    /// It has a device of its own.
    pub is_external: bool,
}

pub(super) struct LiveLog {
    pub(super) on: LogOnDevice,
    pub(super) format: LogFormat,
    range: Range<u32>,
    has_barriers: bool,
    superblock: Mutex<(RawJournalSuperblock, JournalSuperblock), SuperblockLock>,
}

impl LiveLog {
    /// Takes a journal whose log is empty, sets its features, and marks it as in use from `head` on: the first
    /// transaction goes there. Before that `mark_volume` says in the volume's superblock that it needs recovery: a log that has
    /// begun without that looks forgotten.
    pub(super) fn open(
        on: LogOnDevice,
        geometry: &Geometry,
        options: &Options,
        mark_volume: impl FnOnce() -> Result<(), JournalError>,
    ) -> Result<(Self, u32, Tid), JournalError> {
        let log = Log { device: &*on.device, place: &on.place };
        let (mut raw, mut superblock) = log.superblock()?;
        if superblock.start != 0 {
            return Err(JournalError::NotRecovered);
        }
        let range = superblock.log();
        if range.end - range.start < MIN_LOG {
            return Err(JournalError::TooSmall(range.end - range.start));
        }
        superblock.set_features(geometry, options);
        let head = if superblock.head == 0 { range.start } else { superblock.head };
        let first = superblock.sequence;
        (superblock.start, superblock.head) = (head, 0);
        mark_volume()?;
        log.write_superblock(&mut raw, &superblock)?;
        on.device.flush()?;
        let format = superblock.log_format();
        let superblock = Mutex::ranked((raw, superblock));
        Ok((Self { on, format, range, has_barriers: options.barriers, superblock }, head, first))
    }

    /// Blocks of the log.
    pub(super) fn size(&self) -> u32 {
        self.range.end - self.range.start
    }

    /// The block `count` further on, around the end.
    pub(super) fn after(&self, at: u32, count: u32) -> u32 {
        let from_start = u64::from(at - self.range.start) + u64::from(count);
        // Below the size, which has 32 bits.
        self.range.start + (from_start % u64::from(self.size())) as u32
    }

    /// Log blocks of a transaction of so many frames and revoke records.
    pub(super) fn needed(&self, frames: u32, revoked: u32) -> u32 {
        let tags = u32::try_from(self.format.tags_per_block()).expect("fewer than a block's bytes");
        frames
            .saturating_add(frames.div_ceil(tags))
            .saturating_add(revoked.div_ceil(self.revokes_per_block()))
            .saturating_add(1)
    }

    /// Revoke records that a block holds, at least one.
    pub(super) fn revokes_per_block(&self) -> u32 {
        let count = self.format.revokes_per_block();
        u32::try_from(count).expect("fewer than a block's bytes").max(1)
    }

    /// Stores where the log starts and with which transaction, or (with 0) that nothing is in it.
    pub(super) fn set_tail(
        &self,
        start: u32,
        sequence: Tid,
        head: u32,
    ) -> Result<(), JournalError> {
        self.update(|superblock| {
            (superblock.start, superblock.sequence, superblock.head) = (start, sequence, head);
        })?;
        if self.has_barriers {
            self.on.device.flush()?;
        }
        Ok(())
    }

    /// Stores that an error stopped the journal.
    pub(super) fn set_errno(&self, errno: i32) -> Result<(), JournalError> {
        self.update(|superblock| superblock.errno = errno)?;
        Ok(self.on.device.flush()?)
    }

    fn update(&self, change: impl FnOnce(&mut JournalSuperblock)) -> Result<(), JournalError> {
        let mut held = self.superblock.lock();
        let (raw, superblock) = &mut *held;
        change(superblock);
        Log { device: &*self.on.device, place: &self.on.place }.write_superblock(raw, superblock)
    }

    /// Writes a transaction at `head` and makes it durable. Gives the blocks that it took.
    pub(super) fn write(
        &self,
        tid: Tid,
        time: WallTime,
        blocks: &[(BlockNo, Snapshot)],
        revoked: &[BlockNo],
        head: u32,
    ) -> Result<u32, JournalError> {
        let built = Built::new(&self.format, tid, time, blocks, revoked);
        let pieces = built.pieces(blocks);
        let count = u32::try_from(pieces.len()).expect("a transaction is shorter than the log");
        let (commit, before) = pieces.split_last().expect("every transaction has a commit block");
        let mut batch = self.requests(head, before)?;
        if self.has_barriers && !self.format.is_async_commit {
            batch.push(Request::flush());
        }
        batch.extend(self.requests(self.after(head, count - 1), &[*commit])?);
        if self.has_barriers {
            batch.push(Request::flush());
        }
        self.on.device.submit(&mut batch)?;
        Ok(count)
    }

    /// Writes to the log, around its end.
    fn requests<'b>(&self, at: u32, pieces: &[&'b [u8]]) -> Result<Vec<Request<'b>>, FormatError> {
        let log = Log { device: &*self.on.device, place: &self.on.place };
        let to_end = ((self.range.end - at) as usize).min(pieces.len());
        let mut requests = log.writes(at, &pieces[..to_end])?;
        requests.extend(log.writes(self.range.start, &pieces[to_end..])?);
        Ok(requests)
    }
}

/// Sets the journal's features for a volume and mount options, as the kernel does on mount.
trait SetFeatures {
    fn set_features(&mut self, geometry: &Geometry, options: &Options);
}

impl SetFeatures for JournalSuperblock {
    fn set_features(&mut self, geometry: &Geometry, options: &Options) {
        if !self.is_v2 {
            return;
        }
        self.incompat |= JournalIncompat::REVOKE;
        self.incompat.set(
            JournalIncompat::BIT64,
            geometry.has_incompat(IncompatFeatures::BIT64)
                || self.incompat.contains(JournalIncompat::BIT64),
        );
        self.compat.remove(JournalCompat::CHECKSUM);
        self.incompat.remove(
            JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3 | JournalIncompat::ASYNC_COMMIT,
        );
        self.incompat.set(JournalIncompat::ASYNC_COMMIT, options.async_commit);
        if geometry.has_metadata_csum() {
            self.incompat |= JournalIncompat::CSUM_V3;
        } else if options.checksum || options.async_commit {
            self.compat |= JournalCompat::CHECKSUM;
        }
    }
}

/// The blocks of a transaction that the log adds, and in which order all go.
struct Built {
    own: Vec<Vec<u8>>,
    order: Vec<Piece>,
}

#[derive(Clone, Copy)]
enum Piece {
    Own(usize),
    Block(usize),
}

impl Built {
    fn new(
        format: &LogFormat,
        tid: Tid,
        time: WallTime,
        blocks: &[(BlockNo, Snapshot)],
        revoked: &[BlockNo],
    ) -> Self {
        let mut built = Self { own: Vec::new(), order: Vec::new() };
        for some in revoked.chunks(format.revokes_per_block()) {
            let mut block = vec![0; format.block_len()];
            let mut writer = RevokeWriter::new(&mut block, format, tid);
            for home in some {
                let has_room = writer.push(*home);
                assert!(has_room, "a revoke block holds {}", format.revokes_per_block());
            }
            writer.finish();
            built.add(block);
        }
        let mut checksum = !0;
        for (at, some) in blocks.chunks(format.tags_per_block()).enumerate() {
            built.described(format, tid, at * format.tags_per_block(), some, &mut checksum);
        }
        let commit = CommitBlock {
            tid,
            seconds: u64::try_from(time.seconds).unwrap_or(0),
            nanoseconds: time.nanoseconds,
            transaction_checksum: Some(checksum),
        };
        let mut block = vec![0; format.block_len()];
        commit.encode(&mut block, format);
        built.add(block);
        built
    }

    /// Adds a descriptor block and the blocks that it describes; the first of them is number `first` of the transaction.
    fn described(
        &mut self,
        format: &LogFormat,
        tid: Tid,
        first: usize,
        blocks: &[(BlockNo, Snapshot)],
        checksum: &mut u32,
    ) {
        let data_checksum = format.data_checksums(tid);
        let mut descriptor = vec![0; format.block_len()];
        let at = self.order.len();
        let mut writer = DescriptorWriter::new(&mut descriptor, format, tid);
        for (index, (home, data)) in blocks.iter().enumerate() {
            let is_escaped = needs_escape(data);
            let piece = if is_escaped {
                let mut copy = data.to_vec();
                escape(&mut copy);
                self.own.push(copy);
                Piece::Own(self.own.len() - 1)
            } else {
                Piece::Block(first + index)
            };
            let logged: &[u8] = match piece {
                Piece::Own(own) => &self.own[own],
                Piece::Block(_) => data,
            };
            let has_room = writer.push(*home, is_escaped, data_checksum.of(logged));
            assert!(has_room, "a descriptor block holds {}", format.tags_per_block());
            self.order.push(piece);
        }
        writer.finish();
        if format.checksum == JournalChecksum::V1 {
            *checksum = crc32_be(*checksum, &descriptor);
            for (piece, (_, data)) in self.order[at..].iter().zip(blocks) {
                let logged: &[u8] = match *piece {
                    Piece::Own(own) => &self.own[own],
                    Piece::Block(_) => data,
                };
                *checksum = crc32_be(*checksum, logged);
            }
        }
        self.own.push(descriptor);
        self.order.insert(at, Piece::Own(self.own.len() - 1));
    }

    fn add(&mut self, block: Vec<u8>) {
        self.own.push(block);
        self.order.push(Piece::Own(self.own.len() - 1));
    }

    /// All blocks in log order.
    fn pieces<'a>(&'a self, blocks: &'a [(BlockNo, Snapshot)]) -> Vec<&'a [u8]> {
        let piece = |piece: &Piece| match *piece {
            Piece::Own(own) => &self.own[own][..],
            Piece::Block(block) => &blocks[block].1[..],
        };
        self.order.iter().map(piece).collect()
    }
}
