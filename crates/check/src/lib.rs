//! The ext4 checker: five passes, findings, repairs.
//!
//! One set of rules, run in two ways. The *look* runs the passes over all groups in parallel; its [`Judge`] notes every
//! finding and repairs nothing. Only where the look found something does the *repair* run: the same rules, one inode after the
//! other, with a judge that asks, answers yes, or admits what preening may do; a finding that it accepts is repaired on the
//! spot, through [`Store`]. Then the look runs again, until it finds nothing or nothing changes any more.
//!
//! [`look`] and [`repair`] take a [`Store`]: the superblock and descriptors that it was opened with are believed as far as
//! `Geometry` does; what is wrong with them is judged before.
#![forbid(unsafe_code)]

mod ahead;
mod check;
mod clear;
pub mod finding;
pub mod front;
pub mod judge;
mod map;
mod order;
mod pass1;
mod pass2;
mod pass3;
mod pass4;
mod pass5;
mod pass6;
mod report;
pub mod store;
mod tables;

pub use check::{look, repair};
pub use finding::{Code, Finding, Severity, Subject};
pub use judge::{Answers, Judge, Judgement};
pub use report::{Census, Jump, JumpTo, OnWork, Options, Outcome, PassFigures, Progress, Report};
pub use store::{CheckError, Store, Traffic};
