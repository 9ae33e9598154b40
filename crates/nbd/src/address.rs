//! Where a server listens, and the URLs of the NBD project (`doc/uri.md`) without their options.

use std::fmt;
use std::path::PathBuf;

/// The port of the protocol.
const PORT: u16 = 10809;

/// The place of a server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Address {
    /// A host by its name or address, and a port.
    Tcp {
        /// The name or the address, without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A socket of this machine.
    Unix(PathBuf),
}

/// A place that is not valid.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("invalid NBD address '{text}' (expected HOST, HOST:PORT or [ADDRESS]:PORT)")]
pub struct AddressError {
    text: String,
}

impl Address {
    /// Reads `HOST[:PORT]`; an address of IPv6 is in brackets.
    ///
    /// # Errors
    /// The text is no such place.
    pub fn tcp(text: &str) -> Result<Self, AddressError> {
        let error = || AddressError { text: text.to_owned() };
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or_else(error)?;
                (
                    host,
                    if rest.is_empty() {
                        None
                    } else {
                        Some(rest.strip_prefix(':').ok_or_else(error)?)
                    },
                )
            }
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let port = match port {
            Some(port) => port.parse().map_err(|_| error())?,
            None => PORT,
        };
        let is_valid = !host.is_empty() && !host.contains(['/', '@', '[', ']']);
        is_valid.then(|| Self::Tcp { host: host.to_owned(), port }).ok_or_else(error)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_the_port_of_the_protocol_unless_it_has_another() {
        let read = |text: &str| Address::tcp(text).map(|address| address.to_string());
        assert_eq!(read("host"), Ok("host:10809".into()));
        assert_eq!(read("10.0.0.1:99"), Ok("10.0.0.1:99".into()));
        assert_eq!(read("[::1]"), Ok("[::1]:10809".into()));
        assert_eq!(read("[::1]:99"), Ok("[::1]:99".into()));
        for wrong in
            ["", ":99", "host:", "host:x", "::1", "[::1", "[::1]99", "user@host", "host:99999"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
