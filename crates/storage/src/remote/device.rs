//! An object as a device that is only read.

use std::fmt;
use std::io;
use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc;

use extant_device::{
    Cause, Device, DeviceError, Request, RequestKind, check_batch, check_range, run_batch,
};
use extant_runtime::sync::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

use super::error::RemoteError;
use super::store::{Object, Version};

/// Bytes of one request: several are under way at the same time.
const PIECE: u64 = 4 << 20;
/// Requests that are under way at the same time.
const UNDER_WAY: usize = 8;

/// Threads that talk to servers. They are started before the process restricts itself, as they
/// make connections later; they see nothing of the image's contents but bytes.
pub(super) struct Network(Option<Runtime>);

impl Network {
    /// Starts the threads.
    pub(super) fn start() -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        let builder = builder.worker_threads(2).thread_name("remote").enable_all();
        builder.build().map(|runtime| Self(Some(runtime)))
    }

    /// Runs something in these threads, and waits for it.
    pub(super) fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, RemoteError>> + Send + 'static,
    ) -> Result<T, RemoteError> {
        let (sender, receiver) = mpsc::channel();
        self.spawn(async move {
            // The receiver waits.
            let _ = sender.send(work.await);
        });
        receiver.recv().unwrap_or_else(|_| Err(ended()))
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.0 {
            drop(runtime.spawn(work));
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

fn ended() -> RemoteError {
    RemoteError::Failed("the thread of the connection has ended".to_owned())
}

/// An object of a server.
pub(super) struct RemoteDevice {
    network: Network,
    object: Object,
    version: Arc<Version>,
    /// The URL, for messages.
    place: String,
    free: Arc<Semaphore>,
    /// Set once the object was another one: nothing is read from then on.
    changed: Mutex<bool>,
}

/// A part of a read.
struct RangeRead {
    of: usize,
    range: Range<u64>,
}

impl RemoteDevice {
    pub(super) fn new(network: Network, object: Object, version: Version, place: String) -> Self {
        Self {
            network,
            object,
            version: Arc::new(version),
            place,
            free: Arc::new(Semaphore::new(UNDER_WAY)),
            changed: Mutex::new(false),
        }
    }

    /// The version that was opened.
    pub(super) fn version(&self) -> &Version {
        &self.version
    }

    fn pieces(batch: &[Request<'_>]) -> Vec<RangeRead> {
        let mut pieces = Vec::new();
        for (of, request) in batch.iter().enumerate() {
            if !matches!(request.kind, RequestKind::Read { .. }) {
                continue;
            }
            let (mut at, end) = (request.offset(), request.offset() + request.length());
            while at < end {
                let to = end.min(at + PIECE);
                pieces.push(RangeRead { of, range: at..to });
                at = to;
            }
        }
        pieces
    }

    /// Reads all of a batch at the same time; the failure of each request that failed.
    fn read_all(&self, batch: &mut [Request<'_>]) -> Vec<Option<RemoteError>> {
        let pieces = Self::pieces(batch);
        let mut failures: Vec<Option<RemoteError>> = vec![None; batch.len()];
        if *self.changed.lock() {
            return vec![Some(RemoteError::Changed); batch.len()];
        }
        let (sender, receiver) = mpsc::channel();
        for (index, piece) in pieces.iter().enumerate() {
            let (object, version) = (self.object.clone(), self.version.clone());
            let (free, sender, range) = (self.free.clone(), sender.clone(), piece.range.clone());
            self.network.spawn(async move {
                let _permit = free.acquire().await;
                let _ = sender.send((index, object.read(range, &version).await));
            });
        }
        drop(sender);
        let mut missing = vec![true; pieces.len()];
        for (index, outcome) in receiver {
            let piece = &pieces[index];
            missing[index] = false;
            match outcome {
                Ok(bytes) => {
                    let request = &mut batch[piece.of];
                    let within = piece.range.start - request.offset();
                    if let RequestKind::Read { buffers, .. } = &mut request.kind {
                        scatter(buffers.slices_mut(), within as usize, &bytes);
                    }
                }
                Err(error) => {
                    if matches!(error, RemoteError::Changed) {
                        *self.changed.lock() = true;
                    }
                    failures[piece.of].get_or_insert(error);
                }
            }
        }
        for (piece, _) in pieces.iter().zip(missing).filter(|(_, is_missing)| *is_missing) {
            failures[piece.of].get_or_insert_with(ended);
        }
        failures
    }
}

/// Copies bytes into buffers, from byte `skipped` of them on.
fn scatter(buffers: &mut [IoSliceMut<'_>], mut skipped: usize, mut bytes: &[u8]) {
    for buffer in buffers {
        if skipped >= buffer.len() {
            skipped -= buffer.len();
            continue;
        }
        let count = bytes.len().min(buffer.len() - skipped);
        let (part, rest) = bytes.split_at(count);
        buffer[skipped..skipped + count].copy_from_slice(part);
        (bytes, skipped) = (rest, 0);
    }
}

impl Device for RemoteDevice {
    fn size(&self) -> u64 {
        self.version.size
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        check_batch(self, batch)?;
        let mut failures = self.read_all(batch).into_iter();
        run_batch(batch, |request| match failures.next().flatten() {
            None => Ok(()),
            Some(error) => Err(request.error(Cause::Io(Arc::new(error.at(&self.place))))),
        })
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        check_range(self.size(), &range)?;
        Ok((!range.is_empty()).then_some(range))
    }

    fn is_read_only(&self) -> bool {
        true
    }
}

impl fmt::Debug for RemoteDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("RemoteDevice");
        shown.field("place", &self.place).field("version", &self.version).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_scattered_from_any_place_on() {
        let (mut one, mut two, mut three) = ([0; 3], [0; 0], [0; 4]);
        let mut buffers =
            [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two), IoSliceMut::new(&mut three)];
        scatter(&mut buffers, 2, &[1, 2, 3]);
        scatter(&mut buffers, 5, &[4, 5]);
        assert_eq!((one, three), ([0, 0, 1], [2, 3, 4, 5]));
    }
}
