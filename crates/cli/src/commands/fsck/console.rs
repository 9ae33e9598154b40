//! Answers to questions: by the options -n, -y, -p, or by the user at a terminal. Findings are
//! shown as e2fsck shows its own.

use std::io::Write;
use std::sync::Arc;

use extant::rooms::check::finding::Pass;
use extant::rooms::check::policy::{preen_decision, yes_decision};
use extant::rooms::check::{
    BlockTest, Code, Decision, Discontinuity, Finding, HandledFinding, Observer, RepairPolicy,
    Severity,
};
use extant::rooms::device::Device;
use extant::rooms::ondisk::superblock::Superblock;
use extant::rooms::runtime::sync::Mutex;

use super::interrupt::uninterrupted;
use super::keyboard;
use super::paths::Paths;
use super::progress::Meter;
use crate::output::printable;

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

/// How questions are answered and what is shown, as given on the command line.
pub(super) struct Console {
    answering: Answering,
    is_json: bool,
    /// Of bitmaps and counts that preening corrects.
    keeps_quiet: bool,
    meter: Meter,
    paths: Paths,
    state: Mutex<State>,
}

struct State {
    /// How messages name the volume: its label, or the image.
    name: String,
    /// The pass whose heading stands last.
    pass: Pass,
    all_yes: bool,
    /// The question was put to the user, and the answer ended its line.
    was_asked: bool,
}

const HEADINGS: [&str; 5] = [
    "Pass 1: Checking inodes, blocks, and sizes",
    "Pass 2: Checking directory structure",
    "Pass 3: Checking directory connectivity",
    "Pass 4: Checking reference counts",
    "Pass 5: Checking group summary information",
];

/// Standard output without a buffer of its own: questions must be seen. A reader that has gone is
/// not told.
pub(super) fn put(text: &str) {
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

impl Console {
    pub(super) fn new(answering: Answering, is_json: bool, name: String, meter: Meter) -> Self {
        let state = State { name, pass: 0, all_yes: false, was_asked: false };
        let paths = Paths::default();
        Self { answering, is_json, keeps_quiet: false, meter, paths, state: Mutex::new(state) }
    }

    /// Preening says nothing of bitmaps and counts that it corrects, as e2fsck.
    pub(super) fn keeping_quiet(self, keeps_quiet: bool) -> Self {
        Self { keeps_quiet, ..self }
    }

    /// Names directories by the paths that they have on a device.
    pub(super) fn with_paths_on(self, device: Arc<dyn Device>) -> Self {
        Self { paths: Paths::on(device), ..self }
    }

    /// How messages name the volume.
    pub(super) fn name(&self) -> String {
        self.state.lock().name.clone()
    }

    /// A line, unless the output is JSON.
    pub(super) fn say(&self, line: &str) {
        if !self.is_json {
            put(&format!("{line}\n"));
        }
    }

    /// Whether questions are put to the user still.
    fn asks(&self) -> bool {
        self.answering == Answering::Ask && !self.state.lock().all_yes
    }

    fn shows_passes(&self) -> bool {
        self.answering != Answering::Preen && !self.is_json
    }

    /// Shows the headings up to a pass; a repeated pass starts again.
    fn head(&self, pass: Pass) {
        if !self.shows_passes() {
            return;
        }
        let _quiet = self.meter.pause();
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

    fn answer(&self, finding: &Finding) -> Decision {
        let row = finding.code.row();
        if row.severity == Severity::Fatal {
            return if self.answering == Answering::Preen {
                Decision::Abort
            } else {
                Decision::Skip
            };
        }
        if row.prompt.is_empty() {
            let stops = self.answering == Answering::Preen && row.severity > Severity::Safe;
            return if stops { Decision::Abort } else { Decision::Skip };
        }
        match self.answering {
            Answering::No => Decision::Skip,
            Answering::Yes => yes_decision(finding.code),
            Answering::Preen => preen_decision(finding.code),
            Answering::Ask if self.state.lock().all_yes => Decision::Fix,
            Answering::Ask => self.ask(row.prompt, row.default),
        }
    }

    /// One key: y, n, or a for all; return and space take the default.
    fn ask(&self, question: &str, default: bool) -> Decision {
        let _quiet = self.meter.pause();
        let shown = if default { "y" } else { "n" };
        put(&format!("{question}<{shown}>? "));
        let (answer, is_yes) = loop {
            match keyboard::key() {
                None => break ("no", false),
                Some(b' ' | b'\n' | b'\r') if default => break ("yes", true),
                Some(b' ' | b'\n' | b'\r') => break ("no", false),
                Some(b'y' | b'Y') => break ("yes", true),
                Some(b'n' | b'N') => break ("no", false),
                Some(b'a' | b'A') => {
                    self.state.lock().all_yes = true;
                    break ("yes to all", true);
                }
                Some(_) => {}
            }
        };
        put(&format!("{answer}\n"));
        self.state.lock().was_asked = true;
        if is_yes { Decision::Fix } else { Decision::Skip }
    }

    /// Whether preening corrects what the code names without a word.
    fn is_quiet_on(&self, code: Code) -> bool {
        self.keeps_quiet
            && self.answering == Answering::Preen
            && matches!(
                code,
                Code::BlockBitmapWrong
                    | Code::InodeBitmapWrong
                    | Code::GroupFreeBlocksWrong
                    | Code::GroupFreeInodesWrong
                    | Code::GroupDirectoriesWrong
                    | Code::FreeBlocksTotalWrong
                    | Code::FreeInodesTotalWrong
            )
    }

    fn show(&self, finding: &Finding) {
        let (row, name) = (finding.code.row(), self.name());
        let is_asked = self.asks() && !row.prompt.is_empty();
        if self.is_json || self.is_quiet_on(finding.code) {
            return;
        }
        let text = finding.with_paths(&|directory| self.paths.of(directory));
        let _quiet = self.meter.pause();
        match self.answering {
            Answering::Preen => put(&format!("{name}: {text}")),
            _ if finding.code == Code::JournalRecovered => put(&format!("{name}: {text}")),
            _ if is_asked => put(&format!("{text}  ")),
            _ => put(&text),
        }
    }

    fn show_answer(&self, finding: &Finding, decision: Decision) {
        let question = finding.code.row().prompt;
        let _quiet = self.meter.pause();
        let was_asked = std::mem::take(&mut self.state.lock().was_asked);
        match (self.answering, decision) {
            _ if self.is_json || self.is_quiet_on(finding.code) => {}
            // The answer ended the line of the question.
            _ if was_asked => {}
            (_, _) if question.is_empty() => put("\n"),
            (Answering::Preen, Decision::Fix) => put(&format!("  {}.\n", done_word(question))),
            (_, Decision::Fix) => put(&format!("  {question}? yes\n\n")),
            (Answering::Preen, Decision::Skip) => put("  IGNORED.\n"),
            (Answering::Preen, _) => put("\n"),
            _ => put(&format!("  {question}? no\n\n")),
        }
    }
}

impl RepairPolicy for Console {
    fn decide(&self, finding: &Finding) -> Decision {
        self.answer(finding)
    }

    fn may_repair(&self) -> bool {
        self.answering != Answering::No
    }
}

impl Observer for Console {
    fn found(&self, finding: &Finding) {
        let pass = finding.code.row().pass;
        if pass > 0 {
            self.head(pass);
        }
        self.show(finding);
    }

    fn decided(&self, outcome: &HandledFinding, decision: Decision) {
        self.show_answer(&outcome.finding, decision);
    }

    fn testing_blocks(&self, test: BlockTest) {
        let how = match test {
            BlockTest::Read => "read-only test",
            BlockTest::Rewrite => "non-destructive read-write test",
        };
        self.say(&format!("Checking for bad blocks ({how})"));
    }

    fn bad_blocks_change(&self) {
        self.say(&format!("{}: Updating bad block inode.", self.name()));
    }

    fn uninterrupted(&self, work: &mut dyn FnMut()) {
        uninterrupted(work);
    }

    /// Messages begin with the volume's label, as e2fsck's.
    fn opened(&self, superblock: &Superblock) {
        let name = superblock.volume_name;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        let label = printable(&name[..end]);
        if !label.is_empty() {
            self.state.lock().name = label;
        }
    }

    fn due(&self, reason: &str) {
        self.say(&format!("{} {reason}, check forced.", self.name()));
    }

    fn passes_ran(&self) {
        self.meter.finish();
    }

    /// Told with pass 1, or after the repairs.
    fn discontinuities(&self, discontinuities: &[Discontinuity]) {
        if self.state.lock().pass == 0 {
            self.head(1);
        }
        for jump in discontinuities {
            self.say(&jump.to_string());
        }
    }

    /// The headings of passes that found nothing.
    fn passes_reported(&self) {
        self.head(HEADINGS.len() as Pass);
    }
}

/// Text of a repair made by preening, in e2fsck's words.
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
    use extant::rooms::check::Recorder;

    fn console(answering: Answering) -> Console {
        let meter = Meter::new(Some(0), None, "x", false).expect("a bar");
        Console::new(answering, true, "x".into(), meter)
    }

    fn answer(answering: Answering, code: Code) -> Decision {
        console(answering).decide(&Finding::new(code))
    }

    #[test]
    fn each_way_of_answering_follows_the_severity() {
        use Answering::{No, Preen, Yes};
        let (safe, damage) = (Code::GroupDescChecksum, Code::SuperblockInvalid);
        assert_eq!(answer(Yes, damage), Decision::Fix);
        assert_eq!(answer(No, safe), Decision::Skip);
        assert_eq!((answer(Preen, safe), answer(Preen, damage)), (Decision::Fix, Decision::Abort));
    }

    #[test]
    fn what_needs_no_answer_is_no_repair() {
        let console = console(Answering::Yes);
        let recorder = Recorder::observed(&console, &console);
        assert!(!recorder.should_fix(Finding::new(Code::OrphanCleared)).unwrap());
        assert!(recorder.should_fix(Finding::new(Code::GroupDescChecksum)).unwrap());
        let repaired: Vec<_> = recorder.findings().iter().map(|it| it.repaired).collect();
        assert_eq!(repaired, [false, true]);
    }
}
