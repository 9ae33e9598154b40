//! Tables whose location in a descriptor differs from that in its backup: bitmaps and inode tables
//! stay where mkfs put them, so one of the two is corrupt. The contents of the two locations decide
//! which. On a volume without backups the location that mkfs uses is tried in the place of the
//! backup's: it counts only where the contents prove it.

use super::places::Places;
use super::table_places::{TABLES, bad_places, mark_suspect, place, set_place, table_blocks};
use super::{Pass0, backup_table};
use crate::finding::{Code, Finding};
use crate::store::CheckError;
use extant_layout::tables::{TableRules, place_tables};
use extant_layout::{DescriptorTable, RunSet};
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::group_desc::{GroupDesc, GroupFlags};
use extant_ondisk::inode::{self, Inode};
use extant_ondisk::{BlockNo, Geometry, GroupNo, InodeNo};
use std::collections::BTreeSet;

/// Contents of a bitmap that are not there by chance: its count of free bits, and its padding.
const BITMAP_PROVEN: i64 = 2;
/// A score for a location, the most significant part first.
type Score = (i64, i64, i64);

impl Pass0<'_> {
    /// Compares the locations of all tables with the first backup's, and uses the backup's if its
    /// score is higher.
    pub(super) fn check_moved_tables(&mut self) -> Result<(), CheckError> {
        if self.state.is_table_backup {
            return Ok(());
        }
        let geometry = self.volume.geometry().clone();
        let backup = geometry.backup_superblock_groups().first().copied();
        let table = match backup {
            Some(backup) => Some(backup_table(&**self.volume.device(), &geometry, backup)?),
            None => None,
        };
        // Without a backup: where the maker of the volume would have put them.
        let guess = match backup {
            Some(_) => Vec::new(),
            None => place_tables(&geometry, TableRules::default(), &RunSet::new())
                .map_or_else(|_| Vec::new(), |placed| placed.groups),
        };
        // A block of the table with a descriptor that cannot be may hold nothing that is one.
        let mut broken = BTreeSet::new();
        if backup.is_some() {
            for group in (0..geometry.groups_count).map(GroupNo) {
                if !bad_places(group, &self.desc(group), &geometry).is_empty() {
                    broken.insert(geometry.desc_place(group).0);
                }
            }
        }
        // Made where something lies elsewhere.
        let mut places: Option<Places> = None;
        for group in (0..geometry.groups_count).map(GroupNo) {
            let desc = self.desc(group);
            let copy = match guess.get(group.0 as usize) {
                Some(tables) => Some(GroupDesc {
                    block_bitmap: tables.block_bitmap,
                    inode_bitmap: tables.inode_bitmap,
                    inode_table: tables.inode_table,
                    ..desc.clone()
                }),
                None => table.as_ref().and_then(|table| sound_desc(table, group, &geometry)),
            };
            let Some(copy) = copy else { continue };
            // Checked with the descriptors; without a backup the other locations of such a
            // descriptor are no better.
            let bad = bad_places(group, &desc, &geometry);
            if !bad.is_empty() && backup.is_some() {
                continue;
            }
            let is_other = TABLES.iter().any(|name| place(&desc, name) != place(&copy, name));
            let is_witnessed = geometry.has_uninit_groups() && self.verify_desc(group).is_ok();
            if is_other && !is_witnessed && broken.contains(&geometry.desc_place(group).0) {
                self.state.needs_passes = true;
                let detail = "next to another one, and different from the backup".to_owned();
                let finding = Finding::new(Code::GroupDescInvalid).group(group).detail(detail);
                let is_accepted = self.should_fix(finding)?;
                self.set_descriptor(group, is_accepted, |desc| {
                    *desc = copy;
                    mark_suspect(desc);
                });
                if let Some(places) = &mut places {
                    places.update(self, group, &desc);
                }
                continue;
            }
            for name in TABLES.into_iter().filter(|name| !bad.contains(name)) {
                let before = self.desc(group);
                let (here, there) = (place(&before, name), place(&copy, name));
                if here == there {
                    continue;
                }
                let places = places.get_or_insert_with(|| Places::of(self));
                let is_nearer = match backup {
                    Some(_) => self.is_nearer(group, name, &copy, places)?,
                    None => !is_witnessed && self.is_at_guess(group, name, there, places)?,
                };
                if !is_nearer {
                    continue;
                }
                self.state.needs_passes = true;
                let finding = Finding::new(Code::GroupTableMoved)
                    .group(group)
                    .block(here)
                    .expected(there.0)
                    .detail(name.to_owned());
                let is_accepted = self.should_fix(finding)?;
                let is_sealed = self.verify_desc(group).is_ok();
                self.set_descriptor(group, is_accepted, |desc| {
                    set_place(desc, name, there);
                    if !is_sealed {
                        mark_suspect(desc);
                    }
                });
                places.update(self, group, &before);
            }
        }
        // From here on the descriptors are as they would be after the repair.
        self.volume.seal_descs();
        Ok(())
    }

    /// Whether the backup's location of a table has a higher score than the descriptor's own. An
    /// inode table that proves itself stays where it is.
    fn is_nearer(
        &self,
        group: GroupNo,
        name: &str,
        copy: &GroupDesc,
        places: &Places,
    ) -> Result<bool, CheckError> {
        let desc = self.desc(group);
        let here = self.score(group, &desc, name, place(&desc, name), places)?;
        let there = self.score(group, &desc, name, place(copy, name), places)?;
        if name != "inode table" {
            return Ok(there > here);
        }
        // The contents of a bitmap can be computed again at any place. For an empty table the copy
        // decides.
        Ok(there >= here && !self.proves_itself(group, desc.inode_table)?)
    }

    /// Whether a table is at the location that mkfs would use, and not at the descriptor's own.
    /// That location is a guess: only contents that cannot be there by chance confirm it, where
    /// those of the descriptor's location do not. A sound volume may have its tables anywhere.
    fn is_at_guess(
        &self,
        group: GroupNo,
        name: &str,
        there: BlockNo,
        places: &Places,
    ) -> Result<bool, CheckError> {
        let desc = self.desc(group);
        let start = place(&desc, name);
        let at_here = self.score(group, &desc, name, start, places)?;
        let at_there = self.score(group, &desc, name, there, places)?;
        if at_there <= at_here {
            return Ok(false);
        }
        if name == "inode table" {
            return Ok(self.proves_itself(group, there)? && !self.proves_itself(group, start)?);
        }
        // Padding alone proves nothing, but no bitmap can share its block.
        let has_room = |(room, _, _): Score| room > 0;
        let is_counted = |(_, contents, _): Score| contents >= BITMAP_PROVEN;
        Ok(has_room(at_there)
            && (!has_room(at_here) || is_counted(at_there) && !is_counted(at_here)))
    }

    /// Room that no other metadata uses, valid contents, blocks that are in use.
    fn score(
        &self,
        group: GroupNo,
        desc: &GroupDesc,
        name: &str,
        start: BlockNo,
        places: &Places,
    ) -> Result<Score, CheckError> {
        let count = table_blocks(name, self.volume.geometry());
        let range = start.0..start.0 + count;
        let room = i64::from(places.is_free_but_for(self, range, group, name));
        let contents = match name {
            "block bitmap" => self.bitmap_score(BitmapKind::Block, group, desc, start)?,
            "inode bitmap" => self.bitmap_score(BitmapKind::Inode, group, desc, start)?,
            _ => self.inodes_score(group, start)?,
        };
        let in_use = if name == "block bitmap" { 0 } else { self.blocks_in_use(start, count)? };
        Ok((room, contents, in_use))
    }

    /// Number of valid records of a table, minus the invalid ones.
    fn inodes_score(&self, group: GroupNo, start: BlockNo) -> Result<i64, CheckError> {
        let geometry = self.volume.geometry();
        let mut score = 0;
        self.visit_inodes(group, start, |number, record| {
            score += if is_sensible(record, number, geometry) { 1 } else { -1 };
            Ok(false)
        })?;
        Ok(score)
    }

    /// Whether a block holds a group's bitmap: its checksum, its padding, its count.
    fn bitmap_score(
        &self,
        kind: BitmapKind,
        group: GroupNo,
        desc: &GroupDesc,
        start: BlockNo,
    ) -> Result<i64, CheckError> {
        let geometry = self.volume.geometry();
        let bytes = self.read(start)?;
        let bits = kind.used_bits(group, geometry);
        let is_summed = geometry.has_metadata_csum()
            && bitmap::verify(&bytes, kind, group, desc, geometry).is_ok();
        let free = match kind {
            BitmapKind::Block => desc.free_clusters,
            BitmapKind::Inode => desc.free_inodes,
        };
        let is_counted = bits - bitmap::count_set(&bytes, 0..bits) == free;
        let is_padded = bitmap::is_padded(&bytes, bits);
        Ok(i64::from(is_summed) + i64::from(is_counted) + i64::from(is_padded))
    }

    /// How many of these blocks the bitmaps have in use, as far as they are stored.
    fn blocks_in_use(&self, start: BlockNo, count: u64) -> Result<i64, CheckError> {
        let geometry = self.volume.geometry();
        let mut in_use = 0;
        let mut known: Option<(GroupNo, Vec<u8>)> = None;
        for block in (start.0..start.0 + count).map(BlockNo) {
            let Some(group) = geometry.group_of(block) else { continue };
            if known.as_ref().is_none_or(|(of, _)| *of != group) {
                let desc = self.desc(group);
                let is_implied = geometry.has_uninit_groups()
                    && desc.flags.contains(GroupFlags::BLOCK_UNINIT)
                    || !geometry.contains(desc.block_bitmap, 1);
                let bits = if is_implied { Vec::new() } else { self.read(desc.block_bitmap)? };
                known = Some((group, bits));
            }
            let at =
                (block.0 - geometry.group_start(group).0) / u64::from(geometry.blocks_per_cluster);
            let byte = known.as_ref().and_then(|(_, bits)| bits.get((at / 8) as usize));
            in_use += i64::from(byte.is_some_and(|byte| byte >> (at % 8) & 1 != 0));
        }
        Ok(in_use)
    }
}

/// Whether a record, not all zeros, can be that of the inode.
fn is_sensible(record: &[u8], number: InodeNo, geometry: &Geometry) -> bool {
    if geometry.has_metadata_csum() {
        return inode::verify(record, number, geometry).is_ok();
    }
    Inode::decode(record, number, geometry).is_ok_and(|inode| {
        let is_reserved = number < geometry.first_inode;
        is_reserved || inode.file_type().is_some() && (inode.links > 0) != (inode.dtime != 0)
    })
}

/// The descriptor of a group as a copy of the table has it, if that can be.
fn sound_desc(table: &DescriptorTable, group: GroupNo, geometry: &Geometry) -> Option<GroupDesc> {
    let desc = table.get(group, geometry);
    let is_sound =
        bad_places(group, &desc, geometry).is_empty() && table.verify(group, geometry).is_ok();
    is_sound.then_some(desc)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass0::CheckOpenOptions;
    use crate::policy::AutoPolicy;
    use crate::recorder::Recorder;
    use crate::report::HandledFinding;
    use extant_device::{Device, FileDevice};
    use extant_testkit::{TempImage, skip, tool};
    use std::sync::Arc;

    const GROUPS: u32 = 2048;
    /// Maximum number of descriptor reads per group, however many groups there are.
    const MOST_READS: usize = 16;
    /// Where a descriptor says the inode table's place.
    const INODE_TABLE_AT: u64 = 8;

    /// Backups that are stale for all groups but three; of those it is the table in use that is
    /// wrong.
    #[test]
    fn tables_that_moved_are_found_despite_stale_backups_in_a_few_steps_a_group() {
        if tool("mke2fs").is_none() {
            skip!("mke2fs is not installed");
        }
        let features =
            "^has_journal,^resize_inode,^flex_bg,^64bit,^metadata_csum,^uninit_bg,sparse_super";
        let options = ["-t", "ext4", "-b", "1024", "-g", "256", "-N", "32768", "-O", features];
        let image = TempImage::by_mke2fs(u64::from(GROUPS) << 18, &options).expect("it is made");
        let device: FileDevice = extant_device::FileDeviceOptions::new()
            .write(true)
            .open(image.path())
            .expect("it opens");
        let device: Arc<dyn Device> = Arc::new(device);
        let options = CheckOpenOptions::default();
        let recorder = Recorder::new(&AutoPolicy::No);
        let found = Pass0::find(device.clone(), &options, &recorder).expect("it is sound");
        let geometry = found.volume.geometry().clone();
        assert_eq!(geometry.groups_count, GROUPS);
        let shift = |block: BlockNo, at: usize, by: u32| {
            let place = geometry.byte_of(block) + at as u64 + INODE_TABLE_AT;
            let mut stored = [0; 4];
            device.read_at(place, &mut stored).expect("reads");
            let moved = u32::from_le_bytes(stored) + by;
            device.write_at(place, &moved.to_le_bytes()).expect("writes");
            u64::from(moved)
        };
        let mut expected = Vec::new();
        for group in (0..GROUPS).map(GroupNo) {
            let (index, at) = geometry.desc_place(group);
            if [3, 700, 2040].contains(&group.0) {
                let here = shift(geometry.desc_block(index), at, 50);
                expected.push((Code::GroupTableMoved, group, BlockNo(here), here - 50));
            } else {
                let backup = geometry.desc_block_backup(index, GroupNo(1)).expect("it has one");
                shift(backup, at, 1);
            }
        }

        let mut pass0 = Pass0::find(device.clone(), &options, &recorder).expect("it is sound");
        pass0.check_moved_tables().expect("reads");

        let findings = recorder.findings();
        let found: Vec<_> = findings
            .iter()
            .filter_map(|HandledFinding { finding: Finding { code, subject }, .. }| {
                Some((*code, subject.group?, subject.block?, subject.expected?))
            })
            .collect();
        assert_eq!((findings.len(), found), (expected.len(), expected));
        let reads = pass0.desc_reads.get() / GROUPS as usize;
        assert!(reads <= MOST_READS, "{reads} reads of descriptors for each group");
    }
}
