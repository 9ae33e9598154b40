//! The native part of the Python package `extant_ext4`: `extant_ext4._native`.
//!
//! Names are bytes here, as on the volume; the package's own modules, in `python/`, turn them into
//! `str` and `os.PathLike` and give files the classes of `io`. Every call of the library runs
//! without the interpreter's lock, so that Python's threads work on one volume at once.
#![forbid(unsafe_code)]

mod device;
mod error;
mod file;
mod findings;
mod fs;
mod image;
mod rescue;
mod target;

use pyo3::prelude::*;

/// The native part of extant_ext4.
#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use super::file::File;
    #[pymodule_export]
    use super::fs::FileSystem;
    #[pymodule_export]
    use super::image::{build, check, minimum_size, mkfs, resize};
    #[pymodule_export]
    use super::rescue::{DeletedFiles, Salvage, history, timeline};

    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
