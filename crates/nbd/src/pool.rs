//! The connections of a client, and what happens when one is lost: see [`Client`].

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use extant_runtime::sync::Mutex;
use extant_runtime::sync::atomic::Ordering;

use crate::client::Client;
use crate::error::NbdError;
use crate::link::Established;
use crate::proto::command;
use crate::transmission::{Connection, Transfer, TransferData};

/// How often a request is sent, over connections that are lost.
const TRIES: u32 = 3;
/// The tries that one takes which the server does not answer in time.
const LONG_TRY: u32 = 2;
/// The pause between two tries to reach a server.
const PAUSE: Duration = Duration::from_millis(50);

/// The connections. A request holds a read lock of them; they are made again under a write lock, so
/// that no request is under way while changes are repeated.
pub(crate) struct Pool {
    pub(crate) connections: Vec<Mutex<Connection>>,
    /// Number of times that they were made, or were not made.
    generation: u64,
    /// Why they were not made the last time.
    down: Option<Arc<io::Error>>,
    /// Why the server is of no use any more.
    lost: Option<String>,
}

/// The error of a request, with the generation of the connection that it used.
struct Broken {
    generation: u64,
    error: io::Error,
}

impl Pool {
    pub(crate) fn new(connections: Vec<Connection>) -> Self {
        let connections = connections.into_iter().map(Mutex::new).collect();
        Self { connections, generation: 0, down: None, lost: None }
    }
}

impl Client {
    /// Uses a connection that is free, or waits for one. Where it is lost, others are made, and
    /// `work` is repeated with the number of the try.
    pub(crate) fn with<T>(
        &self,
        mut work: impl FnMut(&mut Connection, u32) -> Result<T, NbdError>,
    ) -> Result<T, io::Error> {
        let (mut number, mut tries) = (0, 0);
        loop {
            let broken = match self.with_once(|connection| work(connection, number)) {
                Ok(done) => return Ok(done),
                Err(broken) => broken,
            };
            number += 1;
            tries += match broken.error.kind() {
                io::ErrorKind::TimedOut => LONG_TRY,
                _ => 1,
            };
            self.restore(&broken)?;
            if tries >= TRIES {
                // The server may hang up on this very request: others go on.
                return Err(broken.error);
            }
        }
    }

    fn with_once<T>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, NbdError>,
    ) -> Result<T, Broken> {
        let pool = self.pool.read();
        let generation = pool.generation;
        let broken = |error: NbdError| Broken { generation, error: error.into_io() };
        if pool.connections.is_empty() {
            return Err(broken(NbdError::Io(io::ErrorKind::NotConnected.into())));
        }
        let free = pool.connections.iter().find_map(Mutex::try_lock);
        let mut connection = free.unwrap_or_else(|| {
            let at = self.next.fetch_add(1, Ordering::Relaxed) % pool.connections.len();
            pool.connections[at].lock()
        });
        work(&mut connection).map_err(broken)
    }

    /// Makes the connections again, unless another thread has done so, and repeats the changes that
    /// the server may have lost.
    fn restore(&self, broken: &Broken) -> Result<(), io::Error> {
        let not_connected = |text: String| io::Error::new(io::ErrorKind::NotConnected, text);
        let mut pool = self.pool.write();
        if let Some(why) = &pool.lost {
            return Err(not_connected(why.clone()));
        }
        if pool.generation != broken.generation {
            return match &pool.down {
                None => Ok(()),
                Some(error) => Err(copy_of(error)),
            };
        }
        let was_down = pool.down.take().is_some();
        pool.connections.clear();
        let is_lost = |why: &dyn std::fmt::Display| {
            format!("the connection to the NBD server is lost: {why}")
        };
        if self.reconnect.is_zero() {
            pool.lost = Some(is_lost(&broken.error));
            return Err(copy_of(&broken.error));
        }
        if !was_down {
            tracing::warn!(error = %broken.error, "NBD: the connection is lost, and is made again");
        }
        let started = Instant::now();
        loop {
            let failed = match self.connect_again(&mut pool) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if let Some(why) = &pool.lost {
                return Err(not_connected(why.clone()));
            }
            // A server that was gone the last time is tried once.
            if was_down || started.elapsed() >= self.reconnect {
                pool.generation += 1;
                let error = not_connected(is_lost(&failed));
                pool.down = Some(Arc::new(copy_of(&error)));
                return Err(error);
            }
            thread::sleep(PAUSE);
        }
    }

    fn connect_again(&self, pool: &mut Pool) -> Result<(), NbdError> {
        let Established { mut connections, info } = self.connector.establish(self.wanted)?;
        if info != self.info {
            let text = "the NBD export is another than the one that was opened";
            pool.lost = Some(text.to_owned());
            return Err(NbdError::protocol(text));
        }
        let mut unflushed = self.unflushed.lock();
        let mut failed = false;
        let data = TransferData::Command(command::FLUSH);
        let flush = Transfer { of: 0, offset: 0, length: 0, data };
        let flush = (!unflushed.is_empty()).then_some(flush);
        // The flush: should this connection be lost too, they are not repeated again.
        for transfer in unflushed.transfers().chain(flush) {
            let mut note = |_: usize, _: &Transfer<'_, '_>, error: u32| failed |= error != 0;
            connections[0].run(&mut [transfer], &[0], 0, &mut note)?;
        }
        let mark = unflushed.mark();
        unflushed.drop_to(mark);
        // Changes of a server without a flush cannot be repeated: a flush reports that.
        unflushed.is_uncertain |= failed || self.has_changes.swap(false, Ordering::Relaxed);
        pool.connections = connections.into_iter().map(Mutex::new).collect();
        pool.generation += 1;
        Ok(())
    }

    /// Whether the server was not reached the last time.
    pub(crate) fn is_down(&self) -> bool {
        self.pool.read().connections.is_empty()
    }
}

fn copy_of(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}
