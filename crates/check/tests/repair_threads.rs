//! Repairs of a volume with enough inodes and directories for several threads: the image that they
//! leave and the order of their findings do not depend on the number of threads.

mod common;

use common::{findings, open};
use extant_check::{AutoPolicy, CheckOptions, Recorder, Store};
use extant_ondisk::inode::Inode;
use extant_ondisk::{BlockNo, GroupNo, InodeNo};
use extant_runtime::env::Env;
use extant_testkit::{Scratch, TempImage, copied, e2fsck_fn, skip, tool};

/// A volume of 5,000 inodes in use, a tenth of them directories.
fn healthy() -> TempImage {
    let scratch = Scratch::new();
    let source = scratch.join("source");
    for dir in 0..500 {
        let dir = source.join(format!("{}/directory {dir}", dir % 10));
        std::fs::create_dir_all(&dir).expect("a directory");
        for file in 0..9 {
            std::fs::write(dir.join(format!("file {file}")), vec![file; 900]).expect("a file");
        }
    }
    let source = source.to_str().expect("scratch paths are UTF-8");
    let options = ["-t", "ext4", "-b", "1024", "-N", "8192", "-d", source];
    TempImage::by_mke2fs(32 << 20, &options).expect("mke2fs makes it")
}

/// Inodes in use of files, or of directories.
fn used(store: &Store, is_dir: bool) -> Vec<InodeNo> {
    let all = (12..store.geometry().inodes_count).map(InodeNo);
    all.filter(|ino| {
        let record = store.read_inode(*ino).expect("reads").expect("there is one");
        let kind = if is_dir { 0x40 } else { 0x80 };
        record[26] > 0 && record[1] & 0xf0 == kind
    })
    .collect()
}

/// The first block of an inode, which its extent tree names in its first entry.
fn first_block(store: &Store, ino: InodeNo) -> BlockNo {
    let record = store.read_inode(ino).expect("reads").expect("there is one");
    BlockNo(u64::from(u32::from_le_bytes([record[60], record[61], record[62], record[63]])))
}

/// Changes the records of every sixth file.
fn change_files(store: &Store, change: impl Fn(&mut Inode)) {
    for ino in used(store, false).into_iter().step_by(6) {
        let mut record = store.read_inode(ino).expect("reads").expect("there is one");
        let mut inode = Inode::decode(&record, ino, store.geometry()).expect("it is sound");
        change(&mut inode);
        inode.encode_into(&mut record, store.geometry());
        store.write_inode(ino, &mut record).expect("writes");
    }
}

/// Changes the first block of every seventh directory.
fn change_names(store: &Store, change: impl Fn(&mut [u8])) {
    for ino in used(store, true).into_iter().step_by(7) {
        let block = first_block(store, ino);
        let mut bytes = store.read(block).expect("reads");
        change(&mut bytes);
        store.write(block, &bytes).expect("writes");
    }
}

fn zero_bitmaps(store: &Store) {
    let zeros = vec![0; store.geometry().block_len()];
    for group in (0..store.geometry().groups_count).map(GroupNo) {
        store.write(store.desc(group).block_bitmap, &zeros).expect("writes");
        store.write(store.desc(group).inode_bitmap, &zeros).expect("writes");
    }
}

fn wrong_counts(store: &Store) {
    for group in (0..store.geometry().groups_count).map(GroupNo) {
        let change = |desc: &mut extant_ondisk::group_desc::GroupDesc| {
            desc.free_clusters += 3;
            desc.free_inodes += 5;
            desc.used_dirs += 1;
        };
        store.update_desc(group, change).expect("writes");
    }
}

fn share_blocks(store: &Store) {
    let files = used(store, false);
    for pair in files.chunks_exact(2).step_by(10) {
        let mut record = store.read_inode(pair[1]).expect("reads").expect("there is one");
        let other = store.read_inode(pair[0]).expect("reads").expect("there is one");
        record[40..100].copy_from_slice(&other[40..100]);
        store.write_inode(pair[1], &mut record).expect("writes");
    }
}

fn lose_inodes(store: &Store) {
    for ino in used(store, false).into_iter().step_by(11) {
        let mut record = vec![0; usize::from(store.geometry().inode_size)];
        store.write_inode(ino, &mut record).expect("writes");
    }
}

fn zero_root(store: &Store) {
    let zeros = vec![0; store.geometry().block_len()];
    store.write(first_block(store, InodeNo::ROOT), &zeros).expect("writes");
}

/// Writes a kind of damage.
type Damage = fn(&Store);

/// Kinds of damage, by the passes that find them.
const KINDS: [(&str, Damage); 11] = [
    ("bitmaps", zero_bitmaps),
    ("counts of groups", wrong_counts),
    ("link counts", |store| change_files(store, |inode| inode.links += 2)),
    ("counts of blocks", |store| change_files(store, |inode| inode.blocks += 8)),
    ("times of deletion", |store| change_files(store, |inode| inode.dtime = 1_700_000_000)),
    ("types of names", |store| change_names(store, |bytes| bytes[24 + 7] = 6)),
    ("parents", |store| change_names(store, |bytes| bytes[12..16].copy_from_slice(&[11, 0, 0, 0]))),
    ("directories", |store| change_names(store, |bytes| bytes.fill(0))),
    ("shared blocks", share_blocks),
    ("lost inodes", lose_inodes),
    ("the root", zero_root),
];

#[test]
fn each_kind_of_damage_is_repaired_alike_by_any_number_of_threads() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let sound = healthy();
    for (name, damage) in KINDS {
        let spoiled = copied(&sound.path()).expect("a copy");
        damage(&Store::open(open(&spoiled.path(), true)).expect("it opens"));
        let now = Env::threads().now();
        let mut first = None;
        for threads in [1, 2, 8] {
            let image = copied(&spoiled.path()).expect("a copy");
            let mut store = Store::open(open(&image.path(), true)).expect("it opens");
            let env = Env::stepped_at(1, now);
            let options = CheckOptions { threads, env, ..CheckOptions::default() };
            let recorder = Recorder::new(&AutoPolicy::Yes);
            let report =
                extant_check::repair(&mut store, &options, &recorder).expect("it is repaired");
            assert!(!report.findings.is_empty() && !report.errors_left, "{name}");
            assert!((1..=2).contains(&report.rounds), "{name}: {} rounds", report.rounds);
            e2fsck_fn(&image.path()).unwrap_or_else(|said| panic!("{name}: {said}"));
            let said = findings(&report);
            let bytes = std::fs::read(image.path()).expect("it is there");
            match &first {
                None => first = Some((said, bytes)),
                Some((of_one, _)) if *of_one != said => {
                    panic!("{name}, {threads} threads:\n{said}\none:\n{of_one}")
                }
                Some((_, of_one)) => assert!(*of_one == bytes, "{name}, {threads} threads"),
            }
        }
    }
}
