//! The ext4 checker: five passes, findings, repairs.
//!
//! One set of rules, run in two ways. The *scan* runs the passes over all groups in parallel; its
//! [`Recorder`] keeps every finding and repairs nothing. The *repair* runs only if the scan found
//! something: the same rules, what the scan found in order after all else, with a [`RepairPolicy`]
//! that asks the user, answers yes, or allows the repairs of preening; an accepted finding is
//! repaired immediately, through [`Store`]. Then the scan runs again, until it finds nothing or
//! nothing changes any more; it is left out where the repairs leave nothing to find.
//!
//! [`scan`] and [`repair`] take a [`Store`]. They rely on its superblock and descriptors as far as
//! `Geometry` does; pass 0 has checked both.
#![forbid(unsafe_code)]

mod carve;
mod clear;
mod context;
mod evidence;
pub mod finding;
mod lost_directories;
mod map;
mod misplaced;
mod older_names;
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
mod recount;
mod report;
mod rounds;
pub mod run;
pub mod store;
mod tables;
mod unclaimed;

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
