//! The live journal under a toy client: whatever happens to the power, what was committed is there, what was not is
//! not, and nothing is half there.

#[path = "../recovery/compare.rs"]
#[allow(dead_code, reason = "the recovery tests use the rest")]
mod compare;
mod failures;
mod histories;
mod power_cut;
mod threads;
mod toy;
