//! `nbd://` and `nbd+unix:///`: exports of NBD servers, by the URLs of the NBD project; `nbds://`
//! and `nbds+unix:///` over TLS.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use extant_device::{Device, FileDevice, FileDeviceOptions};
#[cfg(feature = "remote")]
use extant_nbd::Tls;
use extant_nbd::{Address, Client, ClientOptions, NbdError};

use crate::far::FarDevice;
use crate::opened::Opened;
use crate::schemes::{Backend, BackendUrl, Location, OpenBackend};
use crate::url::{UrlError, UrlOptions};

/// The most connections that a URL may ask for.
const CONNECTIONS_MAX: usize = 16;

/// A scheme.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Nbd {
    Tcp,
    Unix,
    #[cfg(feature = "remote")]
    TlsTcp,
    #[cfg(feature = "remote")]
    TlsUnix,
}

impl Nbd {
    #[cfg(not(feature = "remote"))]
    pub(crate) const ALL: [Self; 2] = [Self::Tcp, Self::Unix];
    #[cfg(feature = "remote")]
    pub(crate) const ALL: [Self; 4] = [Self::Tcp, Self::Unix, Self::TlsTcp, Self::TlsUnix];

    fn is_unix(self) -> bool {
        self.scheme().ends_with("unix:///")
    }
}

/// A server as a URL names it.
#[derive(Debug)]
struct ServerUrl {
    scheme: Nbd,
    socket: Option<PathBuf>,
    options: ClientOptions,
}

#[derive(Debug)]
struct Connected(Arc<dyn Device>);

impl Backend for Nbd {
    fn scheme(&self) -> &'static str {
        match self {
            Self::Tcp => "nbd://",
            Self::Unix => "nbd+unix:///",
            #[cfg(feature = "remote")]
            Self::TlsTcp => "nbds://",
            #[cfg(feature = "remote")]
            Self::TlsUnix => "nbds+unix:///",
        }
    }

    fn location(&self) -> Location {
        Location::Remote
    }

    fn comes_last(&self) -> &'static str {
        match self {
            Self::Tcp => "nbd:// must be the innermost layer (for example crypt:nbd://HOST/EXPORT)",
            Self::Unix => "nbd+unix:// must be the innermost layer",
            #[cfg(feature = "remote")]
            Self::TlsTcp => "nbds:// must be the innermost layer",
            #[cfg(feature = "remote")]
            Self::TlsUnix => "nbds+unix:// must be the innermost layer",
        }
    }

    fn options(&self) -> &'static str {
        match self {
            Self::Tcp => "connections=N, timeout=SECONDS, reconnect=SECONDS",
            Self::Unix => "socket=PATH, connections=N, timeout=SECONDS, reconnect=SECONDS",
            #[cfg(feature = "remote")]
            Self::TlsTcp => {
                "tls-certificates=DIRECTORY, tls-hostname=NAME, connections=N, timeout=SECONDS, \
                 reconnect=SECONDS"
            }
            #[cfg(feature = "remote")]
            Self::TlsUnix => {
                "socket=PATH, tls-certificates=DIRECTORY, tls-hostname=NAME, connections=N, \
                 timeout=SECONDS, reconnect=SECONDS"
            }
        }
    }

    fn read(&self, _: &str, given: &mut UrlOptions<'_>) -> Result<Arc<dyn BackendUrl>, String> {
        let mut options = ClientOptions::default();
        if let Some(count) = given.number("connections")? {
            options.connections = Some(count)
                .filter(|count| (1..=CONNECTIONS_MAX).contains(count))
                .ok_or(format!("`connections` is 1 to {CONNECTIONS_MAX}"))?;
        }
        if let Some(seconds) = given.number::<u32>("timeout")? {
            options.timeout = Duration::from_secs(seconds.max(1).into());
        }
        if let Some(seconds) = given.number::<u32>("reconnect")? {
            options.reconnect = Duration::from_secs(seconds.into());
        }
        #[cfg(feature = "remote")]
        if matches!(self, Self::TlsTcp | Self::TlsUnix) {
            let certificates = given.value("tls-certificates")?;
            let path = |bytes| PathBuf::from(std::ffi::OsStr::from_bytes(bytes));
            let certificates = certificates.map(path);
            let hostname = given.text("tls-hostname")?.unwrap_or_default().to_owned();
            options.tls = Some(Tls { certificates, hostname });
        }
        let socket = match self.is_unix() {
            false => None,
            true => {
                let socket = given.value("socket")?.ok_or("`socket` is required: socket=PATH")?;
                Some(PathBuf::from(std::ffi::OsStr::from_bytes(socket)))
            }
        };
        Ok(Arc::new(ServerUrl { scheme: *self, socket, options }))
    }
}

/// Bytes of the longest path of a socket, without the zero after it.
const LONGEST_SOCKET: usize = 107;

/// The path of a socket for as long as the device is open: a connection may be made again after the
/// program has changed its directory.
fn lasting(socket: &Path) -> PathBuf {
    let whole = std::path::absolute(socket).ok();
    let whole = whole.filter(|path| path.as_os_str().len() <= LONGEST_SOCKET);
    whole.unwrap_or_else(|| socket.to_owned())
}

impl ServerUrl {
    /// The server, and the name of the export.
    fn place(&self, location: &str) -> Result<(Address, String), String> {
        if let Some(socket) = &self.socket {
            return Ok((Address::Unix(lasting(socket)), decoded(location)?));
        }
        let (host, export) = location.split_once('/').unwrap_or((location, ""));
        let address = Address::tcp(host).map_err(|error| error.to_string())?;
        Ok((address, decoded(export)?))
    }
}

/// The name in the server's certificate is that of the URL, unless another one is given.
#[cfg(feature = "remote")]
fn with_hostname(mut options: ClientOptions, address: &Address) -> ClientOptions {
    if let Some(tls) = options.tls.as_mut().filter(|tls| tls.hostname.is_empty()) {
        tls.hostname = match address {
            Address::Tcp { host, .. } => host.clone(),
            Address::Unix(_) => "localhost".to_owned(),
        };
    }
    options
}

/// A text in which `%41` stands for `A`.
fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let code = rest.split_at_checked(2).and_then(|(digits, after)| {
            rest = after;
            u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
        });
        bytes.push(code.ok_or("invalid percent-encoding in the name of the export")?);
    }
    String::from_utf8(bytes).map_err(|_| "the name of the export is not valid UTF-8".to_owned())
}

impl BackendUrl for ServerUrl {
    fn open(
        &self,
        path: &Path,
        options: &FileDeviceOptions,
    ) -> Result<Arc<dyn OpenBackend>, UrlError> {
        let text = path.as_os_str();
        let malformed = |problem| UrlError::Malformed { text: text.to_owned(), problem };
        let location = text.as_bytes().strip_prefix(self.scheme.scheme().as_bytes());
        let location = location.and_then(|bytes| str::from_utf8(bytes).ok());
        let location = location.ok_or_else(|| malformed("not valid UTF-8".to_owned()))?;
        let (address, export) = self.place(location).map_err(malformed)?;
        let read_only = !options.writes();
        let connect = ClientOptions { read_only, ..self.options.clone() };
        #[cfg(feature = "remote")]
        let connect = with_hostname(connect, &address);
        let client = Client::connect(&address, &export, &connect).map_err(|error| {
            // The URL has no place of the server's socket.
            let path = match (&self.socket, &error) {
                (Some(socket), NbdError::Io(_)) => socket.clone(),
                _ => path.to_owned(),
            };
            UrlError::Nbd { path, error }
        })?;
        let client = Arc::new(client);
        // A device that is written is another client's too, whose changes must be seen (MMP).
        Ok(Arc::new(Connected(match read_only {
            true => Arc::new(FarDevice::new(client, &[])),
            false => client,
        })))
    }
}

impl OpenBackend for Connected {
    fn files(&self) -> Vec<Arc<FileDevice>> {
        Vec::new()
    }

    fn device(&self) -> Result<Opened, UrlError> {
        Ok(Opened::real(self.0.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_server_and_an_export() {
        let tcp = ServerUrl { scheme: Nbd::Tcp, socket: None, options: ClientOptions::default() };
        let place = |location: &str| {
            tcp.place(location).map(|(address, export)| (address.to_string(), export))
        };
        let found = |address: &str, export: &str| Ok((address.to_owned(), export.to_owned()));
        assert_eq!(place("host"), found("host:10809", ""));
        assert_eq!(place("host:99/disk/a"), found("host:99", "disk/a"));
        assert_eq!(
            place("[::1]:99/%41%2fb%"),
            Err("invalid percent-encoding in the name of the export".into())
        );
        assert_eq!(place("[::1]:99/%41%2fb"), found("[::1]:99", "A/b"));
        assert!(place("user@host/a").is_err() && place("").is_err());
    }
}
