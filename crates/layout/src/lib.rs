//! Where things lie in an ext4 image: group geometry and bulk packing.
#![forbid(unsafe_code)]

pub mod groups;
pub mod pack;
mod runs;
pub mod tables;

pub use runs::RunSet;
