//! Making a file durable.

use crate::engine::Engine;
use crate::engine::inodes::LockClass;
use crate::engine::lost::ErrorSample;
use extant_ondisk::InodeNo;
use extant_reader::Error;

impl Engine {
    /// Waits until all changes of a file are durable: data, size, map, attributes and the name that
    /// it was created by. Returns the error of delayed data that could not be written, unless an
    /// open file got it ([`Self::fsync_open`]).
    ///
    /// # Errors
    /// Why data were lost; the journal was stopped by an earlier failure, or now; no such file.
    pub fn fsync(&self, file: InodeNo) -> Result<(), Error> {
        self.fsync_open(file, &mut self.error_sample(file))
    }

    /// As [`Self::fsync`], for a file that the caller has open ([`Self::acquire`]) and whose sample
    /// was taken then ([`Self::error_sample`]). Every open file gets the error of lost data once;
    /// the sample advances.
    ///
    /// # Errors
    /// As [`Self::fsync`].
    pub fn fsync_open(&self, file: InodeNo, sample: &mut ErrorSample) -> Result<(), Error> {
        let inode = self.inodes.get(file);
        self.write_back_file(&inode);
        let is_dir = inode.read(self, LockClass::File)?.is_dir();
        inode.check_lost(sample)?;
        self.write_times(&inode)?;
        if !inode.is_pinned() {
            self.allocator.discard_preallocation(file);
        }
        // Data were on the device before the change of the inode, and every commit flushes it.
        if is_dir {
            // Fast commits log names of directories, not their times.
            return self.commit_all();
        }
        self.commit_file()
    }

    /// The sample of a file that is opened now, for [`Self::fsync_open`]: it has not seen losses to
    /// come, nor a loss that was not yet reported to any caller.
    pub fn error_sample(&self, file: InodeNo) -> ErrorSample {
        self.inodes.get(file).error_sample()
    }

    /// Must be called when a file that may have been written is closed: delayed data of a file that
    /// was emptied before are written, so that soon after there is either its old or its new
    /// content (`auto_da_alloc`).
    pub fn on_close(&self, file: InodeNo) {
        let inode = self.inodes.get(file);
        if inode.is_replaced() {
            self.write_back_file(&inode);
        }
    }

    /// Must be called when the last process that had the file open for writing closes it: its
    /// preallocation is given back, and its delayed data get only the space that they need. The
    /// last [`Self::release`] does the same.
    pub fn last_writer_closed(&self, file: InodeNo) {
        self.inodes.get(file).set_closed(true);
        self.allocator.discard_preallocation(file);
    }

    /// As [`Self::fsync`], but for times, which stay in memory where they wait there (`lazytime`):
    /// where only blocks that the file had were overwritten the journal is not waited for.
    ///
    /// # Errors
    /// As [`Self::fsync`].
    pub fn fdatasync(&self, file: InodeNo) -> Result<(), Error> {
        self.fdatasync_open(file, &mut self.error_sample(file))
    }

    /// As [`Self::fdatasync`], for an open file: see [`Self::fsync_open`].
    ///
    /// # Errors
    /// As [`Self::fsync`].
    pub fn fdatasync_open(&self, file: InodeNo, sample: &mut ErrorSample) -> Result<(), Error> {
        let inode = self.inodes.get(file);
        self.write_back_file(&inode);
        let locked = inode.read(self, LockClass::File)?;
        inode.check_lost(sample)?;
        let unsynced = inode.unsynced(&locked);
        drop(locked);
        if let Some(changes) = unsynced {
            self.commit_file()?;
            inode.set_synced(changes);
            return Ok(());
        }
        if let Some(error) = self.journal.aborted() {
            return Err(error.into());
        }
        self.flush_or_stop()
    }

    /// Flushes the device. Where that fails it is not sure either what metadata were written since
    /// the last flush: the journal stops.
    pub(in crate::ops) fn flush_or_stop(&self) -> Result<(), Error> {
        self.device.flush().map_err(|error| {
            self.journal.abort(error.clone().into());
            error.into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Credentials, Volume, VolumeOptions};
    use extant_device::MemoryDevice;
    use extant_reader::VolumeRead;
    use extant_runtime::env::Env;
    use extant_testkit::{TempImage, skip};
    use std::sync::Arc;

    /// If two callers sync a file at once, one may count data that are still delayed: the other
    /// waits for their map in any case.
    #[test]
    fn data_that_were_counted_while_they_were_delayed_are_durable_with_their_map() {
        let image = match TempImage::by_mke2fs(16 << 20, &["-t", "ext4"]) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap()));
        let (env, options) = (Env::stepped(1), VolumeOptions::default());
        let volume = Volume::open(device.clone(), &env, &options).unwrap();
        let made = volume.create(InodeNo::ROOT, b"file", 0o644, &Credentials::ROOT).unwrap();
        let file = made.number;
        volume.fsync(file).unwrap();
        volume.write(file, 0, b"data").unwrap();
        let inode = volume.inodes.get(file);
        let locked = inode.read(&*volume, LockClass::File).unwrap();
        let changes = inode.unsynced(&locked).expect("it was written");
        drop(locked);
        volume.commit_all().unwrap();
        inode.set_synced(changes);
        volume.fdatasync(file).unwrap();
        drop(inode);
        // Power loss.
        drop(volume);
        let volume = Volume::open(device, &env, &options).unwrap();
        let mut bytes = [0; 4];
        assert_eq!(volume.read(file, 0, &mut bytes).unwrap(), 4);
        assert_eq!(&bytes, b"data");
        volume.close().unwrap();
    }
}
