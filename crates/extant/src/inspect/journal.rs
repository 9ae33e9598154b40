//! The transactions that a volume's journal still holds, and what their blocks are.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use extant_device::{Device, FileDeviceOptions};
use extant_journal::{
    ExternalJournal, JournalError, JournalLocation, Log, LogHistory, LoggedTransaction, NotOpened,
};
use extant_layout::groups::leading;
use extant_ondisk::dirent::DirFormat;
use extant_ondisk::extent::{self, EXTENT_MAGIC};
use extant_ondisk::orphan_file::ORPHAN_BLOCK_MAGIC;
use extant_ondisk::xattr::XATTR_MAGIC;
use extant_ondisk::{BlockNo, FileBlock, Geometry, IncompatFeatures, InodeNo};
use serde::Serialize;

use super::raw_view::{InspectError, RawView};
use super::summary::JournalSummary;

/// A journal and its transactions, as `extant journal --json` shows them.
#[derive(Clone, Debug, Serialize)]
pub struct JournalReport {
    /// The journal's superblock.
    #[serde(flatten)]
    pub journal: JournalSummary,
    /// The kind of its checksums: `none`, `v1`, `v2` or `v3`.
    pub checksums: &'static str,
    /// Whether transactions must be replayed.
    pub needs_replay: bool,
    /// The transaction from which on the journal holds all up to the last one; `None` where it does
    /// not hold the last one whole, and with fast commits.
    pub complete_from: Option<u32>,
    /// The transactions, the oldest first.
    pub transactions: Vec<TransactionSummary>,
}

/// A committed transaction of which a journal holds blocks.
#[derive(Clone, Debug, Serialize)]
pub struct TransactionSummary {
    /// Its number.
    pub tid: u32,
    /// The time of its commit, in seconds since 1970.
    pub committed: i64,
    /// The journal block of the first of its blocks.
    pub start: u32,
    /// Number of its journal blocks.
    pub journal_blocks: u32,
    /// Whether it is known that none of them is missing.
    pub is_whole: bool,
    /// Whether it must be replayed.
    pub needs_replay: bool,
    /// Number of copies of blocks.
    pub copies: u32,
    /// Number of copies that fail their checksums.
    pub bad_copies: u32,
    /// Number of revoke records.
    pub revoked: u64,
    /// Number of copies by what the blocks are. Superblocks, descriptors, bitmaps and inode tables
    /// are known by their place, the others by their content.
    pub kinds: BTreeMap<BlockKind, u32>,
}

/// The kind of a logged block.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockKind {
    /// The superblock or a backup of it.
    Superblock,
    /// Group descriptors, or blocks reserved for them.
    GroupDescriptors,
    /// A block bitmap.
    BlockBitmap,
    /// An inode bitmap.
    InodeBitmap,
    /// Inodes.
    InodeTable,
    /// A directory's names, or a node of its index.
    Directory,
    /// A node of an extent tree.
    Extents,
    /// Extended attributes.
    Xattrs,
    /// A block of the orphan file.
    OrphanFile,
    /// A map of an ext2 file, or contents of a file.
    Other,
}

impl BlockKind {
    /// The kind in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Superblock => "superblock",
            Self::GroupDescriptors => "group descriptors",
            Self::BlockBitmap => "block bitmap",
            Self::InodeBitmap => "inode bitmap",
            Self::InodeTable => "inode table",
            Self::Directory => "directory",
            Self::Extents => "extents",
            Self::Xattrs => "extended attributes",
            Self::OrphanFile => "orphan file",
            Self::Other => "other",
        }
    }
}

/// Reads the journal of a volume, also one on a device of its own. Nothing is replayed.
///
/// # Errors
/// The volume has no journal, the journal is not found or not valid, or a device failed.
pub fn journal_report(view: &RawView, geometry: &Geometry) -> Result<JournalReport, InspectError> {
    let (device, place) = locate_journal(view, geometry)?;
    let log = Log { device: &*device, place: &place };
    let (_, mut superblock) = log.superblock()?;
    if !view.superblock.features.incompat.contains(IncompatFeatures::RECOVER) {
        superblock.start = 0;
    }
    let history = LogHistory::read(&log, &superblock)?;
    let by_place = KnownPlaces::of(view, geometry, &history);
    let transactions = history.transactions.iter().map(|transaction| {
        let mut kinds = BTreeMap::new();
        for copy in &transaction.copies {
            let kind = match by_place.kind(copy.home) {
                Some(kind) => kind,
                None => kind_of(&copy.read(&log)?, geometry),
            };
            *kinds.entry(kind).or_default() += 1;
        }
        Ok(TransactionSummary::new(transaction, kinds))
    });
    Ok(JournalReport {
        checksums: superblock.checksum().name(),
        needs_replay: history.transactions.iter().any(|it| it.needs_replay),
        complete_from: history.complete_from.map(|tid| tid.0),
        transactions: transactions.collect::<Result<_, InspectError>>()?,
        journal: JournalSummary::new(&superblock),
    })
}

/// The device that holds the journal, and where.
pub(crate) fn locate_journal(
    view: &RawView,
    geometry: &Geometry,
) -> Result<(Arc<dyn Device>, JournalLocation), InspectError> {
    let needed = match JournalLocation::internal(&*view.device, &view.raw, geometry) {
        Err(JournalError::ExternalJournalNeeded(uuid)) => uuid,
        place => return Ok((view.device.clone(), place?)),
    };
    let missing = || JournalError::ExternalJournalNeeded(needed);
    let journal = ExternalJournal::named_by(&view.raw).ok_or_else(missing)?;
    let opened = journal.open(&FileDeviceOptions::new()).map_err(|error| match error {
        NotOpened::Journal(error) => InspectError::Journal(error),
        NotOpened::File(error) => InspectError::JournalDevice(error),
    })?;
    let device = opened.ok_or_else(missing)?;
    let place = JournalLocation::external(&*device, &view.raw, geometry)?;
    Ok((device, place))
}

impl TransactionSummary {
    fn new(transaction: &LoggedTransaction, kinds: BTreeMap<BlockKind, u32>) -> Self {
        Self {
            tid: transaction.tid.0,
            committed: transaction.committed.seconds,
            start: transaction.start,
            journal_blocks: transaction.len,
            is_whole: transaction.is_whole,
            needs_replay: transaction.needs_replay,
            // No more than the journal has blocks.
            copies: transaction.copies.len() as u32,
            bad_copies: transaction.bad_copies,
            revoked: transaction.revoked.len() as u64,
            kinds,
        }
    }
}

/// The logged blocks that are known by their place.
struct KnownPlaces {
    /// In order, each once.
    homes: Vec<(BlockNo, Option<BlockKind>)>,
}

impl KnownPlaces {
    /// Descriptors that cannot be read, and places off the volume, tell nothing.
    fn of(view: &RawView, geometry: &Geometry, history: &LogHistory) -> Self {
        let copies = |it: &LoggedTransaction| it.copies.clone();
        let mut homes: Vec<_> =
            history.transactions.iter().flat_map(copies).map(|copy| (copy.home, None)).collect();
        homes.sort_unstable_by_key(|home| home.0);
        homes.dedup_by_key(|home| home.0);
        let mut places = Self { homes };
        for described in view.descriptors(geometry).filter_map(Result::ok) {
            let (group, desc) = (described.group, described.desc);
            let leading = leading(geometry, group);
            let table = desc.inode_table.0;
            let of = |block: BlockNo| block.0..block.0.saturating_add(1);
            places.mark(leading.descriptors, BlockKind::GroupDescriptors);
            places.mark(leading.reserved, BlockKind::GroupDescriptors);
            places.mark(of(desc.block_bitmap), BlockKind::BlockBitmap);
            places.mark(of(desc.inode_bitmap), BlockKind::InodeBitmap);
            places.mark(
                table..table.saturating_add(geometry.itable_blocks().into()),
                BlockKind::InodeTable,
            );
            if let Some(block) = leading.superblock {
                places.mark(of(block), BlockKind::Superblock);
            }
        }
        places
    }

    fn mark(&mut self, blocks: Range<u64>, kind: BlockKind) {
        let from = self.homes.partition_point(|home| home.0.0 < blocks.start);
        let marked = self.homes.iter_mut().skip(from).take_while(|home| home.0.0 < blocks.end);
        marked.for_each(|home| home.1 = Some(kind));
    }

    fn kind(&self, block: BlockNo) -> Option<BlockKind> {
        let at = self.homes.binary_search_by_key(&block, |home| home.0).ok()?;
        self.homes[at].1
    }
}

/// The kind of a block by its content.
fn kind_of(block: &[u8], geometry: &Geometry) -> BlockKind {
    let word = |at: usize| {
        let bytes = block.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    };
    // The magic number of a block of the orphan file is before its checksum, at the end.
    let tail = block.len().saturating_sub(8);
    // A directory may begin with the same number: that of its inode.
    let has_capacity = word(4) & 0xffff == u32::from(extent::capacity(block.len()));
    if word(0) & 0xffff == u32::from(EXTENT_MAGIC) && has_capacity {
        BlockKind::Extents
    } else if word(0) == XATTR_MAGIC {
        BlockKind::Xattrs
    } else if word(tail) == ORPHAN_BLOCK_MAGIC {
        BlockKind::OrphanFile
    } else if is_directory(block, geometry) {
        BlockKind::Directory
    } else {
        BlockKind::Other
    }
}

/// Whether the whole block is names of a directory, or a node of an index, which looks like one
/// free entry.
fn is_directory(block: &[u8], geometry: &Geometry) -> bool {
    let mut format = DirFormat::new(geometry, InodeNo(0), 0);
    format.block_len = block.len();
    let mut entries = format.entries(block, FileBlock(0)).peekable();
    entries.peek().is_some() && entries.all(|entry| entry.is_ok())
}
