//! Why a disk image of a virtual machine is not read.

use std::io;

use extant_device::{DeviceError, errno};

/// Why a disk image of a virtual machine is not read.
#[derive(Debug, thiserror::Error)]
pub enum VmImageError {
    /// The file is something else.
    #[error("not a {format} image")]
    OtherFormat {
        /// The format that was meant.
        format: &'static str,
    },
    /// A feature that is not read.
    #[error("not supported: {}", printable(what))]
    Unsupported {
        /// The feature, and what helps.
        what: String,
    },
    /// The metadata are damaged.
    #[error("damaged image: {what}")]
    Damaged {
        /// The damage.
        what: &'static str,
    },
    /// Another file is needed that the user did not allow.
    #[error(
        "needs its {what} '{}': give {option}=yes to open the files that it names",
        printable(name)
    )]
    NeedsFile {
        /// The kind of the file.
        what: &'static str,
        /// Its name, as the image has it.
        name: String,
        /// The option that allows it.
        option: &'static str,
    },
    /// The image has no such snapshot.
    #[error("no snapshot '{}' (known: {})", printable(name), printable(known))]
    NoSnapshot {
        /// Its name or ID.
        name: String,
        /// The names of those that there are.
        known: String,
    },
    /// More files than a chain has, or a circle.
    #[error("more than {limit} backing files, or a circle of them")]
    LongChain {
        /// The limit.
        limit: usize,
    },
    /// The image is only read.
    #[error("{scheme} images are only read: write overlay:{scheme}PATH?upper=FILE to change one")]
    ReadOnly {
        /// The scheme.
        scheme: &'static str,
    },
    /// A sparse image of Android is made, and not changed.
    #[error(
        "a sparse image is not changed in place: make a new one (clone, build -o, mkfs with a size), or \
         write overlay:sparse:PATH?upper=FILE"
    )]
    NotChanged,
    /// The file was not read.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// imago does not read it.
    #[error("{}", printable(&.0.to_string()))]
    Image(#[source] io::Error),
}

impl VmImageError {
    /// The number that a system call returns for it.
    pub fn errno(&self) -> i32 {
        match self {
            Self::OtherFormat { .. } => errno::EINVAL,
            Self::Unsupported { .. } => errno::EOPNOTSUPP,
            Self::Damaged { .. } | Self::LongChain { .. } => errno::EUCLEAN,
            Self::NeedsFile { .. } => errno::EPERM,
            Self::NoSnapshot { .. } => errno::ENOENT,
            Self::ReadOnly { .. } | Self::NotChanged => errno::EROFS,
            Self::Device(error) => error.errno(),
            Self::Image(error) => errno::of_io(error),
        }
    }
}

/// A text with what an image says, for a terminal.
fn printable(text: &str) -> String {
    let shown = |character: char| match character.is_control() {
        true => character.escape_default().to_string(),
        false => character.to_string(),
    };
    text.chars().map(shown).collect()
}
