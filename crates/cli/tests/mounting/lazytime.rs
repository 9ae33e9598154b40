//! `lazytime` at a mount: judged by the journal's count of transactions, debugfs, and the kernel's
//! own mount of what a killed server left.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use extant_testkit::{LoopMount, Scratch, debugfs, dumpe2fs_h, e2fsck_fn, skip};
use rustix::fs::{Mode, OFlags};

use super::{Mount, can_mount, image};

const READS: u32 = 40;
/// Longer than a tick of the clock that times are taken from: each read then changes the time of
/// access.
const TICK: Duration = Duration::from_millis(20);
const NO_JOURNAL: [&str; 4] = ["-t", "ext4", "-O", "^has_journal"];

/// Reads a file around the kernel's cache, so that the server hears of it.
fn read_directly(path: &Path) {
    let flags = OFlags::RDONLY | OFlags::DIRECT;
    let file = rustix::fs::open(path, flags, Mode::empty()).expect("open");
    let mut space = vec![0; 8192];
    let skipped = space.as_ptr().align_offset(4096);
    let count = rustix::io::pread(&file, &mut space[skipped..skipped + 4096], 0).expect("read");
    assert_eq!(count, 4096);
}

/// The times that debugfs finds, as it writes them.
fn stored(image: &Path, time: &str) -> String {
    let said = debugfs(image, "stat /file").expect("debugfs");
    let line = said.lines().find(|line| line.trim().starts_with(time)).expect("a time");
    line.trim().to_owned()
}

/// A file of 4 KiB on the device.
fn make_file(root: &Path) -> File {
    fs::write(root.join("file"), [7; 4096]).expect("write");
    let file = File::open(root.join("file")).expect("open");
    file.sync_all().expect("fsync");
    thread::sleep(TICK);
    file
}

/// Transactions of forty reads, each with an fsync of another file after it.
fn transactions(options: &str) -> u32 {
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "32M");
    let mount = Mount::new(&scratch, &image, &["-o", options]);
    make_file(mount.path());
    let other = File::create(mount.path().join("other")).expect("create");
    other.sync_all().expect("fsync");
    for _ in 0..READS {
        thread::sleep(TICK);
        read_directly(&mount.path().join("file"));
        other.sync_all().expect("fsync");
    }
    drop(other);
    let seen = fs::metadata(mount.path().join("file")).expect("stat").atime();
    mount.unmount();
    let known = stored(&image, "atime:");
    assert!(known.contains(&format!("0x{seen:08x}")), "{options}: {seen:x} is not {known}");
    e2fsck_fn(&image).expect("healthy");
    let sequence = &dumpe2fs_h(&image).expect("dumpe2fs")["Journal sequence"];
    u32::from_str_radix(sequence.trim_start_matches("0x"), 16).expect("a number")
}

#[test]
fn reads_make_no_transactions() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let (usual, lazy) = (transactions("strictatime"), transactions("strictatime,lazytime"));
    assert!(usual >= READS, "{usual} transactions without lazytime");
    assert!(lazy <= 8, "{lazy} transactions with lazytime");
}

/// Without a journal what is stored is on the device when fsync returns, where debugfs finds it.
#[test]
fn times_are_seen_at_once_and_stored_by_fsync_and_umount() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    for cache in ["writeback_cache", "nowriteback_cache"] {
        let scratch = Scratch::new();
        let image = image(&scratch, &NO_JOURNAL, "32M");
        let options = format!("strictatime,lazytime,{cache}");
        let mount = Mount::new(&scratch, &image, &["-o", &options]);
        let table = fs::read_to_string("/proc/mounts").expect("the table");
        let line = table.lines().find(|line| line.contains(mount.path().to_str().expect("plain")));
        assert!(line.expect("mounted").contains(",lazytime"), "{line:?}");
        let path = mount.path().join("file");
        let file = make_file(mount.path());
        let before = stored(&image, "atime:");
        read_directly(&path);
        let seen = fs::metadata(&path).expect("stat");
        assert!(!before.contains(&format!("0x{:08x}:{:08x}", seen.atime(), 0)), "{before}");
        assert_eq!(stored(&image, "atime:"), before, "{cache}: stored at once");
        file.sync_data().expect("fdatasync");
        assert_eq!(stored(&image, "atime:"), before, "{cache}: stored by fdatasync");
        file.sync_all().expect("fsync");
        let synced = stored(&image, "atime:");
        assert_ne!(synced, before, "{cache}: not stored by fsync");
        thread::sleep(TICK);
        read_directly(&path);
        // A time of a write, too.
        let modified = stored(&image, "mtime:");
        rustix::io::pwrite(fs::OpenOptions::new().write(true).open(&path).expect("open"), b"8", 0)
            .expect("write");
        let seen = fs::metadata(&path).expect("stat");
        assert_eq!(stored(&image, "atime:"), synced, "{cache}: stored before umount");
        assert_eq!(stored(&image, "mtime:"), modified, "{cache}: stored before umount");
        drop(file);
        mount.unmount();
        let (atime, mtime) = (stored(&image, "atime:"), stored(&image, "mtime:"));
        assert_ne!(atime, synced, "{cache}: not stored by umount");
        assert!(mtime.contains(&format!("0x{:08x}", seen.mtime())), "{cache}: {mtime}");
        assert_ne!(mtime, modified, "{cache}: not stored by umount");
        e2fsck_fn(&image).expect("healthy");
    }
}

/// The kernel replays the log of a server that was killed: data are there, and times may be older.
#[test]
fn a_killed_server_loses_times_alone() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    for kind in [&["-t", "ext4"][..], &NO_JOURNAL] {
        let scratch = Scratch::new();
        let image = image(&scratch, kind, "32M");
        let mount = Mount::new(&scratch, &image, &["-o", "strictatime,lazytime"]);
        let file = make_file(mount.path());
        let before = file.metadata().expect("stat");
        read_directly(&mount.path().join("file"));
        let read = fs::metadata(mount.path().join("file")).expect("stat");
        assert_ne!((read.atime(), read.atime_nsec()), (before.atime(), before.atime_nsec()));
        let written = fs::OpenOptions::new().write(true).open(mount.path().join("file"));
        let written = written.expect("open");
        rustix::io::pwrite(&written, b"8", 0).expect("write");
        written.sync_data().expect("fdatasync");
        drop((file, written));
        mount.kill_server();
        let checked = std::process::Command::new("timeout")
            .args(["-k", "5", "60", "e2fsck", "-fy"])
            .arg(&image)
            .output();
        assert!(matches!(checked.expect("e2fsck").status.code(), Some(0 | 1)), "{kind:?}");
        let kernel = LoopMount::new(&image, "ro").expect("the kernel mounts it");
        let left = fs::metadata(kernel.path().join("file")).expect("stat");
        assert_eq!(left.atime_nsec(), before.atime_nsec(), "{kind:?}: the time was stored");
        let contents = fs::read(kernel.path().join("file")).expect("read");
        assert!(contents[0] == b'8' && contents[1..] == [7; 4095], "{kind:?}");
    }
}
