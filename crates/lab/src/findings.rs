//! The documents' findings, and whether our figures agree with them.

use std::fmt;

use serde::Deserialize;

use crate::experiment::Experiment;
use crate::results::{Of, Results};
use crate::stats::{Difference, Summary};
use crate::target::{System, engine_on};

/// Differences in per cent up to this one are taken for none.
const NONE: f64 = 5.0;

/// A sentence of a document, and which figures it is held against.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// The experiment that measures it.
    pub experiment: String,
    /// The sentence.
    pub says: String,
    /// The document's own difference.
    pub published: String,
    /// The direction of the difference.
    pub expected: Expected,
    /// The system that it is compared with.
    pub pairs: Vec<Pair>,
}

/// The direction of a difference.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Expected {
    /// The second is less.
    Less,
    /// The second is more.
    More,
    /// There is no difference of significance.
    Same,
}

/// Two figures.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Pair {
    /// The system, as the report names it.
    pub who: String,
    before: String,
    after: String,
    phase: String,
    after_phase: Option<String>,
    metric: String,
    at: Option<f64>,
    after_at: Option<f64>,
}

/// The result of our figures about a finding.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Conclusion {
    /// The same.
    Holds,
    /// Something else.
    DoesNotHold,
    /// The interval of the difference leaves both open.
    Open,
    /// The same, but each was measured once: there is no interval.
    HoldsOnce,
    /// Something else, measured once.
    DoesNotHoldOnce,
}

impl fmt::Display for Conclusion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Holds => "holds",
            Self::DoesNotHold => "does not hold",
            Self::Open => "open",
            Self::HoldsOnce => "holds (single runs)",
            Self::DoesNotHoldOnce => "does not hold (single runs)",
        })
    }
}

/// Two figures, measured.
#[derive(Clone, Copy, Debug)]
pub struct Assessment {
    /// The first.
    pub before: Summary,
    /// The second.
    pub after: Summary,
    /// How they differ; `None` where the first is zero.
    pub difference: Option<Difference>,
    /// The conclusion.
    pub conclusion: Conclusion,
}

impl Finding {
    /// All of them, in the order of the documents.
    pub fn all() -> Vec<Self> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            finding: Vec<Finding>,
        }
        let text = include_str!("../experiments/findings.toml");
        toml::from_str::<Table>(text).expect("the findings are tested").finding
    }

    /// Holds it against a pair; `None` where that was not measured.
    pub fn assess(&self, results: &Results, pair: &Pair) -> Option<Assessment> {
        let is_its = |one: &&Experiment| one.name == self.experiment;
        let experiment = results.manifest.experiments.iter().find(is_its)?;
        let figure = |target: &str, phase: &str, at: Option<f64>| {
            let target = &*results.as_measured(experiment, target)?;
            let of = Of { experiment: &self.experiment, target, phase, metric: &pair.metric };
            results.summary_at(&of, at)
        };
        let before = figure(&pair.before, &pair.phase, pair.at)?;
        let phase = pair.after_phase.as_ref().unwrap_or(&pair.phase);
        let after = figure(&pair.after, phase, pair.after_at.or(pair.at))?;
        let difference = Difference::between(&before, &after);
        Some(Assessment {
            before,
            after,
            difference,
            conclusion: self.expected.conclusion(difference, after.mean),
        })
    }
}

impl Pair {
    /// The same of the engine on a simulated drive; `None` where it is not the engine's alone, or
    /// another checker's.
    pub fn on_drive(&self, drive: &System) -> Option<Self> {
        if self.phase.starts_with("e2fsck") {
            return None;
        }
        let before = engine_on(&self.before, drive)?;
        let after = engine_on(&self.after, drive)?;
        let who = match self.who.split_once("engine") {
            Some((lead, rest)) => format!("{lead}{}{rest}", drive.name()),
            None => format!("{}, {}", self.who, drive.name()),
        };
        Some(Self { who, before, after, ..self.clone() })
    }
}

impl Expected {
    fn conclusion(self, difference: Option<Difference>, after: f64) -> Conclusion {
        let Some(Difference { percent, interval_percent }) = difference else {
            // From zero a per cent is undefined, only less, more or the same.
            let holds = match self {
                Self::Less => after < 0.0,
                Self::More => after > 0.0,
                Self::Same => after == 0.0,
            };
            return if holds { Conclusion::Holds } else { Conclusion::DoesNotHold };
        };
        let (low, high) = match interval_percent {
            Some(half) => (percent - half, percent + half),
            None => (percent, percent),
        };
        let (holds, fails) = match self {
            Self::Less => (high < 0.0, low >= 0.0),
            Self::More => (low > 0.0, high <= 0.0),
            Self::Same => (-NONE <= low && high <= NONE, high < -NONE || NONE < low),
        };
        match (holds, fails, interval_percent) {
            (true, _, Some(_)) => Conclusion::Holds,
            (true, _, None) => Conclusion::HoldsOnce,
            (_, true, Some(_)) => Conclusion::DoesNotHold,
            (_, true, None) => Conclusion::DoesNotHoldOnce,
            _ => Conclusion::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every finding names targets that its experiment measures: none is left open by a slip of the
    /// pen.
    #[test]
    fn findings_are_of_what_experiments_measure() {
        let experiments = Experiment::built_in();
        for finding in Finding::all() {
            let experiment = experiments.iter().find(|one| one.name == finding.experiment);
            let experiment = experiment.unwrap_or_else(|| panic!("{}", finding.experiment));
            let targets: Vec<String> = experiment.targets.iter().map(ToString::to_string).collect();
            assert!(!finding.pairs.is_empty(), "{}", finding.says);
            for pair in &finding.pairs {
                assert!(targets.contains(&pair.before), "{}: {}", finding.says, pair.before);
                assert!(targets.contains(&pair.after), "{}: {}", finding.says, pair.after);
            }
        }
    }

    #[test]
    fn an_interval_that_leaves_both_open_decides_nothing() {
        let difference =
            |percent, interval| Some(Difference { percent, interval_percent: interval });
        for (expected, found, conclusion) in [
            (Expected::Less, difference(-60.0, Some(10.0)), Conclusion::Holds),
            (Expected::Less, difference(-60.0, Some(70.0)), Conclusion::Open),
            (Expected::Less, difference(60.0, Some(10.0)), Conclusion::DoesNotHold),
            (Expected::Less, difference(-60.0, None), Conclusion::HoldsOnce),
            (Expected::More, difference(-1.0, None), Conclusion::DoesNotHoldOnce),
            (Expected::Same, difference(1.0, Some(3.0)), Conclusion::Holds),
            (Expected::Same, difference(1.0, Some(9.0)), Conclusion::Open),
            (Expected::Same, difference(-30.0, Some(9.0)), Conclusion::DoesNotHold),
        ] {
            assert_eq!(expected.conclusion(found, 1.0), conclusion, "{expected:?} {found:?}");
        }
        assert_eq!(Expected::More.conclusion(None, 3.0), Conclusion::Holds);
        assert_eq!(Expected::More.conclusion(None, 0.0), Conclusion::DoesNotHold);
    }
}
