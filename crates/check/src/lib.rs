//! The ext4 checker: five passes, findings, repairs.
//!
//! One set of rules, run in two ways. The *look* runs the passes over all groups in parallel; its
//! [`Recorder`] keeps every finding and repairs nothing. Only where the look found something does
//! the *repair* run: the same rules, one inode after the other, with a [`RepairPolicy`] that asks,
//! answers yes, or admits what preening may do; a finding that it accepts is repaired on the spot,
//! through [`Store`]. Then the look runs again, until it finds nothing or nothing changes any more.
//!
//! [`scan`] and [`repair`] take a [`Store`]: the superblock and descriptors that it was opened with
//! are believed as far as `Geometry` does; what is wrong with them is judged before.
#![forbid(unsafe_code)]

mod clear;
mod context;
pub mod finding;
mod map;
mod order;
pub mod pass0;
mod pass1;
mod pass2;
mod pass3;
mod pass4;
mod pass5;
mod pass6;
pub mod policy;
mod prefetch;
mod recorder;
mod report;
mod rounds;
pub mod run;
pub mod store;
mod tables;

pub use finding::{Code, Finding, Severity, Subject};
pub use policy::{AutoPolicy, Decision, RepairPolicy};
pub use recorder::{BlockTest, Observer, Recorder};
pub use report::{
    CheckOptions, Discontinuity, DiscontinuityTarget, HandledFinding, OnWork, PassReport,
    PassStatistics, Progress, VolumeStatistics,
};
pub use rounds::{repair, scan};
pub use run::{Report, RunOptions};
pub use store::{CheckError, Store, Traffic};
