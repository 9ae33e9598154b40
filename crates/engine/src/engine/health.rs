//! Errors that were found on the volume while it is open: recorded in its superblock, and handled
//! by the policy `errors=`.
//!
//! A call that finds corruption returns it with its location, and it is recorded here, in memory.
//! The next operation that changes the volume, or its end, records it in the superblock first: no
//! handle is open then.

use crate::ranks::HealthLock;
use extant_device::{DeviceError, Operation};
use extant_ondisk::error_log::{ErrorLog, LoggedError};
use extant_ondisk::superblock::ErrorPolicy;
use extant_ondisk::{Flaw, Location};
use extant_runtime::sync::Mutex;
use extant_runtime::sync::atomic::{AtomicBool, Ordering};
use std::io;

/// The errors that were found on an open volume.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// An error has ended all changes.
    is_read_only: AtomicBool,
    /// Another host has taken the volume.
    is_lost: AtomicBool,
    is_shut_down: AtomicBool,
    has_unrecorded: AtomicBool,
    unrecorded: Mutex<ErrorLog, HealthLock>,
}

impl Health {
    /// An error was met.
    pub(crate) fn record(&self, place: Location, flaw: &Flaw, time: u64, policy: ErrorPolicy) {
        self.unrecorded.lock().push(LoggedError::of_corruption(place, flaw, time));
        self.has_unrecorded.store(true, Ordering::Release);
        if policy != ErrorPolicy::Continue {
            self.set_read_only();
        }
    }

    /// Nothing is changed from now on.
    pub(crate) fn set_read_only(&self) {
        self.is_read_only.store(true, Ordering::Release);
    }

    /// Another host has taken the volume: nothing is written any more.
    pub(crate) fn set_lost(&self) {
        self.is_lost.store(true, Ordering::Release);
        self.set_read_only();
    }

    /// The volume is shut down: nothing is written any more.
    pub(crate) fn set_shut_down(&self) {
        self.is_shut_down.store(true, Ordering::Release);
        self.set_read_only();
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// The error of writes when nothing may be written any more.
    pub(crate) fn refusal(&self) -> Option<DeviceError> {
        let why = if self.is_lost() {
            "MMP: the volume was taken over by another host"
        } else if self.is_shut_down.load(Ordering::Acquire) {
            "the volume was shut down"
        } else {
            return None;
        };
        Some(DeviceError::io(Operation::Write, 0, 0, io::Error::other(why)))
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only.load(Ordering::Acquire)
    }

    /// The errors since the last call; `None` without any.
    pub(crate) fn take_unrecorded(&self) -> Option<ErrorLog> {
        let has_any = self.has_unrecorded.swap(false, Ordering::AcqRel);
        has_any.then(|| std::mem::take(&mut *self.unrecorded.lock()))
    }
}
