use super::pack::{Packing, Room, pack};
use super::*;
use proptest::prelude::*;
use zerocopy::FromZeros;

/// Attributes that the kernel wrote after an inode's fields: `user.a`, `user.empty`, `user.bbb`, in
/// the order in which they were set.
fn kernel_inode_space() -> [u8; 96] {
    let mut space = [0; 96];
    space[..68].copy_from_slice(&[
        0, 0, 2, 0xea, 1, 1, 0x54, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, b'a', 0, 0, 0, 5, 1, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, b'e', b'm', b'p', b't', b'y', 0, 0, 0, 3, 1, 0x4c,
        0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, b'b', b'b', b'b', 0,
    ]);
    space[80..96].copy_from_slice(b"world12\0hello\0\0\0");
    space
}

fn geometry(features: &[&str]) -> Geometry {
    let mut raw = crate::superblock::RawSuperblock::new_zeroed();
    raw.s_magic.set(crate::superblock::SUPERBLOCK_MAGIC);
    raw.s_rev_level.set(1);
    raw.s_blocks_count_lo.set(1024);
    raw.s_first_data_block.set(1);
    raw.s_blocks_per_group.set(8192);
    raw.s_clusters_per_group.set(8192);
    raw.s_inodes_per_group.set(128);
    raw.s_inodes_count.set(128);
    raw.s_inode_size.set(256);
    raw.s_first_ino.set(11);
    if features.contains(&"ea_inode") {
        raw.s_feature_incompat.set(crate::IncompatFeatures::EA_INODE.bits());
    }
    if features.contains(&"metadata_csum") {
        raw.s_feature_ro_compat.set(crate::RoCompatFeatures::METADATA_CSUM.bits());
    }
    Geometry::new(&raw).unwrap()
}

const INODE: InodeNo = InodeNo(12);
const BLOCK: BlockNo = BlockNo(1172);

fn refused(space: &[u8]) -> Flaw {
    match decode_inode(space, INODE, &geometry(&[])) {
        Err(FormatError::Corrupt { location: Location::InodeXattr(INODE), flaw }) => flaw,
        other => panic!("{other:?}"),
    }
}

fn user(suffix: &str, value: &[u8]) -> Xattr {
    Xattr::new(
        XattrName { index: NameIndex::USER, suffix: suffix.as_bytes().to_vec() },
        value.to_vec(),
    )
}

fn sized(suffix: &str, len: usize) -> Xattr {
    user(suffix, &alloc::vec![7; len])
}

#[test]
fn names_split_at_the_prefixes_of_the_format() {
    type Split<'a> = Option<(u8, &'a [u8])>;
    let cases: [(&[u8], Split<'_>); 10] = [
        (b"user.a", Some((1, b"a"))),
        (b"system.posix_acl_access", Some((2, b""))),
        (b"system.posix_acl_default", Some((3, b""))),
        (b"trusted.overlay.opaque", Some((4, b"overlay.opaque"))),
        (b"security.capability", Some((6, b"capability"))),
        (b"system.data", Some((7, b"data"))),
        (b"system.richacl", Some((8, b""))),
        (b"user.", None),
        (b"btrfs.x", None),
        (b"user.\xff\xfe", Some((1, b"\xff\xfe"))),
    ];
    for (full, expected) in cases {
        let name = XattrName::parse(full);
        assert_eq!(name.as_ref().map(|name| (name.index.0, &name.suffix[..])), expected);
        if let Some(name) = name {
            assert_eq!(name.full().as_deref(), Some(full));
        }
    }
    let long = [&b"user."[..], &[b'x'; 256]].concat();
    assert_eq!(XattrName::parse(&long), None);
    assert!(XattrName::parse(&long[..260]).is_some());
    let context = XattrName { index: NameIndex::ENCRYPTION, suffix: b"c".to_vec() };
    assert_eq!(context.full(), None);
}

#[test]
fn the_space_that_a_kernel_wrote_reads_and_writes_back() {
    let space = kernel_inode_space();
    let found = decode_inode(&space, INODE, &geometry(&[])).unwrap();
    let expected = [user("a", b"hello"), user("empty", b""), user("bbb", b"world12")];
    let owned: Vec<_> = found.iter().map(XattrRef::to_owned).collect();
    assert_eq!(owned, expected);
    assert!(found.iter().all(XattrRef::hash_matches));
    assert!(!is_sorted(&found));
    let mut written = [0xff; 96];
    encode_inode(&owned, &mut written).unwrap();
    assert_eq!(written, space);
}

#[test]
fn space_without_the_magic_number_holds_none() {
    let mut space = kernel_inode_space();
    space[0] = 1;
    assert_eq!(decode_inode(&space, INODE, &geometry(&[])), Ok(Vec::new()));
    assert_eq!(decode_inode(&space[..3], INODE, &geometry(&[])), Ok(Vec::new()));
}

#[test]
fn a_block_has_the_hashes_that_the_kernel_gave_it() {
    // h_hash and e_hash as found in a block that the kernel wrote.
    let entries: Vec<_> = (b'1'..=b'8')
        .map(|digit| user(&alloc::format!("n{}", char::from(digit)), &[digit; 30]))
        .collect();
    let mut block = [0; 1024];
    encode_block(&entries, 1, &mut block).unwrap();
    let header = RawXattrHeader::from_block(&block, BLOCK).unwrap();
    assert_eq!(header.h_hash.get(), 0x0808_0008);
    assert_eq!(entries[0].entry_hash(), 0x3131_0df1);
    assert_eq!(&block[0x20..0x34], b"\x02\x01\xe0\x03\0\0\0\0\x1e\0\0\0\xf1\x0d11n1\0\0");
    assert_eq!(&block[0x3e0..0x3fe], [b'1'; 30]);
    let found = decode_block(&block, BLOCK, &geometry(&[])).unwrap();
    assert!(is_sorted(&found) && found.iter().all(XattrRef::hash_matches));
}

#[test]
fn blocks_are_sorted_by_index_then_length_then_name() {
    let trusted = Xattr::new(XattrName::parse(b"trusted.a").unwrap(), b"1".to_vec());
    let entries = [trusted, user("bb", b"2"), user("ba", b"3"), user("z", b"4")];
    let mut block = [0; 1024];
    encode_block(&entries, 1, &mut block).unwrap();
    let found = decode_block(&block, BLOCK, &geometry(&[])).unwrap();
    let values: Vec<_> = found.iter().map(|xattr| xattr.value).collect();
    assert_eq!(values, [b"4", b"3", b"2", b"1"].map(|value| ValueRef::Stored(value)));
}

#[test]
fn a_block_with_an_entry_of_hash_zero_has_hash_zero() {
    assert_eq!(block_hash([5, 0, 7]), 0);
    assert_eq!(block_hash([5, 7]), 5 << 16 ^ 7);
}

#[test]
fn a_hash_covers_the_bytes_after_a_value_as_they_are() {
    let entry = XattrRef {
        name: XattrNameRef { index: NameIndex::USER, suffix: b"x" },
        value: ValueRef::Stored(b"val"),
        hash: entry_hash(b"x", b"val!"),
        hashed: b"val!",
    };
    assert!(entry.hash_matches());
    assert!(!XattrRef { hashed: b"val\0", ..entry }.hash_matches());
}

#[test]
fn a_hash_over_signed_characters_is_taken_too() {
    let unsigned = XattrRef {
        name: XattrNameRef { index: NameIndex::USER, suffix: b"\xc3\xa4x" },
        value: ValueRef::Stored(b"v"),
        hash: entry_hash(b"\xc3\xa4x", b"v"),
        hashed: b"v",
    };
    let signed = XattrRef { hash: mix_value(signed_name_hash(b"\xc3\xa4x"), b"v"), ..unsigned };
    assert_ne!(signed.hash, unsigned.hash);
    assert!(signed.hash_matches() && unsigned.hash_matches());
    assert!(!XattrRef { hash: unsigned.hash ^ 1, ..unsigned }.hash_matches());
    // A value with an inode of its own.
    let name = b"\xc3\xa4x";
    for hash in [ea_entry_hash(name, 7), signed_name_hash(name).rotate_left(16) ^ 7] {
        let entry = XattrRef { hash, ..unsigned };
        assert!(entry.has_hash_of(7) && !entry.has_hash_of(6));
    }
}

#[test]
fn the_hash_of_a_large_value_is_the_one_that_the_kernel_stored() {
    // user.big, 6000 times `y`, on a volume whose seed makes this value's hash 0x357b1446.
    assert_eq!(ea_entry_hash(b"big", 0x357b_1446), 2_956_727_367);
    assert_eq!(ea_inode_refcount(1, 2), 0x1_0000_0002);
    assert_eq!(ea_inode_refcount_fields(0x1_0000_0002), (1, 2));
}

#[test]
fn a_value_with_an_inode_of_its_own_needs_the_feature() {
    let ea = EaValue { inode: InodeNo(15), size: 6000, hash: 0x357b_1446 };
    let xattr = Xattr { name: XattrName::parse(b"user.big").unwrap(), value: Value::EaInode(ea) };
    let mut space = [0; 96];
    encode_inode([&xattr], &mut space).unwrap();
    let with_feature = geometry(&["ea_inode"]);
    let found = decode_inode(&space, INODE, &with_feature).unwrap();
    assert_eq!(found[0].hash, 2_956_727_367);
    assert_eq!(found[0].to_owned(), xattr);
    assert_eq!(refused(&space), Flaw::bad_value("e_value_inum", 15_u32));
}

#[test]
fn a_value_within_the_entries_is_refused() {
    let mut space = kernel_inode_space();
    space[4 + 2] = 64;
    assert_eq!(refused(&space), Flaw::below_limit("e_value_offs", 64_u32, 68_u32));
}

#[test]
fn a_value_past_the_end_is_refused() {
    let mut space = kernel_inode_space();
    space[4 + 8] = 9;
    assert_eq!(refused(&space), Flaw::Rule("attribute value extends past the end"));
    space[4 + 11] = 0xff;
    assert!(matches!(refused(&space), Flaw::AboveLimit { field: "e_value_size", .. }));
}

#[test]
fn values_that_overlap_are_refused() {
    let mut space = kernel_inode_space();
    space[4 + 2] = 80;
    assert_eq!(refused(&space), Flaw::Rule("attribute values overlap"));
}

#[test]
fn a_list_without_an_end_is_refused() {
    let space = kernel_inode_space();
    assert_eq!(refused(&space[..68]), Flaw::Rule("attribute list not terminated"));
    assert_eq!(refused(&space[..58]), Flaw::Rule("attribute entry extends past the end"));
    assert_eq!(refused(&space[..64 + 2]), Flaw::Rule("attribute name extends past the end"));
}

#[test]
fn a_block_is_verified_by_magic_length_and_checksum() {
    let geometry = geometry(&["metadata_csum"]);
    let mut block = [0; 1024];
    encode_block([&user("a", b"1")], 1, &mut block).unwrap();
    seal_block(&mut block, BLOCK, &geometry);
    assert_eq!(verify_block(&block, BLOCK, &geometry), Ok(()));
    let is_checksum = |error| {
        matches!(
            error,
            Err(FormatError::Corrupt {
                flaw: Flaw::Checksum { .. },
                location: Location::XattrBlock(_)
            })
        )
    };
    // Another block number, then another byte.
    assert!(is_checksum(verify_block(&block, BlockNo(1173), &geometry)));
    block[1023] ^= 1;
    assert!(is_checksum(verify_block(&block, BLOCK, &geometry)));
    block[8] = 2;
    let flaw = Flaw::bad_value("h_blocks", 2_u32);
    assert_eq!(verify_block(&block, BLOCK, &geometry), Err(flaw.at(Location::XattrBlock(BLOCK))));
    block[0] = 1;
    let flaw = Flaw::magic(0xea02_0001_u32, XATTR_MAGIC);
    assert_eq!(verify_block(&block, BLOCK, &geometry), Err(flaw.at(Location::XattrBlock(BLOCK))));
}

#[test]
fn a_set_replaces_and_removes_by_name() {
    let space = kernel_inode_space();
    let mut set = XattrSet::of(decode_inode(&space, INODE, &geometry(&[])).unwrap());
    let old = set.set(user("a", b"changed"));
    assert_eq!(old, Some(user("a", b"hello")));
    assert_eq!(set.set(user("new", b"")), None);
    assert_eq!(set.remove(&user("empty", b"").name), Some(user("empty", b"")));
    assert_eq!(set.remove(&user("empty", b"").name), None);
    assert_eq!(set.entries, [user("a", b"changed"), user("bbb", b"world12"), user("new", b"")]);
    assert_eq!(set.get(&user("bbb", b"").name), Some(&user("bbb", b"world12")));
}

#[test]
fn too_many_attributes_leave_the_space_as_it_was() {
    let mut space = kernel_inode_space();
    let error = encode_inode([&sized("large", 80)], &mut space);
    assert_eq!(error, Err(NoRoom { needed: 16 + 8 + 80, room: 88 }));
    assert_eq!(space, kernel_inode_space());
}

const ROOM: Room = Room { inode_space: 96, block_size: 1024, has_ea_inodes: false };

#[test]
fn what_fits_into_the_inode_needs_no_block() {
    let packing = pack(&[sized("a", 24), sized("b", 24)], ROOM); // 2 × 44 bytes: all there is
    assert_eq!(packing, Packing { in_inode: [0, 1].into(), ..Packing::default() });
}

#[test]
fn inline_data_and_acls_come_into_the_inode_first() {
    let acl = Xattr::new(XattrName::parse(b"system.posix_acl_access").unwrap(), [0; 28].into());
    let data = Xattr::new(XattrName::inline_data(), [0; 20].into());
    let packing = pack(&[sized("a", 24), acl, data], ROOM);
    assert_eq!((packing.in_inode, packing.in_block), ([1, 2].into(), [0].into()));
}

#[test]
fn the_inode_is_filled_as_well_as_the_rest_demands() {
    // 988 bytes fit into the block: only 44 + 44 in the inode leave that few.
    let entries = [sized("a", 40), sized("b", 24), sized("c", 24), sized("d", 988 - 60 - 20)];
    let packing = pack(&entries, ROOM);
    assert_eq!((packing.in_inode, packing.in_block), ([1, 2].into(), [0, 3].into()));
    assert_eq!(packing.does_not_fit, []);
}

#[test]
fn a_value_too_large_moves_to_an_inode_or_is_named() {
    let entries = [user("small", b"x"), sized("large", 5000)];
    let packing = pack(&entries, ROOM);
    assert_eq!((packing.in_inode, packing.does_not_fit), ([0].into(), [1].into()));
    let packing = pack(&entries, Room { has_ea_inodes: true, ..ROOM });
    assert_eq!((packing.in_inode, packing.to_ea_inode), ([0, 1].into(), [1].into()));
    assert_eq!(packing.does_not_fit, []);
}

#[test]
fn inline_data_that_does_not_fit_into_the_inode_fits_nowhere() {
    let data = Xattr::new(XattrName::inline_data(), [0; 80].into());
    let packing = pack(&[data], Room { has_ea_inodes: true, ..ROOM });
    assert_eq!(packing, Packing { does_not_fit: [0].into(), ..Packing::default() });
}

fn any_xattrs() -> impl Strategy<Value = Vec<Xattr>> {
    let value = prop::collection::vec(any::<u8>(), 0..120);
    let suffix = prop::collection::vec(any::<u8>(), 1..30);
    prop::collection::btree_map((prop::sample::select(&[1_u8, 4, 6][..]), suffix), value, 0..30)
        .prop_map(|map| {
            map.into_iter()
                .map(|((index, suffix), value)| {
                    Xattr::new(XattrName { index: NameIndex(index), suffix }, value)
                })
                .collect()
        })
}

proptest! {
    #[test]
    fn what_is_packed_fits_and_reads_back(entries in any_xattrs(), space in 0_usize..50) {
        let room = Room { inode_space: space * 4, ..ROOM };
        let packing = pack(&entries, room);
        let at = |list: &[usize]| list.iter().map(|&at| &entries[at]).collect::<Vec<_>>();
        let mut inode = alloc::vec![0; room.inode_space];
        let mut block = alloc::vec![0; room.block_size];
        encode_inode(at(&packing.in_inode), &mut inode).unwrap();
        encode_block(at(&packing.in_block), 1, &mut block).unwrap();
        let geometry = geometry(&[]);
        let in_block = decode_block(&block, BLOCK, &geometry).unwrap();
        prop_assert!(is_sorted(&in_block) && in_block.iter().all(XattrRef::hash_matches));
        let mut found: Vec<_> = decode_inode(&inode, INODE, &geometry).unwrap();
        found.extend(in_block);
        let mut found: Vec<_> = found.iter().map(XattrRef::to_owned).collect();
        found.extend(at(&packing.does_not_fit).into_iter().cloned());
        found.sort_by(|a, b| a.name.cmp(&b.name));
        let mut expected = entries.clone();
        expected.sort_by(|a, b| a.name.cmp(&b.name));
        prop_assert_eq!(found, expected);
        // Nothing is left out unnecessarily.
        let total: usize = entries.iter().map(Xattr::stored_len).sum();
        prop_assert!(packing.does_not_fit.is_empty() || total > room_in_inode(room.inode_space));
    }

    #[test]
    fn any_bytes_are_refused_or_hold_attributes_that_can_be_written_again(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        small in any::<bool>(),
    ) {
        // Small numbers reach further into the structure.
        let mut bytes: Vec<u8> = bytes.into_iter().map(|byte| if small { byte % 24 } else { byte }).collect();
        if let Some(magic) = bytes.first_chunk_mut() {
            *magic = XATTR_MAGIC.to_le_bytes();
        }
        let geometry = geometry(&["ea_inode"]);
        let _ = verify_block(&bytes, BLOCK, &geometry);
        let _ = decode_block(&bytes, BLOCK, &geometry);
        if let Ok(found) = decode_inode(&bytes, INODE, &geometry) {
            let owned: Vec<_> = found.iter().map(XattrRef::to_owned).collect();
            let mut space = alloc::vec![0; bytes.len()];
            encode_inode(&owned, &mut space).unwrap();
            let again: Vec<_> =
                decode_inode(&space, INODE, &geometry).unwrap().iter().map(XattrRef::to_owned).collect();
            prop_assert_eq!(again, owned);
        }
    }

    #[test]
    fn a_changed_block_is_refused_or_read(
        entries in any_xattrs(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut block = alloc::vec![0; 4096];
        encode_block(&entries, 1, &mut block).unwrap();
        for (at, byte) in changes {
            let at = at.index(600);
            block[at] = byte;
        }
        let _ = decode_block(&block, BLOCK, &geometry(&["ea_inode"]));
    }
}
