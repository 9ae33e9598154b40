//! The superblock of a new file system, from its figures and its identity.

use extant_ondisk::inode::NEW_EXTRA_ISIZE;
use extant_ondisk::superblock::{RawSuperblock, State, SuperFlags, Superblock};
use extant_ondisk::{CompatFeatures, GroupNo, IncompatFeatures, RoCompatFeatures, Uuid};

use super::features::ENCRYPT_ALGORITHMS;
use super::identity::Identity;
use super::params::FsParams;

/// Seconds between periodic checks: 180 days.
const CHECK_INTERVAL: u32 = 180 * 24 * 60 * 60;
/// `s_magic`
const MAGIC: u16 = 0xef53;

/// The superblock with every field that does not depend on where things came to lie; free counts as
/// if all were free.
pub fn raw_superblock(params: &FsParams, identity: &Identity) -> RawSuperblock {
    let mut raw = RawSuperblock::from_bytes(&[0; 1024], GroupNo(0))
        .expect("1,024 bytes, whatever they are, make a raw superblock");
    raw.s_magic.set(MAGIC);
    shape(&mut raw, params);
    let mut flags = SuperFlags::empty();
    if !params.is_journal_device() {
        flags |= SuperFlags::SIGNED_HASH;
    }
    if params.extended.test_fs {
        flags |= SuperFlags::TEST_FILESYS;
    }
    let is_encrypted = params.features.incompat.contains(IncompatFeatures::ENCRYPT);
    if is_encrypted {
        raw.s_encrypt_algos = ENCRYPT_ALGORITHMS;
    }
    let has_large_inodes = params.inode_size > 128;
    let decoded = Superblock {
        inodes_count: params.inodes(),
        blocks_count: params.blocks,
        reserved_blocks: params.reserved_blocks,
        free_blocks: 0,
        free_inodes: params.inodes(),
        mount_time: 0,
        write_time: identity.time,
        mount_count: 0,
        max_mount_count: if params.periodic_fsck { identity.max_mount_count } else { u16::MAX },
        state: State::CLEAN,
        errors: params.errors,
        last_check: identity.time,
        check_interval: if params.periodic_fsck { CHECK_INTERVAL } else { 0 },
        creator_os: params.creator_os.0,
        revision: params.revision,
        reserved_uid: 0,
        reserved_gid: 0,
        block_group_nr: 0,
        features: params.features,
        uuid: identity.uuid,
        volume_name: identity.label,
        last_mounted: identity.last_mounted,
        journal_uuid: Uuid::NIL,
        journal_inode: None,
        journal_dev: 0,
        last_orphan: None,
        hash_seed: words(identity.hash_seed),
        def_hash_version: params.hash_version,
        default_mount_opts: params.mount_options,
        mkfs_time: identity.time,
        min_extra_isize: if has_large_inodes { NEW_EXTRA_ISIZE } else { 0 },
        want_extra_isize: if has_large_inodes { NEW_EXTRA_ISIZE } else { 0 },
        flags,
        raid_stride: u16::try_from(params.extended.stride.unwrap_or(0)).unwrap_or(u16::MAX),
        raid_stripe_width: params.extended.stripe_width.unwrap_or(0),
        mmp_interval: params.mmp_interval,
        mmp_block: extant_ondisk::BlockNo(0),
        kbytes_written: 0,
        error_count: 0,
        usr_quota_inode: None,
        grp_quota_inode: None,
        prj_quota_inode: None,
        overhead_clusters: 0,
        lpf_inode: None,
        encoding: params.encoding.0,
        encoding_flags: params.encoding.1,
        orphan_file_inode: None,
    };
    decoded.encode_into(&mut raw);
    if params.features.incompat.contains(IncompatFeatures::CSUM_SEED) {
        let seed = extant_ondisk::checksum::Crc32c::new().bytes(&identity.uuid.0).value();
        raw.s_checksum_seed.set(seed);
    }
    raw
}

/// The sizes that decoded superblocks leave to the geometry.
fn shape(raw: &mut RawSuperblock, params: &FsParams) {
    let log_block = params.block_size.trailing_zeros() - 10;
    let log_cluster = params.cluster_size.trailing_zeros() - 10;
    raw.s_log_block_size.set(log_block);
    raw.s_log_cluster_size.set(log_cluster);
    raw.s_first_data_block.set(u32::from(params.first_data_block == 1));
    raw.s_blocks_per_group.set(params.blocks_per_group);
    raw.s_clusters_per_group.set(params.blocks_per_group / params.blocks_per_cluster());
    raw.s_inodes_per_group.set(params.inodes_per_group);
    raw.s_first_ino.set(11);
    if params.revision > 0 {
        raw.s_inode_size.set(params.inode_size);
    }
    raw.s_reserved_gdt_blocks.set(params.reserved_gdt_blocks);
    raw.s_desc_size.set(params.desc_size.unwrap_or(0));
    raw.s_first_meta_bg.set(params.first_meta_bg);
    if params.features.incompat.contains(IncompatFeatures::FLEX_BG) {
        let log = params.flex_bg_size.trailing_zeros();
        raw.s_log_groups_per_flex = u8::try_from(log).expect("32 bits have fewer than 256 zeros");
    }
    if params.features.compat.contains(CompatFeatures::SPARSE_SUPER2) {
        for (stored, group) in raw.s_backup_bgs.iter_mut().zip(params.backup_groups) {
            stored.set(group);
        }
    }
    if params.features.ro_compat.contains(RoCompatFeatures::METADATA_CSUM) {
        raw.s_checksum_type = 1; // crc32c
    }
}

fn words(seed: Uuid) -> [u32; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(seed.0.chunks_exact(4)) {
        *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    words
}
