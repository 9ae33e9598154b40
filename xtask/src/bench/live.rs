//! The live volume in process next to the kernel's ext4 on a loop mount and to fuse2fs: calls
//! on names, each side driven by compiled code and timed until everything is on the disk.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use extant_testkit::{LoopMount, Scratch, is_root, tool};

use super::cases::{must, pair};
use super::run::{Side, Step};
use super::{Case, Pair, Setting};
use crate::Failure;

/// Files of a case, a thousand in each directory.
const FILES: u64 = 1_000_000;
/// Inodes of the volumes.
const INODES: &str = "1200000";
/// Bytes of the volumes.
const VOLUME: u64 = 4 << 30;

/// The cases, in the order of docs/src/performance/results.md.
pub(super) fn all() -> Vec<Case> {
    type Prepared = fn(&Setting) -> Result<Pair, Failure>;
    let case = |name, what, peer, prepare: Prepared| {
        let prepare = Box::new(prepare);
        Case { name, what, peer, bar: None, prepare }
    };
    let bounded = |name, what, bar, prepare: Prepared| {
        let prepare = Box::new(prepare);
        Case { name, what, peer: "kernel ext4", bar: Some(bar), prepare }
    };
    let two = |name, what, bar, prepare: Prepared| {
        let prepare = Box::new(prepare);
        Case { name, what, peer: "one caller", bar: Some(bar), prepare }
    };
    vec![
        bounded("creates", "empty files made", 0.2, |setting| kernel(setting, "create")),
        bounded("links", "hard links made", 0.2, |setting| kernel(setting, "link")),
        case("renames", "files renamed", "kernel ext4", |setting| kernel(setting, "rename")),
        bounded("unlinks", "files removed", 0.25, |setting| kernel(setting, "unlink")),
        case("creates-fuse2fs", "empty files made", "fuse2fs", |setting| {
            fuse2fs(setting, "create")
        }),
        case("links-fuse2fs", "hard links made", "fuse2fs", |setting| fuse2fs(setting, "link")),
        case("renames-fuse2fs", "files renamed", "fuse2fs", |setting| fuse2fs(setting, "rename")),
        case("unlinks-fuse2fs", "files removed", "fuse2fs", |setting| fuse2fs(setting, "unlink")),
        two("callers-2", "two callers, empty files made", 1.0 / 1.5, |setting| {
            callers(setting, "volume")
        }),
        two("callers-2-memory", "the same in memory, no journal", 1.0 / 1.7, |setting| {
            callers(setting, "memory")
        }),
        case("mount-16t", "a volume of 16 TiB opened for changes", "a bar of 0.05 s", mount_16t),
    ]
}

fn count(setting: &Setting) -> u64 {
    FILES / setting.shrink
}

/// Our side: a fresh volume, filled as the calls need it, then the calls.
fn ours(setting: &Setting, driver: &Path, call: &str) -> Result<Side, Failure> {
    let mke2fs = tool("mke2fs").ok_or("mke2fs is not installed")?;
    let image = setting.dir.join("live.img");
    let (call, count) = (PathBuf::from(call), PathBuf::from(count(setting).to_string()));
    let args = [driver, &image, &call, &count];
    let mut side = Side::of(r#"exec "$1" volume "$2" "$3" "$4""#, &args, Some(&image));
    side.sparse = Some(VOLUME);
    side.before = vec![
        Step::of(
            r#"exec "$1" -q -F -t ext4 -N "$3" "$2""#,
            &[mke2fs.path(), &image, Path::new(INODES)],
        ),
        Step::of(r#"exec "$1" prepare-volume "$2" "$3" "$4""#, &args),
    ];
    Ok(side)
}

/// The peer's side: the same calls on a mounted directory.
fn mounted(setting: &Setting, driver: &Path, root: &Path, call: &str) -> Side {
    let (call, count) = (PathBuf::from(call), PathBuf::from(count(setting).to_string()));
    let args = [driver, root, &call, &count];
    let mut side = Side::of(r#"exec "$1" directory "$2" "$3" "$4""#, &args, None);
    side.before = vec![Step::of(r#"exec "$1" prepare-directory "$2" "$3" "$4""#, &args)];
    side
}

fn volume_for_the_peer(setting: &Setting, name: &str) -> Result<PathBuf, Failure> {
    let mke2fs = tool("mke2fs").ok_or("mke2fs is not installed")?;
    let image = setting.dir.join(name);
    File::create(&image)?.set_len(VOLUME)?;
    let options = ["-q", "-F", "-t", "ext4", "-N", INODES];
    must(Command::new(mke2fs.path()).args(options).arg(&image))?;
    Ok(image)
}

fn kernel(setting: &Setting, call: &str) -> Result<Pair, Failure> {
    if !is_root() {
        return Err("a loop mount needs root".into());
    }
    let driver = setting.name_calls()?;
    let image = volume_for_the_peer(setting, "kernel.img")?;
    let mount = LoopMount::new(&image, "noatime")?;
    let theirs = mounted(setting, &driver, mount.path(), call);
    let mut pair =
        pair(ours(setting, &driver, call)?, Some(theirs), format!("{} files", count(setting)));
    pair._held.push(Box::new(mount));
    Ok(pair)
}

/// A fuse2fs mount, taken down when dropped.
struct FuseMount(Scratch);

impl Drop for FuseMount {
    fn drop(&mut self) {
        let done = Command::new("umount").arg(self.0.path()).status();
        if !done.is_ok_and(|status| status.success()) {
            eprintln!("umount {} failed", self.0.path().display());
        }
    }
}

fn fuse2fs(setting: &Setting, call: &str) -> Result<Pair, Failure> {
    if !is_root() {
        return Err("the mount is made as root".into());
    }
    let fuse2fs = tool("fuse2fs").ok_or("fuse2fs is not installed")?;
    let driver = setting.name_calls()?;
    let image = volume_for_the_peer(setting, "fuse2fs.img")?;
    let mount = FuseMount(Scratch::new());
    must(Command::new(fuse2fs.path()).args(["-o", "rw,fakeroot"]).arg(&image).arg(mount.0.path()))?;
    // It serves a tenth: the whole would take minutes.
    let setting = Setting {
        extant: setting.extant.clone(),
        dir: setting.dir.clone(),
        programs: setting.programs.clone(),
        tree: None,
        shrink: setting.shrink * 10,
    };
    let theirs = mounted(&setting, &driver, mount.0.path(), call);
    let ours = ours(&setting, &driver, call)?;
    let mut pair = pair(ours, Some(theirs), format!("{} files", count(&setting)));
    pair._held.push(Box::new(mount));
    Ok(pair)
}

/// Two callers that share the calls, compared with one that makes all of them.
fn callers(setting: &Setting, on: &str) -> Result<Pair, Failure> {
    let mke2fs = tool("mke2fs").ok_or("mke2fs is not installed")?;
    let driver = setting.name_calls()?;
    let count = PathBuf::from(count(setting).to_string());
    let side = |callers: &str| {
        let image = setting.dir.join(format!("callers-{callers}.img"));
        let [on, callers] = [on, callers].map(PathBuf::from);
        let args = [&driver, &image, &on, &count, &callers].map(PathBuf::as_path);
        let mut side = Side::of(r#"exec "$1" "$3" "$2" create "$4" "$5""#, &args, Some(&image));
        side.sparse = Some(VOLUME);
        let format = match args[2] == Path::new("memory") {
            true => r#"exec "$1" -q -F -t ext4 -O ^has_journal -N "$3" "$2""#,
            false => r#"exec "$1" -q -F -t ext4 -N "$3" "$2""#,
        };
        side.before = vec![
            Step::of(format, &[mke2fs.path(), &image, Path::new(INODES)]),
            Step::of(r#"exec "$1" prepare-volume "$2" create "$4""#, &args),
        ];
        side.is_reported = true;
        side
    };
    Ok(pair(side("2"), Some(side("1")), format!("{} files", count.display())))
}

/// Opened, its first file made, and closed: all of it within the bar.
fn mount_16t(setting: &Setting) -> Result<Pair, Failure> {
    let driver = setting.name_calls()?;
    let (mount, image) = huge_volume(setting, "host-live.xfs")?;
    let side = Side::of(r#"exec "$1" open-volume "$2""#, &[&driver, &image], None);
    let mut pair =
        pair(side, None, format!("{} GiB, with a first file made", (16 << 10) / setting.shrink));
    pair._held.push(Box::new(mount));
    Ok(pair)
}

/// A volume of 16 TiB, sparse, on XFS in a loop file of this name: other file systems have no files
/// so large.
pub(super) fn huge_volume(setting: &Setting, host: &str) -> Result<(LoopMount, PathBuf), Failure> {
    if !is_root() {
        return Err("a loop mount needs root".into());
    }
    let mke2fs = tool("mke2fs").ok_or("mke2fs is not installed")?;
    let mkfs_xfs = tool("mkfs.xfs").ok_or("mkfs.xfs is not installed")?;
    let host = setting.dir.join(host);
    File::create(&host)?.set_len(40 << 30)?;
    must(Command::new(mkfs_xfs.path()).arg("-q").arg("-f").arg(&host))?;
    let mount = LoopMount::of_type("xfs", &host, "")?;
    let image = mount.path().join("volume.img");
    File::create(&image)?.set_len((16 << 40) / setting.shrink)?;
    must(Command::new(mke2fs.path()).args(["-q", "-F", "-t", "ext4"]).arg(&image))?;
    File::open(&image)?.sync_all()?;
    Ok((mount, image))
}
