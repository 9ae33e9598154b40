//! Making a file durable.

use crate::error::Error;
use crate::live::inodes::LockAs;
use crate::read::inode::LoadedInode;
use crate::volume::{Source, Volume};
use extant_ondisk::InodeNo;

impl Volume {
    /// Waits until all that was changed of a file is durable: data, size, map, attributes and the name that it was made by.
    ///
    /// # Errors
    /// The journal was stopped by an earlier failure, or now; no such file.
    pub fn fsync(&self, file: InodeNo) -> Result<(), Error> {
        self.with_inode(file, |_: &LoadedInode| Ok(()))?;
        // Data were on the device before the change of the inode, and every commit flushes it.
        self.sync()
    }

    /// As [`Self::fsync`], but for times: where only blocks that the file had were overwritten the journal is not waited for.
    ///
    /// # Errors
    /// As [`Self::fsync`].
    pub fn fdatasync(&self, file: InodeNo) -> Result<(), Error> {
        let Source::Live(live) = &self.source else { return Ok(()) };
        let inode = live.inodes.get(file);
        let locked = inode.read(self, LockAs::File)?;
        let unsynced = inode.unsynced(&locked);
        drop(locked);
        if let Some(changes) = unsynced {
            self.sync()?;
            inode.set_synced(changes);
            return Ok(());
        }
        if let Some(error) = live.journal.aborted() {
            return Err(error.into());
        }
        self.device.flush().map_err(|error| {
            // What metadata were written since the last flush is not sure either.
            live.journal.abort(error.clone().into());
            error.into()
        })
    }
}
