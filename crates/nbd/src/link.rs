//! The way to a server: connections are made, and made again when they are lost.
//!
//! A thread of its own makes them: it is there before a command restricts itself, after which no
//! thread that it starts may make a connection.

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::address::Address;
use crate::error::NbdError;
use crate::handshake::{self, ExportInfo};
use crate::options::ClientOptions;
use crate::proto::export;
use crate::stream::{Stream, StreamOf};
#[cfg(feature = "tls")]
use crate::tls::Settings;
use crate::transmission::Connection;

/// How long a server may take for the handshake of a further connection, at least and as a multiple
/// of the time of the first one. A server with a limit may let it wait until another one ends.
const SURPLUS_PATIENCE: Duration = Duration::from_secs(2);
const SURPLUS_FACTOR: u32 = 10;

/// The connections to an export, all with the same description of it.
pub(crate) struct Established {
    pub(crate) connections: Vec<Connection>,
    pub(crate) info: ExportInfo,
}

/// The parameters of a connection.
struct Link {
    address: Address,
    name: String,
    timeout: Duration,
    #[cfg(feature = "tls")]
    tls: Option<Settings>,
}

type Reply = mpsc::SyncSender<Result<Established, NbdError>>;

/// Makes connections for a client.
#[derive(Debug)]
pub(crate) struct Connector {
    requests: mpsc::Sender<(usize, Reply)>,
}

impl Connector {
    pub(crate) fn start(
        address: &Address,
        name: &str,
        options: &ClientOptions,
    ) -> Result<Self, NbdError> {
        let link = Link {
            address: address.clone(),
            name: name.to_owned(),
            timeout: options.timeout,
            #[cfg(feature = "tls")]
            tls: options.tls.as_ref().map(Settings::read).transpose()?,
        };
        let (requests, received) = mpsc::channel::<(usize, Reply)>();
        // It ends with the client.
        thread::Builder::new().name("nbd-connect".to_owned()).spawn(move || {
            for (count, reply) in received {
                // The client may be gone.
                let _ = reply.send(link.establish(count));
            }
        })?;
        Ok(Self { requests })
    }

    /// Makes up to `count` connections, at least one.
    pub(crate) fn establish(&self, count: usize) -> Result<Established, NbdError> {
        let (reply, received) = mpsc::sync_channel(1);
        let ended = || io::Error::other("the thread that makes connections has ended");
        self.requests.send((count, reply)).map_err(|_| ended())?;
        received.recv().map_err(|_| ended())?
    }
}

impl Link {
    fn establish(&self, count: usize) -> Result<Established, NbdError> {
        let started = Instant::now();
        let (connection, info) = self.connect(self.timeout)?;
        let mut connections = vec![connection];
        if count <= 1 || info.flags & export::CAN_MULTI_CONN == 0 {
            return Ok(Established { connections, info });
        }
        let patience = (started.elapsed() * SURPLUS_FACTOR).max(SURPLUS_PATIENCE).min(self.timeout);
        // At the same time: each costs several round trips.
        let others: Vec<_> = thread::scope(|scope| {
            let start = |_| scope.spawn(|| self.connect(patience));
            let threads: Vec<_> = (1..count).map(start).collect();
            threads.into_iter().map(|thread| thread.join()).collect()
        });
        for other in others {
            match other {
                Ok(Ok((connection, other))) if other == info => connections.push(connection),
                Ok(Ok(_)) => return Err(NbdError::protocol("the export is another each time")),
                // Servers have limits: one connection is enough.
                Ok(Err(error)) => tracing::debug!(%error, "one connection less"),
                Err(_) => tracing::debug!("the thread of a connection has ended"),
            }
        }
        Ok(Established { connections, info })
    }

    /// Makes one connection, whose handshake may take `patience` for each answer.
    fn connect(&self, patience: Duration) -> Result<(Connection, ExportInfo), NbdError> {
        let mut stream = Stream::connect(&self.address, patience)?;
        // Another handle of the same socket, also where it is encrypted.
        let socket = stream.try_clone()?;
        let flags = handshake::greet(StreamOf(&mut stream))?;
        #[cfg(feature = "tls")]
        if let Some(settings) = &self.tls {
            handshake::start_tls(StreamOf(&mut stream))?;
            stream = settings.encrypt(stream)?;
        }
        let info = handshake::run(StreamOf(&mut stream), flags, &self.name)?;
        socket.set_timeouts(Some(self.timeout))?;
        Ok((Connection::new(stream, info)?, info))
    }
}
