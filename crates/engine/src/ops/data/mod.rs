//! The contents of files: read, written, cut, preallocated, made durable.
//!
//! Data are on the device before the metadata that show them are changed. New blocks are claimed in
//! memory ([`Claim`]), filled while nothing on the volume marks them as in use, and mapped in one
//! operation then: an attempt that fails half way, or is cut off by power loss, leaves nothing
//! mapped. With delayed allocation (the default) data written into holes wait in memory first
//! (`engine::delay`). Blocks that hold data are overwritten where they are. Where data are
//! journalled (`data=journal`, or the file's flag) they go through frames in the same operation as
//! the map, and are read from there.
//!
//! [`Claim`]: crate::alloc::Claim

mod defragment;
mod delayed;
mod fallocate;
mod journalled;
mod range;
mod sync;
mod truncate;
mod write;
mod write_plan;

pub use defragment::Defragmented;
pub use fallocate::FallocateMode;
pub(crate) use write_plan::WritePlan;

use super::Credentials;
use crate::edit::{Edit, change_superblock, superblock};
use crate::engine::Engine;
use crate::engine::operation::Operation;
use crate::options::DataMode;
use extant_ondisk::inode::{FileType, InodeFlags};
use extant_ondisk::time::Timestamp;
use extant_ondisk::{CompatFeatures, RoCompatFeatures};
use extant_reader::Error;
use extant_reader::read::inode::LoadedInode;

/// Files larger than this need the feature large_file.
const LARGE: u64 = 0x7fff_ffff;

impl Engine {
    /// Whether the file's data go through the journal.
    pub(crate) fn is_journalled(&self, file: &LoadedInode) -> bool {
        self.geometry().has_compat(CompatFeatures::HAS_JOURNAL)
            && (self.data == DataMode::Journal || file.flags.contains(InodeFlags::JOURNAL_DATA))
    }
}

/// The file, if its data may be changed.
fn check_writable(file: &LoadedInode) -> Result<(), Error> {
    match file.file_type() {
        FileType::Regular => {}
        FileType::Directory => return Err(Error::IsADirectory),
        _ => return Err(Error::WrongFileType),
    }
    if file.is_encrypted() {
        return Err(Error::Encrypted(file.number));
    }
    // A verity file never changes again, and values of attributes are not changed as files.
    if file.flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::VERITY | InodeFlags::EA_INODE) {
        return Err(Error::NotPermitted(file.number));
    }
    Ok(())
}

/// The file, if it can be written.
fn check_takes_writes(file: &LoadedInode, by: &Credentials) -> Result<(), Error> {
    match check_writable(file) {
        // It was accepted before the file became so.
        Err(Error::NotPermitted(_))
            if by.writes_back && file.flags.contains(InodeFlags::IMMUTABLE) =>
        {
            Ok(())
        }
        other => other,
    }
}

/// The times of a file whose data change.
fn set_changed(file: &mut LoadedInode, now: Timestamp, by: &Credentials) {
    if !by.keeps_times {
        (file.inode.mtime, file.inode.ctime) = (now, now);
    }
    file.inode.count_change();
}

/// The file's data change now: its times, and what makes a program run as its owner.
fn touch(edit: &Operation<'_>, file: &mut LoadedInode, by: &Credentials) {
    set_changed(file, edit.now(), by);
    file.inode.mode = by.mode_after_change(file);
}

/// Gives the file a size, and the volume the feature that a large one needs.
fn set_size(edit: &mut Operation<'_>, file: &mut LoadedInode, size: u64) -> Result<(), Error> {
    if size > LARGE {
        let mut features = superblock(edit)?.features();
        if !features.ro_compat.contains(RoCompatFeatures::LARGE_FILE) {
            features.ro_compat.insert(RoCompatFeatures::LARGE_FILE);
            change_superblock(edit, |raw| raw.set_features(features))?;
        }
    }
    file.inode.size = size;
    Ok(())
}
