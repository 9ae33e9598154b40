//! The ext4 checker: five passes, findings, repairs.
//!
//! One set of rules, run in two ways. The *look* runs the passes over all groups in parallel; its [`Judge`] notes every
//! finding and repairs nothing. Only where the look found something does the *repair* run: the same rules, one inode after the
//! other, with a judge that asks, answers yes, or admits what preening may do; a finding that it accepts is repaired on the
//! spot, through [`Store`]. Then the look runs again, until it finds nothing or nothing changes any more.
#![forbid(unsafe_code)]

pub mod finding;
pub mod judge;
pub mod store;

pub use finding::{Code, Finding, Subject};
pub use judge::{Answers, Judge, Judgement};
pub use store::{CheckError, Store};
