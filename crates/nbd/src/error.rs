//! Why a server is not used.

use std::io;

use extant_device::errno;

/// A server that was not reached, or does not have what is asked for.
#[derive(Debug, thiserror::Error)]
pub enum NbdError {
    /// The connection was not made, or was lost.
    #[error("{0}")]
    Io(#[source] io::Error),
    /// The other side does not speak the protocol.
    #[error("invalid reply of the NBD server: {what}")]
    Protocol {
        /// The mistake.
        what: String,
    },
    /// The server is too old.
    #[error("the NBD server has the oldstyle handshake, which is not supported")]
    OldStyle,
    /// The server talks over TLS only.
    #[error("the NBD server requires TLS (use nbds:// or nbds+unix:///)")]
    Tls,
    /// The server has no TLS.
    #[error("the NBD server does not support TLS")]
    NoTls,
    /// A certificate was not read, or is of no use.
    #[error("TLS: {what}")]
    Certificate {
        /// The mistake.
        what: String,
    },
    /// The server has no such export.
    #[error("the NBD server has no export '{name}'{}", with_message(message))]
    NoExport {
        /// The name.
        name: String,
        /// The message of the server, perhaps empty.
        message: String,
    },
    /// The server refuses.
    #[error("refused by the NBD server (error {number:#x}){}", with_message(message))]
    Refused {
        /// The number of the protocol's error.
        number: u32,
        /// The message of the server, perhaps empty.
        message: String,
    },
    /// The export is read-only and was to be written.
    #[error("the NBD export is read-only")]
    ReadOnly,
}

fn with_message(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

impl NbdError {
    /// The number that a system call returns for it.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Io(error) => errno::of_io(error),
            Self::Protocol { .. } => errno::EIO,
            Self::OldStyle | Self::Tls | Self::NoTls => errno::EOPNOTSUPP,
            Self::Certificate { .. } => errno::EACCES,
            Self::NoExport { .. } => errno::ENOENT,
            Self::Refused { .. } => errno::EACCES,
            Self::ReadOnly => errno::EROFS,
        }
    }

    pub(crate) fn protocol(what: impl Into<String>) -> Self {
        Self::Protocol { what: what.into() }
    }

    pub(crate) fn into_io(self) -> io::Error {
        match self {
            Self::Io(error) => error,
            other => io::Error::new(io::ErrorKind::InvalidData, other),
        }
    }
}

impl From<io::Error> for NbdError {
    fn from(error: io::Error) -> Self {
        // Two names of one thing, by the system.
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                Self::Io(io::Error::new(io::ErrorKind::TimedOut, "the NBD server does not answer"))
            }
            io::ErrorKind::UnexpectedEof => Self::Io(io::Error::new(
                io::ErrorKind::ConnectionReset,
                "the NBD server closed the connection",
            )),
            _ => Self::Io(error),
        }
    }
}
