//! How a client connects.

use std::time::Duration;

#[cfg(feature = "tls")]
use crate::tls::Tls;

/// How to connect.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClientOptions {
    /// Whether the export is never written.
    pub read_only: bool,
    /// How long the server may take for a reply.
    pub timeout: Duration,
    /// Number of connections, where the server allows several.
    pub connections: usize,
    /// How long a server is waited for after a connection was lost; zero for not at all.
    pub reconnect: Duration,
    /// How the connections are encrypted; `None` for those that are not.
    #[cfg(feature = "tls")]
    pub tls: Option<Tls>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            read_only: true,
            timeout: Duration::from_secs(60),
            connections: 4,
            reconnect: Duration::from_secs(5),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}
