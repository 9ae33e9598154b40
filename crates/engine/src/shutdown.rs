//! A volume that is shut down: from one point on nothing of it is written, as after a power cut,
//! while programs still use it.

use crate::engine::Engine;
use extant_reader::Error;
use extant_runtime::sync::atomic::Ordering;

/// The data that are still written when a volume is shut down: the modes of `FS_IOC_SHUTDOWN`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shutdown {
    /// All changes, as by [`Engine::freeze`]: there is nothing to recover.
    Default,
    /// The running transaction is committed. Data that wait for their blocks are lost.
    LogFlush,
    /// Nothing.
    NoLogFlush,
}

impl Engine {
    /// Ends all writing at once, after what `how` still asks for. The volume is then to be dropped:
    /// every change fails, and the next to open it recovers what was committed.
    ///
    /// # Errors
    /// As [`Self::freeze`] and [`Self::sync`]; it is shut down even on an error.
    pub fn shutdown(&self, how: Shutdown) -> Result<(), Error> {
        let written = match how {
            // The data of a frozen volume are on the device.
            _ if self.is_frozen.load(Ordering::Acquire) => Ok(()),
            Shutdown::Default => self.freeze(),
            Shutdown::LogFlush => self.commit_all(),
            Shutdown::NoLogFlush => Ok(()),
        };
        self.stop();
        written
    }
}

impl Engine {
    /// Nothing is written from now on, neither data in progress nor a record of this end; waiters
    /// continue and fail.
    fn stop(&self) {
        self.health.set_shut_down();
        self.written.let_writes_pass();
        if let Some(refusal) = self.health.refusal() {
            self.journal.abort(refusal.into());
        }
    }
}
