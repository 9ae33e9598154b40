//! `mke2fs -d` by our name and by e2fsprogs's: the same command makes the same volume.

use extant_testkit::{LoopMount, Scratch, Tool, debugfs, e2fsck_fn, is_root, skip, tool};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const UUID: &str = "11111111-2222-3333-4444-555555555555";
const SEED: &str = "hash_seed=11111111-2222-3333-4444-555555555556";
/// 2020-01-02 03:04:05
const FAKE_TIME: &str = "0x5e0d5da5";

/// Our mke2fs: a link of that name.
fn ours(scratch: &Scratch) -> Command {
    let link = scratch.join("mke2fs");
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_extant"), &link).unwrap();
    }
    Command::new(link)
}

fn theirs(tool: &Tool) -> Command {
    Command::new(tool.path())
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

fn made(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text(&output));
    output
}

/// Files of all kinds, with times that differ.
fn source(scratch: &Scratch) -> PathBuf {
    let root = scratch.join("source");
    std::fs::create_dir_all(root.join("dir/empty")).unwrap();
    std::fs::write(root.join("dir/file"), "contents\n").unwrap();
    std::fs::hard_link(root.join("dir/file"), root.join("dir/link")).unwrap();
    std::fs::write(root.join("large"), vec![5; 3_000_000]).unwrap();
    std::fs::File::create(root.join("hole")).unwrap().set_len(9_000_000).unwrap();
    std::os::unix::fs::symlink("target", root.join("symlink")).unwrap();
    std::os::unix::fs::symlink("t".repeat(200), root.join("long-symlink")).unwrap();
    for number in 0..120 {
        std::fs::write(root.join(format!("dir/name-{number:030}")), "x").unwrap();
    }
    std::fs::set_permissions(root.join("dir/file"), PermissionsExt::from_mode(0o4751)).unwrap();
    std::fs::set_permissions(&root, PermissionsExt::from_mode(0o711)).unwrap();
    for (number, name) in (0..).zip(["dir/file", "large", "symlink", "dir/empty"]) {
        let time = |tv_sec| Timespec { tv_sec, tv_nsec: 0 };
        let times = Timestamps {
            last_access: time(1_300_000_000 + number),
            last_modification: time(1_200_000_000 + number),
        };
        let path = root.join(name);
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
    root
}

/// The compared properties of each file of a mounted volume.
fn tree(root: &Path) -> BTreeMap<PathBuf, String> {
    let (mut found, mut waiting) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(path) = waiting.pop() {
        let file = std::fs::symlink_metadata(&path).unwrap();
        // The first of two readers changes the time of access of the source.
        let times = [file.mtime(), file.ctime()];
        // A directory's size and space are the maker's.
        let space = if file.is_dir() { (0, 0) } else { (file.size(), file.blocks()) };
        let mut names = vec![0; 4096];
        let length = rustix::fs::llistxattr(&path, &mut names).unwrap();
        let contents = match file.file_type() {
            kind if kind.is_file() => std::fs::read(&path).unwrap(),
            kind if kind.is_symlink() => {
                std::fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            }
            _ => Vec::new(),
        };
        let attributes = String::from_utf8_lossy(&names[..length]).into_owned();
        found.insert(
            path.strip_prefix(root).unwrap().to_owned(),
            format!(
                "{:o} {}:{} links {} {space:?} {times:?} {attributes:?} {}",
                file.mode(),
                file.uid(),
                file.gid(),
                file.nlink(),
                contents.iter().fold(0_u64, |sum, byte| sum * 31 % 1_000_007 + u64::from(*byte)),
            ),
        );
        if file.is_dir() {
            waiting.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found
}

/// The header of `dumpe2fs -h` without the fields that depend on where blocks were taken, and on
/// how much was written.
fn header(image: &Path) -> Vec<String> {
    let dump = tool("dumpe2fs").unwrap().run(["-h", image.to_str().unwrap()]);
    let differs = ["Free blocks:", "Lifetime writes:", "Checksum:", "Journal checksum:"];
    let dump = String::from_utf8_lossy(&dump.stdout).into_owned();
    let kept = dump.lines().filter(|line| !differs.iter().any(|name| line.starts_with(name)));
    kept.map(str::to_owned).collect()
}

#[test]
fn the_volume_is_that_of_mke2fs() {
    let (Some(mke2fs), Some(_)) = (tool("mke2fs"), tool("dumpe2fs")) else {
        skip!("e2fsprogs is not installed");
    };
    if !is_root() {
        skip!("loop mounts need root");
    }
    let scratch = Scratch::new();
    let from = source(&scratch);
    let config = scratch.join("mke2fs.conf");
    std::fs::write(
        &config,
        "[defaults]\n\tbase_features = sparse_super,filetype\n\tblocksize = 1024\n\tinode_size = 128\n\tinode_ratio = 8192\n",
    )
    .unwrap();
    let rows: [(&str, bool); 8] = [
        ("-t ext4", false),
        ("-t ext4 -E root_owner=12:34", false),
        ("-t ext3 -b 1024 -m 1", false),
        ("-t ext2 -N 400", false),
        ("-t ext4 -b 4096 -O ^64bit,^metadata_csum -L label -M /mnt", false),
        ("-t ext4 -i 16384 -J size=4 -I 128", false),
        ("-t ext4 -T small -O quota", false),
        ("", true),
    ];
    for (options, is_configured) in rows {
        let (a, b) = (scratch.join("ours.img"), scratch.join("theirs.img"));
        for (command, image) in [(&mut ours(&scratch), &a), (&mut theirs(&mke2fs), &b)] {
            let _ = std::fs::remove_file(image);
            // Of several -E mke2fs takes the last.
            let (options, extended) = options.split_once(" -E ").unwrap_or((options, ""));
            let extended = format!("{SEED},{extended}");
            command.args(["-q", "-F", "-U", UUID]).args(options.split_whitespace());
            command.args(["-E", extended.trim_end_matches(',')]);
            command.arg("-d").args([&from, image]).arg("32M");
            command.env("E2FSPROGS_FAKE_TIME", FAKE_TIME).env_remove("SOURCE_DATE_EPOCH");
            if is_configured {
                command.env("MKE2FS_CONFIG", &config);
            }
            made(command);
        }
        e2fsck_fn(&a).unwrap_or_else(|found| panic!("{options}: {found}"));
        let (ours, theirs) = (header(&a), header(&b));
        let ours_alone: Vec<_> = ours.iter().filter(|line| !theirs.contains(line)).collect();
        let theirs_alone: Vec<_> = theirs.iter().filter(|line| !ours.contains(line)).collect();
        assert_eq!(ours_alone, theirs_alone, "{options}");
        if options.contains("quota") {
            continue; // Not every kernel mounts it.
        }
        let (a, b) = (LoopMount::new(&a, "ro").unwrap(), LoopMount::new(&b, "ro").unwrap());
        let (a, b) = (tree(a.path()), tree(b.path()));
        assert!(a.keys().eq(b.keys()), "{options}");
        for (path, ours) in &a {
            assert_eq!(ours, &b[path], "{options}: {}", path.display());
        }
    }
}

#[test]
fn files_have_the_time_of_the_source_and_the_volume_that_of_the_environment() {
    let scratch = Scratch::new();
    let (from, image) = (source(&scratch), scratch.join("disk.img"));
    let make = |variable: &str, time: &str| {
        let _ = std::fs::remove_file(&image);
        let mut command = ours(&scratch);
        command.args(["-q", "-t", "ext4", "-d"]).args([&from, &image]).arg("32M");
        command.env_remove("SOURCE_DATE_EPOCH").env_remove("E2FSPROGS_FAKE_TIME");
        made(command.env(variable, time));
        let stat = debugfs(&image, "stat /dir/file").unwrap();
        let of = |name: &str| {
            let line = stat.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
            line.split("0x").nth(1).unwrap()[..8].to_owned()
        };
        ["atime:", "mtime:", "ctime:", "crtime:"].map(of)
    };
    let hex = |time: i64| format!("{time:08x}");
    let [access, change, _, created] = make("E2FSPROGS_FAKE_TIME", FAKE_TIME);
    assert_eq!([access, change], [hex(1_300_000_000), hex(1_200_000_000)]);
    assert_eq!(created, "5e0d5da5");
    // No later time gets into the image.
    let bounded = make("SOURCE_DATE_EPOCH", "1250000000");
    let [limit, earlier] = [hex(1_250_000_000), hex(1_200_000_000)];
    assert_eq!(bounded, [limit.clone(), earlier, limit.clone(), limit]);
}

#[test]
fn the_root_directory_has_the_label_and_permissions_of_the_options() {
    let scratch = Scratch::new();
    let (from, image) = (source(&scratch), scratch.join("disk.img"));
    let label = "root_selinux=system_u:object_r:root_t:s0,root_perms=0751";
    made(
        ours(&scratch)
            .args(["-q", "-t", "ext4", "-E", label, "-d"])
            .args([&from, &image])
            .arg("32M"),
    );
    e2fsck_fn(&image).unwrap();
    let attributes = debugfs(&image, "ea_list /").unwrap();
    assert!(attributes.contains("security.selinux"), "{attributes}");
    assert!(attributes.contains("system_u:object_r:root_t:s0"), "{attributes}");
    assert!(debugfs(&image, "stat /").unwrap().contains("Mode:  0751"));
}

#[test]
fn bytes_before_the_offset_stay() {
    let scratch = Scratch::new();
    let (from, image) = (source(&scratch), scratch.join("disk.img"));
    let before = vec![0xa5; 1 << 20];
    std::fs::write(&image, &before).unwrap();
    let mut command = ours(&scratch);
    command.args(["-q", "-t", "ext4", "-E", "offset=1048576", "-d"]).args([&from, &image]);
    made(command.arg("32M"));
    let bytes = std::fs::read(&image).unwrap();
    assert!(bytes[..1 << 20] == before[..]);
    let volume = scratch.join("volume.img");
    std::fs::write(&volume, &bytes[1 << 20..]).unwrap();
    e2fsck_fn(&volume).unwrap();
    assert_eq!(debugfs(&volume, "cat /dir/file").unwrap(), "contents\n");
}

#[test]
fn a_dry_run_writes_nothing_and_what_was_overwritten_is_put_back() {
    let scratch = Scratch::new();
    let (from, image, undo) = (source(&scratch), scratch.join("disk.img"), scratch.join("undo"));
    let before: Vec<u8> = (0..32 << 20).map(|at: u32| (at / 977) as u8).collect();
    std::fs::write(&image, &before).unwrap();
    let make = |more: &[&str]| {
        let mut command = ours(&scratch);
        command.args(["-F", "-t", "ext4"]).args(more).arg("-d").args([&from, &image]);
        made(&mut command)
    };
    let said = make(&["-n"]);
    assert!(text(&said).contains("Creating filesystem with "), "{}", text(&said));
    assert!(std::fs::read(&image).unwrap() == before);
    make(&["-q", "-z", undo.to_str().unwrap()]);
    e2fsck_fn(&image).unwrap();
    let extant =
        Command::new(env!("CARGO_BIN_EXE_extant")).arg("undo").args([&undo, &image]).output();
    let undone = extant.unwrap();
    assert!(undone.status.success(), "{}", text(&undone));
    assert!(std::fs::read(&image).unwrap() == before);
}

#[test]
fn a_tree_that_does_not_fit_leaves_what_was_there() {
    let scratch = Scratch::new();
    let (from, image) = (source(&scratch), scratch.join("disk.img"));
    for (more, why) in [
        (["-N", "16"], "too few inodes"),
        (["-b", "4096"], "the tree does not fit into 512 blocks of 4096 bytes"),
    ] {
        let mut command = ours(&scratch);
        command.args(["-q", "-F", "-t", "ext2"]).args(more).arg("-d").args([&from, &image]);
        let failed = command.arg("2M").output().unwrap();
        assert_eq!(failed.status.code(), Some(1), "{}", text(&failed));
        assert!(text(&failed).contains(why), "{}", text(&failed));
        assert!(!image.exists());
        std::fs::write(&image, vec![7; 2 << 20]).unwrap();
        let failed = command.output().unwrap();
        assert_eq!(failed.status.code(), Some(1), "{}", text(&failed));
        assert!(std::fs::read(&image).unwrap() == vec![7; 2 << 20]);
        std::fs::remove_file(&image).unwrap();
    }
}

#[test]
fn a_tar_on_standard_input_fills_the_volume() {
    let scratch = Scratch::new();
    let (from, image) = (source(&scratch), scratch.join("disk.img"));
    let tar = Command::new("tar").args(["-C", from.to_str().unwrap(), "-cf", "-", "."]).output();
    let tar = tar.unwrap().stdout;
    let mut command = ours(&scratch);
    command.args(["-q", "-t", "ext4", "-d", "-"]).arg(&image).arg("32M");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&tar).unwrap();
    assert!(child.wait().unwrap().success());
    e2fsck_fn(&image).unwrap();
    assert_eq!(debugfs(&image, "cat /dir/file").unwrap(), "contents\n");
}

#[test]
fn where_no_one_can_be_asked_mke2fs_overwrites_and_extant_does_not() {
    let scratch = Scratch::new();
    let (from, image) = (source(&scratch), scratch.join("disk.img"));
    let words = ["-q", "-t", "ext2", "-d", from.to_str().unwrap(), image.to_str().unwrap(), "16M"];
    made(ours(&scratch).args(words));
    let before = std::fs::read(&image).unwrap();
    let mut extant = Command::new(env!("CARGO_BIN_EXE_extant"));
    let refused = extant.arg("mkfs").args(words).stdin(Stdio::null()).output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused));
    assert!(text(&refused).contains("ext2 file system"), "{}", text(&refused));
    assert!(std::fs::read(&image).unwrap() == before);
    // Files would stay under a new superblock.
    let only = ours(&scratch).args(["-q", "-S"]).arg(&image).stdin(Stdio::null()).output().unwrap();
    assert_eq!(only.status.code(), Some(1), "{}", text(&only));
    assert!(std::fs::read(&image).unwrap() == before);
    made(ours(&scratch).args(words).stdin(Stdio::null()));
    assert!(std::fs::read(&image).unwrap() != before, "the UUID is another");
    e2fsck_fn(&image).unwrap();
}

/// Scripts look for options in the usage text.
#[test]
fn a_wrong_word_is_answered_by_the_usage_text() {
    let scratch = Scratch::new();
    let version = scratch.join("filefrag");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_extant"), &version).unwrap();
    let version = Command::new(&version).arg("-V").output().unwrap();
    assert!(version.stdout.starts_with(b"filefrag 1.47.4 (extant "), "{version:?}");
    std::fs::remove_file(scratch.join("filefrag")).unwrap();
    let rows: [(&str, &str, i32); 6] = [
        ("mkfs.ext4", "-h", 1),
        ("mkfs.ext3", "--help", 1),
        ("e2fsck", "-h", 16),
        ("tune2fs", "-h", 1),
        ("dumpe2fs", "-y", 1),
        ("filefrag", "-h", 1),
    ];
    for (name, word, code) in rows {
        let link = scratch.join(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_extant"), &link).unwrap();
        let output = Command::new(&link).arg(word).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{name}: {}", text(&output));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(&format!("Usage: {name} [-")), "{said}");
        assert_eq!(
            said.contains("[-d root-directory|tarball]"),
            name.starts_with("mkfs"),
            "{said}"
        );
    }
}
