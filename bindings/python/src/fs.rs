//! File systems by paths.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use extant::{
    DeviceNumber, FileType, Follow, Image, Metadata, OpenOptions, RenameFlags, SetAttributes,
    Timestamp, XattrSet,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::device::FileObject;
use crate::error::{Failure, closed};
use crate::file::File;

/// A mounted-like volume. The class `extant_ext4.FileSystem` has the calls of `os`.
#[pyclass(frozen)]
#[derive(Debug)]
pub(crate) struct FileSystem {
    fs: RwLock<Option<extant::FileSystem>>,
}

/// The fields of `os.stat_result`: mode, inode, links, owner, group, size, times of reading, of the
/// contents' and of the inode's change in nanoseconds, blocks of 512 bytes, major and minor number
/// of a device file.
pub(crate) type StatTuple = (u32, u32, u32, u32, u32, u64, i128, i128, i128, u64, u32, u32);

pub(crate) fn stat_tuple(metadata: &Metadata) -> StatTuple {
    let device = metadata.device().unwrap_or(DeviceNumber { major: 0, minor: 0 });
    (
        metadata.mode().into(),
        metadata.inode().0,
        metadata.links().into(),
        metadata.uid(),
        metadata.gid(),
        metadata.len(),
        nanoseconds(metadata.accessed()),
        nanoseconds(metadata.modified()),
        nanoseconds(metadata.changed()),
        metadata.space().div_ceil(512),
        device.major,
        device.minor,
    )
}

/// Nanoseconds since 1970. Times of inodes end in 2446, past the last one of an `i64`.
fn nanoseconds(time: SystemTime) -> i128 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => after.as_nanos().cast_signed(),
        Err(error) => -error.duration().as_nanos().cast_signed(),
    }
}

/// A time that lies past those of an inode becomes its first or last one when it is stored.
fn timestamp(nanoseconds: i128) -> Timestamp {
    const SECOND: i128 = 1_000_000_000;
    let seconds = nanoseconds.div_euclid(SECOND).clamp(i64::MIN.into(), i64::MAX.into());
    Timestamp::new(seconds as i64, nanoseconds.rem_euclid(SECOND) as u32)
}

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn follow(follow: bool) -> Follow {
    if follow { Follow::Yes } else { Follow::No }
}

fn type_letter(file_type: FileType) -> char {
    match file_type {
        FileType::Regular => 'f',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::CharDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
    }
}

fn permissions(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

impl FileSystem {
    pub(crate) fn new(fs: extant::FileSystem) -> Self {
        Self { fs: RwLock::new(Some(fs)) }
    }

    /// Runs a call on the file system, detached from the interpreter.
    fn run<T: Send, E: Send + Into<Failure>>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&extant::FileSystem) -> Result<T, E> + Send,
    ) -> PyResult<T> {
        let fs = self.fs.read().unwrap_or_else(PoisonError::into_inner).clone();
        let fs = fs.ok_or_else(|| closed("file system"))?;
        // The last handle closes the volume: that is done detached too.
        let outcome = py.detach(move || call(&fs));
        outcome.map_err(|error| PyErr::from(error.into()))
    }
}

#[pymethods]
impl FileSystem {
    /// Opens the volume of a path or device URL.
    #[staticmethod]
    fn open(py: Python<'_>, image: &[u8], write: bool) -> PyResult<Self> {
        let opened = py.detach(|| -> Result<_, Failure> {
            let image = Image::open(OsStr::from_bytes(image))?;
            Ok(if write { image.read_write()? } else { image.read_only()? })
        });
        Ok(Self::new(opened?))
    }

    /// Opens the volume in a seekable binary file object.
    #[staticmethod]
    fn open_object(py: Python<'_>, file: &Bound<'_, PyAny>, write: bool) -> PyResult<Self> {
        let device = Arc::new(FileObject::new(file, write)?);
        let opened = py.detach(|| -> Result<_, Failure> {
            Ok(match write {
                true => extant::FileSystem::on_device(device)?,
                false => extant::FileSystem::on_device_read_only(device)?,
            })
        });
        Ok(Self::new(opened?))
    }

    /// Ends the use of the volume; files that are open keep it open.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let fs = self.fs.write().unwrap_or_else(PoisonError::into_inner).take();
        let closed = py.detach(|| fs.map_or(Ok(()), extant::FileSystem::close));
        closed.map_err(|error| Failure::from(error).into())
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.fs.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Puts all changes on the device.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, extant::FileSystem::sync)
    }

    /// Block size, blocks, free and available blocks, inodes, free inodes.
    fn statvfs(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, u64, u64, u64)> {
        self.run(py, |fs| {
            fs.stat_fs().map(|found| {
                (
                    found.block_size.into(),
                    found.blocks,
                    found.free_blocks,
                    found.available_blocks,
                    found.inodes.into(),
                    found.free_inodes,
                )
            })
        })
    }

    /// Opens a regular file.
    #[expect(clippy::too_many_arguments, reason = "the options of one call")]
    fn open_file(
        &self,
        py: Python<'_>,
        name: &[u8],
        read: bool,
        write: bool,
        append: bool,
        truncate: bool,
        create: bool,
        exclusive: bool,
        mode: u32,
    ) -> PyResult<File> {
        let options = OpenOptions::new().read(read).write(write).append(append);
        let options = options.truncate(truncate).create(create).create_new(exclusive);
        let options = options.mode(permissions(mode));
        self.run(py, |fs| options.open(fs, path(name))).map(File::new)
    }

    /// The whole contents of a file.
    fn read<'py>(&self, py: Python<'py>, name: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.run(py, |fs| fs.read(path(name)))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Name, inode and letter of the type of each entry of a directory.
    fn entries<'py>(
        &self,
        py: Python<'py>,
        name: &[u8],
    ) -> PyResult<Vec<(Bound<'py, PyBytes>, u32, char)>> {
        let found = self.run(py, |fs| {
            let mut found = Vec::new();
            for entry in fs.read_dir(path(name))? {
                let entry = entry?;
                let letter = type_letter(entry.file_type()?);
                found.push((entry.file_name().to_owned().into_vec(), entry.inode().0, letter));
            }
            Ok::<_, extant::PathError>(found)
        })?;
        let named = found.into_iter();
        Ok(named.map(|(name, inode, letter)| (PyBytes::new(py, &name), inode, letter)).collect())
    }

    /// The fields of `os.stat_result`.
    fn stat(&self, py: Python<'_>, name: &[u8], follow: bool) -> PyResult<StatTuple> {
        self.run(py, |fs| {
            let path = path(name);
            let found = if follow { fs.metadata(path) } else { fs.symlink_metadata(path) };
            found.map(|metadata| stat_tuple(&metadata))
        })
    }

    /// Makes a directory.
    fn mkdir(&self, py: Python<'_>, name: &[u8], mode: u32) -> PyResult<()> {
        self.run(py, |fs| fs.create_dir_with(path(name), permissions(mode)))
    }

    /// Removes a name of a file.
    fn unlink(&self, py: Python<'_>, name: &[u8]) -> PyResult<()> {
        self.run(py, |fs| fs.remove_file(path(name)))
    }

    /// Removes an empty directory.
    fn rmdir(&self, py: Python<'_>, name: &[u8]) -> PyResult<()> {
        self.run(py, |fs| fs.remove_dir(path(name)))
    }

    /// Removes a directory and all below it.
    fn rmtree(&self, py: Python<'_>, name: &[u8]) -> PyResult<()> {
        self.run(py, |fs| fs.remove_dir_all(path(name)))
    }

    /// Renames a file; `exclusive`: the new name must be free.
    fn rename(&self, py: Python<'_>, from: &[u8], to: &[u8], exclusive: bool) -> PyResult<()> {
        let flags = if exclusive { RenameFlags::NOREPLACE } else { RenameFlags::empty() };
        self.run(py, |fs| fs.rename_with(path(from), path(to), flags))
    }

    /// Gives a file another name.
    fn link(&self, py: Python<'_>, file: &[u8], name: &[u8]) -> PyResult<()> {
        self.run(py, |fs| fs.hard_link(path(file), path(name)))
    }

    /// Makes a symbolic link.
    fn symlink(&self, py: Python<'_>, target: &[u8], name: &[u8]) -> PyResult<()> {
        self.run(py, |fs| fs.symlink(path(target), path(name)))
    }

    /// The target of a symbolic link.
    fn readlink<'py>(&self, py: Python<'py>, name: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let target = self.run(py, |fs| fs.read_link(path(name)))?;
        Ok(PyBytes::new(py, target.as_os_str().as_bytes()))
    }

    /// Makes a device file, a named pipe or a socket.
    fn mknod(
        &self,
        py: Python<'_>,
        name: &[u8],
        mode: u32,
        major: u32,
        minor: u32,
    ) -> PyResult<()> {
        let file_type = match mode & 0o170_000 {
            0o010_000 => FileType::Fifo,
            0o020_000 => FileType::CharDevice,
            0o060_000 => FileType::BlockDevice,
            0o140_000 => FileType::Socket,
            other => return Err(PyValueError::new_err(format!("invalid file type {other:#o}"))),
        };
        let device = DeviceNumber { major, minor };
        self.run(py, |fs| fs.create_node(path(name), file_type, permissions(mode), device))
    }

    /// Sets what is given: permissions, owner, group, and the times of reading and of change in
    /// nanoseconds.
    #[expect(clippy::too_many_arguments, reason = "the attributes of one call")]
    fn set_attributes(
        &self,
        py: Python<'_>,
        name: &[u8],
        follow_links: bool,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        times: Option<(i128, i128)>,
    ) -> PyResult<()> {
        let set = SetAttributes {
            mode: mode.map(permissions),
            uid,
            gid,
            atime: times.map(|(atime, _)| timestamp(atime)),
            mtime: times.map(|(_, mtime)| timestamp(mtime)),
            ..SetAttributes::default()
        };
        self.run(py, |fs| fs.set_attributes(path(name), follow(follow_links), &set))
    }

    /// Copies contents and permissions of a file.
    fn copy(&self, py: Python<'_>, from: &[u8], to: &[u8]) -> PyResult<u64> {
        self.run(py, |fs| fs.copy(path(from), path(to)))
    }

    /// Cuts or extends a file.
    fn truncate(&self, py: Python<'_>, name: &[u8], size: u64) -> PyResult<()> {
        let options = OpenOptions::new().write(true);
        self.run(py, |fs| options.open(fs, path(name))?.set_len(size))
    }

    /// The names of a file's extended attributes.
    fn listxattr<'py>(&self, py: Python<'py>, name: &[u8]) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let found = self.run(py, |fs| fs.xattrs(path(name)))?;
        Ok(found.iter().map(|found| PyBytes::new(py, &found.name)).collect())
    }

    /// The value of an extended attribute.
    fn getxattr<'py>(
        &self,
        py: Python<'py>,
        name: &[u8],
        attribute: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let value = self.run(py, |fs| fs.xattr(path(name), OsStr::from_bytes(attribute)))?;
        Ok(PyBytes::new(py, &value))
    }

    /// Sets an extended attribute; `flags` are 0, XATTR_CREATE (1) or XATTR_REPLACE (2).
    fn setxattr(
        &self,
        py: Python<'_>,
        name: &[u8],
        attribute: &[u8],
        value: &[u8],
        flags: i32,
    ) -> PyResult<()> {
        let how = match flags {
            0 => XattrSet::Any,
            1 => XattrSet::Create,
            2 => XattrSet::Replace,
            other => return Err(PyValueError::new_err(format!("invalid flags {other}"))),
        };
        self.run(py, |fs| fs.set_xattr(path(name), OsStr::from_bytes(attribute), value, how))
    }

    /// Removes an extended attribute.
    fn removexattr(&self, py: Python<'_>, name: &[u8], attribute: &[u8]) -> PyResult<()> {
        self.run(py, |fs| fs.remove_xattr(path(name), OsStr::from_bytes(attribute)))
    }
}
