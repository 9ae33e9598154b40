//! Exact fit: one block less would not do.

use crate::{assert_clean, built, built_with_size, tree_of};
use extant_image::build::BuildError;
use extant_testkit::{Scratch, tree};

const SETS: &[&str] = &[
    "",
    "-O ^has_journal,^orphan_file",
    "-t ext2",
    "-t ext3 -b 1024",
    "-b 1024 -O ^flex_bg -g 512",
    "-O bigalloc -C 65536",
    "-O meta_bg,^resize_inode -b 1024",
    "-O sparse_super2 -g 1024",
    "-m 5",
];

#[test]
fn one_block_less_would_not_do() {
    let scratch = Scratch::new();
    let (source, image) = (scratch.join("source"), scratch.join("disk.img"));
    let grown = tree::Options { block: 1024, many: 3000, largest: 12 << 20, ..Default::default() };
    tree::grow(&source, 11, &grown).unwrap();
    let tree = tree_of(&source);
    for words in SETS {
        let report = built(&tree, &image, words).unwrap_or_else(|error| panic!("{words}: {error}"));
        assert_clean(&image, words);
        let size = |blocks: u64| blocks * u64::from(report.block_size);
        let same = built_with_size(&tree, &image, words, size(report.blocks));
        let same = same.unwrap_or_else(|error| panic!("{words} in its own size: {error}"));
        assert_eq!(same.blocks, report.blocks, "{words}");
        let less = built_with_size(&tree, &image, words, size(report.blocks - 1));
        assert!(matches!(less, Err(BuildError::NoSpace { .. })), "{words}: {less:?}");
        // A volume with nothing left has no block that could go.
        if !words.contains("bigalloc") && report.blocks > 3000 {
            assert_eq!(report.free_blocks, 0, "{words}");
        }
    }
}

#[test]
fn a_size_given_leaves_the_rest_free() {
    let scratch = Scratch::new();
    let (source, image) = (scratch.join("source"), scratch.join("disk.img"));
    tree::grow(&source, 12, &tree::Options::default()).unwrap();
    let report = built_with_size(&tree_of(&source), &image, "", 200 << 20).unwrap();
    assert_eq!(report.bytes, 200 << 20);
    assert!(report.free_blocks > 40_000, "{report:?}");
    assert!(report.free_inodes > 10_000, "{report:?}");
    assert_clean(&image, "200M");
    let small = built_with_size(&tree_of(&source), &image, "", 5 << 20);
    assert!(matches!(small, Err(BuildError::NoSpace { .. })), "{small:?}");
}

#[test]
fn too_few_inodes_are_named() {
    let scratch = Scratch::new();
    let (source, image) = (scratch.join("source"), scratch.join("disk.img"));
    tree::grow(&source, 13, &tree::Options::default()).unwrap();
    let refused = built(&tree_of(&source), &image, "-N 100").unwrap_err();
    assert!(matches!(refused, BuildError::NoInodes { given: 112, .. }), "{refused}");
    assert!(!image.exists());
}
