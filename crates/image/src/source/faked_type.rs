//! Types that files have by a record of a program that an ordinary user ran as root.

use rustix::fs::{FileType, Stat};

use super::error::Flaw;

/// Changes a file's mode, with its type, into that of a record of the named kind. Of another type
/// may be an empty regular file alone: such programs make one for what only root can make.
pub(super) fn set_mode(stat: &mut Stat, mode: u32, record: &'static str) -> Result<(), Flaw> {
    let found = FileType::from_raw_mode(stat.st_mode);
    let recorded = FileType::from_raw_mode(mode);
    let is_stand_in = found == FileType::RegularFile
        && stat.st_size == 0
        && !matches!(recorded, FileType::Directory | FileType::Symlink | FileType::Unknown);
    if found != recorded && !is_stand_in {
        return Err(Flaw::OtherType { record });
    }
    stat.st_mode = mode;
    Ok(())
}
