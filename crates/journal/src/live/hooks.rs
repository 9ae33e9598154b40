//! The calls from the journal to the volume above it.

use extant_device::DeviceError;
use extant_ondisk::Tid;

/// What the journal calls in the volume above it when it commits.
pub trait CommitHooks: Send + Sync {
    /// Transaction `tid` takes no more handles and is about to be written to the log. File data
    /// that must be on the device before it is committed are written by now, or here; the journal
    /// flushes the device then. The call allocates nothing, starts no handle and waits for none.
    ///
    /// # Errors
    /// A failure aborts the journal; an error that only concerns a file is the volume's to keep.
    fn before_commit(&self, tid: Tid) -> Result<(), DeviceError>;

    /// The transaction is committed: blocks that it freed may be used again.
    fn committed(&self, tid: Tid);

    /// Whether a failure may still be recorded on the device: not where somebody else has taken the volume.
    fn may_write(&self) -> bool {
        true
    }
}

/// Nothing to do: for programs that write no file data and reuse no freed blocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHooks;

impl CommitHooks for NoHooks {
    fn before_commit(&self, _: Tid) -> Result<(), DeviceError> {
        Ok(())
    }
    fn committed(&self, _: Tid) {}
}
