//! Which requests change the volume.

use rustix::fs::OFlags;

use super::abi::{self, opcode, open_flags};
use super::message::Request;
use crate::server::is_changing_ioctl;

/// Whether a request changes the volume. Files that are forgotten, and times of the last read, are
/// the server's to put off.
pub(super) fn is_change(request: &Request<'_>) -> bool {
    let mut arguments = request.arguments();
    match request.header.opcode {
        opcode::SETATTR
        | opcode::SYMLINK
        | opcode::MKNOD
        | opcode::MKDIR
        | opcode::UNLINK
        | opcode::RMDIR
        | opcode::RENAME
        | opcode::RENAME2
        | opcode::LINK
        | opcode::CREATE
        | opcode::TMPFILE
        | opcode::WRITE
        | opcode::SETXATTR
        | opcode::REMOVEXATTR
        | opcode::FALLOCATE
        | opcode::COPY_FILE_RANGE
        | opcode::COPY_FILE_RANGE_64 => true,
        opcode::OPEN => arguments
            .take::<abi::OpenIn>()
            .is_ok_and(|given| open_flags(given.flags).contains(OFlags::TRUNC)),
        opcode::IOCTL => {
            arguments.take::<abi::IoctlIn>().is_ok_and(|given| is_changing_ioctl(given.cmd))
        }
        _ => false,
    }
}
