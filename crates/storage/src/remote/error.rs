//! Why an object of a server is not read.

use std::error::Error;
use std::io;

use extant_device::errno;

/// Why an object of a server is not read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RemoteError {
    /// The object is only read.
    #[error("{scheme} is only read: write overlay:{scheme}...?upper=FILE to change a copy")]
    ReadOnly {
        /// The scheme.
        scheme: &'static str,
    },
    /// The server has no such object.
    #[error("the server has no such object")]
    NotFound,
    /// The credentials in the environment are missing, or do not suffice.
    #[error("access denied by the server (credentials come from the environment)")]
    Denied,
    /// The server gives objects as a whole only.
    #[error("the server does not support range requests")]
    NoRanges,
    /// The object is another one than when it was opened.
    #[error("the object has changed since it was opened")]
    Changed,
    /// Bytes cannot be kept on disk, as it is not known which object they belong to.
    #[error("cache= requires an ETag, which the server does not give")]
    NoTag,
    /// The file of the cache was not opened.
    #[error("cannot open the cache {path}: {error}")]
    Cache {
        /// The file or the directory.
        path: String,
        /// Why not.
        error: String,
    },
    /// The environment, the connection or the server failed.
    #[error("{0}")]
    Failed(String),
}

impl RemoteError {
    /// The number that a system call returns for it.
    pub fn errno(&self) -> i32 {
        match self {
            Self::ReadOnly { .. } => errno::EROFS,
            Self::NotFound => errno::ENOENT,
            Self::Denied => errno::EACCES,
            Self::NoRanges | Self::NoTag => errno::EOPNOTSUPP,
            Self::Changed | Self::Cache { .. } | Self::Failed(_) => errno::EIO,
        }
    }

    /// The error of a request, with the place that it was made to.
    pub(super) fn at(&self, place: &str) -> io::Error {
        io::Error::other(format!("{place}: {self}"))
    }
}

impl From<object_store::Error> for RemoteError {
    fn from(error: object_store::Error) -> Self {
        match error {
            object_store::Error::NotFound { .. } => Self::NotFound,
            object_store::Error::Precondition { .. } => Self::Changed,
            object_store::Error::NotSupported { .. } => Self::NoRanges,
            object_store::Error::PermissionDenied { .. }
            | object_store::Error::Unauthenticated { .. } => Self::Denied,
            error => {
                let text = last_cause(&error);
                match text.contains("non-partial response") {
                    true => Self::NoRanges,
                    false => Self::Failed(without_secrets(&text)),
                }
            }
        }
    }
}

/// The text of the innermost error: those around it repeat it, with the address of the request.
fn last_cause(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

/// The longest text of a server in a message.
const TEXT_MAX: usize = 300;

/// A text of one line without what follows the question mark of a URL, which may be a signature.
fn without_secrets(text: &str) -> String {
    let mut shown = String::new();
    let mut is_query = false;
    for character in text.chars().take(TEXT_MAX) {
        let ends = character.is_whitespace() || matches!(character, '"' | ')' | '\'' | '>');
        is_query = (is_query || character == '?') && !ends;
        match character {
            _ if is_query => {}
            character if character.is_control() => shown.push(' '),
            character => shown.push(character),
        }
    }
    shown.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_and_lines_of_servers_are_not_shown() {
        let shown = without_secrets("GET (http://h/c/k?sig=SECRET&sv=1) failed:\n\tno\u{1b}[2J");
        assert_eq!(shown, "GET (http://h/c/k) failed:  no [2J");
        assert_eq!(without_secrets(&"x".repeat(5000)).len(), TEXT_MAX);
    }
}
