//! Orphans made and unmade, read back, and finished by the kernel.

mod common;

use common::edited::{Image, named, rng};
use extant_engine::edit::write_inode;
use extant_engine::write::dir;
use extant_engine::write::orphans::{Orphans, clear_present};
use extant_ondisk::InodeNo;
use extant_reader::MetadataRead;
use extant_reader::read::inode::load;
use extant_testkit::{LoopMount, dumpe2fs_h, e2fsck_fn, is_root, skip, tool};
use proptest::test_runner::TestRng;
use rand::RngExt;
use std::collections::BTreeSet;
use zerocopy::IntoBytes;

const OPTIONS: [&[&str]; 4] = [
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-O", "orphan_file", "-b", "1024", "-N", "2000", "-E", "orphan_file_size=2"],
    &["-t", "ext2"],
    &["-t", "ext4", "-O", "orphan_file,^metadata_csum", "-b", "4096"],
];

fn load_all<S: MetadataRead>(source: &S) -> Orphans {
    Orphans::load(source, |error| panic!("{error}")).unwrap()
}

fn sorted(orphans: &Orphans) -> BTreeSet<InodeNo> {
    orphans.all().into_iter().collect()
}

/// Inodes that hold nothing stand in for orphans: their number is all that the list needs.
#[test]
fn a_random_history_of_orphans_reads_back_as_its_model() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    for options in OPTIONS {
        let image = Image::with_files(options, "16M", 40);
        let mut edit = image.edit();
        let before = extant_engine::edit::superblock(&edit).unwrap();
        let files: Vec<_> = (0..40).map(|at| named(&edit, &format!("f{at}")).number).collect();
        let mut orphans = load_all(&edit);
        let mut model = BTreeSet::new();
        let mut random: TestRng = rng(5);
        for _ in 0..400 {
            let number = files[random.random_range(0..files.len())];
            if random.random_range(0..2_u32) == 0 {
                orphans.add(&mut edit, number).unwrap();
                model.insert(number);
            } else {
                orphans.remove(&mut edit, number).unwrap();
                model.remove(&number);
            }
            assert_eq!(sorted(&orphans), model);
            assert_eq!(sorted(&load_all(&edit)), model, "{options:?}");
        }
        for number in &model {
            orphans.remove(&mut edit, *number).unwrap();
        }
        clear_present(&mut edit, &orphans).unwrap();
        let after = extant_engine::edit::superblock(&edit).unwrap();
        assert_eq!(after.as_bytes(), before.as_bytes());
        assert!(files.iter().all(|file| load(&edit, *file).unwrap().dtime == 0));
        image.verify(&edit);
    }
}

/// An unlinked file goes, one whose truncation was cut off loses the blocks past its end.
#[test]
fn the_kernel_finishes_orphans_that_we_leave() {
    if tool("mke2fs").is_none() || !is_root() {
        skip!("needs mke2fs and root");
    }
    for options in OPTIONS {
        let image = Image::with_files(options, "16M", 6);
        let mut edit = image.edit();
        let mut orphans = load_all(&edit);
        let mut root = load(&edit, InodeNo::ROOT).unwrap();
        for at in 0..4 {
            let name = format!("f{at}");
            let mut file = named(&edit, &name);
            orphans.add(&mut edit, file.number).unwrap();
            if at < 2 {
                dir::remove(&mut edit, &mut root, name.as_bytes()).unwrap();
                file.inode.links = 0;
            } else {
                file.inode.size = 1;
            }
            write_inode(&mut edit, file.number, &file.inode).unwrap();
        }
        image.store(&edit);
        let count = |key: &str| -> u64 { dumpe2fs_h(&image.path).unwrap()[key].parse().unwrap() };
        let (inodes, blocks) = (count("Free inodes"), count("Free blocks"));
        LoopMount::new(&image.path, "").unwrap().unmount().unwrap();
        e2fsck_fn(&image.path).unwrap();
        assert_eq!(count("Free inodes"), inodes + 2, "{options:?}");
        // Files of ten blocks: two are gone, two keep one block.
        let block_size = u64::from(edit.geometry().block_size);
        let per_file = 10 * 4096 / block_size;
        let freed = count("Free blocks") - blocks;
        assert!((4 * per_file - 2..=4 * per_file + 4).contains(&freed), "{freed} {options:?}");
    }
}
