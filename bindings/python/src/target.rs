//! Images as arguments.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::device::FileObject;

/// The operand of a call on a whole image: a path or device URL, or a file object.
pub(crate) enum Target {
    Named(OsString),
    Object(Arc<FileObject>),
}

impl Target {
    pub(crate) fn of(image: &Bound<'_, PyAny>, write: bool) -> PyResult<Self> {
        match image.cast::<PyBytes>() {
            Ok(name) => Ok(Self::Named(OsStr::from_bytes(name.as_bytes()).to_owned())),
            Err(_) => Ok(Self::Object(Arc::new(FileObject::new(image, write)?))),
        }
    }
}
