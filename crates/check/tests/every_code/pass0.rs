//! Damages before the passes: superblock, descriptors, journal, orphans.

use extant_check::Code;
use extant_ondisk::group_desc::GroupFlags;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use extant_ondisk::{CompatFeatures, GroupNo, IncompatFeatures, InodeNo};
use zerocopy::FromBytes;

use super::damages::{Damage, compat, incompat, on, with};
use super::hand::{
    EXT2, EXT4, FULL_WITHOUT_JOURNAL, Hand, LOGGED, LOGGED_PLAIN, META_BG, META_BG_SINGLE, MMP,
    MOVED, NO_JOURNAL, ORPHAN_FILE, ORPHAN_PLAIN, PLAIN, SINGLE, SMALL_GROUPS, put16, put32,
};

/// Where the journal superblock keeps `s_errno`; big-endian, as all of the journal.
const JOURNAL_ERRNO: usize = 0x20;
/// The block type of the journal superblock: 3 for version 1, 4 for version 2.
const JOURNAL_KIND: usize = 4;

/// The block of the log that starts `at` blocks into it.
fn log_block(hand: &Hand, at: usize) -> u64 {
    hand.blocks(InodeNo::JOURNAL)[at]
}

/// Says that nothing waits in the journal.
fn forget_recovery(hand: &mut Hand) {
    hand.superblock(|raw| incompat(raw, IncompatFeatures::RECOVER, false));
}

/// Further findings if a lost inode of the journal is repaired.
const JOURNAL_LOST: &[Code] = &[
    Code::JournalInvalid,
    Code::JournalInodeMode,
    Code::BlockBitmapWrong,
    Code::GroupFreeBlocksWrong,
    Code::FreeBlocksTotalWrong,
];

/// Further findings if a backup is used: its counts are old, and bitmaps that were implied are
/// read.
pub(crate) const FROM_BACKUP: &[Code] = &[
    Code::InodeBitmapPadding,
    Code::BlockBitmapChecksum,
    Code::GroupFreeBlocksWrong,
    Code::FreeBlocksTotalWrong,
];

/// Further findings if a journal that was never made is repaired.
const JOURNAL_UNMADE: &[Code] = &[Code::JournalInvalid, Code::JournalInodeMode];

/// The inode of the journal, and its copy in the superblock.
fn lose_journal(hand: &mut Hand) {
    hand.superblock(|raw| raw.s_jnl_backup_type = 0);
    hand.inode(InodeNo::JOURNAL, |record| record[..100].fill(0));
}

/// Changes the primary superblock alone, and seals it.
pub(crate) fn primary(hand: &Hand, change: impl FnOnce(&mut RawSuperblock)) {
    let geometry = hand.volume.geometry();
    let at = SUPERBLOCK_OFFSET as usize % geometry.block_len();
    hand.block(geometry.superblock_block().0, |bytes| {
        if let Ok((raw, _)) = RawSuperblock::mut_from_prefix(&mut bytes[at..]) {
            change(raw);
            raw.seal();
        }
    });
}

fn inodes_per_group(hand: &Hand, change: fn(u32) -> u32) {
    primary(hand, |raw| raw.s_inodes_per_group.set(change(raw.s_inodes_per_group.get())));
}

/// Moves the first group whose descriptors lie in the groups past the last one.
fn first_meta_bg(hand: &Hand) {
    primary(hand, |raw| raw.s_first_meta_bg.set(10_000));
}

/// Makes groups so small that the inodes of all are more than the volume has.
fn blocks_per_group(hand: &Hand) {
    primary(hand, |raw| raw.s_blocks_per_group.set(264));
}

pub(crate) const DAMAGES: &[Damage] = &[
    on(Code::FlexGroupsTooLarge, EXT2, |hand| {
        hand.superblock(|raw| raw.s_log_groups_per_flex = 77);
    }),
    on(Code::ReservedGdtWrong, SINGLE, |hand| {
        hand.superblock(|raw| raw.s_reserved_gdt_blocks.set(raw.s_reserved_gdt_blocks.get() + 8));
    }),
    with(Code::SuperblockInvalid, EXT4, FROM_BACKUP, |hand| hand.block(1, |bytes| bytes.fill(0))),
    with(
        Code::SuperblockInvalid,
        SMALL_GROUPS,
        &[
            Code::BlockBitmapWrong,
            Code::BlockBitmapPadding,
            Code::InodeBitmapPadding,
            Code::BlockBitmapChecksum,
            Code::GroupFreeBlocksWrong,
            Code::FreeBlocksTotalWrong,
        ],
        |hand| hand.block(1, |bytes| bytes.fill(0xff)),
    ),
    // Inodes of a group, which the count of all does not fit then.
    with(
        Code::SuperblockInvalid,
        PLAIN,
        &[Code::GroupFreeBlocksWrong, Code::FreeBlocksTotalWrong],
        |hand| hand.block(1, |bytes| bytes[0x28] += 1),
    ),
    // More blocks than the device has; the backups know better.
    with(Code::SuperblockInvalid, EXT4, FROM_BACKUP, |hand| {
        primary(hand, |raw| raw.s_blocks_count_lo.set(0xfff_ffff))
    }),
    // Impossible inodes per group, without a backup: the count of all inodes gives the right
    // number.
    on(Code::InodesPerGroupWrong, SINGLE, |hand| inodes_per_group(hand, |before| before + 1)),
    on(Code::InodesPerGroupWrong, SINGLE, |hand| inodes_per_group(hand, |_| 0)),
    on(Code::InodesPerGroupWrong, SINGLE, |hand| inodes_per_group(hand, |_| 16)),
    // Where descriptors begin to lie in their groups, without a backup and with one.
    on(Code::FirstMetaBgTooLarge, META_BG_SINGLE, |hand| first_meta_bg(hand)),
    with(
        Code::SuperblockInvalid,
        META_BG,
        &[Code::InodeBitmapPadding, Code::FreeBlocksTotalWrong],
        |hand| first_meta_bg(hand),
    ),
    // Blocks of a group, without a backup and with one.
    on(Code::BlocksPerGroupWrong, SINGLE, |hand| blocks_per_group(hand)),
    with(Code::SuperblockInvalid, EXT4, FROM_BACKUP, |hand| blocks_per_group(hand)),
    on(Code::SuperblockChecksum, SINGLE, |hand| {
        hand.block(0, |bytes| bytes[1024 + 0x78] ^= 1);
    }),
    on(Code::ExtraIsizeBad, EXT4, |hand| hand.superblock(|raw| raw.s_want_extra_isize.set(1024))),
    on(Code::RevisionTooHigh, EXT4, |hand| hand.superblock(|raw| raw.s_rev_level.set(2))),
    on(Code::ClustersWithoutBigalloc, EXT4, |hand| {
        hand.superblock(|raw| raw.s_clusters_per_group.set(raw.s_blocks_per_group.get() / 2));
    }),
    on(Code::ChecksumSeedNeedless, PLAIN, |hand| {
        hand.superblock(|raw| incompat(raw, IncompatFeatures::CSUM_SEED, true));
    }),
    on(Code::TimeInFuture, EXT4, |hand| hand.superblock(|raw| raw.s_mtime.set(u32::MAX))),
    on(Code::MmpMagic, MMP, |hand| {
        hand.block(hand.volume.raw.s_mmp_block.get(), |bytes| bytes[0] ^= 0xff);
    }),
    with(Code::ResizeInodeWithMetaBg, EXT4, &[Code::ResizeInodeNotInUse], |hand| {
        hand.superblock(|raw| {
            incompat(raw, IncompatFeatures::META_BG, true);
            raw.s_first_meta_bg.set(1);
        });
    }),
    on(Code::HurdFiletype, PLAIN, |hand| hand.superblock(|raw| raw.s_creator_os.set(1))),
    with(
        Code::GroupDescInvalid,
        EXT4,
        &[Code::BlockBitmapChecksum, Code::GroupFreeBlocksWrong],
        |hand| hand.block(2, |bytes| bytes[..64].fill(0)),
    ),
    // Each group's tables in the other group, on a volume that has them inside.
    with(Code::GroupDescInvalid, EXT2, &[Code::GroupFreeBlocksWrong], |hand| {
        let [first, second] = [0, 1].map(|group| hand.volume.desc(GroupNo(group)));
        hand.desc(0, |desc| *desc = second);
        hand.desc(1, |desc| *desc = first);
    }),
    on(Code::GroupDescChecksum, EXT4, |hand| hand.block(2, |bytes| bytes[0x1e] ^= 0x55)),
    on(Code::GroupUnusedImpossible, EXT4, |hand| {
        hand.desc(0, |desc| desc.itable_unused = desc.free_inodes + 1);
    }),
    on(Code::GroupTableMoved, EXT4, |hand| hand.desc(1, |desc| desc.inode_table.0 += 700)),
    on(Code::GroupUninitWithoutFeature, PLAIN, |hand| {
        hand.desc(0, |desc| desc.flags |= GroupFlags::INODE_UNINIT);
    }),
    on(Code::GroupBitmapMissing, SINGLE, |hand| hand.desc(0, |desc| desc.block_bitmap.0 = 0)),
    on(Code::GroupTablePlace, SINGLE, |hand| {
        hand.desc(0, |desc| desc.block_bitmap.0 = 0xfff_ffff);
    }),
    // Where it belongs lies another table.
    with(
        Code::GroupTableLost,
        MOVED,
        &[Code::BlockBitmapWrong, Code::GroupFreeBlocksWrong, Code::FreeBlocksTotalWrong],
        |hand| hand.desc(1, |desc| desc.inode_table.0 = 0xfff_ffff),
    ),
    // The journal.
    on(Code::JournalPlaceAmbiguous, EXT4, |hand| {
        hand.superblock(|raw| raw.s_journal_uuid = [7; 16]);
    }),
    on(Code::RecoveryWithoutJournal, NO_JOURNAL, |hand| {
        hand.superblock(|raw| incompat(raw, IncompatFeatures::RECOVER, true));
    }),
    on(Code::JournalInvalid, EXT4, |hand| {
        hand.block(log_block(hand, 0), |bytes| bytes[0] ^= 0xff);
    }),
    with(
        Code::JournalInodeBroken,
        EXT4,
        &[
            Code::JournalInodeMode,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::FreeBlocksTotalWrong,
        ],
        |hand| {
            hand.inode(InodeNo::JOURNAL, |record| record[..100].fill(0));
        },
    ),
    with(
        Code::JournalInodeMode,
        EXT4,
        &[
            Code::JournalInodeBroken,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::FreeBlocksTotalWrong,
        ],
        |hand| hand.inode(InodeNo::JOURNAL, |record| record[..100].fill(0)),
    ),
    with(Code::JournalDeleted, EXT4, JOURNAL_LOST, lose_journal),
    with(Code::JournalRecreate, EXT4, JOURNAL_LOST, lose_journal),
    with(Code::JournalNoRoom, FULL_WITHOUT_JOURNAL, JOURNAL_UNMADE, |hand| {
        hand.superblock(|raw| {
            compat(raw, CompatFeatures::HAS_JOURNAL, true);
            raw.s_journal_inum.set(InodeNo::JOURNAL.0);
        });
    }),
    with(Code::JournalRegenerated, EXT4, JOURNAL_LOST, lose_journal),
    on(Code::JournalSuperblockCorrupt, EXT4, |hand| {
        // More blocks than the file has.
        hand.block(log_block(hand, 0), |bytes| bytes[0x10..0x14].fill(0xff));
    }),
    on(Code::JournalV1Fields, EXT4, |hand| {
        hand.block(log_block(hand, 0), |bytes| {
            bytes[JOURNAL_KIND + 3] = 3;
            bytes[0x24..0x28].fill(1);
        });
    }),
    on(Code::JournalErrno, EXT4, |hand| {
        hand.block(log_block(hand, 0), |bytes| bytes[JOURNAL_ERRNO + 3] = 5);
    }),
    on(Code::JournalSkipped, LOGGED, |_| {}),
    with(Code::JournalRecovered, LOGGED, &[Code::JournalSkipped], |_| {}),
    on(Code::JournalHasData, LOGGED, forget_recovery),
    with(Code::JournalReplayFailed, LOGGED_PLAIN, &[Code::JournalSkipped], |hand| {
        // The replay overwrites the superblock, which is invalid then.
        hand.block(log_block(hand, 1), |bytes| bytes[12..16].copy_from_slice(&[0, 0, 0, 1]));
    }),
    with(Code::JournalBlockCorrupt, LOGGED, &[Code::JournalSkipped], |hand| {
        hand.block(log_block(hand, 2), |bytes| bytes[100] ^= 1);
    }),
    with(Code::JournalTransactionCorrupt, LOGGED, &[Code::JournalSkipped], |hand| {
        hand.block(log_block(hand, 3), |bytes| bytes[0x30] ^= 1);
    }),
    with(Code::JournalRevokeCorrupt, LOGGED_PLAIN, &[Code::JournalSkipped], |hand| {
        hand.block(log_block(hand, 4), |bytes| bytes[12..16].fill(0xff));
    }),
    // Orphans.
    on(Code::OrphanFileInvalid, ORPHAN_FILE, |hand| {
        let file = InodeNo(hand.volume.raw.s_orphan_file_inum.get());
        hand.inode(file, |record| put32(record, 4, 33_000));
    }),
    on(Code::OrphanBlockInvalid, ORPHAN_FILE, |hand| {
        let file = InodeNo(hand.volume.raw.s_orphan_file_inum.get());
        hand.block(hand.blocks(file)[1], |bytes| bytes[1023] ^= 1);
    }),
    on(Code::OrphanBlockInvalid, ORPHAN_PLAIN, |hand| {
        // Without checksums the field of one is zero.
        let file = InodeNo(hand.volume.raw.s_orphan_file_inum.get());
        hand.block(hand.blocks(file)[3], |bytes| bytes[1020] ^= 1);
    }),
    with(Code::OrphanFileWithoutJournal, ORPHAN_FILE, &[Code::JournalWithoutFeature], |hand| {
        hand.superblock(|raw| compat(raw, CompatFeatures::HAS_JOURNAL, false));
    }),
    with(
        Code::OrphanCleared,
        EXT4,
        &[
            Code::DeletedWithoutDtime,
            Code::BlockBitmapWrong,
            Code::InodeBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::GroupFreeInodesWrong,
            Code::FreeBlocksTotalWrong,
            Code::FreeInodesTotalWrong,
        ],
        |hand| {
            let file = hand.find("file");
            hand.entry("", "file", |entry| put32(entry, 0, 0));
            hand.inode(file, |record| put16(record, 0x1a, 0));
            hand.superblock(|raw| raw.s_last_orphan.set(file.0));
        },
    ),
    with(Code::OrphanTruncated, EXT4, &[Code::InodeSizeWrong], |hand| {
        let file = hand.find("file");
        hand.inode(file, |record| put32(record, 4, 1));
        hand.superblock(|raw| raw.s_last_orphan.set(file.0));
    }),
];
