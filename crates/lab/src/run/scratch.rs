//! The directory that a cell works in.

use std::path::Path;
use std::{fs, io};

use crate::cell::Cell;
use crate::target::System;

/// The directory of a cell's image and mount point, in the directory of results. Concurrent ones
/// have a number after the name.
pub(super) const SCRATCH: &str = "scratch";

/// Removes the files that a cell leaves on the disk.
pub(crate) fn clean(cell: &Cell) {
    if let System::Dir(path) = &cell.target.system {
        let _ = fs::remove_dir_all(crate::cell::work_dir(path));
    }
    let _ = clear(&cell.scratch);
}

/// Removes the image and the mount point: file by file, as something that is mounted must never be
/// emptied.
pub(super) fn clear(scratch: &Path) -> io::Result<()> {
    let missing_is_fine = |outcome: io::Result<()>| match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    };
    missing_is_fine(fs::remove_file(scratch.join("image")))?;
    missing_is_fine(fs::remove_file(scratch.join("image.words")))?;
    missing_is_fine(fs::remove_dir(scratch.join("mount")))?;
    missing_is_fine(fs::remove_dir(scratch))
}
