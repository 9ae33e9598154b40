//! The documents' findings with what results say of them, for every form of the pages.

use super::own::difference_text;
use super::table::number;
use crate::findings::{Assessment, Conclusion, Finding, Pair};
use crate::results::Results;
use crate::target::System;

/// A finding, and what was measured of it.
pub(super) struct Assessed {
    pub(super) finding: Finding,
    pub(super) rows: Vec<Row>,
}

/// A finding held against one system.
pub(super) struct Row {
    /// The system, as the report names it.
    pub(super) system: String,
    assessment: Option<Assessment>,
}

/// All findings, of what any of some results measured; drives that were not measured have no rows.
pub(super) fn all(results: &[&Results]) -> Vec<Assessed> {
    let all = Finding::all().into_iter();
    all.map(|finding| {
        let assessed = |pair: &Pair| results.iter().find_map(|it| finding.assess(it, pair));
        let drives = drives_of(results, &finding.experiment);
        let here = finding.pairs.iter().map(|pair| (pair.who.clone(), assessed(pair)));
        let on_drives = finding.pairs.iter().flat_map(|pair| {
            let moved = drives.iter().filter_map(|drive| pair.on_drive(drive));
            moved.filter_map(|pair| Some((pair.who.clone(), Some(assessed(&pair)?))))
        });
        let row = |(system, assessment)| Row { system, assessment };
        let rows = here.chain(on_drives).map(row).collect();
        Assessed { finding, rows }
    })
    .collect()
}

/// The findings that a run measured something of, with these rows alone.
pub(super) fn measured(results: &Results, experiment: &str) -> Vec<Assessed> {
    let mut found = all(&[results]);
    for assessed in &mut found {
        assessed.rows.retain(Row::is_measured);
    }
    found.retain(|it| it.finding.experiment == experiment && !it.rows.is_empty());
    found
}

/// How many rows of findings hold, do not, are open, or were not measured; single runs included.
pub(super) fn counts(all: &[Assessed]) -> String {
    let rows = || all.iter().flat_map(|assessed| &assessed.rows);
    let each = ["holds", "fails", "open", "unmeasured"].map(|class| {
        let count = rows().filter(|row| row.class() == class).count();
        let word = match class {
            "holds" if count == 1 => "holds",
            "holds" => "hold",
            "fails" if count == 1 => "does not",
            "fails" => "do not",
            "unmeasured" if count == 1 => "was not measured",
            "unmeasured" => "were not measured",
            _ if count == 1 => "is open",
            _ => "are open",
        };
        (count > 0).then(|| format!("{count} {word}"))
    });
    let each: Vec<String> = each.into_iter().flatten().collect();
    each.join(", ")
}

/// The simulated drives that an experiment was measured on.
fn drives_of(all: &[&Results], name: &str) -> Vec<System> {
    let mut drives: Vec<System> = Vec::new();
    for results in all {
        for experiment in results.manifest.experiments.iter().filter(|one| one.name == name) {
            let found = results.drives(experiment).into_iter();
            drives.extend(found.filter(|drive| !drives.contains(drive)).collect::<Vec<_>>());
        }
    }
    drives
}

impl Row {
    fn is_measured(&self) -> bool {
        self.assessment.is_some()
    }

    /// Both figures, and how they differ.
    pub(super) fn here(&self) -> String {
        let Some(assessed) = &self.assessment else { return "–".to_owned() };
        let text = assessed.difference.map_or_else(String::new, difference_text);
        let figures = [assessed.before, assessed.after].map(|one| number(one.mean));
        let here = format!("{text} ({} to {})", figures[0], figures[1]);
        here.trim_start().to_owned()
    }

    pub(super) fn conclusion(&self) -> String {
        match &self.assessment {
            None => "was not measured".to_owned(),
            Some(assessed) => assessed.conclusion.to_string(),
        }
    }

    /// Its class of style.
    pub(super) fn class(&self) -> &'static str {
        match self.assessment.map(|assessed| assessed.conclusion) {
            None => "unmeasured",
            Some(Conclusion::Holds | Conclusion::HoldsOnce) => "holds",
            Some(Conclusion::DoesNotHold | Conclusion::DoesNotHoldOnce) => "fails",
            Some(Conclusion::Open) => "open",
        }
    }
}
