//! The damages: one code each, and what follows from it at once.

use extant_check::Code;
use extant_ondisk::group_desc::GroupFlags;
use extant_ondisk::superblock::RawSuperblock;
use extant_ondisk::{CompatFeatures, GroupNo, IncompatFeatures, InodeNo, RoCompatFeatures};

use super::hand::{
    BIGALLOC, Base, EXT2, EXT4, Hand, MARKS, MMP, PLAIN, PROJECT, QUOTA, flag, put16, put32,
};

pub(crate) struct Damage {
    pub(crate) code: Code,
    pub(crate) base: Base,
    pub(crate) spoil: fn(&mut Hand),
    /// Other findings of a scan: consequences of the damage without any repair.
    pub(crate) also: &'static [Code],
    /// Options of the check.
    pub(crate) options: Requested,
}

/// Work that is done only if an option asks for it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Requested {
    Nothing,
    /// `-D`.
    Optimize,
    /// `-E bmap2extent`.
    Extents,
    /// `-E unshare_blocks`.
    Unshare,
}

/// Makes three extents of the only one: blocks 0 to 9, ten at `second` that belong after them, and
/// the rest.
pub(crate) fn split(record: &mut [u8], second: u32) {
    let number = |at: usize, record: &[u8]| {
        u32::from_le_bytes(record[at..at + 4].try_into().expect("four bytes"))
    };
    let (len, start) = (record[EXTENT + 4], number(EXTENT + 8, record));
    put16(record, 0x28 + 2, 3);
    for (at, block, first, blocks) in
        [(0, 0, 0, 10), (1, second, 10, 10), (2, 20, 20, u16::from(len) - 20)]
    {
        put32(record, EXTENT + 12 * at, block);
        put16(record, EXTENT + 12 * at + 4, blocks);
        put16(record, EXTENT + 12 * at + 6, 0);
        put32(record, EXTENT + 12 * at + 8, start + first);
    }
}

pub(crate) const fn on(code: Code, base: Base, spoil: fn(&mut Hand)) -> Damage {
    with(code, base, &[], spoil)
}

pub(crate) const fn with(
    code: Code,
    base: Base,
    also: &'static [Code],
    spoil: fn(&mut Hand),
) -> Damage {
    Damage { code, base, spoil, also, options: Requested::Nothing }
}

pub(crate) fn compat(raw: &mut RawSuperblock, feature: CompatFeatures, is_on: bool) {
    let mut features = raw.features();
    features.compat.set(feature, is_on);
    raw.set_features(features);
}

pub(crate) fn incompat(raw: &mut RawSuperblock, feature: IncompatFeatures, is_on: bool) {
    let mut features = raw.features();
    features.incompat.set(feature, is_on);
    raw.set_features(features);
}

pub(crate) fn ro_compat(raw: &mut RawSuperblock, feature: RoCompatFeatures, is_on: bool) {
    let mut features = raw.features();
    features.ro_compat.set(feature, is_on);
    raw.set_features(features);
}

/// An inode that nothing uses.
pub(crate) const FREE: InodeNo = InodeNo(1000);
/// Where an extent leaf's first entry lies in a record.
pub(crate) const EXTENT: usize = 0x28 + 12;

pub(crate) const DAMAGES: &[Damage] = &[
    // Before the passes.
    on(Code::InodesCountWrong, EXT2, |hand| {
        hand.block(1, |bytes| {
            let count = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
            put32(bytes, 0, count - 8);
        });
    }),
    on(Code::ReservedBlocksTooMany, EXT4, |hand| {
        hand.superblock(|raw| raw.s_r_blocks_count_lo.set(16_000));
    }),
    on(Code::ReservedGdtNeedless, BIGALLOC, |hand| {
        hand.superblock(|raw| raw.s_reserved_gdt_blocks.set(1));
    }),
    with(Code::ResizeInodeNotInUse, EXT4, &[Code::ReservedGdtNeedless], |hand| {
        hand.superblock(|raw| compat(raw, CompatFeatures::RESIZE_INODE, false));
    }),
    on(Code::ExtentHeaderLimit, EXT4, |hand| {
        hand.file("long", |record| put16(record, 0x2c, 1));
    }),
    on(Code::UuidMissing, PLAIN, |hand| hand.superblock(|raw| raw.s_uuid = [0; 16])),
    on(Code::QuotaNumberNeedless, EXT4, |hand| {
        hand.superblock(|raw| raw.s_usr_quota_inum.set(7));
    }),
    on(Code::QuotaInodeHidesFile, EXT4, |hand| {
        hand.superblock(|raw| raw.s_usr_quota_inum.set(14));
    }),
    on(Code::OrphanPresentWithoutFile, EXT4, |hand| {
        hand.superblock(|raw| ro_compat(raw, RoCompatFeatures::ORPHAN_PRESENT, true));
    }),
    on(Code::JournalWithoutFeature, PLAIN, |hand| {
        hand.superblock(|raw| compat(raw, CompatFeatures::HAS_JOURNAL, false));
    }),
    on(Code::JournalBackup, EXT4, |hand| {
        hand.superblock(|raw| raw.s_jnl_blocks[0].set(0));
    }),
    on(Code::OrphanListIllegal, EXT4, |hand| {
        hand.superblock(|raw| raw.s_last_orphan.set(0x7fff_ffff));
    }),
    on(Code::LastGroupUninit, MARKS, |hand| {
        let last = hand.volume.geometry().groups_count - 1;
        hand.desc(last, |desc| desc.flags |= GroupFlags::BLOCK_UNINIT);
    }),
    with(
        Code::ResizeInodeInvalid,
        EXT4,
        &[Code::BlockBitmapWrong, Code::GroupFreeBlocksWrong, Code::FreeBlocksTotalWrong],
        |hand| {
            hand.inode(InodeNo::RESIZE, |record| record[..0x64].fill(0));
        },
    ),
    on(Code::ChecksumFeaturesBoth, EXT4, |hand| {
        hand.superblock(|raw| ro_compat(raw, RoCompatFeatures::GDT_CSUM, true));
    }),
    with(
        Code::MmpBlockInvalid,
        MMP,
        &[Code::BlockBitmapWrong, Code::GroupFreeBlocksWrong, Code::FreeBlocksTotalWrong],
        |hand| hand.superblock(|raw| raw.s_mmp_block.set(0xfff_ffff)),
    ),
    on(Code::MmpChecksum, MMP, |hand| {
        hand.block(hand.volume.raw.s_mmp_block.get(), |bytes| bytes[0x20] ^= 1);
    }),
    // Inodes.
    with(
        Code::RootNotDirectory,
        EXT4,
        &[
            Code::RootMissing,
            Code::UnattachedInode,
            Code::LinkCountWrong,
            Code::GroupDirectoriesWrong,
        ],
        |hand| {
            let block = hand.blocks(InodeNo::ROOT)[0];
            hand.inode(InodeNo::ROOT, |record| put16(record, 0, 0o100_755));
            hand.block(block, |bytes| bytes[8] = b'x'); // the name "."
        },
    ),
    on(Code::RootHasDtime, EXT4, |hand| {
        hand.inode(InodeNo::ROOT, |record| put32(record, 0x14, 0x5000_0000));
    }),
    on(Code::ReservedInodeMode, EXT4, |hand| {
        hand.inode(InodeNo(9), |record| {
            put16(record, 0, 0o020_600);
            put16(record, 0x1a, 1);
        });
    }),
    on(Code::DeletedWithoutDtime, PLAIN, |hand| {
        hand.inode(FREE, |record| put16(record, 0, 0o100_644));
    }),
    on(Code::InUseWithDtime, EXT4, |hand| {
        hand.file("file", |record| put32(record, 0x14, 0x5000_0000));
    }),
    on(Code::OrphanListLeftover, EXT4, |hand| hand.file("file", |record| put32(record, 0x14, 12))),
    on(Code::InodeSizeWrong, EXT4, |hand| hand.file("file", |record| put32(record, 4, 1))),
    on(Code::InodeBlocksWrong, EXT4, |hand| hand.file("file", |record| put32(record, 0x1c, 99))),
    with(
        Code::IllegalBlock,
        EXT2,
        &[
            Code::InodeBlocksWrong,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::FreeBlocksTotalWrong,
        ],
        |hand| {
            hand.file("file", |record| put32(record, 0x28 + 4, 0xfff_ffff));
        },
    ),
    with(
        Code::TooManyIllegalBlocks,
        EXT2,
        &[Code::BlockBitmapWrong, Code::GroupFreeBlocksWrong, Code::FreeBlocksTotalWrong],
        |hand| hand.file("file", |record| record[0x28..0x64].fill(0xee)),
    ),
    on(Code::BadBlocksInodeInvalid, EXT4, |hand| {
        hand.inode(InodeNo::BAD_BLOCKS, |record| put16(record, 0, 0o100_600));
    }),
    // The list has the block of its own inode, and of the root.
    on(Code::BadBlocksInodeInvalid, PLAIN, |hand| {
        let offset = hand.volume.inode_offset(InodeNo::BAD_BLOCKS).expect("there is one");
        hand.inode(InodeNo::BAD_BLOCKS, |record| put32(record, 0x28, (offset / 1024) as u32));
    }),
    on(Code::BadBlockPrimary, EXT4, |hand| {
        hand.inode(InodeNo::BAD_BLOCKS, |record| {
            put32(record, 0x28, 1);
            put32(record, 0x2c, 2);
        });
    }),
    on(Code::BadBlockIllegal, EXT4, |hand| {
        hand.inode(InodeNo::BAD_BLOCKS, |record| put32(record, 0x28, 0xfff_ffff));
    }),
    on(Code::QuotaNotInUse, EXT4, |hand| {
        hand.inode(InodeNo::USER_QUOTA, |record| {
            put16(record, 0, 0o100_600);
            put16(record, 0x1a, 1);
        });
    }),
    with(
        Code::JournalNotInUse,
        PLAIN,
        &[Code::BlockBitmapWrong, Code::GroupFreeBlocksWrong, Code::FreeBlocksTotalWrong],
        |hand| {
            hand.superblock(|raw| {
                compat(raw, CompatFeatures::HAS_JOURNAL, false);
                raw.s_journal_inum.set(0);
            });
        },
    ),
    on(Code::SpecialWithSize, EXT4, |hand| hand.file("fifo", |record| put32(record, 4, 7))),
    on(Code::SpecialImmutable, EXT4, |hand| hand.file("fifo", |record| flag(record, 0x10))),
    on(Code::ExtraSizeInvalid, EXT4, |hand| hand.file("file", |record| put16(record, 0x80, 7))),
    on(Code::EaInInodeInvalid, EXT4, |hand| {
        // The first entry's value is longer than any may be.
        hand.file("other", |record| put32(record, 0x80 + 32 + 4 + 8, 0x200_0000));
    }),
    // It lies on the entry.
    on(Code::EaInInodeCollision, EXT4, |hand| {
        hand.file("other", |record| put16(record, 0x80 + 32 + 4 + 2, 0));
    }),
    // It lies off the inode.
    on(Code::EaInInodeCollision, EXT4, |hand| {
        hand.file("other", |record| put16(record, 0x80 + 32 + 4 + 2, 0xfff0));
    }),
    on(Code::EaInInodeHash, EXT4, |hand| {
        hand.file("other", |record| put32(record, 0x80 + 32 + 4 + 12, 0x1234_5678));
    }),
    on(Code::EaBlockOffVolume, EXT4, |hand| {
        hand.file("file", |record| put32(record, 0x68, 0xfff_ffff));
    }),
    with(
        Code::EaBlockCorrupt,
        PLAIN,
        &[
            Code::InodeBlocksWrong,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::FreeBlocksTotalWrong,
        ],
        |hand| {
            let block = hand.decoded(hand.find("long")).file_acl;
            hand.block(block.0, |bytes| put16(bytes, 32 + 2, 0xfff0));
        },
    ),
    with(
        Code::EaInInodeHash,
        PLAIN,
        &[
            Code::InodeBlocksWrong,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::FreeBlocksTotalWrong,
        ],
        |hand| {
            // No hash, which entries inside inodes may have.
            let block = hand.decoded(hand.find("long")).file_acl;
            hand.block(block.0, |bytes| put32(bytes, 32 + 12, 0));
        },
    ),
    on(Code::EaBlockChecksum, EXT4, |hand| {
        let block = hand.decoded(hand.find("long")).file_acl;
        hand.block(block.0, |bytes| bytes[0x10] ^= 1);
    }),
    on(Code::EaBlockRefcount, PLAIN, |hand| {
        let block = hand.decoded(hand.find("long")).file_acl;
        hand.block(block.0, |bytes| put32(bytes, 4, 7));
    }),
    with(
        Code::InodeIsCopy,
        EXT4,
        &[
            Code::MultiplyClaimed,
            Code::InodeChecksum,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::FreeBlocksTotalWrong,
        ],
        |hand| {
            let mut copy = Vec::new();
            hand.file("file", |record| copy = record.to_vec());
            hand.unsealed(hand.find("other"), |record| record.copy_from_slice(&copy));
        },
    ),
    on(Code::CasefoldFlag, EXT4, |hand| hand.file("sub", |record| flag(record, 0x4000_0000))),
    with(
        Code::LooksLikeDirectory,
        EXT4,
        &[
            Code::InodeBlocksWrong,
            Code::InodeModeInvalid,
            Code::FileTypeWrong,
            Code::UnconnectedDirectory,
            Code::LinkCountWrong,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::GroupDirectoriesWrong,
            Code::FreeBlocksTotalWrong,
        ],
        |hand| hand.file("sub", |record| put16(record, 0, 0o755)),
    ),
    with(
        Code::ExtentsWithoutFeature,
        EXT2,
        &[
            Code::ExtentHeaderCorrupt,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::FreeBlocksTotalWrong,
        ],
        |hand| {
            hand.file("file", |record| {
                flag(record, 0x8_0000);
                record[0x28..0x64].fill(0xff);
            });
        },
    ),
    with(
        Code::ExtentsFlagOnPointers,
        EXT2,
        &[
            Code::ExtentHeaderCorrupt,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::FreeBlocksTotalWrong,
        ],
        |hand| hand.file("file", |record| flag(record, 0x8_0000)),
    ),
    with(Code::SymlinkWithExtents, EXT4, &[Code::SymlinkInvalid], |hand| {
        hand.file("fast", |record| flag(record, 0x8_0000));
    }),
    on(Code::ExtentsFeatureMissing, PLAIN, |hand| {
        hand.superblock(|raw| {
            incompat(raw, IncompatFeatures::EXTENTS, false);
        });
    }),
    with(
        Code::ExtentsFlagMissing,
        EXT4,
        &[
            Code::InodeSizeWrong,
            Code::InodeBlocksWrong,
            Code::IllegalBlock,
            Code::MultiplyClaimed,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::FreeBlocksTotalWrong,
        ],
        |hand| {
            hand.file("file", |record| put32(record, 0x20, 0));
        },
    ),
    with(
        Code::ExtentHeaderCorrupt,
        EXT4,
        &[Code::BlockBitmapWrong, Code::GroupFreeBlocksWrong, Code::FreeBlocksTotalWrong],
        |hand| {
            hand.file("file", |record| put16(record, 0x28, 0x1111));
        },
    ),
    with(
        Code::ExtentInvalidStart,
        EXT4,
        &[
            Code::InodeBlocksWrong,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::FreeBlocksTotalWrong,
        ],
        |hand| {
            hand.file("file", |record| put32(record, EXTENT + 8, 0xfff_ffff));
        },
    ),
    with(
        Code::ExtentZeroLength,
        EXT4,
        &[
            Code::InodeBlocksWrong,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::FreeBlocksTotalWrong,
        ],
        |hand| {
            hand.file("file", |record| put16(record, EXTENT + 4, 0));
        },
    ),
    with(
        Code::ExtentInvalidLength,
        EXT4,
        &[
            Code::InodeBlocksWrong,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::FreeBlocksTotalWrong,
        ],
        |hand| {
            hand.file("file", |record| {
                put16(record, EXTENT + 4, 0x7fff);
                put32(record, 4, 0);
            });
        },
    ),
    on(Code::ExtentTooLong, EXT4, |hand| {
        hand.file("file", |record| put16(record, EXTENT + 4, 0x7fff));
    }),
    on(Code::ExtentMisplaced, EXT4, |hand| hand.file("long", |record| split(record, 5))),
    on(Code::UnwrittenDirectory, EXT4, |hand| {
        hand.file("sub", |record| record[EXTENT + 5] |= 0x80);
    }),
    with(
        Code::DirectoryHole,
        EXT4,
        &[
            Code::InodeSizeWrong,
            Code::DuplicateDot,
            Code::DuplicateDotDot,
            Code::DotDotWrong,
            Code::LinkCountWrong,
        ],
        |hand| hand.file("sub", |record| put32(record, EXTENT, 3)),
    ),
    on(Code::InodeChecksum, EXT4, |hand| {
        let file = hand.find("file");
        hand.unsealed(file, |record| record[0x7c] ^= 1);
    }),
    with(
        Code::InlineAndExtentsIsExtents,
        EXT4,
        &[
            Code::InodeBlocksWrong,
            Code::InlineWithoutFeature,
            Code::InlineWithoutAttribute,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::FreeBlocksTotalWrong,
        ],
        |hand| {
            hand.file("file", |record| flag(record, 0x1000_0000));
        },
    ),
    on(Code::TimeBeyond, EXT4, |hand| {
        hand.file("file", |record| {
            put32(record, 8, 0x8000_0000);
            record[0x8c] |= 3;
        });
    }),
    on(Code::IndexFlagOnOther, EXT4, |hand| hand.file("file", |record| flag(record, 0x1000))),
    on(Code::IndexWithoutFeature, EXT4, |hand| {
        hand.superblock(|raw| compat(raw, CompatFeatures::DIR_INDEX, false));
    }),
    on(Code::ImagicFlag, EXT4, |hand| hand.file("file", |record| flag(record, 0x2000))),
    with(
        Code::MultiplyClaimed,
        EXT2,
        &[Code::BlockBitmapWrong, Code::GroupFreeBlocksWrong, Code::FreeBlocksTotalWrong],
        |hand| {
            let block = hand.blocks(hand.find("other"))[0];
            hand.file("file", |record| put32(record, 0x28, block as u32));
        },
    ),
    // Names.
    with(Code::EntryBadInode, EXT4, &[Code::UnattachedInode], |hand| {
        hand.entry("", "file", |entry| put32(entry, 0, 0x7fff_ffff));
    }),
    // A quota file has no name.
    with(Code::EntryBadInode, PROJECT, &[Code::UnattachedInode], |hand| {
        let quota = hand.volume.raw.s_prj_quota_inum.get();
        hand.entry("", "file", |entry| put32(entry, 0, quota));
    }),
    with(Code::EntryUnusedInode, PLAIN, &[Code::UnattachedInode], |hand| {
        hand.entry("", "file", |entry| put32(entry, 0, FREE.0));
    }),
    with(Code::EntryLinkToDot, EXT4, &[Code::UnconnectedDirectory, Code::LinkCountWrong], |hand| {
        let dir = hand.find("sub");
        hand.entry("sub", "inner", |entry| put32(entry, 0, dir.0));
    }),
    with(
        Code::EntryLinkToDirectory,
        EXT4,
        &[Code::DirectoryLinkedTwice, Code::UnconnectedDirectory, Code::LinkCountWrong],
        |hand| {
            let dir = hand.find("dir");
            hand.entry("sub", "inner", |entry| put32(entry, 0, dir.0));
        },
    ),
    with(
        Code::EntryLinkToRoot,
        EXT4,
        &[Code::UnconnectedDirectory, Code::LinkCountWrong],
        |hand| {
            hand.entry("sub", "inner", |entry| put32(entry, 0, InodeNo::ROOT.0));
        },
    ),
    on(Code::EntryBadCharacters, EXT4, |hand| hand.entry("", "file", |entry| entry[9] = b'/')),
    with(Code::MissingDot, PLAIN, &[Code::LinkCountWrong], |hand| {
        hand.entry("sub/inner", ".", |entry| put32(entry, 0, 0))
    }),
    with(Code::MissingDotDot, PLAIN, &[Code::DotDotWrong, Code::LinkCountWrong], |hand| {
        hand.entry("sub/inner", "..", |entry| put32(entry, 0, 0));
    }),
    with(Code::FirstEntryNotDot, EXT4, &[Code::LinkCountWrong], |hand| {
        hand.entry("sub/inner", ".", |entry| entry[8] = b'x');
    }),
    with(Code::SecondEntryNotDotDot, EXT4, &[Code::DotDotWrong, Code::LinkCountWrong], |hand| {
        hand.entry("sub/inner", "..", |entry| entry[8] = b'x');
    }),
    on(Code::DotWrong, EXT4, |hand| hand.entry("sub/inner", ".", |entry| put32(entry, 0, 12))),
    on(Code::DotNotTerminated, EXT4, |hand| {
        hand.entry("sub/inner", ".", |entry| entry[9] = b'x');
    }),
    on(Code::DotDotNotTerminated, EXT4, |hand| {
        hand.entry("sub/inner", "..", |entry| entry[10] = b'x');
    }),
    with(
        Code::DirectoryCorrupted,
        EXT4,
        &[Code::UnconnectedDirectory, Code::UnattachedInode, Code::LinkCountWrong],
        |hand| {
            hand.entry("", "file", |entry| put16(entry, 4, 3));
        },
    ),
    with(Code::EntryEmptyName, EXT4, &[Code::UnattachedInode], |hand| {
        hand.entry("", "file", |entry| entry[6] = 0)
    }),
    on(Code::FileTypeWrong, EXT4, |hand| hand.entry("", "file", |entry| entry[7] = 2)),
    on(Code::FileTypeMissing, EXT4, |hand| hand.entry("", "file", |entry| entry[7] = 0)),
    with(Code::FileTypeUnexpected, PLAIN, &[Code::LostFoundMissing], |hand| {
        hand.superblock(|raw| incompat(raw, IncompatFeatures::FILETYPE, false));
    }),
    with(
        Code::InodeModeInvalid,
        EXT4,
        &[
            Code::InodeBlocksWrong,
            Code::FileTypeWrong,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::FreeBlocksTotalWrong,
        ],
        |hand| {
            hand.file("file", |record| put16(record, 0, 0o170_644));
        },
    ),
    on(Code::SymlinkInvalid, EXT4, |hand| hand.file("fast", |record| put32(record, 4, 50))),
    on(Code::FifoIllegal, EXT4, |hand| {
        hand.file("fifo", |record| {
            flag(record, 0x10);
            put32(record, 0x28 + 20, 7);
        });
    }),
    on(Code::FieldNotZero, EXT4, |hand| hand.file("file", |record| put32(record, 0x70, 7))),
    on(Code::HighFieldNotZero, EXT2, |hand| hand.file("file", |record| put16(record, 0x76, 7))),
    with(Code::NameNotUnique, PLAIN, &[Code::DuplicateEntry], |hand| {
        hand.entry("", "file", |entry| entry[8..12].copy_from_slice(b"fast"));
    }),
    with(Code::DuplicateEntry, PLAIN, &[Code::UnattachedInode, Code::LinkCountWrong], |hand| {
        let fast = hand.find("fast");
        hand.entry("", "file", |entry| {
            put32(entry, 0, fast.0);
            entry[7] = 7;
            entry[8..12].copy_from_slice(b"fast");
        });
    }),
    on(Code::DirBlockChecksum, EXT4, |hand| {
        let block = hand.blocks(hand.find("sub"))[0];
        hand.block(block, |bytes| bytes[1023] ^= 1);
    }),
    on(Code::DirBlockWithoutChecksum, EXT4, |hand| {
        let block = hand.blocks(hand.find("sub"))[0];
        hand.block(block, |bytes| bytes[1024 - 5] = 0);
    }),
    on(Code::HtreeInvalid, PLAIN, |hand| {
        let root = hand.blocks(hand.find("dir"))[0];
        // The hash of the second entry.
        hand.block(root, |bytes| put32(bytes, 0x28, 2));
    }),
    on(Code::HtreeUnordered, PLAIN, |hand| {
        let root = hand.blocks(hand.find("dir"))[0];
        hand.block(root, |bytes| put32(bytes, 0x28, 0xffff_fff0));
    }),
    on(Code::HtreeRootInvalid, PLAIN, |hand| {
        let root = hand.blocks(hand.find("dir"))[0];
        // A reserved field.
        hand.block(root, |bytes| bytes[24] = 1);
    }),
    on(Code::HtreeRootChecksum, EXT4, |hand| {
        let root = hand.blocks(hand.find("dir"))[0];
        hand.block(root, |bytes| bytes[1023] ^= 1);
    }),
    with(
        Code::EntryPastHighWater,
        MARKS,
        &[
            Code::LinkCountWrong,
            Code::BlockBitmapWrong,
            Code::HighWaterWrong,
            Code::GroupFreeBlocksWrong,
            Code::GroupDirectoriesWrong,
            Code::FreeBlocksTotalWrong,
            Code::FreeInodesTotalWrong,
        ],
        |hand| {
            hand.desc(0, |desc| {
                desc.itable_unused += 3;
                desc.free_inodes += 3;
            });
        },
    ),
    // Connections and counts.
    with(
        Code::RootMissing,
        EXT4,
        &[
            Code::UnattachedInode,
            Code::LinkCountWrong,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::GroupDirectoriesWrong,
            Code::FreeBlocksTotalWrong,
        ],
        |hand| {
            let block = hand.blocks(InodeNo::ROOT)[0];
            hand.inode(InodeNo::ROOT, |record| record.fill(0));
            hand.block(block, |bytes| bytes[8] = b'x'); // the name "."
        },
    ),
    with(Code::UnconnectedDirectory, PLAIN, &[Code::LinkCountWrong], |hand| {
        hand.entry("sub", "inner", |entry| put32(entry, 0, 0));
    }),
    on(Code::LostFoundMissing, PLAIN, |hand| {
        hand.entry("", "lost+found", |entry| entry[8] = b'L');
    }),
    on(Code::LostFoundNotDirectory, PLAIN, |hand| {
        let (file, found) = (hand.find("file"), hand.find("lost+found"));
        hand.entry("", "lost+found", |entry| {
            put32(entry, 0, file.0);
            entry[7] = 1;
        });
        hand.entry("", "file", |entry| {
            put32(entry, 0, found.0);
            entry[7] = 2;
        });
    }),
    with(Code::DotDotWrong, EXT4, &[Code::LinkCountWrong], |hand| {
        let dir = hand.find("dir");
        hand.entry("sub/inner", "..", |entry| put32(entry, 0, dir.0));
    }),
    on(Code::UnattachedInode, EXT4, |hand| hand.entry("", "file", |entry| put32(entry, 0, 0))),
    on(Code::UnattachedEmpty, EXT4, |hand| {
        hand.entry("dir", "name-123", |entry| put32(entry, 0, 0));
    }),
    on(Code::LinkCountWrong, EXT4, |hand| hand.file("file", |record| put16(record, 0x1a, 9))),
    // Summaries.
    on(Code::BlockBitmapWrong, PLAIN, |hand| {
        let bitmap = hand.volume.desc(GroupNo(1)).block_bitmap;
        hand.block(bitmap.0, |bytes| bytes[1000] ^= 1);
    }),
    on(Code::InodeBitmapWrong, PLAIN, |hand| {
        let bitmap = hand.volume.desc(GroupNo(1)).inode_bitmap;
        hand.block(bitmap.0, |bytes| bytes[50] ^= 1);
    }),
    on(Code::InodeBitmapPadding, PLAIN, |hand| {
        let bitmap = hand.volume.desc(GroupNo(1)).inode_bitmap;
        hand.block(bitmap.0, |bytes| bytes[1023] = 0);
    }),
    on(Code::BlockBitmapPadding, PLAIN, |hand| {
        let last = hand.volume.geometry().groups_count - 1;
        let bitmap = hand.volume.desc(GroupNo(last)).block_bitmap;
        hand.block(bitmap.0, |bytes| bytes[1023] = 0);
    }),
    on(Code::BlockBitmapChecksum, EXT4, |hand| {
        hand.desc(0, |desc| desc.block_bitmap_checksum ^= 1);
    }),
    on(Code::InodeBitmapChecksum, EXT4, |hand| {
        hand.desc(0, |desc| desc.inode_bitmap_checksum ^= 1);
    }),
    on(Code::BlockUninitInUse, MARKS, |hand| {
        hand.desc(0, |desc| desc.flags |= GroupFlags::BLOCK_UNINIT);
    }),
    with(
        Code::EntryInUninitGroup,
        MARKS,
        &[
            Code::InodeUninitInUse,
            Code::LinkCountWrong,
            Code::BlockBitmapWrong,
            Code::HighWaterWrong,
            Code::GroupFreeBlocksWrong,
            Code::GroupFreeInodesWrong,
            Code::GroupDirectoriesWrong,
            Code::FreeBlocksTotalWrong,
            Code::FreeInodesTotalWrong,
        ],
        |hand| {
            hand.desc(0, |desc| desc.flags |= GroupFlags::INODE_UNINIT);
        },
    ),
    on(Code::GroupFreeBlocksWrong, PLAIN, |hand| hand.desc(0, |desc| desc.free_clusters += 1)),
    on(Code::GroupFreeInodesWrong, PLAIN, |hand| hand.desc(0, |desc| desc.free_inodes += 1)),
    on(Code::GroupDirectoriesWrong, PLAIN, |hand| hand.desc(0, |desc| desc.used_dirs += 1)),
    on(Code::FreeBlocksTotalWrong, PLAIN, |hand| {
        hand.superblock(|raw| raw.s_free_blocks_count_lo.set(1));
    }),
    on(Code::FreeInodesTotalWrong, PLAIN, |hand| {
        hand.superblock(|raw| raw.s_free_inodes_count.set(1));
    }),
    on(Code::QuotaWrong, QUOTA, |hand| {
        // The first record's count of inodes, in the leaf.
        let leaf = hand.blocks(InodeNo::USER_QUOTA)[5];
        hand.block(leaf, |bytes| bytes[16 + 8 + 16] ^= 0x70);
    }),
    on(Code::QuotaFileCorrupt, QUOTA, |hand| {
        let head = hand.blocks(InodeNo::USER_QUOTA)[0];
        hand.block(head, |bytes| bytes[0] ^= 0xff);
    }),
    // The inode of a quota file is lost, and the file with it.
    with(
        Code::QuotaInodeLost,
        QUOTA,
        &[Code::BlockBitmapWrong, Code::GroupFreeBlocksWrong, Code::FreeBlocksTotalWrong],
        |hand| hand.unsealed(InodeNo::USER_QUOTA, |record| record.fill(0)),
    ),
    with(
        Code::QuotaInodeLost,
        PROJECT,
        &[
            Code::BlockBitmapWrong,
            Code::InodeBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::GroupFreeInodesWrong,
            Code::FreeBlocksTotalWrong,
            Code::FreeInodesTotalWrong,
        ],
        |hand| {
            let number = InodeNo(hand.volume.raw.s_prj_quota_inum.get());
            hand.unsealed(number, |record| record.fill(0));
        },
    ),
];
