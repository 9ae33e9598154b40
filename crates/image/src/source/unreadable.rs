//! Files that belong to the caller but have a mode that lets no user read them, such as 0000.
//!
//! Their mode is not changed: that would lose a set-group-ID bit, show in other programs, and stay
//! if the program is stopped. They are read as by the superuser of a user namespace of its own, in
//! which the caller is that user (unshare(1) of util-linux): permissions do not bind it for files
//! whose owner and group are the caller's.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use rustix::fs::{AtFlags, FileType, Stat, fstat, statat};
use rustix::process::{getegid, geteuid};

/// Whether the caller, an ordinary user, owns a regular file, by its group too.
pub(super) fn is_own(directory: BorrowedFd<'_>, name: &[u8]) -> bool {
    let is_own = |stat: Stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && (stat.st_uid, stat.st_gid) == (geteuid().as_raw(), getegid().as_raw())
    };
    !geteuid().is_root() && statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(is_own)
}

/// The contents of a file of the caller's in a file without a name; `None` where it is not the
/// caller's, and where the system has no user namespaces, or does not give them to this user.
pub(super) fn copy(directory: BorrowedFd<'_>, name: &[u8]) -> Option<OwnedFd> {
    if !is_own(directory, name) {
        return None;
    }
    let copy = tempfile::tempfile().ok()?;
    // The name may begin with a dash.
    let path = [b"./", name].concat();
    let done = Command::new("unshare")
        .args(["--user", "--map-root-user", "--", "cat"])
        .arg(std::ffi::OsStr::from_bytes(&path))
        .current_dir(format!("/proc/self/fd/{}", directory.as_raw_fd()))
        .stdin(Stdio::null())
        .stdout(File::from(copy.as_fd().try_clone_to_owned().ok()?))
        .stderr(Stdio::null())
        .status();
    let size = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?.st_size;
    let is_whole = done.is_ok_and(|status| status.success()) && fstat(&copy).ok()?.st_size == size;
    is_whole.then(|| copy.into())
}
