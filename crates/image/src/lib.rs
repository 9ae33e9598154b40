//! Whole-image work: mkfs, build, export, tune.
#![forbid(unsafe_code)]

pub mod build;
pub mod export;
pub mod mkfs;
mod new_file;

pub mod source;
pub mod tune;

pub use new_file::{NewFile, new_name};
