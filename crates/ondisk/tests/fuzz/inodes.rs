//! Inodes and what they map: extent nodes, indirect blocks, inline data.

use crate::shape::Shape;
use extant_ondisk::dirent::{DirFormat, FileType, NewEntry};
use extant_ondisk::extent::{
    self, Extent, ExtentIndex, ExtentNode, NodeEntries, NodeLimits, NodeOwner, OwnedNode,
    ROOT_SIZE, child_limits,
};
use extant_ondisk::indirect::{IndirectMap, pointer, pointers};
use extant_ondisk::inline_data::{IN_I_BLOCK, InlineDir, InlineDirPacker, file_parts};
use extant_ondisk::inode::{self, DeviceNumber, Inode};
use extant_ondisk::{BlockNo, FileBlock, InodeNo};
use extant_testkit::fuzz::{Damage, FUZZ_TIME};

const INODE: InodeNo = InodeNo(12);

#[test]
fn inode() {
    bolero::check!().with_type::<(Shape, Damage, bool)>().with_test_time(FUZZ_TIME).for_each(
        |(shape, damage, is_mended)| {
            let geometry = shape.geometry();
            let size = usize::from(geometry.inode_size);
            let mut record = vec![0; size];
            if size > 128 {
                record[128] = 32;
            }
            record[1] = 0x81; // a regular file
            inode::seal(&mut record, INODE, &geometry);
            assert_eq!(inode::verify(&record, INODE, &geometry), Ok(()));

            let mut damaged = damage.to(&record);
            if *is_mended && damaged.len() == size {
                inode::seal(&mut damaged, INODE, &geometry);
            }
            let _ = inode::verify(&damaged, INODE, &geometry);
            let area = inode::xattr_area(&damaged, INODE, &geometry);
            let Ok(decoded) = Inode::decode(&damaged, INODE, &geometry) else {
                assert!(area.is_err());
                return;
            };
            assert!(area.is_ok_and(|area| area.len() <= size - 128));
            let _ = (decoded.file_type(), decoded.device(), decoded.space(&geometry));
            let _ = (decoded.is_fast_symlink(&geometry), decoded.ea_inode_references());
            let _ = (decoded.flags.letters(), decoded.flags.names());
            let _ = DeviceNumber::decode(&decoded.i_block).encode();
            let mut again = damaged.clone();
            decoded.encode_into(&mut again, &geometry);
            // Only times out of range may change, and only once.
            let decoded = Inode::decode(&again, INODE, &geometry).unwrap();
            let before = again.clone();
            decoded.encode_into(&mut again, &geometry);
            assert_eq!(again, before);
        },
    );
}

#[test]
fn extent_node() {
    type Input = (Shape, Damage, u8, bool, bool);
    bolero::check!().with_type::<Input>().with_test_time(FUZZ_TIME).for_each(
        |(shape, damage, entries, is_index, is_root)| {
            let geometry = shape.geometry();
            let size = if *is_root { ROOT_SIZE } else { geometry.block_len() };
            let owner = NodeOwner {
                inode: INODE,
                generation: 9,
                block: (!is_root).then_some(BlockNo(4000)),
            };
            let mut node = OwnedNode::empty_leaf(size);
            let count = u64::from(*entries) % (u64::from(node.max) + 1);
            node.entries = if *is_index && count > 0 {
                let index = |at: u64| ExtentIndex {
                    block: FileBlock(at * 100),
                    leaf: BlockNo(5000 + at),
                    unused: 7,
                };
                NodeEntries::Index((0..count).map(index).collect(), 1)
            } else {
                let extent = |at: u64| Extent {
                    block: FileBlock(at * 100),
                    start: BlockNo(5000 + at * 50),
                    len: 40,
                    is_unwritten: at % 3 == 1,
                };
                NodeEntries::Leaf((0..count).map(extent).collect())
            };
            let mut bytes = vec![0; size];
            node.encode_into(&mut bytes);
            extent::seal(&mut bytes, &owner, &geometry);
            let limits = NodeLimits::ROOT;
            assert_eq!(OwnedNode::decode(&bytes, &owner, &limits, &geometry).as_ref(), Ok(&node));

            let damaged = damage.to(&bytes);
            let _ = extent::verify(&damaged, &owner, &geometry);
            if let Some(node) = ExtentNode::parse(&damaged) {
                let _ = (node.depth(), node.position(FileBlock(150)));
            }
            let Ok(node) = ExtentNode::check(&damaged, &owner, &limits, &geometry) else { return };
            match node {
                ExtentNode::Leaf(extents) => {
                    for extent in extents.iter().map(|raw| raw.decode()) {
                        assert!(geometry.contains(extent.start, u64::from(extent.len)));
                    }
                }
                ExtentNode::Index(indexes, below) => {
                    assert!(node.depth() <= extent::MAX_DEPTH);
                    for position in 0..indexes.len() {
                        let (index, child) =
                            child_limits(indexes, below, position, &limits).unwrap();
                        assert!(child.blocks.contains(&index.block.0));
                    }
                }
            }
            let decoded = OwnedNode::decode(&damaged, &owner, &limits, &geometry).unwrap();
            let mut again = damaged.clone();
            decoded.encode_into(&mut again);
            assert_eq!(OwnedNode::decode(&again, &owner, &limits, &geometry), Ok(decoded));
        },
    );
}

#[test]
fn indirect_block() {
    bolero::check!().with_type::<(Vec<u8>, u8, u64)>().with_test_time(FUZZ_TIME).for_each(
        |(bytes, shift, at)| {
            let found: Vec<_> = pointers(bytes).collect();
            assert_eq!(found.len(), bytes.len() / 4);
            let single = (0..found.len()).map(|position| pointer(bytes, position).unwrap());
            assert!(single.eq(found));
            assert_eq!(pointer(bytes, bytes.len() / 4), None);
            assert_eq!(pointer(bytes, usize::MAX), None);

            let map = IndirectMap::new(1024 << (shift % 7));
            // Half of the tries are within the map.
            for at in [FileBlock(*at), FileBlock(at % map.max_blocks())] {
                let Some(path) = map.path(at) else {
                    assert!(at.0 >= map.max_blocks());
                    continue;
                };
                assert!(at.0 < map.max_blocks());
                // The path must lead to the given block.
                let mut reached = map.slot_start(path.slot).0;
                for level in 1..=path.levels {
                    let position = u64::from(path.positions[level - 1]);
                    assert!(position < map.pointers_per_block());
                    reached += position * map.covered_by(path.levels - level).max(1);
                }
                assert_eq!(reached, at.0);
            }
            let _ = map.metadata_blocks(*at);
        },
    );
}

#[test]
fn inline_data() {
    type Input = (Shape, Damage, Damage, u8, u64, bool);
    bolero::check!().with_type::<Input>().with_test_time(FUZZ_TIME).for_each(
        |(shape, damage, value_damage, names, size, is_sized)| {
            let format = DirFormat::new(&shape.geometry(), INODE, 9);
            let names: Vec<_> = (0..names % 12).map(|at| format!("name-{at}")).collect();
            let records =
                names.iter().map(|it| NewEntry::new(INODE, FileType::Regular, it.as_bytes()));
            let (mut i_block, mut value) = ([0; IN_I_BLOCK], vec![0; 160]);
            let packer = InlineDirPacker::new(&format);
            assert!(packer.pack(InodeNo(2), &mut i_block, &mut value, records));
            let whole = (IN_I_BLOCK + value.len()) as u64;
            let dir = InlineDir::decode(&format, &i_block, &value, whole).unwrap();
            let used = |dir: &InlineDir<'_>| {
                dir.entries().filter(|it| it.as_ref().is_ok_and(|it| it.is_used())).count()
            };
            assert_eq!((dir.parent, used(&dir)), (InodeNo(2), names.len()));

            let i_block: [u8; IN_I_BLOCK] = damage.in_place(&i_block).try_into().unwrap();
            let value = value_damage.to(&value);
            let size = if *is_sized { whole } else { *size % 400 };
            if let Ok([first, second]) = file_parts(&i_block, &value, size, INODE) {
                assert_eq!((first.len() + second.len()) as u64, size);
            }
            if let Ok(dir) = InlineDir::decode(&format, &i_block, &value, size) {
                // An entry has at least 12 bytes, and each of the two parts ends at its first flaw.
                assert!(dir.entries().count() <= (IN_I_BLOCK + value.len()) / 12 + 2);
            }
        },
    );
}
