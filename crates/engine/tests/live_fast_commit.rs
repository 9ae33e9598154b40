//! Fast commits: which changes fsync writes as one, which a transaction commits, and the tree after
//! a power loss.

mod common;

use extant_device::{Device, MemoryDevice};
use extant_engine::ops::FallocateMode;
use extant_engine::{
    Credentials, DataMode, RenameFlags, SetAttributes, Volume, VolumeOptions, XattrSet,
};
use extant_ondisk::InodeNo;
use extant_reader::{Reader, VolumeRead};
use extant_runtime::env::Env;
use extant_testkit::{Kind, TempImage, TreeSnapshot, assert_same_tree, e2fsck_fn, skip, tool};
use std::path::Path;
use std::sync::Arc;

const ROOT: InodeNo = InodeNo::ROOT;
const FAST: [&str; 6] = ["-t", "ext4", "-O", "fast_commit", "-J", "size=8,fast_commit_size=1024"];

/// Skips the test if there is no mke2fs.
macro_rules! volume_or_skip {
    ($args:expr) => {
        match TempImage::by_mke2fs(64 << 20, $args) {
            Ok(image) => Arc::new(MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap())),
            Err(why) => skip!("{why}"),
        }
    };
}

fn open(device: Arc<MemoryDevice>) -> Volume {
    Volume::open(device, &Env::stepped(1), &VolumeOptions::default()).unwrap()
}

fn create(volume: &Volume, dir: InodeNo, name: &str) -> InodeNo {
    volume.create(dir, name.as_bytes(), 0o644, &Credentials::ROOT).unwrap().number
}

/// A tree without times of directories, which fast commits do not log.
fn tree(volume: &impl VolumeRead) -> TreeSnapshot {
    let mut tree = common::snapshot(volume).unwrap();
    for entry in tree.entries.values_mut().filter(|entry| entry.kind == Kind::Directory) {
        entry.mtime = (0, 0);
    }
    tree
}

fn to_image(device: &MemoryDevice) -> TempImage {
    let image = TempImage::of_size(device.size()).unwrap();
    std::fs::write(image.path(), device.to_vec()).unwrap();
    image
}

fn reader(image: &Path) -> Reader {
    Reader::open(Arc::new(extant_device::FileDeviceOptions::new().open(image).unwrap())).unwrap()
}

/// The tree that the volume has after a power loss: recovered by us, seen in an overlay, and
/// recovered by e2fsck.
fn check_recovered(device: &Arc<MemoryDevice>, expected: &TreeSnapshot) {
    let lost = Arc::new(device.fork());
    assert_same_tree(expected, &tree(&Reader::open(lost.clone()).unwrap()));
    if let Some(e2fsck) = tool("e2fsck") {
        let image = to_image(&lost);
        let output = e2fsck.run([Path::new("-fy"), &image.path()]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.code().is_some_and(|code| code <= 1), "{said}");
        assert_same_tree(expected, &tree(&reader(&image.path())));
    }
    let volume = open(lost.clone());
    assert_same_tree(expected, &tree(&*volume));
    volume.close().unwrap();
    let image = to_image(&lost);
    e2fsck_fn(&image.path()).unwrap_or_else(|said| panic!("{said}"));
}

/// Number of fast commits so far, and of transactions instead.
fn counts(volume: &Volume) -> (u64, u64) {
    let counts = volume.fast_commits().expect("the volume has fast commits");
    (counts.fast, counts.full.values().sum())
}

#[test]
fn changes_of_files_and_names_are_fast_commits() {
    let device = volume_or_skip!(&FAST);
    let volume = open(device.clone());
    let dir = volume.mkdir(ROOT, b"dir", 0o755, &Credentials::ROOT).unwrap().number;
    let old: Vec<InodeNo> =
        (0..6).map(|number| create(&volume, dir, &format!("old-{number}"))).collect();
    let log = create(&volume, ROOT, "log");
    volume.write(log, 0, b"begins").unwrap();
    volume.sync().unwrap();
    assert_eq!(counts(&volume), (0, 0));
    let mut done = 0;
    let mut end = 6;
    let mut is_fast = |what: &str| {
        volume.write(log, end, b" and goes on").unwrap();
        end += 12;
        volume.fsync(log).unwrap();
        let (fast, full) = counts(&volume);
        assert!(fast > done && full == 0, "{what}: {:?}", volume.fast_commits());
        done = fast;
        check_recovered(&device, &tree(&*volume));
    };

    is_fast("a write");
    volume.write(log, 1 << 20, &[b'f'; 70_000]).unwrap();
    is_fast("a write after a hole");
    let new = create(&volume, dir, "new");
    volume.write(new, 0, b"new").unwrap();
    volume.fsync(new).unwrap();
    is_fast("a new file");
    volume.link(log, dir, b"hard").unwrap();
    is_fast("a link");
    volume.unlink(dir, b"hard").unwrap();
    is_fast("an unlink of one of two names");
    volume.rename(dir, b"old-1", ROOT, b"renamed", RenameFlags::empty()).unwrap();
    is_fast("a rename");
    volume.link(old[3], ROOT, b"kept").unwrap();
    volume.rename(dir, b"old-2", dir, b"old-3", RenameFlags::empty()).unwrap();
    is_fast("a rename in place of one of two names");
    volume.write(old[4], 0, &[b'x'; 9000]).unwrap();
    let mode = SetAttributes { mode: Some(0o600), uid: Some(7), ..SetAttributes::default() };
    volume.set_attributes(old[4], &mode).unwrap();
    volume.fsync(old[4]).unwrap();
    is_fast("attributes of an inode");
    volume.fallocate(old[5], FallocateMode::Allocate, 0, 100_000).unwrap();
    is_fast("fallocate");
    volume.write(old[5], 8192, &[b'w'; 5000]).unwrap();
    volume.fsync(old[5]).unwrap();
    is_fast("a write into unwritten blocks");
    for at in 0..40 {
        volume.write(old[5], 1_000_000 + at * 16_384, &[b'h'; 4096]).unwrap();
    }
    volume.fsync(old[5]).unwrap();
    is_fast("more extents than an inode holds");
    volume.truncate(old[5], 200_001).unwrap();
    is_fast("truncation");
    volume.fallocate(old[5], FallocateMode::PunchHole, 8192, 20_000).unwrap();
    is_fast("a hole");
    for number in 0..300 {
        create(&volume, dir, &format!("many-with-a-longer-name-{number:04}"));
    }
    volume.sync().unwrap();
    for number in 0..300 {
        volume.unlink(dir, format!("many-with-a-longer-name-{number:04}").as_bytes()).unwrap();
    }
    volume.sync().unwrap();
    for number in 0..200 {
        create(&volume, dir, &format!("more-with-a-longer-name-{number:04}"));
    }
    is_fast("names in a directory with an index");
    volume.tmpfile(dir, 0o600, &Credentials::ROOT).unwrap();
    is_fast("a file without a name");
}

#[test]
fn what_fast_commits_do_not_describe_is_committed_by_transactions() {
    let device = volume_or_skip!(&FAST);
    let volume = open(device.clone());
    let dir = volume.mkdir(ROOT, b"dir", 0o755, &Credentials::ROOT).unwrap().number;
    let file = create(&volume, dir, "file");
    volume.write(file, 0, &[b'f'; 100_000]).unwrap();
    let log = create(&volume, ROOT, "log");
    let made = |name: &[u8]| volume.mkdir(ROOT, name, 0o755, &Credentials::ROOT).unwrap().number;
    let (removed, moved) = (made(b"removed"), made(b"moved"));
    assert!(removed < moved);
    for (dir, name) in [(ROOT, "number"), (dir, "first"), (dir, "second")] {
        create(&volume, dir, name);
    }
    volume.sync().unwrap();

    type Work<'a> = Box<dyn Fn() + 'a>;
    let by = Credentials::ROOT;
    let kinds: Vec<(&str, Work<'_>)> = vec![
        ("mkdir", Box::new(|| drop(volume.mkdir(dir, b"sub", 0o755, &by).unwrap()))),
        ("rmdir", Box::new(|| volume.rmdir(ROOT, b"removed").unwrap())),
        ("symlink", Box::new(|| drop(volume.symlink(dir, b"to", b"target", &by).unwrap()))),
        (
            "rename of a directory",
            Box::new(|| {
                volume.rename(ROOT, b"moved", dir, b"moved", RenameFlags::empty()).unwrap();
            }),
        ),
        (
            "exchange",
            Box::new(|| {
                volume.rename(ROOT, b"log", dir, b"file", RenameFlags::EXCHANGE).unwrap();
            }),
        ),
        (
            "setxattr",
            Box::new(|| {
                volume.set_xattr(file, b"user.name", b"value", XattrSet::default()).unwrap();
            }),
        ),
        (
            "chmod of a directory",
            Box::new(|| {
                let mode = SetAttributes { mode: Some(0o700), ..SetAttributes::default() };
                volume.set_attributes(dir, &mode).unwrap();
            }),
        ),
        (
            "collapse",
            Box::new(|| {
                volume.write(file, 0, &[b'g'; 40_000]).unwrap();
                volume.fallocate(file, FallocateMode::CollapseRange, 4096, 4096).unwrap();
            }),
        ),
        (
            "a directory that grows",
            Box::new(|| {
                for number in 0..100 {
                    create(&volume, dir, &format!("many-with-a-longer-name-{number:04}"));
                }
            }),
        ),
        ("the last name", Box::new(|| volume.unlink(ROOT, b"number").unwrap())),
        (
            "a rename in place of another file",
            Box::new(|| {
                volume.rename(dir, b"first", dir, b"second", RenameFlags::empty()).unwrap();
            }),
        ),
    ];
    let mut done = 0;
    for (what, work) in kinds {
        work();
        volume.write(log, done, b"x").unwrap();
        volume.fsync(log).unwrap();
        done += 1;
        assert_eq!(counts(&volume), (0, done), "{what}: {:?}", volume.fast_commits());
        check_recovered(&device, &tree(&*volume));
    }
}

/// An image may say any length of the extra fields that its inodes have room for.
#[test]
fn an_inode_as_long_as_a_block_is_committed_by_a_transaction() {
    let args = ["-t", "ext4", "-O", "fast_commit,^metadata_csum", "-b", "1024", "-I", "1024"];
    let device = volume_or_skip!(&args);
    let volume = open(device.clone());
    let file = create(&volume, ROOT, "file");
    volume.close().unwrap();
    let Some(debugfs) = tool("debugfs") else { skip!("no debugfs here") };
    let image = to_image(&device);
    let set = "set_inode_field /file extra_isize 896";
    debugfs.run([Path::new("-w"), Path::new("-R"), Path::new(set), &image.path()]);
    let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap()));
    let volume = open(device);
    volume.write(file, 0, b"data").unwrap();
    volume.fsync(file).unwrap();
    assert!(
        volume.fast_commits().unwrap().full.contains_key("an inode as long as a block"),
        "{:?}",
        volume.fast_commits()
    );
}

#[test]
fn a_full_area_and_the_next_transaction_begin_a_new_one() {
    let device = volume_or_skip!(&FAST);
    let volume = open(device.clone());
    let log = create(&volume, ROOT, "log");
    volume.sync().unwrap();
    let write = |number: u64| {
        volume.write(log, number * 4096, &[b'a' + (number % 26) as u8; 4096]).unwrap();
        volume.fsync(log).unwrap();
    };
    // The area has 256 blocks of 4 KiB, or 1024 of 1 KiB.
    (0..1100).for_each(write);
    let counts = volume.fast_commits().unwrap();
    assert!(counts.fast > 1000, "{counts:?}");
    assert!(counts.full.contains_key("fast-commit area full"), "{counts:?}");
    check_recovered(&device, &tree(&*volume));
    volume.sync().unwrap();
    check_recovered(&device, &tree(&*volume));
    write(1100);
    check_recovered(&device, &tree(&*volume));
    volume.close().unwrap();
    if let Some(dumpe2fs) = tool("dumpe2fs") {
        // As after an unmount by the kernel, the journal is one that all programs know.
        let output = dumpe2fs.run([Path::new("-h"), &to_image(&device).path()]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let features = said.lines().find(|line| line.starts_with("Journal features:")).unwrap();
        assert!(!features.contains("FEATURE_I5") && !features.contains("fast"), "{said}");
    }
    let volume = open(device.clone());
    let log = volume.lookup(ROOT, b"log").unwrap().inode;
    volume.write(log, 0, b"again").unwrap();
    volume.fsync(log).unwrap();
    assert_eq!(self::counts(&volume), (1, 0));
    check_recovered(&device, &tree(&*volume));
}

#[test]
fn volumes_whose_changes_are_not_all_in_inodes_have_none() {
    let with = |features: &str, more: &[&str], options: &VolumeOptions| {
        let args = [&["-t", "ext4", "-O", features], more].concat();
        let image = TempImage::by_mke2fs(64 << 20, &args)?;
        let device = MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap());
        let volume = Volume::open(Arc::new(device), &Env::stepped(1), options).unwrap();
        let has = volume.fast_commits().is_some();
        volume.close().unwrap();
        Ok::<bool, String>(has)
    };
    let plain = VolumeOptions::default();
    let journalled = VolumeOptions { data: Some(DataMode::Journal), ..VolumeOptions::default() };
    match with("fast_commit", &[], &plain) {
        Ok(has) => assert!(has),
        Err(why) => skip!("{why}"),
    }
    assert!(!with("", &[], &plain).unwrap());
    assert!(!with("fast_commit,quota", &[], &plain).unwrap());
    assert!(!with("fast_commit,ea_inode", &[], &plain).unwrap());
    assert!(!with("fast_commit", &[], &journalled).unwrap());
}
