//! 64bit on or off: group descriptors of 64 bytes or of 32.
//!
//! Blocks that lie where more descriptors come move first, as in a shrink. Then one transaction
//! changes the superblock and all descriptors. The kernel must not replay it, as it reads the size
//! of the descriptors before it replays: see [`ReplayBy`](extant_journal::ReplayBy).

use extant_offline::{OfflineVolume, read_superblock};
use extant_ondisk::{CompatFeatures, Geometry, IncompatFeatures};

use super::error::ResizeError;
use super::plan::{CutTables, Plan, taken};
use super::scan::{Scan, each_inode};
use super::shrink::{Contents, Work};
use super::size::{Resized, Target};
use super::{Resize, resize_inode};

/// Where an inode has the high half of its attribute block's number (`l_i_file_acl_high`).
const FILE_ACL_HIGH_AT: usize = 0x76;
/// The OS whose inodes have another field there.
const CREATOR_HURD: u32 = 1;

/// The outcome of a change of 64bit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bit64 {
    /// It was changed.
    Changed,
    /// The volume was like that already.
    Already,
}

impl Resize<'_> {
    /// Switches 64bit on or off. Where the volume is like that already, backups that an
    /// interruption left with the other size of descriptors are written.
    ///
    /// # Errors
    /// A volume without extents, or with too many blocks for 32 bits; too few free blocks for those
    /// that move; a volume that is in use or damaged; and failures of a device. After a refusal the
    /// volume is as it was.
    pub fn set_64bit(&self, is_on: bool) -> Result<Bit64, ResizeError> {
        self.claimed(|| self.change_64bit(is_on))
    }

    fn change_64bit(&self, is_on: bool) -> Result<Bit64, ResizeError> {
        let mut volume = self.open_checked()?;
        let old = volume.geometry().clone();
        if old.has_incompat(IncompatFeatures::BIT64) == is_on {
            if self.has_other_backup(&volume)? {
                self.write_backups()?;
            }
            return Ok(Bit64::Already);
        }
        check(&old, is_on)?;
        // The kernel could replay it: see the module.
        if old.has_compat(CompatFeatures::HAS_JOURNAL) && volume.raw.s_journal_inum.get() == 0 {
            return Err(ResizeError::ExternalJournal);
        }
        let target = Target::Bit64(is_on);
        let geometry = Resized::of(&volume.raw, target)?.geometry;
        resize_inode::check(&mut volume, &geometry)?;
        let plan = match taken(&old, &geometry).count() {
            0 => Plan::without_moves(target, &geometry),
            _ => {
                let mut volume = self.open_to_move()?;
                let scan = Scan::of(&mut volume)?;
                Plan::new(&mut volume, &scan, target, CutTables::InPlace)?
                    .ok_or(ResizeError::NoRoomToMove)?
            }
        };
        self.carry_out(&plan, Contents::Copied)?;
        Ok(Bit64::Changed)
    }

    /// Whether the first backup of the superblock is of a volume with descriptors of another size.
    fn has_other_backup(&self, volume: &OfflineVolume) -> Result<bool, ResizeError> {
        let geometry = volume.geometry();
        let Some(group) = geometry.backup_superblock_groups().first().copied() else {
            return Ok(false);
        };
        let at = geometry.byte_of(geometry.group_start(group));
        let bit64 = |incompat: IncompatFeatures| incompat.contains(IncompatFeatures::BIT64);
        let backup = read_superblock(&**self.device, at)?.features().incompat;
        Ok(bit64(backup) != bit64(geometry.features.incompat))
    }
}

fn check(geometry: &Geometry, is_on: bool) -> Result<(), ResizeError> {
    if is_on {
        return match geometry.has_incompat(IncompatFeatures::EXTENTS) {
            true => Ok(()),
            false => Err(ResizeError::NoExtents),
        };
    }
    let (blocks, most) = (geometry.blocks_count, u64::from(u32::MAX));
    if blocks > most {
        return Err(ResizeError::TooLarge { blocks, most });
    }
    // Descriptors of 32 bytes count 16 bits.
    let most = geometry.clusters_per_group.max(geometry.inodes_per_group);
    match most > u32::from(u16::MAX) {
        true => Err(ResizeError::GroupTooLarge(most)),
        false => Ok(()),
    }
}

impl Work<'_> {
    /// Clears the high halves of numbers of attribute blocks, which have no meaning without 64bit.
    pub(super) fn clear_high_halves(&mut self) -> Result<(), ResizeError> {
        if self.volume.geometry().creator_os == CREATOR_HURD {
            return Ok(());
        }
        let mut found = Vec::new();
        each_inode(&mut self.volume, |_, number, record| {
            if record[FILE_ACL_HIGH_AT..FILE_ACL_HIGH_AT + 2] != [0; 2] {
                found.push(number);
            }
            Ok(())
        })?;
        let capacity = self.capacity()?;
        for number in found {
            let mut record = self.volume.read_inode(number)?;
            record[FILE_ACL_HIGH_AT..FILE_ACL_HIGH_AT + 2].fill(0);
            self.volume.write_inode(number, &mut record)?;
            self.flush_if_many(capacity)?;
        }
        Ok(())
    }
}
