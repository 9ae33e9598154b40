//! Errors of an image that is written.

use std::io;

use extant_device::{DeviceError, Operation};

/// The error of an image that is damaged at a cluster or byte of the file.
pub(super) fn damaged_file(at: u64, what: &str) -> DeviceError {
    let text = format!("damaged image: {what} (run qemu-img check)");
    DeviceError::io(Operation::Write, at, 0, io::Error::new(io::ErrorKind::InvalidData, text))
}

/// The error of a file that cannot grow.
pub(super) fn no_space(what: &'static str) -> DeviceError {
    DeviceError::io(Operation::Write, 0, 0, io::Error::new(io::ErrorKind::StorageFull, what))
}
