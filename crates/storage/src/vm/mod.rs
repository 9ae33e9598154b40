//! `qcow2:`, `vmdk:`, `vhd:`, `vhdx:` and `sparse:`: disk images of virtual machines and phones.
//! imago reads qcow2 and flat extents of VMDK; the rest is read here. qcow2 images are written
//! ([`mod@write`]), and new sparse images are made; the others are only read.
//!
//! An image may name other files: a backing file, a file with its data, extents. None of them is
//! opened unless the user says so, since the image may come from a stranger and name any file of
//! the machine. What is needed to know their names is read here; everything else is imago's.
//! A panic of imago is an error of the request.

mod android;
mod android_write;
mod clusters;
mod device;
pub(crate) mod error;
mod files;
mod mapped;
mod qcow2;
mod sparse;
mod vhd;
mod vhdx;
mod vmdk;
mod write;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extant_device::{Device, Direct, FileDevice, FileDeviceOptions};

use crate::opened::Opened;
use crate::schemes::{Backend, BackendUrl, Location, OpenBackend};
use crate::url::{UrlError, UrlOptions};
use device::VmDevice;
use error::VmImageError;
use files::{Allowed, NamedFile, Role};

pub use write::open_qcow2_on;

/// A format.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Format {
    Qcow2,
    Vmdk,
    Vhd,
    Vhdx,
    /// The sparse images of Android.
    Sparse,
}

impl Format {
    pub(crate) const ALL: [Self; 5] =
        [Self::Qcow2, Self::Vmdk, Self::Vhd, Self::Vhdx, Self::Sparse];
}

#[derive(Debug)]
struct ImageUrl {
    format: Format,
    allowed: Allowed,
    /// The name or ID of an internal snapshot.
    snapshot: Option<String>,
}

/// An image with the files that belong to it, opened.
#[derive(Debug)]
struct OpenImage {
    format: Format,
    path: PathBuf,
    /// The image, its backing files from the first to the innermost one, or its extents.
    files: Vec<NamedFile>,
    snapshot: Option<String>,
    /// Whether the image is written.
    writes: bool,
}

/// A sparse image that is made.
#[derive(Debug)]
struct NewImage(Opened);

impl OpenBackend for NewImage {
    fn files(&self) -> Vec<Arc<FileDevice>> {
        Vec::new()
    }

    fn device(&self) -> Result<Opened, UrlError> {
        Ok(self.0.clone())
    }
}

impl Backend for Format {
    fn scheme(&self) -> &'static str {
        match self {
            Self::Qcow2 => "qcow2:",
            Self::Vmdk => "vmdk:",
            Self::Vhd => "vhd:",
            Self::Vhdx => "vhdx:",
            Self::Sparse => "sparse:",
        }
    }

    fn location(&self) -> Location {
        Location::File
    }

    fn comes_last(&self) -> &'static str {
        match self {
            Self::Qcow2 => "qcow2: must be the innermost layer (for example crypt:qcow2:A)",
            Self::Vmdk => "vmdk: must be the innermost layer (for example crypt:vmdk:A)",
            Self::Vhd => "vhd: must be the innermost layer (for example crypt:vhd:A)",
            Self::Vhdx => "vhdx: must be the innermost layer (for example crypt:vhdx:A)",
            Self::Sparse => "sparse: must be the innermost layer (for example crypt:sparse:A)",
        }
    }

    fn options(&self) -> &'static str {
        match self {
            Self::Qcow2 => "backing=yes, data-file=yes, snapshot=NAME",
            Self::Vmdk => "extents=yes",
            Self::Vhd | Self::Vhdx | Self::Sparse => "",
        }
    }

    fn read(&self, _: &str, options: &mut UrlOptions<'_>) -> Result<Arc<dyn BackendUrl>, String> {
        let mut allowed = Allowed::default();
        let mut snapshot = None;
        match self {
            Self::Qcow2 => {
                allowed.backing = options.yes_or_no("backing")?;
                allowed.data_file = options.yes_or_no("data-file")?;
                snapshot = options.text("snapshot")?.map(str::to_owned);
            }
            Self::Vmdk => allowed.extents = options.yes_or_no("extents")?,
            Self::Vhd | Self::Vhdx | Self::Sparse => {}
        }
        Ok(Arc::new(ImageUrl { format: *self, allowed, snapshot }))
    }
}

impl ImageUrl {
    /// Opens an image to be written, or makes it.
    fn open_to_write(
        &self,
        path: &Path,
        options: &FileDeviceOptions,
    ) -> Result<Arc<dyn OpenBackend>, UrlError> {
        let failed = |error| UrlError::VmImage { path: path.to_owned(), error };
        let size = options.new_size().filter(|_| options.makes() && !path.exists());
        let options = options.clone().without_changes();
        if self.format == Format::Sparse {
            let error = VmImageError::NotChanged;
            let size = size.ok_or(error).map_err(failed)?;
            return Ok(Arc::new(NewImage(android_write::create(path, size).map_err(failed)?)));
        }
        if self.format != Format::Qcow2 {
            return Err(failed(VmImageError::ReadOnly { scheme: self.format.scheme() }));
        }
        if self.snapshot.is_some() {
            return Err(failed(VmImageError::Unsupported {
                what: "writing a snapshot".to_owned(),
            }));
        }
        // The file grows, and its writes are short.
        let options = options.direct(Direct::Off).locks_for_qemu(true);
        let file = Arc::new(match size {
            Some(_) => options.clone().create_new(true).open(path)?,
            None => options.open(path)?,
        });
        if let Some(size) = size {
            write::create(file.clone(), size).map_err(failed)?;
        }
        // The backing files stay as they are.
        let below = options.write(false).locks_for_qemu(false).shared_lock(true);
        let open = |path: &Path| Ok(Arc::new(below.open(path)?));
        let files = qcow2::open_chain(path, file, self.allowed, &open)?;
        let (path, format) = (path.to_owned(), self.format);
        Ok(Arc::new(OpenImage { format, path, files, snapshot: None, writes: true }))
    }
}

impl BackendUrl for ImageUrl {
    fn makes_files(&self) -> bool {
        matches!(self.format, Format::Qcow2 | Format::Sparse)
    }

    fn open(
        &self,
        path: &Path,
        options: &FileDeviceOptions,
    ) -> Result<Arc<dyn OpenBackend>, UrlError> {
        if options.writes() {
            return self.open_to_write(path, options);
        }
        let file = Arc::new(options.open(path)?);
        let open = |path: &Path| Ok(Arc::new(options.open(path)?));
        let files = match self.format {
            Format::Qcow2 => qcow2::open_chain(path, file, self.allowed, &open),
            Format::Vmdk => vmdk::open_extents(path, file, self.allowed, &open),
            Format::Vhd | Format::Vhdx | Format::Sparse => {
                Ok(vec![NamedFile { path: path.to_owned(), file, role: Role::Alone }])
            }
        }?;
        let (path, snapshot) = (path.to_owned(), self.snapshot.clone());
        Ok(Arc::new(OpenImage { format: self.format, path, files, snapshot, writes: false }))
    }
}

impl OpenBackend for OpenImage {
    fn files(&self) -> Vec<Arc<FileDevice>> {
        self.files.iter().map(|named| named.file.clone()).collect()
    }

    fn device(&self) -> Result<Opened, UrlError> {
        let failed = |error| UrlError::VmImage { path: self.path.clone(), error };
        if self.writes {
            return Ok(Opened::real(write::open(&self.files).map_err(failed)?));
        }
        let is_sparse = |named: &&NamedFile| named.role == Role::Sparse;
        let sparse = self.files.iter().filter(is_sparse).map(|named| named.file.clone() as _);
        let sparse: Vec<Arc<dyn Device>> = sparse.collect();
        if !sparse.is_empty() {
            return Ok(Opened::real(sparse::joined(sparse).map_err(failed)?));
        }
        let is_ours = self.format == Format::Qcow2
            && (self.snapshot.is_some() || qcow2::is_ours(&self.files).map_err(failed)?);
        if is_ours {
            let opened = clusters::open(&self.files, self.snapshot.as_deref());
            return Ok(Opened::real(opened.map_err(failed)?));
        }
        let file = || self.files[0].file.clone();
        let opened = match self.format {
            Format::Qcow2 => device::caught(|| qcow2::open(&self.files)),
            Format::Vmdk => device::caught(|| vmdk::open(&self.files)),
            Format::Vhd => return Ok(Opened::real(vhd::open(file()).map_err(failed)?)),
            Format::Vhdx => return Ok(Opened::real(vhdx::open(file()).map_err(failed)?)),
            Format::Sparse => return Ok(Opened::real(android::open(file()).map_err(failed)?)),
        };
        let image = opened.map_err(|error| failed(VmImageError::Image(error)))?;
        Ok(Opened::real(Arc::new(VmDevice::new(image, self.files()))))
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.scheme().trim_end_matches(':'))
    }
}
