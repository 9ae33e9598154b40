//! An image opened for a look at its structures as they are stored.

use std::ffi::{OsStr, OsString};
use std::ops::Deref;

use extant::inspect::{RawView, SuperblockChoice};
use extant::rooms::storage::{DeviceUrl, stat_host};

use crate::failure::{At, Failure};
use crate::inside::open_for_reading;

/// A view with the name of its image.
pub(crate) struct Survey {
    /// As it was named.
    pub(crate) name: OsString,
    view: RawView,
}

impl Survey {
    /// Opens an image and reads its superblock.
    pub(crate) fn open(name: &OsStr, choice: SuperblockChoice) -> Result<Self, Failure> {
        let url = DeviceUrl::parse(name, extant::schemes(), stat_host).map_err(Failure::new)?;
        let view = RawView::new(open_for_reading(&url)?, choice).at(name)?;
        Ok(Self { name: name.to_owned(), view })
    }
}

impl Deref for Survey {
    type Target = RawView;

    fn deref(&self) -> &RawView {
        &self.view
    }
}
