//! Both checkers on one damaged volume.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::process::{Command, Output};

use extant::rooms::check::Store;
use extant_testkit::{LoopMount, tool};

use crate::bases::Base;
use crate::common::{BIG, Walker, open, sha};
use crate::sparse::Sparse;

/// Exit codes above this are of a panic, a signal or the time limit.
const LAST_CODE: i32 = 63;
/// From this exit code on nothing was repaired.
const OPERATIONAL: i32 = 8;
/// One in that many repaired volumes is read by the kernel as well.
const SECOND_READER: u64 = 16;

/// Contents of a volume: lines of path, type, size and hash; contents by size and hash.
#[derive(Default)]
pub(crate) struct Tree {
    names: BTreeSet<String>,
    contents: BTreeSet<String>,
}

impl Tree {
    pub(crate) fn of(image: &Path) -> Self {
        let Ok(store) = Store::open(open(image, false)) else { return Self::default() };
        let mut tree = Self::default();
        for line in Walker::tree(&store).lines() {
            if let Some((_, content)) =
                line.split_once("\tf\t").filter(|(_, it)| !it.starts_with("0\t"))
            {
                tree.contents.insert(content.to_owned());
            }
            tree.names.insert(line.to_owned());
        }
        tree
    }

    /// Originals that `theirs` has and `ours` does not: lines of the tree, then contents.
    fn lost(&self, ours: &Self, theirs: &Self) -> Vec<String> {
        let only = |all: &BTreeSet<String>, ours: &BTreeSet<String>, theirs: &BTreeSet<String>| {
            let is_lost = |line: &&String| theirs.contains(*line) && !ours.contains(*line);
            all.iter().filter(is_lost).cloned().collect::<Vec<_>>()
        };
        let mut lost = only(&self.names, &ours.names, &theirs.names);
        for content in only(&self.contents, &ours.contents, &theirs.contents) {
            let name = self.names.iter().find(|line| line.ends_with(&content));
            lost.push(format!("content of {}", name.unwrap_or(&content)));
        }
        lost
    }

    fn kept_by(&self, after: &Self) -> Kept {
        Kept {
            names: self.names.intersection(&after.names).count(),
            contents: self.contents.intersection(&after.contents).count(),
        }
    }

    pub(crate) fn all(&self) -> Kept {
        Kept { names: self.names.len(), contents: self.contents.len() }
    }
}

/// How many originals.
#[derive(Clone, Copy, Default, Eq, PartialEq)]
pub(crate) struct Kept {
    pub(crate) names: usize,
    pub(crate) contents: usize,
}

impl Kept {
    pub(crate) fn add(&mut self, other: &Self) {
        self.names += other.names;
        self.contents += other.contents;
    }
}

/// Result of one checker.
#[derive(Default)]
pub(crate) struct Side {
    /// Of `-n`, `-p` and `-y`; `None` after a signal.
    pub(crate) codes: [Option<i32>; 3],
    /// Whether `e2fsck -fn` finds nothing after `-y`.
    pub(crate) is_clean: bool,
    pub(crate) kept: Kept,
}

/// How a trial went.
pub(crate) struct Verdict {
    /// Ours, e2fsck's.
    pub(crate) sides: [Side; 2],
    pub(crate) of: Kept,
    /// Exit code of our second run.
    pub(crate) second: Option<i32>,
    /// Failures that must never be: a panic, a write with `-n`, invalid JSON, readers that differ.
    pub(crate) broken: Vec<String>,
    /// Files that e2fsck keeps and ours does not.
    pub(crate) lost: Vec<String>,
}

impl Verdict {
    /// Whether originals are gone that e2fsck keeps.
    pub(crate) fn keeps_less(&self) -> bool {
        let [ours, theirs] = [self.sides[0].kept, self.sides[1].kept];
        ours.names < theirs.names || ours.contents < theirs.contents
    }

    pub(crate) fn is_worse(&self) -> bool {
        self.keeps_less()
            || !self.broken.is_empty()
            || (self.sides[1].is_clean && !self.sides[0].is_clean)
    }

    pub(crate) fn is_better(&self) -> bool {
        let [ours, theirs] = [self.sides[0].kept, self.sides[1].kept];
        !self.is_worse() && (ours != theirs || (self.sides[0].is_clean && !self.sides[1].is_clean))
    }

    /// Whether there is nothing to report.
    pub(crate) fn is_even(&self) -> bool {
        !self.is_worse() && self.sides[0].is_clean && self.second == Some(0)
    }

    /// Whether a repair that ended well left something to a second run. What was refused is refused
    /// again.
    pub(crate) fn leaves_something(&self) -> bool {
        self.second != Some(0) && self.sides[0].codes[2].is_none_or(|code| code < OPERATIONAL)
    }

    pub(crate) fn codes_differ(&self) -> bool {
        self.sides[0].codes != self.sides[1].codes
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, side) in ["ours", "e2fsck"].iter().zip(&self.sides) {
            write!(
                f,
                "{name}: -n -p -y {:?}, clean {}, names {} contents {}; ",
                side.codes.map(|code| code.unwrap_or(-1)),
                side.is_clean,
                side.kept.names,
                side.kept.contents
            )?;
        }
        let worse = if self.is_worse() { "WORSE" } else { "" };
        write!(
            f,
            "of {} and {}; second run {:?} {worse}",
            self.of.names, self.of.contents, self.second
        )?;
        self.broken.iter().try_for_each(|what| write!(f, "\n  BROKEN: {what}"))
    }
}

fn ours(option: &str, image: &Path) -> Output {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "60", env!("CARGO_BIN_EXE_extant"), "fsck", "-f", option, "--json"]);
    command.arg(image).output().expect("timeout is installed")
}

fn e2fsck(option: &str, image: &Path) -> Option<i32> {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "60"]).arg(tool("e2fsck").expect("asked for before").path());
    command.args(["-f", option]).arg(image).output().expect("timeout is installed").status.code()
}

/// Exit code of ours; what must not be goes to `broken`.
fn our_code(option: &str, image: &Path, broken: &mut Vec<String>) -> Option<i32> {
    let output = ours(option, image);
    let code = output.status.code();
    if code.is_none_or(|code| code > LAST_CODE) {
        broken
            .push(format!("{option} ended {code:?}: {}", String::from_utf8_lossy(&output.stderr)));
    } else if let Err(error) = serde_json::from_slice::<serde_json::Value>(&output.stdout) {
        broken.push(format!("{option} --json, exit {code:?}: {error}"));
    }
    code
}

/// Judges both on the damaged volume at `image`.
pub(crate) fn judge(image: &Path, damaged: &Sparse, base: &Base, number: u64) -> Verdict {
    let mut broken = Vec::new();
    let mut sides = [Side::default(), Side::default()];
    let mut trees = [Tree::default(), Tree::default()];
    sides[0].codes[0] = our_code("-n", image, &mut broken);
    if Sparse::read(image) != *damaged {
        broken.push("-n wrote".to_owned());
        damaged.write(image);
    }
    sides[1].codes[0] = e2fsck("-n", image);
    for (at, option) in [(1, "-p"), (2, "-y")] {
        damaged.write(image);
        sides[1].codes[at] = e2fsck(option, image);
        if option == "-y" {
            (sides[1].is_clean, trees[1]) = what_is_left(image);
        }
        damaged.write(image);
        sides[0].codes[at] = our_code(option, image, &mut broken);
    }
    (sides[0].is_clean, trees[0]) = what_is_left(image);
    for (side, tree) in sides.iter_mut().zip(&trees) {
        side.kept = base.healthy.kept_by(tree);
    }
    if sides[0].is_clean && number.is_multiple_of(SECOND_READER) {
        broken.extend(second_reader(image, &base.healthy, sides[0].kept.contents));
    }
    let second = our_code("-y", image, &mut broken);
    let [ours, theirs] = &trees;
    let lost = base.healthy.lost(ours, theirs);
    Verdict { sides, of: base.healthy.all(), second, broken, lost }
}

/// Whether a repaired volume is clean, and what it holds then.
fn what_is_left(image: &Path) -> (bool, Tree) {
    let is_clean = e2fsck("-n", image) == Some(0);
    (is_clean, if is_clean { Tree::of(image) } else { Tree::default() })
}

/// Contents counted as kept that the kernel reads: `None` where it finds as many,
/// or does not mount the volume for want of a feature.
fn second_reader(image: &Path, healthy: &Tree, kept: usize) -> Option<String> {
    let mount = LoopMount::new(image, "ro,noload").ok()?;
    let mut found = BTreeSet::new();
    let mut dirs = vec![mount.path().to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).ok()?.flatten() {
            let kind = entry.file_type().ok()?;
            if kind.is_dir() {
                dirs.push(entry.path());
            } else if kind.is_file() && entry.metadata().is_ok_and(|it| it.len() <= BIG) {
                let bytes = std::fs::read(entry.path()).unwrap_or_default();
                found.insert(format!("{}\t{}", bytes.len(), sha(&bytes)));
            }
        }
    }
    let same = healthy.contents.intersection(&found).count();
    let big = healthy.contents.iter().filter(|it| it.ends_with("\tbig")).count();
    (same + big < kept).then(|| format!("the kernel reads {same} of the {kept} contents kept"))
}
