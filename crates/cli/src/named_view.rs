//! An image opened to read its structures as they are stored.

use std::ffi::{OsStr, OsString};
use std::ops::Deref;
use std::path::Path;

use extant::inspect::{InspectError, RawView, SuperblockChoice};
use extant::rooms::offline::OfflineError;
use extant::rooms::ondisk::FormatError;
use extant::rooms::storage::{DeviceUrl, stat_host};

use crate::failure::Failure;
use crate::image_path::open_for_reading;
use crate::journal_device;

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
        let url = DeviceUrl::parse(name, extant::schemes(), stat_host).map_err(Failure::new)?;
        let device = open_for_reading(&url)?;
        let view = RawView::new(device.clone(), choice).map_err(|error| {
            let other = match error {
                InspectError::Superblock(OfflineError::Format(FormatError::NotExt(_)))
                | InspectError::Format(FormatError::NotExt(_)) => {
                    journal_device::other_content(Path::new(name), &*device)
                }
                _ => None,
            };
            other.unwrap_or_else(|| Failure::at(name, &error))
        })?;
        Ok(Self { name: name.to_owned(), view })
    }
}

impl Deref for NamedView {
    type Target = RawView;

    fn deref(&self) -> &RawView {
        &self.view
    }
}
