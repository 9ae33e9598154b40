//! Notifications to the kernel about a file, by its node number.

use std::ops::Range;
use std::os::fd::OwnedFd;

use zerocopy::IntoBytes;

use super::abi::{InvalInodeOut, NOTIFY_INVAL_INODE, OutHeader};

/// In place of an offset: of the file's contents nothing is dropped.
const ATTRIBUTES_ALONE: i64 = -1;

/// Has the kernel write back its cache of a file and drop it, its attributes too. It returns once
/// the kernel has: that takes requests of its own, which other threads must answer.
///
/// # Errors
/// ENOENT where the kernel does not know the file.
pub(super) fn drop_cache(connection: &OwnedFd, node: u64) -> rustix::io::Result<()> {
    invalidate(connection, node, (0, 0))
}

/// Has the kernel read a file's attributes again when it needs them. It does not block.
///
/// # Errors
/// As [`drop_cache`].
pub(super) fn forget_attributes(connection: &OwnedFd, node: u64) -> rustix::io::Result<()> {
    invalidate(connection, node, (ATTRIBUTES_ALONE, 0))
}

/// As [`drop_cache`], for the pages of a range.
///
/// # Errors
/// As [`drop_cache`].
pub(super) fn drop_range(
    connection: &OwnedFd,
    node: u64,
    range: &Range<u64>,
) -> rustix::io::Result<()> {
    // No file is as long as that.
    let signed = |at| i64::try_from(at).unwrap_or(i64::MAX);
    invalidate(connection, node, (signed(range.start), signed(range.end - range.start)))
}

/// A length of 0 reaches to the end.
fn invalidate(
    connection: &OwnedFd,
    node: u64,
    (offset, length): (i64, i64),
) -> rustix::io::Result<()> {
    let what = InvalInodeOut { ino: node, off: offset, len: length };
    let len = size_of::<OutHeader>() + size_of::<InvalInodeOut>();
    let header = OutHeader { len: len as u32, error: NOTIFY_INVAL_INODE, unique: 0 };
    rustix::io::write(connection, &[header.as_bytes(), what.as_bytes()].concat())?;
    Ok(())
}
