//! The schemes of device URLs that other crates add.
//!
//! Layers on files (`overlay:`, `crypt:`, `linear:`, `lvm:`) are part of this crate. A scheme in
//! place of a file is a [`Backend`]: its location and options are read with the URL, its files are
//! opened before the process restricts itself ([`BackendUrl::open`]), and its device is made after
//! that ([`OpenBackend::device`]).

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use extant_device::{FileDevice, FileDeviceOptions};

use crate::opened::Opened;
use crate::url::{UrlError, UrlOptions};

/// The text between the scheme of a [`Backend`] and the options.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Location {
    /// `NAME:PATH`, with a name that the backend knows and a path of this machine.
    NamedFile,
    /// A path of this machine.
    File,
    /// A place that is no path of this machine, perhaps empty.
    Remote,
}

/// A scheme that replaces a file and is the innermost of a URL: `model:NAME:PATH`.
pub trait Backend: fmt::Debug + Send + Sync {
    /// The scheme with its colon.
    fn scheme(&self) -> &'static str;

    /// The text after the scheme.
    fn location(&self) -> Location;

    /// Whether a URL may have this name between the scheme and the path: see
    /// [`Location::NamedFile`].
    fn knows(&self, name: &str) -> bool {
        let _ = name;
        false
    }

    /// The error text for a URL without a known name.
    fn name_is_missing(&self) -> String {
        String::new()
    }

    /// The error text for a URL that has another scheme below this one.
    fn comes_last(&self) -> &'static str;

    /// The options that [`Self::read`] takes, as messages list them.
    fn options(&self) -> &'static str;

    /// Reads the options of a URL with a name that is known, or an empty one. Options that it does
    /// not take belong to another scheme, or are mistakes.
    ///
    /// # Errors
    /// A value that is wrong, in a sentence.
    fn read(&self, name: &str, options: &mut UrlOptions<'_>)
    -> Result<Arc<dyn BackendUrl>, String>;
}

/// The location of a [`Backend`]'s bytes, from one URL.
pub trait BackendUrl: fmt::Debug + Send + Sync {
    /// Whether its device runs on a clock of its own and is used by one thread.
    fn is_simulated(&self) -> bool {
        false
    }

    /// Whether it makes a file that is not there, in the size that the options give.
    fn makes_files(&self) -> bool {
        false
    }

    /// Opens the file at `path` and what belongs to it. Of the contents no more is read than which
    /// other files belong to it. A remote path has the scheme in front.
    ///
    /// # Errors
    /// A file was not opened.
    fn open(
        &self,
        path: &Path,
        options: &FileDeviceOptions,
    ) -> Result<Arc<dyn OpenBackend>, UrlError>;
}

/// The file that a [`BackendUrl`] has opened, with what belongs to it.
pub trait OpenBackend: fmt::Debug + Send + Sync {
    /// The files of this machine: the one that the URL names is the first.
    fn files(&self) -> Vec<Arc<FileDevice>>;

    /// The version of the contents that were opened, where no file has it: an object's.
    fn identity(&self) -> Vec<u8> {
        Vec::new()
    }

    /// The device; called once.
    ///
    /// # Errors
    /// The files do not make one.
    fn device(&self) -> Result<Opened, UrlError>;
}

/// The schemes that URLs may have: those of this crate, and the backends that were added.
#[derive(Clone, Debug)]
pub struct Schemes {
    backends: Vec<Arc<dyn Backend>>,
    left_out: Vec<(&'static str, &'static str)>,
}

impl Schemes {
    /// Layers alone.
    pub(crate) fn of_layers() -> Self {
        Self { backends: Vec::new(), left_out: Vec::new() }
    }

    /// Adds a backend. Its scheme is no other's.
    pub fn add(&mut self, backend: Arc<dyn Backend>) {
        self.backends.push(backend);
    }

    /// Makes a scheme that the build does not have be refused, by the name of the cargo feature
    /// that would add it.
    pub fn leave_out(&mut self, scheme: &'static str, feature: &'static str) {
        self.left_out.push((scheme, feature));
    }

    pub(crate) fn backends(&self) -> impl Iterator<Item = &Arc<dyn Backend>> {
        self.backends.iter()
    }

    /// Refuses a text that begins with a scheme which the build is without.
    pub(crate) fn refuse_left_out(&self, text: &[u8]) -> Result<(), UrlError> {
        let begins = |(scheme, _): &&(&str, &str)| text.starts_with(scheme.as_bytes());
        match self.left_out.iter().find(begins) {
            Some(&(scheme, feature)) => Err(UrlError::LeftOut { scheme, feature }),
            None => Ok(()),
        }
    }
}

#[cfg(all(test, not(feature = "crypt")))]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::url::{DeviceUrl, HostFile};

    #[test]
    fn encrypted_devices_are_refused_by_the_name_of_the_feature_that_is_left_out() {
        let schemes = Schemes::default();
        for name in ["crypt:d.img", "crypt:lvm:a,b?vg=g", "lvm:crypt:d.img", "crypt:"] {
            let read = DeviceUrl::parse(OsStr::new(name), &schemes, |_| HostFile::Device);
            let error = read.expect_err(name).to_string();
            assert_eq!(
                error, "crypt: not included in this build of extant (cargo feature crypt)",
                "{name}"
            );
        }
    }
}
