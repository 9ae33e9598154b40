//! File type bits of a mode, as in `stat`: the values that ext4 stores.

pub(super) const MASK: u16 = 0o170_000;
pub(super) const SOCKET: u16 = 0o140_000;
pub(super) const SYMLINK: u16 = 0o120_000;
pub(super) const REGULAR: u16 = 0o100_000;
pub(super) const BLOCK: u16 = 0o060_000;
pub(super) const DIRECTORY: u16 = 0o040_000;
pub(super) const CHAR: u16 = 0o020_000;
pub(super) const FIFO: u16 = 0o010_000;
