//! Opening a volume for reading.

use crate::cache::BlockCache;
use crate::error::Error;
use crate::info::VolumeInfo;
use crate::read::ahead::FileReadAhead;
use crate::read::dir::BrokenIndex;
use crate::read::inode_tables;
use crate::reader::Reader;
use crate::torn;
use extant_device::{Device, OverlayDevice};
use extant_journal::{Finish, Recovered, recover_volume};
use extant_offline::read_superblock;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, Superblock};
use extant_ondisk::{
    BlockNo, CompatFeatures, Flaw, FormatError, Geometry, GroupNo, IncompatFeatures, Location,
};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Bytes of metadata blocks kept in memory by default.
const DEFAULT_CACHE: u64 = 64 << 20;

/// Blocks of an inode table that are read at once: the kernel's default.
pub const DEFAULT_TABLE_RUN: u32 = 32;

/// Which superblock a volume is opened by.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum SuperblockAt {
    /// The first one, at byte 1,024.
    #[default]
    Primary,
    /// A backup: the block that it starts, and the block size in bytes (as `e2fsck -b` and `-B`
    /// take them). The descriptors that belong to it are used too.
    Backup {
        /// Block number.
        block: u64,
        /// Bytes a block.
        block_size: u32,
    },
    /// A backup that starts this block, of any block size.
    Block(u64),
    /// A backup at this byte of the device; its own block size gives the number of the block.
    BackupAt {
        /// Bytes.
        offset: u64,
    },
}

/// The treatment of a journal that must be replayed. The device itself is never written.
#[derive(Clone, Debug, Default)]
pub enum Journal {
    /// Replayed into memory, so that reading sees what the next mount would.
    #[default]
    Replay,
    /// The same with a journal on a device of its own.
    ReplayExternal(Arc<dyn Device>),
    /// Left alone: the volume is read as it lies, which may be inconsistent.
    Ignore,
    /// The volume is refused: [`Error::NeedsRecovery`].
    Refuse,
}

/// How a volume is opened for reading.
#[derive(Clone, Debug)]
pub struct ReaderOptions {
    /// Which superblock.
    pub superblock: SuperblockAt,
    /// The treatment of a journal that must be replayed.
    pub journal: Journal,
    /// The way of a lookup when a directory's index is broken.
    pub on_broken_index: BrokenIndex,
    /// Bytes of metadata blocks kept in memory.
    pub cache_size: u64,
    /// Blocks of an inode table that are read at once at most, where one of them is not in memory
    /// (`inode_readahead_blks=`); 0 or 1: only that one. Fewer where memory is short.
    pub inode_readahead_blks: u32,
}

impl Default for ReaderOptions {
    fn default() -> Self {
        Self {
            superblock: SuperblockAt::default(),
            journal: Journal::default(),
            on_broken_index: BrokenIndex::default(),
            cache_size: DEFAULT_CACHE,
            inode_readahead_blks: DEFAULT_TABLE_RUN,
        }
    }
}

/// Refuses a device for the journal of a volume that has its journal inside.
pub fn check_journal_device(
    is_given: bool,
    geometry: &Geometry,
    superblock: &Superblock,
) -> Result<(), Error> {
    let has_journal = geometry.has_compat(CompatFeatures::HAS_JOURNAL);
    if is_given && has_journal && superblock.journal_inode.is_some() {
        return Err(Error::Options("journal device given, but the volume has an internal journal"));
    }
    Ok(())
}

impl ReaderOptions {
    /// Opens the volume on a device for reading. Nothing is ever written to the device. Descriptors
    /// are read when they are needed, so the time does not depend on the volume's size.
    ///
    /// # Errors
    /// Not ext2, ext3 or ext4; an unknown feature, by name; a broken superblock; a volume that is
    /// larger than its device; a journal that cannot be replayed; or the device failed.
    pub fn open(&self, device: Arc<dyn Device>) -> Result<Reader, Error> {
        let device = self.with_whole_superblock(device)?;
        let (raw, backup) = self.find_superblock(&*device)?;
        let geometry = Geometry::new(&raw)?;
        check_size(&geometry, &*device)?;
        let is_given = matches!(self.journal, Journal::ReplayExternal(_));
        check_journal_device(is_given, &geometry, &Superblock::decode(&raw))?;
        let needs_recovery = geometry.has_incompat(IncompatFeatures::RECOVER)
            && geometry.has_compat(CompatFeatures::HAS_JOURNAL);
        let opened = Opened { device, raw, geometry, recovered: None };
        let opened = match &self.journal {
            _ if !needs_recovery => opened,
            Journal::Ignore => opened,
            Journal::Refuse => return Err(Error::NeedsRecovery),
            Journal::Replay => opened.replay(None)?,
            Journal::ReplayExternal(journal) => opened.replay(Some(&**journal))?,
        };
        let info = VolumeInfo::new(opened.geometry, opened.raw)?;
        let cache = BlockCache::new(self.cache_size, info.geometry.block_size);
        let table_run = inode_tables::longest_run(
            self.inode_readahead_blks,
            self.cache_size,
            info.geometry.block_size,
        );
        Ok(Reader {
            info,
            device: opened.device,
            cache,
            backup,
            recovered: opened.recovered,
            on_broken_index: self.on_broken_index,
            ahead: FileReadAhead::default(),
            table_run,
        })
    }

    /// The device, or if its superblock was torn by power loss and the log's replay will restore
    /// it, an overlay with a superblock that finds the log.
    fn with_whole_superblock(&self, device: Arc<dyn Device>) -> Result<Arc<dyn Device>, Error> {
        let external = match &self.journal {
            Journal::Replay => None,
            Journal::ReplayExternal(journal) => Some(&**journal),
            Journal::Ignore | Journal::Refuse => return Ok(device),
        };
        if self.superblock != SuperblockAt::Primary {
            return Ok(device);
        }
        let Some(superblock) = torn::repair_torn_superblock(&device, external)? else {
            return Ok(device);
        };
        let overlay = OverlayDevice::new(device);
        overlay.write_at(SUPERBLOCK_OFFSET, superblock.as_bytes())?;
        Ok(Arc::new(overlay))
    }

    /// The requested superblock, verified, and the group that it is a backup in.
    fn find_superblock(&self, device: &dyn Device) -> Result<FoundSuperblock, Error> {
        match self.superblock {
            SuperblockAt::Primary => superblock_at_byte(device, SUPERBLOCK_OFFSET, None),
            SuperblockAt::BackupAt { offset } => superblock_at_byte(device, offset, None),
            SuperblockAt::Backup { block, block_size } => {
                superblock_in_block(device, block, block_size)
            }
            SuperblockAt::Block(block) => {
                let found = BLOCK_SIZES.map(|size| superblock_in_block(device, block, size));
                let nothing =
                    Flaw::Rule("no backup superblock").at(Location::Block(BlockNo(block)));
                found.into_iter().find_map(Result::ok).ok_or(nothing.into())
            }
        }
    }
}

/// Every size that blocks may have, in bytes.
const BLOCK_SIZES: [u32; 7] = [1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16];

/// A superblock, and the group that it is a backup in.
type FoundSuperblock = (RawSuperblock, Option<GroupNo>);

/// The block of a sound backup superblock, for a volume whose primary one is corrupt; the groups
/// with the first backups are tried, in the usual size. `None` if each of them is
/// corrupt or missing, and where the volume is larger than the device.
pub fn find_backup_superblock(device: &dyn Device) -> Option<u64> {
    // With sparse_super the powers of 3, 5 and 7; the others have a backup in group 1.
    const GROUPS: [u64; 8] = [1, 3, 5, 7, 9, 25, 27, 49];
    BLOCK_SIZES.into_iter().find_map(|size| {
        // A bitmap of one block; the first block of 1 KiB is the boot sector's.
        let (blocks, first) = (8 * u64::from(size), u64::from(size == 1024));
        GROUPS.map(|group| first + group * blocks).into_iter().find(|block| {
            let found = superblock_in_block(device, *block, size);
            let geometry = found.and_then(|(raw, _)| Ok(Geometry::new(&raw)?));
            geometry.is_ok_and(|geometry| check_size(&geometry, device).is_ok())
        })
    })
}

fn superblock_in_block(
    device: &dyn Device,
    block: u64,
    block_size: u32,
) -> Result<FoundSuperblock, Error> {
    let at = block.checked_mul(u64::from(block_size)).ok_or_else(|| {
        Flaw::bad_value("block of the backup superblock", block).at(Location::Volume)
    })?;
    superblock_at_byte(device, at, Some(block_size))
}

/// The superblock at a byte of the device, verified; `stated_size` are the bytes of a block, where
/// they are known.
fn superblock_at_byte(
    device: &dyn Device,
    at: u64,
    stated_size: Option<u32>,
) -> Result<FoundSuperblock, Error> {
    // The block that holds the first superblock holds it from byte 1,024 on.
    let at = at.max(SUPERBLOCK_OFFSET);
    let raw = read_superblock(device, at)?;
    if at == SUPERBLOCK_OFFSET {
        raw.verify(GroupNo(0)).map_err(FormatError::of_primary)?;
        return Ok((raw, None));
    }
    let group = GroupNo(u32::from(raw.s_block_group_nr.get()));
    raw.verify(group)?;
    let geometry = Geometry::new(&raw)?;
    // The stored group number has 16 bits; the position gives the rest.
    let block_size = u64::from(geometry.block_size);
    let block = BlockNo(at / block_size);
    let lies_in = geometry.group_of(block).unwrap_or(group);
    let is_elsewhere = !at.is_multiple_of(block_size)
        || stated_size.is_some_and(|stated| stated != geometry.block_size);
    if is_elsewhere || geometry.group_start(lies_in) != block {
        let rule = Flaw::Rule("superblock is not at its own place");
        return Err(rule.at(Location::Superblock(group)).into());
    }
    Ok((raw, Some(lies_in)))
}

impl Reader {
    /// Opens a volume for reading with the default [`ReaderOptions`]: a journal that must be
    /// replayed is replayed into memory.
    ///
    /// # Errors
    /// As [`ReaderOptions::open`].
    pub fn open(device: Arc<dyn Device>) -> Result<Self, Error> {
        ReaderOptions::default().open(device)
    }
}

struct Opened {
    device: Arc<dyn Device>,
    raw: RawSuperblock,
    geometry: Geometry,
    recovered: Option<Recovered>,
}

impl Opened {
    /// Replays the journal into an overlay, and reads the superblock that this gives.
    fn replay(self, external: Option<&dyn Device>) -> Result<Self, Error> {
        let overlay = OverlayDevice::new(self.device);
        let recovered = recover_volume(&overlay, external, Finish::Leave)?;
        let device: Arc<dyn Device> = Arc::new(overlay);
        let raw = read_superblock(&*device, SUPERBLOCK_OFFSET)?;
        raw.verify(GroupNo(0))?;
        let geometry = Geometry::new(&raw)?;
        check_size(&geometry, &*device)?;
        Ok(Self { device, raw, geometry, recovered })
    }
}

/// Refuses a volume that is larger than its device.
///
/// # Errors
/// [`Error::DeviceTooSmall`].
pub fn check_size(geometry: &Geometry, device: &dyn Device) -> Result<(), Error> {
    // 48 bits of blocks and 16 of their size.
    let volume = geometry.blocks_count.saturating_mul(u64::from(geometry.block_size));
    if volume > device.size() {
        return Err(Error::DeviceTooSmall { volume, device: device.size() });
    }
    Ok(())
}
