//! Experiments as TOML: work, targets and number of runs. Those of the documents are built in.

use std::path::PathBuf;

use extant::ByteSize;
use serde::{Deserialize, Serialize};

use crate::ffsb::Profile;
use crate::target::LabTarget;

/// The built-in experiments, in the order of their documents.
const BUILT_IN: [&str; 5] = [
    include_str!("../experiments/copy-remove.toml"),
    include_str!("../experiments/low-memory.toml"),
    include_str!("../experiments/hard-links.toml"),
    include_str!("../experiments/sequential-write.toml"),
    include_str!("../experiments/check-time.toml"),
];

/// Names of the sections that describe an experiment's work.
const SECTIONS: &str =
    "[copy-remove], [low-memory], [hard-links], [sequential-write], [check-time]";

/// Largest size of one write, in bytes.
const MOST_BLOCK: u64 = 64 << 20;

/// Largest number of runs of a target: the documents' largest is 400.
pub const MOST_RUNS: u32 = 10_000;

/// Largest factor for the sizes and counts of the documents.
pub const MOST_FACTOR: f64 = 1000.0;

/// An experiment.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Experiment {
    /// Its name on the command line.
    pub name: String,
    /// Description in one line.
    pub title: String,
    /// Source of the experiment.
    pub document: String,
    /// Number of runs of each target.
    pub runs: u32,
    /// Number of unrecorded runs of each target before them.
    #[serde(default)]
    pub warm_up: u32,
    /// Memory limit of each target in bytes, page cache and servers included.
    pub memory: Option<Bytes>,
    /// The targets, unless the command line names others.
    pub targets: Vec<LabTarget>,
    /// Pairs of which the report gives the difference: before and after.
    #[serde(default)]
    pub compare: Vec<[LabTarget; 2]>,
    /// Document 000's.
    pub copy_remove: Option<CopyRemove>,
    /// Document 001's.
    pub low_memory: Option<LowMemory>,
    /// Document 002's.
    pub hard_links: Option<HardLinks>,
    /// Document 003's.
    pub sequential_write: Option<SequentialWrite>,
    /// Document 004's.
    pub check_time: Option<CheckTime>,
}

/// Copies a tree of this machine, mounts the volume again and removes the copy.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CopyRemove {
    /// Directories to copy.
    #[serde(default)]
    pub trees: Vec<PathBuf>,
    /// Bytes to copy at most.
    #[serde(default = "no_limit_of_bytes")]
    pub bytes: Bytes,
    /// Number of files to copy at most.
    #[serde(default = "no_limit")]
    pub files: u64,
    /// Generated tree, which replaces them on simulated drives, and everywhere if they do not
    /// exist.
    pub made: Option<MadeTree>,
}

/// The largest number of TOML.
fn no_limit() -> u64 {
    i64::MAX as u64
}

fn no_limit_of_bytes() -> Bytes {
    Bytes(no_limit())
}

/// A tree generated from a seed.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct MadeTree {
    /// Number of regular files.
    pub files: u64,
    /// Total size of the files in bytes.
    pub bytes: Bytes,
}

/// Writes and removes files, few large ones and many smaller ones.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LowMemory {
    /// Number of directories.
    pub directories: u64,
    /// Size of one write in bytes.
    pub block: Bytes,
    /// The first sequence.
    pub large: FileRow,
    /// The second one.
    pub many: FileRow,
}

/// Files of equal size.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FileRow {
    /// Number of files in each directory.
    pub files: u64,
    /// Size of one file.
    pub size: Bytes,
}

/// Extracts and removes a backup hierarchy.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HardLinks {
    /// Number of files in the pool.
    pub pool_files: u64,
    /// Total size of the pool in bytes.
    pub pool_bytes: Bytes,
    /// Number of links to the pool's files.
    pub links: u64,
    /// Number of empty files between the links.
    pub empty_files: u64,
    /// Largest number of links of a pool file, its own name included.
    pub most_links: u16,
    /// Number of trees that contain the links.
    pub backups: u64,
}

/// Fills a volume with empty files in steps and checks it at each step.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CheckTime {
    /// Size of the volume.
    pub volume: Bytes,
    /// Bytes of the volume for each inode.
    pub bytes_per_inode: u64,
    /// Number of files in a directory.
    pub files_per_directory: u64,
    /// Percentages of inodes in use, ascending.
    pub steps: Vec<f64>,
}

/// Runs an FFSB profile on a fresh volume; then checks it, counts extents and removes the files.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SequentialWrite {
    /// Size of the volume.
    pub volume: Bytes,
    /// The profile as FFSB reads it. Its locations are replaced by the target's directory.
    pub profile: String,
}

/// The work of an experiment.
#[derive(Clone, Copy, Debug)]
pub enum Work<'e> {
    /// Document 000's.
    CopyRemove(&'e CopyRemove),
    /// Document 001's.
    LowMemory(&'e LowMemory),
    /// Document 002's.
    HardLinks(&'e HardLinks),
    /// Document 003's.
    SequentialWrite(&'e SequentialWrite),
    /// Document 004's.
    CheckTime(&'e CheckTime),
}

/// A number of bytes: `5T`, `100M`, `65536`; units are powers of 1024.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Bytes(pub u64);

impl std::str::FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let size = text.parse::<ByteSize>().map_err(|why| format!("{text:?}: {why}"))?;
        Ok(Self(size.0))
    }
}

impl TryFrom<String> for Bytes {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Bytes> for String {
    fn from(bytes: Bytes) -> Self {
        bytes.0.to_string()
    }
}

/// Changes of the command line to experiments, and additions.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// Factor for sizes of files and of the volume; 1 is the document's scale.
    pub sizes: f64,
    /// Factor for numbers of files, threads and links.
    pub counts: f64,
    /// Number of runs of each target, in place of the experiment's.
    pub runs: Option<u32>,
    /// The targets, in place of the experiment's; if empty, the experiment's own.
    pub targets: Vec<LabTarget>,
    /// Memory limit of each target in bytes.
    pub memory: Option<u64>,
    /// Seed of all random choices.
    pub seed: u64,
    /// Duration of timed experiments in seconds.
    pub time: Option<f64>,
    /// A block device to use instead of a loop file; its contents are overwritten.
    pub device: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            sizes: 1.0,
            counts: 1.0,
            runs: None,
            targets: Vec::new(),
            memory: None,
            seed: 1,
            time: None,
            device: None,
        }
    }
}

impl Settings {
    /// A size of the document, scaled.
    pub fn size(&self, bytes: u64) -> u64 {
        (bytes as f64 * self.sizes).ceil() as u64
    }

    /// A count of the document, scaled: at least 1.
    pub fn count(&self, count: u64) -> u64 {
        ((count as f64 * self.counts).ceil() as u64).max(1)
    }

    /// The same for a 32-bit count: at most its largest value.
    pub(crate) fn count_u32(&self, count: u32) -> u32 {
        self.count(u64::from(count)).try_into().unwrap_or(u32::MAX)
    }
}

/// Error of a text that is not a valid experiment.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// Not TOML, or a key that is missing, unknown or of another type: with line and column.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// A value that is not possible.
    #[error("experiment {name}: {what}")]
    Wrong {
        /// The experiment's name.
        name: String,
        /// Description of the error.
        what: String,
    },
}

impl Experiment {
    /// Parses one experiment.
    ///
    /// # Errors
    /// Invalid TOML, unknown or missing keys, or impossible values; line, column and key are named.
    pub fn parse(text: &str) -> Result<Self, ExperimentError> {
        let experiment: Self = toml::from_str(text)?;
        experiment.checked()
    }

    /// Parses a file of experiments: a table `[[experiment]]` for each.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_all(text: &str) -> Result<Vec<Self>, ExperimentError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            experiment: Vec<Experiment>,
        }
        let table: Table = toml::from_str(text)?;
        let mut all: Vec<Self> = Vec::new();
        for experiment in table.experiment {
            if all.iter().any(|other| other.name == experiment.name) {
                let what = "given more than once".to_owned();
                return Err(ExperimentError::Wrong { name: experiment.name, what });
            }
            all.push(experiment.checked()?);
        }
        Ok(all)
    }

    /// A copy with other steps of `check-time`; an experiment without steps is unchanged.
    ///
    /// # Errors
    /// [`ExperimentError::Wrong`]: no steps, or a step to which a volume cannot be filled.
    pub fn with_steps(mut self, steps: &[f64]) -> Result<Self, ExperimentError> {
        if let Some(work) = &mut self.check_time {
            work.steps = steps.to_vec();
        }
        self.checked()
    }

    fn checked(self) -> Result<Self, ExperimentError> {
        let wrong = |what: String| Err(ExperimentError::Wrong { name: self.name.clone(), what });
        if !(1..=MOST_RUNS).contains(&self.runs) {
            return wrong(format!("runs: 1 to {MOST_RUNS}"));
        }
        if self.warm_up > MOST_RUNS {
            return wrong(format!("warm-up: at most {MOST_RUNS}"));
        }
        if self.targets.is_empty() {
            return wrong("targets: at least one".to_owned());
        }
        let works = self.works();
        if works.len() != 1 {
            return wrong(format!("it needs one of the sections {SECTIONS}"));
        }
        match &works[0] {
            Work::CopyRemove(work) if work.trees.is_empty() && work.made.is_none() => {
                wrong("trees: none, and no made".to_owned())
            }
            Work::LowMemory(work) if work.block.0 == 0 || work.block.0 > MOST_BLOCK => {
                wrong("block: 1 to 64M".to_owned())
            }
            Work::LowMemory(work) if work.directories == 0 => {
                wrong("directories: at least 1".to_owned())
            }
            Work::HardLinks(work) if work.pool_files == 0 || work.most_links < 2 => {
                wrong("pool-files: at least 1; most-links: at least 2".to_owned())
            }
            Work::SequentialWrite(work) => match work.profile.parse::<Profile>() {
                Err(error) => wrong(format!("sequential-write.profile: {error}")),
                // The target's directory replaces its location, so there can be one only.
                Ok(profile) if profile.filesystems.len() > 1 => {
                    wrong("sequential-write.profile: one [filesystem]".to_owned())
                }
                Ok(_) => Ok(self),
            },
            Work::CheckTime(work) => {
                let are_steps = work.steps.iter().all(|step| (0.0..=99.0).contains(step));
                let are_ascending = work.steps.is_sorted_by(|one, next| one < next);
                if work.steps.is_empty() || !are_steps || !are_ascending {
                    return wrong("steps: at least one, 0 to 99, ascending".to_owned());
                }
                if work.bytes_per_inode < 1024 || work.files_per_directory == 0 {
                    return wrong(
                        "bytes-per-inode: at least 1024; files-per-directory: 1".to_owned(),
                    );
                }
                Ok(self)
            }
            _ => Ok(self),
        }
    }

    fn works(&self) -> Vec<Work<'_>> {
        let all = [
            self.copy_remove.as_ref().map(Work::CopyRemove),
            self.low_memory.as_ref().map(Work::LowMemory),
            self.hard_links.as_ref().map(Work::HardLinks),
            self.sequential_write.as_ref().map(Work::SequentialWrite),
            self.check_time.as_ref().map(Work::CheckTime),
        ];
        all.into_iter().flatten().collect()
    }

    /// The work of the experiment.
    pub fn work(&self) -> Work<'_> {
        self.works().pop().expect("a checked experiment has its section")
    }

    /// The built-in experiments.
    pub fn built_in() -> Vec<Self> {
        let parse = |text| Self::parse(text).expect("built-in experiments are tested");
        BUILT_IN.into_iter().map(parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_experiments_survive_a_round_trip() {
        for experiment in Experiment::built_in() {
            let text = toml::to_string(&experiment).expect("TOML");
            assert_eq!(Experiment::parse(&text).expect("the same"), experiment);
        }
    }

    #[test]
    fn the_documents_at_their_scale_stand_on_simulated_drives() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/experiments");
        for (document, cells) in [("000", 400), ("001", 8), ("002", 1), ("003", 17), ("004", 1)] {
            let path = format!("{dir}/document-{document}.toml");
            let text = std::fs::read_to_string(&path).expect("a file of the documentation");
            let found = Experiment::parse_all(&text).expect("experiments");
            let [experiment] = &found[..] else { panic!("{path}: {}", found.len()) };
            let is_known = Experiment::built_in().iter().any(|one| one.name == experiment.name);
            assert!(is_known, "{path}: it stands for a built-in one");
            assert_eq!(experiment.targets.len() * experiment.runs as usize, cells, "{path}");
            let drives = experiment.targets.iter().filter_map(|target| target.system.drive());
            assert_eq!(drives.count(), experiment.targets.len(), "{path}");
            let must_be_alone = crate::run::must_be_alone(&found, &Settings::default());
            assert_eq!(must_be_alone.is_some(), document == "004", "{path}: {must_be_alone:?}");
        }
    }

    #[test]
    fn a_made_tree_needs_no_other() {
        let head = "name = \"n\"\ntitle = \"t\"\ndocument = \"d\"\nruns = 1\ntargets = [\"engine\"]\n[copy-remove]\n";
        let text = format!("{head}made = {{ files = 5, bytes = \"1M\" }}");
        let experiment = Experiment::parse(&text).expect("it is good");
        let again = toml::to_string(&experiment).expect("TOML");
        assert_eq!(Experiment::parse(&again).expect("the same"), experiment);
        let error = Experiment::parse(&format!("{head}bytes = \"1M\"")).expect_err("nothing");
        assert!(error.to_string().contains("trees: none, and no made"), "{error}");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let good = BUILT_IN[3];
        for (from, to, named) in [
            ("runs = 3", "runs = 0", "experiment sequential-write: runs: 1 to 10000"),
            ("runs = 3", "runs = 4294967295", "experiment sequential-write: runs: 1 to 10000"),
            ("runs = 3", "warm-up = 4000000000\nruns = 3", "warm-up: at most 10000"),
            ("runs = 3", "rums = 3", "unknown field `rums`"),
            ("runs = 3", "runs = \"x\"", "line 4, column 8"),
            ("\"xfs\"", "\"hfs\"", "unknown target \"hfs\""),
            ("volume = \"5T\"", "volume = \"5X\"", "\"5X\": invalid size"),
            ("[sequential-write]", "[sequential-wrote]", "unknown field `sequential-wrote`"),
            ("create_weight=1", "create_wait=1", "unknown key create_wait"),
            (
                "[threadgroup0]",
                "[filesystem]\nlocation=/b\n[end]\n[threadgroup0]",
                "one [filesystem]",
            ),
        ] {
            assert!(good.contains(from), "{from}");
            let error = Experiment::parse(&good.replacen(from, to, 1)).expect_err(to).to_string();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn an_experiment_that_would_measure_nothing_is_refused() {
        for (number, from, to, named) in [
            (1, "directories = 14", "directories = 0", "directories: at least 1"),
            (4, "steps = [0, 20, 40, 60, 80, 98]", "steps = []", "steps: at least one"),
        ] {
            let good = BUILT_IN[number];
            assert!(good.contains(from), "{good}");
            let error = Experiment::parse(&good.replacen(from, to, 1)).expect_err(to).to_string();
            assert!(error.contains(named), "{error}");
        }
        let check_time = Experiment::parse(BUILT_IN[4]).expect("built in");
        let other = check_time.clone().with_steps(&[20.0, 98.0]).expect("steps");
        assert!(matches!(other.work(), Work::CheckTime(work) if work.steps == [20.0, 98.0]));
        for steps in [&[][..], &[20.0, 0.0], &[20.0, 20.0], &[-1.0], &[99.5], &[f64::NAN]] {
            let error = check_time.clone().with_steps(steps).expect_err("none").to_string();
            assert!(error.contains("steps: at least one, 0 to 99"), "{error}");
        }
        let table = "name = \"n\"\ntitle = \"t\"\ndocument = \"d\"\nruns = 1\ntargets = [\"engine\"]\n\
             [experiment.copy-remove]\nmade = { files = 5, bytes = \"1M\" }\n";
        let table = format!("[[experiment]]\n{table}");
        assert_eq!(Experiment::parse_all(&table).expect("one").len(), 1);
        let of = |text: &str| Experiment::parse_all(text).expect_err("wrong").to_string();
        assert_eq!(of(&format!("{table}{table}")), "experiment n: given more than once");
        let none = table.replace("[\"engine\"]", "[]");
        assert_eq!(of(&none), "experiment n: targets: at least one");
    }

    #[test]
    fn factors_never_make_nothing_of_something() {
        let settings = Settings { counts: 0.001, sizes: 0.5, ..Settings::default() };
        assert_eq!((settings.count(128), settings.count(14_000)), (1, 14));
        assert_eq!(settings.size(1 << 30), 1 << 29);
    }
}
