//! One error for all calls of the library.

use std::io::{self, ErrorKind};

use extant_check::run::RunError;
use extant_device::{DeviceError, FileError, errno};
use extant_image::build::BuildError;
use extant_image::mkfs::MkfsError;
use extant_image::resize::ResizeError;
use extant_image::source::SourceError;
use extant_image::tune::TuneError;
#[cfg(feature = "mount")]
use extant_mount::MountError;
use extant_reader::Error as Cause;
use extant_storage::{FinishError, UrlError};

use crate::builder::ImageError;
use crate::export::ExportError;
use crate::import::ExtractError;
use crate::inspect::{ExtentsError, InspectError};
#[cfg(feature = "mount")]
use crate::mounter::MounterError;
use crate::open_error::OpenError;
use crate::path_error::{PathError, kind_of};
use crate::rescue::RescueError;

/// Any error of the library: `?` makes it of the error of each call. Its text is that of the call's
/// error.
///
/// ```
/// use extant::{Checker, FileSystem, Formatter, MemoryDevice, Tuner};
/// use std::io::{ErrorKind, Write};
/// use std::sync::Arc;
///
/// fn prepare(device: Arc<MemoryDevice>, feature: &str) -> Result<String, extant::Error> {
///     Formatter::new().format(&*device)?;
///     Tuner::new().feature(feature).apply(device.clone())?;
///     let report = Checker::new().force(true).check(device.clone())?;
///     assert!(report.findings.is_empty());
///     let fs = FileSystem::on_device(device)?;
///     writeln!(fs.create("/motd")?, "welcome")?;
///     let text = fs.read_to_string("/motd")?;
///     fs.close()?;
///     Ok(text)
/// }
///
/// let device = || Arc::new(MemoryDevice::new(8 << 20));
/// assert_eq!(prepare(device(), "quota")?, "welcome\n");
///
/// let error = prepare(device(), "no_such_feature").unwrap_err();
/// assert!(matches!(error, extant::Error::Tune(_)));
/// assert_eq!(error.to_string(), "invalid filesystem option set: no_such_feature");
/// assert_eq!((error.kind(), error.errno()), (ErrorKind::InvalidInput, 22));
/// # Ok::<(), extant::Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call on a path, or on an open file.
    #[error(transparent)]
    Path(Box<PathError>),
    /// A call on a volume.
    #[error(transparent)]
    Volume(Box<Cause>),
    /// A file system that was not opened.
    #[error(transparent)]
    Open(Box<OpenError>),
    /// The name of an image, or the device of that name.
    #[error(transparent)]
    Url(Box<UrlError>),
    /// A device whose use did not end well.
    #[error(transparent)]
    Finish(Box<FinishError>),
    /// A file or block device that was not opened.
    #[error(transparent)]
    File(Box<FileError>),
    /// A request that a device did not carry out.
    #[error(transparent)]
    Device(Box<DeviceError>),
    /// A new file system.
    #[error(transparent)]
    Mkfs(Box<MkfsError>),
    /// A source of an image.
    #[error(transparent)]
    Source(Box<SourceError>),
    /// An image that was not laid out or written.
    #[error(transparent)]
    Build(Box<BuildError>),
    /// An image that was not built, because of its sources or itself.
    #[error(transparent)]
    Image(Box<ImageError>),
    /// A check that could not be made.
    #[error(transparent)]
    Check(Box<RunError>),
    /// A change of features or fields.
    #[error(transparent)]
    Tune(Box<TuneError>),
    /// A change of a volume's size.
    #[error(transparent)]
    Resize(Box<ResizeError>),
    /// An archive that was not written.
    #[error(transparent)]
    Export(Box<ExportError>),
    /// An archive was not unpacked.
    #[error(transparent)]
    Extract(Box<ExtractError>),
    /// The extents of a file.
    #[error(transparent)]
    Extents(Box<ExtentsError>),
    /// The structures of a volume.
    #[error(transparent)]
    Inspect(Box<InspectError>),
    /// A mount that does not do what is asked of it.
    #[cfg(feature = "mount")]
    #[error(transparent)]
    Mount(Box<MountError>),
    /// A volume that was not mounted.
    #[cfg(feature = "mount")]
    #[error(transparent)]
    Mounter(Box<MounterError>),
    /// An error of the system, as reading and writing by the traits of `std::io` gives it.
    #[error(transparent)]
    System(#[from] io::Error),
}

macro_rules! from {
    ($($variant:ident($error:ty))*) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::$variant(Box::new(error))
            }
        }
    )*};
}

from! {
    Path(PathError) Volume(Cause) Open(OpenError) Url(UrlError) Finish(FinishError)
    File(FileError) Device(DeviceError) Mkfs(MkfsError) Source(SourceError) Build(BuildError)
    Image(ImageError) Check(RunError) Tune(TuneError) Resize(ResizeError)
    Export(ExportError) Extract(ExtractError)
    Extents(ExtentsError) Inspect(InspectError)
}
#[cfg(feature = "mount")]
from! { Mount(MountError) Mounter(MounterError) }

impl Error {
    /// The kind of error in std's words.
    pub fn kind(&self) -> ErrorKind {
        self.kind_and_number().0
    }

    /// The number that a system call returns for it (`ENOENT` is 2), for programs in other
    /// languages.
    pub fn errno(&self) -> i32 {
        self.kind_and_number().1
    }

    fn kind_and_number(&self) -> (ErrorKind, i32) {
        match self {
            Self::Path(error) => (error.kind(), error.errno()),
            Self::Volume(cause) => (kind_of(cause), cause.errno().raw_os_error()),
            Self::Open(error) => (error.kind(), error.errno()),
            Self::Url(error) => (error.kind(), error.errno()),
            Self::Finish(error) => (error.kind(), error.errno()),
            Self::File(error) => (error.kind(), error.errno()),
            Self::Device(error) => (error.kind(), error.errno()),
            Self::Mkfs(error) => (error.kind(), error.errno()),
            Self::Source(error) => (error.kind(), error.errno()),
            Self::Build(error) => (error.kind(), error.errno()),
            Self::Image(error) => (error.kind(), error.errno()),
            Self::Check(error) => (error.kind(), error.errno()),
            Self::Tune(error) => (error.kind(), error.errno()),
            Self::Resize(error) => (error.kind(), error.errno()),
            Self::Export(error) => (error.kind(), error.errno()),
            Self::Extract(error) => (error.kind(), error.errno()),
            Self::Extents(error) => (error.kind(), error.errno()),
            Self::Inspect(error) => (error.kind(), error.errno()),
            #[cfg(feature = "mount")]
            Self::Mount(error) => (error.kind(), error.errno()),
            #[cfg(feature = "mount")]
            Self::Mounter(error) => (error.kind(), error.errno()),
            Self::System(error) => (error.kind(), errno::of_io(error)),
        }
    }
}

impl From<RescueError> for Error {
    /// The error of what the search or the salvage needed.
    fn from(error: RescueError) -> Self {
        match error {
            RescueError::Volume(error) => error.into(),
            RescueError::Structures(error) => error.into(),
            RescueError::Journal(error) => Cause::from(error).into(),
            RescueError::Device(error) => error.into(),
            RescueError::Check(error) => Self::Check(error),
            RescueError::JournalDevice(error) => error.into(),
            RescueError::NoRandomness(error) => error.into(),
            error @ RescueError::Memory { .. } => {
                io::Error::new(ErrorKind::OutOfMemory, error.to_string()).into()
            }
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::System(error) => error,
            other => Self::new(other.kind(), other),
        }
    }
}
