//! Where things lie in an ext4 image: group geometry and bulk packing.
#![forbid(unsafe_code)]

pub mod pack;
