//! The calls from the journal to the volume above it.

use extant_device::DeviceError;
use extant_ondisk::Tid;

/// Calls from the journal to the volume above it during a commit.
pub trait CommitHooks: Send + Sync {
    /// Called when transaction `tid` takes no more handles, before it is written to the log. File
    /// data that must be on the device before the commit is written by the end of this call; the
    /// journal then flushes the device. The call must not allocate space, start a handle or wait
    /// for one.
    ///
    /// # Errors
    /// An error aborts the journal; an error that only concerns a file is for the volume to keep.
    fn before_commit(&self, tid: Tid) -> Result<(), DeviceError>;

    /// Called when transaction `tid` is committed: blocks that it freed may be used again.
    fn committed(&self, tid: Tid);

    /// Whether a failure may still be recorded on the device: false if another host has taken the
    /// volume.
    fn may_write(&self) -> bool {
        true
    }
}

/// Hooks without an effect, for programs that write no file data and reuse no freed blocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHooks;

impl CommitHooks for NoHooks {
    fn before_commit(&self, _: Tid) -> Result<(), DeviceError> {
        Ok(())
    }
    fn committed(&self, _: Tid) {}
}
