//! A directory of results, read.

use std::collections::BTreeMap;
use std::path::Path;

use crate::experiment::Experiment;
use crate::run::{Manifest, RunError};
use crate::sample::{FILES_DONE, SAMPLES, SKIPPED, Sample, WHOLE, read};
use crate::stats::Summary;
use crate::target::{LabTarget, System};

/// The measurements, and their settings.
#[derive(Clone, Debug)]
pub struct Results {
    /// Experiments, settings, machine.
    pub manifest: Manifest,
    /// All samples.
    pub samples: Vec<Sample>,
}

impl Results {
    /// Reads a directory.
    ///
    /// # Errors
    /// It holds no results.
    pub fn read(dir: &Path) -> Result<Self, RunError> {
        let manifest = Manifest::read(dir)?;
        let path = dir.join(SAMPLES);
        let samples = read(&path)
            .map_err(|source| RunError::Io { what: path.display().to_string(), source })?;
        Ok(Self { manifest, samples })
    }

    /// The targets of an experiment, in the order in which they were given.
    pub fn targets(&self, experiment: &Experiment) -> Vec<String> {
        let chosen = &self.manifest.settings.targets;
        let targets = if chosen.is_empty() { &experiment.targets } else { chosen };
        targets.iter().map(ToString::to_string).collect()
    }

    /// The simulated drives that an experiment was measured on, in the order of its targets.
    pub fn drives(&self, experiment: &Experiment) -> Vec<System> {
        let mut drives: Vec<System> = Vec::new();
        for text in self.targets(experiment) {
            let system = text.parse().ok().map(|target: LabTarget| target.system);
            let drive = system.filter(|system| system.drive().is_some());
            drives.extend(drive.filter(|drive| !drives.contains(drive)));
        }
        drives
    }

    /// A target in the form in which it was measured: the same; for a simulated drive without
    /// options, the first one on it.
    pub fn as_measured(&self, experiment: &Experiment, wanted: &str) -> Option<String> {
        let mut targets = self.targets(experiment).into_iter();
        if let Some(same) = targets.clone().find(|text| *text == wanted) {
            return Some(same);
        }
        let wanted: LabTarget = wanted.parse().ok()?;
        wanted.system.drive().filter(|_| wanted.mount.is_empty() && wanted.mkfs.is_empty())?;
        targets.find(|text| text.parse().is_ok_and(|it: LabTarget| it.system == wanted.system))
    }

    /// The figures of a metric, run by run.
    pub fn values(&self, of: &Of<'_>) -> Vec<f64> {
        let fits = |sample: &&Sample| of.fits(sample) && sample.at.is_none();
        self.samples.iter().filter(fits).map(|sample| sample.value).collect()
    }

    /// The figures of a metric, summed up; `None` where there are none.
    pub fn summary(&self, of: &Of<'_>) -> Option<Summary> {
        Summary::of(&self.values(of))
    }

    /// The same at a place of a curve, where one is given.
    pub fn summary_at(&self, of: &Of<'_>, at: Option<f64>) -> Option<Summary> {
        let Some(at) = at else { return self.summary(of) };
        let mut places = self.by_place(of).into_iter();
        places.find(|(place, _)| *place == at).map(|(_, summary)| summary)
    }

    /// The figures of a metric by their place, in ascending order.
    pub fn by_place(&self, of: &Of<'_>) -> Vec<(f64, Summary)> {
        let mut places: BTreeMap<u64, (f64, Vec<f64>)> = BTreeMap::new();
        for sample in self.samples.iter().filter(|sample| of.fits(sample)) {
            if let Some(at) = sample.at.filter(|at| *at >= 0.0) {
                // The bits of numbers above zero ascend with them.
                places.entry(at.to_bits()).or_insert((at, Vec::new())).1.push(sample.value);
            }
        }
        let summed = |(at, values): (f64, Vec<f64>)| Some((at, Summary::of(&values)?));
        places.into_values().filter_map(summed).collect()
    }

    /// The curve of a metric in the first run that has one.
    pub fn curve(&self, of: &Of<'_>) -> Vec<(f64, f64)> {
        let mut all = self.samples.iter().filter(|sample| of.fits(sample)).peekable();
        let run = all.peek().map(|sample| sample.run);
        let first = all.filter(|sample| Some(sample.run) == run);
        first.filter_map(|sample| Some((sample.at?, sample.value))).collect()
    }

    /// Targets of an experiment that could not run, or not all of it, or have not run yet; and why.
    pub fn skipped(&self, experiment: &Experiment) -> Vec<(String, String)> {
        let mut all: Vec<(String, String)> = Vec::new();
        let of = |sample: &&Sample| sample.experiment == experiment.name;
        for sample in self.samples.iter().filter(of).filter(|sample| sample.metric == SKIPPED) {
            let why = sample.why.as_deref().unwrap_or_default();
            let why = match sample.phase.as_str() {
                WHOLE => why.to_owned(),
                phase => format!("{phase}: {why}"),
            };
            // Each missing part is reported once, though each run may name another file.
            let lead = format!("{}: ", sample.phase);
            let is_listed = all.iter().any(|(target, listed)| {
                *target == sample.target && (*listed == why || listed.starts_with(&lead))
            });
            if !is_listed {
                all.push((sample.target.clone(), why));
            }
        }
        for target in self.targets(experiment) {
            if !self.samples.iter().filter(of).any(|sample| sample.target == target) {
                all.push((
                    target,
                    "has not run yet (run the same command again to resume)".to_owned(),
                ));
            }
        }
        all
    }

    /// Phases and metrics of an experiment in the order in which they were first met, without
    /// curves.
    pub fn figures(&self, experiment: &str) -> Vec<(String, String)> {
        self.named(experiment, |sample| sample.at.is_none())
    }

    /// Those that have places which all runs share: not the seconds at which something was seen.
    pub fn figures_by_place(&self, experiment: &str) -> Vec<(String, String)> {
        self.named(experiment, |sample| sample.at.is_some() && sample.metric != FILES_DONE)
    }

    fn named(&self, experiment: &str, is_meant: fn(&Sample) -> bool) -> Vec<(String, String)> {
        let mut found: Vec<(String, String)> = Vec::new();
        for sample in &self.samples {
            let name = (sample.phase.clone(), sample.metric.clone());
            let is_figure = sample.why.is_none() && is_meant(sample);
            if sample.experiment == experiment && is_figure && !found.contains(&name) {
                found.push(name);
            }
        }
        found
    }
}

/// Which samples.
#[derive(Clone, Copy, Debug)]
pub struct Of<'o> {
    /// Of this experiment.
    pub experiment: &'o str,
    /// Of this target.
    pub target: &'o str,
    /// In this phase.
    pub phase: &'o str,
    /// Of this metric.
    pub metric: &'o str,
}

impl Of<'_> {
    fn fits(&self, sample: &Sample) -> bool {
        sample.metric == self.metric
            && sample.phase == self.phase
            && sample.target == self.target
            && sample.experiment == self.experiment
    }
}
