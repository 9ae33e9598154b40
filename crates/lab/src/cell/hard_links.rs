//! Document 002: extracts a backup hierarchy of hard links and removes it without mounting the
//! volume again.

use std::io::{self, BufReader, BufWriter, PipeReader, Read};
use std::path::Path;
use std::thread;
use std::time::Duration;

use tar::{Entry, EntryType};

use super::error::{CellError, Trying};
use super::protocol::Cell;
use super::recorder::Recorder;
use super::volume::{MountedVolume, TargetVolume, volume_size};
use crate::archive::{ArchiveSize, Entries, LINKS_BEGIN, POOL};
use crate::clock::Clock;
use crate::cpu::Cpu;
use crate::experiment::HardLinks;
use crate::files::{make_copied, make_filled, remove_tree};
use crate::sample::FILES_DONE;

/// Buffer size in bytes between the archive's writer and its reader.
const PIPE: usize = 1 << 20;
/// Number of points of a curve.
const POINTS: u64 = 60;
/// Bytes of space for a pool file in addition to its contents, and for each name.
const FILE_ROOM: u64 = 8 << 10;
const NAME_ROOM: u64 = 256;
/// Bytes of space for the journal and other metadata.
const OVERHEAD: u64 = 256 << 20;
/// Smallest volume size in bytes that every target supports.
const LEAST_VOLUME: u64 = 1 << 30;

pub(super) fn run(
    cell: &Cell,
    work: &HardLinks,
    recorder: &mut Recorder<'_>,
) -> Result<(), CellError> {
    let size = ArchiveSize::new(work, &cell.settings);
    let place = TargetVolume::new(cell)?;
    let names = size.links.saturating_add(size.empty_files);
    let parts =
        [(size.pool_bytes, 2), (size.pool_files, FILE_ROOM), (names, NAME_ROOM * 2), (OVERHEAD, 1)];
    let room = parts.iter().fold(0, |room: u64, (count, each): &(u64, u64)| {
        room.saturating_add(count.saturating_mul(*each))
    });
    recorder.announce("mkfs");
    // Inodes for the pool, the empty files and the directories.
    let inodes = size.pool_files.saturating_add(size.empty_files).saturating_add(size.links / 8);
    let inodes = inodes.saturating_add(10_000).to_string();
    let words: &[&str] = if cell.target.system.is_ext() { &["-N", &inodes] } else { &[] };
    place.format_with(volume_size(room, LEAST_VOLUME), words)?;
    // On a simulated drive's clock the archive costs nothing.
    if cell.run == 1 && cell.target.system.drive().is_none() {
        recorder.timed("archive alone", || archive_alone(&size, cell.settings.seed))?;
    }
    let mounted = place.mount()?;
    recorder.follow(&mounted);
    let mut extraction = Extraction::new(&size, &mounted, recorder);
    match cell.target.system.drive() {
        Some(_) => size.hand_over(cell.settings.seed, &mut extraction)?,
        None => extract_tar(&size, cell.settings.seed, &mut extraction)?,
    }
    extraction.report();
    recorder.timed("sync", || mounted.files.sync(&mounted.root).trying("sync"))?;

    // Both orders of removal, run by run.
    let (order, first, second) = match cell.run % 2 {
        1 => ("rm, pool first", POOL, LINKS_BEGIN),
        _ => ("rm, links first", LINKS_BEGIN, POOL),
    };
    let expected = size.pool_files + size.links + size.empty_files;
    let mut removal = Progress::new(expected, recorder.clock());
    recorder.announce(order);
    let clock = recorder.clock();
    let (start, before) = (clock.now(), clock.cpu());
    let failed = |path: &Path, error| CellError::new(format_args!("{}: {error}", path.display()));
    for dir in [first, second, "backuppc"] {
        let (files, top) = (&*mounted.files, mounted.root.join(dir));
        remove_tree(files, &top, failed, |path| removal.call(|| files.remove_file(path)))?;
    }
    let seconds = clock.since(start);
    recorder.times(order, seconds, clock.cpu().since(before));
    recorder.record(order, "remove_seconds", seconds);
    removal.report(order, recorder);
    recorder.timed("umount", || mounted.close())?;
    Ok(())
}

/// Progress of a phase over time, and the durations of its calls.
struct Progress {
    clock: Clock,
    start: Duration,
    done: u64,
    every: u64,
    curve: Vec<(f64, u64)>,
    calls: Vec<f32>,
}

impl Progress {
    fn new(expected: u64, clock: Clock) -> Self {
        let every = (expected / POINTS).max(1);
        let start = clock.now();
        Self { clock, start, done: 0, every, curve: vec![(0.0, 0)], calls: Vec::new() }
    }

    fn call<T>(&mut self, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let start = self.clock.now();
        let outcome = call();
        self.calls.push(self.clock.since(start) as f32);
        self.done += 1;
        if self.done.is_multiple_of(self.every) {
            self.curve.push((self.clock.since(self.start), self.done));
        }
        outcome
    }

    fn report(mut self, phase: &str, recorder: &mut Recorder<'_>) {
        self.curve.push((self.clock.since(self.start), self.done));
        for (at, done) in self.curve {
            recorder.record_at(phase, FILES_DONE, done as f64, Some(at));
        }
        self.calls.sort_by(f32::total_cmp);
        let Some(last) = self.calls.len().checked_sub(1) else { return };
        for (name, share) in [("50", 0.5), ("99", 0.99), ("999", 0.999)] {
            let at = (last as f64 * share).round() as usize;
            let metric = format!("stall_p{name}_seconds");
            recorder.record(phase, &metric, f64::from(self.calls[at]));
        }
        recorder.record(phase, "stall_seconds_max", f64::from(self.calls[last]));
    }
}

/// Makes the archive and reads it through the same pipe without storing anything, to measure the
/// cost that the other figures include.
fn archive_alone(size: &ArchiveSize, seed: u64) -> Result<(), CellError> {
    each_entry(size, seed, |entry| {
        entry.path().trying("tar")?;
        entry.link_name().trying("tar")?;
        io::copy(entry, &mut io::sink()).trying("tar").map(drop)
    })
}

/// Extracts the archive as tar while it is made.
fn extract_tar(
    size: &ArchiveSize,
    seed: u64,
    extraction: &mut Extraction<'_, '_, '_>,
) -> Result<(), CellError> {
    each_entry(size, seed, |entry| {
        let path = entry.path().trying("tar")?.into_owned();
        match entry.header().entry_type() {
            EntryType::Directory => extraction.make_dir(&path),
            EntryType::Link => {
                let target = entry.link_name().trying("tar")?;
                let target = target.ok_or_else(|| CellError::new("tar: a link without target"))?;
                extraction.make_link(&path, &target)
            }
            _ => extraction.make_file(&path, entry),
        }
    })
}

/// Reads the archive through a pipe while it is made, entry by entry.
fn each_entry(
    size: &ArchiveSize,
    seed: u64,
    mut work: impl FnMut(&mut Entry<'_, BufReader<PipeReader>>) -> Result<(), CellError>,
) -> Result<(), CellError> {
    let (reader, writer) = io::pipe().trying("pipe")?;
    thread::scope(|scope| {
        scope.spawn(move || {
            // If the reader has exited, its own error has the reason.
            let _ = size.stream(seed, BufWriter::with_capacity(PIPE, writer));
        });
        let mut archive = tar::Archive::new(BufReader::with_capacity(PIPE, reader));
        for entry in archive.entries().trying("tar")? {
            work(&mut entry.trying("tar")?)?;
        }
        Ok(())
    })
}

/// Creates the archive's entries; the pool and the links are timed separately.
struct Extraction<'l, 'r, 'c> {
    mounted: &'l MountedVolume,
    recorder: &'r mut Recorder<'c>,
    progress: Progress,
    /// When it began, and when the pool or the links did.
    start: (Duration, Cpu),
    phase: (Duration, Cpu),
    /// Number of links that the file system's limits refused.
    failed: u64,
    /// Zeroes, until data is read into it.
    buffer: Vec<u8>,
}

impl<'l, 'r, 'c> Extraction<'l, 'r, 'c> {
    fn new(size: &ArchiveSize, mounted: &'l MountedVolume, recorder: &'r mut Recorder<'c>) -> Self {
        let expected = size.pool_files + size.links + size.empty_files;
        let progress = Progress::new(expected, mounted.clock.clone());
        recorder.announce("extract pool");
        let start = (mounted.clock.now(), mounted.clock.cpu());
        let buffer = vec![0; 64 << 10];
        Self { mounted, recorder, progress, start, phase: start, failed: 0, buffer }
    }

    fn make_dir(&mut self, path: &Path) -> Result<(), CellError> {
        if path == Path::new(LINKS_BEGIN) {
            self.times("extract pool", self.phase);
            self.phase = self.now();
            self.recorder.announce("extract links");
        }
        let to = self.mounted.root.join(path);
        self.mounted.files.create_dir(&to).trying(to.display())
    }

    fn make_link(&mut self, path: &Path, target: &Path) -> Result<(), CellError> {
        let (to, target) = (self.mounted.root.join(path), self.mounted.root.join(target));
        match self.progress.call(|| self.mounted.files.hard_link(&target, &to)) {
            Err(error) if is_limit(&error) => self.failed += 1,
            outcome => outcome.trying(to.display())?,
        }
        Ok(())
    }

    fn make_file(&mut self, path: &Path, from: &mut impl Read) -> Result<(), CellError> {
        let to = self.mounted.root.join(path);
        let (files, buffer) = (&*self.mounted.files, &mut self.buffer);
        self.progress.call(|| make_copied(files, &to, from, buffer)).trying(to.display())
    }

    fn now(&self) -> (Duration, Cpu) {
        (self.mounted.clock.now(), self.mounted.clock.cpu())
    }

    /// Records the times of the work since a moment.
    fn times(&mut self, phase: &str, since: (Duration, Cpu)) {
        let now = self.now();
        self.recorder.times(phase, (now.0 - since.0).as_secs_f64(), now.1.since(since.1));
    }

    /// All has been extracted.
    fn report(mut self) {
        self.times("extract links", self.phase);
        self.times("extract", self.start);
        self.recorder.record("extract", "links_failed", self.failed as f64);
        self.progress.report("extract", self.recorder);
    }
}

impl Entries for Extraction<'_, '_, '_> {
    type Error = CellError;

    fn dir(&mut self, path: &str) -> Result<(), CellError> {
        self.make_dir(path.as_ref())
    }

    fn file(&mut self, path: &str, size: u64) -> Result<(), CellError> {
        let to = self.mounted.root.join(path);
        // Nothing is read into it here: it keeps its initial bytes.
        let (files, zeroes) = (&*self.mounted.files, &self.buffer);
        self.progress.call(|| make_filled(files, &to, size, zeroes)).trying(to.display())
    }

    fn link(&mut self, path: &str, target: &str) -> Result<(), CellError> {
        self.make_link(path.as_ref(), target.as_ref())
    }
}

/// EMLINK: too many links.
fn is_limit(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TooManyLinks
}
