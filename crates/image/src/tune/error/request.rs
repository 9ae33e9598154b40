//! Options of tune2fs that are invalid whatever the volume.

use std::ffi::OsString;

use crate::mkfs::ValueError;

/// An option that is invalid whatever the volume. Texts are as they were given.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RequestError {
    /// A value that the option does not take.
    #[error("bad {what} - {text}")]
    Value {
        /// The option in tune2fs's words.
        what: &'static str,
        /// The value.
        text: String,
    },
    /// A value that must be UTF-8.
    #[error("-{letter}: {value:?} is not text")]
    NotText {
        /// The option.
        letter: char,
        /// Its value.
        value: OsString,
    },
    /// `-I`.
    #[error("Inode size must be a power of two - {0}")]
    InodeSize(String),
    /// `-T`.
    #[error("Couldn't parse date/time specifier: {0}")]
    Time(String),
    /// `-E`.
    #[error("-E {item}: {problem}")]
    Extended {
        /// The item of the list.
        item: String,
        /// The mistake in it.
        problem: ExtendedError,
    },
    /// `-E clear_mmp` without `-f`.
    #[error("Error in using clear_mmp. It must be used with -f")]
    ClearMmpWithoutForce,
    /// `-E encoding_flags=` without `encoding=`.
    #[error("error: An encoding must be explicitly specified when passing encoding-flags")]
    EncodingFlagsAlone,
    /// `-E orphan_file_size=`.
    #[error("Invalid size of orphan file {0}")]
    OrphanFileSize(String),
    /// `-J location=`.
    #[error("invalid journal location: {0}")]
    JournalLocation(String),
    /// `-o`.
    #[error("Invalid mount option set: {0}")]
    MountOptions(String),
    /// `-Q`.
    #[error(
        "Bad quota options specified: {0} (usrquota, grpquota and prjquota are known, with ^ to clear)"
    )]
    Quota(String),
    /// `-O none`.
    #[error("-O none: features are cleared by name")]
    ClearAll,
    /// `-g` or `-u` with a number that its field of 16 bits cannot hold.
    #[error("{0} is above 65535")]
    Id(u32),
}

/// A mistake in an item of `-E`.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ExtendedError {
    /// Not an option of tune2fs.
    #[error("no such extended option")]
    Unknown,
    /// It has no value.
    #[error("an argument is needed")]
    NoArgument,
    /// Its value is not a number.
    #[error("not a number")]
    NotANumber,
    /// Its value does not fit its field.
    #[error("out of range")]
    OutOfRange,
    /// The number of seconds between two updates of the MMP block.
    #[error("{0}")]
    MmpInterval(&'static str),
    /// The name of a hash.
    #[error("Invalid hash algorithm")]
    HashAlgorithm,
    /// Mount options that are longer than their field.
    #[error("Extended mount options too long")]
    MountOptions,
    /// A value as mkfs takes it.
    #[error(transparent)]
    Value(#[from] ValueError),
}
