//! An image by its name.

use std::ffi::OsStr;

use extant_device::{Direct, FileDeviceOptions};
use extant_engine::VolumeOptions;
use extant_storage::{Access, DeviceUrl, Opened, UrlError, stat_host};

use crate::fs::FileSystem;
use crate::open_error::OpenError;
use crate::schemes::schemes;

/// The name of an image, read: a path of this machine or a device URL (`PATH#p2`,
/// `crypt:PATH?key-file=FILE` ...). It is opened by [`Self::read_only`], [`Self::read_write`] or
/// [`Self::device`].
///
/// ```
/// use extant::{Formatter, FsType, Image};
///
/// let dir = tempfile::tempdir()?;
/// let path = dir.path().join("small.img");
/// Formatter::new().fs_type(FsType::Ext4).create_file(&path, 8 << 20)?;
///
/// let fs = Image::open(&path)?.read_write()?;
/// fs.write("/motd", "welcome\n")?;
/// fs.close()?;
///
/// let fs = Image::open(&path)?.read_only()?;
/// assert_eq!(fs.read_to_string("/motd")?, "welcome\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Image {
    url: DeviceUrl,
    direct: Direct,
}

impl Image {
    /// Reads a name. The file is looked for, to tell a path from a URL, and not opened.
    ///
    /// # Errors
    /// The name is not a URL of a device, or can be read in two ways.
    pub fn open(name: impl AsRef<OsStr>) -> Result<Self, UrlError> {
        Ok(Self {
            url: DeviceUrl::parse(name.as_ref(), schemes(), stat_host)?,
            direct: Direct::Off,
        })
    }

    /// Whether files are opened around the page cache of the host.
    #[must_use]
    pub fn direct(self, direct: Direct) -> Self {
        Self { direct, ..self }
    }

    /// Opens the file system for reading: as [`FileSystem::open_read_only`].
    ///
    /// # Errors
    /// The image is not there, or holds no volume that can be read.
    pub fn read_only(&self) -> Result<FileSystem, OpenError> {
        FileSystem::read_only_url(&self.url, self.direct)
    }

    /// Opens the file system for changes, with exclusive use of the image: as [`FileSystem::open`].
    ///
    /// # Errors
    /// The image is not there or in use, or holds no volume that can be changed.
    pub fn read_write(&self) -> Result<FileSystem, OpenError> {
        self.read_write_with(&VolumeOptions::default())
    }

    /// The same with options for the volume.
    ///
    /// # Errors
    /// As [`Self::read_write`]; options that exclude each other or do not fit the volume.
    pub fn read_write_with(&self, options: &VolumeOptions) -> Result<FileSystem, OpenError> {
        let opened = self.device(Access::ReadWrite)?;
        FileSystem::read_write_on(opened, options, &self.files())
    }

    /// Opens the device alone. [`Opened::finish`] ends its use.
    ///
    /// # Errors
    /// The device is not there, or is in use.
    pub fn device(&self, access: Access) -> Result<Opened, UrlError> {
        self.url.open(access, &self.files())
    }

    fn files(&self) -> FileDeviceOptions {
        FileDeviceOptions::new().direct(self.direct)
    }
}
