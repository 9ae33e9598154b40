//! Contents of files: documents 001 and 003 at a scale that fits, each side driven by compiled code
//! and timed until everything is on the disk.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use extant_testkit::{LoopMount, is_root, tool};

use super::cases::{must, pair};
use super::run::{Side, Step};
use super::{Case, Pair, Setting};
use crate::{Failure, machine};

/// Writers at once (document 003), and bytes of each one's file.
const WRITERS: u64 = 128;
const FILE: u64 = 256 << 20;
/// Bytes that are read in sequence.
const SEQUENCE: u64 = 8 << 30;
/// Document 001: directories, files in each, bytes of each.
const DIRS: u64 = 14;
const FILES: u64 = 10;
const LARGE: u64 = 100 << 20;

/// The cases, in the order of docs/src/performance/results.md.
pub(super) fn all() -> Vec<Case> {
    let case = |name, what, peer, bar, prepare: fn(&Setting) -> Result<Pair, Failure>| {
        let prepare = Box::new(prepare);
        Case { name, what, peer, bar, prepare }
    };
    let tenth_less = Some(1.0 / 0.9);
    let mut cases = vec![
        case("writers-128", "128 writers, 64 KiB writes", "pwrite + fsync", tenth_less, writers),
        case("writers-128-loop", "128 writers, 64 KiB writes", "kernel ext4", None, writers_loop),
        case("read-sequential", "one file read in sequence", "pread", tenth_less, read_sequential),
        case("remove-extents", "140 files removed", "indirect blocks", Some(0.2), remove_extents),
    ];
    // Document 001's eight configurations, in its order.
    cases.extend([
        low("low-memory-1", false, |setting| low_memory(setting, ORDERED, "")),
        low("low-memory-2", false, |setting| low_memory(setting, ORDERED, EXTENTS)),
        low("low-memory-3", true, |setting| low_memory(setting, ORDERED_DELAYED, EXTENTS)),
        low("low-memory-4", false, |setting| low_memory(setting, ORDERED_MB, EXTENTS)),
        low("low-memory-5", false, |setting| low_memory(setting, WRITEBACK, "")),
        low("low-memory-6", false, |setting| low_memory(setting, WRITEBACK, EXTENTS)),
        low("low-memory-7", true, |setting| low_memory(setting, WRITEBACK_DELAYED, EXTENTS)),
        low("low-memory-8", false, |setting| low_memory(setting, WRITEBACK_MB, EXTENTS)),
    ]);
    cases
}

const EXTENTS: &str = "extents";
const ORDERED: &str = "data=ordered,nodelalloc,nomballoc";
const ORDERED_MB: &str = "data=ordered,nodelalloc,mballoc";
const ORDERED_DELAYED: &str = "data=ordered,delalloc,mballoc";
const WRITEBACK: &str = "data=writeback,nodelalloc,nomballoc";
const WRITEBACK_MB: &str = "data=writeback,nodelalloc,mballoc";
const WRITEBACK_DELAYED: &str = "data=writeback,delalloc,mballoc";

/// A configuration of document 001; delayed allocation loses at most a tenth under the limit.
fn low(
    name: &'static str,
    is_delayed: bool,
    prepare: fn(&Setting) -> Result<Pair, Failure>,
) -> Case {
    let bar = is_delayed.then_some(1.1);
    Case {
        name,
        what: "140 files written in 64 MiB",
        peer: "without a limit",
        bar,
        prepare: Box::new(prepare),
    }
}

fn driver() -> Result<PathBuf, Failure> {
    machine::release_example("extant-engine", "contents")
}

fn path_of(value: impl ToString) -> PathBuf {
    PathBuf::from(value.to_string())
}

/// A side on a fresh volume in an image.
fn on_volume(
    image: &Path,
    size: u64,
    features: &[&str],
    script: &'static str,
    args: &[&Path],
) -> Result<Side, Failure> {
    let mke2fs = tool("mke2fs").ok_or("mke2fs is not installed")?;
    let features = path_of(features.join(","));
    let mut side = Side::of(script, args, Some(image));
    side.sparse = Some(size);
    side.before = vec![Step::of(
        r#"exec "$1" -q -F -t ext4 -O "$3" "$2""#,
        &[mke2fs.path(), image, &features],
    )];
    Ok(side)
}

/// Our 128 writers, on a fresh volume.
fn our_writers(setting: &Setting, driver: &Path) -> Result<(Side, String), Failure> {
    let bytes = (FILE / setting.shrink).max(1 << 20);
    let image = setting.dir.join("writers.img");
    let args = [driver, &image, &path_of(WRITERS), &path_of(bytes), Path::new("memory=512")];
    let script = r#"exec "$1" write volume "$2" "$3" "$4" "$5""#;
    let size = WRITERS * bytes / 4 * 5 + (512 << 20);
    let side = on_volume(&image, size, &["extents"], script, &args)?;
    Ok((side, format!("{WRITERS} files of {} MiB", bytes >> 20)))
}

fn writers(setting: &Setting) -> Result<Pair, Failure> {
    let driver = driver()?;
    let (ours, input) = our_writers(setting, &driver)?;
    let bytes = (FILE / setting.shrink).max(1 << 20);
    let dir = setting.dir.join("writers");
    let args = [&driver, &dir, &path_of(WRITERS), &path_of(bytes)];
    let args = args.map(PathBuf::as_path);
    let mut theirs = Side::of(r#"exec "$1" write directory "$2" "$3" "$4""#, &args, None);
    theirs.before = vec![Step::of(r#"rm -rf "$1" && mkdir "$1""#, &[&dir])];
    Ok(pair(ours, Some(theirs), input))
}

fn writers_loop(setting: &Setting) -> Result<Pair, Failure> {
    if !is_root() {
        return Err("a loop mount needs root".into());
    }
    let driver = driver()?;
    let (ours, input) = our_writers(setting, &driver)?;
    let bytes = (FILE / setting.shrink).max(1 << 20);
    let mke2fs = tool("mke2fs").ok_or("mke2fs is not installed")?;
    let image = setting.dir.join("kernel-writers.img");
    File::create(&image)?.set_len(WRITERS * bytes / 4 * 5 + (512 << 20))?;
    must(Command::new(mke2fs.path()).args(["-q", "-F", "-t", "ext4"]).arg(&image))?;
    let mount = LoopMount::new(&image, "noatime")?;
    let dir = mount.path().to_owned();
    let args = [&driver, &dir, &path_of(WRITERS), &path_of(bytes)];
    let args = args.map(PathBuf::as_path);
    let mut theirs = Side::of(r#"exec "$1" write directory "$2" "$3" "$4""#, &args, None);
    theirs.before = vec![Step::of(r#"rm -f "$1"/file*; sync"#, &[&dir])];
    let mut pair = pair(ours, Some(theirs), input);
    pair._held.push(Box::new(mount));
    Ok(pair)
}

fn read_sequential(setting: &Setting) -> Result<Pair, Failure> {
    let driver = driver()?;
    let bytes = (SEQUENCE / setting.shrink).max(16 << 20);
    let (image, dir) = (setting.dir.join("read.img"), setting.dir.join("read"));
    File::create(&image)?.set_len(bytes / 4 * 5 + (512 << 20))?;
    std::fs::create_dir_all(&dir)?;
    let mke2fs = tool("mke2fs").ok_or("mke2fs is not installed")?;
    must(Command::new(mke2fs.path()).args(["-q", "-F", "-t", "ext4"]).arg(&image))?;
    let size = bytes.to_string();
    must(
        Command::new(&driver).args(["write", "volume"]).arg(&image).args(["1", &size, "defaults"]),
    )?;
    must(Command::new(&driver).args(["write", "directory"]).arg(&dir).args(["1", &size]))?;
    let file = dir.join("file0000");
    let forget =
        |path: &Path| vec![Step::of(r#"dd if="$1" iflag=nocache count=0 status=none"#, &[path])];
    let script = r#"exec "$1" read volume "$2" defaults"#;
    let mut ours = Side::of(script, &[&driver, &image], None);
    ours.before = forget(&image);
    let mut theirs = Side::of(r#"exec "$1" read file "$2""#, &[&driver, &file], None);
    theirs.before = forget(&file);
    Ok(pair(ours, Some(theirs), format!("{} MiB", bytes >> 20)))
}

/// The files of document 001, on a volume with extents or without.
fn tree(
    setting: &Setting,
    name: &str,
    options: &str,
    extents: &str,
) -> Result<(Side, PathBuf), Failure> {
    let bytes = (LARGE / setting.shrink).max(1 << 20);
    let image = setting.dir.join(name);
    let size = DIRS * FILES * bytes / 4 * 5 + (512 << 20);
    let features: &[&str] = if extents == EXTENTS { &["extents"] } else { &["^extents", "^64bit"] };
    let counts = [DIRS, FILES, bytes].map(path_of);
    let driver = driver()?;
    let options = path_of(options);
    let args = [&driver, &image, &counts[0], &counts[1], &counts[2], &options];
    let args = args.map(PathBuf::as_path);
    let script = r#"exec "$1" tree "$2" "$3" "$4" "$5" "$6""#;
    Ok((on_volume(&image, size, features, script, &args)?, image))
}

fn low_memory(setting: &Setting, options: &str, extents: &str) -> Result<Pair, Failure> {
    let (ours, _) = tree(setting, "low.img", &format!("{options},memory=64"), extents)?;
    let (theirs, _) = tree(setting, "ample.img", &format!("{options},memory=1024"), extents)?;
    let input = format!("{options}{}", if extents == EXTENTS { ",extents" } else { "" });
    Ok(pair(ours, Some(theirs), input))
}

fn remove_extents(setting: &Setting) -> Result<Pair, Failure> {
    let driver = driver()?;
    let side = |name, extents| -> Result<Side, Failure> {
        let (mut side, image) = tree(setting, name, "memory=64", extents)?;
        // The files written are removed on the clock.
        side.before.append(&mut side.steps);
        side.steps = vec![Step::of(r#"exec "$1" remove "$2" memory=64"#, &[&driver, &image])];
        side.is_reported = true;
        Ok(side)
    };
    let bytes = (LARGE / setting.shrink).max(1 << 20);
    let input = format!("{} files of {} MiB", DIRS * FILES, bytes >> 20);
    Ok(pair(side("extents.img", EXTENTS)?, Some(side("indirect.img", "")?), input))
}
