//! A volume's superblock, descriptors and bitmaps as they are stored. Nothing is replayed, and
//! checksums that do not match are reported and do not stop the view.

use std::sync::Arc;

use extant_device::{Device, DeviceError, FileError, errno};
use extant_journal::{JournalError, JournalLocation};
use extant_layout::groups::leading;
use extant_offline::{OfflineError, format_errno, read_primary_superblock, read_superblock};
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::group_desc::{self, GroupDesc, GroupFlags, RawGroupDesc};
use extant_ondisk::jbd2::RawJournalSuperblock;
use extant_ondisk::mmp::RawMmp;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, Superblock};
use extant_ondisk::{
    BlockNo, Features, Flaw, FormatError, Geometry, GroupNo, IncompatFeatures, InodeNo,
};
use zerocopy::{FromZeros, IntoBytes};

/// The superblock that a view shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct SuperblockChoice {
    /// The block of a backup; the primary superblock otherwise.
    pub block: Option<u64>,
    /// Bytes of a block; every possible size is tried otherwise.
    pub block_size: Option<u32>,
    /// Whether a primary superblock is shown although it fails its checksum.
    pub keeps_bad_checksum: bool,
}

/// A structure cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The bytes are not of the format.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The primary superblock cannot be read.
    #[error(transparent)]
    Superblock(#[from] OfflineError),
    /// The journal cannot be found.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// There is no superblock in that block, whatever the block size.
    #[error("no superblock in block {0}")]
    NoSuperblock(u64),
    /// The device of an external journal cannot be opened.
    #[error("external journal: {0}")]
    JournalDevice(FileError),
    /// The primary superblock has another block size than the one asked for.
    #[error("block size {wanted}: the superblock has {found}")]
    BlockSize {
        /// The superblock's, in bytes.
        found: u64,
        /// The one asked for.
        wanted: u32,
    },
    /// A bitmap that its descriptor places off the volume.
    #[error("bitmap of group {group}: block {block} is past the end of the volume")]
    BitmapOffVolume {
        /// The group.
        group: GroupNo,
        /// The block that the descriptor names.
        block: BlockNo,
    },
    /// A block of multiple mount protection that the superblock places off the volume.
    #[error("MMP block {0} is past the end of the volume")]
    MmpOffVolume(BlockNo),
}

impl InspectError {
    /// The number that a system call returns for it (`ENOENT` is 2).
    pub fn errno(&self) -> i32 {
        match self {
            Self::Device(error) => error.errno(),
            Self::Format(error) => format_errno(error),
            Self::Superblock(error) => error.errno(),
            Self::Journal(error) => error.errno(),
            Self::JournalDevice(error) => error.errno(),
            Self::BlockSize { .. } => errno::EINVAL,
            Self::NoSuperblock(_) | Self::BitmapOffVolume { .. } | Self::MmpOffVolume(_) => {
                errno::EUCLEAN
            }
        }
    }

    /// The kind of error in std's words.
    pub fn kind(&self) -> std::io::ErrorKind {
        errno::kind(self.errno())
    }
}

/// A volume's structures as they are stored.
#[derive(Clone, Debug)]
pub struct RawView {
    /// The device that holds the volume.
    pub device: Arc<dyn Device>,
    /// The superblock's bytes.
    pub raw: RawSuperblock,
    /// Their values.
    pub superblock: Superblock,
    /// The checksum that the superblock fails, where it is shown all the same.
    pub bad_checksum: Option<FormatError>,
}

impl RawView {
    /// Reads the superblock of the volume on a device.
    ///
    /// # Errors
    /// There is no superblock, or the device failed.
    pub fn new(device: Arc<dyn Device>, choice: SuperblockChoice) -> Result<Self, InspectError> {
        let (raw, bad_checksum) = find_superblock(&*device, choice)?;
        let superblock = Superblock::decode(&raw);
        Ok(Self { device, raw, superblock, bad_checksum })
    }

    /// Whether this is a journal device and no file system.
    pub fn is_journal_device(&self) -> bool {
        self.superblock.features.incompat.contains(IncompatFeatures::JOURNAL_DEV)
    }

    /// The checked figures. With `force` features that are not known are looked past.
    pub fn geometry(&self, force: bool) -> Result<Geometry, InspectError> {
        let mut raw = self.raw;
        if force {
            let features = raw.features();
            let incompat = features.incompat.intersection(IncompatFeatures::READABLE);
            raw.set_features(Features { incompat, ..features });
        }
        Ok(Geometry::new(&raw)?)
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), InspectError> {
        Ok(self.device.read_at(at, bytes)?)
    }

    /// The descriptors, a block of them at a time, each with what its checksum has to say.
    pub fn descriptors(
        &self,
        geometry: &Geometry,
    ) -> impl Iterator<Item = Result<Described, InspectError>> + use<> {
        let (view, geometry) = (self.clone(), geometry.clone());
        let per_block = geometry.descs_per_block();
        (0..geometry.desc_blocks()).flat_map(move |table_block| {
            let first = table_block.saturating_mul(per_block);
            let read = view.descriptor_block(&geometry, table_block);
            let (bytes, failure) = match read {
                Ok(bytes) => (bytes, None),
                Err(failure) => (Vec::new(), Some(Err(failure))),
            };
            let groups = first..first.saturating_add(per_block).min(geometry.groups_count);
            let size = usize::from(geometry.desc_size);
            let described: Vec<_> = groups
                .zip(bytes.chunks_exact(size))
                .map(|(group, stored)| view.described(&geometry, GroupNo(group), stored))
                .collect();
            described.into_iter().chain(failure)
        })
    }

    fn descriptor_block(
        &self,
        geometry: &Geometry,
        table_block: u32,
    ) -> Result<Vec<u8>, InspectError> {
        let block = geometry.desc_block(table_block);
        let mut bytes = vec![0; geometry.block_len()];
        self.read(geometry.byte_of(block), &mut bytes)?;
        Ok(bytes)
    }

    fn described(
        &self,
        geometry: &Geometry,
        group: GroupNo,
        stored: &[u8],
    ) -> Result<Described, InspectError> {
        let raw = RawGroupDesc::from_bytes(stored, group, geometry)?;
        let verified = group_desc::verify(stored, group, geometry);
        let wanted_checksum = match &verified {
            Err(FormatError::Corrupt { flaw: Flaw::Checksum { computed, .. }, .. }) => {
                Some(*computed)
            }
            _ => None,
        };
        let mut desc = GroupDesc::unchecked(&raw);
        if !geometry.has_uninit_groups() {
            desc.flags = GroupFlags::empty();
            desc.itable_unused = 0;
        }
        Ok(Described {
            group,
            checksum: raw.bg_checksum.get(),
            is_checksum_good: verified.is_ok(),
            wanted_checksum,
            desc,
        })
    }

    /// A group's bitmap: stored, or as its descriptor implies it.
    pub fn bitmap(
        &self,
        kind: BitmapKind,
        described: &Described,
        geometry: &Geometry,
    ) -> Result<Vec<u8>, InspectError> {
        let (flag, place) = match kind {
            BitmapKind::Block => (GroupFlags::BLOCK_UNINIT, described.desc.block_bitmap),
            BitmapKind::Inode => (GroupFlags::INODE_UNINIT, described.desc.inode_bitmap),
        };
        let mut bits = vec![0; geometry.block_len()];
        if described.desc.flags.contains(flag) {
            if kind == BitmapKind::Block {
                mark_own_metadata(&mut bits, described, geometry);
            }
            return Ok(bits);
        }
        if !geometry.contains(place, 1) {
            return Err(InspectError::BitmapOffVolume { group: described.group, block: place });
        }
        self.read(geometry.byte_of(place), &mut bits)?;
        Ok(bits)
    }

    /// Whether a stored bitmap has the checksum that its descriptor says.
    pub fn verify_bitmap(
        &self,
        kind: BitmapKind,
        bits: &[u8],
        described: &Described,
        geometry: &Geometry,
    ) -> Result<(), InspectError> {
        let flag = match kind {
            BitmapKind::Block => GroupFlags::BLOCK_UNINIT,
            BitmapKind::Inode => GroupFlags::INODE_UNINIT,
        };
        if described.desc.flags.contains(flag) {
            return Ok(());
        }
        Ok(bitmap::verify(bits, kind, described.group, &described.desc, geometry)?)
    }

    /// The journal's superblock: of the journal inode, or of a device that is a journal. `None`
    /// without one at hand.
    pub fn journal(
        &self,
        geometry: Option<&Geometry>,
    ) -> Result<Option<RawJournalSuperblock>, InspectError> {
        let mut bytes = [0; 1024];
        if self.is_journal_device() {
            let block_size = 1024_u64.checked_shl(self.raw.s_log_block_size.get()).unwrap_or(0);
            self.read((SUPERBLOCK_OFFSET + 1024).max(block_size), &mut bytes)?;
        } else {
            let has_inode = self.superblock.internal_journal().is_some_and(|it| it > InodeNo(0));
            let Some(geometry) = geometry.filter(|_| has_inode) else { return Ok(None) };
            let place = JournalLocation::internal(&*self.device, &self.raw, geometry)?;
            let Some(first) = place.runs.runs().first() else { return Ok(None) };
            self.read(geometry.byte_of(first.start), &mut bytes)?;
        }
        RawJournalSuperblock::from_bytes(&bytes).map(Some).map_err(InspectError::from)
    }

    /// The multiple mount protection block; `None` without the feature.
    pub fn mmp(&self, geometry: &Geometry) -> Result<Option<RawMmp>, InspectError> {
        if !geometry.has_incompat(IncompatFeatures::MMP) {
            return Ok(None);
        }
        let block = self.superblock.mmp_block;
        if !geometry.contains(block, 1) {
            return Err(InspectError::MmpOffVolume(block));
        }
        let mut bytes = vec![0; geometry.block_len()];
        self.read(geometry.byte_of(block), &mut bytes)?;
        let raw = RawMmp::from_bytes(&bytes, block)?;
        Ok(Some(raw))
    }
}

/// A group's descriptor with what is known of its checksum.
#[derive(Clone, Debug)]
pub struct Described {
    /// The group.
    pub group: GroupNo,
    /// Its descriptor.
    pub desc: GroupDesc,
    /// The checksum as stored.
    pub checksum: u16,
    /// Whether the checksum is right.
    pub is_checksum_good: bool,
    /// The right checksum, where another is stored.
    pub wanted_checksum: Option<u32>,
}

/// Tries the primary superblock, or a backup with each block size that is possible.
fn find_superblock(
    device: &dyn Device,
    choice: SuperblockChoice,
) -> Result<(RawSuperblock, Option<FormatError>), InspectError> {
    let Some(block) = choice.block else { return primary(device, choice) };
    let sizes = match choice.block_size {
        Some(size) => vec![size],
        None => (0..=6).map(|log| 1024_u32 << log).collect(),
    };
    let mut why = InspectError::NoSuperblock(block);
    for size in sizes {
        let Some(at) = block.checked_mul(u64::from(size)) else { continue };
        let mut raw = RawSuperblock::new_zeroed();
        if device.read_at(at, raw.as_mut_bytes()).is_err() {
            why = InspectError::NoSuperblock(block);
            continue;
        }
        match raw.verify(GroupNo(u32::from(raw.s_block_group_nr.get()))) {
            Ok(()) if 1024_u32.checked_shl(raw.s_log_block_size.get()) == Some(size) => {
                return Ok((raw, None));
            }
            Ok(()) => {}
            Err(error) => why = error.into(),
        }
    }
    Err(why)
}

/// The primary superblock, and the checksum that it fails.
fn primary(
    device: &dyn Device,
    choice: SuperblockChoice,
) -> Result<(RawSuperblock, Option<FormatError>), InspectError> {
    let found = match read_primary_superblock(device) {
        Err(OfflineError::Format(
            error @ FormatError::Corrupt { flaw: Flaw::Checksum { .. }, .. },
        )) if choice.keeps_bad_checksum => {
            (read_superblock(device, SUPERBLOCK_OFFSET)?, Some(error))
        }
        found => (found?, None),
    };
    let size = 1024_u64.checked_shl(found.0.s_log_block_size.get()).unwrap_or(0);
    match choice.block_size.filter(|wanted| u64::from(*wanted) != size) {
        Some(wanted) => Err(InspectError::BlockSize { found: size, wanted }),
        None => Ok(found),
    }
}

/// Sets the bits of what a group's geometry and descriptor put into it.
fn mark_own_metadata(bits: &mut [u8], described: &Described, geometry: &Geometry) {
    let start = geometry.group_start(described.group).0;
    let end = start + u64::from(geometry.group_blocks(described.group));
    let desc = &described.desc;
    let itable =
        desc.inode_table.0..desc.inode_table.0.saturating_add(geometry.itable_blocks().into());
    let one = |block: BlockNo| block.0..block.0.saturating_add(1);
    let own = [
        leading(geometry, described.group).blocks(),
        one(desc.block_bitmap),
        one(desc.inode_bitmap),
        itable,
    ];
    let cluster = u64::from(geometry.blocks_per_cluster);
    for range in own {
        let (from, to) = (range.start.max(start), range.end.min(end));
        if from < to {
            // Both lie within the group, which has fewer than 2^32 blocks.
            let clusters = (from - start) / cluster..(to - start).div_ceil(cluster);
            bitmap::set_range(bits, clusters.start as u32..clusters.end as u32);
        }
    }
}
