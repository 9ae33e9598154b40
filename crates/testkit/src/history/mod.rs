//! Histories of calls on a file system, a model that says what each must give, and subjects that are held to it.
//!
//! A [`History`] is data: it can be generated from a seed ([`generate()`]), replayed on any [`Subject`], made smaller while it
//! still fails ([`shrink()`]), and printed. The [`Model`] is a POSIX tree in memory. [`Mounted`] is the subject behind system
//! calls, so the kernel's own ext4 is held to the model before any other file system is.
//!
//! Files are named by the number of the step that made them, so a step can be left out and the others keep their meaning:
//! steps whose files are missing are passed over.

mod acl;
mod calls;
mod content;
pub mod flags;
mod generate;
mod model;
mod mounted;
mod shrink;
mod times;

use rustix::io::Errno;
use std::fmt;
use std::ops::Range;

pub use acl::{AclEntry, AclTag, from_xattr as acl_from_xattr, to_xattr as acl_to_xattr};
pub use calls::{
    CAPABILITY, Call, Creator, Fallocate, FileId, Moment, NodeKind, RenameHow, Step, XattrHow,
    bytes_of, value_of,
};
pub use content::Content;
pub use generate::{Family, Profile, generate};
pub use model::{Expected, File, Model, Rules};
pub use mounted::Mounted;
pub use shrink::shrink;
pub use times::{Clock, Stamp};

/// Steps in order.
#[derive(Clone, Eq, PartialEq)]
pub struct History {
    /// The calls, their numbers rising.
    pub steps: Vec<Step>,
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(f, "  {:4} {:?}", step.number, step.call))
    }
}

/// What a call gave.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    /// It was done.
    Done,
    /// So many bytes were written.
    Written(u64),
    /// These bytes were read.
    Bytes(Vec<u8>),
    /// Where data or a hole starts.
    Offset(u64),
    /// There is no data, or no hole, from there on: a system call says ENXIO.
    NoOffset,
    /// Names of a directory without `.` and `..`, sorted.
    Names(Vec<Vec<u8>>),
    /// The attributes of a file.
    Attributes(Attributes),
    /// Inodes in use.
    InodesUsed(u64),
    /// Flags, and the project where it is told.
    Flags {
        /// Those of [`flags::ALL`] that are set.
        flags: u32,
        /// The project, where the subject tells it.
        project: Option<u32>,
    },
    /// Ranges of bytes that have blocks, and whether these hold data.
    Extents(Vec<(Range<u64>, bool)>),
    /// Names of a directory as they came.
    NamesRead {
        /// Without `.` and `..`.
        names: Vec<Vec<u8>>,
        /// There are no more.
        is_end: bool,
    },
    /// Where what is on the device differs from the tree.
    Differences(Vec<String>),
}

/// What stat tells of a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Attributes {
    /// The file's type.
    pub kind: crate::Kind,
    /// Permission bits with setuid, setgid and sticky.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes; 0 for all but files and symbolic links.
    pub size: u64,
    /// Names of the file; 1 for a directory whose links are not counted any more.
    pub links: u64,
    /// Time of the last change of the content.
    pub mtime: Moment,
    /// Time of the last change of the inode.
    pub ctime: Moment,
}

/// A file system that a history is replayed on.
pub trait Subject {
    /// Carries out a step. `model` is what was true before it.
    ///
    /// # Errors
    /// What the call failed with.
    fn perform(&mut self, step: &Step, model: &Model) -> Result<Answer, Errno>;

    /// What the last failed call said.
    fn last_error(&self) -> Option<String> {
        None
    }

    /// The time now, by the clock that stamps files.
    fn now(&self) -> Moment;
}

/// A step whose outcome is not the model's.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// The step.
    pub step: Step,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {} {:?}: {}", self.step.number, self.step.call, self.what)
    }
}

/// Carries out one step on the subject and, where it did what it should, in the model.
///
/// # Errors
/// The subject did something else than the model says.
pub fn advance(model: &mut Model, subject: &mut dyn Subject, step: &Step) -> Result<(), Mismatch> {
    let mismatch = |what| Mismatch { step: step.clone(), what };
    let expected = model.expect(step);
    if expected == Expected::PassedOver {
        return Ok(());
    }
    let start = subject.now();
    let found = subject.perform(step, model);
    model.clock.note(step.number, start, subject.now());
    match (&expected, &found) {
        (Expected::Success, Ok(answer)) => model.apply(step, answer).map_err(mismatch),
        (Expected::Success, Err(errno)) if model.may_fail(step, *errno) => Ok(()),
        (Expected::Failure(errnos), Err(errno)) if errnos.contains(errno) => {
            model.refused(step);
            Ok(())
        }
        _ => {
            let said = subject.last_error().filter(|_| found.is_err()).unwrap_or_default();
            let found = shown(&found);
            Err(mismatch(format!("expected {expected:?}, found {found} {said}")))
        }
    }
}

/// Replays a history from its start.
///
/// # Errors
/// The first step at which the subject does something else than the model says.
pub fn replay(
    history: &History,
    model: &mut Model,
    subject: &mut dyn Subject,
) -> Result<(), Mismatch> {
    history.steps.iter().try_for_each(|step| advance(model, subject, step))
}

fn shown(found: &Result<Answer, Errno>) -> String {
    match found {
        Ok(Answer::Bytes(bytes)) => format!("{} bytes", bytes.len()),
        found => format!("{found:?}"),
    }
}
