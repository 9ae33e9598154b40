//! Volumes whose journal is on a device of its own: commands find it by what the superblock says,
//! as e2fsck and the kernel do.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use extant::rooms::device::block_devices::number_of;
use extant::rooms::device::{Device, FileDevice, FileDeviceOptions};
use extant::rooms::ondisk::GroupNo;
use extant::rooms::ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use extant_testkit::{
    LoopDevice, LoopMount, Scratch, dumpe2fs_h, e2fsck_is_silent_with, is_root, mke2fs, skip, tool,
};
use zerocopy::IntoBytes;

/// Tests take turns: a device that one looks at for its journal is not detached for another at that
/// moment.
static TURN: Mutex<()> = Mutex::new(());

/// Content of a test.
const TEXT: &str = "logged\n";
/// A number that no device of the machine has.
const NO_DEVICE: u32 = 0xff_f0_ff_fe;

/// A volume and its journal, each in a file.
struct Pair {
    scratch: Scratch,
    image: PathBuf,
    journal: PathBuf,
    /// The device of the journal, while it is attached.
    device: Option<LoopDevice>,
}

/// A journal in a new file.
fn journal_in(file: &Path) -> Result<LoopDevice, String> {
    let name = file.to_str().ok_or("scratch paths are UTF-8")?;
    mke2fs(["-q", "-F", "-b", "4096", "-O", "journal_dev", name, "8M"])?;
    LoopDevice::new(file)
}

/// Held for the whole of a test.
fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pair {
    /// A new volume of mke2fs; else why it was not made.
    fn new() -> Result<Self, String> {
        Self::of_size("32M")
    }

    fn of_size(size: &str) -> Result<Self, String> {
        if !is_root() {
            return Err("loop devices need root".to_owned());
        }
        let scratch = Scratch::new();
        let (image, journal) = (scratch.join("disk.img"), scratch.join("journal"));
        let device = journal_in(&journal)?;
        let option = format!("device={}", device.path().display());
        let name = image.to_str().ok_or("scratch paths are UTF-8")?;
        mke2fs(["-q", "-F", "-t", "ext4", "-b", "4096", "-J", &option, name, size])?;
        Ok(Self { scratch, image, journal, device: Some(device) })
    }

    /// Both as power loss leaves them while the kernel has the volume mounted: `/kernel` is in the
    /// log.
    fn dirty() -> Result<Self, String> {
        Self::dirty_of_size("32M")
    }

    fn dirty_of_size(size: &str) -> Result<Self, String> {
        let pair = Self::of_size(size)?;
        // The kernel finds the journal by its number.
        let mount = LoopMount::new(&pair.image, "")?;
        let mut file = fs::File::create(mount.path().join("kernel")).expect("create");
        file.write_all(TEXT.as_bytes()).expect("write");
        file.sync_all().expect("fsync");
        drop(file);
        let mut dirty = pair.copied();
        mount.unmount().expect("unmounted");
        // The journal would be there twice.
        drop(pair);
        let features = dumpe2fs_h(&dirty.image)?.remove("Filesystem features");
        assert!(features.is_some_and(|all| all.contains("needs_recovery")), "it is clean");
        dirty.reattach()?;
        Ok(dirty)
    }

    /// Another loop device shows the journal, most often of another number.
    fn reattach(&mut self) -> Result<(), String> {
        self.device = None;
        self.device = Some(LoopDevice::new(&self.journal)?);
        Ok(())
    }

    /// A copy of both files, the journal not attached.
    fn copied(&self) -> Self {
        let scratch = Scratch::new();
        let (image, journal) = (scratch.join("disk.img"), scratch.join("journal"));
        fs::copy(&self.image, &image).expect("copied");
        fs::copy(&self.journal, &journal).expect("copied");
        Self { scratch, image, journal, device: None }
    }

    fn device(&self) -> &Path {
        self.device.as_ref().expect("attached").path()
    }

    /// The content of both files.
    fn bytes(&self) -> (Vec<u8>, Vec<u8>) {
        // A flush brings to the file all that was written to the device.
        if let Some(device) = &self.device {
            fs::File::open(device.path()).and_then(|device| device.sync_all()).expect("flushed");
        }
        (fs::read(&self.image).expect("image"), fs::read(&self.journal).expect("journal"))
    }

    fn set_right_number(&self) {
        self.set_number(number_of(self.device()).expect("a block device"));
    }

    fn set_number(&self, number: u32) {
        self.change_superblock(|raw| raw.s_journal_dev.set(number));
    }

    fn change_superblock(&self, change: impl FnOnce(&mut RawSuperblock)) {
        let device = FileDeviceOptions::new().write(true).open(&self.image).expect("the image");
        let mut raw = superblock(&device);
        change(&mut raw);
        raw.seal();
        device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes()).expect("written");
    }

    /// The number in the superblock.
    fn number(&self) -> u32 {
        superblock(&FileDevice::open(&self.image).expect("the image")).s_journal_dev.get()
    }

    fn inside(&self, path: &str) -> String {
        format!("{}:{path}", self.image.display())
    }

    /// The kernel, which knows the journal by its number alone, reads these files as they were
    /// written, and e2fsck finds nothing.
    fn assert_well(&self, names: &[&str]) {
        let kernel = LoopMount::new(&self.image, "").expect("the kernel mounts it");
        for name in names {
            let found = fs::read_to_string(kernel.path().join(name)).expect("the kernel reads it");
            assert_eq!(found, TEXT, "{name}");
        }
        // It counts what is free when it mounts, which a replay does not.
        kernel.unmount().expect("unmounted");
        // Its own search goes by a cache of UUIDs, in which devices of other tests may be.
        e2fsck_is_silent_with(&self.image, Some(self.device())).expect("nothing to find");
    }
}

fn superblock(device: &FileDevice) -> RawSuperblock {
    let mut bytes = [0; 1024];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).expect("read");
    RawSuperblock::from_bytes(&bytes, GroupNo(0)).expect("1,024 bytes")
}

/// Runs `extant` with a time limit: its exit code and all that it said.
fn extant(words: &[&str], paths: &[&Path]) -> (i32, String) {
    run(Command::new("timeout").args(["-k", "5", "60", env!("CARGO_BIN_EXE_extant")]), words, paths)
}

fn run(command: &mut Command, words: &[&str], paths: &[&Path]) -> (i32, String) {
    let output = command.args(words).args(paths).output().expect("timeout runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned())
}

fn succeeds(words: &[&str]) -> String {
    let (code, said) = extant(words, &[]);
    assert_eq!(code, 0, "{words:?}: {said}");
    said
}

/// e2fsck's exit code on a copy of a pair, and what it should be: 1 where the number was wrong.
fn e2fscks_code(pair: &Pair, option: &str) -> Result<(i32, i32), String> {
    let mut copy = pair.copied();
    copy.reattach()?;
    let is_wrong = number_of(copy.device()) != Some(copy.number());
    let e2fsck = tool("e2fsck").ok_or("no e2fsck here")?;
    Ok((run(&mut e2fsck.command(), &[option], &[&copy.image]).0, i32::from(is_wrong)))
}

#[test]
fn a_clean_volume_is_checked_with_its_journal() {
    let _turn = turn();
    let pair = match Pair::new() {
        Ok(pair) => pair,
        Err(why) => skip!("{why}"),
    };
    let before = pair.bytes();
    for option in ["-p", "-n", "-fn"] {
        let (code, said) = extant(&["fsck", option], &[&pair.image]);
        assert_eq!(code, 0, "{option}: {said}");
        assert!(!said.contains("not checked"), "{option}: {said}");
        assert!(pair.bytes() == before, "{option}: something was written");
    }
    let (code, said) = extant(&["fsck", "-fy"], &[&pair.image]);
    assert_eq!(code, 0, "{said}");
    pair.assert_well(&[]);
}

/// The same exit codes as e2fsck's, and what the log holds is on the volume.
#[test]
fn a_dirty_volume_is_replayed_by_fsck() {
    let _turn = turn();
    for option in ["-p", "-fy"] {
        let mut pair = match Pair::dirty() {
            Ok(pair) => pair,
            Err(why) => skip!("{why}"),
        };
        // The journal would be there twice.
        pair.device = None;
        let (theirs, expected) = match e2fscks_code(&pair, option) {
            Ok(codes) => codes,
            Err(why) => skip!("{why}"),
        };
        // -y repairs the counts, which a replay leaves as they are.
        let repaired = i32::from(option == "-fy");
        assert_eq!(theirs, expected | repaired, "e2fsck {option}");
        pair.reattach().expect("a loop device");
        let expected = i32::from(number_of(pair.device()) != Some(pair.number())) | repaired;
        let (code, said) = extant(&["fsck", option], &[&pair.image]);
        assert_eq!(code, expected, "{option}: {said}");
        assert!(said.contains("recovering journal"), "{said}");
        pair.assert_well(&["kernel"]);
    }
}

#[test]
fn a_look_at_a_dirty_volume_writes_nothing() {
    let _turn = turn();
    let pair = match Pair::dirty() {
        Ok(pair) => pair,
        Err(why) => skip!("{why}"),
    };
    let before = pair.bytes();
    let (_, said) = extant(&["fsck", "-fn"], &[&pair.image]);
    assert!(said.contains("skipping journal recovery"), "{said}");
    for (words, expected) in [
        (["cat", &pair.inside("/kernel")], TEXT),
        (["ls", &pair.inside("/")], "kernel\nlost+found\n"),
        (["find", &pair.inside("/kernel")], ""),
    ] {
        let said = succeeds(&words);
        assert!(said.contains(expected), "{words:?}: {said}");
    }
    let out = pair.scratch.join("out");
    succeeds(&["cp", &pair.inside("/kernel"), &out.display().to_string()]);
    assert_eq!(fs::read_to_string(&out).expect("copied out"), TEXT);
    let image = pair.image.display().to_string();
    let archive = pair.scratch.join("tree.tar").display().to_string();
    succeeds(&["export", &image, "-o", &archive]);
    succeeds(&["info", &image]);
    succeeds(&["map", "--json", &image]);
    succeeds(&["frag", &pair.inside("/kernel")]);
    succeeds(&["cat", "--no-sandbox", &pair.inside("/kernel")]);
    let fs = extant::FileSystem::open_read_only(&pair.image).expect("the library finds it too");
    assert_eq!(fs.read("/kernel").expect("read"), TEXT.as_bytes());
    assert!(pair.bytes() == before, "something was written");
}

#[test]
fn a_dirty_volume_within_a_larger_file_is_read_with_its_journal() {
    let _turn = turn();
    let pair = match Pair::dirty() {
        Ok(pair) => pair,
        Err(why) => skip!("{why}"),
    };
    let whole = pair.scratch.join("whole.img");
    let image = fs::read(&pair.image).expect("image");
    fs::write(&whole, [vec![0; 1 << 20], image].concat()).expect("written");
    let name = format!("{}?offset=1M:/kernel", whole.display());
    assert_eq!(succeeds(&["cat", &name]), TEXT);
}

#[test]
fn commands_change_a_volume_through_its_journal() {
    let _turn = turn();
    let pair = match Pair::dirty() {
        Ok(pair) => pair,
        Err(why) => skip!("{why}"),
    };
    let source = pair.scratch.join("source");
    fs::write(&source, TEXT).expect("source");
    succeeds(&["cp", &source.display().to_string(), &pair.inside("/new")]);
    succeeds(&["mkdir", &pair.inside("/dir")]);
    succeeds(&["mv", &pair.inside("/new"), &pair.inside("/dir/ours")]);
    succeeds(&["touch", &pair.inside("/gone")]);
    succeeds(&["rm", &pair.inside("/gone")]);
    let fs = extant::FileSystem::open(&pair.image).expect("the library finds it too");
    fs.write("/library", TEXT).expect("written");
    fs.close().expect("closed");
    // Commands leave the number as it is; the kernel needs it.
    pair.set_right_number();
    pair.assert_well(&["kernel", "dir/ours", "library"]);
    // The journal was written: its log begins with another transaction.
    let device = FileDeviceOptions::new().write(true).open(pair.device()).expect("not in use");
    let (code, said) = extant(&["touch", &pair.inside("/more")], &[]);
    assert!(code == 1 && said.contains("in use"), "{code}: {said}");
    drop(device);
}

/// A mount of ours, taken away again whatever happens.
struct Mount(PathBuf);

impl Mount {
    fn new(pair: &Pair, options: &str) -> Self {
        let point = pair.scratch.join("mount");
        fs::create_dir_all(&point).expect("a mount point");
        let (code, said) = extant(&["mount", "-o", options], &[&pair.image, &point]);
        assert_eq!(code, 0, "{options}: {said}");
        Self(point)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let (code, said) = extant(&["umount"], &[&self.0]);
        if code != 0 && !std::thread::panicking() {
            panic!("umount: {said}");
        }
    }
}

#[test]
fn a_mount_finds_the_journal_by_its_uuid() {
    let _turn = turn();
    if !Path::new("/dev/fuse").exists() {
        skip!("no /dev/fuse here");
    }
    let pair = match Pair::dirty() {
        Ok(pair) => pair,
        Err(why) => skip!("{why}"),
    };
    pair.set_number(NO_DEVICE);
    let before = pair.bytes();
    let mount = Mount::new(&pair, "ro");
    assert_eq!(fs::read_to_string(mount.0.join("kernel")).expect("in memory"), TEXT);
    drop(mount);
    assert!(pair.bytes() == before, "something was written");
    let mount = Mount::new(&pair, "rw");
    assert_eq!(fs::read_to_string(mount.0.join("kernel")).expect("replayed"), TEXT);
    fs::write(mount.0.join("ours"), TEXT).expect("write");
    // Nothing else has the journal now.
    let error =
        FileDeviceOptions::new().write(true).open(pair.device()).map(drop).expect_err("in use");
    assert!(error.to_string().contains("in use"), "{error}");
    drop(mount);
    pair.set_right_number();
    pair.assert_well(&["kernel", "ours"]);
}

/// e2fsck stores the number too, so that the kernel mounts the volume.
#[test]
fn a_wrong_number_is_put_right_by_fsck() {
    let _turn = turn();
    let pair = match Pair::new() {
        Ok(pair) => pair,
        Err(why) => skip!("{why}"),
    };
    let right = number_of(pair.device()).expect("a block device");
    for wrong in [NO_DEVICE, 0] {
        pair.set_number(wrong);
        let hint = format!("hint for external superblock should be {right:#x}");
        let (code, said) = extant(&["fsck", "-fn"], &[&pair.image]);
        assert!(code == 0 && said.contains(&hint) && pair.number() == wrong, "{code}: {said}");
        let expected =
            run(&mut tool("e2fsck").expect("e2fsck").command(), &["-fn"], &[&pair.image]);
        assert!(expected.0 == 0 && expected.1.contains(&hint), "{expected:?}");
        let (code, said) = extant(&["fsck", "-p"], &[&pair.image]);
        assert!(code == 1 && said.contains(&hint), "{code}: {said}");
        assert_eq!(pair.number(), right);
        pair.assert_well(&[]);
    }
    // Also where the journal is named.
    pair.set_number(NO_DEVICE);
    let device = pair.device().to_str().expect("a plain path");
    let (code, said) = extant(&["fsck", "-p", "-j", device], &[&pair.image]);
    assert!(code == 1 && pair.number() == right, "{code}: {said}");
}

/// A backup tells of the journal too.
#[test]
fn a_lost_superblock_does_not_hide_the_journal() {
    let _turn = turn();
    for options in [&["-fy"][..], &["-fy", "-b", "32768"]] {
        let pair = match Pair::dirty_of_size("256M") {
            Ok(pair) => pair,
            Err(why) => skip!("{why}"),
        };
        let device = FileDeviceOptions::new().write(true).open(&pair.image).expect("the image");
        device.write_at(SUPERBLOCK_OFFSET, &[0; 1024]).expect("written");
        drop(device);
        let words = [&["fsck"], options].concat();
        let (code, said) = extant(&words, &[&pair.image]);
        assert_eq!(code, 1, "{options:?}: {said}");
        pair.assert_well(&["kernel"]);
    }
}

/// A superblock that names an inode without a journal, in addition to the device: the log is
/// replayed, and nothing is written where the device is not there.
#[test]
fn an_inode_without_a_journal_does_not_hide_the_journal() {
    let _turn = turn();
    for option in ["-p", "-fy"] {
        let mut pair = match Pair::dirty() {
            Ok(pair) => pair,
            Err(why) => skip!("{why}"),
        };
        pair.change_superblock(|raw| raw.s_journal_inum.set(8));
        pair.device = None;
        let before = pair.bytes();
        let (code, said) = extant(&["fsck", option], &[&pair.image]);
        assert!(
            code == 8 && said.contains("external journal not found"),
            "{option}: {code}: {said}"
        );
        assert!(pair.bytes() == before, "{option}: something was written");
        pair.reattach().expect("a loop device");
        let (code, said) = extant(&["fsck", "-n"], &[&pair.image]);
        assert_eq!(code, 4, "{said}");
        assert!(pair.bytes() == before, "a look wrote something");
        let (code, said) = extant(&["fsck", option], &[&pair.image]);
        assert!(code == 1 && said.contains("recovering journal"), "{option}: {code}: {said}");
        pair.assert_well(&["kernel"]);
    }
}

#[test]
fn another_volumes_journal_at_the_right_number_is_not_used() {
    let _turn = turn();
    let mut pair = match Pair::dirty() {
        Ok(pair) => pair,
        Err(why) => skip!("{why}"),
    };
    let other = journal_in(&pair.scratch.join("other")).expect("a loop device");
    let untouched = fs::read(other.path()).expect("read");
    pair.set_number(number_of(other.path()).expect("a block device"));
    assert_eq!(succeeds(&["cat", &pair.inside("/kernel")]), TEXT);
    // By name it is refused.
    let name = other.path().to_str().expect("a plain path");
    let (code, said) = extant(&["fsck", "-p", "-j", name], &[&pair.image]);
    assert!(code == 8 && said.contains("wrong external journal"), "{code}: {said}");
    let point = pair.scratch.join("mount");
    fs::create_dir_all(&point).expect("a mount point");
    let number = number_of(other.path()).expect("a block device");
    for options in [format!("journal_path={name}"), format!("journal_dev={number}")] {
        let (code, said) = extant(&["mount", "-o", &options], &[&pair.image, &point]);
        assert!(code == 1 && said.contains("wrong external journal"), "{code}: {said}");
    }
    // Only the right one will do.
    pair.device = None;
    let before = pair.bytes();
    let (code, said) = extant(&["fsck", "-fy"], &[&pair.image]);
    assert!(code == 8 && said.contains("external journal not found"), "{code}: {said}");
    assert!(pair.bytes() == before, "something was written");
    pair.reattach().expect("a loop device");
    // The log brings back the number that the kernel's mount had, which may be right by chance.
    let (code, said) = extant(&["fsck", "-p"], &[&pair.image]);
    assert!(code | 1 == 1, "{code}: {said}");
    assert_eq!(number_of(pair.device()), Some(pair.number()));
    pair.assert_well(&["kernel"]);
    assert!(fs::read(other.path()).expect("read") == untouched, "another's journal was written");
}

#[test]
fn a_journal_that_lists_other_volumes_is_not_used() {
    let _turn = turn();
    let (victim, thief) = match (Pair::dirty(), Pair::new()) {
        (Ok(victim), Ok(thief)) => (victim, thief),
        (Err(why), _) | (_, Err(why)) => skip!("{why}"),
    };
    let image = thief.image.display().to_string();
    let named = superblock(&FileDevice::open(&victim.image).expect("the image"));
    thief.change_superblock(|raw| raw.s_journal_uuid = named.s_journal_uuid);
    let (before, own) = (victim.bytes(), fs::read(&image).expect("read"));
    let file = thief.scratch.join("file");
    fs::write(&file, TEXT).expect("written");
    for words in [
        vec!["cp".to_owned(), file.display().to_string(), thief.inside("/file")],
        vec!["fsck".to_owned(), "-fy".to_owned(), image.clone()],
    ] {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (code, said) = extant(&words, &[]);
        let device = victim.device().display();
        let why = format!("is on {device}, which does not list this file system");
        assert!(code != 0 && said.contains(&why), "{words:?}: {code}: {said}");
        assert!(victim.bytes() == before, "{words:?}: another's journal was written");
        assert!(fs::read(&image).expect("read") == own, "{words:?}: the image was written");
    }
    let (code, said) = extant(&["fsck", "-p"], &[&victim.image]);
    assert!(code | 1 == 1, "{code}: {said}");
    victim.assert_well(&["kernel"]);
}

/// It is found before the volume is changed, by all who would write it.
#[test]
fn a_journal_that_cannot_be_written_is_told_before_anything_is_written() {
    let _turn = turn();
    let mut pair = match Pair::dirty() {
        Ok(pair) => pair,
        Err(why) => skip!("{why}"),
    };
    pair.device = None;
    pair.device = Some(LoopDevice::read_only(&pair.journal).expect("a loop device"));
    let before = pair.bytes();
    let point = pair.scratch.join("mount");
    fs::create_dir_all(&point).expect("a mount point");
    let (image, file) = (pair.image.display().to_string(), pair.inside("/file"));
    let device = pair.device().display().to_string();
    let refused = format!("{device}: the device is read-only\n");
    let mut all = vec![
        (vec!["fsck", "-p", &image], 8),
        (vec!["fsck", "-fy", &image], 8),
        (vec!["fsck", "-fy", "-j", &device, &image], 8),
        (vec!["touch", &file], 1),
        (vec!["tune", "-O", "^has_journal", &image], 1),
    ];
    if Path::new("/dev/fuse").exists() {
        all.push((vec!["mount", &image, point.to_str().expect("a plain path")], 1));
    }
    for (words, expected) in all {
        let (code, said) = extant(&words, &[]);
        assert!(code == expected && said.ends_with(&refused), "{words:?}: {code}: {said}");
        assert!(pair.bytes() == before, "{words:?}: something was written");
    }
    assert_eq!(succeeds(&["cat", &pair.inside("/kernel")]), TEXT);
    assert!(pair.bytes() == before, "a reader wrote something");
}

/// Of two devices with the UUID the stored number decides; where it is neither's, a name does.
#[test]
fn of_two_journals_with_one_uuid_none_is_taken_by_chance() {
    let _turn = turn();
    let pair = match Pair::dirty() {
        Ok(pair) => pair,
        Err(why) => skip!("{why}"),
    };
    let copy = pair.scratch.join("copy");
    fs::copy(&pair.journal, &copy).expect("copied");
    let second = LoopDevice::new(&copy).expect("a loop device");
    pair.set_number(NO_DEVICE);
    let (before, untouched) = (pair.bytes(), fs::read(&copy).expect("read"));
    let mut paths = [pair.device(), second.path()].map(|path| path.display().to_string());
    paths.sort();
    let why = format!("is on two devices, {} and {}: ", paths[0], paths[1]);
    let point = pair.scratch.join("mount");
    fs::create_dir_all(&point).expect("a mount point");
    let (image, file) = (pair.image.display().to_string(), pair.inside("/kernel"));
    let mut all = vec![
        (vec!["fsck", "-p", &image], 8, "use -j DEVICE"),
        (vec!["fsck", "-fy", &image], 8, "use -j DEVICE"),
        (vec!["touch", &file], 1, "detach one"),
        (vec!["cat", &file], 1, "detach one"),
        (vec!["tune", "-O", "^has_journal", &image], 1, "detach one"),
    ];
    if Path::new("/dev/fuse").exists() {
        let words = vec!["mount", &image, point.to_str().expect("a plain path")];
        all.push((words, 1, "use -o journal_path=DEVICE"));
    }
    for (words, expected, hint) in all {
        let (code, said) = extant(&words, &[]);
        let is_told = said.contains(&format!("{why}{hint}"));
        assert!(code == expected && is_told, "{words:?}: {code}: {said}");
        assert!(pair.bytes() == before, "{words:?}: something was written");
    }
    let name = pair.device().to_str().expect("a plain path");
    let (code, said) = extant(&["fsck", "-p", "-j", name], &[&pair.image]);
    assert!(code | 1 == 1, "{code}: {said}");
    assert!(fs::read(&copy).expect("read") == untouched, "the other one was written");
    drop(second);
    pair.assert_well(&["kernel"]);
}

/// The kernel mounts no volume whose journal a check has made shorter than 1,024 blocks.
#[test]
fn a_journals_device_that_lost_its_end_is_refused_and_stays() {
    let _turn = turn();
    let mut pair = match Pair::dirty() {
        Ok(pair) => pair,
        Err(why) => skip!("{why}"),
    };
    pair.device = None;
    let whole = fs::read(&pair.journal).expect("read");
    fs::write(&pair.journal, &whole[..3 << 20]).expect("written");
    pair.reattach().expect("a loop device");
    let before = pair.bytes();
    let why = "journal device too small: 768 of 2048 blocks";
    let (image, file) = (pair.image.display().to_string(), pair.inside("/kernel"));
    for (words, expected) in [
        (vec!["fsck", "-p", &image], 8),
        (vec!["fsck", "-fy", &image], 8),
        (vec!["touch", &file], 1),
        (vec!["tune", "-O", "^has_journal", &image], 1),
    ] {
        let (code, said) = extant(&words, &[]);
        assert!(code == expected && said.contains(why), "{words:?}: {code}: {said}");
        assert!(pair.bytes() == before, "{words:?}: something was written");
    }
    let (code, said) = extant(&["fsck", "-fn"], &[&pair.image]);
    assert!(code != 8 && said.contains(why), "{code}: {said}");
    assert!(pair.bytes() == before, "a look wrote something");
    pair.device = None;
    fs::write(&pair.journal, &whole).expect("written");
    pair.reattach().expect("a loop device");
    let (code, said) = extant(&["fsck", "-p"], &[&pair.image]);
    assert!(code | 1 == 1, "{code}: {said}");
    pair.assert_well(&["kernel"]);
}

#[test]
fn a_missing_journal_is_told_with_its_uuid_and_what_to_do() {
    let _turn = turn();
    let mut dirty = match Pair::dirty() {
        Ok(pair) => pair,
        Err(why) => skip!("{why}"),
    };
    let mut clean = match Pair::new() {
        Ok(pair) => pair,
        Err(why) => skip!("{why}"),
    };
    for (pair, is_dirty) in [(&mut dirty, true), (&mut clean, false)] {
        pair.device = None;
        let before = pair.bytes();
        let uuid = dumpe2fs_h(&pair.image).expect("dumpe2fs").remove("Journal UUID");
        let uuid = uuid.expect("it has one");
        let missing = |what: &str| format!("external journal not found: UUID {uuid}: {what}");
        let point = pair.scratch.join("mount");
        fs::create_dir_all(&point).expect("a mount point");
        let image = pair.image.display().to_string();
        let (file, root) = (pair.inside("/file"), pair.inside("/"));
        let named = missing("use -j DEVICE");
        let by_option = missing("use -o journal_path=DEVICE");
        let attached = missing("attach it (losetup)");
        let mut refused = vec![
            (vec!["fsck", "-p", &image], 8, &named),
            (vec!["fsck", "-fy", &image], 8, &named),
            (vec!["touch", &file], 1, &attached),
            (vec!["tune", "-U", "random", &image], 1, &attached),
            (vec!["tune", "-O", "^has_journal", &image], 1, &attached),
        ];
        let mount = vec!["mount", image.as_str(), point.to_str().expect("a plain path")];
        if Path::new("/dev/fuse").exists() {
            refused.push((mount, 1, &by_option));
        }
        let list = vec!["ls", root.as_str()];
        if is_dirty {
            refused.push((list, 1, &attached));
        } else {
            assert_eq!(succeeds(&list), "lost+found\n");
        }
        for (words, expected, why) in refused {
            let (code, said) = extant(&words, &[]);
            assert!(code == expected && said.contains(why), "{words:?}: {code}: {said}");
        }
        assert!(pair.bytes() == before, "something was written");
    }
}

#[test]
fn tune_replays_renames_and_leaves_the_journal() {
    let _turn = turn();
    let pair = match Pair::dirty() {
        Ok(pair) => pair,
        Err(why) => skip!("{why}"),
    };
    pair.set_right_number();
    let image = pair.image.display().to_string();
    succeeds(&["tune", "-L", "tuned", &image]);
    pair.assert_well(&["kernel"]);
    // The kernel's mount is later than the last check: all checksums change with the UUID.
    succeeds(&["fsck", "-fy", &image]);
    // e2fsck refuses a journal that does not list the volume's UUID.
    let uuid = "01234567-89ab-4def-8123-456789abcdef";
    succeeds(&["tune", "-U", uuid, &image]);
    assert_eq!(users(&pair), Some(uuid.to_owned()));
    pair.assert_well(&["kernel"]);
    succeeds(&["tune", "-O", "^has_journal", &image]);
    assert_eq!(users(&pair), None);
    pair.assert_well(&["kernel"]);
    succeeds(&["tune", "-j", &image]);
    pair.assert_well(&["kernel"]);
}

#[test]
fn transactions_on_a_journals_device_are_listed() {
    let _turn = turn();
    let pair = match Pair::dirty() {
        Ok(pair) => pair,
        Err(why) => skip!("{why}"),
    };
    let before = pair.bytes();
    let said = succeeds(&["journal", &pair.image.display().to_string()]);
    assert!(said.contains("transactions must be replayed") && said.contains("replay"), "{said}");
    let (code, said) = extant(&["journal"], &[&pair.journal]);
    assert!(code != 0 && said.contains("name the volume that uses it"), "{code}: {said}");
    assert!(pair.bytes() == before, "something was written");
}

/// Whom the journal lists.
fn users(pair: &Pair) -> Option<String> {
    dumpe2fs_h(pair.device()).expect("dumpe2fs").remove("Journal users")
}
