//! The journal: finds it, checks it, replays it; repairs its superblock or its inode, or removes
//! the journal.

use super::fast_commits::{Replayed, is_of_volume};
use super::log_head;
use super::table_places::bad_places;
use super::{OpenError, Pass0, has};
use crate::finding::{Code, Finding};
use crate::store::CheckError;
use extant_device::Device;
use extant_journal::{
    BlockRuns, Damage, Finish, JournalError, JournalLocation, Log, Recovered, recover,
};
use extant_offline::{MapPart, OfflineError, back_up_journal};
use extant_ondisk::extent::{EXTENT_MAGIC, ROOT_SIZE};
use extant_ondisk::inode::{FileType, Inode, InodeFlags};
use extant_ondisk::jbd2::{JournalSuperblock, RawJournalSuperblock};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use extant_ondisk::{CompatFeatures, Flaw, FormatError, IncompatFeatures, InodeNo, Tid, Uuid};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Minimum size of a journal in blocks, from mke2fs(8).
const MIN_JOURNAL: u64 = 1024;
/// `s_jnl_backup_type` of a copy of the journal inode's map.
const BACKUP_OF_INODE: u8 = 1;
/// Where version 2's fields start in a journal superblock.
const V2_FIELDS_AT: usize = 0x24;
/// Offset of the number of users in a journal superblock.
const USERS_AT: usize = 0x40;
/// A regular file that only its owner may read.
const HIDDEN_FILE: u16 = 0o100_600;

/// The journal as its inode has it.
struct FoundJournal {
    place: JournalLocation,
    inode: Inode,
    /// The inode itself is broken, and the replay may restore it.
    is_put_off: bool,
}

impl FoundJournal {
    /// Blocks of the journal: blocks mapped past the file's end do not belong to it.
    fn blocks(&self) -> u32 {
        let of_file = self.inode.size / u64::from(self.place.block_size);
        self.place.runs.blocks_count().min(u32::try_from(of_file).unwrap_or(u32::MAX))
    }
}

impl Pass0<'_> {
    /// Checks the journal, and has it replayed if it needs recovery and repairs are allowed.
    pub(super) fn check_journal(&mut self) -> Result<(), OpenError> {
        let raw = self.volume.raw;
        let has_journal = raw.features().compat.contains(CompatFeatures::HAS_JOURNAL);
        if !has_journal {
            return Ok(self.check_absent_journal(&raw)?);
        }
        let is_outside = raw.s_journal_uuid != [0; 16];
        if raw.s_journal_inum.get() == 0 && (is_outside || self.options.journal.is_some()) {
            return self.check_external_journal();
        }
        if is_outside && !self.may_be_inside()? {
            return self.check_external_without_internal();
        }
        if is_outside && self.should_fix(Finding::new(Code::JournalPlaceAmbiguous))? {
            self.volume.update_superblock(|raw| {
                raw.s_journal_dev.set(0);
                raw.s_journal_uuid = [0; 16];
            })?;
        }
        let Some(found) = self.journal_place()? else { return Ok(()) };
        self.check_journal_superblock(&found)?;
        if found.is_put_off {
            self.journal_place()?;
        }
        Ok(())
    }

    /// Whether the journal's inode, if there is one, is found through a valid descriptor and is
    /// valid itself.
    pub(super) fn is_journal_found(&self) -> bool {
        let number = InodeNo(self.volume.raw.s_journal_inum.get());
        let Some((group, _)) = self.volume.geometry().inode_place(number) else {
            return number.0 == 0;
        };
        let bad = bad_places(group, &self.desc(group), self.volume.geometry());
        bad.is_empty() && self.verify_desc(group).is_ok() && self.place_of_inode(number).is_ok()
    }

    /// Whether a log waits for its replay, and the superblock's copy of its map says that it lies
    /// where its inode has it. Then it can be replayed whatever else is wrong with the descriptors.
    pub(super) fn is_log_known(&self) -> Result<bool, CheckError> {
        let raw = &self.volume.raw;
        if !self.may_repair() || self.state.from_backup || !has(raw, IncompatFeatures::RECOVER) {
            return Ok(false);
        }
        match self.place_of_inode(InodeNo(raw.s_journal_inum.get())) {
            Ok(place) => Ok(raw.s_jnl_backup_type == BACKUP_OF_INODE
                && self.is_backed_up(&place.inode)
                && self.size_of_log(&place) == place.inode.size
                && self.waits(&place)),
            Err(Broken::Offline(OfflineError::Device(error))) => Err(error.into()),
            Err(_) => Ok(false),
        }
    }

    /// Whether the inode that the superblock names holds a journal, or its copy describes one.
    fn may_be_inside(&self) -> Result<bool, CheckError> {
        let raw = &self.volume.raw;
        match self.place_of_inode(InodeNo(raw.s_journal_inum.get())) {
            Err(Broken::Offline(OfflineError::Device(error))) => Err(error.into()),
            Err(_) => Ok(raw.s_jnl_backup_type == BACKUP_OF_INODE),
            Ok(_) => Ok(true),
        }
    }

    /// The superblock names an inode that never held a journal, and also a device: the journal is
    /// on the device.
    fn check_external_without_internal(&mut self) -> Result<(), OpenError> {
        if self.may_repair() && self.options.journal.is_none() {
            return self.check_external_journal();
        }
        let number = InodeNo(self.volume.raw.s_journal_inum.get());
        let finding = Finding::new(Code::JournalPlaceAmbiguous).inode(number);
        if !self.should_fix(finding.detail(format!("inode {number} is not a journal")))? {
            return Ok(());
        }
        self.volume.update_superblock(|raw| raw.s_journal_inum.set(0))?;
        self.check_external_journal()
    }

    /// No journal: its fields must be clear too.
    fn check_absent_journal(&mut self, raw: &RawSuperblock) -> Result<(), CheckError> {
        let is_named = raw.s_journal_inum.get() != 0 || raw.s_journal_uuid != [0; 16];
        if is_named && self.should_fix(Finding::new(Code::JournalWithoutFeature))? {
            self.volume.update_superblock(forget_journal)?;
            self.state.needs_passes = true;
        }
        if has(raw, IncompatFeatures::RECOVER)
            && self.should_fix(Finding::new(Code::RecoveryWithoutJournal))?
        {
            self.volume.update_superblock(clear_recover)?;
            self.state.needs_passes = true;
        }
        Ok(())
    }

    /// The blocks of the journal's inode. If the inode is corrupt, its copy in the superblock is
    /// used; if both are corrupt, the journal is removed. `None` if there is no journal left to
    /// check.
    fn journal_place(&mut self) -> Result<Option<FoundJournal>, OpenError> {
        let raw = self.volume.raw;
        let number = InodeNo(raw.s_journal_inum.get());
        let mut uneven = None;
        let flaw = match self.place_of_inode(number) {
            Ok(place) if self.size_of_log(&place) != place.inode.size => {
                let flaw = format!("its size is {}", place.inode.size);
                uneven = Some(place);
                flaw
            }
            Ok(place) => {
                let is_backed_up =
                    raw.s_jnl_backup_type == BACKUP_OF_INODE && self.is_backed_up(&place.inode);
                // The copy is an optional part of the format: only a repair renews it.
                if !is_backed_up
                    && number == InodeNo::JOURNAL
                    && self.may_repair()
                    && self.should_fix(Finding::new(Code::JournalBackup).inode(number))?
                {
                    let inode = place.inode.clone();
                    self.volume.update_superblock(|raw| back_up_journal(raw, &inode))?;
                }
                return Ok(Some(place));
            }
            Err(Broken::Because(flaw)) => flaw,
            Err(Broken::Offline(OfflineError::Device(error))) => return Err(error.into()),
            Err(Broken::Offline(error)) => error.to_string(),
        };
        if uneven.is_none()
            && let Some(place) = self.place_of_hidden(number)?
        {
            let finding = Finding::new(Code::JournalInodeBroken).inode(number).detail(flaw);
            if self.should_fix(finding)? {
                self.volume.update_superblock(|raw| {
                    raw.s_journal_inum.set(InodeNo::JOURNAL.0);
                    back_up_journal(raw, &place.inode);
                })?;
                self.state.needs_passes = true;
            }
            return Ok(Some(place));
        }
        if let Some(mut place) = self.place_of_backup(number) {
            // The log may hold the inode's own block, and the descriptors that lead to it.
            place.is_put_off = self.may_repair() && self.waits(&place);
            let finding = Finding::new(Code::JournalInodeBroken).inode(number).detail(flaw);
            if !place.is_put_off && self.should_fix(finding)? {
                self.restore_journal_inode(number, &place.inode)?;
            }
            return Ok(Some(place));
        }
        if let Some(mut place) = uneven {
            let finding = Finding::new(Code::JournalInodeBroken).inode(number).detail(flaw);
            if self.should_fix(finding)? {
                place.inode.size = self.size_of_log(&place);
                let mut record = self.volume.read_inode(number)?;
                place.inode.encode_into(&mut record, self.volume.geometry());
                self.volume.write_inode(number, &mut record)?;
                self.state.needs_passes = true;
            }
            return Ok(Some(place));
        }
        let finding = Finding::new(Code::JournalInvalid).inode(number).detail(flaw);
        if self.should_fix(finding)? {
            self.replay_known_part(number)?;
            self.drop_journal(None)?;
        }
        Ok(None)
    }

    /// The journal in its reserved inode, where the superblock names another one that holds none.
    fn place_of_hidden(&self, number: InodeNo) -> Result<Option<FoundJournal>, CheckError> {
        if number == InodeNo::JOURNAL {
            return Ok(None);
        }
        let place = match self.place_of_inode(InodeNo::JOURNAL) {
            Ok(place) => place,
            Err(Broken::Offline(OfflineError::Device(error))) => return Err(error.into()),
            Err(_) => return Ok(None),
        };
        let log = Log { device: &**self.volume.device(), place: &place.place };
        let is_journal = log.superblock().is_ok();
        Ok(Some(place).filter(|_| is_journal))
    }

    /// The size that a journal's inode should have: whole blocks, and all that the log says it has
    /// where they are mapped.
    fn size_of_log(&self, place: &FoundJournal) -> u64 {
        let log = Log { device: &**self.volume.device(), place: &place.place };
        // More blocks than are mapped make no superblock of a log.
        let said = log.superblock().map_or(0, |(_, superblock)| superblock.blocks_count);
        u64::from(place.blocks().max(said)) * u64::from(place.place.block_size)
    }

    /// Whether a log has something that is to be replayed.
    fn waits(&self, place: &FoundJournal) -> bool {
        let log = Log { device: &**self.volume.device(), place: &place.place };
        log.superblock().is_ok_and(|(_, superblock)| superblock.start != 0)
    }

    /// Writes the journal's inode as the superblock's copy has it: in the reserved inode, where an
    /// ordinary one held it.
    fn restore_journal_inode(&mut self, number: InodeNo, inode: &Inode) -> Result<(), CheckError> {
        self.state.needs_passes = true;
        let mut record = self.volume.read_inode(InodeNo::JOURNAL)?;
        record.fill(0);
        inode.encode_into(&mut record, self.volume.geometry());
        self.volume.write_inode(InodeNo::JOURNAL, &mut record)?;
        if number != InodeNo::JOURNAL {
            self.volume.update_superblock(|raw| raw.s_journal_inum.set(InodeNo::JOURNAL.0))?;
        }
        Ok(())
    }

    /// Removes the journal; a new one of the same size is made after the passes.
    fn drop_journal(&mut self, blocks: Option<u32>) -> Result<(), CheckError> {
        let [.., high, low] = self.volume.raw.s_jnl_blocks;
        let size = u64::from(high.get()) << 32 | u64::from(low.get());
        let stored = (size >> self.volume.geometry().block_bits()).min(u64::from(u32::MAX));
        self.state.lost_journal = Some(blocks.unwrap_or(stored as u32)); // at most u32::MAX
        self.state.needs_passes = true;
        self.volume.update_superblock(forget_journal)?;
        self.report(Finding::new(Code::JournalDeleted))
    }

    fn place_of_inode(&self, number: InodeNo) -> Result<FoundJournal, Broken> {
        let geometry = self.volume.geometry();
        if number.0 == 0 {
            return Err(Broken::Because("no journal inode is given".to_owned()));
        }
        let record = self.volume.read_inode(number)?;
        let inode = Inode::decode(&record, number, geometry).map_err(OfflineError::from)?;
        let not = |what: &str| Err(Broken::Because(format!("its inode {what}")));
        if inode.file_type() != Some(FileType::Regular) {
            return not("is not a regular file");
        }
        if inode.links == 0 {
            return not("is deleted");
        }
        if inode.flags.intersects(InodeFlags::ENCRYPT | InodeFlags::INLINE_DATA) {
            return not("is encrypted or has inline data");
        }
        self.place_of_map(number, inode)
    }

    /// A journal's map has no holes, no unwritten extents and enough blocks.
    fn place_of_map(&self, number: InodeNo, inode: Inode) -> Result<FoundJournal, Broken> {
        let geometry = self.volume.geometry();
        let blocks = inode.size >> geometry.block_bits();
        if blocks < MIN_JOURNAL || blocks > geometry.blocks_count.min(u64::from(u32::MAX)) {
            return Err(Broken::Because(format!("invalid size of {blocks} blocks")));
        }
        let (runs, flaw) = self.blocks_of_map(number, &inode);
        // Pass 1 clears such pointers past a journal's size, and takes extents there for its own.
        let is_known = u64::from(runs.blocks_count()) >= blocks;
        if !is_known || flaw.is_some() && inode.is_extent_mapped() {
            let is_short = || Broken::Because("block map is shorter than the size".to_owned());
            return Err(flaw.unwrap_or_else(is_short));
        }
        let block_size = geometry.block_size;
        let place = JournalLocation { runs, superblock_at: 0, block_size };
        Ok(FoundJournal { place, inode, is_put_off: false })
    }

    /// The blocks of a journal's map up to its first flaw.
    pub(super) fn blocks_of_map(
        &self,
        number: InodeNo,
        inode: &Inode,
    ) -> (BlockRuns, Option<Broken>) {
        let (mut runs, mut nodes) = (BlockRuns::new(), 0);
        for part in self.volume.walk_map(number, inode) {
            let is_next = match part {
                Ok(MapPart::Node { .. }) => {
                    nodes += 1;
                    // More nodes than the volume has blocks: the map has a loop.
                    nodes <= self.volume.geometry().blocks_count
                }
                Ok(MapPart::Data(extent)) => {
                    extent.block.0 == u64::from(runs.blocks_count())
                        && !extent.is_unwritten
                        && u64::from(runs.blocks_count()) < self.volume.geometry().blocks_count
                        && runs.push(extent.start, extent.len)
                }
                Err(error) => return (runs, Some(error.into())),
            };
            if !is_next {
                let flaw = "block map has holes or invalid blocks".to_owned();
                return (runs, Some(Broken::Because(flaw)));
            }
        }
        (runs, None)
    }

    /// The inode that the superblock's copy describes, if there is a journal in it.
    fn place_of_backup(&self, number: InodeNo) -> Option<FoundJournal> {
        let raw = &self.volume.raw;
        if raw.s_jnl_backup_type != BACKUP_OF_INODE {
            return None;
        }
        let mut i_block = [0; ROOT_SIZE];
        i_block.copy_from_slice(&raw.s_jnl_blocks.as_bytes()[..ROOT_SIZE]);
        let [.., high, low] = raw.s_jnl_blocks;
        let geometry = self.volume.geometry();
        let time = extant_ondisk::time::Timestamp::new(self.wall().seconds, 0);
        let is_extents = i_block[..2] == EXTENT_MAGIC.to_le_bytes();
        let inode = Inode {
            mode: HIDDEN_FILE,
            uid: 0,
            gid: 0,
            size: u64::from(high.get()) << 32 | u64::from(low.get()),
            atime: time,
            ctime: time,
            mtime: time,
            crtime: Some(time),
            dtime: 0,
            links: 1,
            blocks: 0,
            flags: if is_extents { InodeFlags::EXTENTS } else { InodeFlags::empty() },
            version: 0,
            i_block,
            generation: 0,
            file_acl: extant_ondisk::BlockNo(0),
            extra_isize: if geometry.inode_size > 128 { 32 } else { 0 },
            project: Some(0),
        };
        let mut place = self.place_of_map(number, inode).ok()?;
        let log = Log { device: &**self.volume.device(), place: &place.place };
        log.superblock().ok()?;
        let map = self.volume.read_map(number, &place.inode).ok()?;
        let ratio = u64::from(geometry.blocks_per_cluster);
        let data: u64 = map.data().map(|run| run.end - run.start).sum();
        let space = data.next_multiple_of(ratio) + map.nodes.len() as u64 * ratio;
        place.inode.set_space(self.volume.geometry(), space);
        Some(place)
    }

    fn is_backed_up(&self, inode: &Inode) -> bool {
        let raw = &self.volume.raw;
        let [.., high, low] = raw.s_jnl_blocks;
        raw.s_jnl_blocks.as_bytes()[..ROOT_SIZE] == inode.i_block
            && (u64::from(high.get()) << 32 | u64::from(low.get())) == inode.size
    }

    fn check_journal_superblock(&mut self, found: &FoundJournal) -> Result<(), OpenError> {
        let device = self.volume.device().clone();
        let log = Log { device: &*device, place: &found.place };
        let read = log.superblock();
        if let Some((flaw, mended)) = self.mended_log(&log, &read, found.blocks())? {
            let number = InodeNo(self.volume.raw.s_journal_inum.get());
            let finding = Finding::new(Code::JournalSuperblockCorrupt).inode(number).detail(flaw);
            if self.should_fix(finding)? {
                write_log_superblock(&log, &mended)?;
                return self.check_journal_superblock(found);
            }
            return Ok(());
        }
        if read.as_ref().is_ok_and(|(_, superblock)| superblock.users.len() > 1)
            && let Some(cleared) = self.without_users(found)?
        {
            if self.should_fix(Finding::new(Code::JournalV1Fields))? {
                self.write_journal_superblock(found, &cleared)?;
                return self.check_journal_superblock(found);
            }
            return Ok(());
        }
        match read {
            Ok((raw, superblock)) => {
                if !superblock.is_v2
                    && raw.as_bytes()[V2_FIELDS_AT..].iter().any(|byte| *byte != 0)
                    && self.should_fix(Finding::new(Code::JournalV1Fields))?
                {
                    let mut cleared = raw;
                    cleared.as_mut_bytes()[V2_FIELDS_AT..].fill(0);
                    self.write_journal_superblock(found, &cleared)?;
                } else if superblock.is_v2 && raw.s_feature_ro_compat.get() != 0 {
                    // There are none; a reader need not know them.
                    let number = InodeNo(self.volume.raw.s_journal_inum.get());
                    let detail = "unknown read-only features".to_owned();
                    let finding = Finding::new(Code::JournalSuperblockCorrupt);
                    if self.should_fix(finding.inode(number).detail(detail))? {
                        let mut cleared = raw;
                        cleared.s_feature_ro_compat.set(0);
                        cleared.seal();
                        self.write_journal_superblock(found, &cleared)?;
                    }
                }
                self.replay(&superblock, &log)
            }
            Err(JournalError::Device(error)) => Err(error.into()),
            Err(error @ JournalError::Format(FormatError::UnsupportedJournal(_)))
                if log_head::is_newer(&log)? =>
            {
                Err(OpenError::Unsupported(vec![error.to_string()]))
            }
            Err(error) => {
                if let Some(cleared) = self.without_users(found)? {
                    if self.should_fix(Finding::new(Code::JournalV1Fields))? {
                        self.write_journal_superblock(found, &cleared)?;
                        return self.check_journal_superblock(found);
                    }
                    return Ok(());
                }
                let is_none = matches!(
                    error,
                    JournalError::Format(FormatError::Corrupt { flaw: Flaw::Magic { .. }, .. })
                );
                let number = InodeNo(self.volume.raw.s_journal_inum.get());
                let code =
                    if is_none { Code::JournalInvalid } else { Code::JournalSuperblockCorrupt };
                let finding = Finding::new(code).inode(number).detail(error.to_string());
                if self.should_fix(finding)? {
                    // The log is lost either way; the inode is sound, so the journal stays where it
                    // is.
                    let fresh = self.fresh_superblock(found)?;
                    self.write_journal_superblock(found, &fresh)?;
                    self.volume.update_superblock(clear_recover)?;
                    self.volume.commit()?;
                    self.state.needs_passes = true;
                }
                Ok(())
            }
        }
    }

    /// An internal journal has one user: a larger count is in fields of version 2 that were never
    /// written. Returns the superblock without those fields if that makes it valid.
    fn without_users(
        &self,
        found: &FoundJournal,
    ) -> Result<Option<RawJournalSuperblock>, CheckError> {
        let Some(first) = found.place.runs.runs().first() else { return Ok(None) };
        let block = self.read(first.start)?;
        let users = block.get(USERS_AT..USERS_AT + 4);
        let has_many = users.is_some_and(|users| users > &[0, 0, 0, 1][..]);
        let Ok((raw, _)) = RawJournalSuperblock::read_from_prefix(&block) else { return Ok(None) };
        let mut cleared = raw;
        cleared.as_mut_bytes()[V2_FIELDS_AT..].fill(0);
        Ok(Some(cleared).filter(|cleared| has_many && JournalSuperblock::decode(cleared).is_ok()))
    }

    fn write_journal_superblock(
        &mut self,
        found: &FoundJournal,
        raw: &RawJournalSuperblock,
    ) -> Result<(), CheckError> {
        let Some(first) = found.place.runs.runs().first() else { return Ok(()) };
        let mut block = vec![0; self.volume.geometry().block_len()];
        block[..size_of::<RawJournalSuperblock>()].copy_from_slice(raw.as_bytes());
        self.volume.write(first.start, &block)?;
        Ok(self.volume.device().flush()?)
    }

    fn check_external_journal(&mut self) -> Result<(), OpenError> {
        let raw = self.volume.raw;
        let Some(device) = self.options.journal.clone() else {
            if !self.may_repair() {
                // Only a repair needs it.
                return Ok(self.report(Finding::new(Code::JournalExternal))?);
            }
            return Err(JournalError::ExternalJournalNeeded(Uuid(raw.s_journal_uuid)).into());
        };
        let found = JournalLocation::external(&*device, &raw, self.volume.geometry());
        let place = match found {
            Err(JournalError::Format(
                error @ FormatError::Corrupt { flaw: Flaw::Checksum { .. }, .. },
            )) => {
                let finding = Finding::new(Code::JournalSuperblockCorrupt);
                if !self.should_fix(finding.detail(format!("of the journal's device: {error}")))? {
                    return Ok(());
                }
                seal_device(&*device)?;
                JournalLocation::external(&*device, &raw, self.volume.geometry())?
            }
            Err(error @ JournalError::DeviceTooShort { .. }) if !self.may_repair() => {
                let finding = Finding::new(Code::JournalSuperblockCorrupt);
                return Ok(self.report(finding.detail(error.to_string()))?);
            }
            found => found?,
        };
        let log = Log { device: &*device, place: &place };
        let read = log.superblock();
        if let Some((flaw, mended)) = self.mended_log(&log, &read, place.runs.blocks_count())? {
            if !self.should_fix(Finding::new(Code::JournalSuperblockCorrupt).detail(flaw))? {
                return Ok(());
            }
            write_log_superblock(&log, &mended)?;
            let (_, superblock) = log.superblock()?;
            self.replay(&superblock, &log)?;
        } else {
            let (_, superblock) = read?;
            self.replay(&superblock, &log)?;
        }
        Ok(self.check_journal_number()?)
    }

    /// The kernel finds the journal's device by the number in the superblock alone. The replay may
    /// restore an old number.
    fn check_journal_number(&mut self) -> Result<(), CheckError> {
        let stored = self.volume.raw.s_journal_dev.get();
        let Some(number) = self.options.journal_number.filter(|number| *number != stored) else {
            return Ok(());
        };
        let finding = Finding::new(Code::JournalDeviceNumber).detail(format!("{number:#x}"));
        if self.should_fix(finding)? {
            self.volume.update_superblock(|raw| raw.s_journal_dev.set(number))?;
        }
        Ok(())
    }

    /// A broken superblock of a log as it must have been, and what is wrong with it.
    fn mended_log(
        &self,
        log: &Log<'_>,
        read: &Result<(RawJournalSuperblock, JournalSuperblock), JournalError>,
        blocks: u32,
    ) -> Result<Option<(String, RawJournalSuperblock)>, CheckError> {
        let flaw = match read {
            Ok((_, superblock)) => {
                let first = log.place.superblock_at.saturating_add(1);
                if superblock.start == 0 || superblock.first == first {
                    return Ok(None);
                }
                Flaw::bad_value("s_first", superblock.first).to_string()
            }
            Err(JournalError::Device(_)) => return Ok(None),
            Err(JournalError::Format(FormatError::UnsupportedJournal(_)))
                if log_head::is_newer(log)? =>
            {
                return Ok(None);
            }
            Err(error) => error.to_string(),
        };
        Ok(log_head::mended(log, blocks)?.map(|mended| (flaw, mended)))
    }

    /// Has the journal replayed where it waits for that.
    fn replay(&mut self, superblock: &JournalSuperblock, log: &Log<'_>) -> Result<(), OpenError> {
        let needs_recovery = has(&self.volume.raw, IncompatFeatures::RECOVER);
        if !self.may_repair() {
            if needs_recovery {
                self.report(Finding::new(Code::JournalSkipped))?;
            } else if superblock.start != 0 {
                self.report(Finding::new(Code::JournalHasData))?;
            }
            return Ok(());
        }
        if !needs_recovery && superblock.start != 0 {
            // A backup of the superblock never says that the journal waits.
            let is_backup = self.state.from_backup;
            if is_backup || self.should_fix(Finding::new(Code::JournalHasData))? {
                self.volume.update_superblock(|raw| {
                    let mut features = raw.features();
                    features.incompat |= IncompatFeatures::RECOVER;
                    raw.set_features(features);
                })?;
            } else if self.should_fix(Finding::new(Code::JournalDataLeft))? {
                return self.reset_journal();
            } else {
                return Ok(());
            }
        }
        let waits = has(&self.volume.raw, IncompatFeatures::RECOVER);
        self.volume.commit()?;
        if !waits && superblock.errno == 0 {
            return Ok(());
        }
        if waits {
            self.report(Finding::new(Code::JournalRecovered))?;
        }
        let device = self.volume.device().clone();
        let needs_passes = self.state.needs_passes;
        let outcome = match recover(&*device, log, Finish::Reset) {
            Err(error) if is_of_volume(&error) => self.replay_damaged(log, error)?,
            outcome => outcome.map(|recovered| Replayed { recovered, is_damaged: false }),
        };
        match outcome {
            Ok(Replayed { recovered, is_damaged }) => {
                self.reload()?;
                self.state.needs_passes = needs_passes || is_damaged;
                if is_damaged {
                    self.mark_unclean()?;
                }
                Ok(self.check_recovery(&recovered)?)
            }
            Err(error) if is_of_volume(&error) => {
                let finding = Finding::new(Code::JournalReplayFailed).detail(error.to_string());
                if !self.should_fix(finding)? {
                    return Err(error.into());
                }
                self.reset_journal()
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The contents of the journal are discarded.
    fn reset_journal(&mut self) -> Result<(), OpenError> {
        self.state.needs_passes = true;
        self.volume.update_superblock(clear_recover)?;
        self.volume.commit()?;
        let number = InodeNo(self.volume.raw.s_journal_inum.get());
        if let Ok(found) = self.place_of_inode(number) {
            let device = self.volume.device().clone();
            let log = Log { device: &*device, place: &found.place };
            let fresh = match log.superblock() {
                Ok((mut raw, mut superblock)) => {
                    superblock.sequence =
                        log.first_unused_tid(superblock.log(), superblock.sequence)?;
                    (superblock.start, superblock.errno) = (0, 0);
                    superblock.encode_into(&mut raw);
                    raw.seal();
                    raw
                }
                Err(_) => self.fresh_superblock(&found)?,
            };
            self.write_journal_superblock(&found, &fresh)?;
        }
        Ok(())
    }

    /// A journal superblock of a journal with nothing in it, for the blocks that there are.
    /// Transactions get other numbers than those that are left there.
    fn fresh_superblock(&self, found: &FoundJournal) -> Result<RawJournalSuperblock, OpenError> {
        let (block_size, blocks_count) = (found.place.block_size, found.blocks());
        let device = self.volume.device().clone();
        let log = Log { device: &*device, place: &found.place };
        let sequence = log.first_unused_tid(1..blocks_count, Tid(1))?;
        let empty = JournalSuperblock::empty(block_size, blocks_count);
        Ok(JournalSuperblock { sequence, ..empty }.encode_sealed())
    }

    pub(super) fn check_recovery(&mut self, recovered: &Recovered) -> Result<(), CheckError> {
        for damage in &recovered.damage {
            let finding = match damage {
                Damage::Transaction(tid, _) => {
                    Finding::new(Code::JournalTransactionCorrupt).found(u64::from(tid.0))
                }
                Damage::Block(error) => {
                    Finding::new(Code::JournalBlockCorrupt).detail(error.to_string())
                }
                Damage::Revoke(error) => {
                    Finding::new(Code::JournalRevokeCorrupt).detail(error.to_string())
                }
            };
            self.should_fix(finding)?;
            self.state.needs_passes = true;
        }
        if recovered.errno != 0 {
            let number = u64::from(recovered.errno.unsigned_abs());
            self.report(Finding::new(Code::JournalErrno).found(number))?;
            self.state.needs_passes = true;
        }
        Ok(())
    }
}

/// Computes the checksum of a journal device's own superblock again.
fn seal_device(device: &dyn Device) -> Result<(), CheckError> {
    let mut own = RawSuperblock::new_zeroed();
    device.read_at(SUPERBLOCK_OFFSET, own.as_mut_bytes())?;
    own.seal();
    device.write_at(SUPERBLOCK_OFFSET, own.as_bytes())?;
    Ok(device.flush()?)
}

/// Writes the superblock of a log; the rest of its block stays as it is.
fn write_log_superblock(log: &Log<'_>, raw: &RawJournalSuperblock) -> Result<(), CheckError> {
    if let Some((start, _)) = log.place.runs.pieces(log.place.superblock_at, 1).next() {
        let offset = start.0.saturating_mul(u64::from(log.place.block_size));
        log.device.write_at(offset, raw.as_bytes())?;
    }
    Ok(log.device.flush()?)
}

/// Why an inode holds no journal.
pub(super) enum Broken {
    Because(String),
    Offline(OfflineError),
}

impl From<OfflineError> for Broken {
    fn from(error: OfflineError) -> Self {
        Self::Offline(error)
    }
}

fn clear_recover(raw: &mut RawSuperblock) {
    let mut features = raw.features();
    features.incompat -= IncompatFeatures::RECOVER;
    if raw.s_rev_level.get() > 0 {
        raw.set_features(features);
    }
}

pub(crate) fn forget_journal(raw: &mut RawSuperblock) {
    clear_recover(raw);
    let mut features = raw.features();
    features.compat -= CompatFeatures::HAS_JOURNAL;
    if raw.s_rev_level.get() > 0 {
        raw.set_features(features);
    }
    raw.s_journal_inum.set(0);
    raw.s_journal_dev.set(0);
    raw.s_journal_uuid = [0; 16];
    raw.s_jnl_backup_type = 0;
    raw.s_jnl_blocks = Default::default();
}
