//! Findings as tuples.

use extant::{HandledFinding, Severity};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A finding: code, pass, severity, text, proposed repair, whether it was repaired, whether it
/// counts; inode, directory, block, block of the file, group, name, number found, number expected.
pub(crate) type FindingTuple<'py> = (
    (&'static str, u8, &'static str, String, &'static str, bool, bool),
    (Option<u32>, Option<u32>, Option<u64>, Option<u64>, Option<u32>),
    (Option<Bound<'py, PyBytes>>, Option<u64>, Option<u64>),
);

pub(crate) fn finding<'py>(
    py: Python<'py>,
    handled: &HandledFinding,
    counts: bool,
) -> FindingTuple<'py> {
    let (row, subject) = (handled.finding.code.row(), &handled.finding.subject);
    (
        (
            row.name,
            row.pass,
            severity_name(row.severity),
            handled.finding.to_string(),
            row.prompt,
            handled.repaired,
            counts,
        ),
        (
            subject.inode.map(|inode| inode.0),
            subject.dir.map(|inode| inode.0),
            subject.block.map(|block| block.0),
            subject.file_block.map(|block| block.0),
            subject.group.map(|group| group.0),
        ),
        (
            subject.name.as_deref().map(|name| PyBytes::new(py, name)),
            subject.found,
            subject.expected,
        ),
    )
}

fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Safe => "safe",
        Severity::Damage => "damage",
        Severity::Fatal => "fatal",
    }
}
