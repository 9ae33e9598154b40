//! Repairs next to e2fsck: copies of one damaged volume are repaired by both, from a warm cache,
//! and each result is checked by the other.

mod kinds;
mod volume;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use extant_testkit::{Tool, tool};

use super::cases::must;
use super::table::{Table, skipped};
use super::{Setting, median_of};
use crate::Failure;
use kinds::{KINDS, Kind};
use volume::Volume;

pub(super) const NAME: (&str, &str) =
    ("repair-kinds", "repair of 200,000 files, one kind of damage at a time");

/// Small files, in directories of [`PER_DIRECTORY`], and those of the large directories.
const SMALL: u64 = 120_000;
const PER_DIRECTORY: u64 = 64;
const LARGE: u64 = 80_000;
const LARGE_DIRECTORIES: u64 = 20;
/// Files of sixteen blocks, files of eight extents, files with a block of attributes.
const LONG: u64 = 4_000;
const SPARSE: u64 = 2_000;
const ATTRIBUTED: u64 = 4_000;
/// Inodes and bytes of the volume.
const INODES: u64 = 300_000;
const BYTES: u64 = 3 << 30;
/// Seconds that a repair may take.
const LIMIT: u32 = 600;
/// The most rounds that a repair should need.
const ROUNDS_BAR: u64 = 2;

const COLUMNS: [&str; 9] = [
    "damage",
    "damaged",
    "ours, s",
    "e2fsck, s",
    "ours / e2fsck",
    "rounds of ours",
    "exit codes, ours / e2fsck",
    "ours left, by e2fsck -fn / e2fsck's left, by ours",
    "bar: not slower, two rounds",
];

/// Runs the case if it is wanted, and prints its table.
pub(super) fn run(
    setting: &Setting,
    wanted: &[String],
    rounds: usize,
) -> Result<Option<Table>, Failure> {
    if !wanted.is_empty() && !wanted.iter().any(|name| name == NAME.0) {
        return Ok(None);
    }
    let mut table = Table::new(&COLUMNS);
    if let Err(why) = fill(setting, rounds, &mut table) {
        table.add(skipped(NAME.0, &why));
    }
    Ok(Some(table))
}

fn fill(setting: &Setting, rounds: usize, table: &mut Table) -> Result<(), Failure> {
    let e2fsck = tool("e2fsck").ok_or("e2fsck is not installed")?;
    eprintln!("{}: preparing", NAME.0);
    let sound = sound(setting)?;
    let [damaged, work] =
        ["damaged", "work"].map(|name| setting.dir.join(name).with_extension("img"));
    for kind in &KINDS {
        copy(&sound, &damaged)?;
        let count = (kind.damage)(&mut Volume::open(&damaged)?)?;
        let compared = compare(kind, count, (setting, &e2fsck), (&damaged, &work), rounds);
        table.add(compared.unwrap_or_else(|why| skipped(kind.name, &why)));
    }
    [sound, damaged, work].iter().try_for_each(fs::remove_file)?;
    Ok(())
}

/// One kind of damage, repaired by both in turn.
fn compare(
    kind: &Kind,
    count: usize,
    (setting, e2fsck): (&Setting, &Tool),
    (damaged, work): (&Path, &Path),
    rounds: usize,
) -> Result<Vec<String>, Failure> {
    let ours = |options: &[&str]| {
        let mut command = Command::new(&setting.extant);
        command.args(["fsck", "--threads", "2"]).args(options);
        command
    };
    let theirs = |option: &str| {
        let mut command = e2fsck.command_within(LIMIT);
        command.arg(option);
        command
    };
    let mut times = [Vec::new(), Vec::new()];
    let mut codes = [0, 0];
    let mut left = [0, 0];
    for round in 0..rounds {
        for side in [round % 2, 1 - round % 2] {
            copy(damaged, work)?;
            rustix::fs::sync();
            let mut command = if side == 0 { ours(&["-fy"]) } else { theirs("-fy") };
            let started = Instant::now();
            codes[side] = exit_code(command.arg(work))?;
            times[side].push(started.elapsed().as_secs_f64());
            if round == 0 {
                let mut other = if side == 0 { theirs("-fn") } else { ours(&["-fn"]) };
                left[side] = exit_code(other.arg(work))?;
            }
        }
    }
    copy(damaged, work)?;
    let said = ours(&["-fy", "--json"]).arg(work).stderr(Stdio::null()).output()?;
    let document: serde_json::Value = serde_json::from_slice(&said.stdout)?;
    let repairs = document["rounds"].as_u64().ok_or("fsck --json shows no rounds")?;
    let [ours, theirs] = times.map(median_of);
    let is_met = ours <= theirs && repairs <= ROUNDS_BAR;
    Ok(vec![
        kind.name.to_owned(),
        count.to_string(),
        format!("{ours:.2}"),
        format!("{theirs:.2}"),
        format!("{:.2}", ours / theirs),
        repairs.to_string(),
        format!("{} / {}", codes[0], codes[1]),
        format!("{} / {}", left[0], left[1]),
        if is_met { "met" } else { "missed" }.to_owned(),
    ])
}

/// Runs a command without its output; its exit code.
fn exit_code(command: &mut Command) -> Result<i32, Failure> {
    let status =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    status.code().ok_or_else(|| format!("{command:?}: {status}").into())
}

fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    must(Command::new("cp").arg("--sparse=always").arg(from).arg(to))
}

/// The volume before it is damaged.
fn sound(setting: &Setting) -> Result<PathBuf, Failure> {
    let (tree, image) = (setting.dir.join("repair"), setting.dir.join("repair.img"));
    write_tree(&tree, setting.shrink)?;
    let inodes = (INODES / setting.shrink).max(1024).to_string();
    let size = format!("{}k", (BYTES / setting.shrink).max(64 << 20) / 1024);
    let options = ["build", "--size", &size, "-N", &inodes, "-o"];
    must(Command::new(&setting.extant).args(options).arg(&image).arg(&tree))?;
    fs::remove_dir_all(tree)?;
    Ok(image)
}

fn write_tree(tree: &Path, shrink: u64) -> Result<(), Failure> {
    let write = |dir: &Path, name: u64| -> Result<(), Failure> {
        let path = dir.join(format!("file-{name:07}"));
        let line: &[u8] = if name.is_multiple_of(4) { b"a line of text\n" } else { b"" };
        Ok(fs::write(path, line)?)
    };
    for number in 0..SMALL / PER_DIRECTORY / shrink {
        let dir = tree.join(format!("{:02}/{number:05}", number % 50));
        fs::create_dir_all(&dir)?;
        let first = number * PER_DIRECTORY;
        (first..first + PER_DIRECTORY).try_for_each(|name| write(&dir, name))?;
    }
    for number in 0..LARGE_DIRECTORIES {
        let dir = tree.join(format!("large/{number}"));
        fs::create_dir_all(&dir)?;
        (0..LARGE / LARGE_DIRECTORIES / shrink).try_for_each(|name| write(&dir, name))?;
    }
    for kind in ["long", "sparse", "attributed"] {
        fs::create_dir_all(tree.join(kind))?;
    }
    let block = [b'x'; volume::BLOCK];
    for number in 0..LONG / shrink {
        fs::write(tree.join(format!("long/{number}")), block.repeat(16))?;
    }
    for number in 0..SPARSE / shrink {
        let file = File::create(tree.join(format!("sparse/{number}")))?;
        (0..8).try_for_each(|at| file.write_all_at(&block, at * 16 * block.len() as u64))?;
    }
    for number in 0..ATTRIBUTED / shrink {
        let path = tree.join(format!("attributed/{number}"));
        fs::write(&path, "")?;
        let value = format!("{number:0600}");
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&path, "user.text", value.as_bytes(), flags)?;
    }
    Ok(())
}
