//! Files of this machine that a command writes.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

use crate::failure::{At, Failure};

/// A file to be written: under another name until it is whole, so that a failure leaves no half file. What is no regular
/// file (a pipe, a tape) is written as it is.
pub(crate) struct Target {
    /// What is written to.
    pub(crate) file: File,
    /// The name until then, and the one it gets.
    rename: Option<(PathBuf, PathBuf)>,
}

impl Target {
    /// Begins it. A failure names the file asked for, not the one beside it.
    pub(crate) fn create(output: &Path) -> Result<Self, Failure> {
        let is_special = output.metadata().is_ok_and(|metadata| !metadata.is_file());
        if is_special {
            let file = File::options().write(true).open(output).at(output)?;
            return Ok(Self { file, rename: None });
        }
        let mut name = OsString::from(".");
        name.push(output.file_name().ok_or_else(|| Failure::at(output, "not the name of a file"))?);
        name.push(format!(".{}", std::process::id()));
        let partial = output.with_file_name(name);
        let file = File::options().write(true).create_new(true).open(&partial).at(output)?;
        Ok(Self { file, rename: Some((partial, output.to_owned())) })
    }

    /// The file is whole.
    pub(crate) fn keep(mut self) -> Result<(), Failure> {
        if let Some((partial, output)) = self.rename.take() {
            std::fs::rename(&partial, &output).at(&output)?;
        }
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some((partial, _)) = &self.rename {
            // Nothing better than to leave it, if even this fails.
            let _ = std::fs::remove_file(partial);
        }
    }
}
