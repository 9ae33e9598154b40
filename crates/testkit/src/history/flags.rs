//! The flags of files that users set and clear (chattr), as the model knows them.

/// What is written to the file is on the disk when the call returns.
pub const SYNC: u32 = 0x8;
/// Nothing of the file changes, nor its names.
pub const IMMUTABLE: u32 = 0x10;
/// The file only grows; of a directory no names are taken away.
pub const APPEND: u32 = 0x20;
/// Dumps leave it out.
pub const NODUMP: u32 = 0x40;
/// Reading leaves no time.
pub const NOATIME: u32 = 0x80;
/// Data go through the journal.
pub const JOURNAL_DATA: u32 = 0x4000;
/// Changes of the directory are on the disk when the call returns.
pub const DIRSYNC: u32 = 0x1_0000;
/// What is in the directory is not related.
pub const TOPDIR: u32 = 0x2_0000;
/// What is made in the directory belongs to its project.
pub const PROJECT_INHERIT: u32 = 0x2000_0000;

/// All that histories set.
pub const ALL: u32 = SYNC
    | IMMUTABLE
    | APPEND
    | NODUMP
    | NOATIME
    | JOURNAL_DATA
    | DIRSYNC
    | TOPDIR
    | PROJECT_INHERIT;
/// Those that only directories have.
pub const OF_DIRECTORIES: u32 = DIRSYNC | TOPDIR | PROJECT_INHERIT;
/// With any of these the attributes of a file stay as they are.
pub const KEPT: u32 = IMMUTABLE | APPEND;

/// Those that a directory passes on.
const INHERITED: u32 = SYNC | NODUMP | NOATIME | JOURNAL_DATA | DIRSYNC | PROJECT_INHERIT;

/// The flags of what is made in a directory.
pub(super) fn inherited(dir: u32, kind: crate::Kind) -> u32 {
    match kind {
        crate::Kind::Directory => dir & INHERITED,
        crate::Kind::File => dir & INHERITED & !OF_DIRECTORIES,
        _ => dir & (NODUMP | NOATIME),
    }
}
