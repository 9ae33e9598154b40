//! Whole-image work: mkfs, build, export, tune.
#![forbid(unsafe_code)]

pub mod build;
pub mod export;
pub mod mkfs;

pub mod source;
pub mod tune;
