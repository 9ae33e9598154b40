//! Locks, conditions and threads without a lock order: the system's, or those of shuttle.

#[cfg(feature = "shuttle")]
#[path = "shuttle.rs"]
mod imp;
#[cfg(not(feature = "shuttle"))]
#[path = "threads.rs"]
mod imp;

pub(crate) use imp::*;
pub use imp::{atomic, thread};
