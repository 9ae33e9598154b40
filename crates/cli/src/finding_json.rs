//! Findings of a check as JSON.

use extant::rooms::check::finding::Pass;
use extant::rooms::check::{Code, HandledFinding, Severity};
use serde::Serialize;

use crate::output::JsonName;

/// A finding as JSON shows it.
#[derive(Serialize)]
pub(crate) struct JsonFinding {
    code: &'static str,
    pass: Pass,
    severity: Severity,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    directory: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_block: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<JsonName>,
    /// The transaction of a copy in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    transaction: Option<u64>,
    /// The repair that was proposed; none where there is nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    repair: Option<&'static str>,
    done: bool,
    /// Whether the exit code tells it: as corrected, or as left.
    #[serde(skip_serializing_if = "Option::is_none")]
    counts: Option<bool>,
}

impl JsonFinding {
    /// `counts` is left out where there is no exit code.
    pub(crate) fn of(outcome: &HandledFinding, counts: Option<bool>) -> Self {
        let (row, subject) = (outcome.finding.code.row(), &outcome.finding.subject);
        Self {
            code: row.name,
            pass: row.pass,
            severity: row.severity,
            text: outcome.finding.to_string(),
            inode: subject.inode.map(|inode| inode.0),
            directory: subject.dir.map(|inode| inode.0),
            block: subject.block.map(|block| block.0),
            file_block: subject.file_block.map(|block| block.0),
            group: subject.group.map(|group| group.0),
            name: subject.name.as_deref().map(JsonName::from),
            transaction: subject.found.filter(|_| {
                matches!(
                    outcome.finding.code,
                    Code::LogCopyCertain | Code::LogCopyPossiblyOlder | Code::OlderName
                )
            }),
            repair: Some(row.prompt).filter(|question| !question.is_empty()),
            done: outcome.repaired,
            counts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant::rooms::check::finding::Finding;

    #[test]
    fn a_copy_in_the_log_has_its_transaction() {
        let shown = |code| {
            let finding = Finding::new(code).found(77).name(b"old".to_vec());
            let outcome = HandledFinding { finding, repaired: true };
            serde_json::to_value(JsonFinding::of(&outcome, Some(true))).unwrap()
        };
        for code in [Code::LogCopyCertain, Code::LogCopyPossiblyOlder, Code::OlderName] {
            assert_eq!(shown(code)["transaction"], 77, "{code:?}");
        }
        assert_eq!(shown(Code::OlderName)["code"], "OlderName");
        assert_eq!(shown(Code::CasefoldFlag).get("transaction"), None);
    }
}
