//! An image opened to read its structures as they are stored.

use std::ffi::{OsStr, OsString};
use std::ops::Deref;
use std::path::Path;

use extant::inspect::{InspectError, RawView, SuperblockChoice};
use extant::rooms::offline::OfflineError;
use extant::rooms::storage::{DeviceUrl, stat_host};

use crate::failure::Failure;
use crate::image_path::open_for_reading;
use crate::journal_device::{self, Purpose};

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
        if let (Some(_), Some(block)) = (choice.block, url.superblock) {
            let why = format_args!("sb={block} and -o superblock are mutually exclusive");
            return Err(Failure::usage(format_args!("{}: {why}", name.display())));
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
            found.unwrap_or_else(|| Failure::at(name, &error))
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
