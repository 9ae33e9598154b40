//! Contents of files.

use extant_engine::ops::FallocateMode;
use extant_engine::{Credentials, ErrorSample, OpenVolume};
use extant_ondisk::inode::Inode;
use extant_ondisk::{FileBlock, InodeNo};
use extant_reader::{MappingTarget, VolumeRead};
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use super::{Caller, Server, sync_errno};

/// Bytes that are copied at once inside the volume.
const COPY_STEP: usize = 1 << 20;
/// Maximum number of bytes that one request copies: others wait during it.
const COPY_LIMIT: u64 = 64 << 20;

/// The origin of a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WriteBy {
    /// A program's call.
    Caller {
        /// The process that makes the call.
        caller: Caller,
        /// The file loses setuid and setgid.
        drops_set_ids: bool,
    },
    /// The kernel's cache: the writing program is unknown, and setuid was handled at the time of
    /// its write.
    Cache,
}

impl Server {
    /// Reads from a file: how many bytes, fewer than there is room for only at its end.
    /// `keeps_atime` is O_NOATIME.
    ///
    /// # Errors
    /// As [`VolumeRead::read`].
    pub fn read(
        &self,
        file: InodeNo,
        offset: u64,
        buffer: &mut [u8],
        keeps_atime: bool,
    ) -> Result<usize, Errno> {
        self.with(|volume| {
            let count = volume.read(file, offset, buffer)?;
            if !keeps_atime {
                self.touch(volume, file);
            }
            Ok(count)
        })
    }

    /// Writes into a file: how many bytes.
    ///
    /// # Errors
    /// As [`Engine::write`](extant_engine::Engine::write).
    pub fn write(
        &self,
        file: InodeNo,
        offset: u64,
        bytes: &[u8],
        by: WriteBy,
    ) -> Result<usize, Errno> {
        self.with(|volume| {
            let credentials = match by {
                WriteBy::Caller { caller, drops_set_ids } => self.writer(caller, drops_set_ids),
                WriteBy::Cache => volume.with_stored_inode(file, |it| self.cache_writer(it))?,
            };
            Ok(volume.engine()?.write_by(file, offset, bytes, &credentials)?)
        })
    }

    /// The credentials for data from the kernel's cache: the owner's, as far as is known. Setuid
    /// and setgid were handled at the time of the write.
    pub(super) fn cache_writer(&self, file: &Inode) -> Credentials {
        let owner = Caller { uid: file.uid, gid: file.gid };
        Credentials {
            keeps_set_ids: true,
            writes_back: true,
            keeps_times: self.policy.kernel_keeps_times,
            ..self.credentials(owner, 0)
        }
    }

    /// The sample of a file that is opened now, for [`Self::fsync`].
    pub fn error_sample(&self, file: InodeNo) -> ErrorSample {
        self.with(|volume| Ok(volume.error_sample(file))).unwrap_or_default()
    }

    /// Makes the changes of a file durable; with `data_only` not its times. `sample` has the write
    /// errors that the open file got before.
    ///
    /// # Errors
    /// The device failed, now or before.
    pub fn fsync(
        &self,
        file: InodeNo,
        data_only: bool,
        sample: &mut ErrorSample,
    ) -> Result<(), Errno> {
        let synced = self.with(|volume| {
            if data_only {
                volume.fdatasync_open(file, sample)?
            } else {
                volume.fsync_open(file, sample)?
            };
            Ok(())
        });
        synced.map_err(sync_errno)
    }

    /// Changes how a range of a file is allocated; `mode` as `fallocate(2)` has it.
    ///
    /// # Errors
    /// EOPNOTSUPP for modes that there are not, and as
    /// [`Engine::fallocate`](extant_engine::Engine::fallocate).
    pub fn fallocate(
        &self,
        file: InodeNo,
        mode: u32,
        offset: u64,
        len: u64,
        by: Caller,
    ) -> Result<(), Errno> {
        let mode = fallocate_mode(mode).ok_or(Errno::OPNOTSUPP)?;
        let credentials = self.credentials(by, 0);
        self.with(|volume| {
            Ok(volume.engine()?.fallocate_by(file, mode, offset, len, &credentials)?)
        })
    }

    /// The next offset of data or of a hole from an offset on; the file's end counts as a hole.
    ///
    /// # Errors
    /// ENXIO without any, EINVAL for another kind of seek, and as [`VolumeRead::seek_data`].
    pub fn seek(&self, file: InodeNo, wanted: SeekFrom) -> Result<u64, Errno> {
        let found = self.with(|volume| match wanted {
            SeekFrom::Data(offset) => Ok(volume.seek_data(file, offset)?),
            SeekFrom::Hole(offset) => Ok(volume.seek_hole(file, offset)?),
            _ => Err(Errno::INVAL.into()),
        })?;
        found.ok_or(Errno::NXIO)
    }

    /// The block of the device, in units of `unit` bytes, that holds a block of a file; 0 for a
    /// hole (FIBMAP).
    ///
    /// # Errors
    /// EINVAL for units other than the volume's blocks and for contents that no block holds alone,
    /// and as [`VolumeRead::extents`].
    pub fn block_at(&self, file: InodeNo, block: u64, unit: u32) -> Result<u64, Errno> {
        self.with(|volume| {
            let inode = volume.inode(file)?;
            if unit != volume.geometry().block_size || inode.is_inline() {
                return Err(Errno::INVAL.into());
            }
            let block = FileBlock(block);
            let end = FileBlock(block.0.saturating_add(1));
            match volume.extents_in(inode, block..end).next() {
                Some(mapping) => match mapping?.target {
                    MappingTarget::Written(at) => Ok(at.0),
                    MappingTarget::Unwritten(_) | MappingTarget::Hole => Ok(0),
                },
                None => Ok(0),
            }
        })
    }

    /// Copies from one file into another, or within one: returns the number of bytes, fewer than
    /// requested at the end of the source.
    ///
    /// # Errors
    /// As [`VolumeRead::read`] and [`Engine::write`](extant_engine::Engine::write).
    pub fn copy(
        &self,
        from: (InodeNo, u64),
        to: (InodeNo, u64),
        len: u64,
        by: Caller,
    ) -> Result<u64, Errno> {
        let credentials = self.credentials(by, 0);
        self.with(|volume| {
            let len = len.min(COPY_LIMIT);
            let mut buffer = vec![0; COPY_STEP.min(usize::try_from(len).unwrap_or(COPY_STEP))];
            let mut done = 0;
            while done < len {
                let step = buffer.len().min(usize::try_from(len - done).unwrap_or(usize::MAX));
                let (source, target) = (from.1.saturating_add(done), to.1.saturating_add(done));
                let copied = copy_step(volume, (from.0, source), &mut buffer[..step], |bytes| {
                    volume.engine()?.write_by(to.0, target, bytes, &credentials)
                });
                match copied {
                    Ok(0) => break,
                    Ok(count) => done += count as u64,
                    Err(_) if done > 0 => break,
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(done)
        })
    }
}

fn copy_step(
    volume: &OpenVolume,
    (file, offset): (InodeNo, u64),
    buffer: &mut [u8],
    write: impl FnOnce(&[u8]) -> Result<usize, extant_reader::Error>,
) -> Result<usize, extant_reader::Error> {
    match volume.read(file, offset, buffer)? {
        0 => Ok(0),
        count => write(&buffer[..count]),
    }
}

fn fallocate_mode(mode: u32) -> Option<FallocateMode> {
    let flags = FallocateFlags::from_bits(mode)?;
    let keep = FallocateFlags::KEEP_SIZE;
    Some(match flags {
        _ if flags.is_empty() => FallocateMode::Allocate,
        _ if flags == keep => FallocateMode::KeepSize,
        _ if flags == FallocateFlags::PUNCH_HOLE | keep => FallocateMode::PunchHole,
        FallocateFlags::ZERO_RANGE => FallocateMode::ZeroRange,
        _ if flags == FallocateFlags::ZERO_RANGE | keep => FallocateMode::ZeroRangeKeepSize,
        FallocateFlags::COLLAPSE_RANGE => FallocateMode::CollapseRange,
        FallocateFlags::INSERT_RANGE => FallocateMode::InsertRange,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_of_fallocate_are_those_of_the_call() {
        assert_eq!(fallocate_mode(0), Some(FallocateMode::Allocate));
        assert_eq!(fallocate_mode(1), Some(FallocateMode::KeepSize));
        assert_eq!(fallocate_mode(3), Some(FallocateMode::PunchHole));
        assert_eq!(fallocate_mode(8), Some(FallocateMode::CollapseRange));
        assert_eq!(fallocate_mode(0x10), Some(FallocateMode::ZeroRange));
        assert_eq!(fallocate_mode(0x11), Some(FallocateMode::ZeroRangeKeepSize));
        assert_eq!(fallocate_mode(0x20), Some(FallocateMode::InsertRange));
        // A hole keeps the size, and blocks are not shared here.
        assert_eq!((fallocate_mode(2), fallocate_mode(0x40)), (None, None));
    }
}
