//! Requests to a mounted volume: freeze, thaw, shut down, grow.

use std::fs::File;
use std::path::{Path, PathBuf};

use extant_engine::Shutdown;
use rustix::io::Errno;

use crate::MountError;
use crate::mountpoint::{mount_at, mounts};
use crate::server::{EXTEND, GrowReply, shutdown_mode};
use crate::transport;

/// Ends all writing to the volume mounted at `point`, after the writes that `how` includes: from
/// then on every request fails, until it is unmounted.
///
/// # Errors
/// It is not a mount point of ours, the caller is neither root nor the mount's owner, or earlier
/// data could not be written.
pub fn shutdown(point: &Path, how: Shutdown) -> Result<(), MountError> {
    call_server(point, "cannot be shut down", |root| {
        if how == Shutdown::Default {
            rustix::fs::syncfs(root)?;
        }
        transport::shutdown(root, shutdown_mode(how))
    })
}

/// Holds changes of the volume mounted at `point` back until [`thaw`]: all that programs have
/// written so far is on the device, and a copy of it is a clean volume.
///
/// # Errors
/// As [`shutdown`], or it is frozen already.
pub fn freeze(point: &Path) -> Result<(), MountError> {
    let frozen = call_server(point, "cannot be frozen", |root| {
        rustix::fs::syncfs(root)?;
        transport::freeze(root)
    });
    frozen.map_err(|error| said(error, Errno::BUSY, MountError::Frozen))
}

/// Thaws: changes continue.
///
/// # Errors
/// As [`shutdown`], or it is not frozen.
pub fn thaw(point: &Path) -> Result<(), MountError> {
    let thawed = call_server(point, "cannot be thawed", |root| transport::thaw(root));
    thawed.map_err(|error| said(error, Errno::INVAL, MountError::NotFrozen))
}

/// The sizes of a mounted volume.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MountedSize {
    /// Block size in bytes.
    pub block_size: u32,
    /// Number of blocks of the volume.
    pub blocks: u64,
    /// Size of its device in bytes.
    pub device: u64,
}

/// The sizes of the volume mounted at `point`, and of its device as it is now.
///
/// # Errors
/// As [`shutdown`], or it is mounted read-only.
pub fn mounted_size(point: &Path) -> Result<MountedSize, MountError> {
    call_to_grow(point, GrowReply::default())
}

/// Grows the volume mounted at `point` to a number of blocks while it is in use. An image file gets
/// longer for it.
///
/// # Errors
/// As [`mounted_size`]; or a size that the volume or its device cannot have.
pub fn grow(point: &Path, blocks: u64) -> Result<MountedSize, MountError> {
    call_to_grow(point, GrowReply { blocks, ..GrowReply::default() })
}

/// Lets the partition of the volume mounted at `point`, the last one of a GPT in an image file,
/// reach to the end of the file and have at least `bytes` bytes. The volume stays as it is.
///
/// # Errors
/// As [`mounted_size`]; or the partition cannot get longer.
pub fn extend_partition(point: &Path, bytes: u64) -> Result<MountedSize, MountError> {
    call_to_grow(point, GrowReply { errno: EXTEND, device: bytes, ..GrowReply::default() })
}

fn call_to_grow(point: &Path, request: GrowReply) -> Result<MountedSize, MountError> {
    let mut argument = request.encode();
    call_server(point, "cannot grow", |root| transport::grow(root, &mut argument))?;
    let reply = GrowReply::decode(&argument);
    if reply.errno != 0 {
        let path = point.to_owned();
        return Err(MountError::NotGrown { path, errno: reply.errno, what: reply.what });
    }
    let GrowReply { blocks, block_size, device, .. } = reply;
    Ok(MountedSize { block_size, blocks, device })
}

/// Where an image or a block device is mounted by a server of ours.
pub fn point_of(image: &Path) -> Option<PathBuf> {
    let image = image.canonicalize().ok()?;
    let mut all = mounts().ok()?;
    all.find(|entry| entry.is_ours() && entry.source == image).map(|entry| entry.point)
}

/// Turns one errno of the server into an error of its own.
fn said(error: MountError, by: Errno, what: fn(PathBuf) -> MountError) -> MountError {
    match error {
        MountError::System { path, source, .. }
            if source.raw_os_error() == Some(by.raw_os_error()) =>
        {
            what(path)
        }
        other => other,
    }
}

fn call_server(
    point: &Path,
    what: &'static str,
    work: impl FnOnce(&File) -> Result<(), Errno>,
) -> Result<(), MountError> {
    let failed = |source| MountError::System { path: point.to_owned(), what, source };
    // The mount point itself must be reached anyway.
    let point = point.canonicalize().map_err(failed)?;
    let is_ours = mount_at(&point).map_err(failed)?.is_some_and(|entry| entry.is_ours());
    if !is_ours {
        return Err(MountError::NotMounted(point));
    }
    let root = File::open(&point).map_err(failed)?;
    work(&root).map_err(|errno| failed(errno.into()))
}
