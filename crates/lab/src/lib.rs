//! The lab: experiments on file systems that anybody can repeat.
//!
//! It reaches the engine through the facade only, as every other user of the library does.

#![forbid(unsafe_code)]

pub mod archive;
pub mod cell;
pub mod charged;
pub mod clock;
pub mod commands;
pub mod compare;
pub mod cpu;
pub mod environment;
pub mod experiment;
pub mod ffsb;
pub mod files;
pub mod findings;
pub mod report;
pub mod results;
pub mod run;
pub mod sample;
pub mod stats;
pub mod target;
pub mod tree;
pub mod vm;
