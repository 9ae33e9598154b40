//! Where the image goes.

use crate::{assert_clean, built, mounted, options, tree_of};
use extant_image::build::{BuildOptions, Progress, Size, build};
use extant_testkit::{Scratch, TreeSnapshot, assert_same_tree, is_root, skip, tool, tree};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;

fn names(scratch: &Scratch) -> Vec<String> {
    let entries = fs::read_dir(scratch.path()).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_failure_leaves_what_was_there() {
    let scratch = Scratch::new();
    let (source, image) = (scratch.join("source"), scratch.join("disk.img"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), vec![1; 100_000]).unwrap();
    fs::write(&image, "an older image").unwrap();
    let tree = tree_of(&source);
    // The file changes between planning and reading.
    fs::write(source.join("file"), vec![1; 90_000]).unwrap();
    let refused = built(&tree, &image, "").unwrap_err();
    assert!(refused.to_string().contains("100000 bytes became 90000"), "{refused}");
    assert_eq!(fs::read(&image).unwrap(), b"an older image");
    assert_eq!(names(&scratch), ["disk.img", "source"]);
}

#[test]
fn an_image_replaces_what_was_there_and_is_sparse() {
    let scratch = Scratch::new();
    let (source, image) = (scratch.join("source"), scratch.join("disk.img"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "content").unwrap();
    fs::write(&image, "an older image").unwrap();
    let report = built(&tree_of(&source), &image, "").unwrap();
    let metadata = fs::metadata(&image).unwrap();
    assert_eq!(metadata.len(), report.bytes);
    assert!(metadata.blocks() * 512 < report.bytes / 10, "{} blocks", metadata.blocks());
    assert_eq!(names(&scratch), ["disk.img", "source"]);
}

/// A loop device that goes away with its owner.
struct LoopDevice(String);

impl LoopDevice {
    fn new(file: &Path) -> Result<Self, String> {
        let losetup = tool("losetup").ok_or("no losetup here")?;
        let text = losetup.text([OsStr::new("--find"), OsStr::new("--show"), file.as_os_str()])?;
        Ok(Self(text.trim().to_owned()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Some(losetup) = tool("losetup") {
            // Nothing can be done about a device that stays.
            let _ = losetup.text(["--detach", self.0.as_str()]);
        }
    }
}

#[test]
fn a_block_device_full_of_old_bytes_becomes_a_clean_volume() {
    if !is_root() {
        skip!("a loop device needs root");
    }
    let scratch = Scratch::new();
    let (source, backing) = (scratch.join("source"), scratch.join("backing"));
    tree::grow(&source, 32, &tree::Options::default()).unwrap();
    let expected = TreeSnapshot::of_dir(&source).unwrap();
    let tree = tree_of(&source);
    for (size, words) in
        [(Size::Device, ""), (Size::Auto, "-E nodiscard"), (Size::Device, "-t ext2")]
    {
        fs::write(&backing, vec![0xa5; 64 << 20]).unwrap();
        let device = match LoopDevice::new(&backing) {
            Ok(device) => device,
            Err(why) => skip!("{why}"),
        };
        let whole = size == Size::Device;
        let options = BuildOptions { size, ..options(Path::new(&device.0), words) };
        let report =
            build(&options, &tree, &|_| ()).unwrap_or_else(|error| panic!("{words}: {error}"));
        assert_eq!(report.bytes == 64 << 20, whole, "{words}: {report:?}");
        drop(device);
        assert_clean(&backing, words);
        if let Some(found) = mounted(&backing, words) {
            assert_same_tree(&expected, &found);
        }
    }
}

#[test]
fn progress_ends_at_its_total() {
    let scratch = Scratch::new();
    let (source, image) = (scratch.join("source"), scratch.join("disk.img"));
    tree::grow(&source, 31, &tree::Options::default()).unwrap();
    let last = Mutex::new(Progress { done: 0, total: 1 });
    build(&options(&image, ""), &tree_of(&source), &|progress| {
        let mut last = last.lock().unwrap();
        if progress.done > last.done {
            *last = progress;
        }
    })
    .unwrap();
    let last = last.into_inner().unwrap();
    assert!(last.done >= last.total && last.done < last.total + (1 << 20), "{last:?}");
}

#[test]
fn options_without_meaning_for_a_build_are_refused_by_name() {
    let scratch = Scratch::new();
    let (source, image) = (scratch.join("source"), scratch.join("disk.img"));
    fs::create_dir(&source).unwrap();
    let tree = tree_of(&source);
    for (words, named) in [
        ("-c", "bad blocks (-c, -l)"),
        ("-z undo", "undo files (-z)"),
        ("-J device=/dev/x", "external journals (-J device=)"),
        ("-n", "-n"),
        ("-E root_owner=1:1", "root_owner"),
        ("-E offset=1M", "an offset in the image"),
        ("-O journal_dev", "journal devices"),
    ] {
        let refused = built(&tree, &image, words).unwrap_err().to_string();
        assert!(refused.contains(named), "{words}: {refused}");
    }
    assert_eq!(names(&scratch), ["source"]);
}

/// A process that is being started has copies of all descriptors for a moment.
#[test]
fn a_lock_ends_with_its_device_while_processes_start() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(4096).unwrap();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                std::process::Command::new("true").status().unwrap();
            }
        });
        let opened = (0..3000).find_map(|_| {
            extant_device::FileDeviceOptions::new().write(true).open(file.path()).err()
        });
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(opened.is_none(), "{opened:?}");
    });
}
