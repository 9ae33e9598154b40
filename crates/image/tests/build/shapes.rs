//! Trees of uncommon shape.

use crate::{assert_clean, built, mounted, tree_of};
use extant_image::build::BuildError;
use extant_testkit::{LoopMount, Scratch, debugfs, is_root, skip};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

#[test]
fn a_hundred_thousand_names_are_found_by_the_kernel() {
    let scratch = Scratch::new();
    let (source, image) = (scratch.join("source"), scratch.join("disk.img"));
    let name = |at: u32| format!("{:x}-name-{at}", at.wrapping_mul(2_654_435_761));
    fs::create_dir_all(source.join("many")).unwrap();
    File::create(source.join("first")).unwrap();
    for at in 0..100_000 {
        // Links of two files: making files takes longer than all the rest.
        let first = source.join(if at % 2 == 0 { "first" } else { "second" });
        if at == 1 || at == 60_001 {
            File::create(source.join("second")).unwrap();
        }
        if at == 60_000 {
            fs::remove_file(source.join("first")).unwrap();
            fs::remove_file(source.join("second")).unwrap();
            File::create(source.join("first")).unwrap();
        }
        fs::hard_link(first, source.join("many").join(name(at))).unwrap();
    }
    let tree = tree_of(&source);
    for words in ["", "-b 1024", "-t ext2 -b 1024"] {
        built(&tree, &image, words).unwrap();
        assert_clean(&image, words);
        if let Ok(dump) = debugfs(&image, "htree_dump /many") {
            assert!(dump.contains("Number of entries"), "{words}: {dump}");
        }
        if is_root() {
            let mount = LoopMount::new(&image, "ro,noload").unwrap();
            let many = mount.path().join("many");
            assert!(
                (0..100_000).all(|at| many.join(name(at)).symlink_metadata().is_ok()),
                "{words}"
            );
            assert!(!many.join("absent").exists());
            assert_eq!(fs::read_dir(&many).unwrap().count(), 100_000);
        }
    }
}

#[test]
fn files_larger_than_an_extent_and_full_of_holes_are_kept() {
    let scratch = Scratch::new();
    let (source, image) = (scratch.join("source"), scratch.join("disk.img"));
    fs::create_dir(&source).unwrap();
    let comb = File::create(source.join("comb")).unwrap();
    for tooth in 0..3000_u64 {
        comb.write_all_at(&tooth.to_le_bytes(), tooth * 8192 + 3).unwrap();
    }
    let far = File::create(source.join("far")).unwrap();
    far.write_all_at(b"far", 3 << 30).unwrap();
    let dense = vec![7; 40 << 20];
    fs::write(source.join("dense"), &dense).unwrap();
    let tree = tree_of(&source);
    for words in
        ["", "-b 1024", "-t ext2", "-t ext3 -b 1024 -O ^resize_inode", "-O bigalloc -C 32768"]
    {
        built(&tree, &image, words).unwrap_or_else(|error| panic!("{words}: {error}"));
        assert_clean(&image, words);
        if !is_root() {
            continue;
        }
        let mount = LoopMount::new(&image, "ro,noload").unwrap();
        let found = File::open(mount.path().join("comb")).unwrap();
        let mut bytes = [0; 8];
        for tooth in 0..3000_u64 {
            found.read_exact_at(&mut bytes, tooth * 8192 + 3).unwrap();
            assert_eq!(u64::from_le_bytes(bytes), tooth, "{words}");
        }
        let mut end = [0; 3];
        File::open(mount.path().join("far")).unwrap().read_exact_at(&mut end, 3 << 30).unwrap();
        assert_eq!(&end, b"far");
        assert!(fs::read(mount.path().join("dense")).unwrap() == dense);
    }
}

#[test]
fn a_tree_with_its_own_lost_found_keeps_it() {
    let scratch = Scratch::new();
    let (source, image) = (scratch.join("source"), scratch.join("disk.img"));
    fs::create_dir_all(source.join("lost+found")).unwrap();
    fs::write(source.join("lost+found/#12"), "found").unwrap();
    built(&tree_of(&source), &image, "").unwrap();
    assert_clean(&image, "own lost+found");
    if is_root() {
        let mount = LoopMount::new(&image, "ro,noload").unwrap();
        assert_eq!(fs::read(mount.path().join("lost+found/#12")).unwrap(), b"found");
    }
    fs::remove_dir_all(source.join("lost+found")).unwrap();
    fs::write(source.join("lost+found"), "a file").unwrap();
    let refused = built(&tree_of(&source), &image, "").unwrap_err();
    assert_eq!(refused.to_string(), "/lost+found: must be a directory: e2fsck uses it");
}

/// More inodes than a group's bitmap has bits need more groups than the data do.
#[test]
fn inodes_alone_can_ask_for_another_group() {
    let scratch = Scratch::new();
    let (source, image) = (scratch.join("source"), scratch.join("disk.img"));
    fs::create_dir(&source).unwrap();
    for at in 0..8200 {
        File::create(source.join(format!("{at:04}"))).unwrap();
    }
    let report = built(&tree_of(&source), &image, "-b 1024 -O ^has_journal,^orphan_file").unwrap();
    assert!(report.inodes > 8192, "{report:?}");
    assert_clean(&image, "8,200 files");
}

#[test]
fn the_files_of_a_directory_lie_together() {
    use std::os::unix::fs::MetadataExt;
    let scratch = Scratch::new();
    let (source, image) = (scratch.join("source"), scratch.join("disk.img"));
    for dir in ["a", "b", "a/sub"] {
        fs::create_dir_all(source.join(dir)).unwrap();
        for file in 0..20 {
            fs::write(source.join(dir).join(format!("file-{file:02}")), dir).unwrap();
        }
    }
    built(&tree_of(&source), &image, "").unwrap();
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let mount = LoopMount::new(&image, "ro,noload").unwrap();
    for dir in ["a", "b", "a/sub"] {
        let inode = |file: u64| {
            let path = mount.path().join(dir).join(format!("file-{file:02}"));
            fs::metadata(path).unwrap().ino()
        };
        assert!((0..20).all(|file| inode(file) == inode(0) + file), "{dir}");
    }
}

#[test]
fn an_empty_tree_is_an_empty_volume() {
    let scratch = Scratch::new();
    let (source, image) = (scratch.join("source"), scratch.join("disk.img"));
    fs::create_dir(&source).unwrap();
    let report = built(&tree_of(&source), &image, "-O ^has_journal,^orphan_file").unwrap();
    assert!(report.bytes < 100 << 10, "{report:?}");
    assert_clean(&image, "empty");
    let found = mounted(&image, "empty");
    assert!(found.is_none_or(|found| found.entries.len() == 1));
}

#[test]
fn subdirectories_past_the_count_of_links_need_dir_nlink() {
    if std::env::var_os("EXTANT_SLOW").is_none() {
        skip!("65,000 directories take a while: EXTANT_SLOW=1 runs it");
    }
    let scratch = Scratch::new();
    let (source, image) = (scratch.join("source"), scratch.join("disk.img"));
    fs::create_dir(&source).unwrap();
    for at in 0..65_010 {
        // The host's directory needs no more than this many either.
        fs::create_dir_all(source.join("dir").join(at.to_string())).unwrap();
    }
    let tree = tree_of(&source);
    built(&tree, &image, "").unwrap();
    assert_clean(&image, "65,010 subdirectories");
    let refused = built(&tree, &image, "-O ^dir_nlink").unwrap_err();
    assert!(matches!(refused, BuildError::Limit { .. }), "{refused}");
    assert!(refused.to_string().starts_with("/dir: 65010 subdirectories"), "{refused}");
}

#[test]
fn what_the_features_cannot_hold_is_named_with_its_path() {
    let scratch = Scratch::new();
    let (source, image) = (scratch.join("source"), scratch.join("disk.img"));
    fs::create_dir(&source).unwrap();
    std::os::unix::fs::symlink("x".repeat(1024), source.join("link")).unwrap();
    let refused = built(&tree_of(&source), &image, "-b 1024").unwrap_err();
    assert_eq!(refused.to_string(), "/link: a target of 1024 bytes does not fit a block of 1024");
    fs::remove_file(source.join("link")).unwrap();
    File::create(source.join("large")).unwrap().set_len(17 << 30).unwrap();
    let refused = built(&tree_of(&source), &image, "-t ext2 -b 1024").unwrap_err();
    assert!(refused.to_string().starts_with("/large: 17825792 blocks"), "{refused}");
    assert!(!image.exists());
}
