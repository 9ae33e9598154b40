//! The live ext4 file system.
#![forbid(unsafe_code)]
