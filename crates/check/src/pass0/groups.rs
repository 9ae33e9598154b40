//! Group descriptors: whether they can be, and what to put in the place of those that cannot.

use super::Pass0;
use super::table_places::{TABLES, bad_places, mark_suspect, place, set_place, table_blocks};
use crate::finding::{Code, Finding};
use crate::store::CheckError;
use extant_layout::RunSet;
use extant_layout::groups::leading;
use extant_layout::tables::{GroupTables, TableRules, place_tables};
use extant_ondisk::group_desc::{self, GroupDesc, GroupFlags};
use extant_ondisk::{BlockNo, Flaw, FormatError, Geometry, GroupNo};

/// Backups in which a descriptor is looked for: all that sparse_super has. Without it each group
/// has one.
const MOST_BACKUPS: usize = 40;

impl Pass0<'_> {
    /// Checks every descriptor. Impossible values are replaced in memory at once, so that the
    /// passes can run; they are written if the policy accepts it.
    pub(super) fn check_groups(&mut self) -> Result<(), CheckError> {
        let geometry = self.volume.geometry().clone();
        // Computed only where something is wrong.
        let mut guess: Option<Option<Vec<GroupTables>>> = None;
        let mut taken: Option<RunSet> = None;
        let mut checksums = Vec::new();
        for group in (0..geometry.groups_count).map(GroupNo) {
            let fix = self.verify_desc(group);
            let bad = bad_places(group, &self.desc(group), &geometry);
            if bad.is_empty() {
                if let Err(FormatError::Corrupt {
                    flaw: Flaw::Checksum { found, computed }, ..
                }) = fix
                {
                    checksums.push((group, found, computed));
                }
                continue;
            }
            self.state.needs_passes = true;
            if let Some(backup) = self.backup_desc(group)? {
                let finding = Finding::new(Code::GroupDescInvalid)
                    .group(group)
                    .detail(format!("bad block for {}", bad.join(" and ")));
                if let Some(taken) = &mut taken {
                    for table in TABLES {
                        let start = place(&backup, table).0;
                        taken.insert(start..start + table_blocks(table, &geometry));
                    }
                }
                let is_accepted = self.should_fix(finding)?;
                self.set_descriptor(group, is_accepted, |desc| {
                    // Its counts are old, but nearer to the truth than those of a broken one.
                    *desc = backup;
                    mark_suspect(desc);
                });
                continue;
            }
            let tables = guess.get_or_insert_with(|| {
                let rules = TableRules::default();
                place_tables(&geometry, rules, &RunSet::new()).ok().map(|it| it.groups)
            });
            let tables = tables.as_ref().and_then(|all| all.get(group.0 as usize)).copied();
            let taken = taken.get_or_insert_with(|| self.tables_in_place());
            for name in &bad {
                self.replace_place(group, name, tables.as_ref(), taken)?;
            }
        }
        for (group, found, computed) in checksums {
            let finding = Finding::new(Code::GroupDescChecksum)
                .group(group)
                .detail(format!("{found:#06x}, should be {computed:#06x}"));
            let is_accepted = self.should_fix(finding)?;
            self.state.needs_passes = true;
            self.set_descriptor(group, is_accepted, mark_suspect);
        }
        self.check_high_water()
    }

    pub(super) fn verify_desc(&self, group: GroupNo) -> Result<(), FormatError> {
        self.volume.table().verify(group, self.volume.geometry())
    }

    /// The same group's descriptor from a backup whose places lie on the volume.
    fn backup_desc(&mut self, group: GroupNo) -> Result<Option<GroupDesc>, CheckError> {
        let geometry = self.volume.geometry().clone();
        let (index, at) = geometry.desc_place(group);
        for backup in geometry.backup_superblock_groups().into_iter().take(MOST_BACKUPS) {
            let Some(block) = geometry.desc_block_backup(index, backup) else { continue };
            let bytes = self.read(block)?;
            let stored = &bytes[at..at + usize::from(geometry.desc_size)];
            if group_desc::verify(stored, group, &geometry).is_err() {
                continue;
            }
            let Ok(desc) = GroupDesc::from_stored(stored, group, &geometry) else { continue };
            if bad_places(group, &desc, &geometry).is_empty() {
                return Ok(Some(desc));
            }
        }
        Ok(None)
    }

    /// The tables of the volume that lie at possible locations.
    fn tables_in_place(&self) -> RunSet {
        let geometry = self.volume.geometry();
        let mut taken = RunSet::new();
        for group in (0..geometry.groups_count).map(GroupNo) {
            taken.insert(leading(geometry, group).blocks());
            let desc = self.desc(group);
            let bad = bad_places(group, &desc, geometry);
            for table in TABLES.iter().filter(|table| !bad.contains(table)) {
                let start = place(&desc, table).0;
                taken.insert(start..start + table_blocks(table, geometry));
            }
        }
        taken
    }

    /// Without a backup: the location of mke2fs, if nothing else is stored there. For a bitmap,
    /// whose contents can be computed again, else the first block of the group that no table uses.
    fn replace_place(
        &mut self,
        group: GroupNo,
        name: &str,
        guess: Option<&GroupTables>,
        taken: &mut RunSet,
    ) -> Result<(), CheckError> {
        let geometry = self.volume.geometry().clone();
        let length = table_blocks(name, &geometry);
        let guessed = guess.map(|tables| match name {
            "block bitmap" => tables.block_bitmap,
            "inode bitmap" => tables.inode_bitmap,
            _ => tables.inode_table,
        });
        let fits = |block: &BlockNo| {
            geometry.contains(*block, length) && taken.is_free(block.0..block.0 + length)
        };
        let start = geometry.group_start(group).0;
        let range = start..start + u64::from(geometry.group_blocks(group));
        let free = || taken.first_fit(range, length).map(BlockNo);
        let new = guessed.filter(fits).or_else(|| if length == 1 { free() } else { None });
        // Where nothing fits, pass 1 makes a new table: it knows what is free.
        let Some(new) = new else { return Ok(()) };
        taken.insert(new.0..new.0 + length);
        let old = place(&self.desc(group), name);
        let is_missing = old.0 == 0 && name != "inode table";
        let code = if is_missing { Code::GroupBitmapMissing } else { Code::GroupTablePlace };
        let finding =
            Finding::new(code).group(group).block(old).expected(new.0).detail(name.to_owned());
        let is_accepted = self.should_fix(finding)?;
        self.set_descriptor(group, is_accepted, |desc| {
            set_place(desc, name, new);
            mark_suspect(desc);
        });
        Ok(())
    }

    /// Without the feature nothing is implied: readers that know it would pass over the group.
    fn check_no_uninit(&mut self, geometry: &Geometry) -> Result<(), CheckError> {
        let uninit = GroupFlags::BLOCK_UNINIT | GroupFlags::INODE_UNINIT;
        for group in (0..geometry.groups_count).map(GroupNo) {
            let desc = self.desc(group);
            if !desc.flags.intersects(uninit) && desc.itable_unused == 0 {
                continue;
            }
            let is_accepted =
                self.should_fix(Finding::new(Code::GroupUninitWithoutFeature).group(group))?;
            self.state.needs_passes = true;
            self.set_descriptor(group, is_accepted, |desc| {
                desc.flags -= uninit;
                desc.itable_unused = 0;
            });
        }
        Ok(())
    }

    /// Counts that hide inodes from the passes: more unused inodes than free ones, and a last group
    /// whose bitmap is implied.
    fn check_high_water(&mut self) -> Result<(), CheckError> {
        let geometry = self.volume.geometry().clone();
        if !geometry.has_uninit_groups() {
            return self.check_no_uninit(&geometry);
        }
        let last = GroupNo(geometry.groups_count - 1);
        for group in (0..geometry.groups_count).map(GroupNo) {
            let desc = self.desc(group);
            let limit = geometry.inodes_per_group.min(desc.free_inodes);
            if desc.itable_unused > limit {
                let finding = Finding::new(Code::GroupUnusedImpossible)
                    .group(group)
                    .found(u64::from(desc.itable_unused));
                let is_accepted = self.should_fix(finding)?;
                self.state.needs_passes = true;
                self.set_descriptor(group, is_accepted, |desc| {
                    desc.flags -= GroupFlags::INODE_UNINIT;
                    desc.itable_unused = 0;
                });
            }
            if group == last && desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
                let is_accepted =
                    self.should_fix(Finding::new(Code::LastGroupUninit).group(group))?;
                self.state.needs_passes = true;
                self.set_descriptor(group, is_accepted, |desc| {
                    desc.flags -= GroupFlags::BLOCK_UNINIT
                });
            }
        }
        Ok(())
    }
}
