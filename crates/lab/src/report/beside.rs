//! The documents' tables once more, with our figures beside theirs, cell by cell.

use super::table::{PUBLISHED, Series, Table, with_interval};
use crate::experiment::Experiment;
use crate::results::{Of, Results};
use crate::stats::Summary;

use super::own::scaled;

/// A published table beside ours; `None` where nothing of it was measured.
pub(super) fn beside(results: &Results, experiment: &Experiment, table: &Table) -> Option<Table> {
    let series: Vec<Vec<Vec<Option<Summary>>>> =
        table.beside.iter().map(|series| measured(results, experiment, table, series)).collect();
    // Series, and columns of them, that have no figure say nothing.
    let has = |of: usize, column: usize| series[of].iter().any(|row| row[column].is_some());
    let columns = table.head.len() - table.labels;
    let shown: Vec<(usize, usize)> = (0..columns)
        .flat_map(|column| (0..series.len()).map(move |of| (column, of)))
        .filter(|(column, of)| has(*of, *column))
        .collect();
    if shown.is_empty() {
        return None;
    }
    let ours =
        |column: usize| shown.iter().filter(move |(found, _)| *found == column).map(|(_, of)| *of);
    let mut head: Vec<String> = table.head[..table.labels].to_vec();
    for column in 0..columns {
        let title = &table.head[table.labels + column];
        head.push(format!("{title}{PUBLISHED}"));
        head.extend(ours(column).map(|of| format!("{title}: {}", table.beside[of].name)));
    }
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let caption = format!("Published and measured here: {}", table.caption);
    let mut all = Table::ours(&experiment.name, &caption, &head);
    all.labels = table.labels;
    all.hardware.clone_from(&table.hardware);
    for (number, published) in table.rows.iter().enumerate() {
        let mut row = published[..table.labels].to_vec();
        for column in 0..columns {
            let theirs = &published[table.labels + column];
            row.push(if theirs.is_empty() { "–".to_owned() } else { theirs.clone() });
            row.extend(ours(column).map(|of| {
                series[of][number][column].as_ref().map_or("–".to_owned(), with_interval)
            }));
        }
        all.rows.push(row);
    }
    Some(all)
}

/// Our figures: rows, columns.
fn measured(
    results: &Results,
    experiment: &Experiment,
    table: &Table,
    series: &Series,
) -> Vec<Vec<Option<Summary>>> {
    let figure = |target: &str, at: Option<f64>, phase: &str, metric: &str| {
        let of = Of { experiment: &experiment.name, target, phase, metric };
        results.summary_at(&of, at)
    };
    let row = |number: usize| {
        let target = series.targets.get(number).or(series.targets.first());
        let target = target.map(String::as_str).unwrap_or_default();
        let at = series.at.get(number).copied();
        let cell = |(phases, metric, unit): &(Vec<String>, String, f64)| {
            let found = phases.iter().find_map(|phase| figure(target, at, phase, metric));
            found.map(|summary| scaled(&summary, *unit))
        };
        series.figures.iter().map(cell).collect()
    };
    (0..table.rows.len()).map(row).collect()
}
