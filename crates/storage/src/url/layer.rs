//! A layer between the files of a URL and its device.

use std::path::PathBuf;
use std::sync::Arc;

#[cfg(feature = "crypt")]
use crate::crypt::{Limits, Plain};
#[cfg(feature = "crypt")]
use crate::key::KeySource;
use crate::schemes::BackendUrl;

/// A layer between the files and the device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Layer {
    /// `overlay:`, changes that are kept apart from everything below, which is never written.
    Overlay {
        /// The file with the changes; they are dropped in the end if it is not given.
        upper: Option<PathBuf>,
    },
    /// `linear:`, the files' runs joined.
    Linear,
    /// `lvm:`, a logical volume on physical volumes.
    Lvm {
        /// Its volume group; the only one if not given.
        group: Option<String>,
        /// Its name; the only one if not given.
        volume: Option<String>,
    },
    /// `crypt:`, deciphered.
    #[cfg(feature = "crypt")]
    Crypt {
        /// The cipher of a plain device; for LUKS it comes from the header.
        plain: Option<Plain>,
        /// Where its key is.
        key: KeySource,
        /// Whether discards are passed on.
        passes_discards: bool,
        /// The limits of a LUKS header's cost.
        limits: Limits,
    },
    /// A [`Backend`](crate::Backend) replaces the file.
    Backend(Backed),
}

/// A layer that a [`Backend`](crate::Backend) has read. Two are equal where they were named alike.
#[derive(Clone, Debug)]
pub struct Backed {
    pub(super) scheme: &'static str,
    pub(super) name: String,
    /// The options that it took, in the order of their names.
    pub(super) options: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    pub(super) place: Arc<dyn BackendUrl>,
    /// Whether the path of the URL is no path of this machine.
    pub(super) is_remote: bool,
}

impl PartialEq for Backed {
    fn eq(&self, other: &Self) -> bool {
        let named = |backed: &Self| (backed.scheme, backed.name.clone(), backed.options.clone());
        named(self) == named(other)
    }
}

impl Eq for Backed {}

impl Backed {
    /// Where the backend has its bytes.
    pub fn place(&self) -> &dyn BackendUrl {
        &*self.place
    }
}
