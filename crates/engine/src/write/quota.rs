//! Quota files kept right: the usage of users, groups and projects is counted with every change,
//! and limits are checked.
//!
//! The caller of these functions holds the lock of all quota files, so that a record is checked and
//! written as one.

use super::mapping::{self, ExtentState};
use crate::edit::{AllocationRequest, Edit, Limits, Purpose, Usage, write_inode};
use extant_ondisk::inode::{Inode, InodeFlags};
use extant_ondisk::quota::{
    FoundRecord, QUOTA_BLOCK_SIZE, QUOTA_DEPTH, QuotaHeader, QuotaKind, QuotaPath, QuotaRecord,
    QuotaTree, RECORDS_PER_LEAF, RawQuotaLeafHeader, slots,
};
use extant_ondisk::{FileBlock, Flaw, InodeNo, Location};
use extant_reader::read::inode::{LoadedInode, load};
use extant_reader::read::mapping::map;
use extant_reader::read::quota::{header, place, read_block};
use extant_reader::{BlockKind, Error, MetadataRead};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use zerocopy::{FromBytes, IntoBytes};

/// The owners that are charged for a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Owners {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The project; 0 where the record has no room for one.
    pub project: u32,
}

impl Owners {
    /// The owners of an inode.
    pub fn of(inode: &Inode) -> Self {
        Self { uid: inode.uid, gid: inode.gid, project: inode.project.unwrap_or(0) }
    }

    fn id(self, kind: QuotaKind) -> u32 {
        match kind {
            QuotaKind::User => self.uid,
            QuotaKind::Group => self.gid,
            QuotaKind::Project => self.project,
        }
    }
}

/// Counts what a file uses more or less against the quotas of its owners.
///
/// # Errors
/// [`Error::QuotaExceeded`] if `limits` are enforced, [`Error::NoSpace`] if a quota file must grow,
/// a broken quota file, or the change failed. A failed call has counted nothing.
pub fn charge<E: Edit>(
    edit: &mut E,
    file: &LoadedInode,
    usage: Usage,
    limits: Limits,
) -> Result<(), Error> {
    charge_with_reserved(edit, &ReservedQuota::default(), file, usage, limits).map(drop)
}

/// As [`charge`], if some quota is reserved already: limits hold for both together. The amount that
/// the owners were charged.
///
/// # Errors
/// As [`charge`].
pub fn charge_with_reserved<E: Edit>(
    edit: &mut E,
    reserved: &ReservedQuota,
    file: &LoadedInode,
    usage: Usage,
    limits: Limits,
) -> Result<Usage, Error> {
    if usage.is_none() || is_exempt(edit, file) {
        return Ok(Usage::default());
    }
    charge_owners(edit, reserved, Owners::of(&file.inode), usage, limits)?;
    Ok(usage)
}

/// Charges owners, for any file.
///
/// # Errors
/// As [`charge`].
pub(crate) fn charge_owners<E: Edit>(
    edit: &mut E,
    reserved: &ReservedQuota,
    owners: Owners,
    usage: Usage,
    limits: Limits,
) -> Result<(), Error> {
    let changes =
        files(edit).map(|(kind, number)| Change { kind, number, id: owners.id(kind), usage });
    let changes: Vec<_> = changes.collect();
    apply(edit, reserved, &changes, limits)
}

/// Moves all that a file uses, its inode included, to other owners. The inode is not changed.
///
/// # Errors
/// As [`charge`].
pub fn transfer<E: Edit>(
    edit: &mut E,
    file: &LoadedInode,
    to: Owners,
    limits: Limits,
) -> Result<(), Error> {
    transfer_with_reserved(edit, &ReservedQuota::default(), file, to, limits).map(drop)
}

/// As [`transfer`], if some quota is reserved already. Returns the amount that was moved.
///
/// # Errors
/// As [`charge`].
pub fn transfer_with_reserved<E: Edit>(
    edit: &mut E,
    reserved: &ReservedQuota,
    file: &LoadedInode,
    to: Owners,
    limits: Limits,
) -> Result<Usage, Error> {
    let from = Owners::of(&file.inode);
    if from == to || is_exempt(edit, file) {
        return Ok(Usage::default());
    }
    // Volumes have less than 2^63 bytes; a count beyond is refused when the inode is written.
    let space = i64::try_from(file.space(edit.geometry())).unwrap_or(i64::MAX);
    let usage = Usage { space, inodes: 1 };
    let mut changes = Vec::new();
    for (kind, number) in files(edit).filter(|(kind, _)| from.id(*kind) != to.id(*kind)) {
        changes.push(Change { kind, number, id: to.id(kind), usage });
        changes.push(Change { kind, number, id: from.id(kind), usage: usage.reversed() });
    }
    apply(edit, reserved, &changes, limits)?;
    Ok(usage)
}

/// The record of an id; `None` when nothing was ever counted for it, or the volume keeps no such
/// quota.
///
/// # Errors
/// A broken quota file, or the device failed.
pub fn record<S: MetadataRead>(
    source: &S,
    kind: QuotaKind,
    id: u32,
) -> Result<Option<QuotaRecord>, Error> {
    let Some(number) = source.info().quota_file(kind) else { return Ok(None) };
    let file = QuotaFile::open(source, kind, number)?;
    Ok(file.find(source, id)?.found.map(|found| found.record))
}

/// Sets the limits of an id, its use stays. Grace times start again.
///
/// # Errors
/// [`Error::NotSupported`] on a volume without such quota, or as [`charge`].
pub fn set_limits<E: Edit>(
    edit: &mut E,
    kind: QuotaKind,
    limits: &QuotaRecord,
) -> Result<(), Error> {
    let number = edit
        .info()
        .quota_file(kind)
        .ok_or(Error::NotSupported("limits on a volume without quotas of this kind"))?;
    let mut file = QuotaFile::open(edit, kind, number)?;
    let found = file.find_or_add(edit, limits.id)?;
    let mut record = QuotaRecord {
        space: found.record.space,
        inodes: found.record.inodes,
        block_time: 0,
        inode_time: 0,
        ..*limits
    };
    settle(&mut record, &file.header, edit.now().seconds);
    file.write_record(edit, found, &record)
}

/// Quota that is reserved for owners and not used yet: bytes, in memory only.
#[derive(Debug, Default)]
pub struct ReservedQuota(HashMap<(QuotaKind, u32), u64>);

impl ReservedQuota {
    /// The amount reserved for one ID.
    fn to(&self, kind: QuotaKind, id: u32) -> u64 {
        self.0.get(&(kind, id)).copied().unwrap_or(0)
    }

    /// Reserves bytes for the owners of a file, if their limits allow it in addition to used and
    /// reserved ones.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`], a broken quota file, or the device failed. Nothing is reserved
    /// then.
    pub fn reserve<S: MetadataRead>(
        &mut self,
        source: &S,
        file: &LoadedInode,
        bytes: u64,
        now: i64,
    ) -> Result<(), Error> {
        if is_exempt(source, file) {
            return Ok(());
        }
        let owners = Owners::of(&file.inode);
        self.check_limits(source, owners, bytes, now)?;
        for kind in QuotaKind::ALL {
            *self.0.entry((kind, owners.id(kind))).or_default() += bytes;
        }
        Ok(())
    }

    /// Whether owners' limits allow `bytes` bytes more than the used and reserved ones.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`] if not, a broken quota file, or the device failed.
    pub fn check_limits<S: MetadataRead>(
        &self,
        source: &S,
        owners: Owners,
        bytes: u64,
        now: i64,
    ) -> Result<(), Error> {
        let usage = Usage { space: i64::try_from(bytes).unwrap_or(i64::MAX), inodes: 0 };
        for (kind, _) in files(source).filter(|(kind, _)| source.info().enforces(*kind)) {
            let id = owners.id(kind);
            let Some(mut record) = record(source, kind, id)? else { continue };
            let in_total = self.to(kind, id).saturating_add(bytes);
            record.space = record.space.saturating_add(in_total);
            if is_exceeded(&record, usage, now) {
                return Err(Error::QuotaExceeded);
            }
        }
        Ok(())
    }

    /// Gives a reservation back.
    pub fn take_back(&mut self, owners: Owners, bytes: u64) {
        for kind in QuotaKind::ALL {
            if let Entry::Occupied(mut entry) = self.0.entry((kind, owners.id(kind))) {
                *entry.get_mut() = entry.get().saturating_sub(bytes);
                if *entry.get() == 0 {
                    entry.remove();
                }
            }
        }
    }

    /// Whether nothing is reserved.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The quota files of the volume.
fn files<S: MetadataRead>(source: &S) -> impl Iterator<Item = (QuotaKind, InodeNo)> + use<S> {
    let info = source.info();
    let files = QuotaKind::ALL.map(|kind| info.quota_file(kind).map(|number| (kind, number)));
    files.into_iter().flatten()
}

/// The volume's own files except its root are charged to no owner, nor are values of attributes:
/// the files that refer to them are charged.
fn is_exempt<S: MetadataRead>(source: &S, file: &LoadedInode) -> bool {
    let is_reserved = file.number < source.geometry().first_inode && file.number != InodeNo::ROOT;
    is_reserved
        || file.flags.contains(InodeFlags::EA_INODE)
        || files(source).any(|(_, number)| number == file.number)
}

/// The change of one ID's use.
#[derive(Clone, Copy, Debug)]
struct Change {
    kind: QuotaKind,
    number: InodeNo,
    id: u32,
    usage: Usage,
}

/// All changes or none. Records are added, then checked, then written.
fn apply<E: Edit>(
    edit: &mut E,
    reserved: &ReservedQuota,
    changes: &[Change],
    limits: Limits,
) -> Result<(), Error> {
    let now = edit.now().seconds;
    let mut planned = Vec::with_capacity(changes.len());
    for change in changes {
        let mut file = QuotaFile::open(edit, change.kind, change.number)?;
        let found = file.find_or_add(edit, change.id)?;
        let mut record = found.record;
        record.space = record.space.saturating_add_signed(change.usage.space);
        record.inodes = record.inodes.saturating_add_signed(change.usage.inodes);
        let used = QuotaRecord {
            space: record.space.saturating_add(reserved.to(change.kind, change.id)),
            ..record
        };
        let is_enforced = limits == Limits::Enforced && edit.info().enforces(change.kind);
        if is_enforced && is_exceeded(&used, change.usage, now) {
            return Err(Error::QuotaExceeded);
        }
        settle(&mut record, &file.header, now);
        planned.push((file, found, record));
    }
    for (file, found, record) in planned {
        file.write_record(edit, found, &record)?;
    }
    Ok(())
}

/// Whether a record breaks its limits with what was just added.
fn is_exceeded(record: &QuotaRecord, usage: Usage, now: i64) -> bool {
    let breaks = |added: i64, used: u64, hard: u64, soft: u64, time: u64| {
        let is_late = time != 0 && i64::try_from(time).is_ok_and(|time| now >= time);
        added > 0 && (hard != 0 && used > hard || soft != 0 && used > soft && is_late)
    };
    let (hard, soft) = (space_limit(record.block_hard), space_limit(record.block_soft));
    breaks(usage.space, record.space, hard, soft, record.block_time)
        || breaks(
            usage.inodes,
            record.inodes,
            record.inode_hard,
            record.inode_soft,
            record.inode_time,
        )
}

/// Starts and ends grace times.
fn settle(record: &mut QuotaRecord, header: &QuotaHeader, now: i64) {
    let time = |used: u64, soft: u64, time: u64, grace: u32| match time {
        _ if soft == 0 || used <= soft => 0,
        0 => now.saturating_add(i64::from(grace)).max(1).cast_unsigned(),
        running => running,
    };
    let soft = space_limit(record.block_soft);
    record.block_time = time(record.space, soft, record.block_time, header.block_grace);
    record.inode_time =
        time(record.inodes, record.inode_soft, record.inode_time, header.inode_grace);
}

/// A limit of space in bytes: KiB are stored.
fn space_limit(kib: u64) -> u64 {
    kib.saturating_mul(1024)
}

/// A quota file: its inode and its header.
struct QuotaFile {
    kind: QuotaKind,
    inode: LoadedInode,
    header: QuotaHeader,
}

impl QuotaFile {
    fn open<S: MetadataRead>(source: &S, kind: QuotaKind, number: InodeNo) -> Result<Self, Error> {
        let inode = load(source, number)?;
        let header = header(source, kind, &inode)?;
        Ok(Self { kind, inode, header })
    }

    fn find<S: MetadataRead>(&self, source: &S, id: u32) -> Result<QuotaPath, Error> {
        let read = |block| read_block(source, &self.inode, block);
        QuotaTree::new(self.header, self.inode.number, read).find(id)
    }

    fn flaw(&self, block: u32, rule: &'static str) -> Error {
        Flaw::Rule(rule).at(Location::Quota(self.inode.number, block)).into()
    }

    /// The place of an ID's record; a record of zeros is added if it is missing.
    fn find_or_add<E: Edit>(&mut self, edit: &mut E, id: u32) -> Result<FoundRecord, Error> {
        let path = self.find(edit, id)?;
        if let Some(found) = path.found {
            return Ok(found);
        }
        // Everything that can be refused comes first: the file grows by all that may be needed.
        self.grow(edit, QUOTA_DEPTH - path.nodes.len() + 1)?;
        let (leaf, at) = self.add_record(edit, id)?;
        let digits = id.to_be_bytes();
        let mut below = leaf;
        for level in (path.nodes.len()..QUOTA_DEPTH).rev() {
            let node = self.take_block(edit)?;
            change_block(edit, &self.inode, node, |block| {
                block.fill(0);
                set_number(block, digits[level], below);
            })?;
            below = node;
        }
        let last = path.nodes.len() - 1;
        change_block(edit, &self.inode, path.nodes[last], |block| {
            set_number(block, digits[last], below);
        })?;
        self.write_header(edit)?;
        Ok(FoundRecord { leaf, at, record: QuotaRecord { id, ..QuotaRecord::default() } })
    }

    /// Puts a record of zeros into a leaf that has room: the leaf and the byte.
    fn add_record<E: Edit>(&mut self, edit: &mut E, id: u32) -> Result<(u32, usize), Error> {
        let mut leaf = self.header.free_entry;
        if leaf == 0 {
            leaf = self.take_block(edit)?;
            change_block(edit, &self.inode, leaf, |block| block.fill(0))?;
            self.header.free_entry = leaf;
        }
        let bytes = read_block(edit, &self.inode, leaf)?;
        let (at, _) = slots(&bytes)
            .find(|(_, raw)| QuotaRecord::decode(raw).is_none())
            .ok_or_else(|| self.flaw(leaf, "a leaf of the list of leaves with room is full"))?;
        let record = QuotaRecord { id, ..QuotaRecord::default() };
        let next = change_block(edit, &self.inode, leaf, |block| {
            put(block, at, record.encode().as_bytes());
            let mut head = leaf_header(block);
            let entries = head.dqdh_entries.get().saturating_add(1);
            head.dqdh_entries.set(entries);
            let next = head.dqdh_next_free.get();
            let is_full = usize::from(entries) >= RECORDS_PER_LEAF;
            if is_full {
                head.dqdh_next_free.set(0);
                head.dqdh_prev_free.set(0);
            }
            put(block, 0, head.as_bytes());
            is_full.then_some(next)
        })?;
        if let Some(next) = next {
            // A full leaf leaves the list, whose first it was.
            self.check_number(leaf, next)?;
            self.header.free_entry = next;
            if next != 0 {
                change_block(edit, &self.inode, next, |block| {
                    let mut head = leaf_header(block);
                    head.dqdh_prev_free.set(0);
                    put(block, 0, head.as_bytes());
                })?;
            }
        }
        Ok((leaf, at))
    }

    fn check_number(&self, at: u32, number: u32) -> Result<(), Error> {
        if number < self.header.blocks {
            return Ok(());
        }
        let flaw = Flaw::above_limit("block number", number, self.header.blocks - 1);
        Err(flaw.at(Location::Quota(self.inode.number, at)).into())
    }

    /// An unused block of the file: from the list of free blocks, else one after the last.
    /// [`Self::grow`] has made room there.
    fn take_block<E: Edit>(&mut self, edit: &mut E) -> Result<u32, Error> {
        let free = self.header.free_block;
        if free == 0 {
            self.header.blocks += 1;
            return Ok(self.header.blocks - 1);
        }
        let next = leaf_header(&read_block(edit, &self.inode, free)?).dqdh_next_free.get();
        self.check_number(free, next)?;
        self.header.free_block = next;
        Ok(free)
    }

    /// Makes room for `blocks` more blocks in the file: the header does not count them yet.
    fn grow<E: Edit>(&mut self, edit: &mut E, blocks: usize) -> Result<(), Error> {
        let end = (u64::from(self.header.blocks) + blocks as u64) * QUOTA_BLOCK_SIZE as u64;
        if end / QUOTA_BLOCK_SIZE as u64 > u64::from(u32::MAX) {
            return Err(Error::FileTooLarge);
        }
        if end <= self.inode.size {
            return Ok(());
        }
        let block_size = u64::from(edit.geometry().block_size);
        let number = self.inode.number;
        let mut at = FileBlock(self.inode.size.div_ceil(block_size));
        while at.0 * block_size < end {
            if map(edit, &self.inode, at)?.is_hole() {
                let request = AllocationRequest {
                    inode: number,
                    purpose: Purpose::Metadata,
                    goal: None,
                    count: 1,
                    part: None,
                };
                let run =
                    mapping::allocate(edit, &mut self.inode, at, request, ExtentState::Written)?;
                edit.create(run.start, BlockKind::Contents, |_| ())?;
            }
            at = FileBlock(at.0 + 1);
        }
        self.inode.inode.size = end;
        write_inode(edit, number, &self.inode.inode)
    }

    fn write_header<E: Edit>(&self, edit: &mut E) -> Result<(), Error> {
        let (header, kind) = (self.header, self.kind);
        let written = change_block(edit, &self.inode, 0, |block| header.encode_into(kind, block))?;
        Ok(written.map_err(|flaw| flaw.at(Location::Quota(self.inode.number, 0)))?)
    }

    fn write_record<E: Edit>(
        &self,
        edit: &mut E,
        found: FoundRecord,
        record: &QuotaRecord,
    ) -> Result<(), Error> {
        change_block(edit, &self.inode, found.leaf, |block| {
            put(block, found.at, record.encode().as_bytes());
        })
    }
}

fn change_block<E: Edit, R>(
    edit: &mut E,
    file: &LoadedInode,
    block: u32,
    change: impl FnOnce(&mut [u8]) -> R,
) -> Result<R, Error> {
    let (physical, at) = place(edit, file, block)?;
    edit.modify(physical, BlockKind::Contents, |bytes| {
        change(&mut bytes[at..at + QUOTA_BLOCK_SIZE])
    })
}

fn leaf_header(block: &[u8]) -> RawQuotaLeafHeader {
    RawQuotaLeafHeader::read_from_prefix(block).map(|(head, _)| head).unwrap_or_default()
}

fn set_number(node: &mut [u8], digit: u8, number: u32) {
    put(node, usize::from(digit) * 4, &number.to_le_bytes());
}

fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
    block[at..at + bytes.len()].copy_from_slice(bytes);
}
