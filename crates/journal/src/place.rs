//! The location of the journal: the blocks of its inode, or an external device.

use std::mem::offset_of;

use extant_device::Device;
use extant_offline::{MapPart, MapWalk, MappedFile};
use extant_ondisk::extent;
use extant_ondisk::group_desc::{self, GroupDesc};
use extant_ondisk::inode::{self, FileType, I_BLOCK_SIZE, Inode};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use extant_ondisk::{
    BlockNo, CompatFeatures, FileBlock, Flaw, FormatError, Geometry, GroupNo, IncompatFeatures,
    InodeNo, Location, Uuid,
};
use zerocopy::{FromZeros, IntoBytes};

use crate::{BlockRuns, JournalError};

/// `s_jnl_backup_type` when `s_jnl_blocks` holds a copy of the journal inode's map and size.
const BACKUP_OF_INODE: u8 = 1;

/// Number of extents of a journal after which they are checked for duplicate blocks. The check is
/// repeated each time that the number has doubled, so that the map of a damaged image takes no more
/// memory than the journal can have blocks.
const FIRST_CHECK: usize = 1024;

/// The location of a journal's blocks on its device, and which of them is its superblock.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct JournalLocation {
    /// The blocks in order.
    pub runs: BlockRuns,
    /// The journal block of the journal superblock: 0 in a file. An external journal counts blocks
    /// from the start of its device, so that the file system superblock is before it.
    pub superblock_at: u32,
    /// Block size in bytes: the volume's.
    pub block_size: u32,
}

impl JournalLocation {
    /// Finds the journal in an inode of the volume. If the inode is invalid, the superblock's copy
    /// of its map is used.
    ///
    /// # Errors
    /// [`JournalError::NoJournal`], [`JournalError::ExternalJournalNeeded`], a map that is invalid
    /// in both copies, or the device failed.
    pub fn internal(
        volume: &dyn Device,
        superblock: &RawSuperblock,
        geometry: &Geometry,
    ) -> Result<Self, JournalError> {
        if !geometry.has_compat(CompatFeatures::HAS_JOURNAL) {
            return Err(JournalError::NoJournal);
        }
        let inode = InodeNo(superblock.s_journal_inum.get());
        if inode.0 == 0 {
            let uuid = Uuid(superblock.s_journal_uuid);
            return Err(JournalError::ExternalJournalNeeded(uuid));
        }
        let mapper = Mapper { volume, geometry, inode };
        let from_inode = mapper.inode().and_then(|mapped| mapper.place(&mapped));
        match from_inode {
            Err(error) if superblock.s_jnl_backup_type == BACKUP_OF_INODE => {
                tracing::warn!(%error, "journal inode is broken, its copy in the superblock is used");
                // Even if the copy fails too, the inode's error is reported.
                mapper.place(&Mapped::of_backup(superblock, inode)).map_err(|_| error)
            }
            other => other,
        }
    }

    /// Finds the journal on an external device.
    ///
    /// # Errors
    /// The device is not a journal, belongs to another volume, has another block size, is shorter
    /// than its journal, or failed.
    pub fn external(
        device: &dyn Device,
        superblock: &RawSuperblock,
        geometry: &Geometry,
    ) -> Result<Self, JournalError> {
        let mut own = RawSuperblock::new_zeroed();
        device.read_at(SUPERBLOCK_OFFSET, own.as_mut_bytes())?;
        own.verify(GroupNo(0))?;
        let wanted = Uuid(superblock.s_journal_uuid);
        let is_journal = own.features().incompat.contains(IncompatFeatures::JOURNAL_DEV);
        if !is_journal {
            let flaw = Flaw::Rule("the device is not a journal");
            return Err(flaw.at(Location::JournalSuperblock).into());
        }
        if own.s_uuid != wanted.0 {
            return Err(JournalError::OtherJournal { found: Uuid(own.s_uuid), wanted });
        }
        let log_block_size = own.s_log_block_size.get();
        if geometry.block_size != 1024_u32.checked_shl(log_block_size).unwrap_or(0) {
            let flaw = Flaw::bad_value("s_log_block_size", log_block_size);
            return Err(flaw.at(Location::JournalSuperblock).into());
        }
        let held = device.size() / u64::from(geometry.block_size);
        let count = own.s_blocks_count_lo.get();
        let wanted = u64::from(count);
        if held < wanted {
            return Err(JournalError::DeviceTooShort { held, wanted });
        }
        let mut runs = BlockRuns::new();
        let is_pushed = runs.push(BlockNo(0), count);
        debug_assert!(is_pushed, "the first run is below 2^32 blocks");
        // The first whole block after the file system superblock.
        let superblock_at = if geometry.block_size == 1024 { 2 } else { 1 };
        Ok(Self { runs, superblock_at, block_size: geometry.block_size })
    }
}

/// The root of a journal's map, and the journal's size.
struct Mapped {
    file: MappedFile,
    /// In bytes.
    size: u64,
}

impl Mapped {
    /// Reads 15 words of map, then the high and low halves of the size. The magic number identifies
    /// extents.
    fn of_backup(superblock: &RawSuperblock, inode: InodeNo) -> Self {
        let mut i_block = [0; I_BLOCK_SIZE];
        i_block.copy_from_slice(&superblock.s_jnl_blocks.as_bytes()[..I_BLOCK_SIZE]);
        let [.., high, low] = superblock.s_jnl_blocks;
        let is_extents = i_block[..2] == extent::EXTENT_MAGIC.to_le_bytes();
        Self {
            file: MappedFile { inode, generation: 0, is_extents, i_block },
            size: u64::from(high.get()) << 32 | u64::from(low.get()),
        }
    }
}

struct Mapper<'a> {
    volume: &'a dyn Device,
    geometry: &'a Geometry,
    inode: InodeNo,
}

impl Mapper<'_> {
    fn flaw(&self, flaw: Flaw) -> JournalError {
        flaw.at(Location::Inode(self.inode)).into()
    }

    /// The journal's inode.
    fn inode(&self) -> Result<Mapped, JournalError> {
        let geometry = self.geometry;
        let (group, index) = geometry.inode_place(self.inode).ok_or_else(|| {
            self.flaw(Flaw::above_limit("s_journal_inum", self.inode.0, geometry.inodes_count))
        })?;
        let desc = self.group_desc(group)?;
        let at =
            geometry.byte_of(desc.inode_table) + u64::from(index) * u64::from(geometry.inode_size);
        let mut record = vec![0; usize::from(geometry.inode_size)];
        self.volume.read_at(at, &mut record)?;
        inode::verify(&record, self.inode, geometry)?;
        let file = Inode::decode(&record, self.inode, geometry)?;
        if file.file_type() != Some(FileType::Regular) {
            return Err(self.flaw(Flaw::bad_value("i_mode", file.mode)));
        }
        Ok(Mapped { file: MappedFile::of_inode(self.inode, &file), size: file.size })
    }

    fn group_desc(&self, group: GroupNo) -> Result<GroupDesc, JournalError> {
        let geometry = self.geometry;
        let (index, at) = geometry.desc_place(group);
        let block = geometry.desc_block(index);
        if !geometry.contains(block, 1) {
            let flaw = Flaw::above_limit("block of the descriptor", block.0, geometry.blocks_count);
            return Err(flaw.at(Location::GroupDesc(group)).into());
        }
        let mut table = vec![0; geometry.block_len()];
        self.volume.read_at(geometry.byte_of(block), &mut table)?;
        let size = usize::from(geometry.desc_size);
        let stored = &table[at..];
        group_desc::verify(&stored[..size], group, geometry)?;
        let desc = GroupDesc::from_stored(stored, group, geometry)?;
        desc.check_places(group, geometry)?;
        Ok(desc)
    }

    /// Walks over the map until the journal's blocks are complete. Every node must map the next
    /// block, so the walk ends.
    fn place(&self, mapped: &Mapped) -> Result<JournalLocation, JournalError> {
        let geometry = self.geometry;
        let blocks = mapped.size / u64::from(geometry.block_size);
        let limit = geometry.blocks_count.min(u64::from(u32::MAX));
        if blocks == 0 || blocks > limit {
            return Err(self.flaw(Flaw::above_limit("i_size", blocks, limit)));
        }
        let mut runs = BlockRuns::new();
        for part in MapWalk::new(self.volume, geometry, mapped.file, false) {
            let next = FileBlock(u64::from(runs.blocks_count()));
            match part? {
                MapPart::Node { first, .. } if first == next => {}
                MapPart::Data(extent) if extent.block == next && !extent.is_unwritten => {
                    // No more than `blocks`, which are below 2^32.
                    let count = u64::from(extent.len).min(blocks - next.0) as u32;
                    self.push(&mut runs, extent.start, count)?;
                }
                _ => break,
            }
            if u64::from(runs.blocks_count()) == blocks {
                self.check_distinct(&runs)?;
                return Ok(JournalLocation {
                    runs,
                    superblock_at: 0,
                    block_size: geometry.block_size,
                });
            }
        }
        Err(self.flaw(Flaw::Rule("the journal has holes")))
    }

    /// Appends blocks to the journal, which has fewer than 2^32.
    fn push(&self, runs: &mut BlockRuns, start: BlockNo, count: u32) -> Result<(), JournalError> {
        let is_pushed = runs.push(start, count);
        debug_assert!(is_pushed, "a journal of {} blocks and {count} more", runs.blocks_count());
        // A small map may name the same blocks repeatedly: this is detected before it takes much
        // memory.
        let found = runs.runs().len();
        if found >= FIRST_CHECK && found.is_power_of_two() {
            self.check_distinct(runs)?;
        }
        Ok(())
    }

    /// Returns an error if a block of the volume is in the journal twice.
    fn check_distinct(&self, runs: &BlockRuns) -> Result<(), JournalError> {
        if runs.map_twice() {
            return Err(self.flaw(Flaw::Rule("duplicate block in the journal")));
        }
        Ok(())
    }
}

const _: () = assert!(offset_of!(RawSuperblock, s_jnl_blocks) == 0x10c);

/// The error of a block that the journal does not have.
pub(crate) fn beyond(at: u32, end: u32) -> FormatError {
    Flaw::above_limit("journal block", at, end).at(Location::JournalBlock(at))
}
