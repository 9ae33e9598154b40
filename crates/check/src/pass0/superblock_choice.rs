//! Candidates for the superblock: whether one fits the data on the device, if the primary one is
//! valid but its own descriptors contradict it. Decided before anything is written through either.

use super::backup_table;
use super::superblock_search::{SuperblockCandidate, backups};
use super::table_places::{TABLES, bad_places, place, table_blocks};
use crate::finding::{Code, Finding};
use crate::store::CheckError;
use extant_device::Device;
use extant_layout::DescriptorTable;
use extant_layout::groups::{classic_desc_blocks, leading};
use extant_offline::read_table;
use extant_ondisk::inode::{self, FileType, Inode};
use extant_ondisk::superblock::RawSuperblock;
use extant_ondisk::{CompatFeatures, Flaw, Geometry, GroupNo, InodeNo, Location};
use std::cmp::Reverse;

/// A superblock to work with, and the descriptors.
pub(super) struct Chosen {
    pub(super) found: SuperblockCandidate,
    pub(super) table: DescriptorTable,
    /// The descriptors come from a backup, whose marks are those of the time of mkfs.
    pub(super) is_table_backup: bool,
    /// The descriptors may be damaged, or lead to no root directory or journal.
    pub(super) is_doubtful: bool,
}

/// How well a superblock fits the device; what weighs most first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Fit {
    /// Tables off the volume, outside of their group, on each other, or on superblocks and
    /// descriptors.
    conflicts: Reverse<u64>,
    has_root: bool,
    has_journal: bool,
    /// Descriptors with wrong checksums.
    wrong_sums: Reverse<u64>,
}

impl Fit {
    fn is_doubtful(self) -> bool {
        self.conflicts.0 > 0 || !self.has_root
    }
}

/// The primary superblock that was found, or a candidate that fits the device better.
pub(super) fn choose(
    device: &dyn Device,
    found: SuperblockCandidate,
    block_size: Option<u32>,
) -> Result<Chosen, CheckError> {
    let table = read_table(device, &found.geometry)?;
    let own = fit(device, &found.raw, &found.geometry, &table);
    let is_doubtful = own.is_doubtful() || own.wrong_sums.0 > 0 || !own.has_journal;
    if !own.is_doubtful() {
        return Ok(Chosen { found, table, is_table_backup: false, is_doubtful });
    }
    let mut best: Option<(Fit, Chosen)> = None;
    for (raw, geometry, group) in backups(device, &found.raw, block_size)? {
        if geometry == found.geometry || !is_readable(device, &geometry) {
            continue;
        }
        // The descriptors may be what is broken: superblocks are compared by the same ones.
        let mut least = own;
        if let Ok(table) = backup_table(device, &found.geometry, group) {
            least = least.max(fit(device, &found.raw, &found.geometry, &table));
        }
        let tables = [read_table(device, &geometry)?, backup_table(device, &geometry, group)?];
        for (table, is_table_backup) in tables.into_iter().zip([false, true]) {
            let fit = fit(device, &raw, &geometry, &table);
            if fit > least && best.as_ref().is_none_or(|(other, _)| fit > *other) {
                let flaw = Flaw::Rule("does not match the group descriptors");
                let flaw = flaw.at(Location::Superblock(GroupNo(0)));
                let backup = (raw, geometry.clone(), group);
                let found = SuperblockCandidate::of_backup(backup, flaw);
                best = Some((fit, Chosen { found, table, is_table_backup, is_doubtful }));
            }
        }
    }
    if let Some((_, chosen)) = best {
        return Ok(chosen);
    }
    Ok(match with_reserved_blocks(&found, &table) {
        Some(counted) if fit(device, &counted.raw, &counted.geometry, &table) > own => {
            Chosen { found: counted, table, is_table_backup: false, is_doubtful }
        }
        _ => Chosen { found, table, is_table_backup: false, is_doubtful },
    })
}

/// Whether the volume lies on the device.
fn is_readable(device: &dyn Device, geometry: &Geometry) -> bool {
    geometry.blocks_count <= device.size() >> geometry.block_bits()
}

fn fit(
    device: &dyn Device,
    raw: &RawSuperblock,
    geometry: &Geometry,
    table: &DescriptorTable,
) -> Fit {
    let descs = Descs { geometry, table };
    let has_journal = geometry.has_compat(CompatFeatures::HAS_JOURNAL);
    let journal = InodeNo(raw.s_journal_inum.get());
    Fit {
        conflicts: Reverse(descs.conflicts()),
        has_root: descs.is_inode(device, InodeNo::ROOT, FileType::Directory),
        has_journal: !has_journal || descs.is_inode(device, journal, FileType::Regular),
        wrong_sums: Reverse(descs.wrong_sums()),
    }
}

/// Without a backup: reserves as many blocks for descriptors as precede the first table of group 0.
fn with_reserved_blocks(
    found: &SuperblockCandidate,
    table: &DescriptorTable,
) -> Option<SuperblockCandidate> {
    let geometry = &found.geometry;
    let desc = table.get(GroupNo(0), geometry);
    let start = geometry.superblock_block().0 + 1 + u64::from(classic_desc_blocks(geometry));
    let tables = TABLES.iter().map(|name| place(&desc, name).0);
    let reserved = tables.min()?.checked_sub(start)?;
    let before = geometry.reserved_gdt_blocks;
    let reserved = u16::try_from(reserved).ok().filter(|reserved| *reserved < before)?;
    let mut raw = found.raw;
    raw.s_reserved_gdt_blocks.set(reserved);
    raw.seal();
    let finding = Finding::new(Code::ReservedGdtWrong).found(u64::from(before));
    Some(SuperblockCandidate {
        geometry: Geometry::new(&raw).ok()?,
        raw,
        counted: Some(finding.expected(u64::from(reserved))),
        ..found.clone()
    })
}

/// The descriptors of a volume as a table has them.
struct Descs<'a> {
    geometry: &'a Geometry,
    table: &'a DescriptorTable,
}

impl Descs<'_> {
    fn groups(&self) -> impl Iterator<Item = GroupNo> + use<> {
        (0..self.geometry.groups_count).map(GroupNo)
    }

    fn conflicts(&self) -> u64 {
        let mut conflicts = 0;
        let mut taken = Vec::new();
        for group in self.groups() {
            let desc = self.table.get(group, self.geometry);
            let bad = bad_places(group, &desc, self.geometry);
            conflicts += bad.len() as u64;
            taken.push(leading(self.geometry, group).blocks());
            for name in TABLES.iter().filter(|name| !bad.contains(name)) {
                let start = place(&desc, name).0;
                taken.push(start..start + table_blocks(name, self.geometry));
            }
        }
        taken.sort_unstable_by_key(|range| range.start);
        let mut end = 0;
        for range in taken.iter().filter(|range| !range.is_empty()) {
            conflicts += u64::from(range.start < end);
            end = end.max(range.end);
        }
        conflicts
    }

    fn wrong_sums(&self) -> u64 {
        let is_wrong = |group: &GroupNo| self.table.verify(*group, self.geometry).is_err();
        self.groups().filter(is_wrong).count() as u64
    }

    /// Whether the record of an inode is that of a file of this type.
    fn is_inode(&self, device: &dyn Device, number: InodeNo, file_type: FileType) -> bool {
        let read = || {
            let (group, index) = self.geometry.inode_place(number)?;
            let table = self.table.get(group, self.geometry).inode_table;
            if !self.geometry.contains(table, u64::from(self.geometry.itable_blocks())) {
                return None;
            }
            let size = usize::from(self.geometry.inode_size);
            let mut record = vec![0; size];
            let at = self.geometry.byte_of(table) + u64::from(index) * size as u64;
            device.read_at(at, &mut record).ok()?;
            inode::verify(&record, number, self.geometry).ok()?;
            Inode::decode(&record, number, self.geometry).ok()
        };
        read().is_some_and(|inode| inode.links > 0 && inode.file_type() == Some(file_type))
    }
}
