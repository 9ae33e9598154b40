//! Checking next to e2fsck: both read the same image, write nothing and must find nothing.
//!
//! A case is a volume. It is checked warm and cold, with two threads and with one; each measurement
//! is a pair in the same run.

use std::fs::File;
use std::io::{BufWriter, Seek, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use extant_testkit::tool;

use super::cases::{must, usr_like, ustar_header, write_pool};
use super::run::{Measurement, Side, Step};
use super::table::{Table, skipped};
use super::{Setting, median, median_cpu, median_of};
use crate::Failure;

/// A volume to check.
struct Volume {
    name: &'static str,
    what: &'static str,
    /// Makes the image.
    make: fn(&Setting) -> Result<PathBuf, Failure>,
}

const VOLUMES: [Volume; 5] = [
    Volume { name: "check-usr", what: "check of a tree like /usr", make: usr },
    Volume { name: "check-pool", what: "check of 10.4 million names of 456,000 files", make: pool },
    Volume { name: "check-million", what: "check of 1,000,000 small files", make: million },
    Volume {
        name: "check-2t-empty",
        what: "check of 2 TiB, 244 million inodes, empty",
        make: huge,
    },
    Volume { name: "check-2t-used", what: "check of the same, 5% of the inodes used", make: used },
];

/// Document 004's experiment, a table of its own.
const FILLED: (&str, &str) =
    ("check-filled", "check of 20 GB with 2.6 million inodes, filled in steps of 20%");

/// How the time grows with the inodes in use, a table of its own.
const CURVE: (&str, &str) =
    ("check-curve", "check of 10^9 inodes of 128 bytes, 10^5 to 10^8 of them in use");
const CURVE_INODES: u64 = 1_000_000_000;
const CURVE_BYTES: u64 = 4 << 40;

/// Inodes of document 004's volume at the scale that fits, and its bytes.
const FILLED_INODES: u64 = 2_600_000;
const FILLED_BYTES: u64 = 20_000_000_000;
const HUGE_INODES: u64 = 244_000_000;

/// At most this share of e2fsck's time, with two threads and with one.
const BARS: [(&str, f64); 2] = [("2", 0.25), ("1", 0.4)];
/// Cold: at most this many times what the same bytes take by direct reads of 4 MiB, where that is
/// slower.
const COLD_BAR: f64 = 1.15;
const DROP_CACHES: &str = "sync && echo 3 >/proc/sys/vm/drop_caches";

const VOLUME_COLUMNS: [&str; 13] = [
    "case",
    "cache",
    "threads",
    "ours, s",
    "e2fsck, s",
    "ours / e2fsck",
    "bar, s",
    "direct reads, s",
    "ours, MiB",
    "e2fsck, MiB",
    "bar of memory",
    "CPU s, ours",
    "CPU s, e2fsck",
];
const FILLED_COLUMNS: [&str; 7] = [
    "inodes in use",
    "check",
    "ours, s",
    "e2fsck, s",
    "ours / e2fsck",
    "ours: passes 1 to 5, s",
    "e2fsck: passes 1 to 5, s",
];
const CURVE_COLUMNS: [&str; 8] = [
    "inodes in use",
    "ours, s",
    "CPU s, ours",
    "CPU s of a million, ours",
    "ours, MiB",
    "e2fsck, s",
    "CPU s, e2fsck",
    "e2fsck, MiB",
];

/// Measures the rows of a table: the setting, e2fsck, and the number of rounds.
type Fill = fn(&Setting, &Path, usize, &mut Table) -> Result<(), Failure>;

/// Names of the cases and what they do.
pub(super) fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    VOLUMES.iter().map(|volume| (volume.name, volume.what)).chain([FILLED, CURVE])
}

/// Runs the cases of `wanted`.
pub(super) fn run(
    setting: &Setting,
    wanted: &[String],
    rounds: usize,
) -> Result<Vec<Table>, Failure> {
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|it| it == name);
    let e2fsck = tool("e2fsck").map(|tool| tool.path().to_owned());
    let e2fsck = || e2fsck.as_deref().ok_or_else(|| Failure::from("e2fsck is not installed"));
    let mut volumes = Table::new(&VOLUME_COLUMNS);
    for volume in VOLUMES.iter().filter(|volume| is_wanted(volume.name)) {
        let done =
            e2fsck().and_then(|e2fsck| compare(volume, setting, e2fsck, rounds, &mut volumes));
        if let Err(why) = done {
            volumes.add(skipped(volume.name, &why));
        }
    }
    let mut tables = vec![volumes];
    for ((name, _), columns, fill) in
        [(FILLED, &FILLED_COLUMNS[..], filled as Fill), (CURVE, &CURVE_COLUMNS, curve)]
    {
        if is_wanted(name) {
            let mut table = Table::new(columns);
            if let Err(why) = e2fsck().and_then(|e2fsck| fill(setting, e2fsck, rounds, &mut table))
            {
                table.add(skipped(name, &why));
            }
            tables.push(table);
        }
    }
    Ok(tables)
}

/// Checks of the wanted volumes from a warm cache, by this build and by the one before.
pub(super) fn sides_of_two_builds(
    is_wanted: impl Fn(&str) -> bool,
    now: &Setting,
    before: &Setting,
) -> Result<Vec<(String, [Side; 2])>, Failure> {
    let mut all = Vec::new();
    for volume in VOLUMES.iter().filter(|volume| is_wanted(volume.name)) {
        eprintln!("{}: preparing", volume.name);
        let image = (volume.make)(now)?;
        for (threads, _) in BARS {
            let sides = [now, before].map(|setting| ours(setting, threads, &image));
            all.push((format!("{} --threads {threads}", volume.name), sides));
        }
    }
    Ok(all)
}

fn ours(setting: &Setting, threads: &str, image: &Path) -> Side {
    Side::of(
        r#"exec "$1" fsck -fn --threads "$2" "$3""#,
        &[&setting.extant, Path::new(threads), image],
        None,
    )
}

fn theirs(e2fsck: &Path, image: &Path) -> Side {
    Side::of(r#"exec "$1" -fn "$2""#, &[e2fsck, image], None)
}

/// One volume: warm and cold, two threads and one.
fn compare(
    volume: &Volume,
    setting: &Setting,
    e2fsck: &Path,
    rounds: usize,
    table: &mut Table,
) -> Result<(), Failure> {
    eprintln!("{}: preparing", volume.name);
    let image = (volume.make)(setting)?;
    for (cache, is_cold) in [("warm", false), ("cold", true)] {
        for (threads, bar) in BARS {
            let (mut our_side, mut their_side) =
                (ours(setting, threads, &image), theirs(e2fsck, &image));
            if is_cold {
                our_side.before.push(Step::of(DROP_CACHES, &[]));
                their_side.before.push(Step::of(DROP_CACHES, &[]));
            } else {
                our_side.run()?;
                their_side.run()?;
            }
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for round in 0..rounds {
                for is_ours in [round % 2 == 0, round % 2 != 0] {
                    match is_ours {
                        true => ours.push(our_side.run()?),
                        false => theirs.push(their_side.run()?),
                    }
                }
            }
            let direct = if is_cold { Some(direct_reads(setting, &image)?) } else { None };
            table.add(row(volume.name, cache, threads, bar, (&ours, &theirs), direct));
        }
    }
    Ok(())
}

fn row(
    name: &str,
    cache: &str,
    threads: &str,
    bar: f64,
    (ours, theirs): (&[Measurement], &[Measurement]),
    direct: Option<f64>,
) -> Vec<String> {
    let peak =
        |outcomes: &[Measurement]| outcomes.iter().map(|it| it.peak_bytes).max().unwrap_or(0) >> 20;
    let (our_time, their_time) = (median(ours), median(theirs));
    let allowed = (their_time * bar).max(direct.map_or(0.0, |direct| direct * COLD_BAR));
    let verdict = if our_time <= allowed { "met" } else { "missed" };
    let direct = direct.map_or(String::new(), |direct| format!("{direct:.2}"));
    let (our_peak, their_peak) = (peak(ours), peak(theirs));
    // The bar of memory: half as much again as the peer's, and 64 MiB.
    let memory = if our_peak <= their_peak * 3 / 2 + 64 { "met" } else { "missed" };
    vec![
        format!("`{name}`"),
        cache.to_owned(),
        threads.to_owned(),
        format!("{our_time:.3}"),
        format!("{their_time:.3}"),
        format!("{:.2}", our_time / their_time),
        format!("≤ {allowed:.3}: {verdict}"),
        direct,
        our_peak.to_string(),
        their_peak.to_string(),
        memory.to_owned(),
        format!("{:.2}", median_cpu(ours)),
        format!("{:.2}", median_cpu(theirs)),
    ]
}

/// Seconds that a sequential reader takes, past the cache and in pieces of 4 MiB, for as many bytes
/// as the check reads: the first ones of the image that are no holes.
fn direct_reads(setting: &Setting, image: &Path) -> Result<f64, Failure> {
    let said = Command::new(&setting.extant).args(["fsck", "-fn", "--json"]).arg(image).output()?;
    let document: serde_json::Value = serde_json::from_slice(&said.stdout)?;
    let mut left = document["bytes_read"].as_u64().ok_or("fsck --json shows no bytes_read")?;
    let file = File::open(image)?;
    let mut ranges = Vec::new();
    let mut at = 0;
    while left > 0 {
        let Ok(start) = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) else { break };
        let end = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(start))?;
        let len = left.min(end - start);
        ranges.push((start, len));
        (left, at) = (left - len, end);
    }
    must(Command::new("bash").args(["-c", DROP_CACHES]))?;
    let started = Instant::now();
    for (start, len) in ranges {
        let range = format!(
            "if={} of=/dev/null bs=4M iflag=direct,skip_bytes,count_bytes skip={} count={}",
            image.display(),
            start / 4096 * 4096,
            len.next_multiple_of(4096)
        );
        must(Command::new("dd").args(range.split(' ')).stderr(Stdio::null()))?;
    }
    Ok(started.elapsed().as_secs_f64())
}

fn build(setting: &Setting, image: &Path, options: &[&str], source: &Path) -> Result<(), Failure> {
    let mut command = Command::new(&setting.extant);
    command.arg("build").args(options).arg("-o").arg(image).arg(source);
    must(&mut command)
}

/// Bytes as `--size` takes them.
fn kibibytes(bytes: u64) -> String {
    format!("{}k", bytes / 1024)
}

fn usr(setting: &Setting) -> Result<PathBuf, Failure> {
    let (tree, _) = usr_like(setting)?;
    let image = setting.dir.join("check-usr.img");
    build(setting, &image, &[], &tree)?;
    Ok(image)
}

fn pool(setting: &Setting) -> Result<PathBuf, Failure> {
    let (archive, image) = (setting.dir.join("pool.tar"), setting.dir.join("check-pool.img"));
    if !archive.exists() {
        let mut out = BufWriter::new(File::create(&archive)?);
        write_pool(&mut out, 456_000 / setting.shrink, 23)?;
    }
    build(setting, &image, &[], &archive)?;
    Ok(image)
}

/// Bytes of the end of an archive.
const TRAILER: u64 = 1024;

/// An archive of small files; every eighth holds a line, the others nothing. Files are added to one
/// that exists, from number `from` on.
fn write_files(archive: &Path, files: Range<u64>) -> Result<(), Failure> {
    let file = File::options().create(true).truncate(false).write(true).open(archive)?;
    let end = file.metadata()?.len().saturating_sub(TRAILER);
    let mut out = BufWriter::with_capacity(1 << 20, file);
    out.seek(std::io::SeekFrom::Start(end))?;
    write_entries(&mut out, files, |file| if file % 8 == 0 { b"a line of text\n" } else { b"" })?;
    out.write_all(&[0; TRAILER as usize])?;
    Ok(out.flush()?)
}

/// The files, sixty-four in a directory, each with the line of its number.
fn write_entries(
    out: &mut impl Write,
    files: Range<u64>,
    line_of: impl Fn(u64) -> &'static [u8],
) -> Result<(), Failure> {
    for file in files {
        let path = format!("{:03}/{:05}/file-{file:09}", file / 64 % 512, file / 64);
        let line = line_of(file);
        out.write_all(&ustar_header(&path, None, line.len()))?;
        if !line.is_empty() {
            let mut block = [0; 512];
            block[..line.len()].copy_from_slice(line);
            out.write_all(&block)?;
        }
    }
    Ok(())
}

fn million(setting: &Setting) -> Result<PathBuf, Failure> {
    let (archive, image) = (setting.dir.join("million.tar"), setting.dir.join("check-million.img"));
    write_files(&archive, 0..1_000_000 / setting.shrink)?;
    let inodes = (FILLED_INODES / setting.shrink).to_string();
    let size = kibibytes(FILLED_BYTES / setting.shrink);
    build(setting, &image, &["--size", &size, "-N", &inodes], &archive)?;
    std::fs::remove_file(archive)?;
    Ok(image)
}

fn huge(setting: &Setting) -> Result<PathBuf, Failure> {
    let image = setting.dir.join("check-2t-empty.img");
    File::create(&image)?.set_len((2 << 40) / setting.shrink)?;
    let inodes = (HUGE_INODES / setting.shrink).to_string();
    must(Command::new(&setting.extant).args(["mkfs", "-q", "-F", "-N", &inodes]).arg(&image))?;
    Ok(image)
}

fn used(setting: &Setting) -> Result<PathBuf, Failure> {
    let (archive, image) = (setting.dir.join("used.tar"), setting.dir.join("check-2t-used.img"));
    write_files(&archive, 0..HUGE_INODES / 20 / setting.shrink)?;
    let inodes = (HUGE_INODES / setting.shrink).to_string();
    let size = kibibytes((2 << 40) / setting.shrink);
    build(setting, &image, &["--size", &size, "-N", &inodes], &archive)?;
    std::fs::remove_file(archive)?;
    Ok(image)
}

/// Volumes that differ in the number of empty files, from a warm cache, next to e2fsck.
fn curve(
    setting: &Setting,
    e2fsck: &Path,
    rounds: usize,
    table: &mut Table,
) -> Result<(), Failure> {
    let image = setting.dir.join("check-curve.img");
    let (inodes, size) = (CURVE_INODES / setting.shrink, kibibytes(CURVE_BYTES / setting.shrink));
    for used in [100_000, 1_000_000, 10_000_000, 100_000_000] {
        let used = used / setting.shrink;
        let mut command = Command::new(&setting.extant);
        command.args(["build", "--size", &size, "-N", &inodes.to_string(), "-I", "128", "-o"]);
        let mut child = command.arg(&image).arg("-").stdin(Stdio::piped()).spawn()?;
        let mut archive =
            BufWriter::with_capacity(1 << 20, child.stdin.take().ok_or("a pipe was asked for")?);
        // A sixty-fourth of the inodes in use are directories.
        write_entries(&mut archive, 0..used / 64 * 63, |_| b"")?;
        archive.write_all(&[0; TRAILER as usize])?;
        archive.into_inner().map_err(|error| error.into_error())?;
        if !child.wait()?.success() {
            return Err(format!("{command:?} failed").into());
        }
        let mut sides = [ours(setting, "2", &image), theirs(e2fsck, &image)];
        let mut all = [Vec::new(), Vec::new()];
        for round in 0..=rounds {
            for (side, found) in sides.iter_mut().zip(&mut all) {
                let measured = side.run()?;
                // The first one brings what is read into the cache.
                if round > 0 {
                    found.push(measured);
                }
            }
        }
        let peak =
            |found: &[Measurement]| found.iter().map(|it| it.peak_bytes).max().unwrap_or(0) >> 20;
        let [ours, theirs] = all;
        let cpu = median_cpu(&ours);
        table.add(vec![
            used.to_string(),
            format!("{:.3}", median(&ours)),
            format!("{cpu:.2}"),
            format!("{:.2}", cpu / (used as f64 / 1e6)),
            peak(&ours).to_string(),
            format!("{:.3}", median(&theirs)),
            format!("{:.2}", median_cpu(&theirs)),
            peak(&theirs).to_string(),
        ]);
        std::fs::remove_file(&image)?;
    }
    Ok(())
}

/// Document 004: the volume is filled step by step. Each step is checked three times: with the
/// high-water marks missing, so that the check establishes them; with the marks in place; and with
/// the feature off.
fn filled(
    setting: &Setting,
    e2fsck: &Path,
    rounds: usize,
    table: &mut Table,
) -> Result<(), Failure> {
    let tune2fs = tool("tune2fs").ok_or("tune2fs is not installed")?;
    let archive = setting.dir.join("filled.tar");
    let [marked, plain, missing, work] = ["marked", "plain", "missing", "work"]
        .map(|name| setting.dir.join(name).with_extension("img"));
    let inodes = FILLED_INODES / setting.shrink;
    let size = kibibytes(FILLED_BYTES / setting.shrink);
    let count = inodes.to_string();
    let mut written = 0;
    for percent in [0, 20, 40, 60, 80, 98] {
        // A sixty-fourth of the inodes in use are directories.
        let files = inodes * percent / 100 * 63 / 64;
        write_files(&archive, written..files)?;
        written = files;
        let options =
            ["--size", &size, "-N", &count, "-O", "^metadata_csum,uninit_bg,^has_journal"];
        build(setting, &marked, &options, &archive)?;
        let tune = |from: &Path, to: &Path, feature: &str| -> Result<(), Failure> {
            must(Command::new("cp").arg("--sparse=always").arg(from).arg(to))?;
            let mut command = Command::new(tune2fs.path());
            must(command.args(["-O", feature]).arg(to).stdout(Stdio::null()))
        };
        tune(&marked, &plain, "^uninit_bg")?;
        tune(&plain, &missing, "uninit_bg")?;
        for (what, image, how) in [
            ("establishes the marks", &missing, "-fy"),
            ("uses the marks", &marked, "-fn"),
            ("has no marks", &plain, "-fn"),
        ] {
            let (mut our_times, mut their_times) = (Vec::new(), Vec::new());
            let (mut our_passes, mut their_passes) = (String::new(), String::new());
            for round in 0..rounds {
                for is_ours in [round % 2 == 0, round % 2 != 0] {
                    must(Command::new("cp").arg("--sparse=always").arg(image).arg(&work))?;
                    rustix::fs::sync();
                    let mut command = match is_ours {
                        true => Command::new(&setting.extant),
                        false => Command::new(e2fsck),
                    };
                    if is_ours {
                        command.arg("fsck");
                    }
                    let started = Instant::now();
                    let output = command.args([how, "-tt"]).arg(&work).output()?;
                    let seconds = started.elapsed().as_secs_f64();
                    if output.status.code().is_none_or(|code| code > 1) {
                        return Err(format!("{what}: {command:?}: {}", output.status).into());
                    }
                    let passes = passes(&String::from_utf8_lossy(&output.stdout));
                    if is_ours {
                        (our_passes, _) = (passes, our_times.push(seconds));
                    } else {
                        (their_passes, _) = (passes, their_times.push(seconds));
                    }
                }
            }
            let (our_time, their_time) = (median_of(our_times), median_of(their_times));
            table.add(vec![
                format!("{percent}%"),
                what.to_owned(),
                format!("{our_time:.3}"),
                format!("{their_time:.3}"),
                format!("{:.2}", our_time / their_time),
                our_passes,
                their_passes,
            ]);
        }
    }
    for image in [archive, marked, plain, missing, work] {
        std::fs::remove_file(image)?;
    }
    Ok(())
}

/// Seconds of passes 1 to 5, from what -tt says: lines `Pass N: ... time: S`.
fn passes(said: &str) -> String {
    let seconds = |pass: u32| {
        let start = format!("Pass {pass}: ");
        let line = said.lines().rfind(|line| line.starts_with(&start) && line.contains("time:"))?;
        let time = line.split("time:").nth(1)?.trim_start();
        let end = time.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        time[..end].parse::<f64>().ok()
    };
    let all: Vec<String> = (1..=5)
        .map(|pass| seconds(pass).map_or("?".to_owned(), |time| format!("{time:.2}")))
        .collect();
    all.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pass_times_are_read_from_both_programs() {
        let ours = "Pass 1: Checking inodes\nPass 1: time:  0.25, I/O read: 1MB\nPass 5: time:  1.50, I/O\n";
        assert_eq!(passes(ours), "0.25 ? ? ? 1.50");
        let theirs = "Pass 1: Memory used: 884k/0k (561k/324k), time:  0.12/ 0.10/ 0.02\n";
        assert_eq!(passes(theirs), "0.12 ? ? ? ?");
    }

    #[test]
    fn an_archive_grows_by_further_files() {
        let scratch = extant_testkit::Scratch::new();
        let (once, twice) = (scratch.join("once.tar"), scratch.join("twice.tar"));
        write_files(&once, 0..20).unwrap();
        write_files(&twice, 0..7).unwrap();
        write_files(&twice, 7..20).unwrap();
        assert_eq!(std::fs::read(once).unwrap(), std::fs::read(twice).unwrap());
    }
}
