//! A volume that is open, for reading only or for changes too.

use crate::engine::Engine;
use crate::engine::lost::ErrorSample;
use crate::ops::EngineReadDir;
use crate::shutdown::Shutdown;
use crate::volume::Volume;
use extant_device::Device;
use extant_ondisk::acl::Acl;
use extant_ondisk::{BlockNo, Geometry, GroupNo, InodeNo};
use extant_reader::read::dir::{DirEntry, ReadDir};
use extant_reader::read::dir_block::EntryTarget;
use extant_reader::read::inode::LoadedInode;
use extant_reader::read::mapping::Mapping;
use extant_reader::read::path::Follow;
use extant_reader::read::statfs::StatFs;
use extant_reader::read::xattr::{AclKind, XattrInfo};
use extant_reader::{
    BlockKind, DataPiece, Error, MetadataRead, Reader, RecordPlace, VolumeInfo, VolumeRead,
    forward_volume_read,
};
use std::ops::Range;
use std::sync::Arc;

/// A volume that is open. Reads are calls of [`VolumeRead`]; changes are the [`Engine`]'s calls.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a program has few of them, and seldom moves one")]
pub enum OpenVolume {
    /// For reading only.
    ReadOnly(Reader),
    /// For reading and changing.
    ReadWrite(Volume),
}

impl From<Reader> for OpenVolume {
    fn from(reader: Reader) -> Self {
        Self::ReadOnly(reader)
    }
}

impl From<Volume> for OpenVolume {
    fn from(volume: Volume) -> Self {
        Self::ReadWrite(volume)
    }
}

impl OpenVolume {
    /// Sizes and counts.
    pub fn geometry(&self) -> &Geometry {
        &MetadataRead::info(self).geometry
    }

    /// The engine, which changes the volume.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] where it was opened for reading only.
    pub fn engine(&self) -> Result<&Engine, Error> {
        self.changing().ok_or(Error::ReadOnly)
    }

    fn changing(&self) -> Option<&Engine> {
        match self {
            Self::ReadOnly(_) => None,
            Self::ReadWrite(volume) => Some(volume),
        }
    }

    /// Whether nothing can be changed: the volume was opened so, or an error has made it so.
    pub fn is_read_only(&self) -> bool {
        self.changing().is_none_or(Engine::is_read_only)
    }

    /// Ends the volume well, as [`Volume::close`] does. One that is only read has nothing to be
    /// ended.
    ///
    /// # Errors
    /// As [`Volume::close`].
    pub fn close(self) -> Result<(), Error> {
        match self {
            Self::ReadOnly(_) => Ok(()),
            Self::ReadWrite(volume) => volume.close(),
        }
    }

    /// As [`Engine::shutdown`]. Nothing is to be done on a volume that is only read.
    ///
    /// # Errors
    /// As [`Engine::shutdown`].
    pub fn shutdown(&self, how: Shutdown) -> Result<(), Error> {
        self.changing().map_or(Ok(()), |engine| engine.shutdown(how))
    }

    /// As [`Engine::sync`]. Nothing is to be done on a volume that is only read.
    ///
    /// # Errors
    /// As [`Engine::sync`].
    pub fn sync(&self) -> Result<(), Error> {
        self.changing().map_or(Ok(()), Engine::sync)
    }

    /// As [`Engine::fsync`]; on a volume that is only read it is an error only where there is no
    /// such file.
    ///
    /// # Errors
    /// As [`Engine::fsync`].
    pub fn fsync(&self, file: InodeNo) -> Result<(), Error> {
        self.fsync_open(file, &mut self.error_sample(file))
    }

    /// As [`Engine::fsync_open`]; on a volume that is only read it is an error only where there is
    /// no such file.
    ///
    /// # Errors
    /// As [`Engine::fsync`].
    pub fn fsync_open(&self, file: InodeNo, sample: &mut ErrorSample) -> Result<(), Error> {
        match self {
            Self::ReadOnly(reader) => reader.inode(file).map(drop),
            Self::ReadWrite(volume) => volume.fsync_open(file, sample),
        }
    }

    /// As [`Engine::fdatasync_open`]. Nothing is to be done on a volume that is only read.
    ///
    /// # Errors
    /// As [`Engine::fsync`].
    pub fn fdatasync_open(&self, file: InodeNo, sample: &mut ErrorSample) -> Result<(), Error> {
        self.changing().map_or(Ok(()), |engine| engine.fdatasync_open(file, sample))
    }

    /// As [`Engine::error_sample`]. A volume that is only read loses no data.
    pub fn error_sample(&self, file: InodeNo) -> ErrorSample {
        self.changing().map_or_else(ErrorSample::default, |engine| engine.error_sample(file))
    }

    /// As [`Engine::acquire`]. On a volume that is only read every inode stays.
    ///
    /// # Errors
    /// As [`Engine::acquire`].
    pub fn acquire(&self, inode: InodeNo) -> Result<LoadedInode, Error> {
        match self {
            Self::ReadOnly(reader) => reader.inode(inode),
            Self::ReadWrite(volume) => volume.acquire(inode),
        }
    }

    /// Calls `read` with an inode, which is not copied. It is as on the volume: the size and the
    /// blocks do not include delayed data.
    ///
    /// # Errors
    /// As [`VolumeRead::inode`].
    pub fn with_stored_inode<R>(
        &self,
        inode: InodeNo,
        read: impl FnOnce(&LoadedInode) -> R,
    ) -> Result<R, Error> {
        match self {
            Self::ReadOnly(reader) => reader.inode(inode).map(|inode| read(&inode)),
            Self::ReadWrite(volume) => volume.with_inode(inode, |inode| Ok(read(inode))),
        }
    }

    /// As [`Engine::release`].
    ///
    /// # Errors
    /// As [`Engine::release`].
    pub fn release(&self, inode: InodeNo, count: u64) -> Result<(), Error> {
        self.changing().map_or(Ok(()), |engine| engine.release(inode, count))
    }

    /// As [`Engine::on_close`].
    pub fn on_close(&self, file: InodeNo) {
        if let Some(engine) = self.changing() {
            engine.on_close(file);
        }
    }

    /// As [`Engine::last_writer_closed`].
    pub fn last_writer_closed(&self, file: InodeNo) {
        if let Some(engine) = self.changing() {
            engine.last_writer_closed(file);
        }
    }

    /// As [`Engine::open_unlinked_count`]; 0 on a volume that is only read.
    pub fn open_unlinked_count(&self) -> usize {
        self.changing().map_or(0, Engine::open_unlinked_count)
    }
}

/// The entries of a directory of an [`OpenVolume`].
#[derive(Debug)]
pub enum OpenReadDir<'v> {
    /// For a volume that is only read.
    ReadOnly(Box<ReadDir<'v, Reader>>),
    /// The entries of a directory that may change during the walk.
    ReadWrite(EngineReadDir<'v>),
}

impl<'v> From<ReadDir<'v, Reader>> for OpenReadDir<'v> {
    fn from(entries: ReadDir<'v, Reader>) -> Self {
        Self::ReadOnly(Box::new(entries))
    }
}

impl<'v> From<EngineReadDir<'v>> for OpenReadDir<'v> {
    fn from(entries: EngineReadDir<'v>) -> Self {
        Self::ReadWrite(entries)
    }
}

impl Iterator for OpenReadDir<'_> {
    type Item = Result<DirEntry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::ReadOnly(entries) => entries.next(),
            Self::ReadWrite(entries) => entries.next(),
        }
    }
}

/// Makes a call on the reader or the engine.
macro_rules! with_either {
    ($self:ident, $volume:ident => $call:expr) => {
        match $self {
            OpenVolume::ReadOnly($volume) => $call,
            OpenVolume::ReadWrite(volume) => {
                let $volume: &Engine = volume;
                $call
            }
        }
    };
}

forward_volume_read!(OpenVolume, OpenReadDir, with_either);
