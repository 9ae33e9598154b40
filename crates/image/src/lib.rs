//! Whole-image work: mkfs, build, clone, export, tune, resize.
#![forbid(unsafe_code)]

pub mod build;
pub mod clone;
pub mod export;
pub mod glob;
pub mod mkfs;

pub mod resize;
pub mod source;
pub mod tune;

pub use extant_device::{AtomicFile, new_name};
