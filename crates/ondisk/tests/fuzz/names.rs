//! Directories: blocks of records, the hashed index, hashes, folded names.

use crate::shape::Shape;
use extant_ondisk::casefold::{Casefold, fold};
use extant_ondisk::dirent::{DirFormat, FileType, NewEntry, dot_entries};
use extant_ondisk::dx_hash::{DirHasher, HashVersion};
use extant_ondisk::htree::{HtreeFormat, HtreeRoot, IndexKind};
use extant_ondisk::{FileBlock, InodeNo, Location};
use extant_testkit::fuzz::{Damage, FUZZ_TIME};

const DIR: InodeNo = InodeNo(12);
const AT: FileBlock = FileBlock(3);

#[test]
fn directory_block() {
    type Input = (Shape, Damage, Vec<u8>, Vec<u8>, u16, bool, bool);
    bolero::check!().with_type::<Input>().with_test_time(FUZZ_TIME).for_each(
        |(shape, damage, lengths, name, at, is_mended, has_hashes)| {
            let mut format = DirFormat::new(&shape.geometry(), DIR, 9);
            if *has_hashes {
                format = format.with_stored_hashes();
            }
            let mut block = vec![0; format.block_len];
            let mut packer = format.packer(&mut block);
            assert!(packer.push(&NewEntry::new(DIR, FileType::Directory, b".")));
            assert!(packer.push(&NewEntry::new(InodeNo(2), FileType::Directory, b"..")));
            let mut packed = 2;
            for length in lengths {
                let name = vec![b'a' + length % 26; usize::from(*length).max(1)];
                packed += usize::from(packer.push(&NewEntry::new(DIR, FileType::Regular, &name)));
            }
            packer.finish();
            format.seal(&mut block);
            assert_eq!(format.verify(&block, AT), Ok(()));
            let used = |block: &[u8]| {
                let entries = format.entries(block, AT).map(|entry| entry.unwrap());
                entries.filter(|entry| entry.is_used()).count()
            };
            // A tail reads as an unused entry.
            assert_eq!(used(&block), packed);

            let mut damaged = damage.to(&block);
            if *is_mended {
                format.seal(&mut damaged);
            }
            let _ = (format.verify(&damaged, AT), format.has_tail(&damaged));
            let _ = dot_entries(&format, &damaged);
            let mut reached = 0;
            for entry in format.entries(&damaged, AT) {
                let Ok(entry) = entry else { break };
                assert_eq!(entry.at, reached);
                reached += entry.rec_len;
                assert!(reached <= damaged.len() && entry.name.len() <= 255);
            }
            // A change of a damaged block does not add damage.
            let is_whole = |block: &[u8]| format.entries(block, AT).all(|entry| entry.is_ok());
            let was_whole = is_whole(&damaged);
            let new = NewEntry::new(InodeNo(30), FileType::Symlink, name);
            if format.insert(&mut damaged, AT, &new) == Ok(true) && was_whole {
                assert!(is_whole(&damaged));
            }
            let at = usize::from(*at) / 4 * 4;
            let _ = format.set_inode(&mut damaged, AT, at, InodeNo(31), FileType::Fifo);
            if format.remove(&mut damaged, AT, at) == Ok(true) && was_whole {
                assert!(is_whole(&damaged));
            }
        },
    );
}

#[test]
fn index_block() {
    type Input = (Shape, Damage, u16, u32, bool, bool);
    bolero::check!().with_type::<Input>().with_test_time(FUZZ_TIME).for_each(
        |(shape, damage, count, hash, is_root, is_mended)| {
            let format = HtreeFormat::new(&shape.geometry(), DIR, 9);
            let kind = if *is_root { IndexKind::Root } else { IndexKind::Node };
            let count = usize::from(*count) % format.capacity(kind) + 1;
            let entries =
                (0..count.min(format.capacity(kind))).map(|at| (at as u32 * 64, at as u32 + 1));
            let mut block = vec![0; format.block_len];
            let root = HtreeRoot { hash_version: HashVersion::HalfMd4, indirect_levels: 1 };
            if *is_root {
                format.write_root(&mut block, InodeNo(2), root, entries);
                assert_eq!(format.root(&block).unwrap().0, root);
            } else {
                format.write_node(&mut block, entries);
            }
            format.seal(&mut block, kind);
            assert_eq!(format.verify(&block, AT, kind), Ok(()));

            let mut damaged = damage.to(&block);
            if *is_mended && damaged.len() == block.len() {
                format.seal(&mut damaged, kind);
            }
            let _ = (format.verify(&damaged, AT, kind), format.root(&damaged));
            let Ok(node) = format.node(&damaged, AT, kind) else { return };
            assert_eq!(node.entries().count(), node.count());
            let found = node.search(*hash);
            assert!(node.entry(found).is_some());
            if node.check_order(Location::Htree(DIR, AT)).is_ok() && found > 0 {
                assert!(node.entry(found).unwrap().hash <= *hash);
            }
            let (before, is_full) = (node.count(), node.is_full());
            let inserted = format.insert(&mut damaged, AT, kind, found, *hash, 77);
            assert_eq!(inserted, Ok(!is_full));
            let node = format.node(&damaged, AT, kind).unwrap();
            assert_eq!(node.count(), before + usize::from(!is_full));
        },
    );
}

#[test]
fn name_hash() {
    type Input = (Vec<u8>, [u32; 4], u8);
    bolero::check!().with_type::<Input>().with_test_time(FUZZ_TIME).for_each(
        |(name, seed, stored)| {
            let Some(version) = HashVersion::decode(*stored) else { return };
            assert_eq!(version.encode(), *stored);
            let Ok(hasher) = DirHasher::new(version, *seed) else { return };
            let found = hasher.hash(name);
            assert_eq!(found.hash & 1, 0, "bit 0 belongs to the index");
            assert_eq!(hasher.hash(name), found);
        },
    );
}

#[test]
fn folded_name() {
    bolero::check!().with_type::<(Vec<u8>, String)>().with_test_time(FUZZ_TIME).for_each(
        |(bytes, text)| {
            for name in [bytes.as_slice(), text.as_bytes()] {
                let folded = fold(name);
                assert_eq!(folded.is_some(), std::str::from_utf8(name).is_ok() && folded.is_some());
                if let Some(folded) = folded {
                    // An ignorable character is removed, yet the marks on both sides of it were
                    // sorted apart (debugfs's dx_hash sorts them so, too): they are sorted by the
                    // second folding.
                    let again = fold(&folded).expect("what was folded can be folded");
                    assert_eq!(fold(&again).as_ref(), Some(&again), "folding ends");
                }
                for is_strict in [false, true] {
                    let casefold = Casefold { is_strict };
                    let _ = casefold.admits(name);
                    assert!(casefold.is_same(name, name));
                    let _ = casefold.key(name);
                }
            }
        },
    );
}
