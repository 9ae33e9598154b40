//! Ioctls on a mounted volume, for the commands that shut it down, freeze or thaw it.
//!
//! The kernel passes to FUSE the bytes that a command's number declares: `FS_IOC_SHUTDOWN` is
//! declared as if it returned its mode, so that none arrives. Those here have numbers of their own.

use std::os::fd::AsFd;

use rustix::io::Result;
use rustix::ioctl::{NoArg, Opcode, Setter, Updater, ioctl, opcode};

/// The type of our own commands (`_IOC_TYPE`).
const TYPE: u8 = 0xe4;

/// Bytes of the argument of [`EXTANT_IOC_GROW`].
pub(crate) const GROW_LEN: usize = 256;

/// `_IOW(0xe4, 1, u32)`: one of the modes follows. `_IO(0xe4, 2)`, `_IO(0xe4, 3)`. `_IOWR(0xe4, 4,
/// u8[256])`: see [`GrowReply`](crate::server::GrowReply).
pub(crate) const EXTANT_IOC_SHUTDOWN: Opcode = opcode::write::<u32>(TYPE, 1);
pub(crate) const EXTANT_IOC_FREEZE: Opcode = opcode::none(TYPE, 2);
pub(crate) const EXTANT_IOC_THAW: Opcode = opcode::none(TYPE, 3);
pub(crate) const EXTANT_IOC_GROW: Opcode = opcode::read_write::<[u8; GROW_LEN]>(TYPE, 4);

/// Requests the end of all writing; `mode` is one of `FS_IOC_SHUTDOWN`'s.
///
/// # Errors
/// The caller has no permission, or earlier data could not be written.
#[allow(unsafe_code)]
pub(crate) fn shutdown(mount: impl AsFd, mode: u32) -> Result<()> {
    // SAFETY: the command reads one u32 where its argument points and changes no memory of ours.
    unsafe { ioctl(mount, Setter::<EXTANT_IOC_SHUTDOWN, u32>::new(mode)) }
}

/// Requests that changes are blocked.
///
/// # Errors
/// The caller has no permission, changes are blocked already, or earlier data could not be written.
#[allow(unsafe_code)]
pub(crate) fn freeze(mount: impl AsFd) -> Result<()> {
    // SAFETY: the command has no argument.
    unsafe { ioctl(mount, NoArg::<EXTANT_IOC_FREEZE>::new()) }
}

/// Requests that changes continue.
///
/// # Errors
/// The caller may not, or changes are not held back.
#[allow(unsafe_code)]
pub(crate) fn thaw(mount: impl AsFd) -> Result<()> {
    // SAFETY: the command has no argument.
    unsafe { ioctl(mount, NoArg::<EXTANT_IOC_THAW>::new()) }
}

/// Requests that the volume grows; the argument is replaced by the reply.
///
/// # Errors
/// The caller has no permission, or the volume is read-only. Other refusals are in the reply.
#[allow(unsafe_code)]
pub(crate) fn grow(mount: impl AsFd, argument: &mut [u8; GROW_LEN]) -> Result<()> {
    // SAFETY: the command reads and writes as many bytes where its argument points.
    unsafe { ioctl(mount, Updater::<EXTANT_IOC_GROW, [u8; GROW_LEN]>::new(argument)) }
}
