//! Whole-image work: mkfs, build, clone, export, tune, resize.
#![forbid(unsafe_code)]

mod atomic_file;
pub mod build;
pub mod clone;
pub mod export;
pub mod glob;
pub mod mkfs;

pub mod resize;
pub mod source;
pub mod tune;

pub use atomic_file::{AtomicFile, new_name};
