//! Files that belong to the caller and that their mode does not let the owner read.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use extant_runtime::sync::RwLock;
use rustix::fs::{FileType, Mode, OFlags, chmod, fstat, open, openat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Held while a mode is not the file's own one.
static MODES: RwLock<()> = RwLock::new(());

/// Runs a call that reads modes, at a moment when every file has its own.
pub(super) fn with_stable_modes<T>(call: impl FnOnce() -> T) -> T {
    let _guard = MODES.read();
    call()
}

/// Opens a regular file of the caller, which its mode allows the owner for the moment.
///
/// # Errors
/// `EACCES` if it belongs to another user or is of another type; what the file system answers to
/// the change of the mode.
pub(super) fn open_own_file(
    directory: BorrowedFd<'_>,
    name: &[u8],
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let _guard = MODES.write();
    let found = openat(directory, name, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())?;
    let stat = fstat(&found)?;
    let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !is_regular || stat.st_uid != geteuid().as_raw() {
        return Err(Errno::ACCESS);
    }
    // fchmod(2) does not take a descriptor that is a path alone.
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    let mode = Mode::from_raw_mode(stat.st_mode);
    chmod(&path, mode | Mode::RUSR)?;
    // The path is a link itself.
    let opened = open(&path, flags.difference(OFlags::NOFOLLOW), Mode::empty());
    chmod(&path, mode)?;
    opened
}
