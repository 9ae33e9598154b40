use std::fs::{self, File};
use std::path::Path;

use extant_device::FileDeviceOptions;
use extant_journal::{Finish, JournalError, recover_volume};
use extant_testkit::{
    LoopMount, TempImage, TreeSnapshot, assert_same_tree, e2fsck_fn, is_root, left_dirty, skip,
    tool,
};

use crate::compare::{assert_as_e2fsck, copy_of, differences, e2fsck, recover_in_place};

fn sync(path: &Path) {
    File::open(path).unwrap().sync_all().unwrap();
}

/// Many small transactions: files, a directory that is removed (revokes) and whose blocks are
/// reused for a file, truncation, contents that look like journal blocks, and at the end a write
/// without fsync.
fn work(dir: &Path) {
    let mut magic = 0xc03b_3998_u32.to_be_bytes().to_vec();
    magic.resize(4096, 7);
    for round in 0..4 {
        let gone = dir.join("gone");
        fs::create_dir(&gone).unwrap();
        for index in 0..200 {
            let name = gone.join(format!("a-rather-long-name-in-round-{round}-{index}"));
            fs::write(name, b"x").unwrap();
        }
        sync(&gone);
        fs::remove_dir_all(&gone).unwrap();
        for index in 0..10 {
            let file = dir.join(format!("file-{round}-{index}"));
            fs::write(&file, magic.repeat(1 + index)).unwrap();
            if index % 3 == 0 {
                sync(&file);
            }
        }
        let shrunk = File::options().write(true).open(dir.join(format!("file-{round}-9"))).unwrap();
        shrunk.set_len(1000).unwrap();
        shrunk.sync_all().unwrap();
        std::os::unix::fs::symlink("x".repeat(200), dir.join(format!("link-{round}"))).unwrap();
        sync(dir);
    }
    fs::write(dir.join("not-synced"), b"perhaps").unwrap();
}

fn dirty(features: &str, options: &str, more: &[&str]) -> Result<TempImage, String> {
    if !is_root() {
        return Err("a loop mount needs root".into());
    }
    let args = [&["-t", "ext4", "-O", features], more].concat();
    let image = TempImage::by_mke2fs(48 << 20, &args)?;
    left_dirty(&image.path(), options, work)
}

fn tree_of(image: &Path) -> TreeSnapshot {
    let mount = LoopMount::new(image, "ro,noload").unwrap();
    TreeSnapshot::of_dir(mount.path()).unwrap()
}

#[test]
fn what_the_kernel_left_is_recovered_as_e2fsck_does() {
    // A journal of 1,024 blocks: the log wraps around.
    let cases: [(&str, &str, &[&str]); 9] = [
        ("metadata_csum,64bit", "", &["-b", "1024", "-J", "size=1"]),
        ("metadata_csum,64bit", "", &["-b", "4096"]),
        ("metadata_csum,^64bit", "data=journal", &["-b", "1024"]),
        ("^metadata_csum,64bit", "", &["-b", "1024", "-J", "size=1"]),
        ("^metadata_csum,^64bit", "data=journal", &["-b", "2048"]),
        ("^metadata_csum,^64bit", "journal_checksum", &["-b", "1024", "-J", "size=1"]),
        ("^metadata_csum,64bit", "data=writeback,journal_async_commit", &["-b", "1024"]),
        ("metadata_csum,64bit", "data=writeback,journal_async_commit", &["-b", "1024"]),
        ("^extent,^metadata_csum,^64bit", "", &["-b", "1024", "-J", "size=1"]),
    ];
    for (features, options, more) in cases {
        let what = format!("{features} {options} {more:?}");
        let image = match dirty(features, options, more) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        let recovered = assert_as_e2fsck(&image.path(), &what);
        assert!(recovered.transactions > 0 && recovered.damage.is_empty(), "{what}: {recovered:?}");
        let copy = copy_of(&image.path());
        recover_in_place(&copy.path());
        // Orphans are left: the file system handles them, not the journal.
        let (status, said) = e2fsck(&copy.path(), &["-p"]);
        assert!(status <= 1, "{what}: {said}");
        e2fsck_fn(&copy.path()).unwrap_or_else(|said| panic!("{what}: {said}"));
    }
}

/// A file attached to a loop device, detached when dropped.
struct LoopDevice(String);

impl LoopDevice {
    fn new(file: &Path) -> Result<Self, String> {
        let losetup = tool("losetup").ok_or("no losetup")?;
        for _ in 0..100 {
            let found = losetup.text(["-f".as_ref(), "--show".as_ref(), file.as_os_str()]);
            if let Ok(device) = found {
                return Ok(Self(device.trim().to_owned()));
            }
            #[allow(clippy::disallowed_methods, reason = "another process has the loop devices")]
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        Err("no free loop device".into())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Some(losetup) = tool("losetup") {
            losetup.run(["-d", &self.0]);
        }
    }
}

#[test]
fn a_journal_on_its_own_device_is_recovered_as_e2fsck_does() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    for block in ["1024", "4096"] {
        let journal = match TempImage::by_mke2fs(8 << 20, &["-O", "journal_dev", "-b", block]) {
            Ok(journal) => journal,
            Err(why) => skip!("{why}"),
        };
        let on_loop = match LoopDevice::new(&journal.path()) {
            Ok(on_loop) => on_loop,
            Err(why) => skip!("{why}"),
        };
        let device = format!("device={}", on_loop.0);
        let args = ["-t", "ext4", "-b", block, "-J", &device];
        let image = TempImage::by_mke2fs(48 << 20, &args).unwrap();
        let mut journal_copy = None;
        let options = format!("journal_path={}", on_loop.0);
        let copy = left_dirty(&image.path(), &options, |dir| {
            work(dir);
            sync(Path::new(&on_loop.0));
            journal_copy = Some(copy_of(&journal.path()));
        });
        let copy = match copy {
            Ok(copy) => copy,
            Err(why) => skip!("no loop mount with a journal device here: {why}"),
        };
        let journal_copy = journal_copy.unwrap();

        let (ours, our_journal) = (copy_of(&copy.path()), copy_of(&journal_copy.path()));
        let (theirs, their_journal) = (copy_of(&copy.path()), copy_of(&journal_copy.path()));
        let open = |path: &Path| FileDeviceOptions::new().write(true).open(path).unwrap();
        let (device, external) = (open(&ours.path()), open(&our_journal.path()));
        let needed = recover_volume(&device, None, Finish::Leave).unwrap_err();
        assert!(matches!(needed, JournalError::ExternalJournalNeeded(_)), "{needed}");
        let recovered = recover_volume(&device, Some(&external), Finish::Reset).unwrap().unwrap();
        assert!(recovered.transactions > 0 && recovered.damage.is_empty(), "{recovered:?}");
        let path = their_journal.path();
        let path = path.to_str().unwrap();
        let (status, said) = e2fsck(&theirs.path(), &["-y", "-E", "journal_only", "-j", path]);
        assert!(status <= 1, "{said}");
        let different = differences(&ours.path(), &theirs.path());
        assert!(different.is_empty(), "block size {block}: {said}\n{different:x?}");
        let different = differences(&our_journal.path(), &their_journal.path());
        assert!(different.is_empty(), "block size {block}: {said}\n{different:x?}");

        let other = TempImage::by_mke2fs(8 << 20, &["-O", "journal_dev", "-b", block]).unwrap();
        let external = open(&other.path());
        let error = recover_volume(&device, Some(&external), Finish::Leave).unwrap_err();
        assert!(matches!(error, JournalError::OtherJournal { .. }), "{error}");
    }
}

#[test]
fn the_tree_is_that_of_the_kernels_own_recovery() {
    for features in ["metadata_csum,64bit", "^metadata_csum,^64bit"] {
        let image = match dirty(features, "", &["-b", "1024"]) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        let ours = copy_of(&image.path());
        recover_in_place(&ours.path());
        let kernel = LoopMount::new(&image.path(), "").unwrap();
        let theirs = TreeSnapshot::of_dir(kernel.path()).unwrap();
        kernel.unmount().unwrap();
        assert_same_tree(&tree_of(&ours.path()), &theirs);
    }
}
