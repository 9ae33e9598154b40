//! A connection, over TCP or a socket of this machine, perhaps encrypted.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
#[cfg(feature = "tls")]
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "tls")]
use extant_runtime::sync::Mutex;

use crate::address::Address;

#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// A connection that is encrypted, whose two halves are used by one thread at a time.
    #[cfg(feature = "tls")]
    Encrypted(Encrypted),
}

/// A stream in another one.
#[cfg(feature = "tls")]
pub(crate) trait Layer: Read + Write + Send {}

#[cfg(feature = "tls")]
impl<S: Read + Write + Send> Layer for S {}

#[cfg(feature = "tls")]
#[derive(Clone)]
pub(crate) struct Encrypted(Arc<Mutex<Box<dyn Layer>>>);

#[cfg(feature = "tls")]
impl std::fmt::Debug for Encrypted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Encrypted")
    }
}

impl Stream {
    #[cfg(feature = "tls")]
    pub(crate) fn encrypted(layer: Box<dyn Layer>) -> Self {
        Self::Encrypted(Encrypted(Arc::new(Mutex::new(layer))))
    }

    pub(crate) fn connect(to: &Address, timeout: Duration) -> io::Result<Self> {
        let stream = match to {
            Address::Unix(path) => Self::Unix(UnixStream::connect(path)?),
            Address::Tcp { host, port } => {
                let mut failure = io::Error::from(io::ErrorKind::NotFound);
                let mut connected = None;
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, timeout) {
                        Ok(stream) => {
                            connected = Some(stream);
                            break;
                        }
                        Err(error) => failure = error,
                    }
                }
                let stream = connected.ok_or(failure)?;
                stream.set_nodelay(true)?;
                Self::Tcp(stream)
            }
        };
        stream.set_timeouts(Some(timeout))?;
        Ok(stream)
    }

    pub(crate) fn set_timeouts(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                stream.set_read_timeout(timeout).and_then(|()| stream.set_write_timeout(timeout))
            }
            Self::Unix(stream) => {
                stream.set_read_timeout(timeout).and_then(|()| stream.set_write_timeout(timeout))
            }
            // Set before it was encrypted.
            #[cfg(feature = "tls")]
            Self::Encrypted(_) => Ok(()),
        }
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
            #[cfg(feature = "tls")]
            Self::Encrypted(stream) => Self::Encrypted(stream.clone()),
        })
    }

    /// Ends the connection; a thread that reads from it sees its end.
    pub(crate) fn shut_down(&self) {
        // It may be closed already.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
            // Only the server ends connections so, which has no others.
            #[cfg(feature = "tls")]
            Self::Encrypted(_) => Ok(()),
        };
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
            #[cfg(feature = "tls")]
            Self::Encrypted(stream) => stream.0.lock().read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(buffer),
            Self::Unix(stream) => stream.write(buffer),
            #[cfg(feature = "tls")]
            Self::Encrypted(stream) => stream.0.lock().write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(_) | Self::Unix(_) => Ok(()),
            #[cfg(feature = "tls")]
            Self::Encrypted(stream) => stream.0.lock().flush(),
        }
    }
}

/// A borrowed stream, for the handshake.
pub(crate) struct StreamOf<'s>(pub(crate) &'s mut Stream);

impl Read for StreamOf<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for StreamOf<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.0.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
