//! Tables that a descriptor looks for elsewhere than its backup does: bitmaps and inode tables stay where the volume's maker put
//! them, so that one of the two is broken. What lies at the two places says which. On a volume without backups the place where
//! makers put a table stands in for the backup's.

use super::groups::{bad_places, distrust, place, set_place};
use super::{Front, backup_table};
use crate::finding::{Code, Finding};
use crate::store::CheckError;
use extant_layout::RunSet;
use extant_layout::groups::leading;
use extant_layout::tables::{TableRules, place_tables};
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::group_desc::{self, GroupDesc, GroupFlags, RawGroupDesc};
use extant_ondisk::inode::{self, Inode};
use extant_ondisk::{BlockNo, Geometry, GroupNo, InodeNo};
use std::collections::BTreeSet;

/// Blocks of an inode table that are looked at: inodes are handed out from its front.
const LOOKED_AT: u64 = 64;
/// The names of a group's tables in findings.
pub(super) const TABLES: [&str; 3] = ["block bitmap", "inode bitmap", "inode table"];

/// How much speaks for a place, what weighs most first.
type Score = (i64, i64, i64);

impl Front<'_> {
    /// Compares the places of all tables with the first backup's, and takes the backup's where more speaks for it.
    pub(super) fn check_moved_tables(&mut self) -> Result<(), CheckError> {
        if self.facts.from_backup {
            return Ok(());
        }
        let geometry = self.volume.geometry().clone();
        let backup = geometry.backup_superblock_groups().first().copied();
        let table = match backup {
            Some(backup) => backup_table(&**self.volume.device(), &geometry, backup)?,
            None => Vec::new(),
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
        for group in (0..geometry.groups_count).map(GroupNo) {
            let desc = self.desc(group);
            let copy = match guess.get(group.0 as usize) {
                Some(tables) => Some(GroupDesc {
                    block_bitmap: tables.block_bitmap,
                    inode_bitmap: tables.inode_bitmap,
                    inode_table: tables.inode_table,
                    ..desc.clone()
                }),
                None => sound_desc(&table, group, &geometry),
            };
            let Some(copy) = copy else { continue };
            if !bad_places(group, &desc, &geometry).is_empty() {
                continue; // judged with the descriptors
            }
            let is_other = TABLES.iter().any(|name| place(&desc, name) != place(&copy, name));
            let is_witnessed = geometry.has_uninit_groups() && self.verify_desc(group).is_ok();
            if is_other && !is_witnessed && broken.contains(&geometry.desc_place(group).0) {
                self.facts.needs_passes = true;
                let detail = "beside another, and not as in the backup".to_owned();
                let finding = Finding::new(Code::GroupDescInvalid).group(group).detail(detail);
                let is_accepted = self.ask(finding)?;
                self.settle(group, is_accepted, |desc| {
                    *desc = copy;
                    distrust(desc);
                });
                continue;
            }
            for name in TABLES {
                let (here, there) = (place(&desc, name), place(&copy, name));
                if here == there || !self.is_nearer(group, name, &copy, backup.is_some())? {
                    continue;
                }
                self.facts.needs_passes = true;
                let finding = Finding::new(Code::GroupTableMoved)
                    .group(group)
                    .block(here)
                    .expected(there.0)
                    .detail(name.to_owned());
                let is_accepted = self.ask(finding)?;
                let is_sealed = self.verify_desc(group).is_ok();
                self.settle(group, is_accepted, |desc| {
                    set_place(desc, name, there);
                    if !is_sealed {
                        distrust(desc);
                    }
                });
            }
        }
        // What is looked at from here on is as it would be repaired.
        self.volume.seal_descs();
        Ok(())
    }

    /// Whether more speaks for the copy's place of a table than for the descriptor's own.
    fn is_nearer(
        &self,
        group: GroupNo,
        name: &str,
        copy: &GroupDesc,
        is_witness: bool,
    ) -> Result<bool, CheckError> {
        let desc = self.desc(group);
        let others = self.tables_of_others(group, name);
        let here = self.score(group, &desc, name, place(&desc, name), &others)?;
        let there = self.score(group, &desc, name, place(copy, name), &others)?;
        // Contents of bitmaps can be made anew anywhere; where a table holds nothing, the copy is one witness more.
        Ok(there > here || is_witness && there == here && name == "inode table")
    }

    /// What the volume has beside one table of one group.
    fn tables_of_others(&self, group: GroupNo, name: &str) -> RunSet {
        let geometry = self.volume.geometry();
        let mut taken = RunSet::new();
        for other in (0..geometry.groups_count).map(GroupNo) {
            taken.insert(leading(geometry, other).blocks());
            let desc = self.desc(other);
            for table in TABLES.iter().filter(|table| (other, **table) != (group, name)) {
                let (start, count) = (place(&desc, table), table_blocks(table, geometry));
                if geometry.contains(start, count) {
                    taken.insert(start.0..start.0 + count);
                }
            }
        }
        taken
    }

    /// Room that nothing else of the volume's own takes, contents that make sense, blocks that are in use.
    fn score(
        &self,
        group: GroupNo,
        desc: &GroupDesc,
        name: &str,
        start: BlockNo,
        others: &RunSet,
    ) -> Result<Score, CheckError> {
        let geometry = self.volume.geometry();
        let count = table_blocks(name, geometry);
        let room = i64::from(others.is_free(start.0..start.0 + count));
        let contents = match name {
            "block bitmap" => self.bitmap_score(BitmapKind::Block, group, desc, start)?,
            "inode bitmap" => self.bitmap_score(BitmapKind::Inode, group, desc, start)?,
            _ => self.inodes_score(group, start)?,
        };
        let in_use = if name == "block bitmap" { 0 } else { self.blocks_in_use(start, count)? };
        Ok((room, contents, in_use))
    }

    /// Records of a table that make sense, less those that do not.
    fn inodes_score(&self, group: GroupNo, start: BlockNo) -> Result<i64, CheckError> {
        let geometry = self.volume.geometry();
        let first = group.0 * geometry.inodes_per_group + 1;
        let mut numbers = (first..).map(InodeNo);
        let mut score = 0;
        for at in 0..u64::from(geometry.itable_blocks()).min(LOOKED_AT) {
            let block = self.read(BlockNo(start.0 + at))?;
            for record in block.chunks_exact(usize::from(geometry.inode_size)) {
                let Some(number) = numbers.next() else { return Ok(score) };
                if record.iter().any(|byte| *byte != 0) {
                    score += if is_sensible(record, number, geometry) { 1 } else { -1 };
                }
            }
        }
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

pub(super) fn table_blocks(name: &str, geometry: &Geometry) -> u64 {
    if name == "inode table" { u64::from(geometry.itable_blocks()) } else { 1 }
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
fn sound_desc(table: &[u8], group: GroupNo, geometry: &Geometry) -> Option<GroupDesc> {
    let (index, at) = geometry.desc_place(group);
    let start = index as usize * geometry.block_len() + at;
    let stored = table.get(start..start + usize::from(geometry.desc_size))?;
    let raw = RawGroupDesc::from_bytes(stored, group, geometry).ok()?;
    let desc = GroupDesc::unchecked(&raw);
    let is_sound = bad_places(group, &desc, geometry).is_empty()
        && group_desc::verify(stored, group, geometry).is_ok();
    is_sound.then_some(desc)
}
