//! The changes of an operation in the terms of a fast commit: files, ranges and names. Every other
//! change must follow from these, or the operation is committed by a transaction.

use crate::engine::Engine;
use crate::options::DataMode;
use extant_journal::{FastChanges, FastFile, FastName, FastNameChange, FastRange};
use extant_ondisk::extent::{EXTENT_MAGIC, Extent, RawExtentHeader};
use extant_ondisk::inode::{FileType, GOOD_OLD_INODE_SIZE, InodeFlags, RawInode, RawInodeExtra};
use extant_ondisk::{
    CompatFeatures, FileBlock, Geometry, IncompatFeatures, InodeNo, RoCompatFeatures,
};
use extant_reader::read::inode::{self, LoadedInode};
use extant_reader::read::mapping::{MappingTarget, map};
use extant_reader::{BlockKind, Error, VolumeInfo};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use zerocopy::FromBytes;

/// Ranges that an operation may change; with more the area fills up soon.
const MOST_RANGES: usize = 64;

/// Why there is no fast commit where the last name of a file is removed: e2fsck 1.47.0 leaves the
/// file without one.
pub(super) const REMOVED: &str = "a file that is removed";

/// Bytes that a record of an inode has in addition to the inode: tag, length and number.
const RECORD_HEAD: usize = 8;

/// Flags of files whose changes fast commits do not describe.
const NOT_DESCRIBED: InodeFlags = InodeFlags::INLINE_DATA
    .union(InodeFlags::ENCRYPT)
    .union(InodeFlags::VERITY)
    .union(InodeFlags::EA_INODE);
/// Flags of directories whose names fast commits do not describe.
const NOT_DESCRIBED_DIR: InodeFlags =
    InodeFlags::INLINE_DATA.union(InodeFlags::ENCRYPT).union(InodeFlags::CASEFOLD);

/// Whether the volume has fast commits. With quotas and values in inodes of their own a file's
/// change is not all in its inode, and e2fsck 1.47.0 loses files when it replays fast commits with
/// bigalloc.
pub(crate) fn is_possible(geometry: &Geometry, info: &VolumeInfo, data: DataMode) -> bool {
    geometry.has_compat(CompatFeatures::FAST_COMMIT)
        && data != DataMode::Journal
        && info.maps_by_extents
        && !geometry.has_ro_compat(RoCompatFeatures::QUOTA)
        && !geometry.has_ro_compat(RoCompatFeatures::BIGALLOC)
        && !geometry.has_incompat(IncompatFeatures::EA_INODE)
}

/// The changes of an operation so far.
#[derive(Debug, Default)]
pub(super) struct Described {
    refused: Option<&'static str>,
    names: Vec<FastName>,
    /// Inodes whose records changed.
    records: BTreeSet<InodeNo>,
    /// Ranges that were mapped or unmapped.
    ranges: Vec<(InodeNo, Range<FileBlock>)>,
    /// Files whose map has changed.
    mapped: BTreeSet<InodeNo>,
    /// Directories whose blocks have changed.
    dirs: BTreeSet<InodeNo>,
    /// Directories in which more has changed than names and times.
    changed_dirs: BTreeSet<InodeNo>,
    has_cleared: bool,
    has_changed_orphans: bool,
    /// Files that became orphans, or are orphans no more.
    orphans: BTreeSet<InodeNo>,
}

impl Described {
    pub(super) fn refuse(&mut self, reason: &'static str) {
        self.refused.get_or_insert(reason);
    }

    /// A block is changed.
    pub(super) fn block(&mut self, kind: BlockKind) {
        match kind {
            // They follow from files and names.
            BlockKind::Descriptors | BlockKind::Bitmap { .. } => {}
            BlockKind::Superblock | BlockKind::OrphanFile { .. } => self.has_changed_orphans = true,
            BlockKind::ExtentNode { inode, .. } => {
                self.mapped.insert(inode);
            }
            BlockKind::DirBlock { inode, .. } | BlockKind::HtreeBlock { inode, .. } => {
                self.dirs.insert(inode);
            }
            BlockKind::XattrBlock => self.refuse("extended attributes"),
            BlockKind::Indirect { .. } => self.refuse("a file without extents"),
            // Records are described one by one.
            BlockKind::InodeTable { .. } => {}
            BlockKind::Contents => self.refuse("contents in the journal"),
        }
    }

    /// Records of an inode table are cleared. A replay that makes an inode in one of them keeps its
    /// map.
    pub(super) fn table(&mut self, before: &[u8], after: &[u8], geometry: &Geometry) {
        let size = usize::from(geometry.inode_size);
        let has_map = |record: &[u8]| {
            let root = RawInode::ref_from_prefix(record).map(|(raw, _)| &raw.i_block);
            let header = root.ok().and_then(|root| RawExtentHeader::ref_from_prefix(root).ok());
            header.is_some_and(|(header, _)| {
                header.eh_magic.get() == EXTENT_MAGIC && header.eh_entries.get() != 0
            })
        };
        let mut cleared = before.chunks(size).zip(after.chunks(size));
        if cleared.any(|(before, after)| before != after && has_map(before)) {
            self.refuse("an inode that has kept an old map");
        }
    }

    /// A block of an inode table is used for the first time, and was cleared on the device.
    pub(super) fn cleared(&mut self) {
        self.has_cleared = true;
    }

    pub(super) fn orphan(&mut self, number: InodeNo) {
        self.orphans.insert(number);
    }

    pub(super) fn range(&mut self, number: InodeNo, range: Range<FileBlock>) {
        self.ranges.push((number, range));
    }

    pub(super) fn name(
        &mut self,
        change: FastNameChange,
        dir: InodeNo,
        inode: InodeNo,
        name: &[u8],
    ) {
        self.names.push(FastName { change, dir, inode, name: name.to_vec() });
    }

    /// An inode's record is changed.
    pub(super) fn record(
        &mut self,
        number: InodeNo,
        before: &[u8],
        after: &[u8],
        geometry: &Geometry,
    ) {
        let (Ok((old, _)), Ok((new, _))) =
            (RawInode::ref_from_prefix(before), RawInode::ref_from_prefix(after))
        else {
            return self.refuse("a damaged inode");
        };
        if is_alike(before, after, |raw, _| raw.i_dtime.set(0)) {
            return;
        }
        let is_new = old.i_links_count.get() == 0;
        if new.i_links_count.get() == 0 {
            // Changes of a file without links may be lost with it.
            if !is_new {
                self.refuse(REMOVED);
            }
            return;
        }
        let (old_len, new_len) = (fields_len(before), fields_len(after));
        let (old_attributes, new_attributes) = (&before[old_len..], &after[new_len..]);
        let has_new_attributes = match is_new {
            true => new_attributes.iter().any(|byte| *byte != 0),
            false => old_len != new_len || old_attributes != new_attributes,
        };
        let acl = |raw: &RawInode| (raw.i_file_acl_lo.get(), raw.i_file_acl_high.get());
        let has_new_block = match is_new {
            true => acl(new) != (0, 0),
            false => acl(old) != acl(new),
        };
        if has_new_attributes || has_new_block {
            return self.refuse("extended attributes");
        }
        if number < geometry.first_inode && number != InodeNo::ROOT {
            return self.refuse("a file of the system");
        }
        self.records.insert(number);
        let flags = |raw: &RawInode| InodeFlags::from_bits_retain(raw.i_flags.get());
        let (old_flags, new_flags) = (flags(old), flags(new));
        match FileType::of_mode(new.i_mode.get()) {
            Some(FileType::Directory) => {
                if new_flags.intersects(NOT_DESCRIBED_DIR) {
                    return self.refuse("a directory that fast commits do not describe");
                }
                if !is_alike(before, after, clear_times) {
                    self.changed_dirs.insert(number);
                }
                if !is_alike(before, after, clear_names) {
                    self.refuse("fields of a directory");
                }
            }
            Some(FileType::Regular) => {
                let is_described = |flags: InodeFlags| {
                    flags.contains(InodeFlags::EXTENTS) && !flags.intersects(NOT_DESCRIBED)
                };
                if !is_described(new_flags) || !is_new && !is_described(old_flags) {
                    return self.refuse("a file without extents");
                }
                if !is_new && old.i_block != new.i_block {
                    self.mapped.insert(number);
                }
            }
            // Special files and links are not made by fast commits; some have blocks.
            _ if is_new => self.refuse("a special file"),
            _ if new_flags.intersects(NOT_DESCRIBED) => self.refuse("a file without extents"),
            _ => {}
        }
    }

    /// All of it for a fast commit, or why there can be none.
    pub(super) fn changes(self, engine: &Engine) -> Result<FastChanges, &'static str> {
        if let Some(reason) = self.refused {
            return Err(reason);
        }
        let named: BTreeSet<_> = self.names.iter().map(|name| name.dir).collect();
        if !self.dirs.is_subset(&named) || !self.changed_dirs.is_subset(&named) {
            return Err("other names than of files");
        }
        if self.has_changed_orphans && self.orphans.is_empty() {
            return Err("the superblock");
        }
        let mut changes = FastChanges {
            names: self.names,
            needs_flush: self.has_cleared,
            ..FastChanges::default()
        };
        let mut ranges = BTreeMap::<_, Vec<_>>::new();
        for (number, range) in self.ranges {
            ranges.entry(number).or_default().push(range);
        }
        for number in self.records.iter().chain(&self.mapped).copied().collect::<BTreeSet<_>>() {
            let (file, record) = engine.described(number).map_err(|_| "a damaged inode")?;
            if file.is_dir() {
                if self.mapped.contains(&number) && !named.contains(&number) {
                    return Err("other names than of files");
                }
                continue;
            }
            if file.links == 0 {
                continue;
            }
            if self.orphans.contains(&number) {
                return Err("truncation");
            }
            if record.len() + RECORD_HEAD > engine.geometry().block_len() {
                return Err("an inode as long as a block");
            }
            let changed = ranges.remove(&number).unwrap_or_default();
            if self.mapped.contains(&number) && changed.is_empty() {
                return Err("a map");
            }
            let ranges = mapped_ranges(engine, &file, &changed)?;
            changes.files.push(FastFile { inode: number, record, ranges });
        }
        Ok(changes)
    }
}

/// The fields of a record that fast commits log: 128 bytes and the extra fields.
fn fields_len(record: &[u8]) -> usize {
    let base = usize::from(GOOD_OLD_INODE_SIZE);
    let room = record.get(base..).unwrap_or_default();
    let extra = usize::from(RawInodeExtra::of_record(room).i_extra_isize.get());
    (base + extra).min(record.len())
}

/// Whether two records differ only in their checksums and what `clear` clears.
fn is_alike(before: &[u8], after: &[u8], clear: fn(&mut RawInode, &mut RawInodeExtra)) -> bool {
    let cleared = |record: &[u8]| {
        let mut record = record.to_vec();
        if let Ok((raw, room)) = RawInode::mut_from_prefix(&mut record) {
            raw.i_checksum_lo.set(0);
            let mut no_extra = RawInodeExtra::of_record(&[]);
            match RawInodeExtra::mut_from_prefix(room) {
                Ok((extra, _)) => {
                    extra.i_checksum_hi.set(0);
                    clear(raw, extra);
                }
                Err(_) => clear(raw, &mut no_extra),
            }
        }
        record
    };
    cleared(before) == cleared(after)
}

/// Clears times and counters of changes: of a directory, fast commits log none of them.
fn clear_times(raw: &mut RawInode, extra: &mut RawInodeExtra) {
    raw.i_dtime.set(0);
    for time in [&mut raw.i_atime, &mut raw.i_ctime, &mut raw.i_mtime, &mut raw.i_version_lo] {
        time.set(0);
    }
    for time in [
        &mut extra.i_atime_extra,
        &mut extra.i_ctime_extra,
        &mut extra.i_mtime_extra,
        &mut extra.i_version_hi,
    ] {
        time.set(0);
    }
}

/// Clears the fields of a directory that change with its names: a replay makes its blocks and its
/// index again.
fn clear_names(raw: &mut RawInode, extra: &mut RawInodeExtra) {
    clear_times(raw, extra);
    for size in [&mut raw.i_size_lo, &mut raw.i_size_high, &mut raw.i_blocks_lo] {
        size.set(0);
    }
    raw.i_blocks_high.set(0);
    raw.i_flags.set(raw.i_flags.get() & !InodeFlags::INDEX.bits());
    raw.i_block.fill(0);
}

/// How ranges are mapped now.
fn mapped_ranges(
    engine: &Engine,
    file: &LoadedInode,
    changed: &[Range<FileBlock>],
) -> Result<Vec<FastRange>, &'static str> {
    let mut ranges = Vec::new();
    for range in changed {
        let mut at = range.start;
        while at < range.end {
            if ranges.len() == MOST_RANGES {
                return Err("too many ranges");
            }
            let mapping = map(engine, file, at).map_err(|_| "a damaged map")?;
            let most = match mapping.target {
                MappingTarget::Hole => u32::MAX,
                MappingTarget::Written(_) => Extent::max_len(false),
                MappingTarget::Unwritten(_) => Extent::max_len(true),
            };
            let longest = FileBlock(at.0 + u64::from(most));
            let end = mapping.end().min(range.end).min(longest);
            // Logical blocks have 32 bits, and a range is no longer than `most`.
            let (first, len) = (at.0 as u32, (end.0 - at.0) as u32);
            let extent = |start, is_unwritten| {
                FastRange::Mapped(Extent { block: at, len, start, is_unwritten })
            };
            ranges.push(match mapping.target {
                MappingTarget::Hole => FastRange::Unmapped(first, len),
                MappingTarget::Written(start) => extent(start, false),
                MappingTarget::Unwritten(start) => extent(start, true),
            });
            at = end;
        }
    }
    Ok(ranges)
}

impl Engine {
    /// A file as its record is now, and the bytes of the record that fast commits log.
    fn described(&self, number: InodeNo) -> Result<(LoadedInode, Vec<u8>), Error> {
        let file = inode::load_any(self, number)?;
        let place = inode::place(self, number)?;
        let (block, _) = extant_reader::MetadataRead::inode_block(self, &place)?;
        let record = &block[place.bytes(self.geometry())];
        Ok((file, record[..fields_len(record)].to_vec()))
    }
}
