//! A link between two sockets of this machine that takes its time, and counts requests of NBD.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// Bytes of a second on the link: 1 Gbit.
pub const GIGABIT: f64 = 125e6;
/// The first bytes of a request of NBD.
const REQUEST: [u8; 4] = [0x25, 0x60, 0x95, 0x13];

/// The bytes and requests that went over a link.
#[derive(Debug, Default)]
pub struct Traffic {
    requests: AtomicU64,
    received: AtomicU64,
    connections: Mutex<Vec<UnixStream>>,
}

impl Traffic {
    /// Ends all connections that there are.
    pub fn cut(&self) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        for connection in connections.drain(..) {
            // It may be closed already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Number of requests of NBD so far, as long as no data that clients sent look like one.
    pub fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// Bytes that servers sent so far.
    pub fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }
}

/// A link from the socket `from`, which is made, to the socket `to`: what one side writes comes to
/// the other one after half a round trip, and no faster than `bandwidth` bytes a second, which all
/// connections share. It lives as long as the process.
///
/// # Errors
/// The socket cannot be made.
pub fn link(
    from: &Path,
    to: &Path,
    round_trip: Duration,
    bandwidth: f64,
) -> io::Result<Arc<Traffic>> {
    let listener = UnixListener::bind(from)?;
    let to = to.to_owned();
    let free = Arc::new([Mutex::new(Instant::now()), Mutex::new(Instant::now())]);
    let traffic = Arc::new(Traffic::default());
    let counted = traffic.clone();
    std::thread::spawn(move || {
        for near in listener.incoming() {
            // Without a server the connection ends at once.
            let (Ok(near), Ok(far)) = (near, UnixStream::connect(&to)) else { continue };
            let (Ok(near_too), Ok(far_too)) = (near.try_clone(), far.try_clone()) else { continue };
            if let (Ok(near), Ok(far)) = (near.try_clone(), far.try_clone()) {
                let connections =
                    &mut *counted.connections.lock().unwrap_or_else(PoisonError::into_inner);
                connections.extend([near, far]);
            }
            let ways = [(near_too, far_too), (far, near)];
            for (way, (input, output)) in ways.into_iter().enumerate() {
                let (free, counted) = (free.clone(), counted.clone());
                let delay = round_trip / 2;
                std::thread::spawn(move || {
                    let mut last = [0; 3];
                    let mut count = |bytes: &[u8]| match way {
                        0 => counted.count_requests(&mut last, bytes),
                        _ => _ = counted.received.fetch_add(bytes.len() as u64, Relaxed),
                    };
                    one_way(input, output, &free[way], delay, bandwidth, &mut count);
                });
            }
        }
    });
    Ok(traffic)
}

impl Traffic {
    /// Counts the requests that end in `bytes`; `last` are the bytes before them.
    fn count_requests(&self, last: &mut [u8; 3], bytes: &[u8]) {
        let mut all = last.to_vec();
        all.extend(bytes);
        let found = all.windows(4).filter(|window| *window == REQUEST).count();
        self.requests.fetch_add(found as u64, Relaxed);
        last.copy_from_slice(&all[all.len() - 3..]);
    }
}

fn one_way(
    mut input: UnixStream,
    mut output: UnixStream,
    free: &Mutex<Instant>,
    delay: Duration,
    bandwidth: f64,
    count: &mut dyn FnMut(&[u8]),
) {
    let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
    let writer = std::thread::spawn(move || {
        for (due, bytes) in receiver {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if output.write_all(&bytes).is_err() {
                return;
            }
        }
        let _ = output.shutdown(Shutdown::Write);
    });
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = input.read(&mut buffer) {
        count(&buffer[..length]);
        let mut free = free.lock().unwrap_or_else(PoisonError::into_inner);
        let takes = Duration::from_secs_f64(length as f64 / bandwidth);
        let sent = (*free).max(Instant::now()) + takes;
        *free = sent;
        drop(free);
        if sender.send((sent + delay, buffer[..length].to_vec())).is_err() {
            break;
        }
    }
    drop(sender);
    let _ = writer.join();
}
