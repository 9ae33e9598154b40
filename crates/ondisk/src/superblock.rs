//! The superblock: 1,024 bytes at byte 1,024 with the parameters of the volume, and backups at the
//! start of some groups.
//!
//! Source: the kernel's `super.rst`; `docs/src/internals/on-disk.md` for the flags of `s_flags` and
//! later feature bits.

use crate::checksum::Crc32c;
use crate::features::{
    CompatFeatures, Features, IncompatFeatures, MetadataChecksum, RoCompatFeatures,
};
use crate::types::{BlockNo, GroupNo, InodeNo, Uuid};
use crate::{Flaw, FormatError, Location};
use core::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Byte offset of the superblock on the device, for every block size.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
/// `s_magic` of ext2, ext3 and ext4.
pub const SUPERBLOCK_MAGIC: u16 = 0xef53;
/// `s_checksum_type` of crc32c, the only defined one.
pub const CHECKSUM_TYPE_CRC32C: u8 = 1;

/// The superblock as stored, little-endian.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[allow(missing_docs, reason = "the kernel's field names, documented in super.rst")]
pub struct RawSuperblock {
    pub s_inodes_count: U32,
    pub s_blocks_count_lo: U32,
    pub s_r_blocks_count_lo: U32,
    pub s_free_blocks_count_lo: U32,
    pub s_free_inodes_count: U32,
    pub s_first_data_block: U32,
    pub s_log_block_size: U32,
    pub s_log_cluster_size: U32,
    pub s_blocks_per_group: U32,
    pub s_clusters_per_group: U32,
    pub s_inodes_per_group: U32,
    pub s_mtime: U32,
    pub s_wtime: U32,
    pub s_mnt_count: U16,
    pub s_max_mnt_count: U16,
    pub s_magic: U16,
    pub s_state: U16,
    pub s_errors: U16,
    pub s_minor_rev_level: U16,
    pub s_lastcheck: U32,
    pub s_checkinterval: U32,
    pub s_creator_os: U32,
    pub s_rev_level: U32,
    pub s_def_resuid: U16,
    pub s_def_resgid: U16,
    pub s_first_ino: U32,
    pub s_inode_size: U16,
    pub s_block_group_nr: U16,
    pub s_feature_compat: U32,
    pub s_feature_incompat: U32,
    pub s_feature_ro_compat: U32,
    pub s_uuid: [u8; 16],
    pub s_volume_name: [u8; 16],
    pub s_last_mounted: [u8; 64],
    pub s_algorithm_usage_bitmap: U32,
    pub s_prealloc_blocks: u8,
    pub s_prealloc_dir_blocks: u8,
    pub s_reserved_gdt_blocks: U16,
    pub s_journal_uuid: [u8; 16],
    pub s_journal_inum: U32,
    pub s_journal_dev: U32,
    pub s_last_orphan: U32,
    pub s_hash_seed: [U32; 4],
    pub s_def_hash_version: u8,
    pub s_jnl_backup_type: u8,
    pub s_desc_size: U16,
    pub s_default_mount_opts: U32,
    pub s_first_meta_bg: U32,
    pub s_mkfs_time: U32,
    pub s_jnl_blocks: [U32; 17],
    pub s_blocks_count_hi: U32,
    pub s_r_blocks_count_hi: U32,
    pub s_free_blocks_count_hi: U32,
    pub s_min_extra_isize: U16,
    pub s_want_extra_isize: U16,
    pub s_flags: U32,
    pub s_raid_stride: U16,
    pub s_mmp_interval: U16,
    pub s_mmp_block: U64,
    pub s_raid_stripe_width: U32,
    pub s_log_groups_per_flex: u8,
    pub s_checksum_type: u8,
    pub s_reserved_pad: U16,
    pub s_kbytes_written: U64,
    pub s_snapshot_inum: U32,
    pub s_snapshot_id: U32,
    pub s_snapshot_r_blocks_count: U64,
    pub s_snapshot_list: U32,
    pub s_error_count: U32,
    pub s_first_error_time: U32,
    pub s_first_error_ino: U32,
    pub s_first_error_block: U64,
    pub s_first_error_func: [u8; 32],
    pub s_first_error_line: U32,
    pub s_last_error_time: U32,
    pub s_last_error_ino: U32,
    pub s_last_error_line: U32,
    pub s_last_error_block: U64,
    pub s_last_error_func: [u8; 32],
    pub s_mount_opts: [u8; 64],
    pub s_usr_quota_inum: U32,
    pub s_grp_quota_inum: U32,
    pub s_overhead_blocks: U32,
    pub s_backup_bgs: [U32; 2],
    pub s_encrypt_algos: [u8; 4],
    pub s_encrypt_pw_salt: [u8; 16],
    pub s_lpf_ino: U32,
    pub s_prj_quota_inum: U32,
    pub s_checksum_seed: U32,
    pub s_wtime_hi: u8,
    pub s_mtime_hi: u8,
    pub s_mkfs_time_hi: u8,
    pub s_lastcheck_hi: u8,
    pub s_first_error_time_hi: u8,
    pub s_last_error_time_hi: u8,
    pub s_first_error_errcode: u8,
    pub s_last_error_errcode: u8,
    pub s_encoding: U16,
    pub s_encoding_flags: U16,
    pub s_orphan_file_inum: U32,
    pub s_reserved: [U32; 94],
    pub s_checksum: U32,
}

const _: () = assert!(size_of::<RawSuperblock>() == 1024);
const _: () = assert!(offset_of!(RawSuperblock, s_magic) == 0x38);
const _: () = assert!(offset_of!(RawSuperblock, s_uuid) == 0x68);
const _: () = assert!(offset_of!(RawSuperblock, s_hash_seed) == 0xec);
const _: () = assert!(offset_of!(RawSuperblock, s_blocks_count_hi) == 0x150);
const _: () = assert!(offset_of!(RawSuperblock, s_mmp_block) == 0x168);
const _: () = assert!(offset_of!(RawSuperblock, s_error_count) == 0x194);
const _: () = assert!(offset_of!(RawSuperblock, s_mount_opts) == 0x200);
const _: () = assert!(offset_of!(RawSuperblock, s_checksum_seed) == 0x270);
const _: () = assert!(offset_of!(RawSuperblock, s_orphan_file_inum) == 0x280);
const _: () = assert!(offset_of!(RawSuperblock, s_checksum) == 0x3fc);

bitflags::bitflags! {
    /// `s_state`.
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
    pub struct State: u16 {
        /// Unmounted cleanly.
        const CLEAN = 0x1;
        /// Errors were detected.
        const ERRORS = 0x2;
        /// Orphans are being recovered.
        const ORPHANS = 0x4;
        /// A fast-commit replay is in progress.
        const FAST_COMMIT_REPLAY = 0x20;
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// `s_flags`.
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
    pub struct SuperFlags: u32 {
        /// Directory hashes use signed characters.
        const SIGNED_HASH = 0x1;
        /// Directory hashes use unsigned characters.
        const UNSIGNED_HASH = 0x2;
        /// For testing development code.
        const TEST_FILESYS = 0x4;
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// `s_default_mount_opts`. The journal's data mode is a field of two bits: [`Self::data_mode`].
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
    pub struct DefaultMountOptions: u32 {
        /// Print debugging information on (re)mount.
        const DEBUG = 0x1;
        /// New files get the group of their directory.
        const BSD_GROUPS = 0x2;
        /// User extended attributes.
        const USER_XATTR = 0x4;
        /// POSIX access control lists.
        const ACL = 0x8;
        /// No 32-bit user IDs.
        const UID16 = 0x10;
        /// data=journal; together with the next bit, data=writeback.
        const DATA_JOURNAL = 0x20;
        /// data=ordered; together with the previous bit, data=writeback.
        const DATA_ORDERED = 0x40;
        /// No write barriers.
        const NO_BARRIER = 0x100;
        /// Keep track of which blocks are metadata.
        const BLOCK_VALIDITY = 0x200;
        /// Discard freed blocks.
        const DISCARD = 0x400;
        /// No delayed allocation.
        const NO_DELALLOC = 0x800;
        const _ = !0;
    }
}

/// The action on errors, `s_errors`.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum ErrorPolicy {
    /// Continue.
    #[default]
    Continue,
    /// Remount read-only.
    RemountReadOnly,
    /// Panic (in this code: become read-only).
    Panic,
}

impl ErrorPolicy {
    /// Decodes the stored number; an unknown one means continue, as in the kernel.
    pub fn decode(stored: u16) -> Self {
        match stored {
            2 => Self::RemountReadOnly,
            3 => Self::Panic,
            _ => Self::Continue,
        }
    }

    /// The stored number.
    pub fn encode(self) -> u16 {
        match self {
            Self::Continue => 1,
            Self::RemountReadOnly => 2,
            Self::Panic => 3,
        }
    }
}

/// The low 32 bits of a time in seconds, and the 8 bits above them.
pub(crate) fn low_and_high(seconds: u64) -> (u32, u8) {
    ((seconds & 0xffff_ffff) as u32, (seconds >> 32 & 0xff) as u8)
}

impl RawSuperblock {
    /// Sets the time of the last write, in seconds since 1970.
    pub fn set_write_time(&mut self, seconds: u64) {
        let (low, high) = low_and_high(seconds);
        self.s_wtime.set(low);
        self.s_wtime_hi = high;
    }

    /// Sets the time of the last mount, in seconds since 1970.
    pub fn set_mount_time(&mut self, seconds: u64) {
        let (low, high) = low_and_high(seconds);
        self.s_mtime.set(low);
        self.s_mtime_hi = high;
    }

    /// Sets the time of the last check, in seconds since 1970.
    pub fn set_check_time(&mut self, seconds: u64) {
        let (low, high) = low_and_high(seconds);
        self.s_lastcheck.set(low);
        self.s_lastcheck_hi = high;
    }

    /// Copies the first 1,024 bytes.
    ///
    /// # Errors
    /// [`Flaw::Truncated`] if there are fewer.
    pub fn from_bytes(bytes: &[u8], group: GroupNo) -> Result<Self, FormatError> {
        Self::read_from_prefix(bytes).map(|(raw, _)| raw).map_err(|_| {
            Flaw::truncated(bytes.len(), size_of::<Self>()).at(Location::Superblock(group))
        })
    }

    /// The feature words; a revision 0 superblock has none.
    pub fn features(&self) -> Features {
        if self.s_rev_level.get() == 0 {
            return Features::default();
        }
        Features {
            compat: CompatFeatures::from_bits_retain(self.s_feature_compat.get()),
            incompat: IncompatFeatures::from_bits_retain(self.s_feature_incompat.get()),
            ro_compat: RoCompatFeatures::from_bits_retain(self.s_feature_ro_compat.get()),
        }
    }

    /// Stores the feature words.
    pub fn set_features(&mut self, features: Features) {
        self.s_feature_compat.set(features.compat.bits());
        self.s_feature_incompat.set(features.incompat.bits());
        self.s_feature_ro_compat.set(features.ro_compat.bits());
    }

    /// Verifies the magic number, and the checksum with metadata_csum. `group` is the group where
    /// these bytes were read.
    ///
    /// # Errors
    /// [`Flaw::Magic`], [`Flaw::Checksum`], or an unknown checksum type.
    pub fn verify(&self, group: GroupNo) -> Result<(), FormatError> {
        let location = Location::Superblock(group);
        if self.s_magic.get() != SUPERBLOCK_MAGIC {
            return Err(Flaw::magic(self.s_magic.get(), SUPERBLOCK_MAGIC).at(location));
        }
        if self.features().checksum() != MetadataChecksum::Crc32c {
            return Ok(());
        }
        if self.s_checksum_type != CHECKSUM_TYPE_CRC32C {
            return Err(Flaw::bad_value("s_checksum_type", self.s_checksum_type).at(location));
        }
        let (found, computed) = (self.s_checksum.get(), self.checksum());
        if found != computed {
            return Err(Flaw::checksum(found, computed).at(location));
        }
        Ok(())
    }

    /// Sets the checksum with metadata_csum; the last step before the bytes are written.
    pub fn seal(&mut self) {
        if self.features().checksum() == MetadataChecksum::Crc32c {
            self.s_checksum.set(self.checksum());
        }
    }

    /// The initial value is ~0 and not the volume's seed, which is one of the covered bytes.
    fn checksum(&self) -> u32 {
        Crc32c::new().bytes(&self.as_bytes()[..offset_of!(Self, s_checksum)]).value()
    }

    /// The seed of all other crc32c checksums: stored with metadata_csum_seed, otherwise computed
    /// from the UUID.
    pub fn checksum_seed(&self) -> u32 {
        if self.features().incompat.contains(IncompatFeatures::CSUM_SEED) {
            self.s_checksum_seed.get()
        } else {
            Crc32c::new().bytes(&self.s_uuid).value()
        }
    }

    /// Whether block numbers have high halves.
    fn is_64bit(&self) -> bool {
        self.features().incompat.contains(IncompatFeatures::BIT64)
    }
}

/// A decoded superblock: halves joined, units in the types. [`Geometry`](crate::Geometry) has the
/// sizes and counts for the rest of the code, checked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Superblock {
    /// Number of inodes of the volume.
    pub inodes_count: u32,
    /// Number of blocks of the volume.
    pub blocks_count: u64,
    /// Number of blocks that only the reserved user and group may allocate.
    pub reserved_blocks: u64,
    /// Number of free blocks (a multiple of the cluster with bigalloc).
    pub free_blocks: u64,
    /// Number of free inodes.
    pub free_inodes: u32,
    /// Time of the last mount in seconds since 1970.
    pub mount_time: u64,
    /// Time of the last write of the superblock in seconds since 1970.
    pub write_time: u64,
    /// Number of mounts since the last check.
    pub mount_count: u16,
    /// Number of mounts after which a check is due; 0xffff (-1) for never.
    pub max_mount_count: u16,
    /// State flags: clean, with errors, orphans.
    pub state: State,
    /// The action on errors.
    pub errors: ErrorPolicy,
    /// Time of the last check in seconds since 1970.
    pub last_check: u64,
    /// Seconds after which a check is due; 0 for never.
    pub check_interval: u32,
    /// The OS that created the volume: 0 Linux, 1 Hurd, 2 Masix, 3 FreeBSD, 4 Lites.
    pub creator_os: u32,
    /// 0 for the original format, 1 for features and larger inodes.
    pub revision: u32,
    /// ID of the user that may use reserved blocks.
    pub reserved_uid: u16,
    /// ID of the group that may use reserved blocks.
    pub reserved_gid: u16,
    /// Group of this copy of the superblock, according to itself.
    pub block_group_nr: u16,
    /// The feature words.
    pub features: Features,
    /// UUID of the volume.
    pub uuid: Uuid,
    /// Label, up to 16 bytes, truncated at the first zero.
    pub volume_name: [u8; 16],
    /// Mount point of the last mount.
    pub last_mounted: [u8; 64],
    /// UUID of the external journal.
    pub journal_uuid: Uuid,
    /// The journal's inode, if it is internal.
    pub journal_inode: Option<InodeNo>,
    /// Device number of an external journal.
    pub journal_dev: u32,
    /// First inode of the orphan list.
    pub last_orphan: Option<InodeNo>,
    /// Seed of directory hashes.
    pub hash_seed: [u32; 4],
    /// Default hash version of new directories: 0 legacy, 1 half-MD4, 2 TEA.
    pub def_hash_version: u8,
    /// Default mount options.
    pub default_mount_opts: DefaultMountOptions,
    /// Creation time of the volume in seconds since 1970.
    pub mkfs_time: u64,
    /// Minimum number of extra bytes of every inode.
    pub min_extra_isize: u16,
    /// Desired number of extra bytes of new inodes.
    pub want_extra_isize: u16,
    /// Hash signedness and others.
    pub flags: SuperFlags,
    /// RAID stride in blocks.
    pub raid_stride: u16,
    /// RAID stripe width in blocks.
    pub raid_stripe_width: u32,
    /// Update interval of the MMP block in seconds.
    pub mmp_interval: u16,
    /// The MMP block.
    pub mmp_block: BlockNo,
    /// KiB written over the volume's lifetime.
    pub kbytes_written: u64,
    /// Number of recorded errors, see `s_error_count`.
    pub error_count: u32,
    /// Inode of the user quota file.
    pub usr_quota_inode: Option<InodeNo>,
    /// Inode of the group quota file.
    pub grp_quota_inode: Option<InodeNo>,
    /// Inode of the project quota file.
    pub prj_quota_inode: Option<InodeNo>,
    /// Number of clusters used by metadata, 0 if not recorded.
    pub overhead_clusters: u32,
    /// lost+found's inode, if recorded.
    pub lpf_inode: Option<InodeNo>,
    /// Encoding of casefolded names: 1 is UTF-8 12.1.
    pub encoding: u16,
    /// Bit 0: names that are invalid in the encoding are rejected.
    pub encoding_flags: u16,
    /// Inode of the orphan file.
    pub orphan_file_inode: Option<InodeNo>,
}

fn joined(low: U32, high: u8) -> u64 {
    u64::from(low.get()) | u64::from(high) << 32
}

fn inode(stored: U32) -> Option<InodeNo> {
    (stored.get() != 0).then(|| InodeNo(stored.get()))
}

fn set_joined(value: u64, low: &mut U32, high: &mut u8) {
    low.set((value & 0xffff_ffff) as u32);
    *high = (value >> 32 & 0xff) as u8;
}

fn stored_inode(inode: Option<InodeNo>) -> U32 {
    U32::new(inode.map_or(0, |inode| inode.0))
}

impl Superblock {
    /// Decodes without checks: [`RawSuperblock::verify`] is called before,
    /// [`Geometry`](crate::Geometry) checks the values.
    pub fn decode(raw: &RawSuperblock) -> Self {
        let high = |half: U32| if raw.is_64bit() { u64::from(half.get()) << 32 } else { 0 };
        Self {
            inodes_count: raw.s_inodes_count.get(),
            blocks_count: u64::from(raw.s_blocks_count_lo.get()) | high(raw.s_blocks_count_hi),
            reserved_blocks: u64::from(raw.s_r_blocks_count_lo.get())
                | high(raw.s_r_blocks_count_hi),
            free_blocks: u64::from(raw.s_free_blocks_count_lo.get())
                | high(raw.s_free_blocks_count_hi),
            free_inodes: raw.s_free_inodes_count.get(),
            mount_time: joined(raw.s_mtime, raw.s_mtime_hi),
            write_time: joined(raw.s_wtime, raw.s_wtime_hi),
            mount_count: raw.s_mnt_count.get(),
            max_mount_count: raw.s_max_mnt_count.get(),
            state: State::from_bits_retain(raw.s_state.get()),
            errors: ErrorPolicy::decode(raw.s_errors.get()),
            last_check: joined(raw.s_lastcheck, raw.s_lastcheck_hi),
            check_interval: raw.s_checkinterval.get(),
            creator_os: raw.s_creator_os.get(),
            revision: raw.s_rev_level.get(),
            reserved_uid: raw.s_def_resuid.get(),
            reserved_gid: raw.s_def_resgid.get(),
            block_group_nr: raw.s_block_group_nr.get(),
            features: raw.features(),
            uuid: Uuid(raw.s_uuid),
            volume_name: raw.s_volume_name,
            last_mounted: raw.s_last_mounted,
            journal_uuid: Uuid(raw.s_journal_uuid),
            journal_inode: inode(raw.s_journal_inum),
            journal_dev: raw.s_journal_dev.get(),
            last_orphan: inode(raw.s_last_orphan),
            hash_seed: raw.s_hash_seed.map(U32::get),
            def_hash_version: raw.s_def_hash_version,
            default_mount_opts: DefaultMountOptions::from_bits_retain(
                raw.s_default_mount_opts.get(),
            ),
            mkfs_time: joined(raw.s_mkfs_time, raw.s_mkfs_time_hi),
            min_extra_isize: raw.s_min_extra_isize.get(),
            want_extra_isize: raw.s_want_extra_isize.get(),
            flags: SuperFlags::from_bits_retain(raw.s_flags.get()),
            raid_stride: raw.s_raid_stride.get(),
            raid_stripe_width: raw.s_raid_stripe_width.get(),
            mmp_interval: raw.s_mmp_interval.get(),
            mmp_block: BlockNo(raw.s_mmp_block.get()),
            kbytes_written: raw.s_kbytes_written.get(),
            error_count: raw.s_error_count.get(),
            usr_quota_inode: inode(raw.s_usr_quota_inum),
            grp_quota_inode: inode(raw.s_grp_quota_inum),
            prj_quota_inode: inode(raw.s_prj_quota_inum),
            overhead_clusters: raw.s_overhead_blocks.get(),
            lpf_inode: inode(raw.s_lpf_ino),
            encoding: raw.s_encoding.get(),
            encoding_flags: raw.s_encoding_flags.get(),
            orphan_file_inode: inode(raw.s_orphan_file_inum),
        }
    }

    /// Sets the known fields. Every other byte is not changed. High halves are set only with 64bit.
    pub fn encode_into(&self, raw: &mut RawSuperblock) {
        raw.s_rev_level.set(self.revision);
        if self.revision > 0 {
            raw.set_features(self.features);
        }
        let has_high = self.features.incompat.contains(IncompatFeatures::BIT64);
        let split = |value: u64, low: &mut U32, high: &mut U32| {
            low.set((value & 0xffff_ffff) as u32);
            if has_high {
                high.set((value >> 32) as u32);
            }
        };
        raw.s_inodes_count.set(self.inodes_count);
        split(self.blocks_count, &mut raw.s_blocks_count_lo, &mut raw.s_blocks_count_hi);
        split(self.reserved_blocks, &mut raw.s_r_blocks_count_lo, &mut raw.s_r_blocks_count_hi);
        split(self.free_blocks, &mut raw.s_free_blocks_count_lo, &mut raw.s_free_blocks_count_hi);
        raw.s_free_inodes_count.set(self.free_inodes);
        set_joined(self.mount_time, &mut raw.s_mtime, &mut raw.s_mtime_hi);
        set_joined(self.write_time, &mut raw.s_wtime, &mut raw.s_wtime_hi);
        raw.s_mnt_count.set(self.mount_count);
        raw.s_max_mnt_count.set(self.max_mount_count);
        raw.s_state.set(self.state.bits());
        if ErrorPolicy::decode(raw.s_errors.get()) != self.errors || raw.s_errors.get() == 0 {
            raw.s_errors.set(self.errors.encode());
        }
        set_joined(self.last_check, &mut raw.s_lastcheck, &mut raw.s_lastcheck_hi);
        raw.s_checkinterval.set(self.check_interval);
        raw.s_creator_os.set(self.creator_os);
        raw.s_def_resuid.set(self.reserved_uid);
        raw.s_def_resgid.set(self.reserved_gid);
        raw.s_block_group_nr.set(self.block_group_nr);
        raw.s_uuid = self.uuid.0;
        raw.s_volume_name = self.volume_name;
        raw.s_last_mounted = self.last_mounted;
        raw.s_journal_uuid = self.journal_uuid.0;
        raw.s_journal_inum = stored_inode(self.journal_inode);
        raw.s_journal_dev.set(self.journal_dev);
        raw.s_last_orphan = stored_inode(self.last_orphan);
        raw.s_hash_seed = self.hash_seed.map(U32::new);
        raw.s_def_hash_version = self.def_hash_version;
        raw.s_default_mount_opts.set(self.default_mount_opts.bits());
        set_joined(self.mkfs_time, &mut raw.s_mkfs_time, &mut raw.s_mkfs_time_hi);
        raw.s_min_extra_isize.set(self.min_extra_isize);
        raw.s_want_extra_isize.set(self.want_extra_isize);
        raw.s_flags.set(self.flags.bits());
        raw.s_raid_stride.set(self.raid_stride);
        raw.s_raid_stripe_width.set(self.raid_stripe_width);
        raw.s_mmp_interval.set(self.mmp_interval);
        raw.s_mmp_block.set(self.mmp_block.0);
        raw.s_kbytes_written.set(self.kbytes_written);
        raw.s_error_count.set(self.error_count);
        raw.s_usr_quota_inum = stored_inode(self.usr_quota_inode);
        raw.s_grp_quota_inum = stored_inode(self.grp_quota_inode);
        raw.s_prj_quota_inum = stored_inode(self.prj_quota_inode);
        raw.s_overhead_blocks.set(self.overhead_clusters);
        raw.s_lpf_ino = stored_inode(self.lpf_inode);
        raw.s_encoding.set(self.encoding);
        raw.s_encoding_flags.set(self.encoding_flags);
        raw.s_orphan_file_inum = stored_inode(self.orphan_file_inode);
    }

    /// The label up to its first zero byte.
    pub fn label(&self) -> &[u8] {
        until_zero(&self.volume_name)
    }

    /// Mount point of the last mount, up to the first zero byte.
    pub fn last_mounted_on(&self) -> &[u8] {
        until_zero(&self.last_mounted)
    }

    /// Whether directory hashes use unsigned characters. If neither flag is set they are signed, as
    /// on x86.
    pub fn hash_is_unsigned(&self) -> bool {
        self.flags.contains(SuperFlags::UNSIGNED_HASH)
    }

    /// The inode of the internal journal; `None` without a journal or with an external one.
    pub fn internal_journal(&self) -> Option<InodeNo> {
        if self.features.compat.contains(CompatFeatures::HAS_JOURNAL) {
            self.journal_inode
        } else {
            None
        }
    }
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.iter().position(|&byte| byte == 0).map_or(bytes, |end| &bytes[..end])
}
