//! The superblock and the groups as JSON: numbers as numbers, times as seconds since 1970.

use extant_ondisk::jbd2::JournalSuperblock;
use extant_ondisk::superblock::ErrorPolicy;
use extant_ondisk::{Geometry, MetadataChecksum};
use serde::Serialize;

use super::groups::flag_names;
use super::header::{mount_options, state_name};
use crate::failure::Failure;
use crate::output::JsonName;
use crate::survey::Survey;

#[derive(Serialize)]
pub(super) struct Volume {
    label: JsonName,
    uuid: String,
    revision: u32,
    features: Vec<String>,
    default_mount_options: String,
    state: &'static str,
    errors: &'static str,
    error_count: u32,
    block_size: u64,
    blocks: u64,
    reserved_blocks: u64,
    free_blocks: u64,
    overhead_clusters: u32,
    inode_size: u64,
    inodes: u32,
    free_inodes: u32,
    checksum: &'static str,
    created: u64,
    last_mounted: u64,
    last_mounted_on: JsonName,
    last_written: u64,
    last_checked: u64,
    check_interval: u32,
    mount_count: u16,
    maximum_mount_count: i16,
    written_kib: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    geometry: Option<Shape>,
    #[serde(skip_serializing_if = "Option::is_none")]
    journal: Option<Journal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<Group>>,
}

#[derive(Serialize)]
struct Shape {
    first_block: u64,
    cluster_size: u64,
    blocks_per_group: u32,
    inodes_per_group: u32,
    groups: u32,
    descriptor_size: u16,
    groups_per_flex: u32,
    reserved_gdt_blocks: u16,
}

#[derive(Serialize)]
struct Journal {
    features: Vec<String>,
    block_size: u32,
    blocks: u32,
    fast_commit_blocks: u32,
    sequence: u32,
    start: u32,
    errno: i32,
}

#[derive(Serialize)]
struct Group {
    group: u32,
    first_block: u64,
    blocks: u32,
    flags: Vec<&'static str>,
    checksum_is_good: bool,
    block_bitmap: u64,
    inode_bitmap: u64,
    inode_table: u64,
    free_clusters: u32,
    free_inodes: u32,
    directories: u32,
    unused_inodes: u32,
}

impl Volume {
    pub(super) fn new(survey: &Survey) -> Self {
        let (raw, superblock) = (&survey.raw, &survey.superblock);
        Self {
            label: superblock.label().into(),
            uuid: superblock.uuid.to_string(),
            revision: superblock.revision,
            features: superblock.features.names(),
            default_mount_options: mount_options(superblock.default_mount_opts),
            state: state_name(superblock.state),
            errors: match superblock.errors {
                ErrorPolicy::Continue => "continue",
                ErrorPolicy::RemountReadOnly => "remount-ro",
                ErrorPolicy::Panic => "panic",
            },
            error_count: superblock.error_count,
            block_size: 1024_u64.checked_shl(raw.s_log_block_size.get()).unwrap_or(0),
            blocks: superblock.blocks_count,
            reserved_blocks: superblock.reserved_blocks,
            free_blocks: superblock.free_blocks,
            overhead_clusters: superblock.overhead_clusters,
            inode_size: match superblock.revision {
                0 => 128,
                _ => raw.s_inode_size.get().into(),
            },
            inodes: superblock.inodes_count,
            free_inodes: superblock.free_inodes,
            checksum: match superblock.features.checksum() {
                MetadataChecksum::None => "none",
                MetadataChecksum::DescCrc16 => "crc16 of group descriptors",
                MetadataChecksum::Crc32c => "crc32c",
            },
            created: superblock.mkfs_time,
            last_mounted: superblock.mount_time,
            last_mounted_on: superblock.last_mounted_on().into(),
            last_written: superblock.write_time,
            last_checked: superblock.last_check,
            check_interval: superblock.check_interval,
            mount_count: superblock.mount_count,
            maximum_mount_count: superblock.max_mount_count.cast_signed(),
            written_kib: superblock.kbytes_written,
            geometry: None,
            journal: None,
            groups: None,
        }
    }

    pub(super) fn add_geometry(&mut self, geometry: &Geometry) {
        self.geometry = Some(Shape {
            first_block: geometry.first_data_block.0,
            cluster_size: geometry.cluster_size(),
            blocks_per_group: geometry.blocks_per_group,
            inodes_per_group: geometry.inodes_per_group,
            groups: geometry.groups_count,
            descriptor_size: geometry.desc_size,
            groups_per_flex: geometry.groups_per_flex,
            reserved_gdt_blocks: geometry.reserved_gdt_blocks,
        });
    }

    pub(super) fn add_journal(&mut self, journal: &JournalSuperblock) {
        let mut features = journal.compat.names();
        features.extend(journal.incompat.names());
        self.journal = Some(Journal {
            features,
            block_size: journal.block_size,
            blocks: journal.blocks_count,
            fast_commit_blocks: journal.fast_commit_blocks,
            sequence: journal.sequence.0,
            start: journal.start,
            errno: journal.errno,
        });
    }

    pub(super) fn add_groups(
        &mut self,
        survey: &Survey,
        geometry: &Geometry,
    ) -> Result<(), Failure> {
        let groups = survey.descriptors(geometry).map(|described| {
            let described = described?;
            let desc = &described.desc;
            Ok(Group {
                group: described.group.0,
                first_block: geometry.group_start(described.group).0,
                blocks: geometry.group_blocks(described.group),
                flags: flag_names(desc.flags),
                checksum_is_good: described.is_checksum_good,
                block_bitmap: desc.block_bitmap.0,
                inode_bitmap: desc.inode_bitmap.0,
                inode_table: desc.inode_table.0,
                free_clusters: desc.free_clusters,
                free_inodes: desc.free_inodes,
                directories: desc.used_dirs,
                unused_inodes: desc.itable_unused,
            })
        });
        self.groups = Some(groups.collect::<Result<_, Failure>>()?);
        Ok(())
    }
}
