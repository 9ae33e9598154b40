//! Damages that need a volume with a feature, with less usual files, or without room.

use extant_check::Code;
use extant_ondisk::group_desc::GroupFlags;
use extant_ondisk::{BlockNo, GroupNo, InodeNo, RoCompatFeatures};

use super::damages::{Damage, EXTENT, Requested, on, ro_compat, with};
use super::hand::{
    BIGALLOC, CASEFOLD, DEEP, EA_INODE, ENCRYPT, EXT2, EXT4, FIRST_ATTRIBUTE, FRAGMENTS, FULL,
    Hand, INLINE, MARKS, PLAIN, QUOTA, VAULT_FILES, flag, put16, put32,
};

/// The only extent node below the root of the file of many extents.
fn node(hand: &Hand) -> u64 {
    let root = hand.decoded(hand.find("holes")).i_block;
    u64::from(u32::from_le_bytes(root[16..20].try_into().expect("four bytes")))
}

/// Changes the node and seals it.
fn spoil_node(hand: &Hand, change: fn(&mut [u8])) {
    let number = hand.find("holes");
    let generation = hand.decoded(number).generation;
    let block = node(hand);
    hand.block(block, |bytes| {
        change(bytes);
        let owner = extant_ondisk::extent::NodeOwner {
            inode: number,
            generation,
            block: Some(BlockNo(block)),
        };
        extant_ondisk::extent::seal(bytes, &owner, hand.volume.geometry());
    });
}

/// The inode that holds the value of "valued".
fn value_inode(hand: &Hand) -> InodeNo {
    let record = hand.volume.read_inode(hand.find("valued")).expect("reads");
    let at = FIRST_ATTRIBUTE + 4;
    InodeNo(u32::from_le_bytes(record[at..at + 4].try_into().expect("four bytes")))
}

/// Puts a block on the list of bad ones, and nothing else: what uses it keeps it.
fn call_bad(hand: &mut Hand, block: u64) {
    let mut bad = extant_layout::RunSet::new();
    bad.insert(block..block + 1);
    hand.bad_blocks(&bad);
}

/// Turns a pipe into something else.
fn turn_into(hand: &Hand, mode: u16, file_type: u8) {
    hand.file("fifo", |record| {
        put16(record, 0, mode);
        flag(record, 0x10);
        put32(record, 0x28 + 20, 7);
    });
    hand.entry("", "fifo", |entry| entry[7] = file_type);
}

/// The first extent of "file" is that of "other".
fn share(hand: &mut Hand) {
    let block = hand.blocks(hand.find("other"))[0];
    hand.file("tiny", |record| put32(record, EXTENT + 8, block as u32));
}

/// All three blocks of "other" belong to "tiny" too: more than it had.
fn share_more(hand: &mut Hand) {
    share(hand);
    hand.file("tiny", |record| put16(record, EXTENT + 4, 3));
}

pub(crate) const DAMAGES: &[Damage] = &[
    // Values with inodes of their own.
    with(
        Code::EaInodeFeatureMissing,
        EA_INODE,
        &[Code::UnattachedInode, Code::InodeBlocksWrong],
        |hand| {
            hand.superblock(|raw| {
                super::damages::incompat(raw, extant_ondisk::IncompatFeatures::EA_INODE, false);
            });
        },
    ),
    with(Code::EntryEaInode, EA_INODE, &[Code::UnattachedInode], |hand| {
        let value = value_inode(hand);
        hand.entry("", "tiny", |entry| put32(entry, 0, value.0));
    }),
    // Verity.
    on(Code::VerityFlag, EXT4, |hand| hand.file("file", |record| flag(record, 0x10_0000))),
    on(Code::VerityFeatureMissing, EXT4, |hand| {
        // The last block ends with the size of a descriptor, after 64 KiB.
        let last = hand.blocks(hand.find("long")).pop().expect("it has blocks");
        hand.block(last, |bytes| put32(bytes, 1020, 256));
        hand.file("long", |record| {
            flag(record, 0x10_0000);
            put32(record, 4, 4000);
        });
    }),
    // Extents.
    with(
        Code::ExtentNodeInvalid,
        FRAGMENTS,
        &[
            Code::InodeBlocksWrong,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::FreeBlocksTotalWrong,
        ],
        |hand| {
            hand.block(node(hand), |bytes| put16(bytes, 0, 0x1111));
        },
    ),
    on(Code::ExtentNodeChecksum, FRAGMENTS, |hand| {
        hand.block(node(hand), |bytes| bytes[1023] ^= 1);
    }),
    with(
        Code::ExtentOutOfOrder,
        FRAGMENTS,
        &[
            Code::InodeBlocksWrong,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::FreeBlocksTotalWrong,
        ],
        |hand| spoil_node(hand, |bytes| put32(bytes, 12 + 24, 1)),
    ),
    on(Code::ExtentIndexStart, FRAGMENTS, |hand| spoil_node(hand, |bytes| put32(bytes, 12, 3))),
    with(
        Code::ExtentTreeTooDeep,
        FRAGMENTS,
        &[
            Code::InodeBlocksWrong,
            Code::ExtentZeroLength,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::FreeBlocksTotalWrong,
        ],
        |hand| {
            spoil_node(hand, |bytes| {
                put16(bytes, 2, 3);
                put16(bytes, 12 + 12 + 4, 0);
            });
        },
    ),
    with(
        Code::DirectoryTooBig,
        EXT4,
        &[
            Code::DirectoryBlockMissing,
            Code::InodeBlocksWrong,
            Code::UnconnectedDirectory,
            Code::DotDotWrong,
            Code::LinkCountWrong,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::FreeBlocksTotalWrong,
        ],
        |hand| {
            hand.file("sub", |record| put32(record, EXTENT, 0x30_0000));
        },
    ),
    // Clusters.
    on(Code::ClusterMisaligned, BIGALLOC, |hand| {
        hand.file("other", |record| {
            let start =
                u32::from_le_bytes(record[EXTENT + 8..EXTENT + 12].try_into().expect("four"));
            put16(record, EXTENT + 4, 2);
            put32(record, EXTENT + 8, start + 1);
        });
    }),
    on(Code::BlockMappedOnBigalloc, BIGALLOC, |hand| {
        let block = hand.blocks(hand.find("tiny"))[0];
        hand.file("tiny", |record| {
            put32(record, 0x20, 0);
            record[0x28..0x64].fill(0);
            put32(record, 0x28, block as u32);
        });
    }),
    // Maps that lie on something.
    with(
        Code::MapOnMetadata,
        EXT2,
        &[Code::BlockBitmapWrong, Code::GroupFreeBlocksWrong, Code::FreeBlocksTotalWrong],
        |hand| {
            let table = hand.volume.desc(GroupNo(1)).inode_table;
            hand.file("long", |record| put32(record, 0x28 + 48, table.0 as u32));
        },
    ),
    with(
        Code::TableConflict,
        PLAIN,
        &[Code::BlockBitmapWrong, Code::GroupFreeBlocksWrong, Code::FreeBlocksTotalWrong],
        |hand| {
            hand.desc(1, |desc| desc.block_bitmap = desc.inode_bitmap);
            // The backups say so too: else their value would be taken.
            hand.volume.write_backups().expect("writes");
        },
    ),
    on(Code::TableInBadBlock, PLAIN, |hand| {
        let bitmap = hand.volume.desc(GroupNo(1)).inode_bitmap;
        call_bad(hand, bitmap.0);
    }),
    with(
        Code::EntryInBadBlock,
        PLAIN,
        &[Code::BlockBitmapWrong, Code::GroupFreeBlocksWrong, Code::FreeBlocksTotalWrong],
        |hand| {
            let file = hand.find("file");
            let offset = hand.volume.inode_offset(file).expect("there is such an inode");
            call_bad(hand, offset / 1024);
        },
    ),
    // Two blocks of an inode table changed places, and most records are wrong in both places: the
    // checksums of the others do not say where the blocks belong.
    on(Code::InodeBlockChecksum, EXT4, |hand| {
        let blocks = ["dir/name-100", "dir/name-200"].map(|name| {
            let offset = hand.volume.inode_offset(hand.find(name)).expect("there is such an inode");
            offset / 1024
        });
        let [first, second] = blocks.map(|block| hand.volume.read(BlockNo(block)).expect("reads"));
        for (block, other, wrong) in [(blocks[0], second, [0, 1, 2]), (blocks[1], first, [1, 2, 3])]
        {
            hand.block(block, |bytes| {
                bytes.copy_from_slice(&other);
                wrong.iter().for_each(|at| bytes[at * 256 + 8] ^= 1); // a time
            });
        }
    }),
    with(
        Code::InodeGarbage,
        EXT4,
        &[
            Code::InUseWithDtime,
            Code::InodeBlocksWrong,
            Code::SpecialWithSize,
            Code::ExtraSizeInvalid,
            Code::CasefoldFlag,
            Code::VerityFlag,
            Code::EncryptWithoutContext,
            Code::InlineWithoutFeature,
            Code::InlineWithoutAttribute,
            Code::InlineAndExtentsIsJunk,
            Code::TimeBeyond,
            Code::IndexFlagOnOther,
            Code::ImagicFlag,
            Code::FileTypeWrong,
            Code::LinkCountWrong,
        ],
        |hand| {
            let file = hand.find("dir/name-100");
            let offset = hand.volume.inode_offset(file).expect("there is such an inode");
            hand.block(offset / 1024, |bytes| {
                for (at, byte) in bytes.iter_mut().enumerate() {
                    *byte = (at * 89 % 251) as u8 | 1;
                }
            });
        },
    ),
    // Attributes.
    on(Code::EaInInodeCollision, EXT4, |hand| {
        // A second attribute, whose value is the first's.
        hand.file("other", |record| {
            let first: Vec<u8> = record[FIRST_ATTRIBUTE..FIRST_ATTRIBUTE + 20].to_vec();
            record[FIRST_ATTRIBUTE + 20..FIRST_ATTRIBUTE + 40].copy_from_slice(&first);
            record[FIRST_ATTRIBUTE + 20 + 16] = b'y';
            put32(record, FIRST_ATTRIBUTE + 20 + 12, 0);
        });
    }),
    with(
        Code::EaValueInode,
        EA_INODE,
        &[Code::InodeBlocksWrong, Code::UnattachedInode, Code::EaInodeIsFile],
        |hand| {
            hand.file("valued", |record| put32(record, FIRST_ATTRIBUTE + 4, 0xfff_ffff));
        },
    ),
    on(Code::EaValueSize, EA_INODE, |hand| {
        hand.file("valued", |record| put32(record, FIRST_ATTRIBUTE + 8, 0));
    }),
    on(Code::EaInodeWithoutFlag, EA_INODE, |hand| {
        let value = value_inode(hand);
        hand.inode(value, |record| put32(record, 0x20, 0x8_0000));
    }),
    on(Code::EaInodeRefcount, EA_INODE, |hand| {
        let value = value_inode(hand);
        hand.inode(value, |record| put32(record, 0x0c, 5));
    }),
    with(Code::EaInodeFlagOnOther, EA_INODE, &[Code::EaInodeIsFile], |hand| {
        hand.file("sub", |record| flag(record, 0x20_0000))
    }),
    on(Code::EaInodeIsFile, EA_INODE, |hand| hand.file("file", |record| flag(record, 0x20_0000))),
    // A time before 1970 is not the number of an owner.
    on(Code::UnattachedEmpty, EXT4, |hand| {
        hand.file("dir/name-123", |record| {
            flag(record, 0x20_0000);
            put32(record, 0x10, 0x8772_4963);
        });
        hand.entry("dir", "name-123", |entry| put32(entry, 0, 0));
    }),
    // Encryption and names.
    on(Code::EncryptWithoutContext, ENCRYPT, |hand| {
        hand.file("file", |record| flag(record, 0x800));
    }),
    on(Code::EncryptionCorrupt, ENCRYPT, |hand| {
        hand.file(VAULT_FILES[0], |record| {
            // The version, at the start of the value at the end of the record.
            record[256 - 28] = 0;
        });
    }),
    on(Code::EncryptionPolicyDiffers, ENCRYPT, |hand| {
        hand.file(VAULT_FILES[0], |record| record[256 - 28 + 5] ^= 1);
    }),
    on(Code::EncryptedNamesPlain, ENCRYPT, |hand| {
        hand.file(VAULT_FILES[0], |record| {
            let flags = u32::from_le_bytes(record[0x20..0x24].try_into().expect("four bytes"));
            put32(record, 0x20, flags & !0x800);
        });
    }),
    with(Code::EncryptedNameTooShort, ENCRYPT, &[Code::UnattachedEmpty], |hand| {
        let name = VAULT_FILES[0].trim_start_matches("vault/");
        hand.entry("vault", name, |entry| entry[6] = 9);
    }),
    on(Code::NameNotUtf8, CASEFOLD, |hand| {
        hand.entry("sub", "inner", |entry| entry[9] = 0xff);
    }),
    on(Code::LostFoundEncrypted, ENCRYPT, |hand| {
        let vault = hand.volume.read_inode(hand.find("vault")).expect("reads");
        hand.file("lost+found", |record| {
            record[128..].copy_from_slice(&vault[128..]);
            flag(record, 0x800);
        });
    }),
    // Inline data.
    with(
        Code::LostFoundInline,
        INLINE,
        &[Code::BlockBitmapWrong, Code::GroupFreeBlocksWrong, Code::FreeBlocksTotalWrong],
        |hand| {
            let small = hand.volume.read_inode(hand.find("sub")).expect("reads");
            hand.file("lost+found", |record| {
                // The number of the parent, and one free record.
                put32(record, 4, 60);
                put32(record, 0x1c, 0);
                put32(record, 0x20, 0x1000_0000);
                record[0x28..0x64].fill(0);
                put32(record, 0x28, InodeNo::ROOT.0);
                put16(record, 0x28 + 4 + 4, 56);
                record[128..].copy_from_slice(&small[128..]);
            });
        },
    ),
    on(Code::InlineWithoutAttribute, INLINE, |hand| {
        hand.file("small", |record| record[128 + 32..].fill(0));
    }),
    with(
        Code::InlineWithoutFeature,
        EXT4,
        &[
            Code::InodeBlocksWrong,
            Code::InlineWithoutAttribute,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::FreeBlocksTotalWrong,
        ],
        |hand| {
            hand.file("tiny", |record| {
                put32(record, 0x20, 0x1000_0000);
                record[0x28..0x64].fill(b'x');
            });
        },
    ),
    on(Code::InlineFeatureMissing, INLINE, |hand| {
        hand.superblock(|raw| {
            super::damages::incompat(raw, extant_ondisk::IncompatFeatures::INLINE_DATA, false);
        });
    }),
    on(Code::InlineAndExtentsIsInline, INLINE, |hand| {
        hand.file("tiny", |record| flag(record, 0x8_0000))
    }),
    with(
        Code::InlineAndExtentsIsMap,
        PLAIN,
        &[
            Code::InodeBlocksWrong,
            Code::InlineWithoutFeature,
            Code::InlineWithoutAttribute,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::FreeBlocksTotalWrong,
        ],
        |hand| {
            let block = hand.blocks(hand.find("tiny"))[0];
            hand.file("tiny", |record| {
                flag(record, 0x1008_0000);
                record[0x28..0x64].fill(0);
                put32(record, 0x28, block as u32);
            });
        },
    ),
    with(
        Code::InlineAndExtentsIsJunk,
        PLAIN,
        &[
            Code::InodeBlocksWrong,
            Code::InlineWithoutFeature,
            Code::InlineWithoutAttribute,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::FreeBlocksTotalWrong,
        ],
        |hand| {
            hand.file("tiny", |record| {
                flag(record, 0x1008_0000);
                record[0x28..0x64].fill(0xee);
            });
        },
    ),
    // Directories.
    with(
        Code::DotTooBig,
        PLAIN,
        &[
            Code::SecondEntryNotDotDot,
            Code::DotDotWrong,
            Code::UnattachedInode,
            Code::LinkCountWrong,
        ],
        |hand| {
            // `.` takes the place of `..` too.
            hand.entry("sub/inner", ".", |entry| put16(entry, 4, 24));
        },
    ),
    with(Code::DuplicateDot, PLAIN, &[Code::UnattachedInode], |hand| {
        hand.entry("", "file", |entry| {
            entry[6] = 1;
            entry[8] = b'.';
        });
    }),
    with(Code::DuplicateDotDot, PLAIN, &[Code::UnattachedInode], |hand| {
        hand.entry("", "file", |entry| {
            entry[6] = 2;
            entry[8..10].copy_from_slice(b"..");
        });
    }),
    with(
        Code::DirectoryBlockMissing,
        EXT2,
        &[
            Code::InodeBlocksWrong,
            Code::HtreeInvalid,
            Code::UnattachedEmpty,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::FreeBlocksTotalWrong,
        ],
        |hand| {
            hand.file("dir", |record| put32(record, 0x28 + 4, 0));
        },
    ),
    on(Code::HtreeNodeChecksum, DEEP, |hand| {
        let format = hand.blocks(hand.find("wide"));
        let node = format.into_iter().skip(1).find(|block| {
            let bytes = hand.volume.read(BlockNo(*block)).expect("reads");
            bytes[..8] == [0, 0, 0, 0, 0, 4, 0, 0]
        });
        hand.block(node.expect("an index of two levels"), |bytes| bytes[1023] ^= 1);
    }),
    with(
        Code::DirectoryLinkedTwice,
        PLAIN,
        &[Code::UnconnectedDirectory, Code::LinkCountWrong],
        |hand| {
            let dir = hand.find("dir");
            hand.entry("sub", "inner", |entry| put32(entry, 0, dir.0));
        },
    ),
    // Neither a file nor a directory.
    with(Code::SpecialWithMap, EXT4, &[Code::FifoIllegal], |hand| {
        hand.file("fifo", |record| flag(record, 0x8_0000))
    }),
    on(Code::CharDeviceIllegal, EXT4, |hand| turn_into(hand, 0o020_644, 3)),
    on(Code::BlockDeviceIllegal, EXT4, |hand| turn_into(hand, 0o060_644, 4)),
    on(Code::SocketIllegal, EXT4, |hand| turn_into(hand, 0o140_644, 6)),
    with(Code::InlineDirectoryCorrupted, INLINE, &[Code::DirectoryCorrupted], |hand| {
        hand.file("sub", |record| {
            // Three bytes in the second part, which lie at the end of the inode.
            put32(record, 4, 63);
            put16(record, FIRST_ATTRIBUTE + 2, 88);
            put32(record, FIRST_ATTRIBUTE + 8, 3);
        });
    }),
    // The target of a link has one block.
    on(Code::FileTooBig, EXT2, |hand| {
        hand.file("slow", |record| put32(record, 0x28 + 4, 15_000));
    }),
    on(Code::SpecialImmutable, EXT4, |hand| hand.file("fast", |record| flag(record, 0x10))),
    on(Code::FieldNotZero, EXT4, |hand| hand.file("fifo", |record| put32(record, 0x6c, 7))),
    on(Code::FieldNotZero, EXT4, |hand| hand.file("slow", |record| put32(record, 0x6c, 7))),
    // Summaries.
    on(Code::LargeFileFeatureMissing, EXT2, |hand| {
        hand.superblock(|raw| ro_compat(raw, RoCompatFeatures::LARGE_FILE, false));
        hand.file("file", |record| put32(record, 4, 0x9000_0000));
    }),
    with(
        Code::QuotaInodeMode,
        QUOTA,
        &[
            Code::InodeBlocksWrong,
            Code::SpecialWithSize,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::FreeBlocksTotalWrong,
            Code::QuotaInodeLost,
        ],
        |hand| {
            hand.inode(InodeNo::USER_QUOTA, |record| put16(record, 0, 0o020_600));
        },
    ),
    with(
        Code::InodeUninitInUse,
        MARKS,
        &[
            Code::EntryInUninitGroup,
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
    with(
        Code::HighWaterWrong,
        MARKS,
        &[
            Code::EntryPastHighWater,
            Code::LinkCountWrong,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::GroupFreeInodesWrong,
            Code::GroupDirectoriesWrong,
            Code::FreeBlocksTotalWrong,
            Code::FreeInodesTotalWrong,
        ],
        |hand| {
            let all = hand.volume.geometry().inodes_per_group;
            hand.desc(0, |desc| (desc.itable_unused, desc.free_inodes) = (all, all));
        },
    ),
    // No room.
    on(Code::ResizeInodeInvalid, FULL, |hand| {
        hand.inode(InodeNo::RESIZE, |record| put32(record, 0x28, 5));
    }),
    with(Code::NoRoomForLostFound, FULL, &[Code::LostFoundMissing], |hand| {
        hand.entry("", "lost+found", |entry| entry[8] = b'L');
    }),
    with(
        Code::CloneFailed,
        FULL,
        &[
            Code::InodeSizeWrong,
            Code::InodeBlocksWrong,
            Code::MultiplyClaimed,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::FreeBlocksTotalWrong,
        ],
        share_more,
    ),
    // Requested by an option.
    Damage { options: Requested::Optimize, ..on(Code::DirectoryOptimized, EXT4, |_| {}) },
    Damage {
        options: Requested::Extents,
        ..on(Code::MapToExtents, EXT2, |hand| {
            hand.superblock(|raw| {
                super::damages::incompat(raw, extant_ondisk::IncompatFeatures::EXTENTS, true);
            });
        })
    },
    Damage {
        options: Requested::Unshare,
        ..with(
            Code::SharedBlocks,
            EXT4,
            &[Code::BlockBitmapWrong, Code::GroupFreeBlocksWrong, Code::FreeBlocksTotalWrong],
            |hand| {
                hand.superblock(|raw| ro_compat(raw, RoCompatFeatures::SHARED_BLOCKS, true));
                share(hand);
            },
        )
    },
    Damage {
        options: Requested::Unshare,
        ..with(
            Code::SharedBlocksDone,
            EXT4,
            &[
                Code::SharedBlocks,
                Code::BlockBitmapWrong,
                Code::GroupFreeBlocksWrong,
                Code::FreeBlocksTotalWrong,
            ],
            |hand| {
                hand.superblock(|raw| ro_compat(raw, RoCompatFeatures::SHARED_BLOCKS, true));
                share(hand);
            },
        )
    },
];
