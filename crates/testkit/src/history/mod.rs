//! Histories of file system calls, a model of their expected results, and subjects that are
//! compared with it.
//!
//! A [`History`] is data: it can be generated from a seed ([`generate()`]), replayed on any
//! [`Subject`], reduced while it still fails ([`shrink()`]), and printed. The [`Model`] is a POSIX
//! tree in memory. [`Mounted`] is the subject for system calls, so the model is verified with the
//! kernel's own ext4 before any other file system is tested.
//!
//! Files are identified by the number of the step that created them, so steps can be left out
//! without changing the others: steps on missing files are skipped.

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
    CAPABILITY, Call, Credentials, Fallocate, FileId, Moment, NodeKind, RenameHow, Step, XattrHow,
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
    /// The calls, in ascending order of their numbers.
    pub steps: Vec<Step>,
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(f, "  {:4} {:?}", step.number, step.call))
    }
}

/// The result of a call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    /// It was done.
    Done,
    /// Number of bytes written.
    Written(u64),
    /// These bytes were read.
    Bytes(Vec<u8>),
    /// Where data or a hole starts.
    Offset(u64),
    /// There is no data, or no hole, from that offset on: a system call returns ENXIO.
    NoOffset,
    /// Names of a directory without `.` and `..`, sorted.
    Names(Vec<Vec<u8>>),
    /// The attributes of a file.
    Attributes(Attributes),
    /// Number of inodes in use.
    InodesUsed(u64),
    /// Flags, and the project if the subject returns it.
    Flags {
        /// Those of [`flags::ALL`] that are set.
        flags: u32,
        /// The project, if the subject returns it.
        project: Option<u32>,
    },
    /// Ranges of bytes that have blocks, and whether these hold data.
    Extents(Vec<(Range<u64>, bool)>),
    /// Names of a directory in the order returned.
    NamesRead {
        /// Without `.` and `..`.
        names: Vec<Vec<u8>>,
        /// Whether the end was reached.
        is_end: bool,
    },
    /// Differences between the device's content and the tree.
    Differences(Vec<String>),
}

/// The attributes from stat.
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
    /// Size in bytes; 0 for all but files and symbolic links.
    pub size: u64,
    /// Number of names; 1 for a directory with too many links to count.
    pub links: u64,
    /// Time of the last change of the content.
    pub mtime: Moment,
    /// Time of the last change of the inode.
    pub ctime: Moment,
}

/// A file system on which a history is replayed.
pub trait Subject {
    /// Executes a step. `model` is the state before it.
    ///
    /// # Errors
    /// The error of the call.
    fn perform(&mut self, step: &Step, model: &Model) -> Result<Answer, Errno>;

    /// The message of the last failed call.
    fn last_error(&self) -> Option<String> {
        None
    }

    /// The current time, by the clock of file timestamps.
    fn now(&self) -> Moment;
}

/// A step whose result differs from the model's.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// The step.
    pub step: Step,
    /// The difference.
    pub what: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {} {:?}: {}", self.step.number, self.step.call, self.what)
    }
}

/// Executes a step on the subject and, if its result is right, in the model.
///
/// # Errors
/// The subject's result differs from the model's.
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
/// The first step whose result differs from the model's.
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
