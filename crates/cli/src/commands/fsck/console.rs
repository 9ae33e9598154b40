//! Who answers: the options -n, -y, -p, or the user at a terminal. Every finding is shown here as e2fsck shows its own.

use std::io::{BufRead, Write};

use extant_check::finding::Pass;
use extant_check::judge::{answered_yes, preened};
use extant_check::{Code, Finding, Judge, Judgement, Jump, Severity};
use extant_runtime::sync::Mutex;
use serde::Serialize;

use crate::output::JsonName;

/// How questions are answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Answering {
    /// By the user.
    Ask,
    /// `-n`.
    No,
    /// `-y`.
    Yes,
    /// `-p`.
    Preen,
}

/// The judge of a command line.
pub(super) struct Console {
    answering: Answering,
    is_json: bool,
    state: Mutex<State>,
}

struct State {
    /// How messages name the volume: its label, or the image.
    name: String,
    /// The pass whose heading stands last.
    pass: Pass,
    all_yes: bool,
    told: Vec<Told>,
}

/// A finding and the answer.
struct Told {
    finding: Finding,
    judgement: Judgement,
}

/// A finding as JSON shows it.
#[derive(Serialize)]
pub(super) struct JsonFinding {
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
    /// The repair that was proposed; none where there is nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    repair: Option<&'static str>,
    done: bool,
}

const HEADINGS: [&str; 5] = [
    "Pass 1: Checking inodes, blocks, and sizes",
    "Pass 2: Checking directory structure",
    "Pass 3: Checking directory connectivity",
    "Pass 4: Checking reference counts",
    "Pass 5: Checking group summary information",
];

/// Standard output without a buffer of its own: questions must be seen. A reader that has gone is not told.
fn put(text: &str) {
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

impl Console {
    pub(super) fn new(answering: Answering, is_json: bool, name: String) -> Self {
        let state = State { name, pass: 0, all_yes: false, told: Vec::new() };
        Self { answering, is_json, state: Mutex::new(state) }
    }

    /// How messages name the volume.
    pub(super) fn name(&self) -> String {
        self.state.lock().name.clone()
    }

    /// The volume has a label: messages begin with it, as e2fsck's.
    pub(super) fn rename(&self, label: String) {
        self.state.lock().name = label;
    }

    /// A line, unless the output is JSON.
    pub(super) fn say(&self, line: &str) {
        if !self.is_json {
            put(&format!("{line}\n"));
        }
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.answering == Answering::No
    }

    /// Whether a repair was accepted.
    pub(super) fn is_modified(&self) -> bool {
        self.state.lock().told.iter().any(Told::is_repaired)
    }

    /// Whether one of the repairs that were accepted corrected an error. `in_passes` says whether the passes found one at
    /// all: else what they changed follows from work that was asked for. Finishing orphans changes the usage in quota files.
    pub(super) fn has_corrected(&self, in_passes: bool) -> bool {
        let finished_orphans =
            self.has_found(Code::OrphanCleared) || self.has_found(Code::OrphanTruncated);
        self.state.lock().told.iter().any(|told| {
            let code = told.finding.code;
            let is_at_work = code.row().pass == 0 || in_passes;
            let follows = finished_orphans && code == Code::QuotaWrong;
            told.is_repaired() && code.is_correction() && is_at_work && !follows
        })
    }

    pub(super) fn has_found(&self, code: Code) -> bool {
        self.state.lock().told.iter().any(|told| told.finding.code == code)
    }

    /// A finding of a look that repairs nothing.
    pub(super) fn note(&self, finding: &Finding) {
        self.judge(finding);
    }

    /// Where files are not in one run: told with pass 1, or after the repairs.
    pub(super) fn tell_jumps(&self, jumps: &[Jump]) {
        if self.state.lock().pass == 0 {
            self.head(1);
        }
        for jump in jumps {
            self.say(&jump.to_string());
        }
    }

    /// The headings of passes that found nothing.
    pub(super) fn end_passes(&self) {
        self.head(HEADINGS.len() as Pass);
    }

    fn shows_passes(&self) -> bool {
        self.answering != Answering::Preen && !self.is_json
    }

    /// Shows the headings up to a pass; a pass that comes again starts anew.
    fn head(&self, pass: Pass) {
        if !self.shows_passes() {
            return;
        }
        let mut state = self.state.lock();
        if pass >= 1 && pass < state.pass {
            put("Restarting e2fsck from the beginning...\n");
            state.pass = 0;
        }
        while state.pass < pass.min(HEADINGS.len() as Pass) {
            put(&format!("{}\n", HEADINGS[usize::from(state.pass)]));
            state.pass += 1;
        }
        state.pass = state.pass.max(pass);
    }

    fn answer(&self, finding: &Finding) -> Judgement {
        let row = finding.code.row();
        if row.severity == Severity::Fatal {
            return if self.answering == Answering::Preen {
                Judgement::Stop
            } else {
                Judgement::Leave
            };
        }
        if row.question.is_empty() {
            let stops = self.answering == Answering::Preen && row.severity > Severity::Safe;
            return if stops { Judgement::Stop } else { Judgement::Leave };
        }
        match self.answering {
            Answering::No => Judgement::Leave,
            Answering::Yes => answered_yes(finding.code),
            Answering::Preen => preened(finding.code),
            Answering::Ask if self.state.lock().all_yes => Judgement::Repair,
            Answering::Ask => self.ask(row.question, row.default),
        }
    }

    /// y, n, or a for all; return takes the default.
    fn ask(&self, question: &str, default: bool) -> Judgement {
        let shown = if default { "y" } else { "n" };
        loop {
            put(&format!("{question}<{shown}>? "));
            let mut line = String::new();
            let read = std::io::stdin().lock().read_line(&mut line);
            let yes = match line.trim() {
                _ if !matches!(read, Ok(count) if count > 0) => false,
                "" => default,
                "y" | "Y" | "yes" => true,
                "n" | "N" | "no" => false,
                "a" | "A" => {
                    self.state.lock().all_yes = true;
                    true
                }
                _ => continue,
            };
            put("\n");
            return if yes { Judgement::Repair } else { Judgement::Leave };
        }
    }

    fn show(&self, finding: &Finding) {
        let (row, name) = (finding.code.row(), self.name());
        let is_asked = self.answering == Answering::Ask && !row.question.is_empty();
        match self.answering {
            _ if self.is_json => {}
            // Preening says nothing of what is not worth a word.
            Answering::Preen => put(&format!("{name}: {finding}")),
            _ if finding.code == Code::JournalRecovered => put(&format!("{name}: {finding}")),
            _ if is_asked => put(&format!("{finding}\n")),
            _ => put(&finding.to_string()),
        }
    }

    fn show_answer(&self, finding: &Finding, judgement: Judgement) {
        let question = finding.code.row().question;
        match (self.answering, judgement) {
            _ if self.is_json => {}
            (Answering::Ask, _) if !question.is_empty() => put("\n"),
            (_, _) if question.is_empty() => put("\n"),
            (Answering::Preen, Judgement::Repair) => put(&format!(" ({}).\n", done_word(question))),
            (_, Judgement::Repair) => put(&format!("  {question}? yes\n\n")),
            (Answering::Preen, Judgement::Leave) => put(" (IGNORED).\n"),
            (Answering::Preen, _) => put("\n"),
            _ => put(&format!("  {question}? no\n\n")),
        }
    }

    /// Every finding, with what was done.
    pub(super) fn json_findings(&self) -> Vec<JsonFinding> {
        self.state.lock().told.iter().map(JsonFinding::from).collect()
    }

    /// The document of a run that did not come to its end.
    pub(super) fn print_json_alone(&self, image: &str, code: u8) {
        let document = serde_json::json!({
            "image": image,
            "exit_code": code,
            "finished": false,
            "findings": self.json_findings(),
        });
        put(&format!("{document:#}\n"));
    }
}

impl Judge for Console {
    fn judge(&self, finding: &Finding) -> Judgement {
        let pass = finding.code.row().pass;
        if pass > 0 {
            self.head(pass);
        }
        self.show(finding);
        let judgement = self.answer(finding);
        self.show_answer(finding, judgement);
        self.state.lock().told.push(Told { finding: finding.clone(), judgement });
        judgement
    }

    fn may_repair(&self) -> bool {
        self.answering != Answering::No
    }
}

impl Told {
    fn is_repaired(&self) -> bool {
        self.judgement == Judgement::Repair && !self.finding.code.row().question.is_empty()
    }
}

impl From<&Told> for JsonFinding {
    fn from(told: &Told) -> Self {
        let (row, subject) = (told.finding.code.row(), &told.finding.subject);
        Self {
            code: row.name,
            pass: row.pass,
            severity: row.severity,
            text: told.finding.to_string(),
            inode: subject.inode.map(|inode| inode.0),
            directory: subject.dir.map(|inode| inode.0),
            block: subject.block.map(|block| block.0),
            file_block: subject.file_block.map(|block| block.0),
            group: subject.group.map(|group| group.0),
            name: subject.name.as_deref().map(JsonName::from),
            repair: Some(row.question).filter(|question| !question.is_empty()),
            done: told.is_repaired(),
        }
    }
}

/// What preening says of a repair, in e2fsck's words.
fn done_word(question: &str) -> &'static str {
    const WORDS: [(&str, &str); 17] = [
        ("Clear inode", "INODE CLEARED"),
        ("Clear HTree index", "HTREE INDEX CLEARED"),
        ("Clear", "CLEARED"),
        ("Relocate", "RELOCATED"),
        ("Connect", "RECONNECTED"),
        ("Create", "CREATED"),
        ("Recreate", "RECREATED"),
        ("Salvage", "SALVAGED"),
        ("Truncate", "TRUNCATED"),
        ("Split", "SPLIT"),
        ("Clone", "CLONED"),
        ("Delete", "DELETED"),
        ("Unlink", "UNLINKED"),
        ("Allocate", "ALLOCATED"),
        ("Optimize", "OPTIMIZED"),
        ("Rebuild", "REBUILT"),
        ("Update", "UPDATED"),
    ];
    WORDS.iter().find(|(start, _)| question.starts_with(start)).map_or("FIXED", |(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(answering: Answering, code: Code) -> Judgement {
        Console::new(answering, true, "x".into()).judge(&Finding::new(code))
    }

    #[test]
    fn each_way_of_answering_follows_the_severity() {
        use Answering::{No, Preen, Yes};
        let (safe, damage) = (Code::GroupDescChecksum, Code::SuperblockInvalid);
        assert_eq!(answer(Yes, damage), Judgement::Repair);
        assert_eq!(answer(No, safe), Judgement::Leave);
        assert_eq!(
            (answer(Preen, safe), answer(Preen, damage)),
            (Judgement::Repair, Judgement::Stop)
        );
    }

    #[test]
    fn what_needs_no_answer_is_no_repair() {
        let console = Console::new(Answering::Yes, true, "x".into());
        console.judge(&Finding::new(Code::OrphanCleared));
        assert!(!console.is_modified());
        console.judge(&Finding::new(Code::GroupDescChecksum));
        assert!(console.is_modified());
    }
}
