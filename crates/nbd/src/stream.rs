//! A connection, over TCP or a socket of this machine, perhaps encrypted.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::address::Address;
#[cfg(feature = "tls")]
use crate::tls::TlsStream;

#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    #[cfg(feature = "tls")]
    Tls(TlsStream),
}

impl Stream {
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
            Self::Tls(_) => Ok(()),
        }
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Self::Tls(stream.clone()),
        })
    }

    /// Ends the connection; a thread that reads from it sees its end.
    pub(crate) fn shut_down(&self) {
        // It may be closed already.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => {
                stream.shut_down();
                Ok(())
            }
        };
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(buffer),
            Self::Unix(stream) => stream.write(buffer),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(_) | Self::Unix(_) => Ok(()),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.flush(),
        }
    }
}
