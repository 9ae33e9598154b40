//! The ext4 format: bytes in, values out.
//!
//! Every structure has a *raw* form, lossless and with the kernel's field names, and a *decoded* form that the rest of the
//! code speaks. Reading is verify, then decode; writing is encode, then seal. No device, no clock, no policy, and the byte
//! order is in the field's type: little-endian, in the journal big-endian.
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

pub use error::{Flaw, FormatError, Place};
pub use features::{
    CompatFeatures, Features, IncompatFeatures, MetadataChecksum, RoCompatFeatures,
};
pub use geometry::Geometry;
pub use types::{
    BlockNo, ClusterNo, FileBlock, GroupNo, InodeNo, MAX_BLOCKS, MAX_FILE_BLOCKS, Tid, Uuid,
};
