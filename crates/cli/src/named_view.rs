//! An image opened to read its structures as they are stored.

use std::ffi::{OsStr, OsString};
use std::ops::Deref;
use std::path::Path;

use extant::debug::{DebugError, open_metadata_image};
use extant::inspect::{InspectError, RawView, SuperblockChoice};
use extant::rooms::device::{Device, FileDeviceOptions, FileError};
use extant::rooms::offline::OfflineError;
use extant::rooms::ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use extant::rooms::ondisk::{Flaw, FormatError};
use extant::rooms::storage::{Access, DeviceUrl, UrlError, stat_host};

use crate::failure::Failure;
use crate::journal_device::{self, Purpose};

/// The kind of file that is shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Contents {
    Volume,
    /// A file of e2image's own format.
    Metadata,
}

/// A view with the name of its image.
pub(crate) struct NamedView {
    /// As it was named.
    pub(crate) name: OsString,
    view: RawView,
}

impl NamedView {
    /// A view that was made already.
    pub(crate) fn of(name: &OsStr, view: RawView) -> Self {
        Self { name: name.to_owned(), view }
    }

    /// Opens an image and reads its superblock.
    pub(crate) fn open(name: &OsStr, choice: SuperblockChoice) -> Result<Self, Failure> {
        Self::open_as(name, choice, Contents::Volume)
    }

    /// The same of a volume or of a file of e2image.
    pub(crate) fn open_as(
        name: &OsStr,
        choice: SuperblockChoice,
        contents: Contents,
    ) -> Result<Self, Failure> {
        Self::open_or_code(name, choice, contents).map_err(|failed| failed.failure)
    }

    /// The same; a failure has the exit code of dumpe2fs.
    pub(crate) fn open_as_dumpe2fs(
        name: &OsStr,
        choice: SuperblockChoice,
        contents: Contents,
    ) -> Result<Self, Failure> {
        Self::open_or_code(name, choice, contents)
            .map_err(|failed| failed.failure.with_code(failed.code))
    }

    fn open_or_code(
        name: &OsStr,
        choice: SuperblockChoice,
        contents: Contents,
    ) -> Result<Self, NotOpened> {
        let url = DeviceUrl::parse(name, extant::schemes(), stat_host).map_err(of_url)?;
        let device = url.without_superblock().open(Access::ReadOnly, &FileDeviceOptions::new());
        let mut device = device.map_err(of_url)?.device;
        if contents == Contents::Metadata {
            device = open_metadata_image(device).map_err(|error| {
                let code = match error {
                    DebugError::ImageMagic => IMAGE_MAGIC,
                    _ => SHORT_READ,
                };
                NotOpened { failure: Failure::at(name, error), code }
            })?;
        }
        if let (Some(_), Some(block)) = (choice.block, url.superblock) {
            let why = format_args!("sb={block} and -o superblock are mutually exclusive");
            let failure = Failure::usage(format_args!("{}: {why}", name.display()));
            return Err(NotOpened { failure, code: 1 });
        }
        let choice = SuperblockChoice { block: choice.block.or(url.superblock), ..choice };
        let view = RawView::new(device.clone(), choice).map_err(|error| {
            let found = match &error {
                InspectError::Superblock(OfflineError::Format(error))
                | InspectError::Format(error)
                    if choice.block.is_none() =>
                {
                    journal_device::not_a_volume(Path::new(name), &*device, error, Purpose::Reading)
                }
                _ => None,
            };
            let failure = found.unwrap_or_else(|| Failure::at(name, &error));
            NotOpened { failure, code: twin_code(&error, &*device) }
        })?;
        Ok(Self { name: name.to_owned(), view })
    }
}

/// Why an image is not shown, with the exit code of dumpe2fs: the low byte of e2fsprogs' number
/// for the error, or the system's.
struct NotOpened {
    failure: Failure,
    code: u8,
}

fn of_url(error: UrlError) -> NotOpened {
    let code = match &error {
        UrlError::File(FileError::NotADevice { path }) if path.is_dir() => IS_DIRECTORY,
        error => u8::try_from(error.errno()).unwrap_or(1),
    };
    NotOpened { failure: Failure::new(error), code }
}

/// EISDIR of the system.
const IS_DIRECTORY: u8 = 21;
/// A file that is not of e2image.
const IMAGE_MAGIC: u8 = 16;
/// A superblock without the magic number.
const BAD_MAGIC: u8 = 19;
/// A device that ends before the superblock does.
const SHORT_READ: u8 = 36;
/// A block size that is not the one asked for.
const OTHER_BLOCK_SIZE: u8 = 34;
/// A superblock whose figures are not those of a volume.
pub(crate) const CORRUPT_SUPERBLOCK: u8 = 60;
/// A feature that is not known.
pub(crate) const UNSUPPORTED_FEATURE: u8 = 67;
/// A superblock that fails its checksum.
pub(crate) const BAD_CHECKSUM: u8 = 152;

fn twin_code(error: &InspectError, device: &dyn Device) -> u8 {
    let (InspectError::Superblock(OfflineError::Format(error)) | InspectError::Format(error)) =
        error
    else {
        return match error {
            InspectError::NoSuperblock(_) => SHORT_READ,
            InspectError::BlockSize { .. } => OTHER_BLOCK_SIZE,
            error => u8::try_from(error.errno()).unwrap_or(1),
        };
    };
    let end = SUPERBLOCK_OFFSET + size_of::<RawSuperblock>() as u64;
    match error {
        FormatError::NotExt(_) if device.size() < end => SHORT_READ,
        FormatError::NotExt(_) => BAD_MAGIC,
        FormatError::Corrupt { flaw: Flaw::Magic { .. }, .. } => BAD_MAGIC,
        FormatError::Corrupt { flaw: Flaw::Checksum { .. }, .. } => BAD_CHECKSUM,
        FormatError::Corrupt { .. } => CORRUPT_SUPERBLOCK,
        _ => UNSUPPORTED_FEATURE,
    }
}

impl Deref for NamedView {
    type Target = RawView;

    fn deref(&self) -> &RawView {
        &self.view
    }
}
