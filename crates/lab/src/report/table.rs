//! Tables of the report.

use serde::Deserialize;

use crate::stats::Summary;

/// Suffix of titles of columns with published figures, if others are in the same table.
pub(super) const PUBLISHED: &str = ": published";

/// A figure by which systems are compared: title, phase, metric, what it is divided by, whether
/// more is better.
pub(super) type Headline = (&'static str, &'static str, &'static str, f64, bool);

/// A table of texts: ours, or a document's.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    /// The experiment that it belongs to.
    pub(super) experiment: String,
    /// Its quantity, with units.
    pub(super) caption: String,
    /// Its system; ours have none, as the page names it once.
    #[serde(default)]
    pub(super) hardware: String,
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
    /// Number of columns that name the subject of a row.
    #[serde(default)]
    pub(super) labels: usize,
    /// Our figures that repeat it.
    #[serde(default)]
    pub(super) measured: Vec<Series>,
}

/// Our figures for a published table's rows and columns.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Series {
    /// Whose they are.
    pub(super) name: String,
    /// The target of each row, or one for all; "" without a target.
    #[serde(default)]
    pub(super) targets: Vec<String>,
    /// Of each column: phases (the first with figures is taken), metric, what it is divided by.
    #[serde(default)]
    pub(super) figures: Vec<(Vec<String>, String, f64)>,
    /// A metric shown after each figure in parentheses, as in the documents.
    pub(super) in_parentheses: Option<String>,
    /// In place of targets and figures, where a row has no target.
    pub(super) across: Option<Across>,
    /// The place on a curve of each row.
    #[serde(default)]
    pub(super) at: Vec<f64>,
}

/// Our figures for a table whose columns have targets, and whose rows have figures.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Across {
    pub(super) rows: Vec<Row>,
    pub(super) columns: Vec<Column>,
}

/// The value of a row for each column's target.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    /// A metric; or one of document 002's statistics, of elapsed seconds.
    pub(super) figure: String,
    /// In these phases, where the column has none: all of them together.
    #[serde(default)]
    pub(super) phases: Vec<String>,
}

/// Whose figures a column has.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Column {
    /// One target; two, whose difference is shown; none: nothing.
    pub(super) targets: Vec<String>,
    #[serde(default)]
    pub(super) phases: Vec<String>,
}

impl Table {
    pub(super) fn ours(experiment: &str, caption: &str, head: &[&str]) -> Self {
        Self {
            experiment: experiment.to_owned(),
            caption: caption.to_owned(),
            hardware: String::new(),
            head: head.iter().map(|word| (*word).to_owned()).collect(),
            rows: Vec::new(),
            labels: 1,
            measured: Vec::new(),
        }
    }

    /// Whether a document published it, or some of it.
    pub(super) fn is_published(&self) -> bool {
        !self.hardware.is_empty()
    }

    /// Whether some columns are a document's, and the others ours.
    pub(super) fn is_mixed(&self) -> bool {
        self.head.iter().any(|title| title.ends_with(PUBLISHED))
    }

    /// Whether a document published a column.
    pub(super) fn is_theirs(&self, column: &usize) -> bool {
        match self.is_mixed() {
            true => self.head[*column].ends_with(PUBLISHED),
            false => self.is_published(),
        }
    }
}

/// The documents' own tables.
pub(super) fn published() -> Vec<Table> {
    #[derive(Deserialize)]
    struct Published {
        table: Vec<Table>,
    }
    let text = include_str!("../../experiments/published.toml");
    toml::from_str::<Published>(text).expect("the published figures are tested").table
}

/// A number with its significant digits.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        size if size < 1e-12 => "0".to_owned(),
        size if size >= 0.001 => format!("{value:.4}"),
        _ => format!("{value:.2e}"),
    }
}

/// Mean and half of Student's interval.
pub(super) fn with_interval(summary: &Summary) -> String {
    // Means of equal runs differ from them by rounding errors of floating point.
    let has_digits = |half: &f64| *half > summary.mean.abs() * 1e-9;
    match summary.student_interval().map(|half| if has_digits(&half) { half } else { 0.0 }) {
        Some(half) => format!("{} ± {}", number(summary.mean), number(half)),
        None => number(summary.mean),
    }
}

/// In a cell of a table.
pub(super) fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    #[test]
    fn published_tables_are_whole() {
        let tables = published();
        assert_eq!(tables.len(), 10);
        for table in tables {
            assert!(table.is_published());
            for series in &table.measured {
                let rows = table.rows.len();
                assert_eq!(series.targets.is_empty(), series.across.is_some(), "{}", series.name);
                if let Some(across) = &series.across {
                    assert_eq!(across.rows.len(), rows, "{}", table.caption);
                    assert_eq!(across.columns.len(), table.head.len() - table.labels);
                    for target in across.columns.iter().flat_map(|column| &column.targets) {
                        target.parse::<crate::target::LabTarget>().expect("a target");
                    }
                    continue;
                }
                assert!([1, rows].contains(&series.targets.len()), "{}", series.name);
                assert!([0, rows].contains(&series.at.len()), "{}", series.name);
                assert_eq!(
                    series.figures.len(),
                    table.head.len() - table.labels,
                    "{}",
                    series.name
                );
                let of_name = |one: &Experiment| one.name == table.experiment;
                let experiment = Experiment::built_in().into_iter().find(of_name).expect("it is");
                let known: Vec<String> =
                    experiment.targets.iter().map(ToString::to_string).collect();
                for target in series.targets.iter().filter(|target| !target.is_empty()) {
                    assert!(known.contains(target), "{target} is measured");
                }
            }
            assert!(
                table.rows.iter().all(|row| row.len() == table.head.len()),
                "{}",
                table.caption
            );
        }
    }

    #[test]
    fn numbers_show_what_they_say() {
        for (value, text) in [
            (20638.4, "20638"),
            (123.44, "123.4"),
            (1.234, "1.23"),
            (0.01234, "0.0123"),
            (0.0, "0"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
