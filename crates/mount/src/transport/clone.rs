//! Another descriptor of a connection.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Result;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// `_IOR(229, 0, u32)` of linux/fuse.h: makes a fresh descriptor of `/dev/fuse` one of the
/// connection whose descriptor is given.
const FUSE_DEV_IOC_CLONE: Opcode = opcode::read::<u32>(229, 0);
/// The device of a new descriptor.
pub(crate) const FUSE_DEVICE: &str = "/dev/fuse";

/// Clones `connection`: requests that are read from the clone are answered on it, so that threads
/// with descriptors of their own do not wait for each other.
///
/// # Errors
/// `/dev/fuse` cannot be opened again, or the kernel refused.
#[allow(unsafe_code)]
pub(super) fn clone(connection: &OwnedFd) -> Result<OwnedFd> {
    // Not `open`: the sandbox allows openat alone.
    let fresh =
        rustix::fs::openat(CWD, FUSE_DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let number = connection.as_fd().as_raw_fd().cast_unsigned();
    // SAFETY: FUSE_DEV_IOC_CLONE reads one u32, the number of a descriptor, where its argument
    // points and changes no memory of ours.
    unsafe { ioctl(&fresh, Setter::<FUSE_DEV_IOC_CLONE, u32>::new(number))? };
    Ok(fresh)
}
