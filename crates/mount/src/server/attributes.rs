//! Attributes of files, and changes of them.

use extant_engine::{OpenVolume, SetAttributes, TimesOfUse};
use extant_ondisk::InodeNo;
use extant_ondisk::inode::{InodeFlags, PERMISSION_MASK, SETGID, SETUID};
use extant_ondisk::time::Timestamp;
use extant_reader::{LoadedInode, VolumeRead};
use rustix::io::Errno;

use super::{Caller, Server, attributes_of};
use crate::attr::{Attributes, timestamp};
use crate::options::Atime;

/// Seconds after which a time of the last read is old (`relatime`, mount(8)).
const DAY: i64 = 24 * 60 * 60;
/// Bytes that are hardly any space, and of small volumes which part.
const SPARE: u64 = 4 << 20;
const SPARE_SHARE: u64 = 64;

/// Changes requested by SETATTR. Fields that are `None` stay.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Change {
    /// Permissions with setuid, setgid and sticky.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes.
    pub size: Option<u64>,
    /// Last read.
    pub atime: Option<Timestamp>,
    /// Last change of the data.
    pub mtime: Option<Timestamp>,
    /// Last change of the inode; else now.
    pub ctime: Option<Timestamp>,
    /// A program sets the access time: not allowed for append-only files.
    pub sets_time: bool,
    /// The times, and nothing else, are those of writes in the kernel's cache.
    pub is_of_cache: bool,
    /// Setuid and setgid are cleared as by
    /// [`Credentials::mode_after_change`](extant_engine::Credentials::mode_after_change): the
    /// caller that truncates the file or gives it away may not keep them.
    pub drops_set_ids: bool,
}

impl Server {
    /// Now, as times of files have it.
    pub(crate) fn now(&self) -> Timestamp {
        timestamp(self.env.now())
    }

    /// The attributes of a file.
    ///
    /// # Errors
    /// The inode is broken, or the device failed.
    pub fn attributes(&self, file: InodeNo) -> Result<Attributes, Errno> {
        self.with(|volume| Ok(attributes_of(volume, &volume.inode(file)?)))
    }

    /// The bits setuid and setgid of a file's mode.
    ///
    /// # Errors
    /// As [`Self::attributes`].
    pub(crate) fn set_ids(&self, file: InodeNo) -> Result<u16, Errno> {
        self.with(|volume| Ok(volume.inode(file)?.mode & (SETUID | SETGID)))
    }

    /// Changes the attributes of a file.
    ///
    /// # Errors
    /// As [`Engine::truncate`](extant_engine::Engine::truncate) and
    /// [`Engine::set_attributes`](extant_engine::Engine::set_attributes).
    pub fn change(&self, file: InodeNo, change: &Change, by: Caller) -> Result<Attributes, Errno> {
        self.with(|volume| {
            if change.is_of_cache {
                let Change { atime, mtime, ctime, .. } = *change;
                let inode =
                    volume.engine()?.set_times_of_use(file, &TimesOfUse { atime, mtime, ctime })?;
                return Ok(attributes_of(volume, &inode));
            }
            if let Some(size) = change.size {
                volume.engine()?.truncate_by(file, size, &self.writer(by, change.drops_set_ids))?;
            }
            let gives_away = change.uid.is_some() || change.gid.is_some();
            let mut mode = change.mode.map(|mode| (mode & 0o7777) as u16);
            if mode.is_none() && gives_away && change.drops_set_ids {
                let inode = volume.inode(file)?;
                let left = self.writer(by, true).mode_after_change(&inode);
                mode = (left != inode.mode).then_some(left & PERMISSION_MASK);
            }
            let set = SetAttributes {
                mode,
                uid: change.uid,
                gid: change.gid,
                atime: change.atime,
                mtime: change.mtime,
                ctime: change.ctime,
                times_of_use: false,
                limits_bind: !self.is_privileged(by),
            };
            let unchanged =
                SetAttributes { limits_bind: set.limits_bind, ..SetAttributes::default() };
            let inode = if set == unchanged {
                volume.inode(file)?
            } else {
                let set = SetAttributes { times_of_use: !change.sets_time, ..set };
                volume.engine()?.set_attributes(file, &set)?
            };
            Ok(attributes_of(volume, &inode))
        })
    }

    /// Opens a file, if it may be opened with these flags: the kernel does not know that it is
    /// immutable or append-only.
    ///
    /// # Errors
    /// EPERM if not; ENOKEY for encrypted contents; as
    /// [`Engine::truncate`](extant_engine::Engine::truncate).
    pub fn open(&self, file: InodeNo, flags: OpenFor, by: Caller) -> Result<Cached, Errno> {
        self.with(|volume| {
            let inode = volume.inode(file)?;
            if inode.is_encrypted() && !inode.is_dir() {
                return Err(Errno::NOKEY.into());
            }
            let is_append_only = inode.flags.contains(InodeFlags::APPEND);
            let is_barred = flags.writes
                && (inode.flags.contains(InodeFlags::IMMUTABLE)
                    || is_append_only && !flags.appends)
                || flags.truncates && is_append_only;
            if is_barred {
                return Err(Errno::PERM.into());
            }
            if flags.truncates {
                volume.engine()?.truncate_by(file, 0, &self.writer(by, flags.drops_set_ids))?;
            }
            Ok(self.cached(volume, &inode, flags))
        })
    }

    /// The caching of a file that was just made. One that cannot be read is cached.
    pub(crate) fn cached_when_made(&self, file: InodeNo, flags: OpenFor) -> Cached {
        let cached = self.with(|volume| Ok(self.cached(volume, &volume.inode(file)?, flags)));
        cached.unwrap_or(Cached::Kept)
    }

    pub(super) fn cached(&self, volume: &OpenVolume, file: &LoadedInode, flags: OpenFor) -> Cached {
        let is_synced = || file.flags.contains(InodeFlags::SYNC);
        let is_scarce = || {
            let geometry = volume.geometry();
            let size = geometry.blocks_count * u64::from(geometry.block_size);
            let spare = SPARE.min(size / SPARE_SHARE);
            // If that is unknown, the write reports it.
            let engine = volume.engine();
            let has_room = engine.and_then(|it| it.has_room(file, spare, &self.cache_writer(file)));
            !has_room.unwrap_or(true)
        };
        let goes_around = flags.writes && (is_synced() || flags.reports_space && is_scarce());
        if goes_around { Cached::GoneAround } else { Cached::Kept }
    }

    /// Updates the access time after a read, as the mount's options require. A failure changes
    /// nothing for the reader.
    pub(super) fn touch(&self, volume: &OpenVolume, file: InodeNo) {
        if self.policy.read_only || self.policy.atime == Atime::Never {
            return;
        }
        let now = self.now();
        let is_due = volume.with_stored_inode(file, |inode| self.is_access_time_due(inode, now));
        if !is_due.unwrap_or(false) {
            return;
        }
        // A frozen volume is not changed, and a reader does not wait.
        let Some(_change) = self.try_begin_change() else { return };
        let read = TimesOfUse { atime: Some(now), ..TimesOfUse::default() };
        let _ = volume.engine().and_then(|it| it.set_times_of_use(file, &read));
    }

    /// Whether a read of a file sets its access time.
    fn is_access_time_due(&self, inode: &LoadedInode, now: Timestamp) -> bool {
        let policy = &self.policy;
        if policy.nodiratime && inode.is_dir()
            || inode.flags.intersects(InodeFlags::NOATIME | InodeFlags::IMMUTABLE)
        {
            return false;
        }
        policy.atime == Atime::Strict && inode.atime != now
            || is_older(inode.atime, inode.mtime)
            || is_older(inode.atime, inode.ctime)
            || now.seconds.saturating_sub(inode.atime.seconds) >= DAY
    }
}

/// Whether the last read was not after a change.
fn is_older(read: Timestamp, changed: Timestamp) -> bool {
    (read.seconds, read.nanoseconds) <= (changed.seconds, changed.nanoseconds)
}

/// How the kernel's cache treats an open file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cached {
    /// It keeps them.
    Kept,
    /// Written through: data reach the server before the call returns, for chattr's S, and when
    /// space is low.
    GoneAround,
}

/// The use of an open file.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct OpenFor {
    /// Writing.
    pub writes: bool,
    /// Every write appends.
    pub appends: bool,
    /// It is emptied.
    pub truncates: bool,
    /// It loses setuid and setgid then.
    pub drops_set_ids: bool,
    /// If hardly any space is left, each write has to report whether it found some.
    pub reports_space: bool,
}
