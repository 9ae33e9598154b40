//! A latch for the first failure: after it nothing is written and nothing is acknowledged.

use extant_runtime::sync::atomic::{AtomicBool, Ordering};
use extant_runtime::sync::{Arc, Mutex};

use super::ranks::LatchLock;
use crate::JournalError;

#[derive(Default)]
pub(super) struct Latch {
    is_set: AtomicBool,
    first: Mutex<Option<Arc<JournalError>>, LatchLock>,
}

impl Latch {
    /// Sets `error` if it is the first one. Returns whether it was.
    pub(super) fn set(&self, error: JournalError) -> bool {
        let mut first = self.first.lock();
        if first.is_some() {
            return false;
        }
        *first = Some(Arc::new(error));
        self.is_set.store(true, Ordering::Release);
        true
    }

    pub(super) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// The error that every call returns after the first failure.
    pub(super) fn error(&self) -> Option<JournalError> {
        if !self.is_set() {
            return None;
        }
        self.first.lock().clone().map(JournalError::Aborted)
    }

    pub(super) fn check(&self) -> Result<(), JournalError> {
        self.error().map_or(Ok(()), Err)
    }
}
