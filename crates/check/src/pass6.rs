//! Pass 6: fields of the superblock that follow from the passes, and the quota files.

use crate::context::Check;
use crate::finding::{Code, Finding};
use crate::map::FileMap;
use crate::store::CheckError;
use extant_ondisk::inode::{FileType, Inode};
use extant_ondisk::quota::{
    QUOTA_BLOCK_SIZE, QuotaBlock, QuotaKind, QuotaRecord, build_quota_file, quota_tree, slots,
};
use extant_ondisk::{BlockNo, Flaw, FormatError, InodeNo, Location, RoCompatFeatures};
use std::collections::BTreeMap;

/// Mode of a quota file.
const QUOTA_FILE: u16 = 0x8000 | 0o600;
/// Maximum size of a quota file in bytes.
const MAX_QUOTA_FILE: u64 = 1 << 30;
/// A larger `i_size` is not that of a quota file (observed of e2fsck 1.47.0).
const MAX_QUOTA_SIZE: u64 = 1 << 31;

impl Check<'_> {
    pub(crate) fn pass6(&mut self) -> Result<(), CheckError> {
        self.check_large_files()?;
        self.finish_unsharing()?;
        for (kind, usage) in QuotaKind::ALL.into_iter().zip(&self.usage) {
            if let Some(ino) = self.quota_inode(kind) {
                self.check_quota(kind, ino, usage)?;
            }
        }
        Ok(())
    }

    /// Files of 2 GiB need their feature, and features need a revision that has them.
    fn check_large_files(&self) -> Result<(), CheckError> {
        if self.statistics.large == 0 || self.geometry.has_ro_compat(RoCompatFeatures::LARGE_FILE) {
            return Ok(());
        }
        if self.should_fix(Finding::new(Code::LargeFileFeatureMissing))? {
            self.store.update_superblock(|raw| {
                let bits = raw.s_feature_ro_compat.get() | RoCompatFeatures::LARGE_FILE.bits();
                raw.s_feature_ro_compat.set(bits);
                if raw.s_rev_level.get() == 0 {
                    raw.s_rev_level.set(1);
                    raw.s_first_ino.set(self.geometry.first_inode.0);
                    raw.s_inode_size.set(self.geometry.inode_size);
                }
            })?;
        }
        Ok(())
    }

    /// After all shared blocks were copied the volume may be written like any other.
    fn finish_unsharing(&self) -> Result<(), CheckError> {
        let may_share = self.geometry.has_ro_compat(RoCompatFeatures::SHARED_BLOCKS);
        let is_left = self.blocks.twice().is_some() || !self.carry.twice.is_empty();
        if !may_share || !self.options.unshare_blocks || is_left {
            return Ok(());
        }
        if self.should_fix(Finding::new(Code::SharedBlocksDone))? {
            self.store.update_superblock(|raw| {
                let bits = raw.s_feature_ro_compat.get() & !RoCompatFeatures::SHARED_BLOCKS.bits();
                raw.s_feature_ro_compat.set(bits);
            })?;
        }
        Ok(())
    }

    fn check_quota(
        &self,
        kind: QuotaKind,
        ino: InodeNo,
        usage: &BTreeMap<u32, (u64, u64)>,
    ) -> Result<(), CheckError> {
        let stored = self.read_quota(kind, ino)?;
        let (finding, mut records) = match stored {
            Ok(records) => {
                let Some(detail) = quota_difference(&records, usage) else { return Ok(()) };
                (Finding::new(Code::QuotaWrong).inode(ino).detail(detail), records)
            }
            Err(_) if self.is_lost(ino)? => {
                (Finding::new(Code::QuotaInodeLost).inode(ino), Vec::new())
            }
            Err(error) => {
                let detail = error.to_string();
                (Finding::new(Code::QuotaFileCorrupt).inode(ino).detail(detail), Vec::new())
            }
        };
        if !self.should_fix(finding)? {
            return Ok(());
        }
        // Limits stay, use is what was counted; who uses nothing and has no limits has no record.
        let mut merged: BTreeMap<u32, QuotaRecord> =
            records.drain(..).map(|record| (record.id, record)).collect();
        for record in merged.values_mut() {
            (record.space, record.inodes) = (0, 0);
        }
        for (id, (space, inodes)) in usage {
            let record = merged.entry(*id).or_insert(QuotaRecord { id: *id, ..Default::default() });
            (record.space, record.inodes) = (*space, *inodes);
        }
        let records: Vec<_> = merged
            .into_values()
            .filter(|record| *record != QuotaRecord { id: record.id, ..Default::default() })
            .collect();
        if !self.write_quota(kind, ino, &records)? && self.is_lost(ino)? {
            self.drop_quota(kind)?;
        }
        Ok(())
    }

    /// Without a block for its file a quota is dropped.
    fn drop_quota(&self, kind: QuotaKind) -> Result<(), CheckError> {
        self.store.update_superblock(|raw| {
            let number = match kind {
                QuotaKind::User => &mut raw.s_usr_quota_inum,
                QuotaKind::Group => &mut raw.s_grp_quota_inum,
                QuotaKind::Project => &mut raw.s_prj_quota_inum,
            };
            number.set(0);
            let numbers = [raw.s_usr_quota_inum, raw.s_grp_quota_inum, raw.s_prj_quota_inum];
            if numbers.iter().all(|number| number.get() == 0) {
                let mut features = raw.features();
                features.ro_compat -= RoCompatFeatures::QUOTA;
                raw.set_features(features);
            }
        })?;
        self.need_restart();
        Ok(())
    }

    /// Whether the inode of a quota file is not that of a file with blocks.
    fn is_lost(&self, ino: InodeNo) -> Result<bool, CheckError> {
        let record = self.record(ino)?;
        Ok(Inode::decode(&record, ino, self.geometry).is_ok_and(|inode| {
            inode.links == 0 || inode.file_type() != Some(FileType::Regular) || inode.is_inline()
        }))
    }

    /// The records of a quota file, or why it has none.
    fn read_quota(
        &self,
        kind: QuotaKind,
        ino: InodeNo,
    ) -> Result<Result<Vec<QuotaRecord>, FormatError>, CheckError> {
        let record = self.record(ino)?;
        let inode = match Inode::decode(&record, ino, self.geometry) {
            Ok(inode) => inode,
            Err(error) => return Ok(Err(error)),
        };
        if inode.size > MAX_QUOTA_SIZE {
            let flaw = Flaw::above_limit("i_size", inode.size, MAX_QUOTA_SIZE);
            return Ok(Err(flaw.at(Location::Inode(ino))));
        }
        let bytes = self.read_content(ino, &inode, MAX_QUOTA_FILE.min(self.volume_bytes()))?;
        let tree = quota_tree(&bytes, kind, ino);
        Ok(tree.and_then(|mut tree| tree.sound_records()))
    }

    fn volume_bytes(&self) -> u64 {
        self.geometry.blocks_count << self.geometry.block_bits()
    }

    /// Rewrites a quota file: in new blocks if limits of users move, else in its own blocks and new
    /// ones after them. False on a full volume.
    fn write_quota(
        &self,
        kind: QuotaKind,
        ino: InodeNo,
        records: &[QuotaRecord],
    ) -> Result<bool, CheckError> {
        let bytes = build_quota_file(kind, records)?;
        let mut record = self.record(ino)?;
        let Ok(mut inode) = Inode::decode(&record, ino, self.geometry) else { return Ok(true) };
        if self.is_lost(ino)? {
            let Some(fresh) = self.fresh_inode(ino, QUOTA_FILE) else { return Ok(true) };
            (record, inode) = fresh;
            self.need_restart();
        }
        let block_len = self.geometry.block_len();
        let needed = bytes.len().div_ceil(block_len) as u64;
        let old = self.read_map(ino, &inode)?;
        // Limits are stored nowhere else: where they move, they stay in the old blocks until the
        // inode leads to the new ones.
        let mut new = None;
        let stored = self.read_content(ino, &inode, MAX_QUOTA_FILE.min(self.volume_bytes()))?;
        if !are_limits_in_place(&stored, &bytes) {
            new = self.quota_map(FileMap { extents: Vec::new(), ..old.clone() }, needed)?;
        }
        if new.is_some() {
            old.blocks().for_each(|(_, block)| self.release_block(block));
        } else {
            new = self.quota_map(old.clone(), needed)?;
        }
        let Some(new) = new else { return Ok(false) };
        for (at, piece) in bytes.chunks(block_len).enumerate() {
            let mut block = piece.to_vec();
            block.resize(block_len, 0);
            if let Some(place) = new.physical(at as u64) {
                self.store.write(place, &block)?;
            }
        }
        if new.extents != old.extents {
            if !self.write_map(ino, &mut inode, &old, &new)? {
                return Ok(false);
            }
            // Blocks just taken are not in the bitmaps yet.
            self.need_restart();
        }
        inode.size = bytes.len() as u64;
        inode.encode_into(&mut record, self.geometry);
        self.store.write_inode_ordered(ino, &mut record);
        Ok(true)
    }

    /// The map cut or grown to `blocks` blocks; `None` on a full volume.
    fn quota_map(&self, mut map: FileMap, blocks: u64) -> Result<Option<FileMap>, CheckError> {
        // The blocks cut off stay allocated until the next round compares the bitmaps.
        map.truncate(blocks);
        for extent in &mut map.extents {
            extent.is_unwritten = false;
        }
        let per_cluster = u64::from(self.geometry.blocks_per_cluster);
        for at in 0..blocks {
            if map.physical(at).is_some() {
                continue;
            }
            let before = (!at.is_multiple_of(per_cluster)).then(|| map.physical(at - 1)).flatten();
            let place = match before {
                Some(before) => BlockNo(before.0 + 1),
                None => match self.allocate_block(BlockNo(0))? {
                    Some(base) => base,
                    None => return Ok(None),
                },
            };
            map.set(at, place);
        }
        Ok(Some(map))
    }
}

/// Whether each record with limits has the same location in the new file as in the old one: a
/// partly written new file then leaves it whole.
fn are_limits_in_place(old: &[u8], new: &[u8]) -> bool {
    let limits = |records: Option<&[u8]>| -> Vec<(usize, QuotaRecord)> {
        let Some(Ok(block)) = records.map(<&QuotaBlock>::try_from) else { return Vec::new() };
        let records = slots(block).filter_map(|(at, raw)| Some((at, QuotaRecord::decode(&raw)?)));
        let limits =
            records.map(|(at, record)| (at, QuotaRecord { space: 0, inodes: 0, ..record }));
        limits.filter(|(_, it)| *it != QuotaRecord { id: it.id, ..Default::default() }).collect()
    };
    let mut old = old.chunks(QUOTA_BLOCK_SIZE);
    new.chunks(QUOTA_BLOCK_SIZE).all(|block| {
        let before = limits(old.next());
        limits(Some(block)).iter().all(|limit| before.contains(limit))
    })
}

/// The first id whose record differs from the counted usage.
fn quota_difference(records: &[QuotaRecord], usage: &BTreeMap<u32, (u64, u64)>) -> Option<String> {
    let stored: BTreeMap<u32, (u64, u64)> =
        records.iter().map(|record| (record.id, (record.space, record.inodes))).collect();
    let ids = stored.keys().chain(usage.keys());
    let mut wrong: Vec<_> = ids
        .filter(|id| {
            stored.get(id).copied().unwrap_or_default()
                != usage.get(id).copied().unwrap_or_default()
        })
        .collect();
    wrong.sort_unstable();
    let id = **wrong.first()?;
    // e2fsck's words: what was counted is actual, what the file says is expected.
    let (space, inodes) = usage.get(&id).copied().unwrap_or_default();
    let (expected_space, expected_inodes) = stored.get(&id).copied().unwrap_or_default();
    Some(format!(
        "id {id}: actual ({space}, {inodes}) != expected ({expected_space}, {expected_inodes})"
    ))
}
