//! The open volume held to a model in memory: random histories of every call, replays by the
//! kernel, power cuts, failures of the device, and many threads. EXTANT_HISTORIES=N runs N of each
//! kind, EXTANT_SEED=N from the Nth on.

#[path = "../common/mod.rs"]
mod common;
mod devices;
mod engine;
mod false_positives;
mod faults;
mod kernel;
mod power;
mod random;
mod stress;
mod sweep;
mod volumes;
