//! The path API held to std::fs: the same calls on both give the same outcomes and the same tree.

use extant::{Direct, FileDevice, FileSystem, MemoryDevice, OpenOptions, VolumeOptions};
use extant_testkit::tree::Random;
use extant_testkit::{BadBlock, BadDirectory, Scratch, e2fsck_fn, skip, tool};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn formatted(options: &[&str]) -> (Arc<MemoryDevice>, FileSystem) {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    extant::format(&*device, options).unwrap();
    let fs = FileSystem::on_device(device.clone()).unwrap();
    fs.remove_dir("/lost+found").unwrap();
    (device, fs)
}

/// e2fsck finds nothing in the closed volume, but that lost+found was removed.
fn judge(device: &MemoryDevice) {
    use extant::Device;
    if tool("e2fsck").is_none() {
        return extant_testkit::skipped("e2fsck is not installed");
    }
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    let scratch = Scratch::new();
    let image = scratch.join("disk.img");
    std::fs::write(&image, bytes).unwrap();
    let fs = FileSystem::open(&image).unwrap();
    fs.create_dir("lost+found").unwrap();
    fs.close().unwrap();
    e2fsck_fn(&image).unwrap();
}

/// Every file of a tree: its type, and what it holds.
fn seen(fs: &FileSystem) -> BTreeMap<PathBuf, String> {
    let mut tree = BTreeMap::new();
    let mut waiting = vec![PathBuf::from("/")];
    while let Some(dir) = waiting.pop() {
        for entry in fs.read_dir(&dir).unwrap() {
            let entry = entry.unwrap();
            let (path, found) = (entry.path(), entry.metadata().unwrap());
            assert_eq!(entry.file_type().unwrap(), found.file_type());
            let holds = if found.is_dir() {
                waiting.push(path.clone());
                format!("directory with {} links", found.links())
            } else if found.is_symlink() {
                format!("link to {}", fs.read_link(&path).unwrap().display())
            } else {
                format!("{} {:?}", found.links(), fs.read(&path).unwrap())
            };
            tree.insert(path.strip_prefix("/").unwrap().to_owned(), holds);
        }
    }
    tree
}

fn expected(root: &Path) -> BTreeMap<PathBuf, String> {
    use std::os::unix::fs::MetadataExt;
    let mut tree = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let found = path.symlink_metadata().unwrap();
            let holds = if found.is_dir() {
                waiting.push(path.clone());
                let subdirs = std::fs::read_dir(&path).unwrap();
                let subdirs =
                    subdirs.filter(|entry| entry.as_ref().unwrap().file_type().unwrap().is_dir());
                format!("directory with {} links", subdirs.count() + 2)
            } else if found.is_symlink() {
                format!("link to {}", path.read_link().unwrap().display())
            } else {
                format!("{} {:?}", found.nlink(), std::fs::read(&path).unwrap())
            };
            tree.insert(path.strip_prefix(root).unwrap().to_owned(), holds);
        }
    }
    tree
}

fn kind_of<T, E: Into<io::Error>>(outcome: Result<T, E>) -> Result<(), ErrorKind> {
    outcome.map(drop).map_err(|error| error.into().kind())
}

/// One random call on both.
fn step(random: &mut Random, fs: &FileSystem, root: &Path) {
    let mut path = || {
        let mut path = PathBuf::new();
        for _ in 0..=random.below(3) {
            path.push(["a", "b", "c", "link"][random.below(4) as usize]);
        }
        path
    };
    let (path, other) = (path(), path());
    let (there, other_there) = (root.join(&path), root.join(&other));
    let bytes = vec![7; random.below(20) as usize];
    let (call, ours, theirs) = match random.below(14) {
        0 | 1 => {
            ("create_dir", kind_of(fs.create_dir(&path)), kind_of(std::fs::create_dir(&there)))
        }
        2 => (
            "create_dir_all",
            kind_of(fs.create_dir_all(&path)),
            kind_of(std::fs::create_dir_all(&there)),
        ),
        3..=5 => {
            ("write", kind_of(fs.write(&path, &bytes)), kind_of(std::fs::write(&there, &bytes)))
        }
        6 => ("remove_file", kind_of(fs.remove_file(&path)), kind_of(std::fs::remove_file(&there))),
        7 => ("remove_dir", kind_of(fs.remove_dir(&path)), kind_of(std::fs::remove_dir(&there))),
        8 => {
            if path.components().count() == 1 {
                return; // Most of the tree would be gone.
            }
            let theirs = std::fs::remove_dir_all(&there);
            ("remove_dir_all", kind_of(fs.remove_dir_all(&path)), kind_of(theirs))
        }
        9 => (
            "rename",
            kind_of(fs.rename(&path, &other)),
            kind_of(std::fs::rename(&there, &other_there)),
        ),
        10 => (
            "hard_link",
            kind_of(fs.hard_link(&path, &other)),
            kind_of(std::fs::hard_link(&there, &other_there)),
        ),
        11 => (
            "symlink",
            kind_of(fs.symlink("a", &other)),
            kind_of(std::os::unix::fs::symlink("a", &other_there)),
        ),
        12 => {
            let open = |new| {
                let options = OpenOptions::new().append(true).create_new(new).open(fs, &path);
                options.map_err(io::Error::from).and_then(|mut file| file.write_all(b"more"))
            };
            let new = random.below(2) == 0;
            let theirs = std::fs::OpenOptions::new().append(true).create_new(new).open(&there);
            let theirs = theirs.and_then(|mut file| file.write_all(b"more"));
            ("append", kind_of(open(new)), kind_of(theirs))
        }
        _ => ("read", kind_of(fs.read(&path)), kind_of(std::fs::read(&there))),
    };
    let what = format!("{call} {} {}", path.display(), other.display());
    // The error of a rename of a directory onto another file, or below itself, differs between
    // systems and std.
    if ours != theirs {
        assert!(ours.is_err() && theirs.is_err(), "{what}: {ours:?}, std {theirs:?}");
    }
}

#[test]
fn random_calls_do_what_they_do_in_std() {
    for (seed, options) in
        [(1, &["-t", "ext4"][..]), (2, &["-t", "ext2", "-b", "1024"]), (3, &["-O", "inline_data"])]
    {
        let (device, fs) = formatted(options);
        let scratch = Scratch::new();
        let mut random = Random::new(seed);
        for _ in 0..600 {
            step(&mut random, &fs, scratch.path());
        }
        assert_eq!(seen(&fs), expected(scratch.path()), "seed {seed}");
        fs.close().unwrap();
        judge(&device);
    }
}

#[test]
fn a_file_reads_writes_and_seeks_as_in_std() {
    let (device, fs) = formatted(&["-t", "ext4"]);
    let options = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600);
    let mut file = options.open(&fs, "/file").unwrap();
    assert_eq!(file.metadata().unwrap().permissions(), 0o600);
    file.write_all(b"0123456789").unwrap();
    file.seek(SeekFrom::Current(-4)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "6789");
    file.seek(SeekFrom::End(5)).unwrap();
    file.write_all(b"end").unwrap();
    assert_eq!(fs.read("/file").unwrap(), b"0123456789\0\0\0\0\0end");
    assert!(file.seek(SeekFrom::Current(-100)).is_err());
    assert_eq!(file.read_at(&mut [0; 100], 15).unwrap(), 3);
    file.set_len(3).unwrap();
    assert_eq!(fs.read("/file").unwrap(), b"012");
    // A file without a name is still there.
    fs.remove_file("/file").unwrap();
    assert_eq!(file.read_at(&mut [0; 100], 0).unwrap(), 3);
    assert_eq!(fs.open_file("/file").unwrap_err().kind(), ErrorKind::NotFound);
    let refused = fs.open_file("/").unwrap_err();
    assert_eq!((refused.kind(), refused.path()), (ErrorKind::IsADirectory, Path::new("/")));
    drop(file);
    fs.close().unwrap();
    judge(&device);
}

#[test]
fn a_copy_keeps_holes_and_permissions() {
    let (device, fs) = formatted(&["-t", "ext4"]);
    let file = fs.create("/sparse").unwrap();
    file.write_all_at(b"far", 100 << 20).unwrap();
    drop(file);
    fs.set_permissions("/sparse", 0o640).unwrap();
    assert_eq!(fs.copy("/sparse", "/copy").unwrap(), (100 << 20) + 3);
    let copy = fs.metadata("/copy").unwrap();
    assert_eq!((copy.len(), copy.permissions()), ((100 << 20) + 3, 0o640));
    assert_eq!(copy.space(), fs.metadata("/sparse").unwrap().space());
    assert!(fs.copy("/copy", "/copy").is_err());
    assert_eq!(fs.metadata("/copy").unwrap().len(), (100 << 20) + 3, "it has kept what it had");
    fs.close().unwrap();
    judge(&device);
}

#[test]
fn threads_append_to_one_file_without_losing_a_line() {
    let (device, fs) = formatted(&["-t", "ext4"]);
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let fs = fs.clone();
            scope.spawn(move || {
                let mut log =
                    OpenOptions::new().append(true).create(true).open(&fs, "/log").unwrap();
                for line in 0..100 {
                    log.write_all(format!("{thread} {line:03}\n").as_bytes()).unwrap();
                    fs.create_dir_all(format!("/dir{thread}/{line}")).unwrap();
                }
            });
        }
    });
    let text = fs.read_to_string("/log").unwrap();
    let mut lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 400);
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 400);
    fs.close().unwrap();
    judge(&device);
}

#[test]
fn an_image_opened_for_reading_takes_no_change() {
    let scratch = Scratch::new();
    let image = scratch.join("disk.img");
    std::fs::File::create(&image).unwrap().set_len(8 << 20).unwrap();
    let device = written(&image);
    extant::format(&*device, ["-t", "ext4"]).unwrap();
    drop(device);
    let fs = FileSystem::open_read_only(&image).unwrap();
    assert_eq!(fs.create_dir("/dir").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    assert!(fs.exists("/lost+found").unwrap());
    drop(fs);
    let first = FileSystem::open(&image).unwrap();
    assert!(FileSystem::open(&image).is_err(), "one has it alone");
    first.close().unwrap();
}

/// An image file as a device that is written.
fn written(image: &Path) -> Arc<dyn extant::Device> {
    let url = extant_storage::DeviceUrl::plain(image);
    url.open(extant_storage::Access::ReadWrite, &Default::default()).unwrap().device
}

#[test]
fn attributes_and_times_are_set_by_path() {
    if tool("e2fsck").is_none() {
        skip!("e2fsck is not installed");
    }
    use extant::{Acl, AclKind, XattrSet};
    use std::time::{Duration, UNIX_EPOCH};
    let (device, fs) = formatted(&["-t", "ext4"]);
    fs.write("/file", "text").unwrap();
    fs.symlink("file", "/link").unwrap();
    fs.set_xattr("/file", "user.note", b"value", XattrSet::Create).unwrap();
    assert_eq!(fs.xattr("/file", "user.note").unwrap(), b"value");
    let refused = fs.set_xattr("/link", "user.note", b"", XattrSet::Any).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    fs.remove_xattr("/file", "user.note").unwrap();
    assert_eq!(fs.xattrs("/file").unwrap(), []);
    fs.set_acl("/link", AclKind::Access, Some(&Acl::of_mode(0o640))).unwrap();
    assert_eq!(fs.metadata("/file").unwrap().permissions(), 0o640);
    fs.set_owner("/link", Some(1000), None).unwrap();
    let link = fs.symlink_metadata("/link").unwrap();
    assert_eq!((link.uid(), fs.metadata("/file").unwrap().uid()), (1000, 0));
    let moment = UNIX_EPOCH + Duration::new(5_000_000_000, 123);
    fs.set_times("/file", None, Some(moment)).unwrap();
    let file = fs.metadata("/file").unwrap();
    assert_eq!(file.modified(), moment);
    assert_ne!(file.accessed(), moment);
    fs.close().unwrap();
    judge(&device);
}

/// Options of one's own hold: with the least memory, around the page cache, more is written than
/// fits in it.
#[test]
fn an_image_opened_with_a_limit_takes_any_file() {
    let scratch = Scratch::new();
    let image = scratch.join("image");
    let device = FileDevice::create_new(&image, 64 << 20).unwrap();
    extant::format(&device, ["-t", "ext4"]).unwrap();
    drop(device);
    let options = VolumeOptions { memory: 16 << 20, ..VolumeOptions::default() };
    let bytes: Vec<u8> = (0..20_u32 << 20).map(|at| ((at / 4096) ^ at) as u8).collect();
    let fs = FileSystem::open_with(&image, &options, Direct::WherePossible).unwrap();
    fs.write("/file", &bytes).unwrap();
    fs.close().unwrap();
    let fs = FileSystem::open_read_only(&image).unwrap();
    assert!(fs.read("/file").unwrap() == bytes);
}

/// A corrupt block of a directory is an error among its entries; the names of the others are there.
#[test]
fn a_directory_is_listed_past_a_corrupt_block() {
    let damaged = match BadDirectory::new(false, 2, BadBlock::Checksum) {
        Ok(damaged) => damaged,
        Err(why) => skip!("{why}"),
    };
    let names = |fs: &FileSystem| {
        let (entries, errors): (Vec<_>, Vec<_>) =
            fs.read_dir("/d").unwrap().partition(|entry| entry.is_ok());
        let name = |entry: Result<extant::DirEntry, _>| {
            entry.unwrap().file_name().to_str().unwrap().to_owned()
        };
        (entries.into_iter().map(name).collect(), errors.len())
    };
    let read_only = FileSystem::open_read_only(damaged.image.path()).unwrap();
    assert_eq!(names(&read_only), (damaged.good.clone(), 1));
    let read_write = FileSystem::open(damaged.image.path()).unwrap();
    assert_eq!(names(&read_write), (damaged.good.clone(), 1));
    // Nothing says that it is empty.
    read_write.remove_dir_all("/d").unwrap_err();
    read_write.close().unwrap();
}
