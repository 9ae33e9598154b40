//! The lab: experiments on file systems that anybody can repeat.
//!
//! It reaches the engine through the facade only, as every other user of the library does.

#![forbid(unsafe_code)]

pub mod cpu;
pub mod ffsb;
pub mod files;
pub mod stats;
