//! Permissions, owners and times.

use super::credits;
use crate::edit::{Edit, write_inode, write_loaded};
use crate::engine::Engine;
use crate::engine::inodes::LockClass;
use crate::write::acl;
use crate::write::quota::Owners;
use extant_ondisk::InodeNo;
use extant_ondisk::inode::{InodeFlags, PERMISSION_MASK};
use extant_ondisk::time::Timestamp;
use extant_reader::Error;
use extant_reader::read::inode::LoadedInode;

/// `i_extra_isize` from which on the three times have nanoseconds.
const EXTRA_SIZE_OF_TIMES: u16 = 16;

/// No user and no group has this number: system calls take it for one that is not given.
pub(super) const INVALID_ID: u32 = u32::MAX;

/// The attributes to set; the others stay.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SetAttributes {
    /// Permissions with setuid, setgid and sticky; other bits are left out. An access control list
    /// follows.
    pub mode: Option<u16>,
    /// Owner. The file's usage is charged to the new owner.
    pub uid: Option<u32>,
    /// Group, likewise.
    pub gid: Option<u32>,
    /// Last read.
    pub atime: Option<Timestamp>,
    /// Last change of the data.
    pub mtime: Option<Timestamp>,
    /// Last change of the inode; else now.
    pub ctime: Option<Timestamp>,
    /// The times are those of reads and writes that were allowed before: that the file is
    /// append-only does not bar them. They are stored at once in any case ([`TimesOfUse`]).
    pub times_of_use: bool,
    /// The change of owner is bound by quota limits, except for root.
    pub limits_bind: bool,
}

/// Times that the use of a file sets: reading, and writing by a cache in front of the volume. An
/// attribute that is `None` stays.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TimesOfUse {
    /// Last read.
    pub atime: Option<Timestamp>,
    /// Last change of the data.
    pub mtime: Option<Timestamp>,
    /// Last change of the inode.
    pub ctime: Option<Timestamp>,
}

impl TimesOfUse {
    /// Sets them as the record will hold them.
    fn set(&self, inode: &mut LoadedInode) {
        let has_extra = inode.extra_isize >= EXTRA_SIZE_OF_TIMES;
        let stored = |time: Option<Timestamp>| time.map(|time| time.clamped(has_extra));
        inode.inode.atime = stored(self.atime).unwrap_or(inode.atime);
        inode.inode.mtime = stored(self.mtime).unwrap_or(inode.mtime);
        inode.inode.ctime = stored(self.ctime).unwrap_or(inode.ctime);
        if self.mtime.is_some() {
            inode.inode.count_change();
        }
    }
}

impl Engine {
    /// Sets times that the use of a file sets, and gives it as it is then. With `lazytime` they may
    /// wait in memory.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] for immutable files, [`Error::FreeInode`], [`Error::ReadOnly`],
    /// corruption, or the journal or device failed.
    pub fn set_times_of_use(
        &self,
        file: InodeNo,
        times: &TimesOfUse,
    ) -> Result<LoadedInode, Error> {
        self.with_space(|| {
            self.check_writable()?;
            let shared = self.inodes.get(file);
            let mut inode = shared.write(self, LockClass::File)?;
            if inode.flags.contains(InodeFlags::IMMUTABLE) {
                return Err(Error::NotPermitted(inode.number));
            }
            if self.keep_times(&shared, &mut inode) {
                times.set(&mut inode);
            } else {
                let mut edit = self.edit(credits::INODE)?;
                times.set(&mut inode);
                write_inode(&mut edit, inode.number, &inode.inode)?;
                edit.finish();
            }
            Ok(self.seen(&inode, inode.delayed()))
        })
    }

    /// Sets attributes of a file, and gives it as it is then. The caller decides whether setuid and
    /// setgid go with a new owner.
    ///
    /// # Errors
    /// [`Error::Invalid`] for the owner 4294967295; [`Error::NotPermitted`] for immutable files,
    /// and for append-only ones except for times of use; [`Error::QuotaExceeded`] if limits bind;
    /// [`Error::FreeInode`], [`Error::ReadOnly`], corruption, or the journal or device failed.
    pub fn set_attributes(&self, file: InodeNo, set: &SetAttributes) -> Result<LoadedInode, Error> {
        if [set.uid, set.gid].contains(&Some(INVALID_ID)) {
            return Err(Error::Invalid("invalid ID 4294967295"));
        }
        self.with_space(|| {
            let file = self.inodes.get(file);
            let mut inode = file.write(self, LockClass::File)?;
            let is_use =
                set.times_of_use && set.mode.is_none() && set.uid.is_none() && set.gid.is_none();
            if inode.flags.contains(InodeFlags::IMMUTABLE)
                || inode.flags.contains(InodeFlags::APPEND) && !is_use
            {
                return Err(Error::NotPermitted(inode.number));
            }
            let changes_owners = set.uid.is_some_and(|uid| uid != inode.uid)
                || set.gid.is_some_and(|gid| gid != inode.gid);
            if changes_owners && self.has_quotas() {
                // Quota is reserved for owners.
                self.write_back(&file, &mut inode);
            }
            if (set.uid.is_some() || set.gid.is_some()) && !inode.is_dir() {
                self.drop_capabilities(&file, &mut inode)?;
            }
            let credits = credits::INODE + 2 * credits::XATTR_BLOCK + 2 * credits::quotas(self);
            let mut edit = self.edit(credits)?.privileged(!set.limits_bind);
            let mut changed = inode.clone();
            let to = Owners {
                uid: set.uid.unwrap_or(changed.uid),
                gid: set.gid.unwrap_or(changed.gid),
                ..Owners::of(&changed.inode)
            };
            edit.transfer(&changed, to)?;
            if let Some(mode) = set.mode {
                acl::chmod(&mut edit, &mut changed, mode & PERMISSION_MASK)?;
            }
            changed.inode.uid = to.uid;
            changed.inode.gid = to.gid;
            // As the record will hold them.
            let has_extra = changed.extra_isize >= EXTRA_SIZE_OF_TIMES;
            let stored = |time: Option<Timestamp>| time.map(|time| time.clamped(has_extra));
            changed.inode.atime = stored(set.atime).unwrap_or(changed.atime);
            changed.inode.mtime = stored(set.mtime).unwrap_or(changed.mtime);
            changed.inode.ctime = stored(set.ctime).unwrap_or(edit.now());
            changed.inode.count_change();
            write_loaded(&mut edit, &changed)?;
            edit.finish();
            *inode = changed;
            Ok(self.seen(&inode, inode.delayed()))
        })
    }
}
