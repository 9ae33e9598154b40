//! Errors that calls find: recorded in memory, and stored in the superblock before the next change.

use super::Engine;
use super::operation::Operation;
use crate::edit::change_superblock;
use extant_ondisk::FormatError;
use extant_reader::Error;

impl Engine {
    /// Records an error of corruption, and returns the result.
    pub(crate) fn record_corruption<R>(&self, result: Result<R, Error>) -> Result<R, Error> {
        if let Err(Error::Format(FormatError::Corrupt { location, flaw })) = &result {
            let policy = self.options.errors.unwrap_or(self.sizes.info.superblock.errors);
            tracing::error!(%location, %flaw, ?policy, "the volume is broken");
            self.health.record(*location, flaw, self.seconds(), policy);
        }
        result
    }

    /// Stores recorded errors in the superblock. No handle is open.
    pub(crate) fn record_errors(&self) -> Result<(), Error> {
        let Some(found) = self.health.take_unrecorded() else { return Ok(()) };
        let mut edit = Operation::start(self, 1)?;
        change_superblock(&mut edit, |raw| raw.add_errors(&found))?;
        edit.finish();
        Ok(())
    }
}
