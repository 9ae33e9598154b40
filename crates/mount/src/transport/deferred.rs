//! Requests that are answered by another thread than the one that received them.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, TrySendError};

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::dispatch::Dispatcher;
use super::handle::Reason;
use super::message::{OwnedRequest, ReplyBuffer, Request};
use super::ring::RingRequest;

/// A deferred request.
#[derive(Debug)]
pub(super) enum DeferredRequest {
    /// A request that was read, and the descriptor for its reply.
    Read(OwnedRequest, Arc<OwnedFd>),
    /// One that came by a ring.
    Ring(RingRequest),
}

impl DeferredRequest {
    pub(super) fn request(&self) -> Request<'_> {
        match self {
            Self::Read(request, _) => request.request(),
            Self::Ring(request) => request.request(),
        }
    }

    /// Sends the reply of `len` bytes in `buffer`, or an error.
    pub(super) fn answer(
        self,
        dispatcher: &Dispatcher,
        outcome: Result<(), Errno>,
        len: usize,
        buffer: &mut ReplyBuffer,
    ) {
        match self {
            Self::Read(request, connection) => {
                let unique = request.request().header.unique;
                send(dispatcher, &connection, unique, outcome, len, buffer);
            }
            Self::Ring(request) => {
                if outcome.is_err() {
                    dispatcher.undo_lookups(buffer.looked_up());
                }
                request.answer(outcome, buffer.content(len));
            }
        }
    }
}

/// Writes a reply to a descriptor of the connection.
pub(super) fn send(
    dispatcher: &Dispatcher,
    connection: &OwnedFd,
    unique: u64,
    outcome: Result<(), Errno>,
    len: usize,
    buffer: &mut ReplyBuffer,
) {
    // If the request was aborted, or the reply is an error, the kernel takes no lookup counts.
    let is_sent = rustix::io::write(connection, buffer.message(unique, outcome, len)).is_ok();
    if !is_sent || outcome.is_err() {
        dispatcher.undo_lookups(buffer.looked_up());
    }
}

/// The queues of the threads that answer deferred requests.
#[derive(Clone, Debug)]
pub(super) struct DeferQueues {
    pub(super) space: SyncSender<DeferredRequest>,
    pub(super) seeks: Sender<(DeferredRequest, SeekFrom)>,
    pub(super) frozen: Sender<DeferredRequest>,
}

impl DeferQueues {
    /// Queues a request; if no thread takes it, it fails at once.
    pub(super) fn defer(
        &self,
        dispatcher: &Dispatcher,
        deferred: DeferredRequest,
        reason: Reason,
        buffer: &mut ReplyBuffer,
    ) {
        let refused = match reason {
            Reason::Space(errno) => match self.space.try_send(deferred) {
                Err(TrySendError::Full(deferred) | TrySendError::Disconnected(deferred)) => {
                    Some((deferred, errno))
                }
                Ok(()) => None,
            },
            // The thread that answers them lives as long as requests come.
            Reason::Cache(wanted) => {
                self.seeks.send((deferred, wanted)).err().map(|refused| (refused.0.0, Errno::IO))
            }
            Reason::Frozen => {
                self.frozen.send(deferred).err().map(|refused| (refused.0, Errno::IO))
            }
        };
        if let Some((deferred, errno)) = refused {
            deferred.answer(dispatcher, Err(errno), 0, buffer);
        }
    }
}
