//! Freezing and thawing changes, and the end of all writing at once.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use extant_engine::Shutdown;
use extant_ondisk::InodeNo;
use rustix::io::Errno;

use super::{Caller, Server};
use crate::service::OngoingChange;

impl Server {
    /// Begins a change; `None` on a frozen volume: then it is to be put off, so that it keeps no
    /// thread from those who read, or thaw.
    pub(crate) fn begin_change(&self) -> Option<OngoingChange<'_>> {
        let frozen = self.frozen.read().unwrap_or_else(PoisonError::into_inner);
        (!*frozen).then_some(OngoingChange::of(frozen))
    }

    /// As [`Self::begin_change`], but `None` as well where it would have to wait.
    pub(super) fn try_begin_change(&self) -> Option<OngoingChange<'_>> {
        self.frozen.try_read().ok().filter(|frozen| !**frozen).map(OngoingChange::of)
    }

    /// Waits until the volume is not frozen.
    pub(crate) fn wait_for_change(&self) -> OngoingChange<'_> {
        loop {
            if let Some(change) = self.begin_change() {
                return change;
            }
            let guard = self.thaws.lock().unwrap_or_else(PoisonError::into_inner);
            let is_frozen = |_: &mut ()| self.is_frozen.load(Ordering::Acquire);
            drop(self.thawed.wait_while(guard, is_frozen));
        }
    }

    /// Drops lookup counts; on a frozen volume once it thaws.
    pub fn forget(&self, inode: InodeNo, count: u64) {
        let frozen = self.frozen.read().unwrap_or_else(PoisonError::into_inner);
        if *frozen {
            // Before it thaws: this guard is held.
            let mut forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
            forgotten.push((inode, count));
            return;
        }
        // No caller is left to get the error; it was logged.
        let _ = self.with(|volume| Ok(volume.release(inode, count)?));
    }

    /// Blocks all changes until [`Self::thaw`]. All data that have reached the server are on the
    /// device then, with nothing to recover.
    ///
    /// # Errors
    /// EBUSY where it is frozen already, and as [`Engine::freeze`](extant_engine::Engine::freeze).
    pub fn freeze(&self) -> Result<(), Errno> {
        let _one_at_a_time = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        self.block_changes()
    }

    fn block_changes(&self) -> Result<(), Errno> {
        // Waits for changes in progress.
        let mut frozen = self.frozen.write().unwrap_or_else(PoisonError::into_inner);
        if *frozen {
            return Err(Errno::BUSY);
        }
        *frozen = true;
        self.is_frozen.store(true, Ordering::Release);
        drop(frozen);
        if self.policy.read_only {
            return Ok(());
        }
        self.with(|volume| Ok(volume.engine()?.freeze()?)).inspect_err(|_| self.unblock_changes())
    }

    /// Lets changes continue.
    ///
    /// # Errors
    /// EINVAL where it is not frozen, and as [`Engine::thaw`](extant_engine::Engine::thaw).
    pub fn thaw(&self) -> Result<(), Errno> {
        let _one_at_a_time = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_frozen.load(Ordering::Acquire) {
            return Err(Errno::INVAL);
        }
        let thawed = if self.policy.read_only {
            Ok(())
        } else {
            self.with(|volume| Ok(volume.engine()?.thaw()?))
        };
        self.unblock_changes();
        thawed
    }

    /// No request comes any more: deferred ones are carried out, or fail.
    pub(crate) fn end_freeze(&self) {
        // A failure is logged.
        let _ = self.thaw();
    }

    fn unblock_changes(&self) {
        let mut frozen = self.frozen.write().unwrap_or_else(PoisonError::into_inner);
        *frozen = false;
        let forgotten =
            std::mem::take(&mut *self.forgotten.lock().unwrap_or_else(PoisonError::into_inner));
        let guard = self.thaws.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_frozen.store(false, Ordering::Release);
        drop((guard, frozen));
        self.thawed.notify_all();
        for (inode, count) in forgotten {
            self.forget(inode, count);
        }
    }

    /// Ends all writing at once, after the writes that `how` includes: every request fails with EIO
    /// from now on.
    ///
    /// # Errors
    /// As [`Engine::shutdown`](extant_engine::Engine::shutdown); it is shut down all the same.
    pub fn shutdown(&self, how: Shutdown) -> Result<(), Errno> {
        let _one_at_a_time = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_shut_down.load(Ordering::Acquire) {
            return Ok(());
        }
        let frozen = match how {
            // It may be frozen already.
            Shutdown::Default => self.block_changes().or_else(|errno| match errno {
                Errno::BUSY => Ok(()),
                errno => Err(errno),
            }),
            Shutdown::LogFlush | Shutdown::NoLogFlush => Ok(()),
        };
        self.is_shut_down.store(true, Ordering::Release);
        tracing::warn!("the volume is shut down: nothing is written any more");
        let stopped = self.of_volume(|volume| {
            // It has been frozen, or could not be.
            let left = if how == Shutdown::Default { Shutdown::NoLogFlush } else { how };
            Ok(volume.shutdown(left)?)
        });
        self.unblock_changes();
        frozen.and(stopped)
    }

    /// Whether a caller may administer the volume: root, and the mount's owner.
    ///
    /// # Errors
    /// EPERM if not.
    pub(super) fn check_owns_mount(by: Caller) -> Result<(), Errno> {
        let is_owner = by.uid == 0 || by.uid == rustix::process::geteuid().as_raw();
        if is_owner { Ok(()) } else { Err(Errno::PERM) }
    }
}
