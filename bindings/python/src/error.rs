//! Errors of the library as Python's `OSError`.

use std::path::PathBuf;

use extant::PathError;
use pyo3::PyErr;
use pyo3::exceptions::{PyOSError, PyValueError};

/// The facts of a failed call that an `OSError` has: `errno`, `strerror` and `filename`.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: i32,
    text: String,
    path: Option<PathBuf>,
}

impl From<PathError> for Failure {
    fn from(error: PathError) -> Self {
        let path = Some(error.path().to_owned());
        Self { errno: error.errno(), text: error.cause().to_string(), path }
    }
}

impl From<extant::Error> for Failure {
    fn from(error: extant::Error) -> Self {
        match error {
            extant::Error::Path(error) => (*error).into(),
            other => Self { errno: other.errno(), text: other.to_string(), path: None },
        }
    }
}

impl From<std::io::Error> for Failure {
    /// Reading, writing and seeking by the traits of `std::io` wrap a [`PathError`].
    fn from(error: std::io::Error) -> Self {
        match error.downcast::<PathError>() {
            Ok(error) => error.into(),
            Err(error) => extant::Error::from(error).into(),
        }
    }
}

macro_rules! through_error {
    ($($error:ty),*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                extant::Error::from(error).into()
            }
        }
    )*};
}

through_error!(
    extant::Cause,
    extant::OpenError,
    extant::UrlError,
    extant::FinishError,
    extant::DeviceError,
    extant::MkfsError,
    extant::ImageError,
    extant::RunError,
    extant::ResizeError,
    extant::source::SourceError,
    extant::rescue::RescueError
);

impl From<Failure> for PyErr {
    /// `OSError` makes the subclass of the number: `FileNotFoundError`, `PermissionError` ...
    fn from(failure: Failure) -> Self {
        let Failure { errno, text, path } = failure;
        match path {
            Some(path) => PyOSError::new_err((errno, text, path.into_os_string())),
            None => PyOSError::new_err((errno, text)),
        }
    }
}

/// The error of a call on something that was closed, as in `io`.
pub(crate) fn closed(what: &str) -> PyErr {
    PyValueError::new_err(format!("I/O operation on closed {what}"))
}
