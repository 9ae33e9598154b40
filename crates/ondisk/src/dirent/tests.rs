use super::*;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

const BLOCK: FileBlock = FileBlock(3);

fn format(block_len: usize, has_csum: bool) -> DirFormat {
    DirFormat {
        inode: InodeNo(12),
        block_len,
        has_filetype: true,
        has_stored_hashes: false,
        checksum_seed: has_csum.then_some(0x1234_5678),
    }
}

fn packed(format: &DirFormat, names: &[&str]) -> Vec<u8> {
    let mut block = vec![0; format.block_len];
    let mut packer = format.packer(&mut block);
    for (at, name) in names.iter().enumerate() {
        let inode = InodeNo(100 + at as u32);
        assert!(packer.push(&NewEntry::new(inode, FileType::Regular, name.as_bytes())));
    }
    packer.finish();
    format.seal(&mut block);
    block
}

fn names(format: &DirFormat, block: &[u8]) -> Vec<Vec<u8>> {
    let entries = format.entries(block, BLOCK).map(|entry| entry.expect("a sound block"));
    entries.filter(|entry| entry.is_used()).map(|entry| entry.name.to_vec()).collect()
}

fn flaw_at(at: u32, flaw: Flaw) -> Option<Result<DirEntry<'static>, FormatError>> {
    Some(Err(flaw.at(Location::DirEntry(InodeNo(12), BLOCK, at))))
}

#[test]
fn a_packed_block_lists_its_names_and_passes_its_checksum() {
    for has_csum in [false, true] {
        let format = format(1024, has_csum);
        let block = packed(&format, &["a", "four", "five5"]);
        assert_eq!(names(&format, &block), [&b"a"[..], b"four", b"five5"]);
        assert_eq!(format.verify(&block, BLOCK), Ok(()));
        let last = format.entries(&block, BLOCK).last().unwrap().unwrap();
        assert_eq!((last.at, last.at + last.rec_len), (24, format.room()));
    }
}

#[test]
fn a_flipped_name_fails_the_checksum() {
    let format = format(1024, true);
    let mut block = packed(&format, &["name"]);
    let stored = u32::from_le_bytes(block[1020..].try_into().unwrap());
    block[8] ^= 1;
    let computed = Crc32c::seeded(0x1234_5678).bytes(&block[..1012]).value();
    let expected = Flaw::checksum(stored, computed).at(Location::DirBlock(InodeNo(12), BLOCK));
    assert_eq!(format.verify(&block, BLOCK), Err(expected));
}

#[test]
fn a_block_without_tail_differs_from_a_wrong_checksum() {
    let format = format(1024, true);
    let block = packed(&self::format(1024, false), &["name"]);
    let expected = Flaw::Rule("checksum tail missing").at(Location::DirBlock(InodeNo(12), BLOCK));
    assert_eq!(format.verify(&block, BLOCK), Err(expected));
}

#[test]
fn each_field_of_a_record_has_its_limit() {
    let format = format(1024, false);
    let sound = packed(&format, &["a", "bb"]);
    let cases: [(usize, u8, u32, Flaw); 6] = [
        (4, 8, 0, Flaw::below_limit("rec_len", 8_u32, 12_u32)),
        (4, 14, 0, Flaw::bad_value("rec_len", 14_u32)),
        (6, 9, 0, Flaw::below_limit("rec_len", 12_u32, 20_u32)),
        (6, 0, 0, Flaw::below_limit("name_len", 0_u32, 1_u32)),
        (17, 9, 12, Flaw::above_limit("rec_len", (9 << 8 | 0xf4) as u32, 1012_u32)),
        (16, 0xf0, 12, Flaw::Rule("no room for another entry after this one")),
    ];
    for (byte, value, at, flaw) in cases {
        let mut block = sound.clone();
        block[byte] = value;
        let found = format.entries(&block, BLOCK).find(Result::is_err);
        assert_eq!(found, flaw_at(at, flaw), "byte {byte}");
    }
}

#[test]
fn without_filetype_the_name_length_has_16_bits() {
    let format = DirFormat { has_filetype: false, ..format(1024, false) };
    let mut block = packed(&format, &["name"]);
    assert_eq!(format.entries(&block, BLOCK).next().unwrap().unwrap().file_type, FileType::Unknown);
    block[7] = 1;
    let flaw = Flaw::above_limit("name_len", 260_u32, 255_u32);
    assert_eq!(format.entries(&block, BLOCK).next(), flaw_at(0, flaw));
}

#[test]
fn record_lengths_of_64_kib_blocks_use_the_low_bits() {
    let format = format(65_536, false);
    for rec_len in [12, 65_532, 65_536] {
        assert_eq!(format.decode_rec_len(format.encode_rec_len(rec_len)), rec_len);
    }
    assert_eq!(format.encode_rec_len(65_536), 0xffff);
    assert_eq!(format.decode_rec_len(0), 65_536);
    let block = packed(&format, &["alone"]);
    assert_eq!(format.entries(&block, BLOCK).next().unwrap().unwrap().rec_len, 65_536);
}

#[test]
fn insertion_takes_the_slack_until_there_is_none() {
    let format = format(1024, true);
    let mut block = vec![0; 1024];
    format.clear(&mut block);
    let mut count = 0;
    loop {
        let name = alloc::format!("name-{count:04}");
        let new = NewEntry::new(InodeNo(20 + count), FileType::Fifo, name.as_bytes());
        let before = block.clone();
        if !format.insert(&mut block, BLOCK, &new).unwrap() {
            assert_eq!(block, before);
            break;
        }
        count += 1;
    }
    // 1,012 bytes of room, 20 per entry.
    assert_eq!(count, 50);
    assert_eq!(names(&format, &block).len(), 50);
}

#[test]
fn what_changes_lies_in_the_part_that_is_named() {
    let format = format(1024, false);
    let mut block = packed(&format, &["first", "second", "third"]);
    let new = NewEntry::new(InodeNo(20), FileType::Fifo, b"fourth");
    let slot = format.slot(&block, BLOCK, &new).unwrap().unwrap();
    let (part, before) = (format.part_of(slot, &new), block.clone());
    format.insert_in(&mut block[part.clone()], slot, &new);
    assert_eq!(names(&format, &block), [&b"first"[..], b"second", b"third", b"fourth"]);
    assert!(format.find(&block, BLOCK, b"fourth").unwrap().is_some_and(|it| it.at < part.end));

    block[part].copy_from_slice(&before[format.part_of(slot, &new)]);
    assert_eq!(block, before);
    let find = |name| {
        let entry = format.find(&before, BLOCK, name).unwrap().unwrap();
        (entry.at, entry.before, entry.rec_len)
    };
    let ((third, before_third, len), (second, before_second, _)) =
        (find(b"third"), find(b"second"));
    assert_eq!((before_third, before_second), (second, 0));
    let part = format.removal(&block, BLOCK, second, before_second).unwrap().unwrap();
    assert_eq!(part, 0..third);
    format.remove_in(&mut block[part], second);
    assert_eq!(names(&format, &block), [&b"first"[..], b"third"]);
    // By then the previous entry is another one.
    let part = format.removal(&block, BLOCK, third, before_third).unwrap().unwrap();
    assert_eq!(part, 0..third + len);
}

#[test]
fn removal_gives_the_room_to_the_record_before() {
    let format = format(1024, false);
    let mut block = packed(&format, &["first", "second", "third"]);
    let second = format.entries(&block, BLOCK).nth(1).unwrap().unwrap();
    let (at, rec_len) = (second.at, second.rec_len);
    assert_eq!(format.remove(&mut block, BLOCK, at), Ok(true));
    assert_eq!(names(&format, &block), [&b"first"[..], b"third"]);
    assert_eq!(format.entries(&block, BLOCK).next().unwrap().unwrap().rec_len, at + rec_len);
    // The first entry of a block can only be marked free.
    assert_eq!(format.remove(&mut block, BLOCK, 0), Ok(true));
    assert_eq!(names(&format, &block), [b"third"]);
    assert_eq!(format.remove(&mut block, BLOCK, 0), Ok(false));
    assert_eq!(format.remove(&mut block, BLOCK, 4), Ok(false));
}

#[test]
fn set_inode_changes_inode_and_kind_alone() {
    let format = format(1024, false);
    let mut block = packed(&format, &["first", "second"]);
    let before = block.clone();
    let changed = format.set_inode(&mut block, BLOCK, 16, InodeNo(7), FileType::Directory);
    assert_eq!(changed, Ok(true));
    let entry = format.entries(&block, BLOCK).nth(1).unwrap().unwrap();
    assert_eq!((entry.inode, entry.file_type), (Some(InodeNo(7)), FileType::Directory));
    block[16..20].copy_from_slice(&before[16..20]);
    block[23] = before[23];
    assert_eq!(block, before);
}

#[test]
fn names_empty_or_too_long_are_refused() {
    let format = format(1024, false);
    let mut block = packed(&format, &["name"]);
    let long = [b'n'; 256];
    for (name, flaw) in [
        (&long[..], Flaw::above_limit("name_len", 256_u32, 255_u32)),
        (b"", Flaw::below_limit("name_len", 0_u32, 1_u32)),
    ] {
        let new = NewEntry::new(InodeNo(13), FileType::Regular, name);
        let expected = flaw.at(Location::DirBlock(InodeNo(12), BLOCK));
        assert_eq!(format.insert(&mut block, BLOCK, &new), Err(expected));
    }
}

#[test]
fn stored_hashes_follow_the_padded_name_but_not_the_dots() {
    let format = format(1024, false).with_stored_hashes();
    let mut block = vec![0; 1024];
    let hash = DirHash { hash: 0xaabb_ccdc, minor: 0x1122_3344 };
    let mut packer = format.packer(&mut block);
    for name in [&b"."[..], b"..", b"encrypted"] {
        let new = NewEntry { inode: InodeNo(12), file_type: FileType::Regular, name, hash };
        assert!(packer.push(&new));
    }
    packer.finish();
    let entries: Vec<_> = format.entries(&block, BLOCK).map(Result::unwrap).collect();
    assert_eq!(entries[1].rec_len, 12);
    assert_eq!(entries[1].stored_hash, None);
    assert_eq!(entries[2].stored_hash, Some(hash));
    assert_eq!(format.rec_len(9), 28);
}

#[test]
fn dots_come_first() {
    let format = format(1024, false);
    let block = packed(&format, &[".", "..", "name"]);
    assert_eq!(dot_entries(&format, &block), Ok((InodeNo(100), InodeNo(101))));
    let location = Location::DirBlock(InodeNo(12), FileBlock(0));
    for (names, rule) in [
        (["..", "."], "the first record is not '.'"),
        ([".", "name"], "the second record is not '..'"),
    ] {
        let block = packed(&format, &names);
        assert_eq!(dot_entries(&format, &block), Err(Flaw::Rule(rule).at(location)));
    }
}

proptest! {
    #[test]
    fn any_bytes_end_in_records_or_an_error(
        block in proptest::collection::vec(any::<u8>(), 0..512),
        has_filetype: bool,
        has_stored_hashes: bool,
        has_csum: bool,
        at in 0_usize..600,
    ) {
        let checksum_seed = has_csum.then_some(7);
        let base = DirFormat { block_len: block.len().max(TAIL_LEN), checksum_seed, ..format(0, false) };
        let format = DirFormat { has_filetype, has_stored_hashes, ..base };
        prop_assert!(format.entries(&block, BLOCK).count() <= block.len() / 12 + 1);
        let _ = format.verify(&block, BLOCK);
        let mut edited = block.clone();
        let new = NewEntry::new(InodeNo(9), FileType::Regular, b"new name");
        let _ = format.insert(&mut edited, BLOCK, &new);
        let _ = format.remove(&mut edited, BLOCK, at);
        let _ = format.set_inode(&mut edited, BLOCK, at, InodeNo(3), FileType::Fifo);
        format.seal(&mut edited);
        let _ = dot_entries(&format, &edited);
    }

    #[test]
    fn any_history_agrees_with_a_list_of_names(
        seeds in proptest::collection::vec((any::<bool>(), 0_u32..60), 0..200),
        has_csum: bool,
    ) {
        let format = format(1024, has_csum);
        let mut block = vec![0; 1024];
        format.clear(&mut block);
        let mut model: Vec<Vec<u8>> = Vec::new();
        for (is_insert, seed) in seeds {
            let name = alloc::format!("{seed}{}", "x".repeat(seed as usize)).into_bytes();
            if is_insert && !model.contains(&name) {
                let new = NewEntry::new(InodeNo(seed + 1), FileType::Regular, &name);
                if format.insert(&mut block, BLOCK, &new).unwrap() {
                    model.push(name);
                }
            } else if let Some(known) = model.iter().position(|known| *known == name) {
                let at = format.entries(&block, BLOCK).map(Result::unwrap);
                let at = at.filter(|entry| entry.name == name && entry.is_used()).last().unwrap().at;
                prop_assert_eq!(format.remove(&mut block, BLOCK, at), Ok(true));
                model.remove(known);
            }
            let mut found = names(&format, &block);
            found.sort();
            model.sort();
            prop_assert_eq!(&found, &model);
        }
    }

    #[test]
    fn a_search_in_one_pass_finds_what_one_record_after_the_other_shows(
        seeds in proptest::collection::vec((0_u32..40, 0_usize..6), 0..40),
        removed in proptest::collection::vec(0_usize..40, 0..12),
        damage in proptest::option::of((0_usize..1024, any::<u8>())),
        has_filetype: bool,
    ) {
        let name_of = |(seed, len): (u32, usize)| {
            alloc::format!("{}{seed:02}", &"names"[..len]).into_bytes()
        };
        let format = DirFormat { has_filetype, ..format(1024, true) };
        let mut block = vec![0; 1024];
        format.clear(&mut block);
        for seed in &seeds {
            let name = name_of(*seed);
            let new = NewEntry::new(InodeNo(seed.0 + 1), FileType::Regular, &name);
            format.insert(&mut block, BLOCK, &new).unwrap();
        }
        for index in removed {
            let at = format.entries(&block, BLOCK).map(Result::unwrap);
            let at = at.filter(DirEntry::is_used).map(|entry| entry.at).nth(index);
            if let Some(at) = at {
                prop_assert_eq!(format.remove(&mut block, BLOCK, at), Ok(true));
            }
        }
        if let Some((at, byte)) = damage {
            block[at] = byte;
        }
        let Ok(entries) = format.entries(&block, BLOCK).collect::<Result<Vec<_>, _>>() else {
            // An error after the name is not reached.
            return Ok(());
        };
        for DirEntry { at, .. } in &entries {
            let searched = format.removal(&block, BLOCK, *at, *at);
            for DirEntry { before, .. } in &entries {
                prop_assert_eq!(format.removal(&block, BLOCK, *at, *before), searched.clone());
            }
        }
        for wanted in (0..6).flat_map(|len| (0..40).map(move |seed| name_of((seed, len)))) {
            let found = entries.iter().find(|entry| entry.is_used() && entry.name == wanted);
            prop_assert_eq!(format.find(&block, BLOCK, &wanted), Ok(found.copied()));
            let needed = format.rec_len_of(&wanted);
            let taken = |entry: &DirEntry<'_>| {
                if entry.is_used() { format.rec_len_of(entry.name) } else { 0 }
            };
            // The fake entry with the checksum is not a slot.
            let records = entries.iter().filter(|entry| entry.at < 1024 - TAIL_LEN);
            let slot = records.map(|entry| Slot { at: entry.at, rec_len: entry.rec_len, taken: taken(entry) })
                .find(|slot| slot.rec_len >= slot.taken + needed);
            let sought = format.find_or_slot(&block, BLOCK, &wanted);
            prop_assert_eq!(sought, Ok(found.map_or(Sought::Vacant(slot), |entry| Sought::Found(*entry))));
        }
    }
}
