//! Names: lookup, creation, removal.

use extant_engine::{ErrorSample, RenameFlags};
use extant_ondisk::InodeNo;
use extant_ondisk::inode::{DeviceNumber, FileType, PERMISSION_MASK};
use extant_reader::{Error, VolumeRead};
use rustix::io::Errno;

use super::{Cached, Caller, LookedUp, OpenFor, RequestError, Server, attributes_of};

impl Server {
    /// Looks up a name and takes a lookup count on its file; `None` if the name does not exist. The
    /// name `.` finds any file itself, which is how one is opened by its number.
    ///
    /// # Errors
    /// ESTALE for a number without a file; the directory or the file is broken, or the device
    /// failed.
    pub fn lookup(&self, dir: InodeNo, name: &[u8]) -> Result<Option<LookedUp>, Errno> {
        if name == b"." {
            return self.with(|volume| match Self::look_up(volume, dir) {
                Err(RequestError::Volume(Error::FreeInode(_) | Error::NoSuchInode(_))) => {
                    Err(Errno::STALE.into())
                }
                held => held.map(Some),
            });
        }
        self.with(|volume| match volume.lookup(dir, name) {
            Ok(found) => Self::look_up(volume, found.inode).map(Some),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error.into()),
        })
    }

    /// Makes a file of any kind but a symbolic link, and takes hold of it. `mode` has the type too.
    ///
    /// # Errors
    /// As the calls of [`Engine`](extant_engine::Engine).
    pub fn make(
        &self,
        dir: InodeNo,
        name: &[u8],
        (mode, umask): (u32, u32),
        device: (u32, u32),
        by: Caller,
    ) -> Result<LookedUp, Errno> {
        let credentials = self.credentials(by, (umask & 0o777) as u16);
        // Sixteen bits are a mode.
        let mode = (mode & 0xffff) as u16;
        let device = DeviceNumber { major: device.0, minor: device.1 };
        self.with_names(&[dir], |volume| {
            let made = match FileType::of_mode(mode) {
                Some(FileType::Regular) => {
                    volume.engine()?.create(dir, name, mode & PERMISSION_MASK, &credentials)
                }
                Some(FileType::Directory) => {
                    volume.engine()?.mkdir(dir, name, mode & PERMISSION_MASK, &credentials)
                }
                _ => volume.engine()?.mknod(dir, name, mode, device, &credentials),
            }?;
            Self::look_up(volume, made.number)
        })
    }

    /// Makes a regular file, takes a lookup count on it and opens it: one look-up of the inode for
    /// all of it.
    ///
    /// # Errors
    /// As [`Engine::create`](extant_engine::Engine::create).
    pub(crate) fn create(
        &self,
        dir: InodeNo,
        name: &[u8],
        (mode, umask): (u32, u32),
        flags: OpenFor,
        by: Caller,
    ) -> Result<(LookedUp, Cached, ErrorSample), Errno> {
        let credentials = self.credentials(by, (umask & 0o777) as u16);
        let permissions = (mode & 0xffff) as u16 & PERMISSION_MASK;
        self.with_names(&[dir], |volume| {
            let made = volume.engine()?.create(dir, name, permissions, &credentials)?;
            let loaded = volume.acquire(made.number)?;
            let cached = self.cached(volume, &loaded, flags);
            let attributes = attributes_of(volume, &loaded);
            Ok((LookedUp { attributes }, cached, volume.error_sample(made.number)))
        })
    }

    /// Makes a regular file without a name (O_TMPFILE), held once.
    ///
    /// # Errors
    /// As [`Engine::tmpfile`](extant_engine::Engine::tmpfile).
    pub fn make_tmpfile(
        &self,
        dir: InodeNo,
        (mode, umask): (u32, u32),
        by: Caller,
    ) -> Result<LookedUp, Errno> {
        let credentials = self.credentials(by, (umask & 0o777) as u16);
        let permissions = (mode & 0xffff) as u16 & PERMISSION_MASK;
        self.with(|volume| {
            let made = volume.engine()?.tmpfile(dir, permissions, &credentials)?;
            Ok(LookedUp { attributes: attributes_of(volume, &made) })
        })
    }

    /// Makes a symbolic link and takes hold of it.
    ///
    /// # Errors
    /// As [`Engine::symlink`](extant_engine::Engine::symlink).
    pub fn symlink(
        &self,
        dir: InodeNo,
        name: &[u8],
        target: &[u8],
        by: Caller,
    ) -> Result<LookedUp, Errno> {
        let credentials = self.credentials(by, 0);
        self.with_names(&[dir], |volume| {
            let made = volume.engine()?.symlink(dir, name, target, &credentials)?;
            Self::look_up(volume, made.number)
        })
    }

    /// Gives a file another name, and takes one more lookup count on it.
    ///
    /// # Errors
    /// As [`Engine::link`](extant_engine::Engine::link).
    pub fn link(&self, file: InodeNo, dir: InodeNo, name: &[u8]) -> Result<LookedUp, Errno> {
        self.with_names(&[dir], |volume| {
            let linked = volume.engine()?.link(file, dir, name)?;
            Self::look_up(volume, linked.number)
        })
    }

    /// Removes a name of a file other than a directory.
    ///
    /// # Errors
    /// As [`Engine::unlink`](extant_engine::Engine::unlink).
    pub fn unlink(&self, dir: InodeNo, name: &[u8]) -> Result<(), Errno> {
        self.with_names(&[dir], |volume| Ok(volume.engine()?.unlink(dir, name)?))
    }

    /// Takes an empty directory away.
    ///
    /// # Errors
    /// As [`Engine::rmdir`](extant_engine::Engine::rmdir).
    pub fn rmdir(&self, dir: InodeNo, name: &[u8]) -> Result<(), Errno> {
        self.with_names(&[dir], |volume| Ok(volume.engine()?.rmdir(dir, name)?))
    }

    /// Gives a file a name in place of another. `flags` are those of `renameat2`; `by` owns the
    /// whiteout that it leaves.
    ///
    /// # Errors
    /// EINVAL for flags that are not known, and as
    /// [`Engine::rename`](extant_engine::Engine::rename).
    pub fn rename(
        &self,
        (dir, name): (InodeNo, &[u8]),
        (to_dir, to_name): (InodeNo, &[u8]),
        (flags, by): (u32, Caller),
    ) -> Result<(), Errno> {
        let flags = RenameFlags::from_bits(flags).ok_or(Errno::INVAL)?;
        let credentials = self.credentials(by, 0);
        self.with_names(&[dir, to_dir], |volume| {
            Ok(volume.engine()?.rename_by((dir, name), (to_dir, to_name), flags, &credentials)?)
        })
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// As [`VolumeRead::read_link`].
    pub fn read_link(&self, link: InodeNo) -> Result<Vec<u8>, Errno> {
        self.with(|volume| {
            let target = volume.read_link(link)?;
            self.touch(volume, link);
            Ok(target)
        })
    }
}
