//! Samples: one measured figure each, kept as a line of JSON, never averaged away.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The samples of a directory of results.
pub const SAMPLES: &str = "samples.jsonl";

/// The last sample of every cell: what is before it is whole.
pub const CELL_SECONDS: &str = "cell_seconds";
/// Load of the processors just before a cell, while the lab was idle: 100 is one processor.
pub const OTHER_LOAD: &str = "other_load_percent";
/// A failed part, with its reason: all of a cell, in the phase [`WHOLE`], or a part of one that was
/// done.
pub const SKIPPED: &str = "skipped";
/// The phase of what is of a whole cell.
pub const WHOLE: &str = "cell";
/// The most memory that a cell with a limit used, page cache and servers included.
pub const MEMORY_PEAK: &str = "memory_peak_bytes";
/// How much was done so far, at seconds of a phase: a curve of one run.
pub const FILES_DONE: &str = "files_done";

/// One figure of one run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Sample {
    /// The experiment's name.
    pub experiment: String,
    /// The target, with its options.
    pub target: String,
    /// Which run, from 1 on.
    pub run: u32,
    /// The operation that was measured: `cp`, `rm`, `write`, `e2fsck`.
    pub phase: String,
    /// The quantity.
    pub metric: String,
    /// How much.
    pub value: f64,
    /// In what: the metric's name ends with it where it is a unit of physics.
    pub unit: String,
    /// Where on a curve: seconds since the phase began, or per cent of inodes in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<f64>,
    /// Why nothing was measured, or what is to be known of the figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Which cell samples belong to: experiment, target, run.
pub type CellKey = (String, String, u32);

impl Sample {
    /// The cell that it belongs to.
    pub fn cell(&self) -> CellKey {
        (self.experiment.clone(), self.target.clone(), self.run)
    }
}

/// Unit of a metric, by how its name ends.
pub fn unit_of(metric: &str) -> &'static str {
    const UNITS: [(&str, &str); 7] = [
        ("_bytes", "B"),
        ("iops", "1/s"),
        ("_bytes_per_second", "B/s"),
        ("_seconds_per_gigabyte", "s/GB"),
        ("_seconds", "s"),
        ("_seconds_max", "s"),
        ("_percent", "%"),
    ];
    let found = UNITS.iter().find(|(ending, _)| metric.ends_with(ending));
    found.map_or("count", |(_, unit)| unit)
}

/// The samples of a directory, on disk after every cell.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    /// All of them, in the order of the file.
    pub samples: Vec<Sample>,
    /// Cells that are done.
    whole: BTreeSet<CellKey>,
}

impl Store {
    /// Opens a directory's samples. Remains of an interrupted cell, and cells that could not run,
    /// are dropped: they are done again.
    ///
    /// # Errors
    /// The file cannot be read or written, or a line before the last one is not a sample: the error
    /// names it.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let path = dir.join(SAMPLES);
        let found = read(&path)?;
        let whole: BTreeSet<CellKey> =
            found.iter().filter(|sample| sample.metric == CELL_SECONDS).map(Sample::cell).collect();
        let count = found.len();
        let samples: Vec<Sample> =
            found.into_iter().filter(|sample| whole.contains(&sample.cell())).collect();
        let store = Self { path, samples, whole };
        if store.samples.len() < count || store.has_torn_line()? {
            store.rewrite()?;
        }
        Ok(store)
    }

    /// Whether a cell is done.
    pub fn has(&self, cell: &CellKey) -> bool {
        self.whole.contains(cell)
    }

    /// Keeps the samples of a cell, on disk when this returns.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, samples: Vec<Sample>) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).create(true).open(&self.path)?;
        file.write_all(&lines(&samples)?)?;
        file.sync_data()?;
        let ended = samples.iter().filter(|sample| sample.metric == CELL_SECONDS);
        self.whole.extend(ended.map(Sample::cell));
        self.samples.extend(samples);
        Ok(())
    }

    /// Puts the samples in the order of these cells, on the disk too where they lie in another.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn arrange(&mut self, order: &[CellKey]) -> io::Result<()> {
        let places: BTreeMap<&CellKey, usize> = order.iter().zip(0..).collect();
        let place = |sample: &Sample| places.get(&sample.cell()).copied().unwrap_or(order.len());
        if self.samples.is_sorted_by_key(place) {
            return Ok(());
        }
        self.samples.sort_by_cached_key(place);
        self.rewrite()
    }

    fn has_torn_line(&self) -> io::Result<bool> {
        let text = fs::read(&self.path).or_else(missing_is_empty)?;
        Ok(text.last().is_some_and(|last| *last != b'\n'))
    }

    fn rewrite(&self) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(&lines(&self.samples)?)?;
        file.sync_data()?;
        fs::rename(new, &self.path)
    }
}

fn missing_is_empty(error: io::Error) -> io::Result<Vec<u8>> {
    match error.kind() {
        io::ErrorKind::NotFound => Ok(Vec::new()),
        _ => Err(error),
    }
}

fn lines(samples: &[Sample]) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    for sample in samples {
        serde_json::to_writer(&mut text, sample)?;
        text.push(b'\n');
    }
    Ok(text)
}

/// The flaw of a line: its column only, since the caller adds the line.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.split_once(" at line 1 column ") {
        Some((what, column)) => format!("{what}, column {column}"),
        None => text,
    }
}

/// Reads samples; a last line that was torn off is left out.
///
/// # Errors
/// The file cannot be read, or a line is not a sample: the error has its number.
pub fn read(path: &Path) -> io::Result<Vec<Sample>> {
    let text = fs::read(path).or_else(missing_is_empty)?;
    let mut samples = Vec::new();
    for (number, line) in (1..).zip(text.split_inclusive(|byte| *byte == b'\n')) {
        match serde_json::from_slice(line) {
            Ok(sample) => samples.push(sample),
            Err(_) if !line.ends_with(b"\n") => {}
            Err(error) => {
                let what = format!("line {number}: {}", without_place(&error));
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(run: u32, metric: &str) -> Sample {
        Sample {
            experiment: "e".into(),
            target: "engine".into(),
            run,
            phase: "write".into(),
            metric: metric.into(),
            value: 1.5,
            unit: unit_of(metric).into(),
            at: None,
            why: None,
        }
    }

    #[test]
    fn an_interrupted_cell_leaves_nothing() {
        let dir = tempfile::tempdir().expect("a place for the test");
        let mut store = Store::open(dir.path()).expect("an empty store");
        store.add(vec![sample(1, "elapsed_seconds"), sample(1, CELL_SECONDS)]).expect("kept");
        store.add(vec![sample(2, "elapsed_seconds")]).expect("kept");
        let path = dir.path().join(SAMPLES);
        let mut text = fs::read(&path).expect("samples");
        text.extend(b"{\"experiment\":\"e\",\"tar");
        fs::write(&path, text).expect("torn");
        let store = Store::open(dir.path()).expect("a torn store");
        assert_eq!(store.samples.len(), 2);
        assert!(store.has(&("e".into(), "engine".into(), 1)));
        assert!(!store.has(&("e".into(), "engine".into(), 2)));
        assert_eq!(read(&path).expect("whole").len(), 2);
    }

    #[test]
    fn samples_lie_in_the_order_of_their_cells() {
        let dir = tempfile::tempdir().expect("a place for the test");
        let mut store = Store::open(dir.path()).expect("an empty store");
        for run in [2, 3, 1] {
            store.add(vec![sample(run, "iops"), sample(run, CELL_SECONDS)]).expect("kept");
        }
        let order: Vec<CellKey> = (1..=3).map(|run| sample(run, "iops").cell()).collect();
        store.arrange(&order).expect("arranged");
        let found = read(&dir.path().join(SAMPLES)).expect("samples");
        let found: Vec<(u32, &str)> =
            found.iter().map(|sample| (sample.run, sample.metric.as_str())).collect();
        let (first, last) = ("iops", CELL_SECONDS);
        assert_eq!(found, [(1, first), (1, last), (2, first), (2, last), (3, first), (3, last)]);
        assert!(store.has(&order[2]) && !dir.path().join("samples.new").exists());
    }

    #[test]
    fn a_line_that_is_no_sample_is_named() {
        let dir = tempfile::tempdir().expect("a place for the test");
        fs::write(dir.path().join(SAMPLES), "{}\n").expect("written");
        let error = Store::open(dir.path()).expect_err("no sample").to_string();
        assert_eq!(error, "line 1: missing field `experiment`, column 2");
    }

    #[test]
    fn units_are_in_the_names() {
        assert_eq!(unit_of("throughput_bytes_per_second"), "B/s");
        assert_eq!(unit_of("stall_seconds_max"), "s");
        assert_eq!(unit_of("cpu_percent"), "%");
        assert_eq!((unit_of("io_bytes"), unit_of("iops")), ("B", "1/s"));
        assert_eq!(unit_of(MEMORY_PEAK), "B");
        assert_eq!(unit_of("cpu_seconds_per_gigabyte"), "s/GB");
        assert_eq!(unit_of("extents_per_file"), "count");
    }
}
