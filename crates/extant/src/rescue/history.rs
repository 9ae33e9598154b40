//! The versions of an inode that the log holds.

use std::sync::Arc;

use extant_device::Device;
use extant_ondisk::InodeNo;
use extant_ondisk::inode::{self as ondisk_inode, Inode};
use extant_reader::read::inode::place;
use extant_reader::{Reader, VolumeRead};

use super::RescueError;
use super::log_copies::LogCopies;
use crate::inspect::{RawView, SuperblockChoice};

/// An inode as it was from a commit on.
#[derive(Clone, Debug)]
pub struct InodeVersion {
    /// The first transaction in which it was so; `None` for the inode in place, where no copy in
    /// the log is the same.
    pub tid: Option<u32>,
    /// The time of that commit in seconds since 1970, where it was stored.
    pub committed: Option<i64>,
    /// Its fields.
    pub inode: Inode,
    /// Whether it is the inode in place.
    pub is_present: bool,
}

/// The versions of an inode, the oldest first: those in the log, and the one in place. Several
/// files may have had it one after the other: they differ in their generations. The contents of a
/// file are not in the log, unless its data are journalled.
///
/// # Errors
/// The volume cannot be opened for reading, its journal cannot be read, or there is no such inode.
pub fn history(device: Arc<dyn Device>, number: InodeNo) -> Result<Vec<InodeVersion>, RescueError> {
    let view = RawView::new(device.clone(), SuperblockChoice::default())?;
    let reader = Reader::open(device)?;
    let geometry = reader.geometry();
    let copies = LogCopies::read(&view, geometry)?;
    let place = place(&reader, number)?;
    let mut versions: Vec<InodeVersion> = Vec::new();
    for (commit, copy) in copies.of(place.block) {
        let bytes = copies.bytes(copy)?;
        let record = bytes.get(place.bytes(geometry)).unwrap_or_default();
        // Zeros are an inode that was never used.
        if record.iter().all(|byte| *byte == 0)
            || ondisk_inode::verify(record, number, geometry).is_err()
        {
            continue;
        }
        let Ok(inode) = Inode::decode(record, number, geometry) else { continue };
        if versions.last().is_none_or(|last| last.inode != inode) {
            versions.push(InodeVersion {
                tid: copies.tid(*commit),
                committed: copies.time(*commit),
                inode,
                is_present: false,
            });
        }
    }
    if let Ok(present) = reader.any_inode(number) {
        match versions.last_mut().filter(|last| last.inode == present.inode) {
            Some(last) => last.is_present = true,
            None => versions.push(InodeVersion {
                tid: None,
                committed: None,
                inode: present.inode,
                is_present: true,
            }),
        }
    }
    Ok(versions)
}
