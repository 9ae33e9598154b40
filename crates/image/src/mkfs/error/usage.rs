//! Command lines that cannot be read.

use std::ffi::OsString;

/// A command line of mke2fs that cannot be read.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum UsageError {
    /// A letter that is not an option; `-` for an unknown long option.
    #[error("invalid option -- '{0}'")]
    UnknownOption(char),
    /// An option at the end of the line without its argument.
    #[error("option requires an argument -- '{0}'")]
    MissingArgument(char),
    /// `-e` with an unknown behavior.
    #[error("bad error behavior - {0}")]
    ErrorBehavior(String),
    /// The line names no device.
    #[error("a device or file is needed")]
    NoDevice,
    /// An operand after device and size.
    #[error("unexpected argument {0:?}")]
    Surplus(OsString),
}
