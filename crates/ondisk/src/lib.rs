//! The ext4 format: decoding and encoding of its structures.
//!
//! Every structure has a lossless *raw* form with the kernel's field names, and a *decoded* form
//! that the rest of the code uses. Reading is verify, then decode; writing is encode, then seal
//! (set the checksum). This crate has no I/O, no clock and no policy. The byte order is in the
//! field's type: little-endian, big-endian in the journal.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod acl;
pub mod bitmap;
pub mod casefold;
pub mod checksum;
pub mod dirent;
pub mod dx_hash;
mod error;
pub mod error_log;
pub mod extent;
mod features;
mod geometry;
pub mod group_desc;
pub mod htree;
pub mod indirect;
pub mod inline_data;
pub mod inode;
pub mod jbd2;
pub mod mmp;
pub mod orphan_file;
pub mod quota;
pub mod superblock;
pub mod time;
mod types;
pub mod xattr;

pub use error::{Flaw, FormatError, Location};
pub use features::{
    CompatFeatures, Features, IncompatFeatures, MetadataChecksum, RoCompatFeatures,
};
pub use geometry::Geometry;
pub use types::{
    BlockNo, ClusterNo, FileBlock, GroupNo, InodeNo, MAX_BLOCKS, MAX_FILE_BLOCKS, Tid, Uuid,
};
