//! A volume's superblock, descriptors and bitmaps as they are stored: what `info` and `map` show. Nothing is replayed and
//! nothing is believed that need not be.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use extant_device::Device;
use extant_journal::JournalLocation;
use extant_layout::groups::leading;
use extant_offline::read_primary_superblock;
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::group_desc::{self, GroupDesc, GroupFlags, RawGroupDesc};
use extant_ondisk::jbd2::RawJournalSuperblock;
use extant_ondisk::mmp::RawMmp;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, Superblock};
use extant_ondisk::{
    BlockNo, CompatFeatures, Features, Geometry, GroupNo, IncompatFeatures, InodeNo,
};
use extant_storage::{DeviceUrl, look};
use zerocopy::{FromZeros, IntoBytes};

use crate::failure::{At, Failure};
use crate::inside::open_for_reading;

/// Where to look for the superblock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Source {
    /// The block of a backup; the first superblock otherwise.
    pub(crate) superblock: Option<u64>,
    /// Bytes a block; tried out otherwise.
    pub(crate) block_size: Option<u32>,
}

/// A volume opened for a look.
pub(crate) struct Survey {
    /// As it was named.
    pub(crate) name: OsString,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) raw: RawSuperblock,
    pub(crate) superblock: Superblock,
}

impl Survey {
    /// Opens an image and reads its superblock.
    pub(crate) fn open(name: &OsStr, source: Source) -> Result<Self, Failure> {
        let url = DeviceUrl::parse(name, look).map_err(Failure::new)?;
        let device = open_for_reading(&url)?;
        let raw = find_superblock(&*device, source).at(name)?;
        let superblock = Superblock::decode(&raw);
        Ok(Self { name: name.to_owned(), device, raw, superblock })
    }

    /// Whether this is a journal device and no file system.
    pub(crate) fn is_journal_device(&self) -> bool {
        self.superblock.features.incompat.contains(IncompatFeatures::JOURNAL_DEV)
    }

    /// The checked figures. With `force` features that are not known are looked past.
    pub(crate) fn geometry(&self, force: bool) -> Result<Geometry, Failure> {
        let mut raw = self.raw;
        if force {
            let features = raw.features();
            let incompat = features.incompat.intersection(IncompatFeatures::READABLE);
            raw.set_features(Features { incompat, ..features });
        }
        Geometry::new(&raw).at(&self.name)
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), Failure> {
        self.device.read_at(at, bytes).at(&self.name)
    }

    /// The descriptors, a block of them at a time, each with what its checksum has to say.
    pub(crate) fn descriptors<'a>(
        &'a self,
        geometry: &'a Geometry,
    ) -> impl Iterator<Item = Result<Described, Failure>> + 'a {
        let per_block = geometry.descs_per_block();
        (0..geometry.desc_blocks()).flat_map(move |table_block| {
            let first = table_block.saturating_mul(per_block);
            let read = self.descriptor_block(geometry, table_block);
            let (bytes, failure) = match read {
                Ok(bytes) => (bytes, None),
                Err(failure) => (Vec::new(), Some(Err(failure))),
            };
            let groups = first..first.saturating_add(per_block).min(geometry.groups_count);
            let size = usize::from(geometry.desc_size);
            let described: Vec<_> = groups
                .zip(bytes.chunks_exact(size))
                .map(|(group, stored)| self.described(geometry, GroupNo(group), stored))
                .collect();
            described.into_iter().chain(failure)
        })
    }

    fn descriptor_block(&self, geometry: &Geometry, table_block: u32) -> Result<Vec<u8>, Failure> {
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
    ) -> Result<Described, Failure> {
        let raw = RawGroupDesc::from_bytes(stored, group, geometry).at(&self.name)?;
        let flaw = group_desc::verify(stored, group, geometry).err();
        let mut desc = GroupDesc::unchecked(&raw);
        if !geometry.has_uninit_groups() {
            desc.flags = GroupFlags::empty();
            desc.itable_unused = 0;
        }
        Ok(Described {
            group,
            checksum: raw.bg_checksum.get(),
            is_checksum_good: flaw.is_none(),
            desc,
        })
    }

    /// A group's bitmap: stored, or as its descriptor implies it.
    pub(crate) fn bitmap(
        &self,
        kind: BitmapKind,
        described: &Described,
        geometry: &Geometry,
    ) -> Result<Vec<u8>, Failure> {
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
            let what = format_args!(
                "bitmap of group {} at block {place}, off the volume",
                described.group
            );
            return Err(Failure::at(&self.name, what));
        }
        self.read(geometry.byte_of(place), &mut bits)?;
        Ok(bits)
    }

    /// Whether a stored bitmap has the checksum that its descriptor says.
    pub(crate) fn verify_bitmap(
        &self,
        kind: BitmapKind,
        bits: &[u8],
        described: &Described,
        geometry: &Geometry,
    ) -> Result<(), Failure> {
        let flag = match kind {
            BitmapKind::Block => GroupFlags::BLOCK_UNINIT,
            BitmapKind::Inode => GroupFlags::INODE_UNINIT,
        };
        if described.desc.flags.contains(flag) {
            return Ok(());
        }
        bitmap::verify(bits, kind, described.group, &described.desc, geometry).at(&self.name)
    }

    /// The journal's superblock: of the journal inode, or of a device that is a journal. `None` without one at hand.
    pub(crate) fn journal(
        &self,
        geometry: Option<&Geometry>,
    ) -> Result<Option<RawJournalSuperblock>, Failure> {
        let mut bytes = [0; 1024];
        if self.is_journal_device() {
            let block_size = 1024_u64.checked_shl(self.raw.s_log_block_size.get()).unwrap_or(0);
            self.read((SUPERBLOCK_OFFSET + 1024).max(block_size), &mut bytes)?;
        } else {
            let has_inode = self.superblock.internal_journal().is_some_and(|it| it > InodeNo(0));
            let Some(geometry) = geometry.filter(|_| has_inode) else { return Ok(None) };
            let place =
                JournalLocation::internal(&*self.device, &self.raw, geometry).at(&self.name)?;
            let Some(first) = place.runs.runs().first() else { return Ok(None) };
            self.read(geometry.byte_of(first.start), &mut bytes)?;
        }
        RawJournalSuperblock::from_bytes(&bytes).at(&self.name).map(Some)
    }

    /// The multiple mount protection block; `None` without the feature.
    pub(crate) fn mmp(&self, geometry: &Geometry) -> Result<Option<RawMmp>, Failure> {
        if !geometry.has_incompat(IncompatFeatures::MMP) {
            return Ok(None);
        }
        let block = self.superblock.mmp_block;
        if !geometry.contains(block, 1) {
            return Err(Failure::at(
                &self.name,
                format_args!("MMP block {block} lies off the volume"),
            ));
        }
        let mut bytes = vec![0; geometry.block_len()];
        self.read(geometry.byte_of(block), &mut bytes)?;
        let raw = RawMmp::from_bytes(&bytes, block).at(&self.name)?;
        Ok(Some(raw))
    }
}

/// A group's descriptor with what is known of its checksum.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    pub(crate) group: GroupNo,
    pub(crate) desc: GroupDesc,
    /// As stored.
    pub(crate) checksum: u16,
    pub(crate) is_checksum_good: bool,
}

/// Tries the first superblock, or a backup with each block size that is possible.
fn find_superblock(device: &dyn Device, source: Source) -> Result<RawSuperblock, String> {
    let read = |at: u64| {
        let mut raw = RawSuperblock::new_zeroed();
        device.read_at(at, raw.as_mut_bytes()).map_err(|error| error.to_string())?;
        Ok::<_, String>(raw)
    };
    let Some(block) = source.superblock else {
        return read_primary_superblock(device).map_err(|error| error.to_string());
    };
    let sizes = match source.block_size {
        Some(size) => vec![size],
        None => (0..=6).map(|log| 1024_u32 << log).collect(),
    };
    let mut why = format!("no superblock in block {block}");
    for size in sizes {
        let Some(at) = block.checked_mul(u64::from(size)) else { continue };
        let Ok(raw) = read(at) else { continue };
        match raw.verify(GroupNo(u32::from(raw.s_block_group_nr.get()))) {
            Ok(()) if 1024_u32.checked_shl(raw.s_log_block_size.get()) == Some(size) => {
                return Ok(raw);
            }
            Ok(()) => {}
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
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

/// Whether the volume has a journal, here or elsewhere.
pub(crate) fn has_journal(superblock: &Superblock) -> bool {
    superblock.features.compat.contains(CompatFeatures::HAS_JOURNAL)
}
