//! The live journal under a test client: after a power cut at any moment, every committed operation
//! is complete, and no other has left a part.

#[path = "../recovery/compare.rs"]
#[allow(dead_code, reason = "the recovery tests use the rest")]
mod compare;
mod failures;
mod histories;
mod power_cut;
mod threads;
mod toy;
