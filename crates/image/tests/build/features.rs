//! Every kind of volume that mkfs makes takes a tree of every kind of file.

use crate::{assert_clean, built, mounted, tree_of};
use extant_testkit::{Scratch, TreeSnapshot, differences, dumpe2fs_h, skip, tool, tree};

/// The behaviour of this machine's kernel with the volume.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Kernel {
    Mounts,
    /// Blocks larger than its pages, casefolding: checked by e2fsck alone.
    Refuses,
}
use Kernel::{Mounts, Refuses};

const BLOCK_4K: &[(&str, Kernel)] = &[
    ("", Mounts),
    ("-t ext4 -O ^metadata_csum,uninit_bg", Mounts),
    ("-t ext4 -O ^metadata_csum,^metadata_csum_seed,^uninit_bg", Mounts),
    ("-t ext4 -O ^64bit", Mounts),
    ("-t ext4 -O ^has_journal,^orphan_file", Mounts),
    ("-t ext4 -O ^extent,^64bit", Mounts),
    ("-t ext4 -O ^dir_index", Mounts),
    ("-t ext4 -O ^filetype", Mounts),
    ("-t ext4 -O ^flex_bg", Mounts),
    ("-t ext4 -O meta_bg,^resize_inode", Mounts),
    ("-t ext4 -O sparse_super2", Mounts),
    ("-t ext4 -O inline_data", Mounts),
    ("-t ext4 -O inline_data -I 1024", Mounts),
    ("-t ext4 -O ea_inode", Mounts),
    ("-t ext4 -O large_dir", Mounts),
    ("-t ext4 -O quota", Mounts),
    ("-t ext4 -O quota,project", Mounts),
    ("-t ext4 -O mmp", Mounts),
    ("-t ext4 -O bigalloc -C 65536", Mounts),
    ("-t ext4 -O bigalloc,inline_data,quota -C 16384", Mounts),
    ("-t ext4 -O fast_commit -J size=8,fast_commit_size=1024", Mounts),
    ("-t ext4 -O encrypt,verity,stable_inodes", Mounts),
    ("-t ext4 -O casefold", Refuses),
    ("-t ext4 -I 512 -G 4 -E stride=4,stripe_width=16", Mounts),
    ("-t ext4 -E packed_meta_blocks=1", Mounts),
    ("-t ext4 -g 1024 -m 1 -L label", Mounts),
    ("-t ext4 -N 5000", Mounts),
    ("-t ext4 -i 4096", Mounts),
    ("-t ext3", Mounts),
    ("-t ext2", Mounts),
];

const BLOCK_1K: &[(&str, Kernel)] = &[
    ("-t ext4 -b 1024", Mounts),
    ("-t ext4 -b 1024 -O bigalloc,ea_inode -C 8192", Mounts),
    ("-t ext4 -b 2048 -O bigalloc,ea_inode -C 8192", Mounts),
    ("-t ext4 -b 1024 -g 512 -O ^flex_bg,ea_inode", Mounts),
    ("-t ext4 -b 2048 -O ea_inode", Mounts),
    ("-t ext3 -b 1024 -O ea_inode", Mounts),
    ("-t ext2 -b 1024 -g 256 -O ea_inode", Mounts),
];

const LARGE: &[(&str, Kernel)] = &[
    ("-t ext4 -F -b 65536", Refuses),
    ("-t ext4 -F -b 8192 -O ^metadata_csum", Refuses),
    ("-t ext2 -F -b 65536", Refuses),
];

/// Inodes of 128 bytes know no nanoseconds and end in 2038.
const SMALL_INODES: &[(&str, Kernel)] =
    &[("-t ext4 -I 128 -O ea_inode", Mounts), ("-t ext3 -I 128 -O ea_inode", Mounts)];

fn check(sets: &[(&str, Kernel)], grown: &tree::Options, has_fine_times: bool) {
    if tool("e2fsck").is_none() {
        skip!("no e2fsck here");
    }
    let scratch = Scratch::new();
    let (source, image) = (scratch.join("source"), scratch.join("disk.img"));
    tree::grow(&source, 7, grown).unwrap();
    let tree = tree_of(&source);
    let expected = TreeSnapshot::of_dir(&source).unwrap().map(|entry| {
        if !has_fine_times {
            entry.mtime = (entry.mtime.0.clamp(-(1 << 31), (1 << 31) - 1), 0);
        }
    });
    for &(words, kernel) in sets {
        let report = built(&tree, &image, words).unwrap_or_else(|error| panic!("{words}: {error}"));
        assert_clean(&image, words);
        let shown = dumpe2fs_h(&image).unwrap();
        assert_eq!(shown["Block count"], report.blocks.to_string(), "{words}");
        assert_eq!(shown["Free blocks"], report.free_blocks.to_string(), "{words}");
        assert_eq!(shown["Free inodes"], report.free_inodes.to_string(), "{words}");
        if kernel == Mounts
            && let Some(found) = mounted(&image, words)
        {
            let differences = differences(&expected, &found);
            assert!(differences.is_empty(), "{words}: {differences:#?}");
        }
    }
}

#[test]
fn volumes_of_4_kib_blocks() {
    check(BLOCK_4K, &tree::Options::default(), true);
}

#[test]
fn volumes_of_smaller_blocks() {
    check(BLOCK_1K, &tree::Options { block: 1024, ..tree::Options::default() }, true);
}

#[test]
fn volumes_of_blocks_larger_than_a_page() {
    check(LARGE, &tree::Options::default(), true);
}

#[test]
fn volumes_of_small_inodes() {
    check(SMALL_INODES, &tree::Options::default(), false);
}

#[test]
fn revision_0_takes_a_plain_tree() {
    let scratch = Scratch::new();
    let (source, image) = (scratch.join("source"), scratch.join("disk.img"));
    let plain = tree::Options { xattrs: false, privileged: false, ..tree::Options::default() };
    tree::grow(&source, 7, &plain).unwrap();
    let words = "-t ext2 -E revision=0 -O none";
    let refused = built(&tree_of(&source), &image, words).unwrap_err();
    assert!(refused.to_string().contains("revision 0, which has no features"), "{refused}");
    std::fs::remove_file(source.join("sparse/all")).unwrap(); // 5 GiB
    built(&tree_of(&source), &image, words).unwrap();
    assert_clean(&image, words);
}
