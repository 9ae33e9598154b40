//! Closing a volume that was checked: what waited for sound bitmaps is made, the check is stamped,
//! backups are renewed.

use super::orphan_file::empty_invalid_blocks;
use super::{OpenState, Prepared};
use crate::finding::{Code, Finding};
use crate::recorder::Recorder;
use crate::store::CheckError;
use extant_layout::tables::default_journal_blocks;
use extant_offline::{JournalShape, OfflineVolume, back_up_journal, backup_superblock};
use extant_ondisk::inode::{FileType, Inode};
use extant_ondisk::superblock::{RawSuperblock, State, Superblock};
use extant_ondisk::{CompatFeatures, Geometry, GroupNo, InodeNo};
use zerocopy::{FromZeros, IntoBytes};

/// `s_max_mnt_count`: mounts are not counted.
const NEVER: u16 = 0xffff;

/// How the check ended, for the closing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Closing {
    /// The passes ran and nothing is left.
    Clean,
    /// The passes ran, or were stopped, and something is left.
    ErrorsLeft,
    /// The passes were not run: the volume says that it is clean.
    TakenAsClean,
    /// No more than pass 0 was asked for.
    Skipped,
}

impl Closing {
    fn had_passes(self) -> bool {
        matches!(self, Self::Clean | Self::ErrorsLeft)
    }
}

/// Why a volume cannot be taken as clean without the passes; `None` when it can. `label` names it.
pub fn needs_check(superblock: &Superblock, now: u64) -> Option<String> {
    if superblock.state.contains(State::ERRORS) {
        return Some("contains a file system with errors".to_owned());
    }
    if !superblock.state.contains(State::CLEAN) {
        return Some("was not cleanly unmounted".to_owned());
    }
    let (count, most) = (superblock.mount_count, superblock.max_mount_count);
    if most != NEVER && most != 0 && most < 1 << 15 && count >= most {
        return Some(format!("has been mounted {count} times without being checked"));
    }
    let interval = u64::from(superblock.check_interval);
    if interval != 0 && now.saturating_sub(superblock.last_check) >= interval {
        let days = now.saturating_sub(superblock.last_check) / (24 * 60 * 60);
        return Some(format!("has gone {days} days without being checked"));
    }
    None
}

impl Prepared {
    /// Whether pass 0 found something that only the passes can repair, or that makes the
    /// superblock's state flags unreliable.
    pub fn needs_passes(&self) -> bool {
        self.state.needs_passes || self.state.from_backup || self.state.has_errors_left
    }

    /// Whether pass 0 found something worse than a note that was not repaired.
    pub fn has_errors_left(&self) -> bool {
        self.state.has_errors_left
    }

    /// Makes what waited for sound bitmaps, stamps the check and renews the backups where something
    /// was repaired. Does nothing with a policy that repairs nothing.
    ///
    /// # Errors
    /// The device failed.
    pub fn close(self, closing: Closing, recorder: &Recorder<'_>) -> Result<(), CheckError> {
        let Self { store, device, mut state, env } = self;
        if !recorder.may_repair() {
            return Ok(());
        }
        let was_changed = store.is_changed() || state.is_repaired;
        state.lost_journal = state.lost_journal.or(store.lost_journal());
        drop(store);
        let now = env.now().seconds.max(0).cast_unsigned();
        let mut volume = OfflineVolume::open(device.clone())?;
        if closing == Closing::Clean {
            restore(&mut volume, &state, recorder, now)?;
            empty_invalid_blocks(&mut volume, &state)?;
        }
        if closing == Closing::TakenAsClean || closing == Closing::Skipped && state.has_orphans {
            // Nothing else sets the counts of the superblock, which the kernel does not keep up
            // to date while a volume is mounted.
            volume.sum_free_counts();
        }
        if closing == Closing::Clean && was_changed {
            renew_journal_copy(&mut volume)?;
        }
        if closing.had_passes() {
            stamp(&mut volume, closing, now)?;
        }
        volume.commit()?;
        if closing != Closing::ErrorsLeft && (was_changed || state.from_backup) {
            renew_backups(&mut volume)?;
        }
        if state.mmp_claimed {
            volume.release_mmp(now)?;
        }
        Ok(())
    }
}

/// The passes may have given the journal other blocks than the superblock's copy of its map has.
fn renew_journal_copy(volume: &mut OfflineVolume) -> Result<(), CheckError> {
    let number = InodeNo::JOURNAL;
    if volume.raw.s_journal_inum.get() != number.0
        || !volume.raw.features().compat.contains(CompatFeatures::HAS_JOURNAL)
    {
        return Ok(());
    }
    let record = volume.read_inode(number)?;
    let Ok(inode) = Inode::decode(&record, number, volume.geometry()) else { return Ok(()) };
    let mut renewed = volume.raw;
    back_up_journal(&mut renewed, &inode);
    if inode.file_type() == Some(FileType::Regular)
        && inode.links > 0
        && renewed.as_bytes() != volume.raw.as_bytes()
    {
        volume.update_superblock(|raw| back_up_journal(raw, &inode))?;
    }
    Ok(())
}

/// A new journal in the place of one that was taken off.
fn restore(
    volume: &mut OfflineVolume,
    state: &OpenState,
    recorder: &Recorder<'_>,
    now: u64,
) -> Result<(), CheckError> {
    let Some(blocks) = state.lost_journal else { return Ok(()) };
    if volume.raw.features().compat.contains(CompatFeatures::HAS_JOURNAL) {
        return Ok(());
    }
    if !recorder.should_fix_without_abort(Finding::new(Code::JournalRecreate)) {
        return Ok(());
    }
    let no_room = |detail: String| {
        recorder.should_fix_without_abort(Finding::new(Code::JournalNoRoom).detail(detail));
    };
    let Some(shape) = journal_shape(volume, blocks)? else {
        no_room("not enough free blocks".to_owned());
        return Ok(());
    };
    let detail = match volume.make_journal(shape, now) {
        Ok(()) => format!("({} blocks)", shape.blocks),
        Err(extant_offline::OfflineError::Device(error)) => return Err(error.into()),
        Err(error) => {
            no_room(error.to_string());
            return Ok(());
        }
    };
    recorder.should_fix_without_abort(Finding::new(Code::JournalRegenerated).detail(detail));
    Ok(())
}

/// As large as the old one if that is possible, else as a new volume's.
fn journal_shape(volume: &mut OfflineVolume, old: u32) -> Result<Option<JournalShape>, CheckError> {
    const LEAST: u32 = 1024;
    let geometry = volume.geometry().clone();
    let room = volume.free_blocks();
    let default =
        default_journal_blocks(geometry.blocks_count).and_then(|blocks| u32::try_from(blocks).ok());
    let wanted = [Some(old).filter(|old| *old >= LEAST), default, Some(LEAST)];
    let blocks = wanted.into_iter().flatten().find(|blocks| u64::from(*blocks) + 8 <= room);
    let Some(blocks) = blocks else { return Ok(None) };
    let goal = volume.journal_goal()?;
    Ok(Some(JournalShape { blocks, fast_commit_blocks: 0, goal }))
}

/// The check is on record: when it was, and how it ended.
fn stamp(volume: &mut OfflineVolume, closing: Closing, now: u64) -> Result<(), CheckError> {
    Ok(volume.update_superblock(|raw| {
        let mut state = State::from_bits_retain(raw.s_state.get());
        if closing == Closing::Clean {
            state -= State::ERRORS;
            state |= State::CLEAN;
            raw.s_mnt_count.set(0);
            raw.set_check_time(now);
            raw.clear_errors();
        } else {
            state -= State::CLEAN;
        }
        raw.s_state.set(state.bits());
        raw.set_write_time(now);
    })?)
}

/// Writes the backups if one of them would not do in the place of the primary superblock.
fn renew_backups(volume: &mut OfflineVolume) -> Result<(), CheckError> {
    let geometry = volume.geometry().clone();
    let mut stale = false;
    for group in geometry.backup_superblock_groups() {
        let mut stored = RawSuperblock::new_zeroed();
        let at = geometry.byte_of(geometry.group_start(group));
        volume.device().read_at(at, stored.as_mut_bytes())?;
        let wanted = backup_superblock(&volume.raw, group);
        stale |= essence(&stored) != essence(&wanted);
    }
    for index in 0..geometry.desc_blocks() {
        let table = volume.table().block(index, &geometry);
        let places = extant_layout::groups::desc_block_places(&geometry, index);
        for place in places.into_iter().skip(1).filter(|place| geometry.contains(*place, 1)) {
            let stored = volume.read(place)?;
            stale |= !same_places(&stored, table, index, &geometry);
        }
    }
    if stale {
        volume.write_backups()?;
    }
    Ok(())
}

/// The fields that identify the volume; counts and times may differ.
fn essence(raw: &RawSuperblock) -> impl PartialEq + use<> {
    let superblock = Superblock::decode(raw);
    (
        raw.s_magic.get(),
        raw.verify(GroupNo(0)).is_ok(),
        Geometry::new(raw).ok(),
        superblock.uuid,
        superblock.journal_inode,
        raw.s_block_group_nr.get(),
    )
}

fn same_places(one: &[u8], other: &[u8], index: u32, geometry: &Geometry) -> bool {
    use extant_ondisk::group_desc::{GroupDesc, verify};
    let first = index.saturating_mul(geometry.descs_per_block());
    let end = first.saturating_add(geometry.descs_per_block()).min(geometry.groups_count);
    (first..end).map(GroupNo).all(|group| {
        let (_, at) = geometry.desc_place(group);
        let places = |bytes: &[u8]| {
            let stored = &bytes[at..at + usize::from(geometry.desc_size)];
            verify(stored, group, geometry).ok()?;
            let desc = GroupDesc::from_stored(stored, group, geometry).ok()?;
            Some((desc.block_bitmap, desc.inode_bitmap, desc.inode_table))
        };
        places(one) == places(other)
    })
}
