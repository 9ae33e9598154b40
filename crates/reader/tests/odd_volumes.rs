//! Volumes with something special: encryption, casefolding, large attributes, backups, far sizes,
//! broken indexes, paths.

mod common;

use extant_device::{Device, OverlayDevice};
use extant_ondisk::inode::InodeFlags;
use extant_ondisk::superblock::SUPERBLOCK_OFFSET;
use extant_ondisk::{FormatError, InodeNo};
use extant_reader::{
    AclKind, BrokenIndex, Error, Follow, Journal, Reader, ReaderOptions, SuperblockAt, VolumeRead,
};
use extant_testkit::{LoopMount, Scratch, TempImage, debugfs, is_root, mke2fs, skip, tool, tree};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Names and link targets below a directory of the host, by path.
fn host_names(dir: &Path, prefix: &[u8], names: &mut BTreeMap<Vec<u8>, Option<Vec<u8>>>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let path = [prefix, b"/", entry.file_name().as_bytes()].concat();
        let file_type = entry.file_type().unwrap();
        let target = file_type
            .is_symlink()
            .then(|| fs::read_link(entry.path()).unwrap().as_os_str().as_bytes().to_vec());
        names.insert(path.clone(), target);
        if file_type.is_dir() {
            host_names(&entry.path(), &path, names);
        }
    }
}

/// The same of a volume; every name is looked up too.
fn our_names(
    volume: &impl VolumeRead,
    dir: InodeNo,
    prefix: &[u8],
    names: &mut BTreeMap<Vec<u8>, Option<Vec<u8>>>,
) {
    for entry in volume.read_dir(dir, 0).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(volume.lookup(dir, &entry.name).unwrap().inode, entry.inode);
        if matches!(&entry.name[..], b"." | b"..") {
            continue;
        }
        let path = [prefix, b"/", &entry.name].concat();
        names.insert(path.clone(), volume.read_link(entry.inode).ok());
        if volume.inode(entry.inode).unwrap().is_dir() {
            our_names(volume, entry.inode, &path, names);
        }
    }
}

const FILL_ENCRYPTED: &str = r#"
e4crypt new_session >/dev/null || exit 9
mkdir "$1/secret" && echo "passphrase $RANDOM $$" | e4crypt add_key -S s:salt "$1/secret" >/dev/null || exit 9
cd "$1/secret" || exit 1
echo hello > file; mkdir dir many; echo there > dir/inner
touch $(printf 'n%.0s' $(seq 150)) $(printf 'm%.0s' $(seq 149)) $(printf 'x%.0s' $(seq 255))
ln -s /etc/hostname link; ln -s $(printf 'far/%.0s' $(seq 100)) long-link
for number in $(seq 400); do : > many/name-$number; done
"#;

#[test]
fn encrypted_names_are_those_that_the_kernel_shows_without_the_key() {
    if !is_root() || tool("e4crypt").is_none() {
        skip!("needs root and e4crypt");
    }
    let image = match TempImage::by_mke2fs(32 << 20, &["-t", "ext4", "-b", "4096", "-O", "encrypt"])
    {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let mount = match LoopMount::new(&image.path(), "") {
        Ok(mount) => mount,
        Err(why) => skip!("{why}"),
    };
    let filled =
        Command::new("bash").args(["-c", FILL_ENCRYPTED, "fill"]).arg(mount.path()).status();
    if filled.unwrap().code() == Some(9) {
        skip!("no session keyring here");
    }
    mount.unmount().unwrap();
    let mount = LoopMount::new(&image.path(), "ro").unwrap();
    let (mut expected, mut found) = (BTreeMap::new(), BTreeMap::new());
    host_names(mount.path(), b"", &mut expected);
    let volume = common::open(&image.path());
    our_names(&volume, InodeNo::ROOT, b"", &mut found);
    assert!(found.len() > 400 && !found.contains_key(&b"/secret/file"[..]));
    let differing = found.iter().zip(&expected).find(|(ours, theirs)| ours != theirs);
    assert!(found.len() == expected.len() && differing.is_none(), "{differing:?}");
    let secret = volume.resolve(b"/secret", Follow::Yes).unwrap();
    let refused =
        volume.read_dir(secret.number, 0).unwrap().map(Result::unwrap).find_map(|entry| {
            volume
                .read(entry.inode, 0, &mut [0; 8])
                .err()
                .filter(|e| matches!(e, Error::Encrypted(_)))
        });
    assert!(refused.is_some());
}

#[test]
fn names_of_a_casefolded_directory_are_found_in_any_case() {
    if tool("mke2fs").is_none() {
        skip!("no mke2fs here");
    }
    let scratch = Scratch::new();
    let source = scratch.join("source");
    fs::create_dir_all(source.join("plain")).unwrap();
    let image = TempImage::of_size(32 << 20).unwrap();
    let path = image.path();
    let text = path.to_str().unwrap();
    mke2fs(["-q", "-F", "-t", "ext4", "-O", "casefold", "-d", source.to_str().unwrap(), text])
        .unwrap();
    let debugfs = tool("debugfs").unwrap();
    let file = scratch.join("file");
    fs::write(&file, "found").unwrap();
    let file = file.to_str().unwrap();
    // debugfs makes the directory casefolded while it is empty, then fills it.
    let commands = format!(
        "mkdir /folded\nset_inode_field /folded flags 0x40080000\ncd /folded\n\
         write {file} Readme.TXT\nwrite {file} Stra\u{df}e\nwrite {file} \u{c5}ngstr\u{f6}m\n"
    );
    let script = scratch.join("script");
    fs::write(&script, commands).unwrap();
    debugfs.run(["-w", "-f", script.to_str().unwrap(), text]);
    let volume = common::open(&path);
    let folded = volume.resolve(b"/folded", Follow::Yes).unwrap();
    assert!(folded.flags.contains(InodeFlags::CASEFOLD));
    for (wanted, stored) in [
        ("README.txt", "Readme.TXT"),
        ("STRASSE", "Stra\u{df}e"),
        ("A\u{30a}NGSTRO\u{308}M", "\u{c5}ngstr\u{f6}m"),
    ] {
        let exact = volume.lookup(folded.number, stored.as_bytes()).unwrap();
        assert_eq!(volume.lookup(folded.number, wanted.as_bytes()).unwrap(), exact, "{wanted}");
    }
    assert!(matches!(volume.lookup(folded.number, b"readme"), Err(Error::NotFound)));
    assert!(matches!(volume.lookup(InodeNo::ROOT, b"PLAIN"), Err(Error::NotFound)));
}

#[test]
fn large_attributes_have_inodes_of_their_own_and_are_verified() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let options = ["-t", "ext4", "-b", "4096", "-O", "ea_inode"];
    let image = match TempImage::by_mke2fs(32 << 20, &options) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let mount = match LoopMount::new(&image.path(), "") {
        Ok(mount) => mount,
        Err(why) => skip!("{why}"),
    };
    let value: Vec<u8> = (0..50_000_u32).map(|at| (at * 7 % 251) as u8).collect();
    for name in ["one", "two"] {
        let path = mount.path().join(name);
        File::create(&path).unwrap();
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&path, "user.large", &value, flags).unwrap();
        rustix::fs::setxattr(&path, "user.small", b"here", flags).unwrap();
    }
    mount.unmount().unwrap();
    let volume = common::open(&image.path());
    for path in [b"/one", b"/two"] {
        let file = volume.resolve(path, Follow::Yes).unwrap().number;
        assert!(volume.xattr(file, b"user.large").unwrap() == value);
        assert_eq!(volume.xattr(file, b"user.small").unwrap(), b"here");
        let mut sizes: Vec<_> =
            volume.xattrs(file).unwrap().into_iter().map(|info| info.size).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [4, 50_000]);
        assert!(matches!(volume.xattr(file, b"user.none"), Err(Error::NoXattr)));
        assert_eq!(volume.acl(file, AclKind::Access).unwrap(), None);
    }
    // One byte of the value changed: the hash detects it.
    let blocks = debugfs(&image.path(), "stat <13>").unwrap();
    let extents = blocks.split("EXTENTS:").nth(1).and_then(|text| text.split("):").nth(1));
    let digits: String = extents.unwrap().chars().take_while(char::is_ascii_digit).collect();
    let first: u64 = digits.parse().unwrap();
    let device = OverlayDevice::new(common::device(&image.path()));
    device.write_at(first * 4096 + 100, &[0xff]).unwrap();
    let volume = Reader::open(Arc::new(device)).unwrap();
    let file = volume.resolve(b"/one", Follow::Yes).unwrap().number;
    let error = volume.xattr(file, b"user.large").unwrap_err();
    assert!(error.to_string().starts_with("extended attribute inode 13: checksum"), "{error}");
}

#[test]
fn a_backup_superblock_and_its_descriptors_open_a_volume_without_the_first() {
    if tool("mke2fs").is_none() {
        skip!("no mke2fs here");
    }
    let scratch = Scratch::new();
    let source = scratch.join("source");
    tree::grow(&source, 2, &tree::Options { block: 1024, ..tree::Options::default() }).unwrap();
    let features: [&[&str]; 4] = [
        &[],
        &["-O", "sparse_super2"],
        &["-O", "meta_bg,^resize_inode"],
        &["-O", "^sparse_super,^resize_inode"],
    ];
    for features in features {
        let image = TempImage::of_size(64 << 20).unwrap();
        let text = image.path().to_str().unwrap().to_owned();
        let args = ["-q", "-F", "-t", "ext4", "-b", "1024", "-d", source.to_str().unwrap()];
        mke2fs([&args, features, &[&text[..]]].concat()).unwrap();
        let expected = common::snapshot(&common::open(&image.path())).unwrap();
        let device = OverlayDevice::new(common::device(&image.path()));
        // Superblock and first descriptors are gone; the journal's place too, so nothing is
        // replayed.
        device.write_at(SUPERBLOCK_OFFSET, &[0; 2048]).unwrap();
        let device: Arc<dyn Device> = Arc::new(device);
        assert!(Reader::open(device.clone()).is_err());
        let superblock = SuperblockAt::Backup { block: 8193, block_size: 1024 };
        let options = ReaderOptions { superblock, ..ReaderOptions::default() };
        let volume = options.open(device.clone()).unwrap();
        extant_testkit::assert_same_tree(&expected, &common::snapshot(&volume).unwrap());
        let superblock = SuperblockAt::Backup { block: 8194, block_size: 1024 };
        let options = ReaderOptions { superblock, ..ReaderOptions::default() };
        assert!(options.open(device).is_err());
    }
}

#[test]
fn a_large_volume_is_opened_by_what_is_asked_of_it() {
    // Not 16 TiB, which opens as fast: the host takes half a minute to remove such a file.
    let image = match TempImage::by_mke2fs(2 << 40, &["-t", "ext4", "-m", "0"]) {
        Ok(image) => image,
        Err(why) => skip!("no sparse file of 2 TiB: {why}"),
    };
    let volume = common::open(&image.path());
    assert_eq!(volume.read_dir(InodeNo::ROOT, 0).unwrap().count(), 3);
    let geometry = volume.geometry();
    assert!(geometry.groups_count == 16_384);
    let last = InodeNo(geometry.inodes_count);
    assert!(matches!(volume.inode(last), Err(Error::FreeInode(_))));
    let beyond = InodeNo(geometry.inodes_count + 1);
    assert!(matches!(volume.inode(beyond), Err(Error::NoSuchInode(_))));
}

#[test]
fn a_broken_index_is_reported_or_passed_by() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let options = ["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"];
    let image = match TempImage::by_mke2fs(32 << 20, &options) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let mount = match LoopMount::new(&image.path(), "") {
        Ok(mount) => mount,
        Err(why) => skip!("{why}"),
    };
    fs::create_dir(mount.path().join("dir")).unwrap();
    for number in 0..500 {
        File::create(mount.path().join(format!("dir/name-{number}"))).unwrap();
    }
    mount.unmount().unwrap();
    let volume = common::open(&image.path());
    let dir = volume.resolve(b"/dir", Follow::Yes).unwrap();
    let root = volume.extents(dir.number).unwrap().next().unwrap().unwrap().physical().unwrap();
    let device = OverlayDevice::new(common::device(&image.path()));
    // The first entry of the index points past the directory's end.
    device.write_at(root.0 * 1024 + 0x24, &[0xff, 0xff, 0xff, 0]).unwrap();
    let device: Arc<dyn Device> = Arc::new(device);
    let lookup_all = |on_broken_index| {
        let options = ReaderOptions { on_broken_index, ..ReaderOptions::default() };
        let volume = options.open(device.clone()).unwrap();
        (0..500)
            .filter_map(|number| {
                volume.lookup(dir.number, format!("name-{number}").as_bytes()).err()
            })
            .collect::<Vec<_>>()
    };
    let errors = lookup_all(BrokenIndex::Report);
    assert!(!errors.is_empty());
    let expected = format!("htree of directory {}, block 0", dir.number);
    assert!(errors.iter().all(|error| error.to_string().starts_with(&expected)), "{errors:?}");
    assert!(lookup_all(BrokenIndex::Scan).is_empty());
}

#[test]
fn a_feature_nobody_knows_is_refused_by_its_number() {
    let image = match TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-O", "^metadata_csum"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let device = OverlayDevice::new(common::device(&image.path()));
    let at = SUPERBLOCK_OFFSET + 0x60;
    let mut word = [0; 4];
    device.read_at(at, &mut word).unwrap();
    word[3] |= 0x40;
    device.write_at(at, &word).unwrap();
    match Reader::open(Arc::new(device)) {
        Err(Error::Format(error @ FormatError::Unsupported(_))) => {
            assert_eq!(error.to_string(), "feature not supported: FEATURE_I30");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_journal_may_be_refused_or_left_alone() {
    let image = match TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-O", "^metadata_csum"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let device = OverlayDevice::new(common::device(&image.path()));
    let at = SUPERBLOCK_OFFSET + 0x60;
    let mut word = [0; 4];
    device.read_at(at, &mut word).unwrap();
    word[0] |= 4; // needs_recovery
    device.write_at(at, &word).unwrap();
    let device: Arc<dyn Device> = Arc::new(device);
    let open = |journal| ReaderOptions { journal, ..ReaderOptions::default() }.open(device.clone());
    assert!(matches!(open(Journal::Refuse), Err(Error::NeedsRecovery)));
    assert!(open(Journal::Ignore).unwrap().recovered().is_none());
    assert_eq!(open(Journal::Replay).unwrap().recovered().unwrap().transactions, 0);
}

#[test]
fn paths_resolve_as_on_linux() {
    if tool("mke2fs").is_none() {
        skip!("no mke2fs here");
    }
    let scratch = Scratch::new();
    let source = scratch.join("source");
    fs::create_dir_all(source.join("a/b/c")).unwrap();
    fs::write(source.join("a/file"), "x").unwrap();
    for (target, link) in [
        ("a/b", "relative"),
        ("/a/b/c", "a/absolute"),
        ("../file", "a/b/up"),
        ("loop-2", "loop-1"),
        ("loop-1", "loop-2"),
        ("nowhere", "dangling"),
        ("a/b/", "slash"),
        ("a/file/", "file-slash"),
    ] {
        std::os::unix::fs::symlink(target, source.join(link)).unwrap();
    }
    // A chain of 40 links is followed, one of 41 is not.
    std::os::unix::fs::symlink("a/file", source.join("chain-1")).unwrap();
    for number in 2..=41 {
        let target = format!("chain-{}", number - 1);
        std::os::unix::fs::symlink(target, source.join(format!("chain-{number}"))).unwrap();
    }
    let image = TempImage::of_size(16 << 20).unwrap();
    let text = image.path().to_str().unwrap().to_owned();
    mke2fs(["-q", "-F", "-t", "ext4", "-d", source.to_str().unwrap(), &text]).unwrap();
    let volume = common::open(&image.path());
    let resolve = |path: &str, follow| match volume.resolve(path.as_bytes(), follow) {
        Ok(inode) => Ok(inode.number),
        Err(error) => Err(error.to_string()),
    };
    let yes = |path: &str| resolve(path, Follow::Yes);
    let same = [
        ("/relative/c", "/a/b/c"),
        ("a//b/./c/", "/a/b/c"),
        ("/a/absolute/../up", "/a/file"),
        ("/../../a/b/../file", "/a/file"),
        ("/slash/..", "/a"),
        ("chain-40", "/a/file"),
        ("", "/"),
    ];
    for (path, expected) in same {
        assert_eq!(yes(path), yes(expected), "{path}");
        assert!(yes(expected).is_ok());
    }
    assert_ne!(resolve("/relative", Follow::No), yes("/relative"));
    assert_eq!(resolve("/relative/", Follow::No), yes("/relative"));
    let refused = [
        ("/loop-1", "too many symbolic links"),
        ("/chain-41", "too many symbolic links"),
        ("/dangling", "not found"),
        ("/a/file/x", "not a directory"),
        ("/a/file/", "not a directory"),
        ("/a/file/.", "not a directory"),
        ("/file-slash", "not a directory"),
        ("/none/x", "not found"),
    ];
    for (path, why) in refused {
        assert_eq!(yes(path), Err(why.to_owned()), "{path}");
    }
    assert_eq!(yes(&"n".repeat(256)), Err("name too long".to_owned()));
    assert_eq!(yes(&"n/".repeat(2049)), Err("name too long".to_owned()));
}

#[test]
fn a_name_with_a_slash_is_not_shown() {
    let image = match TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-O", "^metadata_csum"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let volume = common::open(&image.path());
    let root = volume.extents(InodeNo::ROOT).unwrap().next().unwrap().unwrap().physical().unwrap();
    let device = OverlayDevice::new(common::device(&image.path()));
    // `lost+found` becomes `../t+found`.
    let at = root.0 * u64::from(volume.geometry().block_size) + 24 + 8;
    device.write_at(at, b"../").unwrap();
    let volume = Reader::open(Arc::new(device)).unwrap();
    let last = volume.read_dir(InodeNo::ROOT, 0).unwrap().last().unwrap();
    assert_eq!(
        last.unwrap_err().to_string(),
        "directory 2, block 0, entry at byte 24: file name has a slash or NUL byte"
    );
}

#[test]
fn many_threads_read_one_volume() {
    fn is_shared<T: Send + Sync>(_: &T) {}
    if tool("mke2fs").is_none() {
        skip!("no mke2fs here");
    }
    let scratch = Scratch::new();
    let source = scratch.join("source");
    tree::grow(&source, 6, &tree::Options { block: 1024, ..tree::Options::default() }).unwrap();
    let image = TempImage::of_size(64 << 20).unwrap();
    let text = image.path().to_str().unwrap().to_owned();
    mke2fs(["-q", "-F", "-t", "ext4", "-d", source.to_str().unwrap(), &text]).unwrap();
    // A cache of a few blocks: every thread pushes the others' out.
    let options = ReaderOptions { cache_size: 20_000, ..ReaderOptions::default() };
    let volume = options.open(common::device(&image.path())).unwrap();
    is_shared(&volume);
    let expected = common::snapshot(&common::open(&image.path())).unwrap();
    extant_runtime::sync::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let found = common::snapshot(&volume).unwrap();
                extant_testkit::assert_same_tree(&expected, &found);
            });
        }
    });
}
