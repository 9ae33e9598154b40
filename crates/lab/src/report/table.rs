//! Tables of the report.

use serde::Deserialize;

use crate::stats::Summary;

/// A table of texts: ours, or a document's.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    /// The experiment that it belongs to.
    pub(super) experiment: String,
    /// What it shows, with units.
    pub(super) caption: String,
    /// What it was measured on; ours have none, as the page says it once.
    #[serde(default)]
    pub(super) hardware: String,
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn ours(experiment: &str, caption: &str, head: &[&str]) -> Self {
        Self {
            experiment: experiment.to_owned(),
            caption: caption.to_owned(),
            hardware: String::new(),
            head: head.iter().map(|word| (*word).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Whether a document published it.
    pub(super) fn is_published(&self) -> bool {
        !self.hardware.is_empty()
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

/// A number with as many digits as say something.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        size if size >= 0.001 => format!("{value:.4}"),
        _ => format!("{value:.2e}"),
    }
}

/// Mean and half of Student's interval.
pub(super) fn with_interval(summary: &Summary) -> String {
    match summary.student_interval() {
        Some(half) => format!("{} ± {}", number(summary.mean), number(half)),
        None => number(summary.mean),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_tables_are_whole() {
        let tables = published();
        assert_eq!(tables.len(), 10);
        for table in tables {
            assert!(table.is_published());
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
