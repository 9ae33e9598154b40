//! A repair loses no more than what is broken: extents, modes, records, flags, copies.

use super::damages::{EXTENT, Requested, split};
use super::hand::{
    BIGALLOC, Base, EA_INODE, EXT2, EXT4, FIRST_ATTRIBUTE, FRAGMENTS, FULL, FULL_ORPHAN_FILE,
    FULL_QUOTA, Hand, INLINE, INLINE_QUOTA, PLAIN, device, flag, fsck, put16, put32, scan,
};
use extant_check::{AutoPolicy, Code};
use extant_ondisk::{BlockNo, InodeNo};
use extant_testkit::{TempImage, copied, e2fsck_fn, skip, tool};

/// A damage, and what a repair of it keeps.
fn keeps(base: &Base, spoil: &dyn Fn(&Hand), is_kept: &dyn Fn(&Hand, &Hand)) {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let healthy = base.make();
    let image = copied(&healthy.path()).expect("a copy");
    spoil(&Hand::on(&image.path()));
    repair(&image);
    is_kept(&Hand::on(&healthy.path()), &Hand::on(&image.path()));
}

/// One run is enough.
fn repair(image: &TempImage) {
    let done =
        fsck(device(&image.path()), &AutoPolicy::Yes, Requested::Nothing).expect("it is repaired");
    e2fsck_fn(&image.path()).unwrap_or_else(|said| panic!("{said}\n{done:?}"));
    let again = scan(&image.path(), Requested::Nothing).expect("it can be looked at");
    assert_eq!(again, [], "{done:?}");
}

/// The names of a directory of 300.
fn has_all_names(before: &Hand, after: &Hand) {
    for number in 0..300 {
        let path = format!("dir/name-{number:03}");
        assert_eq!(after.find(&path), before.find(&path), "{path}");
    }
}

/// The only block of a tree of extents.
fn leaf(hand: &Hand) -> u64 {
    let inode = hand.decoded(hand.find("holes"));
    u64::from(u32::from_le_bytes(inode.i_block[16..20].try_into().expect("four bytes")))
}

#[test]
fn an_extent_at_a_wrong_place_costs_itself_at_most() {
    for block in [0, 255, 0xff00_0000] {
        keeps(
            &FRAGMENTS,
            &|hand| hand.block(leaf(hand), |bytes| put32(bytes, 12 + 12 * 3, block)),
            &|before, after| {
                let blocks = |hand: &Hand| hand.blocks(hand.find("holes"));
                let (before, after) = (blocks(before), blocks(after));
                assert!(after.len() >= before.len() - 1, "{before:?}, {after:?}");
            },
        );
    }
    keeps(&EXT4, &|hand| hand.file("long", |record| split(record, 5)), &|before, after| {
        assert_eq!(after.blocks(after.find("long")), before.blocks(before.find("long")));
    });
}

#[test]
fn an_extent_that_is_too_long_is_cut() {
    keeps(
        &FRAGMENTS,
        &|hand| hand.block(leaf(hand), |bytes| put16(bytes, 12 + 12 * 3 + 4, 255)),
        &|before, after| {
            let blocks = |hand: &Hand| hand.blocks(hand.find("holes"));
            assert_eq!(blocks(after), blocks(before));
        },
    );
}

#[test]
fn a_directory_takes_no_blocks_of_others() {
    for base in [EXT4, PLAIN] {
        for len in [11_009, 40, 0x7fff] {
            keeps(
                &base,
                &|hand| hand.file("dir", |record| put16(record, EXTENT + 4, len)),
                &|before, after| {
                    has_all_names(before, after);
                    for path in ["file", "other", "long"] {
                        let blocks = |hand: &Hand| hand.blocks(hand.find(path));
                        assert_eq!(blocks(after), blocks(before), "{path}");
                    }
                },
            );
        }
    }
}

#[test]
fn a_directory_of_a_wrong_size_keeps_its_blocks() {
    for size in [0, 1024, 1 << 20] {
        keeps(&EXT4, &|hand| hand.file("dir", |record| put32(record, 4, size)), &has_all_names);
    }
}

#[test]
fn a_directory_of_a_wrong_mode_is_one() {
    for mode in [0o140_755, 0o010_755, 0o030_755] {
        for base in [EXT4, EXT2, INLINE] {
            keeps(
                &base,
                &|hand| hand.file("sub", |record| put16(record, 0, mode)),
                &|before, after| {
                    let inode = after.decoded(after.find("sub"));
                    assert_eq!(inode.mode, before.decoded(before.find("sub")).mode, "{mode:o}");
                },
            );
        }
        keeps(&EXT2, &|hand| hand.file("dir", |record| put16(record, 0, mode)), &has_all_names);
    }
}

/// e2fsck clears such a root, and all below it goes to lost+found.
#[test]
fn a_root_of_a_wrong_mode_keeps_its_names() {
    for mode in [0, 0o100_644, 0o140_755, 0o120_755, 0o030_755] {
        for base in [EXT4, EXT2, PLAIN] {
            keeps(
                &base,
                &|hand| hand.inode(InodeNo::ROOT, |record| put16(record, 0, mode)),
                &|before, after| {
                    has_all_names(before, after);
                    assert_eq!(
                        after.decoded(InodeNo::ROOT).mode & 0o7777,
                        if mode == 0 { 0o755 } else { mode & 0o7777 }
                    );
                },
            );
        }
    }
}

#[test]
fn a_copy_of_an_inode_gives_way() {
    for path in ["file", "dir", "sub", ""] {
        keeps(
            &EXT4,
            &|hand| {
                let mut copy = Vec::new();
                hand.file(path, |record| copy = record.to_vec());
                hand.unsealed(hand.find("tiny"), |record| record.copy_from_slice(&copy));
            },
            &|before, after| {
                has_all_names(before, after);
                for path in [path, "other", "sub/inner/deep"] {
                    let blocks = |hand: &Hand| hand.blocks(hand.find(path));
                    assert_eq!(blocks(after), blocks(before), "{path}");
                }
            },
        );
    }
}

#[test]
fn a_directory_without_a_block_gets_one() {
    for (base, size) in [(EXT4, 0), (EXT4, 5000), (EXT2, 0)] {
        keeps(
            &base,
            &|hand| {
                hand.file("sub/inner", |record| {
                    let has_extents = record[0x22] & 8 != 0;
                    put32(record, 4, size);
                    put32(record, 0x1c, 0);
                    if has_extents {
                        put16(record, 0x2a, 0);
                    } else {
                        put32(record, 0x28, 0);
                    }
                });
            },
            &|before, after| {
                assert_eq!(after.find("sub/inner"), before.find("sub/inner"));
                assert_eq!(after.blocks(after.find("sub/inner")).len(), 1);
            },
        );
    }
}

#[test]
fn a_flag_that_does_not_fit_the_map_goes_alone() {
    for path in ["file", "long", "dir"] {
        keeps(&EXT2, &|hand| hand.file(path, |record| flag(record, 0x8_0000)), &|before, after| {
            let blocks = |hand: &Hand| hand.blocks(hand.find(path));
            assert_eq!(blocks(after), blocks(before), "{path}");
        });
    }
    keeps(&EXT4, &|hand| hand.file("fast", |record| flag(record, 0x8_0000)), &|before, after| {
        let target = |hand: &Hand| hand.decoded(hand.find("fast")).i_block;
        assert_eq!(target(after), target(before));
    });
}

/// A full volume: of two files that share a block one goes, and the other keeps what it has.
#[test]
fn without_room_for_a_copy_one_file_goes() {
    keeps(
        &FULL,
        &|hand| {
            let first = hand.blocks(hand.find("long"))[0] as u32;
            hand.file("tiny", |record| {
                put32(record, EXTENT + 8, first);
                put16(record, EXTENT + 4, 3);
            });
        },
        &|before, after| {
            assert_eq!(after.blocks(after.find("long")), before.blocks(before.find("long")));
        },
    );
}

/// Two records of one block say lengths that lead nowhere: the names between them stay.

#[test]
fn an_inline_file_of_an_impossible_size_has_the_bytes_that_it_has() {
    keeps(
        &INLINE,
        &|hand| hand.file("tiny", |record| put32(record, 0x6c, 77)),
        &|before, after| {
            let size = |hand: &Hand| hand.decoded(hand.find("tiny")).size;
            assert_eq!(size(after), size(before));
        },
    );
}

/// The record of a file with inline data lies in the place of the quota file's, as after two
/// records changed places.
#[test]
fn a_quota_inode_that_holds_its_content_is_made_again() {
    let copied = |hand: &Hand| {
        let small = hand.volume.read_inode(hand.find("small")).expect("reads");
        hand.inode(InodeNo::USER_QUOTA, |record| {
            record.copy_from_slice(&small);
            put16(record, 0, 0o40755);
        });
    };
    keeps(&INLINE_QUOTA, &copied, &has_all_names);
}

/// Inodes without a name share a block, and there is no room for a copy: one that can be made again
/// goes, and no run is left with an error.
#[test]
fn without_room_for_a_copy_what_can_be_made_again_goes() {
    // More blocks than the other had, which are free then. Not the first block: that of a journal
    // is its superblock.
    let share = |hand: &Hand, one: InodeNo, other: InodeNo| {
        let (block, count) = (hand.blocks(one)[1] as u32, hand.blocks(other).len() as u16);
        hand.inode(other, |record| {
            put16(record, EXTENT + 4, count + 3);
            put32(record, EXTENT + 8, block);
        });
    };
    let has_all_files = |before: &Hand, after: &Hand| {
        has_all_names(before, after);
        for path in ["file", "other", "long", "tiny", "small"] {
            assert_eq!(after.find(path), before.find(path), "{path}");
            assert_eq!(after.blocks(after.find(path)), before.blocks(before.find(path)), "{path}");
        }
    };
    let users = InodeNo::USER_QUOTA;
    // Those of users precede those of groups.
    let both = |hand: &Hand| {
        let count = hand.blocks(users).len() as u16;
        hand.inode(users, |record| put16(record, EXTENT + 4, 2 * count));
    };
    keeps(&FULL_QUOTA, &both, &has_all_files);
    keeps(&FULL_QUOTA, &|hand| share(hand, InodeNo::JOURNAL, users), &has_all_files);
    let orphans = |hand: &Hand| {
        let file = hand.volume.raw.s_orphan_file_inum.get();
        share(hand, InodeNo::JOURNAL, InodeNo(file));
    };
    keeps(&FULL_ORPHAN_FILE, &orphans, &has_all_files);
}

/// The list of bad blocks stays, and the root cannot go: the journal makes room for a copy.
#[test]
fn without_room_for_a_copy_of_the_root_the_journal_goes() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = FULL.make();
    let hand = Hand::on(&image.path());
    let bad = hand.blocks(InodeNo::BAD_BLOCKS)[0] as u32;
    hand.inode(InodeNo::ROOT, |record| {
        put16(record, EXTENT + 4, 3);
        put32(record, EXTENT + 8, bad);
    });
    drop(hand);
    fsck(device(&image.path()), &AutoPolicy::Yes, Requested::Nothing).expect("it is repaired");
    e2fsck_fn(&image.path()).expect("nothing to find");
    // All files are without a name, and there is no room for all that.
    let again = scan(&image.path(), Requested::Nothing).expect("it can be looked at");
    assert_eq!(again, [Code::LostFoundMissing]);
}

/// The hash of the entry says that the inode holds its value.
#[test]
fn a_value_of_another_size_than_its_inode_is_kept() {
    let attributes = |hand: &Hand| {
        let mut found = Vec::new();
        hand.file("valued", |record| found = record[FIRST_ATTRIBUTE..].to_vec());
        found
    };
    for size in [0, 17, 5000] {
        keeps(
            &EA_INODE,
            &|hand| hand.file("valued", |record| put32(record, FIRST_ATTRIBUTE + 8, size)),
            &|before, after| assert_eq!(attributes(before), attributes(after), "{size}"),
        );
    }
}

/// An empty attribute that names the value inode of another attribute: only that one is removed.
#[test]
fn an_attribute_that_names_the_value_of_another_goes_alone() {
    let is_there = |hand: &Hand, name: &[u8]| {
        let mut found = false;
        hand.file("valued", |record| {
            found = record[FIRST_ATTRIBUTE..].windows(name.len()).any(|it| it == name);
        });
        found
    };
    keeps(
        &EA_INODE,
        &|hand| {
            hand.file("valued", |record| {
                // After "v" and its padding: an entry of the name "empty" and the value's inode.
                let first: Vec<u8> = record[FIRST_ATTRIBUTE..FIRST_ATTRIBUTE + 20].to_vec();
                let second = FIRST_ATTRIBUTE + 20;
                record[second..second + 16].copy_from_slice(&first[..16]);
                record[second] = 5;
                record[second + 16..second + 21].copy_from_slice(b"empty");
                put32(record, second + 8, 0);
                put32(record, second + 12, 0);
            });
        },
        &|_, after| {
            assert!(!is_there(after, b"empty"));
            let mut size = 0;
            after.file("valued", |record| size = u16::from_le_bytes([record[172], record[173]]));
            assert_eq!(size, 3000);
        },
    );
    // Without the attribute nothing refers to the value's inode: it becomes a file in lost+found.
    keeps(
        &EA_INODE,
        &|hand| {
            hand.file("valued", |record| {
                put32(record, FIRST_ATTRIBUTE + 8, 0);
                put32(record, FIRST_ATTRIBUTE + 12, 0);
            });
        },
        &|before, after| {
            let mut value = InodeNo(0);
            before.file("valued", |record| {
                let at = FIRST_ATTRIBUTE + 4;
                value.0 = u32::from_le_bytes(record[at..at + 4].try_into().expect("four bytes"));
            });
            assert_eq!(after.find(&format!("lost+found/#{}", value.0)), value);
        },
    );
}

/// e2fsck clears an inode with twelve illegal blocks.
#[test]
fn a_file_keeps_its_blocks_next_to_an_invalid_indirect_block() {
    let indirect = |hand: &Hand| {
        let i_block = hand.decoded(hand.find("long")).i_block;
        u64::from(u32::from_le_bytes(i_block[48..52].try_into().expect("four bytes")))
    };
    keeps(&EXT2, &|hand| hand.block(indirect(hand), |bytes| bytes.fill(0xee)), &|before, after| {
        let direct = &before.blocks(before.find("long"))[..12];
        assert_eq!(after.blocks(after.find("long")), direct);
    });
    // Some of its pointers are wrong, and more are not.
    keeps(
        &EXT2,
        &|hand| hand.block(indirect(hand), |bytes| bytes[4 * 4..4 * 24].fill(0xee)),
        &|before, after| {
            let mut blocks = before.blocks(before.find("long"));
            blocks.drain(12 + 4..12 + 24);
            assert_eq!(after.blocks(after.find("long")), blocks);
        },
    );
}

/// A block of a file as an indirect block of the list of bad blocks, with a pointer that has to go:
/// the list has no right to it.
#[test]
fn the_list_of_bad_blocks_gives_up_a_block_of_a_file() {
    for base in [EXT2, EXT4] {
        let spoil = |hand: &Hand| {
            let table = hand.volume.desc(extant_ondisk::GroupNo(0)).inode_table.0 as u32;
            let block = hand.blocks(hand.find("long"))[2];
            hand.block(block, |bytes| put32(bytes, 0, table));
            hand.inode(InodeNo::BAD_BLOCKS, |record| put32(record, 0x28 + 4 * 13, block as u32));
        };
        keeps(&base, &spoil, &has_all_names);
    }
}

/// A list that is cleared as one that no program wrote takes no inodes along.
#[test]
fn a_list_of_bad_blocks_that_cannot_be_costs_no_inodes() {
    let damages: [fn(&mut [u8]); 4] = [
        |record| put16(record, 0x02, 7), // i_uid
        |record| put16(record, 0x18, 7), // i_gid
        |record| put16(record, 0x1a, 1), // i_links_count
        |record| put32(record, 0x68, 9), // i_file_acl_lo
    ];
    for damage in damages {
        let spoil = |hand: &Hand| {
            let file = hand.volume.inode_offset(hand.find("dir/name-007")).expect("it is there");
            hand.inode(InodeNo::BAD_BLOCKS, |record| {
                put32(record, 0x28, (file / 1024) as u32);
                damage(record);
            });
        };
        keeps(&EXT4, &spoil, &has_all_names);
    }
}

#[test]
fn a_file_with_nothing_but_bad_blocks_keeps_its_name() {
    let number = |hand: &Hand| hand.find("dir/name-007");
    let first_table = |hand: &Hand| hand.volume.desc(extant_ondisk::GroupNo(0)).inode_table.0;
    for base in [EXT2, PLAIN] {
        // All pointers lead off the volume, or one leads to an inode table.
        for (at, is_illegal) in [(0, true), (12, false), (13, false), (14, false)] {
            keeps(
                &base,
                &|hand| {
                    let table = first_table(hand) as u32;
                    hand.inode(number(hand), |record| {
                        put32(record, 0x20, 0);
                        record[0x28..0x64].fill(if is_illegal { 0xee } else { 0 });
                        if !is_illegal {
                            put32(record, 0x28 + 4 * at, table);
                        }
                    });
                },
                &|before, after| assert_eq!(number(after), number(before), "{at}"),
            );
        }
    }
}

/// Random bytes after the head of the journal's superblock set unknown features. Such a superblock
/// fits neither its location nor its checksum: it is corrupt, not newer.
#[test]
fn a_journal_superblock_of_random_bytes_is_made_again() {
    /// An incompatible feature that is not given away yet.
    const NEWER: u32 = 0x4000_0000;
    let random = |hand: &Hand| {
        let first = hand.blocks(InodeNo::JOURNAL)[0];
        let bytes = extant_testkit::tree::Random::new(7).bytes(1024);
        hand.block(first, |block| {
            block[8..1024].copy_from_slice(&bytes[8..]);
            block[0x28..0x2c].copy_from_slice(&NEWER.to_be_bytes());
        });
    };
    for base in [EXT4, PLAIN] {
        keeps(&base, &random, &|before, after| {
            has_all_names(before, after);
            assert!(after.blocks(InodeNo::JOURNAL).len() >= 1024);
        });
    }
    let image = PLAIN.make();
    let hand = Hand::on(&image.path());
    let first = hand.blocks(InodeNo::JOURNAL)[0];
    hand.block(first, |block| block[0x28..0x2c].copy_from_slice(&NEWER.to_be_bytes()));
    drop(hand);
    let refused =
        fsck(device(&image.path()), &AutoPolicy::Yes, Requested::Nothing).expect_err("refused");
    assert!(refused.contains("not supported"), "{refused}");
}

#[test]
fn a_dot_that_is_too_long_hides_no_names() {
    for base in [EXT4, PLAIN] {
        // `.` ends inside of the record of a name, or where one begins.
        for len in [28, 24, 1012] {
            keeps(
                &base,
                &|hand| hand.entry("sub", ".", |entry| put16(entry, 4, len)),
                &|before, after| {
                    assert_eq!(after.find("sub/inner"), before.find("sub/inner"), "{len}");
                    assert_eq!(after.find("sub/.."), InodeNo::ROOT, "{len}");
                },
            );
        }
    }
}

/// The checksum of each record fits the place of another one: nothing of it is garbage.
#[test]
fn blocks_of_inodes_that_changed_places_are_kept() {
    let swap = |hand: &Hand| {
        let block_of = |path: &str| {
            hand.volume.inode_offset(hand.find(path)).expect("there is such an inode") / 1024
        };
        let [one, other] = ["dir/name-100", "dir/name-200"].map(block_of);
        let [first, second] =
            [one, other].map(|block| hand.volume.read(BlockNo(block)).expect("reads"));
        hand.volume.write(BlockNo(one), &second).expect("writes");
        hand.volume.write(BlockNo(other), &first).expect("writes");
    };
    keeps(&EXT4, &swap, &has_all_names);
}

/// Two clusters of a file lie in one: each keeps its bytes, in a cluster of its own.
#[test]
fn a_file_that_uses_a_cluster_twice_gets_a_copy_of_it() {
    let twice = |hand: &Hand| {
        hand.file("long", |record| {
            let mut second = record[EXTENT..EXTENT + 12].to_vec();
            put16(&mut second, 4, 4);
            put32(&mut second, 0, 8);
            record[EXTENT + 12..EXTENT + 24].copy_from_slice(&second);
            put16(record, EXTENT + 4, 4);
            put16(record, EXTENT - 10, 2);
        });
    };
    keeps(&BIGALLOC, &twice, &|before, after| {
        let (before, after) =
            (before.blocks(before.find("long")), after.blocks(after.find("long")));
        assert_eq!(after.len(), 8);
        assert!(after.contains(&before[0]), "{before:?} {after:?}");
        let unique: std::collections::BTreeSet<_> = after.iter().collect();
        assert_eq!(unique.len(), 8, "{after:?}");
    });
}

/// An entry of another directory that is met first, as in a copy of the parent: what hangs below
/// stays where `..` says that it belongs.
#[test]
fn a_directory_stays_below_the_one_that_it_names() {
    for base in [EXT2, EXT4] {
        let copy = |hand: &Hand| {
            let number = hand.find("sub/inner");
            hand.entry("", "tiny", |entry| {
                put32(entry, 0, number.0);
                entry[7] = 2; // a directory
            });
        };
        keeps(&base, &copy, &|before, after| {
            for path in ["sub", "sub/inner", "sub/inner/deep", "dir"] {
                assert_eq!(after.find(path), before.find(path), "{path}");
            }
        });
    }
}
