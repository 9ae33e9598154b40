//! The superblock and the groups as data: numbers as numbers, times as seconds since 1970.

use extant_ondisk::group_desc::GroupFlags;
use extant_ondisk::jbd2::JournalSuperblock;
use extant_ondisk::superblock::{DefaultMountOptions, ErrorPolicy, State};
use extant_ondisk::{Geometry, MetadataChecksum};
use serde::Serialize;

use super::name::JsonName;
use super::raw_view::{InspectError, RawView};

/// The fields of a superblock, as `extant info --json` shows them.
#[derive(Clone, Debug, Serialize)]
pub struct VolumeSummary {
    /// The label, up to its first zero byte.
    pub label: JsonName,
    /// The UUID, as text.
    pub uuid: String,
    /// The revision of the format: 0 or 1.
    pub revision: u32,
    /// The features, by e2fsprogs' names.
    pub features: Vec<String>,
    /// The default mount options, as dumpe2fs lists them.
    pub default_mount_options: String,
    /// Clean or not, and whether errors are recorded.
    pub state: &'static str,
    /// The kernel's action after an error: `continue`, `remount-ro` or `panic`.
    pub errors: &'static str,
    /// Number of errors recorded.
    pub error_count: u32,
    /// Bytes of a block; 0 where the field is out of range.
    pub block_size: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Number of blocks reserved for root.
    pub reserved_blocks: u64,
    /// Number of free blocks.
    pub free_blocks: u64,
    /// Number of clusters of the volume's own structures; 0 where it is not recorded.
    pub overhead_clusters: u32,
    /// Bytes of an inode.
    pub inode_size: u64,
    /// Number of inodes.
    pub inodes: u32,
    /// Number of free inodes.
    pub free_inodes: u32,
    /// The kind of metadata checksums.
    pub checksum: &'static str,
    /// Time of creation.
    pub created: u64,
    /// Time of the last mount.
    pub last_mounted: u64,
    /// Directory of the last mount.
    pub last_mounted_on: JsonName,
    /// Time of the last write.
    pub last_written: u64,
    /// Time of the last check.
    pub last_checked: u64,
    /// Seconds between checks; 0: no limit.
    pub check_interval: u32,
    /// Mounts since the last check.
    pub mount_count: u16,
    /// Mounts between checks; 0 or less: no limit.
    pub maximum_mount_count: i16,
    /// KiB written over the life of the volume.
    pub written_kib: u64,
    /// The geometry, once it was added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub geometry: Option<Shape>,
    /// The journal, once it was added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal: Option<JournalSummary>,
    /// The groups, once they were added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<GroupSummary>>,
}

/// The geometry of a volume.
#[derive(Clone, Debug, Serialize)]
pub struct Shape {
    /// The first block of group 0.
    pub first_block: u64,
    /// Bytes of a cluster.
    pub cluster_size: u64,
    /// Blocks of a group.
    pub blocks_per_group: u32,
    /// Inodes of a group.
    pub inodes_per_group: u32,
    /// Number of groups.
    pub groups: u32,
    /// Bytes of a group descriptor.
    pub descriptor_size: u16,
    /// Groups of a flex group.
    pub groups_per_flex: u32,
    /// Blocks reserved for more group descriptors.
    pub reserved_gdt_blocks: u16,
}

/// The fields of a journal's superblock.
#[derive(Clone, Debug, Serialize)]
pub struct JournalSummary {
    /// The features, by e2fsprogs' names.
    pub features: Vec<String>,
    /// Bytes of a block.
    pub block_size: u32,
    /// Number of blocks.
    pub blocks: u32,
    /// Number of blocks for fast commits.
    pub fast_commit_blocks: u32,
    /// The first transaction number that the log expects.
    pub sequence: u32,
    /// The block where the log starts; 0: the log is empty.
    pub start: u32,
    /// The error that stopped the journal, as a negative errno; 0: none.
    pub errno: i32,
}

impl JournalSummary {
    pub(super) fn new(journal: &JournalSuperblock) -> Self {
        let mut features = journal.compat.names();
        features.extend(journal.incompat.names());
        Self {
            features,
            block_size: journal.block_size,
            blocks: journal.blocks_count,
            fast_commit_blocks: journal.fast_commit_blocks,
            sequence: journal.sequence.0,
            start: journal.start,
            errno: journal.errno,
        }
    }
}

/// A group and its descriptor.
#[derive(Clone, Debug, Serialize)]
pub struct GroupSummary {
    /// The number of the group.
    pub group: u32,
    /// Its first block.
    pub first_block: u64,
    /// Number of its blocks.
    pub blocks: u32,
    /// The flags, by the names of dumpe2fs.
    pub flags: Vec<&'static str>,
    /// Whether the checksum of the descriptor is right.
    pub checksum_is_good: bool,
    /// The block of the block bitmap.
    pub block_bitmap: u64,
    /// The block of the inode bitmap.
    pub inode_bitmap: u64,
    /// The first block of the inode table.
    pub inode_table: u64,
    /// Number of free clusters.
    pub free_clusters: u32,
    /// Number of free inodes.
    pub free_inodes: u32,
    /// Number of directories.
    pub directories: u32,
    /// Number of inodes at the table's end that were never used.
    pub unused_inodes: u32,
}

impl VolumeSummary {
    /// The superblock alone.
    pub fn new(view: &RawView) -> Self {
        let (raw, superblock) = (&view.raw, &view.superblock);
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

    /// Adds the geometry.
    pub fn add_geometry(&mut self, geometry: &Geometry) {
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

    /// Adds the journal.
    pub fn add_journal(&mut self, journal: &JournalSuperblock) {
        self.journal = Some(JournalSummary::new(journal));
    }

    /// Adds all groups.
    ///
    /// # Errors
    /// A block of descriptors cannot be read.
    pub fn add_groups(&mut self, view: &RawView, geometry: &Geometry) -> Result<(), InspectError> {
        let groups = view.descriptors(geometry).map(|described| {
            let described = described?;
            let desc = &described.desc;
            Ok(GroupSummary {
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
        self.groups = Some(groups.collect::<Result<_, InspectError>>()?);
        Ok(())
    }
}

/// The flags by the twin's names, in its order.
/// The names of group flags, as dumpe2fs shows them.
pub fn flag_names(flags: GroupFlags) -> Vec<&'static str> {
    [
        (GroupFlags::INODE_UNINIT, "INODE_UNINIT"),
        (GroupFlags::BLOCK_UNINIT, "BLOCK_UNINIT"),
        (GroupFlags::INODE_ZEROED, "ITABLE_ZEROED"),
    ]
    .into_iter()
    .filter(|(flag, _)| flags.contains(*flag))
    .map(|(_, name)| name)
    .collect()
}

/// The journal's data mode first, then bit by bit.
pub fn mount_options(options: DefaultMountOptions) -> String {
    let known = [
        (DefaultMountOptions::DEBUG, "debug"),
        (DefaultMountOptions::BSD_GROUPS, "bsdgroups"),
        (DefaultMountOptions::USER_XATTR, "user_xattr"),
        (DefaultMountOptions::ACL, "acl"),
        (DefaultMountOptions::UID16, "uid16"),
        (DefaultMountOptions::NO_BARRIER, "nobarrier"),
        (DefaultMountOptions::BLOCK_VALIDITY, "block_validity"),
        (DefaultMountOptions::DISCARD, "discard"),
        (DefaultMountOptions::NO_DELALLOC, "nodelalloc"),
    ];
    let modes = DefaultMountOptions::DATA_JOURNAL | DefaultMountOptions::DATA_ORDERED;
    let mode = match options.intersection(modes) {
        DefaultMountOptions::DATA_JOURNAL => Some("journal_data"),
        DefaultMountOptions::DATA_ORDERED => Some("journal_data_ordered"),
        both if both == modes => Some("journal_data_writeback"),
        _ => None,
    };
    let bits = (0..u32::BITS)
        .map(|bit| (bit, DefaultMountOptions::from_bits_retain(1 << bit)))
        .filter(|(_, flag)| options.contains(*flag) && !modes.contains(*flag))
        .map(|(bit, flag)| match known.iter().find(|(it, _)| *it == flag) {
            Some((_, name)) => (*name).to_owned(),
            None => format!("MNTOPT_{bit}"),
        });
    let names: Vec<String> = mode.map(str::to_owned).into_iter().chain(bits).collect();
    if names.is_empty() { "(none)".to_owned() } else { names.join(" ") }
}

/// Clean or not, and with errors or without.
pub fn state_name(state: State) -> &'static str {
    match (state.contains(State::CLEAN), state.contains(State::ERRORS)) {
        (true, false) => "clean",
        (true, true) => "clean with errors",
        (false, false) => "not clean",
        (false, true) => "not clean with errors",
    }
}
