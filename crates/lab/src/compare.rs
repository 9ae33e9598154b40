//! Before and after: how the figures of two targets, or of two builds, differ.

use serde::Serialize;

use crate::results::{Of, Results};
use crate::sample::WHOLE;
use crate::stats::{Difference, Summary};

/// A figure of two targets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// The experiment.
    pub experiment: String,
    /// The first target.
    pub before: String,
    /// The second one.
    pub after: String,
    /// The measured phase.
    pub phase: String,
    /// The measured quantity.
    pub metric: String,
    /// Where on a curve: per cent of the inodes in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<f64>,
    /// The first's runs.
    pub first: Summary,
    /// The second's runs.
    pub second: Summary,
    /// How they differ; `None` where the first's mean is zero.
    pub difference: Option<Difference>,
    /// Whether the interval of the difference leaves zero out.
    pub is_significant: bool,
}

impl Compared {
    /// The phase, and its point on a curve.
    pub fn phase_text(&self) -> String {
        match self.at {
            Some(at) => format!("{}, {at}% in use", self.phase),
            None => self.phase.clone(),
        }
    }

    /// The difference as text: marked with a star if its interval does not contain zero.
    pub fn difference_text(&self) -> String {
        let Some(difference) = &self.difference else { return "–".to_owned() };
        let star = if self.is_significant { " *" } else { "" };
        match difference.interval_percent {
            Some(half) => format!("{:+.2}% ± {half:.2}%{star}", difference.percent),
            None => format!("{:+.2}%", difference.percent),
        }
    }
}

/// Compares a target of some results with a target of others, in all figures that both have.
pub fn compared(
    first: (&Results, &str),
    second: (&Results, &str),
    experiment: &str,
) -> Vec<Compared> {
    let one = |phase: &str, metric: &str, at: Option<f64>| {
        let of = |(results, target): (&Results, &str)| {
            results.summary_at(&Of { experiment, target, phase, metric }, at)
        };
        let (a, b) = (of(first)?, of(second)?);
        let difference = Difference::between(&a, &b);
        Some(Compared {
            experiment: experiment.to_owned(),
            before: first.1.to_owned(),
            after: second.1.to_owned(),
            is_significant: difference.is_some_and(|difference| difference.is_significant()),
            phase: phase.to_owned(),
            metric: metric.to_owned(),
            at,
            first: a,
            second: b,
            difference,
        })
    };
    let mut all = Vec::new();
    let (results, target) = first;
    for (phase, metric) in results.figures(experiment) {
        if phase != WHOLE {
            all.extend(one(&phase, &metric, None));
        }
    }
    for (phase, metric) in results.figures_by_place(experiment) {
        let of = Of { experiment, target, phase: &phase, metric: &metric };
        let places = results.by_place(&of).into_iter();
        all.extend(places.filter_map(|(at, _)| one(&phase, &metric, Some(at))));
    }
    all
}

/// Every target that two directories of results share, compared: two builds.
pub fn builds(first: &Results, second: &Results) -> Vec<Compared> {
    let mut all = Vec::new();
    for experiment in &first.manifest.experiments {
        for target in first.targets(experiment) {
            all.extend(compared((first, &target), (second, &target), &experiment.name));
        }
    }
    all
}

/// Two targets, each of its results, in all experiments.
pub fn targets(first: (&Results, &str), second: (&Results, &str)) -> Vec<Compared> {
    let experiments = first.0.manifest.experiments.iter();
    experiments.flat_map(|experiment| compared(first, second, &experiment.name)).collect()
}
