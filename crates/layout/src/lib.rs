//! Locations of the structures of an ext4 image: group geometry and bulk packing.
#![forbid(unsafe_code)]

mod descriptors;
pub mod groups;
pub mod pack;
mod runs;
pub mod tables;

pub use descriptors::DescriptorTable;
pub use runs::RunSet;
