//! Programs of Debian that call e2fsprogs, with our links first in PATH: each ends as with
//! e2fsprogs, and the volumes hold the same trees and features.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

use extant_testkit::{
    LoopDevice, LoopMount, Scratch, TreeSnapshot, assert_same_tree, dumpe2fs_h, e2fsck_fn, is_root,
    skip, tool,
};

/// Fields of `dumpe2fs -h` that must be equal. The others depend on the moment, or on where blocks
/// are allocated.
const FIELDS: [&str; 12] = [
    "Filesystem volume name",
    "Filesystem state",
    "Filesystem features",
    "Default mount options",
    "Block count",
    "Block size",
    "Blocks per group",
    "Inode count",
    "Inode size",
    "Free inodes",
    "Reserved block count",
    "Maximum mount count",
];

/// A needed program that is missing, or root.
fn missing(programs: &[&str]) -> Option<String> {
    if !is_root() {
        return Some("root is needed".into());
    }
    let of_e2fsprogs = ["mke2fs", "e2fsck", "dumpe2fs"];
    let absent = programs.iter().chain(&of_e2fsprogs).find(|name| tool(name).is_none())?;
    Some(format!("{absent} is not installed"))
}

/// systemd-repart keeps a copy of all mounts while it works: a device that another test has
/// unmounted would be busy.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A root directory as image builders have it.
fn source(scratch: &Scratch) -> PathBuf {
    let root = scratch.join("source");
    fs::create_dir_all(root.join("etc/conf.d")).unwrap();
    fs::create_dir_all(root.join("usr/bin")).unwrap();
    fs::write(root.join("etc/hostname"), "target\n").unwrap();
    fs::hard_link(root.join("etc/hostname"), root.join("etc/mailname")).unwrap();
    fs::write(root.join("usr/bin/sudo"), vec![7; 300_000]).unwrap();
    fs::set_permissions(root.join("usr/bin/sudo"), PermissionsExt::from_mode(0o4755)).unwrap();
    chown(root.join("etc/conf.d"), Some(1000), Some(100)).unwrap();
    symlink("usr/bin", root.join("bin")).unwrap();
    for number in 0..200 {
        let name = format!("etc/conf.d/{number:03}-a-name-of-some-length");
        fs::write(root.join(name), vec![b'x'; number * 20]).unwrap();
    }
    root
}

/// The second it is.
fn now() -> i64 {
    UNIX_EPOCH.elapsed().unwrap().as_secs() as i64
}

/// Runs a script in a new directory, with our links before everything else in PATH or without
/// them; the directory.
fn run(scratch: &Scratch, side: &str, script: &str, words: &[&Path]) -> PathBuf {
    let (directory, links) = (scratch.join(side), scratch.join("links"));
    fs::create_dir(&directory).unwrap();
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    // Where e2fsprogs lies, for an ordinary user's PATH too.
    path.push(":/usr/sbin:/sbin");
    if side == "ours" {
        fs::create_dir(&links).unwrap();
        let mut install = Command::new(env!("CARGO_BIN_EXE_extant"));
        let made = install.arg("install-links").arg(&links).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        path = [links.as_os_str(), &path].join(":".as_ref());
    }
    let mut shell = Command::new("sh");
    shell.args(["-euc", script, "sh"]).args(words).current_dir(&directory);
    shell.env("PATH", path).env("LC_ALL", "C").stdin(Stdio::null());
    let output = shell.output().unwrap();
    let said = [&output.stdout[..], &output.stderr].concat();
    assert!(output.status.success(), "{side}: {}", String::from_utf8_lossy(&said));
    directory
}

/// A volume's tree as the kernel reads it, which e2fsck has found sound. `began` is the second
/// in which the first volume was begun.
fn tree(image: &Path, began: i64) -> TreeSnapshot {
    e2fsck_fn(image).unwrap_or_else(|found| panic!("{}: {found}", image.display()));
    let mount = LoopMount::new(image, "ro,noload").expect("the kernel mounts it");
    let tree = TreeSnapshot::of_dir(mount.path()).expect("it can be read");
    // By mke2fs -d files have whole seconds; lost+found has the time of the making, and so has a
    // root that the making has made.
    let mut tree = tree.map(|entry| entry.mtime.1 = 0);
    for made in [&b""[..], b"lost+found"] {
        let entry = tree.entries.get_mut(made);
        if let Some(entry) = entry.filter(|entry| entry.mtime.0 >= began) {
            entry.mtime = (0, 0);
        }
    }
    tree
}

fn assert_alike(ours: &Path, theirs: &Path, began: i64) {
    assert_same_tree(&tree(theirs, began), &tree(ours, began));
    let [ours, theirs] = [ours, theirs].map(|image| dumpe2fs_h(image).expect("dumpe2fs reads it"));
    for field in FIELDS {
        assert_eq!(ours.get(field), theirs.get(field), "{field}");
    }
}

/// mke2fs -d, e2fsck -pvfD, and debugfs with a script on its standard input.
#[test]
fn genimage_makes_the_same_volumes() {
    if let Some(why) = missing(&["genimage"]) {
        skip!("{why}");
    }
    let _turn = turn();
    let scratch = Scratch::new();
    let root = source(&scratch);
    let began = now();
    let script = r#"
        cat > config <<'END'
            image root.ext4 {
                ext4 {
                    label = "root"
                    use-mke2fs = true
                    features = "^metadata_csum"
                    extraargs = "-b 1024 -O ^has_journal"
                    fs-timestamp = "20240101000000"
                }
                size = 32M
            }
            image etc.ext2 {
                ext2 { use-mke2fs = true }
                mountpoint = "/etc"
                size = 16M
            }
            image disk.img {
                hdimage { partition-table-type = gpt }
                partition root { image = "root.ext4" partition-type-uuid = L }
                partition etc { image = "etc.ext2" partition-type-uuid = L }
            }
END
        mkdir input
        genimage --config config --rootpath "$1" --tmppath temporary --inputpath input --outputpath .
    "#;
    let [ours, theirs] = ["ours", "theirs"].map(|side| run(&scratch, side, script, &[&root]));
    for image in ["root.ext4", "etc.ext2"] {
        assert_alike(&ours.join(image), &theirs.join(image), began);
    }
    let size = |side: &Path| fs::metadata(side.join("disk.img")).unwrap().len();
    assert_eq!(size(&ours), size(&theirs));
}

/// mke2fs -V, mke2fs with all features named, and tune2fs, on a block device.
#[test]
fn fsarchiver_restores_the_same_volume() {
    if let Some(why) = missing(&["fsarchiver", "mkfs"]) {
        skip!("{why}");
    }
    let _turn = turn();
    let scratch = Scratch::new();
    let root = source(&scratch);
    let began = now();
    let script = r#"
        mkfs -t ext4 -q -F -L restored "$1"
        mkdir mount
        mount "$1" mount
        cp -a "$2"/. mount
        umount mount
        fsarchiver savefs archive.fsa "$1"
        dd if=/dev/zero of="$1" bs=1M count=8 conv=notrunc status=none
        fsarchiver restfs archive.fsa id=0,dest="$1"
        mount "$1" mount
        touch -d 2024-01-01 mount mount/lost+found
        umount mount
        fsck -t ext4 "$1" -- -fn
    "#;
    let made = ["ours", "theirs"].map(|side| {
        let image = scratch.join(format!("{side}.img"));
        fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let device = LoopDevice::new(&image)?;
        run(&scratch, side, script, &[device.path(), &root]);
        Ok::<_, String>(image)
    });
    match made {
        [Ok(ours), Ok(theirs)] => assert_alike(&ours, &theirs, began),
        [Err(why), _] | [_, Err(why)] => skip!("{why}"),
    }
}

/// mkfs.ext4 with a UUID, on a part of an image file; the files come by a mount of the kernel.
#[test]
fn systemd_repart_makes_the_same_volume() {
    if let Some(why) = missing(&["systemd-repart", "mkfs"]) {
        skip!("{why}");
    }
    let _turn = turn();
    let scratch = Scratch::new();
    let root = source(&scratch);
    let began = now();
    let script = r#"
        mkdir definitions
        cat > definitions/root.conf <<END
[Partition]
Type=root
Format=ext4
CopyFiles=$1:/
SizeMinBytes=64M
SizeMaxBytes=64M
END
        systemd-repart --definitions=definitions --empty=create --size=100M --dry-run=no \
            --seed=e5dd3f97c32c4a89aa0e8faf43b014c5 disk.img
        dd if=disk.img of=root.ext4 bs=1M skip=1 count=64 conv=sparse status=none
    "#;
    let [ours, theirs] = ["ours", "theirs"].map(|side| run(&scratch, side, script, &[&root]));
    assert_alike(&ours.join("root.ext4"), &theirs.join("root.ext4"), began);
}

/// A root directory that mmdebstrap has unpacked, which needs a mirror of Debian's packages.
#[test]
fn mke2fs_d_takes_what_mmdebstrap_makes() {
    if std::env::var_os("EXTANT_SLOW").is_none() {
        skip!("it loads packages of Debian; set EXTANT_SLOW=1");
    }
    if let Some(why) = missing(&["mmdebstrap"]) {
        skip!("{why}");
    }
    let _turn = turn();
    let scratch = Scratch::new();
    let root = scratch.join("root");
    let mut bootstrap = tool("mmdebstrap").expect("looked for before").command_within(600);
    // The mirror may be an old copy.
    let old = r#"--aptopt=Acquire::Check-Valid-Until "false""#;
    let said = bootstrap.args(["--variant=essential", old, "stable"]).arg(&root).output().unwrap();
    if !said.status.success() {
        skip!("mmdebstrap: {}", String::from_utf8_lossy(&said.stderr));
    }
    let began = now();
    let script = r#"
        mke2fs -q -t ext4 -d "$1" root.ext4 1G
        e2fsck -fp root.ext4
    "#;
    let [ours, theirs] = ["ours", "theirs"].map(|side| run(&scratch, side, script, &[&root]));
    assert_alike(&ours.join("root.ext4"), &theirs.join("root.ext4"), began);
}
