//! Pass 0 restores from the log of the journal: the superblock, descriptors, and the block of the
//! inode table that leads to the journal.

use super::superblock_search::SuperblockCandidate;
use super::table_places::bad_places;
use super::{CheckOpenOptions, OpenError, Pass0};
use crate::evidence::{finding, records};
use crate::recorder::Recorder;
use crate::store::CheckError;
use extant_device::Device;
use extant_evidence::{BlockCopy, Evidence};
use extant_ondisk::group_desc::{self, GroupDesc};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, Superblock};
use extant_ondisk::{Geometry, GroupNo, IncompatFeatures, InodeNo};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// The newest copy of a block with its bytes. A log that cannot be read there proves nothing.
fn copy_of(evidence: &Evidence, block: extant_ondisk::BlockNo) -> Option<(BlockCopy, Vec<u8>)> {
    let copy = *evidence.newest(block)?;
    Some((copy, evidence.read(&copy).ok()?))
}

/// Proposes to restore a primary superblock that cannot be used, or that was made usable by a
/// guess; whether it was restored. `found` is what would be used instead.
pub(super) fn restore_superblock(
    device: &Arc<dyn Device>,
    found: &SuperblockCandidate,
    options: &CheckOpenOptions,
    recorder: &Recorder<'_>,
) -> Result<bool, CheckError> {
    let is_named = options.superblock.superblock.is_some();
    if !options.journal_evidence || is_named || found.is_sound_primary() {
        return Ok(false);
    }
    let geometry = &found.geometry;
    let evidence = Evidence::gather(device, options.journal.as_ref(), &found.raw, geometry);
    let Some(evidence) = evidence else { return Ok(false) };
    let Some((copy, bytes)) = copy_of(&evidence, geometry.superblock_block()) else {
        return Ok(false);
    };
    let offset = (SUPERBLOCK_OFFSET % u64::from(geometry.block_size)) as usize;
    let Some(mut raw) = sound_superblock(bytes.get(offset..).unwrap_or_default(), found) else {
        return Ok(false);
    };
    if !recorder.should_fix(finding(&copy, "superblock"))? {
        return Ok(false);
    }
    if evidence.is_replayed() {
        // As after the unmount, which writes these past the journal.
        let mut features = raw.features();
        features.incompat -= IncompatFeatures::RECOVER;
        raw.set_features(features);
        raw.s_last_orphan.set(0);
    }
    raw.seal();
    device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes())?;
    device.flush()?;
    Ok(true)
}

/// A superblock that verifies, of the same volume with the same sizes.
fn sound_superblock(bytes: &[u8], found: &SuperblockCandidate) -> Option<RawSuperblock> {
    let raw = RawSuperblock::from_bytes(bytes, GroupNo(0)).ok()?;
    raw.verify(GroupNo(0)).ok()?;
    let geometry = Geometry::new(&raw).ok()?;
    let sizes = |geometry: &Geometry| {
        let Geometry { block_size, blocks_count, blocks_per_group, .. } = *geometry;
        (block_size, blocks_count, blocks_per_group, geometry.inodes_count, geometry.inode_size)
    };
    let is_same = raw.s_uuid == found.raw.s_uuid
        && sizes(&geometry) == sizes(&found.geometry)
        && super::superblock_search::beyond(&raw).is_empty();
    let is_older = Superblock::decode(&raw).last_check < Superblock::decode(&found.raw).last_check;
    (is_same && !is_older).then_some(raw)
}

impl Pass0<'_> {
    /// Restores descriptors that are damaged or come from a backup, and the journal's inode.
    pub(super) fn restore_from_log(&mut self) -> Result<(), OpenError> {
        if !self.options.journal_evidence {
            return Ok(());
        }
        let (external, geometry) = (self.options.journal.as_ref(), self.volume.geometry());
        let device = self.volume.device().clone();
        let Some(evidence) = Evidence::gather(&device, external, &self.volume.raw, geometry) else {
            return Ok(());
        };
        let geometry = geometry.clone();
        let mut is_restored = false;
        for index in 0..geometry.desc_blocks() {
            let in_place = self.volume.table().block(index, &geometry);
            let is_sound = !self.state.is_table_backup && are_sound(in_place, index, &geometry);
            let Some((copy, bytes)) = copy_of(&evidence, geometry.desc_block(index)) else {
                continue;
            };
            if is_sound || in_place == bytes || !are_sound(&bytes, index, &geometry) {
                continue;
            }
            let (first, last) = groups_of(index, &geometry);
            let what = format!("descriptors of groups {first} to {last}");
            if self.should_fix(finding(&copy, &what).group(GroupNo(first)))? {
                device.write_at(geometry.byte_of(copy.home), &bytes).map_err(CheckError::from)?;
                is_restored = true;
            }
        }
        if is_restored {
            device.flush().map_err(CheckError::from)?;
            self.reload()?;
            self.state.needs_passes = true;
        }
        if !self.is_journal_found() {
            self.restore_journal_records(&evidence, &*device)?;
        }
        Ok(())
    }

    fn restore_journal_records(
        &mut self,
        evidence: &Evidence,
        device: &dyn Device,
    ) -> Result<(), CheckError> {
        let geometry = self.volume.geometry().clone();
        let number = InodeNo(self.volume.raw.s_journal_inum.get());
        let Some((group, index)) = geometry.inode_place(number) else { return Ok(()) };
        let desc = self.desc(group);
        if !bad_places(group, &desc, &geometry).is_empty() {
            return Ok(());
        }
        let per_block = geometry.inodes_per_block();
        let Some(block) = desc.inode_table.checked_add(u64::from(index / per_block)) else {
            return Ok(());
        };
        let Some((copy, bytes)) = copy_of(evidence, block) else { return Ok(()) };
        let in_place = self.read(block)?;
        let first = InodeNo(number.0 - index % per_block);
        let merged =
            records::merged(&in_place, &bytes, first, &geometry, |pair| match copy.is_certain() {
                true => pair.is_replaced_by_last(&geometry),
                false => pair.number == number && pair.is_replaced_by_older(&geometry),
            });
        let Some(merged) = merged else { return Ok(()) };
        let mut finding = finding(&copy, &records::list(&merged.numbers));
        finding.subject.inode = merged.numbers.first().copied();
        if self.should_fix(finding)? {
            device.write_at(geometry.byte_of(block), &merged.bytes)?;
            device.flush()?;
            self.state.needs_passes = true;
        }
        Ok(())
    }
}

/// The first and the last group with a descriptor in a block of the table.
fn groups_of(index: u32, geometry: &Geometry) -> (u32, u32) {
    let first = index.saturating_mul(geometry.descs_per_block());
    let end = first.saturating_add(geometry.descs_per_block()).min(geometry.groups_count);
    (first, end.saturating_sub(1))
}

/// Whether all descriptors of a block of the table have the right checksums and lead to tables on
/// the volume.
fn are_sound(block: &[u8], index: u32, geometry: &Geometry) -> bool {
    let (first, last) = groups_of(index, geometry);
    (first..=last).map(GroupNo).all(|group| {
        let (_, at) = geometry.desc_place(group);
        let stored = block.get(at..at + usize::from(geometry.desc_size)).unwrap_or_default();
        let is_verified = group_desc::verify(stored, group, geometry).is_ok();
        let desc = GroupDesc::from_stored(stored, group, geometry);
        is_verified && desc.is_ok_and(|desc| bad_places(group, &desc, geometry).is_empty())
    })
}
