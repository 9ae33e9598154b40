//! Inode flags that users set and clear (chattr), in the model.

/// Writes are durable when the call returns.
pub const SYNC: u32 = 0x8;
/// Neither the file nor its names can be changed.
pub const IMMUTABLE: u32 = 0x10;
/// The file can only grow; names of a directory cannot be removed.
pub const APPEND: u32 = 0x20;
/// Excluded from dumps.
pub const NODUMP: u32 = 0x40;
/// Access times are not updated.
pub const NOATIME: u32 = 0x80;
/// Data is journalled.
pub const JOURNAL_DATA: u32 = 0x4000;
/// Changes of the directory are durable when the call returns.
pub const DIRSYNC: u32 = 0x1_0000;
/// The contents of the directory are unrelated.
pub const TOPDIR: u32 = 0x2_0000;
/// New files in the directory inherit its project.
pub const PROJECT_INHERIT: u32 = 0x2000_0000;

/// All flags that histories set.
pub const ALL: u32 = SYNC
    | IMMUTABLE
    | APPEND
    | NODUMP
    | NOATIME
    | JOURNAL_DATA
    | DIRSYNC
    | TOPDIR
    | PROJECT_INHERIT;
/// Flags of directories only.
pub const OF_DIRECTORIES: u32 = DIRSYNC | TOPDIR | PROJECT_INHERIT;
/// Flags that prevent changes of a file's attributes.
pub const KEPT: u32 = IMMUTABLE | APPEND;

/// Flags that new files inherit from their directory.
const INHERITED: u32 = SYNC | NODUMP | NOATIME | JOURNAL_DATA | DIRSYNC | PROJECT_INHERIT;

/// The flags of a new file in a directory.
pub(super) fn inherited(dir: u32, kind: crate::Kind) -> u32 {
    match kind {
        crate::Kind::Directory => dir & INHERITED,
        crate::Kind::File => dir & INHERITED & !OF_DIRECTORIES,
        _ => dir & (NODUMP | NOATIME),
    }
}
