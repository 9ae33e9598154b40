//! `qcow2:`, `vmdk:`, `vhd:`, `vhdx:` and `sparse:`: disk images of virtual machines and phones,
//! only read. imago reads qcow2 and flat extents of VMDK; the rest is read here.
//!
//! An image may name other files: a backing file, a file with its data, extents. None of them is
//! opened unless the user says so, since the image may come from a stranger and name any file of
//! the machine. What is needed to know their names is read here; everything else is imago's.
//! A panic of imago is an error of the request.

mod android;
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

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extant_device::{Device, FileDevice, FileDeviceOptions};

use crate::opened::Opened;
use crate::schemes::{Backend, BackendUrl, Location, OpenBackend};
use crate::url::{UrlError, UrlOptions};
use device::VmDevice;
use error::VmImageError;
use files::{Allowed, NamedFile, Role};

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

impl BackendUrl for ImageUrl {
    fn open(
        &self,
        path: &Path,
        options: &FileDeviceOptions,
    ) -> Result<Arc<dyn OpenBackend>, UrlError> {
        let failed = |error| UrlError::VmImage { path: path.to_owned(), error };
        if options.writes() {
            return Err(failed(VmImageError::ReadOnly { scheme: self.format.scheme() }));
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
        Ok(Arc::new(OpenImage { format: self.format, path, files, snapshot }))
    }
}

impl OpenBackend for OpenImage {
    fn files(&self) -> Vec<Arc<FileDevice>> {
        self.files.iter().map(|named| named.file.clone()).collect()
    }

    fn device(&self) -> Result<Opened, UrlError> {
        let failed = |error| UrlError::VmImage { path: self.path.clone(), error };
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
