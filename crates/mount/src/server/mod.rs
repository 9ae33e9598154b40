//! The operations of requests on a volume, in terms of inodes, attributes and errno.
//!
//! The kernel checks permissions (`default_permissions`); checked here is only what it cannot know:
//! files that are immutable or append-only.

mod attributes;
mod control;
mod data;
mod dirs;
mod growth;
mod ioctl;
mod names;
mod statfs;
mod xattrs;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};

use extant_engine::{Credentials, GrowthPlanner, OpenVolume};
use extant_ondisk::inode::InodeFlags;
use extant_ondisk::{Flaw, InodeNo, Location};
use extant_reader::{Error, LoadedInode, VolumeRead};
use extant_runtime::env::Env;
use rustix::io::Errno;

use crate::attr::Attributes;
use crate::options::{Atime, MountOptions};

pub use attributes::{Cached, Change, OpenFor};
pub use data::WriteBy;
pub use dirs::{Listed, Listing};
pub(crate) use growth::{EXTEND, GrowReply};
pub(crate) use ioctl::{is_changing_ioctl, is_long_ioctl, shutdown_mode};

/// Distinct messages that are logged; a broken volume has no end of places.
const MAX_LOGGED: usize = 1000;

/// The process that makes a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// A file that was looked up or made: the kernel holds it now, until it forgets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LookedUp {
    /// Its attributes.
    pub attributes: Attributes,
}

/// Why a request fails.
pub(crate) enum RequestError {
    Volume(Error),
    Errno(Errno),
}

impl From<Error> for RequestError {
    fn from(error: Error) -> Self {
        Self::Volume(error)
    }
}

impl From<Errno> for RequestError {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

/// How a volume is served.
#[derive(Clone, Copy, Debug)]
struct MountPolicy {
    read_only: bool,
    atime: Atime,
    nodiratime: bool,
    /// Changes of names are durable when their call returns.
    sync_names: bool,
    acl: bool,
    user_xattr: bool,
    minixdf: bool,
    /// With the writeback cache the kernel stores the times of what it writes.
    kernel_keeps_times: bool,
    resuid: u32,
    resgid: u32,
}

/// A volume that serves requests. Any number of threads may call it at once.
#[derive(Debug)]
pub struct Server {
    /// `None` once it was closed: then every request fails.
    volume: RwLock<Option<OpenVolume>>,
    env: Env,
    policy: MountPolicy,
    logged: Mutex<HashSet<String>>,
    /// All requests fail, and nothing is written any more.
    is_shut_down: AtomicBool,
    /// Locked while freezing, thawing or shutting down.
    control: Mutex<()>,
    /// Whether changes are blocked. Changes in progress hold the lock.
    frozen: RwLock<bool>,
    /// The same, for those who wait for the end of it on `thawed`.
    is_frozen: AtomicBool,
    thaws: Mutex<()>,
    thawed: Condvar,
    /// Holds that were given back while changes are held back.
    forgotten: Mutex<Vec<(InodeNo, u64)>>,
    /// Plans the growth of the volume.
    planner: Option<Arc<dyn GrowthPlanner>>,
}

impl Server {
    /// A server of an open volume.
    pub fn new(volume: impl Into<OpenVolume>, env: Env, options: &MountOptions) -> Self {
        let volume = volume.into();
        let superblock = volume.superblock();
        let policy = MountPolicy {
            read_only: options.read_only,
            atime: options.atime,
            nodiratime: options.nodiratime,
            sync_names: options.sync || options.dirsync,
            acl: options.acl,
            user_xattr: options.user_xattr,
            minixdf: options.minixdf,
            kernel_keeps_times: options.writeback_cache,
            resuid: options.resuid.unwrap_or(u32::from(superblock.reserved_uid)),
            resgid: options.resgid.unwrap_or(u32::from(superblock.reserved_gid)),
        };
        Self {
            volume: RwLock::new(Some(volume)),
            env,
            policy,
            logged: Mutex::default(),
            is_shut_down: AtomicBool::new(false),
            control: Mutex::default(),
            frozen: RwLock::new(false),
            is_frozen: AtomicBool::new(false),
            thaws: Mutex::default(),
            thawed: Condvar::new(),
            forgotten: Mutex::default(),
            planner: None,
        }
    }

    /// Has the volume grow by the plans of `planner`. Without one it does not grow.
    #[must_use]
    pub fn with_planner(mut self, planner: Option<Arc<dyn GrowthPlanner>>) -> Self {
        self.planner = planner;
        self
    }

    /// Waits for the requests in progress, and closes the volume: everything is on the device.
    /// Requests fail after that. A closed volume stays so; one that was shut down is dropped as it
    /// is.
    ///
    /// # Errors
    /// As [`OpenVolume::close`].
    pub fn close(&self) -> Result<(), Error> {
        let volume = self.volume.write().unwrap_or_else(PoisonError::into_inner).take();
        volume
            .filter(|_| !self.is_shut_down.load(Ordering::Acquire))
            .map_or(Ok(()), OpenVolume::close)
    }

    /// Closes the volume because the mount ends; no caller is left, so a failure is logged.
    pub(crate) fn end(&self) {
        if let Err(error) = self.close() {
            tracing::error!("the volume could not be closed: {error}");
        }
    }

    /// Whether access control lists count.
    pub(crate) fn has_acls(&self) -> bool {
        self.policy.acl
    }

    /// Calls `work` with the volume. `work` must not call the server again: that would deadlock
    /// with a thread that waits to close the volume.
    fn with<T>(
        &self,
        work: impl FnOnce(&OpenVolume) -> Result<T, RequestError>,
    ) -> Result<T, Errno> {
        self.of_volume(|volume| {
            if self.is_shut_down.load(Ordering::Acquire) {
                return Err(Errno::IO.into());
            }
            work(volume)
        })
    }

    /// As [`Self::with`], on a volume that is shut down too.
    fn of_volume<T>(
        &self,
        work: impl FnOnce(&OpenVolume) -> Result<T, RequestError>,
    ) -> Result<T, Errno> {
        let guard = self.volume.read().unwrap_or_else(PoisonError::into_inner);
        let volume = guard.as_ref().ok_or(Errno::NOTCONN)?;
        let done = work(volume);
        if done.is_err() && self.is_shut_down.load(Ordering::Acquire) {
            // The reason of the failure is known, and the volume is intact.
            return done.map_err(|_| Errno::IO);
        }
        self.errno_of(done)
    }

    /// Turns an error into errno; one of the volume's own is logged.
    fn errno_of<T>(&self, done: Result<T, RequestError>) -> Result<T, Errno> {
        done.map_err(|fail| match fail {
            RequestError::Errno(errno) => errno,
            RequestError::Volume(error) => {
                self.log(&error);
                error.errno()
            }
        })
    }

    /// As [`Self::with`], for changes of names in these directories.
    fn with_names<T>(
        &self,
        dirs: &[InodeNo],
        work: impl FnOnce(&OpenVolume) -> Result<T, RequestError>,
    ) -> Result<T, Errno> {
        self.with(|volume| {
            let done = work(volume)?;
            if self.policy.sync_names {
                volume.sync()?;
                return Ok(done);
            }
            for dir in dirs {
                // chattr's S and D.
                let flags = volume.with_stored_inode(*dir, |inode| inode.flags)?;
                if flags.intersects(InodeFlags::SYNC | InodeFlags::DIRSYNC) {
                    volume.fsync(*dir)?;
                }
            }
            Ok(done)
        })
    }

    /// Damage and failures of the device are logged, each once.
    fn log(&self, error: &Error) {
        let is_damage = error.is_corruption()
            || matches!(
                error,
                Error::Io(_) | Error::Journal(_) | Error::FreeInode(_) | Error::NoSuchInode(_)
            );
        if !is_damage {
            return;
        }
        let text = error.to_string();
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() < MAX_LOGGED && logged.insert(text.clone()) {
            tracing::error!("{text}");
        }
    }

    /// The credentials for reserved blocks and for the owner of new files.
    fn credentials(&self, caller: Caller, umask: u16) -> Credentials {
        Credentials {
            uid: caller.uid,
            gid: caller.gid,
            umask,
            is_privileged: self.is_privileged(caller),
            keeps_set_ids: caller.uid == 0,
            writes_back: false,
            keeps_times: false,
        }
    }

    /// The credentials of a writer, and whether it keeps setuid and setgid.
    fn writer(&self, caller: Caller, drops_set_ids: bool) -> Credentials {
        let credentials = self.credentials(caller, 0);
        Credentials { keeps_set_ids: credentials.keeps_set_ids && !drops_set_ids, ..credentials }
    }

    fn is_privileged(&self, caller: Caller) -> bool {
        caller.uid == 0
            || caller.uid == self.policy.resuid
            || self.policy.resgid != 0 && caller.gid == self.policy.resgid
    }

    /// Takes hold of an inode for the kernel.
    fn look_up(volume: &OpenVolume, inode: InodeNo) -> Result<LookedUp, RequestError> {
        if inode != InodeNo::ROOT && inode < volume.geometry().first_inode {
            // The journal and its like have no names.
            let flaw = Flaw::Rule("a name stands for a reserved inode");
            return Err(Error::from(flaw.at(Location::Inode(inode))).into());
        }
        let loaded = volume.acquire(inode)?;
        Ok(LookedUp { attributes: attributes_of(volume, &loaded) })
    }

    /// The last open file with write access was closed.
    pub(crate) fn last_writer_closed(&self, file: InodeNo) {
        // A mount that has ended has no one to report to.
        let _ = self.with(|volume| {
            volume.last_writer_closed(file);
            Ok(())
        });
    }

    /// Number of unlinked files in use, whose space is freed when the kernel forgets them: it sends
    /// FORGET some time after the last user has closed the file.
    pub(crate) fn open_unlinked_count(&self) -> usize {
        self.with(|volume| Ok(volume.open_unlinked_count())).unwrap_or(0)
    }

    /// Makes everything durable (syncfs).
    ///
    /// # Errors
    /// The device failed, now or before.
    pub fn sync(&self) -> Result<(), Errno> {
        self.with(|volume| Ok(volume.sync()?)).map_err(sync_errno)
    }
}

/// The error of a sync that failed. A volume that became read-only gives EIO: changes made before
/// are not durable.
fn sync_errno(errno: Errno) -> Errno {
    if errno == Errno::ROFS { Errno::IO } else { errno }
}

fn attributes_of(volume: &OpenVolume, inode: &LoadedInode) -> Attributes {
    Attributes::of(inode, volume.geometry())
}
