//! Devices that a name leads to: of an image, and of a journal that is not inside its volume.

use std::ffi::OsStr;
use std::sync::Arc;

use extant_device::{Device, Direct};
use extant_reader::{ExternalJournal, NotOpened};
use extant_storage::{Access, DeviceUrl, Opened, stat_host};

use crate::open_error::OpenError;
use crate::schemes::schemes;

/// Opens the device that a path or device URL names, for reading and, if so asked, for writing;
/// then exclusively. [`Opened::finish`] ends its use.
///
/// # Errors
/// The device is not there or in use.
pub fn open_device(
    image: impl AsRef<OsStr>,
    write: bool,
    direct: Direct,
) -> Result<Opened, OpenError> {
    let access = if write { Access::ReadWrite } else { Access::ReadOnly };
    let options = extant_device::FileDeviceOptions::default().direct(direct);
    Ok(DeviceUrl::parse(image.as_ref(), schemes(), stat_host)?.open(access, &options)?)
}

/// The device of a journal that is not inside the volume, opened; `None` where it is not found.
pub(crate) fn journal_device(
    journal: Option<ExternalJournal>,
    options: &extant_device::FileDeviceOptions,
) -> Result<Option<Arc<dyn Device>>, OpenError> {
    let found = journal.map(|journal| journal.open(options)).transpose();
    let found = found.map_err(|error| match error {
        NotOpened::Journal(error) => OpenError::Volume(error.into()),
        NotOpened::File(error) => OpenError::Device(error.into()),
    })?;
    let found = found.flatten();
    Ok(found.map(|device| device as Arc<dyn Device>))
}
