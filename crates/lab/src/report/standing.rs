//! Where systems stand in an experiment: by which figures they are compared, and which target
//! stands for each.

use super::own::scaled;
use super::table::Headline;
use crate::experiment::{Experiment, Work};
use crate::results::{Of, Results};
use crate::sample::{OTHER_LOAD, Sample};
use crate::stats::Summary;
use crate::target::LabTarget;

const COPY: [Headline; 6] = [
    ("cp, s", "cp", "elapsed_seconds", 1.0, false),
    ("umount after cp, s", "umount after cp", "elapsed_seconds", 1.0, false),
    ("rm, s", "rm", "elapsed_seconds", 1.0, false),
    ("umount after rm, s", "umount after rm", "elapsed_seconds", 1.0, false),
    ("cp, all processors, s", "cp", "machine_cpu_seconds", 1.0, false),
    ("rm, all processors, s", "rm", "machine_cpu_seconds", 1.0, false),
];
const MEMORY: [Headline; 6] = [
    ("write large files, s", "write large files", "elapsed_seconds", 1.0, false),
    ("delete large files, s", "delete large files", "elapsed_seconds", 1.0, false),
    ("umount after large files, s", "umount after large files", "elapsed_seconds", 1.0, false),
    ("write many files, s", "write many files", "elapsed_seconds", 1.0, false),
    ("delete many files, s", "delete many files", "elapsed_seconds", 1.0, false),
    ("umount after many files, s", "umount after many files", "elapsed_seconds", 1.0, false),
];
const LINKS: [Headline; 8] = [
    ("extract pool, s", "extract pool", "elapsed_seconds", 1.0, false),
    ("extract links, s", "extract links", "elapsed_seconds", 1.0, false),
    ("sync after it, s", "sync", "elapsed_seconds", 1.0, false),
    ("rm, pool first, s", "rm, pool first", "elapsed_seconds", 1.0, false),
    ("rm, links first, s", "rm, links first", "elapsed_seconds", 1.0, false),
    ("umount after rm, s", "umount", "elapsed_seconds", 1.0, false),
    ("longest unlink, pool first, ms", "rm, pool first", "stall_seconds_max", 1e-3, false),
    ("longest unlink, links first, ms", "rm, links first", "stall_seconds_max", 1e-3, false),
];
const WRITE: [Headline; 5] = [
    ("throughput, MB/s", "write", "throughput_bytes_per_second", 1e6, true),
    ("umount, s", "umount", "elapsed_seconds", 1.0, false),
    ("processor seconds per GB", "write", "cpu_seconds_per_gigabyte", 1.0, false),
    ("extents per file", "write", "extents_per_file", 1.0, false),
    ("rm -rf, s", "rm", "remove_seconds", 1.0, false),
];
/// The compared systems, in the order of columns; ours first. Those on simulated drives are
/// separate: [`super::drives`].
const SYSTEMS: [&str; 12] = [
    "engine", "extant", "ext4", "ext3", "ext2", "xfs", "btrfs", "jfs", "nilfs2", "fuse2fs",
    "zfs-fuse", "dir",
];

/// The question that an experiment answers.
pub(super) fn question(experiment: &Experiment) -> &'static str {
    match experiment.work() {
        Work::CopyRemove(_) => "How long do copying a tree of files and removing the copy take?",
        Work::LowMemory(_) => {
            "How long does it take to write and remove large files, and many files, with 64 MB of memory?"
        }
        Work::HardLinks(_) => {
            "How long does it take to extract an archive of very many hard links, and to remove it?"
        }
        Work::SequentialWrite(_) => {
            "How fast do many threads write large files, and what does that cost in processor time, extents, checks and removal?"
        }
        Work::CheckTime(_) => "How does the time of a check grow with the inodes in use?",
    }
}

/// Processor time before cells: none on an idle machine.
pub(super) fn other_load(results: &Results) -> Option<String> {
    let loads = results.samples.iter().filter(|sample| sample.metric == OTHER_LOAD);
    let load = Summary::of(&loads.map(|sample| sample.value).collect::<Vec<_>>())?;
    Some(format!("{:.0}% before a cell on average, {:.0}% at most", load.mean, load.max))
}

/// An experiment with its results.
pub(super) struct Standing<'r> {
    pub(super) results: &'r Results,
    pub(super) experiment: &'r Experiment,
}

impl Standing<'_> {
    /// By which figures systems are compared.
    pub(super) fn headlines(&self) -> &'static [Headline] {
        match self.experiment.work() {
            Work::CopyRemove(_) => &COPY,
            Work::LowMemory(_) => &MEMORY,
            Work::HardLinks(_) => &LINKS,
            Work::SequentialWrite(_) => &WRITE,
            Work::CheckTime(_) => &[],
        }
    }

    /// Of each system, with the layers below it, the target with the fewest options that has
    /// figures: name of the system, name of the target.
    pub(super) fn systems(&self) -> Vec<(String, String)> {
        let mut found: Vec<(usize, String, String)> = Vec::new();
        for text in self.results.targets(self.experiment) {
            let Ok(target) = text.parse::<LabTarget>() else { continue };
            let place = SYSTEMS.iter().position(|system| *system == target.system.name());
            let (Some(place), true) = (place, self.has_figures(&text)) else { continue };
            let plain =
                LabTarget { mount: String::new(), mkfs: String::new(), ..target }.to_string();
            match found.iter_mut().find(|(_, system, _)| *system == plain) {
                Some((.., shortest)) if shortest.len() > text.len() => *shortest = text,
                Some(_) => {}
                None => found.push((place, plain, text)),
            }
        }
        found.sort_by_key(|(place, ..)| *place);
        found.into_iter().map(|(_, system, target)| (system, target)).collect()
    }

    fn has_figures(&self, target: &str) -> bool {
        let is_of =
            |sample: &&Sample| sample.experiment == self.experiment.name && sample.target == target;
        self.results.samples.iter().filter(is_of).any(|sample| sample.why.is_none())
    }

    pub(super) fn summary(&self, target: &str, headline: &Headline) -> Option<Summary> {
        let (_, phase, metric, unit, _) = *headline;
        let of = Of { experiment: &self.experiment.name, target, phase, metric };
        self.results.summary(&of).map(|summary| scaled(&summary, unit))
    }
}
