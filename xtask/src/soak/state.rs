//! The file that runs add up in.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Failure;

/// The layout of the file. A field that only adds something leaves the number as it is.
const FORMAT: u32 = 1;

/// The sums of all runs.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct State {
    format: u32,
    /// By the unit's name.
    pub(crate) units: BTreeMap<String, Progress>,
    pub(crate) failures: Vec<Broken>,
    /// Fields that a later version has written.
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// The sums of the slices of one unit.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Progress {
    /// The seed of the next slice.
    pub(crate) next: u64,
    pub(crate) slices: u64,
    pub(crate) seconds: f64,
    /// Counts by name.
    pub(crate) counts: BTreeMap<String, u64>,
    /// How to repeat trials that are worth reading and are not failures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) remarks: Vec<String>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// A failure.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Broken {
    pub(crate) unit: String,
    pub(crate) seed: u64,
    /// Where its output, the command that repeats it and its input are.
    pub(crate) directory: PathBuf,
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// The result of one slice.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Sums {
    pub(crate) counts: BTreeMap<String, u64>,
    pub(crate) remarks: Vec<String>,
}

impl Default for State {
    fn default() -> Self {
        Self { format: FORMAT, units: BTreeMap::new(), failures: Vec::new(), other: Map::new() }
    }
}

impl State {
    /// Reads the file; a file that is not there has counted nothing.
    pub(crate) fn load(file: &Path) -> Result<Self, Failure> {
        let refused = |what: String| Failure::from(format!("{}: {what}", file.display()));
        let text = match std::fs::read(file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(refused(error.to_string())),
        };
        let state: Self = serde_json::from_slice(&text).map_err(|it| refused(it.to_string()))?;
        match state.format {
            FORMAT => Ok(state),
            other => Err(refused(format!("format {other} is not supported, only {FORMAT}"))),
        }
    }

    /// Replaces the file: a crash leaves the old one or the new one.
    pub(crate) fn save(&self, file: &Path) -> Result<(), Failure> {
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        let mut written = tempfile::NamedTempFile::new_in(parent.unwrap_or(Path::new(".")))?;
        serde_json::to_writer_pretty(&mut written, self)?;
        written.write_all(b"\n")?;
        written.as_file().sync_all()?;
        written.persist(file)?;
        Ok(())
    }

    /// Adds what a slice came to. Its seed is used up.
    pub(crate) fn add(&mut self, unit: &str, seconds: f64, sums: Sums) {
        let progress = self.units.entry(unit.to_owned()).or_default();
        progress.next += 1;
        progress.slices += 1;
        progress.seconds += seconds;
        for (name, count) in sums.counts {
            *progress.counts.entry(name).or_default() += count;
        }
        progress.remarks.extend(sums.remarks);
    }

    pub(crate) fn progress(&self, unit: &str) -> Progress {
        self.units.get(unit).cloned().unwrap_or_default()
    }

    /// Records a failure of the unit's slice with this seed.
    pub(crate) fn fail(&mut self, unit: &str, seed: u64, directory: PathBuf) {
        self.failures.push(Broken { unit: unit.to_owned(), seed, directory, other: Map::new() });
    }
}

impl Sums {
    /// Reads the lines of a suite: `soak: cuts=12 histories=3` counts, `soak: remark TEXT` is kept.
    /// They may follow a test's name on its line.
    pub(crate) fn of(output: &str) -> Self {
        let mut sums = Self::default();
        for (_, line) in output.lines().filter_map(|line| line.split_once("soak: ")) {
            if let Some(remark) = line.strip_prefix("remark ") {
                sums.remarks.push(remark.trim_end().to_owned());
                continue;
            }
            let pairs = line.split_whitespace().filter_map(|word| word.split_once('='));
            for (name, count) in pairs {
                *sums.counts.entry(name.to_owned()).or_default() += count.parse().unwrap_or(0);
            }
        }
        sums
    }
}

/// Locks the file for this process. A second run would lose what the first one counts.
pub(crate) fn lock(file: &Path) -> Result<File, Failure> {
    let lock = File::create(file.with_extension("lock"))?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(Errno::WOULDBLOCK) => Err(format!("{}: in use by another run", file.display()).into()),
        Err(errno) => Err(std::io::Error::from(errno).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::Duration;

    /// The file that [`a_kill_leaves_a_whole_file`] has written over and over.
    const WRITTEN: &str = "EXTANT_SOAK_WRITTEN";

    fn slice(cuts: u64) -> Sums {
        Sums::of(&format!("test a ... soak: cuts={cuts} histories=2\nsoak: remark trial {cuts}\n"))
    }

    #[test]
    fn runs_add_up() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state.json");
        for cuts in [100, 23] {
            let mut state = State::load(&file).unwrap();
            state.add("cuts/a", 1.5, slice(cuts));
            state.add("fuzz/b", 60.0, Sums::of("soak: inputs=7\n"));
            state.save(&file).unwrap();
        }
        let state = State::load(&file).unwrap();
        let cuts = state.progress("cuts/a");
        assert_eq!((cuts.next, cuts.slices, cuts.seconds), (2, 2, 3.0));
        assert_eq!(cuts.counts, [("cuts".into(), 123), ("histories".into(), 4)].into());
        assert_eq!(cuts.remarks, ["trial 100", "trial 23"]);
        assert_eq!(state.progress("fuzz/b").counts["inputs"], 14);
        assert_eq!(state.progress("none").next, 0);
    }

    #[test]
    fn fields_of_a_later_version_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state.json");
        let written = r#"{"format":1,"machine":"m","units":{"cuts/a":{"next":4,"slices":4,"seconds":2.0,
            "counts":{"cuts":9},"coverage":[1,2]}},"failures":[{"unit":"cuts/a","seed":3,"directory":"d","day":"x"}]}"#;
        std::fs::write(&file, written).unwrap();
        let mut state = State::load(&file).unwrap();
        state.add("cuts/a", 1.0, slice(1));
        state.save(&file).unwrap();
        let found: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(found["machine"], "m");
        assert_eq!(found["units"]["cuts/a"]["coverage"], serde_json::json!([1, 2]));
        assert_eq!(found["units"]["cuts/a"]["counts"]["cuts"], 10);
        assert_eq!(found["failures"][0]["day"], "x");
    }

    #[test]
    fn another_format_and_damage_are_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state.json");
        let cases = [
            (r#"{"format":2,"units":{},"failures":[]}"#, "format 2 is not supported, only 1"),
            (r#"{"format":1,"units":{"#, "EOF while parsing"),
            ("", "EOF while parsing"),
        ];
        for (text, why) in cases {
            std::fs::write(&file, text).unwrap();
            let error = State::load(&file).unwrap_err().to_string();
            assert!(error.contains("state.json: ") && error.contains(why), "{error}");
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        }
    }

    #[test]
    fn a_second_run_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state.json");
        let first = lock(&file).unwrap();
        assert!(lock(&file).unwrap_err().to_string().ends_with("in use by another run"));
        drop(first);
        lock(&file).unwrap();
    }

    /// Runs itself as a process that adds slices until it is killed.
    #[test]
    fn a_kill_leaves_a_whole_file() {
        if let Some(file) = std::env::var_os(WRITTEN) {
            loop {
                let mut state = State::load(Path::new(&file)).unwrap();
                state.add("cuts/a", 1.0, slice(5));
                state.save(Path::new(&file)).unwrap();
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state.json");
        let mut least = 0;
        for round in 0..5 {
            let mut writer = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "soak::state::tests::a_kill_leaves_a_whole_file"])
                .env(WRITTEN, &file)
                .spawn()
                .unwrap();
            let slices = || State::load(&file).unwrap().progress("cuts/a").slices;
            while slices() <= least {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(7 * round));
            writer.kill().unwrap();
            writer.wait().unwrap();
            let progress = State::load(&file).unwrap().progress("cuts/a");
            assert!(progress.slices > least);
            assert_eq!(progress.counts["cuts"], 5 * progress.slices);
            assert_eq!(progress.next, progress.slices);
            least = progress.slices;
        }
    }

    #[test]
    fn lines_of_suites_are_counted() {
        let output = "test a ... soak: cuts=3 histories=1\nnoise\nsoak: cuts=4\nsoak: remark b c\n";
        let sums = Sums::of(output);
        assert_eq!(sums.counts, [("cuts".into(), 7), ("histories".into(), 1)].into());
        assert_eq!(sums.remarks, ["b c"]);
        assert_eq!(Sums::of("test a ... ok\n"), Sums::default());
    }
}
