//! Power loss: the device is recorded under random histories, and every image that a cut could have
//! left is recovered and verified by the model.
//!
//! A recovered tree must be the tree after some step: not earlier than what fsync, fdatasync and
//! sync acknowledged before the cut, not later than the step under way. So every call on names and
//! attributes is whole or not there. The sectors of a file's content must be those of that step or
//! a later one: data may be newer than metadata, and never older. Free blocks hold a pattern at the
//! start; no file may show it.

mod clean;
mod cuts;
mod dirty;
mod preen;
mod verify;

pub(crate) use verify::{Failures, Recorded, recover};
