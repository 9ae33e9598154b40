//! Unmounting from outside, and waiting until everything is on the device.

use std::fs::File;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::MountError;
use crate::mountpoint::{Detach, canonical_point, detach, mount_at, mounts};

/// Between two looks at the image's lock.
const PAUSE: Duration = Duration::from_millis(5);

/// Takes the mount at `point` away and returns when its server has let the image go: everything is on the device then. With `lazy` the
/// name goes at once, even while files are open, and nothing is waited for.
///
/// # Errors
/// Nothing of ours is mounted there, or files are open.
pub fn unmount(point: &Path, lazy: bool) -> Result<(), MountError> {
    let failed =
        |source| MountError::System { path: point.to_owned(), what: "cannot be unmounted", source };
    let point = canonical_point(point)?;
    let entry = mount_at(&point)
        .map_err(failed)?
        .filter(|entry| entry.is_ours())
        .ok_or_else(|| MountError::NotMounted(point.clone()))?;
    detach(&point, if lazy { Detach::Now } else { Detach::IfIdle }).map_err(failed)?;
    if lazy || entry.read_only {
        return Ok(());
    }
    // An image that we may not open is one whose lock we cannot see.
    let Ok(image) = File::open(&entry.source) else { return Ok(()) };
    while is_locked(&image).map_err(failed)? {
        let is_mounted_again =
            mounts().map_err(failed)?.any(|other| other.is_ours() && other.source == entry.source);
        if is_mounted_again {
            break;
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

fn is_locked(image: &File) -> io::Result<bool> {
    match rustix::fs::flock(image, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            rustix::fs::flock(image, FlockOperation::Unlock)?;
            Ok(false)
        }
        Err(Errno::WOULDBLOCK) => Ok(true),
        // Without locks there is nothing to wait for.
        Err(Errno::OPNOTSUPP | Errno::NOLCK | Errno::NOSYS) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}
