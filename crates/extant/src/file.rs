//! Open files.

use crate::fs::{FileSystem, Inner};
use crate::metadata::Metadata;
use crate::path;
use crate::path_error::PathError;
use extant_engine::ops::FallocateMode;
use extant_engine::{Credentials, ErrorSample, OpenVolume};
use extant_ondisk::InodeNo;
use extant_ondisk::inode::FileType;
use extant_reader::{Error as Cause, Follow, LoadedInode, VolumeRead};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Permissions of new files before the umask.
const FILE_PERMISSIONS: u16 = 0o666;

/// How a file is opened, as [`std::fs::OpenOptions`].
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: Option<u16>,
}

impl OpenOptions {
    /// For nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// For reading.
    pub fn read(mut self, read: bool) -> Self {
        self.read = read;
        self
    }

    /// For writing.
    pub fn write(mut self, write: bool) -> Self {
        self.write = write;
        self
    }

    /// For writing at the end only.
    pub fn append(mut self, append: bool) -> Self {
        self.append = append;
        self
    }

    /// The file is emptied. Needs [`Self::write`].
    pub fn truncate(mut self, truncate: bool) -> Self {
        self.truncate = truncate;
        self
    }

    /// The file is made where it is missing. Needs [`Self::write`] or [`Self::append`].
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// The file is made and was not there. Needs [`Self::write`] or [`Self::append`].
    pub fn create_new(mut self, create_new: bool) -> Self {
        self.create_new = create_new;
        self
    }

    /// Permissions of a file that is made, before the umask: 666 unless another is asked for.
    pub fn mode(mut self, permissions: u16) -> Self {
        self.mode = Some(permissions);
        self
    }

    /// Opens the file of a path.
    ///
    /// # Errors
    /// The path leads nowhere or to something that is no regular file, options that do not go
    /// together, or there is no room.
    pub fn open(&self, fs: &FileSystem, path: impl AsRef<Path>) -> Result<File, PathError> {
        let path = path.as_ref();
        self.opened(fs, path).map_err(|cause| PathError::at(path, cause))
    }

    /// Makes a regular file without a name in a directory: no lookup finds it, and it goes when it
    /// is dropped, or at the next opening after a crash, unless it was given a name
    /// ([`File::link`]).
    ///
    /// # Errors
    /// The path leads to no directory, it is not to be opened for writing, or there is no room.
    pub fn open_tmpfile(&self, fs: &FileSystem, dir: impl AsRef<Path>) -> Result<File, PathError> {
        let path = dir.as_ref();
        self.made_tmpfile(fs, path).map_err(|cause| PathError::at(path, cause))
    }

    fn made_tmpfile(&self, fs: &FileSystem, dir: &Path) -> Result<File, Cause> {
        if !self.write {
            return Err(Cause::Invalid("create requires write access"));
        }
        let volume = fs.volume();
        let above = volume.resolve(dir.as_os_str().as_bytes(), Follow::Yes)?;
        let permissions = self.mode.unwrap_or(FILE_PERMISSIONS);
        // It is held from the start.
        let made = volume.engine()?.tmpfile(above.number, permissions, fs.credentials())?;
        Ok(File {
            inner: fs.inner().clone(),
            inode: made.number,
            path: dir.to_owned(),
            reads: self.read,
            writes: true,
            appends: self.append,
            by: *fs.credentials(),
            position: Mutex::new(0),
            errors: Mutex::new(fs.inner().volume().error_sample(made.number)),
        })
    }

    fn opened(&self, fs: &FileSystem, path: &Path) -> Result<File, Cause> {
        let writes = self.write || self.append;
        if !self.read && !writes {
            return Err(Cause::Invalid("neither read nor write access requested"));
        }
        if (self.create || self.create_new) && !writes || self.truncate && !self.write {
            return Err(Cause::Invalid("create and truncate require write access"));
        }
        let volume = fs.volume();
        let inode = self.find_or_make(fs, path)?;
        // From here on the file stays, whatever happens to its names.
        volume.acquire(inode)?;
        let file = File {
            inner: fs.inner().clone(),
            inode,
            path: path.to_owned(),
            reads: self.read,
            writes,
            appends: self.append,
            by: *fs.credentials(),
            position: Mutex::new(0),
            errors: Mutex::new(volume.error_sample(inode)),
        };
        if self.truncate && !self.create_new {
            volume.engine()?.truncate_by(inode, 0, &file.by)?;
        }
        Ok(file)
    }

    fn find_or_make(&self, fs: &FileSystem, path: &Path) -> Result<InodeNo, Cause> {
        let volume = fs.volume();
        if self.create_new {
            let place = path::place(volume, path)?;
            return Ok(self.make(fs, place.dir, place.name)?.number);
        }
        loop {
            match volume.resolve(path.as_os_str().as_bytes(), Follow::Yes) {
                Ok(found) if found.is_dir() => return Err(Cause::IsADirectory),
                Ok(found) if found.file_type() != FileType::Regular => {
                    return Err(Cause::WrongFileType);
                }
                Ok(found) => return Ok(found.number),
                Err(Cause::NotFound) if self.create => {}
                Err(cause) => return Err(cause),
            }
            let place = path::place_through_links(volume, path)?;
            match self.make(fs, place.dir, &place.name) {
                // Another thread was faster.
                Err(Cause::Exists) => {}
                made => return Ok(made?.number),
            }
        }
    }

    fn make(&self, fs: &FileSystem, dir: InodeNo, name: &[u8]) -> Result<LoadedInode, Cause> {
        let permissions = self.mode.unwrap_or(FILE_PERMISSIONS);
        fs.volume().engine()?.create(dir, name, permissions, fs.credentials())
    }
}

/// An open file. It stays readable and writable when its last name is removed; it is deleted when
/// it is dropped then.
///
/// Reading and writing through `&File` move one common position.
#[derive(Debug)]
pub struct File {
    inner: Arc<Inner>,
    inode: InodeNo,
    path: PathBuf,
    reads: bool,
    writes: bool,
    appends: bool,
    by: Credentials,
    position: Mutex<u64>,
    /// Which write errors were reported to this handle.
    errors: Mutex<ErrorSample>,
}

impl File {
    /// Number of the inode.
    pub fn inode(&self) -> InodeNo {
        self.inode
    }

    /// The metadata of the file.
    ///
    /// # Errors
    /// The inode is broken.
    pub fn metadata(&self) -> Result<Metadata, PathError> {
        self.named(self.inner.metadata(self.inode))
    }

    /// Reads bytes from a place on, without moving: how many there were, fewer than asked for only
    /// at the end.
    ///
    /// # Errors
    /// The file was not opened for reading, is broken, or the device failed.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, PathError> {
        self.named(self.get(buffer, offset))
    }

    /// Writes bytes from a place on, without moving: how many were written, at least one.
    ///
    /// # Errors
    /// The file was not opened for writing, there is no room, or the device failed.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, PathError> {
        self.named(self.put(bytes, offset))
    }

    /// Writes all bytes from a place on, without moving.
    ///
    /// # Errors
    /// As [`Self::write_at`]; a part of them may have been written.
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<(), PathError> {
        self.named(self.put_all(bytes, offset))
    }

    /// Makes the file shorter or longer; new bytes are zeros, and a hole.
    ///
    /// # Errors
    /// The file was not opened for writing, or the change failed.
    pub fn set_len(&self, size: u64) -> Result<(), PathError> {
        let set = |()| self.inner.volume().engine()?.truncate_by(self.inode, size, &self.by);
        self.named(self.may_write().and_then(set))
    }

    /// Gives the file another name: its first one where it was made without.
    ///
    /// # Errors
    /// The name is taken, the file's last name was removed, or there is no room.
    pub fn link(&self, name: impl AsRef<Path>) -> Result<(), PathError> {
        let name = name.as_ref();
        let volume = self.inner.volume();
        let linked = path::place(volume, name)
            .and_then(|place| volume.engine()?.link(self.inode, place.dir, place.name));
        linked.map(drop).map_err(|cause| PathError::at(name, cause))
    }

    /// Waits until contents and metadata are on the device. When contents could not be written,
    /// every handle that was open gets the error once.
    ///
    /// # Errors
    /// The device failed, now or before.
    pub fn sync_all(&self) -> Result<(), PathError> {
        self.synced(OpenVolume::fsync_open)
    }

    /// Waits until the contents are on the device, and the metadata that are needed to read them.
    ///
    /// # Errors
    /// The device failed, now or before.
    pub fn sync_data(&self) -> Result<(), PathError> {
        self.synced(OpenVolume::fdatasync_open)
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.writes
    }

    pub(crate) fn allocate(
        &self,
        mode: FallocateMode,
        offset: u64,
        length: u64,
    ) -> Result<(), PathError> {
        let engine = self.may_write().and_then(|()| self.inner.volume().engine());
        let done = engine
            .and_then(|engine| engine.fallocate_by(self.inode, mode, offset, length, &self.by));
        self.named(done)
    }

    pub(crate) fn seek_data(&self, offset: u64) -> Result<Option<u64>, PathError> {
        self.named(self.inner.volume().seek_data(self.inode, offset))
    }

    pub(crate) fn seek_hole(&self, offset: u64) -> Result<Option<u64>, PathError> {
        self.named(self.inner.volume().seek_hole(self.inode, offset))
    }

    fn synced(
        &self,
        sync: impl FnOnce(&OpenVolume, InodeNo, &mut ErrorSample) -> Result<(), Cause>,
    ) -> Result<(), PathError> {
        let mut errors = *self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let synced = sync(self.inner.volume(), self.inode, &mut errors);
        *self.errors.lock().unwrap_or_else(PoisonError::into_inner) = errors;
        self.named(synced)
    }

    fn named<T>(&self, outcome: Result<T, Cause>) -> Result<T, PathError> {
        outcome.map_err(|cause| PathError::at(&self.path, cause))
    }

    fn may_write(&self) -> Result<(), Cause> {
        if self.writes { Ok(()) } else { Err(Cause::Invalid("the file is not open for writing")) }
    }

    fn get(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Cause> {
        if !self.reads {
            return Err(Cause::Invalid("the file is not open for reading"));
        }
        self.inner.volume().read(self.inode, offset, buffer)
    }

    fn put(&self, bytes: &[u8], offset: u64) -> Result<usize, Cause> {
        self.may_write()?;
        self.inner.volume().engine()?.write_by(self.inode, offset, bytes, &self.by)
    }

    pub(crate) fn read_whole(&self) -> Result<Vec<u8>, Cause> {
        let size = self.inner.metadata(self.inode)?.len();
        // A size from the disk is no reason to ask for memory: holes cost nothing there.
        let mut bytes = Vec::new();
        let mut piece = vec![0; size.min(1 << 20) as usize];
        while (bytes.len() as u64) < size {
            let count = self.get(&mut piece, bytes.len() as u64)?;
            if count == 0 {
                break;
            }
            bytes.extend_from_slice(&piece[..count]);
        }
        Ok(bytes)
    }

    pub(crate) fn put_all(&self, mut bytes: &[u8], mut offset: u64) -> Result<(), Cause> {
        while !bytes.is_empty() {
            let count = self.put(bytes, offset)?;
            bytes = &bytes[count..];
            offset += count as u64;
        }
        Ok(())
    }

    /// Moves the position by what `work` did at it.
    fn at_position(
        &self,
        work: impl FnOnce(u64) -> Result<(u64, usize), Cause>,
    ) -> io::Result<usize> {
        // The thread that panicked had not moved it yet.
        let mut position = self.position.lock().unwrap_or_else(PoisonError::into_inner);
        let (from, count) = self.named(work(*position))?;
        *position = from + count as u64;
        Ok(count)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let volume = self.inner.volume();
        if self.writes {
            volume.on_close(self.inode);
        }
        if let Err(error) = volume.release(self.inode, 1) {
            tracing::warn!("{}: {error}", self.path.display());
        }
    }
}

impl Read for &File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.at_position(|at| Ok((at, self.get(buffer, at)?)))
    }
}

impl Write for &File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        self.at_position(|at| {
            if self.appends {
                self.may_write()?;
                return self.inner.volume().engine()?.append_by(self.inode, bytes, &self.by);
            }
            Ok((at, self.put(bytes, at)?))
        })
    }

    /// Nothing waits in this handle.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let mut position = self.position.lock().unwrap_or_else(PoisonError::into_inner);
        let moved = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => position.checked_add_signed(by),
            SeekFrom::End(by) => self.metadata()?.len().checked_add_signed(by),
        };
        let before = || io::Error::new(io::ErrorKind::InvalidInput, "offset before start of file");
        *position = moved.ok_or_else(before)?;
        Ok(*position)
    }
}

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}
