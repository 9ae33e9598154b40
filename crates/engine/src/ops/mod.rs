//! The changing calls of a volume, one file for each family.
//!
//! A call locks the inodes that it changes, starts an operation with credits for the worst case,
//! changes, and unlocks in the opposite order. Permissions are not checked here: the caller has
//! checked them.

mod attributes;
mod create;
pub(crate) mod credits;
pub(crate) mod data;
mod delete;
mod flags;
mod namespace;
mod new_inode;
mod orphan_replay;
mod quotas;
mod read_dir;
mod rename;
mod trim;
mod xattrs;

pub use attributes::{SetAttributes, TimesOfUse};
pub use data::{Defragmented, FallocateMode};
pub use read_dir::EngineReadDir;
pub use rename::RenameFlags;

use extant_ondisk::inode::{Inode, SETGID, SETUID};

/// The permission of the group to execute, in a mode.
const GROUP_EXECUTES: u16 = 0o0010;

/// The credentials with which a call creates files and writes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Credentials {
    /// Owner of what is created.
    pub uid: u32,
    /// Group of what is created, unless the directory passes its own on (setgid).
    pub gid: u32,
    /// Permissions that new files do not get, unless the directory has a default access control
    /// list.
    pub umask: u16,
    /// Whether blocks and inodes that are reserved may be used.
    pub is_privileged: bool,
    /// Whether files that are changed keep setuid and setgid.
    pub keeps_set_ids: bool,
    /// Whether a cache in front of the volume accepted the data before: the write succeeds even if
    /// the file has become immutable or append-only since.
    pub writes_back: bool,
    /// Whether that cache keeps the file's times too and stores them itself: writes do not change
    /// them.
    pub keeps_times: bool,
}

impl Credentials {
    /// The superuser with the usual umask.
    pub const ROOT: Self = Self {
        uid: 0,
        gid: 0,
        umask: 0o022,
        is_privileged: true,
        keeps_set_ids: true,
        writes_back: false,
        keeps_times: false,
    };

    /// The mode of a file after a change: without setuid, and without setgid where the group may
    /// execute the file or the caller is not in the group. As the kernel does since Linux 6.2; of
    /// the caller's groups only the first is known here.
    pub fn mode_after_change(&self, file: &Inode) -> u16 {
        if self.keeps_set_ids {
            return file.mode;
        }
        let is_in_group = self.uid == 0 || self.gid == file.gid;
        let keeps_setgid = is_in_group && file.mode & GROUP_EXECUTES == 0;
        file.mode & !SETUID & if keeps_setgid { u16::MAX } else { !SETGID }
    }
}
