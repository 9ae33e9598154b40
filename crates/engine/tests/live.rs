//! A volume open for changes: names made and removed, closed, verified by e2fsck and by the kernel.

use extant_device::{Device, FileDevice, MemoryDevice};
use extant_engine::{Credentials, OpenVolume, RenameFlags, Volume, VolumeOptions};
use extant_ondisk::InodeNo;
use extant_reader::{Error, Follow, Reader, VolumeRead};
use extant_runtime::env::Env;
use extant_runtime::sync::thread;
use extant_sim::{Event, Recorder};
use extant_testkit::{LoopMount, TempImage, e2fsck_fn, is_root, skip, tool};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Kinds of volumes: options of mke2fs.
const KINDS: [&[&str]; 14] = [
    &["-t", "ext2", "-b", "1024"],
    &["-t", "ext2", "-b", "4096", "-O", "^dir_index,^filetype"],
    &["-t", "ext3", "-b", "1024"],
    &["-t", "ext3", "-b", "4096"],
    &["-t", "ext4"],
    &["-t", "ext4", "-b", "1024", "-I", "128"],
    &["-t", "ext4", "-b", "1024", "-O", "metadata_csum,64bit"],
    &["-t", "ext4", "-O", "^metadata_csum,uninit_bg"],
    &["-t", "ext4", "-O", "^has_journal"],
    &["-t", "ext4", "-O", "mmp"],
    &[
        "-t",
        "ext4",
        "-O",
        "quota,project,orphan_file",
        "-E",
        "quotatype=usrquota:grpquota:prjquota",
    ],
    &["-t", "ext4", "-O", "bigalloc", "-C", "16384"],
    &["-t", "ext4", "-b", "1024", "-O", "^64bit,^flex_bg,^metadata_csum,^uninit_bg", "-g", "2048"],
    &["-t", "ext4", "-b", "2048", "-O", "^extent,^64bit,meta_bg,^resize_inode"],
];

fn open_live(path: &Path) -> Volume {
    let device = extant_device::FileDeviceOptions::new().write(true).open(path).unwrap();
    let device: Arc<dyn Device> = Arc::new(device);
    let options = VolumeOptions::default();
    Volume::open(device, &Env::threads(), &options).unwrap()
}

/// Names of a directory of the mounted image.
fn names(dir: &Path) -> BTreeSet<String> {
    std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "lost+found")
        .collect()
}

#[test]
fn names_made_and_taken_away_are_so_for_e2fsck_and_the_kernel() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("no e2fsprogs here");
    }
    for kind in KINDS {
        let image = TempImage::by_mke2fs(48 << 20, &[kind, &["-N", "8000"]].concat()).unwrap();
        let volume = open_live(&image.path());
        let root = InodeNo::ROOT;
        let by = Credentials::ROOT;
        let dir = volume.mkdir(root, b"dir", 0o755, &by).unwrap();
        let mut expected = BTreeSet::new();
        for index in 0..3000 {
            let name = format!("a file with a name of some length, number {index}");
            volume.create(dir.number, name.as_bytes(), 0o644, &by).unwrap();
            expected.insert(name);
        }
        for index in 0..300 {
            let name = format!("sub{index}");
            let sub = volume.mkdir(dir.number, name.as_bytes(), 0o755, &by).unwrap();
            volume.create(sub.number, b"inner", 0o600, &by).unwrap();
            expected.insert(name);
        }
        for index in (0..3000).step_by(3) {
            let name = format!("a file with a name of some length, number {index}");
            volume.unlink(dir.number, name.as_bytes()).unwrap();
            expected.remove(&name);
        }
        for index in (0..300).step_by(2) {
            let name = format!("sub{index}");
            let sub = volume.lookup(dir.number, name.as_bytes()).unwrap();
            let full = volume.rmdir(dir.number, name.as_bytes()).unwrap_err();
            assert!(matches!(full, Error::NotEmpty), "{full}");
            volume.unlink(sub.inode, b"inner").unwrap();
            volume.rmdir(dir.number, name.as_bytes()).unwrap();
            expected.remove(&name);
        }
        let again = volume.create(dir.number, b"sub1", 0o644, &by).unwrap_err();
        assert!(matches!(again, Error::Exists), "{again}");
        let stat = volume.stat_fs().unwrap();
        volume.close().unwrap();
        e2fsck_fn(&image.path()).unwrap_or_else(|said| panic!("{kind:?}: {said}"));
        let reread = Reader::open(Arc::new(FileDevice::open(image.path()).unwrap())).unwrap();
        assert_eq!(reread.stat_fs().unwrap(), stat, "{kind:?}");
        if !is_root() {
            continue;
        }
        match LoopMount::new(&image.path(), "ro") {
            Ok(mount) => assert_eq!(names(&mount.path().join("dir")), expected, "{kind:?}"),
            Err(why) => skip!("no loop mount here: {why}"),
        }
    }
}

/// The name cache forgets an entry when its name changes.
#[test]
fn paths_are_walked_by_what_names_stand_for_now() {
    if tool("mke2fs").is_none() {
        skip!("no e2fsprogs here");
    }
    let image = TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-N", "3000"]).unwrap();
    let volume = open_live(&image.path());
    let (root, by) = (InodeNo::ROOT, Credentials::ROOT);
    let dir = |above, name: &str| volume.mkdir(above, name.as_bytes(), 0o755, &by).unwrap().number;
    let at = |path: &str| match volume.resolve(path.as_bytes(), Follow::Yes) {
        Ok(file) => Some(file.number),
        Err(Error::NotFound) => None,
        Err(error) => panic!("{path}: {error}"),
    };
    let rename = |from: (InodeNo, &str), to: (InodeNo, &str), flags| {
        volume.rename(from.0, from.1.as_bytes(), to.0, to.1.as_bytes(), flags).unwrap();
    };
    let (one, other) = (dir(root, "one"), dir(root, "other"));
    let (sub, twin) = (dir(one, "sub"), dir(other, "sub"));
    let (here, there) = (dir(sub, "x"), dir(twin, "x"));
    for _ in 0..2 {
        assert_eq!((at("/one/sub/x"), at("/other/sub/x")), (Some(here), Some(there)));
        assert_eq!((at("/one/sub/.."), at("/one/sub/x/../..")), (Some(one), Some(one)));
    }
    rename((one, "sub"), (other, "sub"), RenameFlags::EXCHANGE);
    assert_eq!((at("/one/sub/x"), at("/other/sub/x")), (Some(there), Some(here)));
    assert_eq!(at("/other/sub/x/../.."), Some(other));
    rename((root, "one"), (root, "first"), RenameFlags::empty());
    assert_eq!((at("/one/sub/x"), at("/first/sub/x")), (None, Some(there)));
    volume.rmdir(twin, b"x").unwrap();
    assert_eq!(at("/first/sub/x"), None);
    volume.symlink(twin, b"x", b"/other/sub", &by).unwrap();
    assert_eq!(at("/first/sub/x/x"), Some(here));
    // More than are kept, short names and long ones.
    let name = |number: u32| format!("{number}{}", "-".repeat(number as usize % 40));
    let many: Vec<InodeNo> = (0..2000).map(|number| dir(here, &name(number))).collect();
    for (number, dir) in (0..).zip(&many).chain((0..).zip(&many)) {
        assert_eq!(at(&format!("/other/sub/x/{}", name(number))), Some(*dir));
    }
}

#[test]
fn a_frozen_volume_is_clean_and_goes_on_when_it_thaws() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("no e2fsprogs here");
    }
    let image = TempImage::by_mke2fs(16 << 20, &["-t", "ext4"]).unwrap();
    let volume = open_live(&image.path());
    let by = Credentials::ROOT;
    volume.create(InodeNo::ROOT, b"before", 0o644, &by).unwrap();
    volume.freeze().unwrap();
    assert!(matches!(volume.freeze(), Err(Error::Invalid(_))));
    let before = std::fs::read(image.path()).unwrap();
    volume.lookup(InodeNo::ROOT, b"before").unwrap();
    let late = thread::scope(|scope| {
        let late = scope.spawn(|| volume.create(InodeNo::ROOT, b"late", 0o644, &by).is_ok());
        let copy = TempImage::of_size(0).unwrap();
        std::fs::write(copy.path(), &before).unwrap();
        e2fsck_fn(&copy.path()).unwrap();
        let reread = Reader::open(Arc::new(FileDevice::open(copy.path()).unwrap())).unwrap();
        assert!(reread.recovered().is_none());
        reread.lookup(InodeNo::ROOT, b"before").unwrap();
        assert_eq!(std::fs::read(image.path()).unwrap(), before, "written while frozen");
        volume.thaw().unwrap();
        late.join().unwrap()
    });
    assert!(late);
    volume.lookup(InodeNo::ROOT, b"late").unwrap();
    // Frozen at its end, it thaws by itself.
    volume.freeze().unwrap();
    volume.close().unwrap();
    e2fsck_fn(&image.path()).unwrap();
}

/// One that is open for changes and one that is only read are used alike by a mount and by the
/// library.
#[test]
fn a_volume_that_is_only_read_refuses_changes_and_has_nothing_to_be_made_durable() {
    let image = match TempImage::by_mke2fs(8 << 20, &["-t", "ext4"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let before = std::fs::read(image.path()).unwrap();
    let device = extant_device::FileDeviceOptions::new().write(true).open(image.path()).unwrap();
    let volume = OpenVolume::from(Reader::open(Arc::new(device)).unwrap());
    assert!(matches!(volume.engine(), Err(Error::ReadOnly)));
    assert!(volume.is_read_only());
    let root = InodeNo::ROOT;
    assert_eq!(volume.acquire(root).unwrap(), volume.inode(root).unwrap());
    volume.on_close(root);
    volume.last_writer_closed(root);
    volume.release(root, 1).unwrap();
    assert_eq!(volume.open_unlinked_count(), 0);
    volume.sync().unwrap();
    volume.fsync(root).unwrap();
    assert!(matches!(volume.fsync(InodeNo(500)), Err(Error::FreeInode(InodeNo(500)))));
    volume.fdatasync_open(root, &mut volume.error_sample(root)).unwrap();
    volume.close().unwrap();
    assert!(std::fs::read(image.path()).unwrap() == before, "the image is as it was");

    let volume = OpenVolume::from(open_live(&image.path()));
    assert!(!volume.is_read_only());
    volume.engine().unwrap().create(root, b"file", 0o644, &Credentials::ROOT).unwrap();
    let names = volume.read_dir(root, 0).unwrap().map(|entry| entry.unwrap().name);
    assert!(names.into_iter().any(|name| name == b"file"));
    volume.close().unwrap();
    e2fsck_fn(&image.path()).unwrap();
}

/// One each after needs_recovery is set, the log has its start and the mount is counted; two of the
/// commit; one each after the blocks are at their home locations, the log is marked empty, and
/// needs_recovery is cleared.
#[test]
fn a_small_edit_takes_eight_flushes() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let kind = ["-t", "ext4", "-O", "orphan_file", "-J", "size=4"];
    let image = TempImage::by_mke2fs(32 << 20, &kind).unwrap();
    let bytes = std::fs::read(image.path()).unwrap();
    let recorder = Arc::new(Recorder::new(Arc::new(MemoryDevice::from_bytes(&bytes))));
    let volume =
        Volume::open(recorder.clone(), &Env::threads(), &VolumeOptions::default()).unwrap();
    let file = volume.create(InodeNo::ROOT, b"file", 0o644, &Credentials::ROOT).unwrap().number;
    assert_eq!(volume.write(file, 0, b"contents").unwrap(), 8);
    volume.close().unwrap();
    let flushes = recorder.events().iter().filter(|event| **event == Event::Flush).count();
    assert_eq!(flushes, 8);
    let mut bytes = vec![0; bytes.len()];
    recorder.read_at(0, &mut bytes).unwrap();
    std::fs::write(image.path(), bytes).unwrap();
    e2fsck_fn(&image.path()).unwrap();
}
