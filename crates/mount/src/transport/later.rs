//! Requests that are answered by another thread than the one that received them.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, TrySendError};

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::defer::Reason;
use super::dispatch::Dispatcher;
use super::message::{OwnedRequest, ReplyBuffer, Request};
use super::ring::RingRequest;

/// A deferred request.
#[derive(Debug)]
pub(super) enum Later {
    /// A request that was read, and the descriptor for its reply.
    Read(OwnedRequest, Arc<OwnedFd>),
    /// One that came by a ring.
    Ring(RingRequest),
}

impl Later {
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
                    dispatcher.take_back(buffer.held());
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
        dispatcher.take_back(buffer.held());
    }
}

/// The queues of the threads that answer deferred requests.
#[derive(Clone, Debug)]
pub(super) struct Deputies {
    pub(super) space: SyncSender<Later>,
    pub(super) seeks: Sender<(Later, SeekFrom)>,
    pub(super) frozen: Sender<Later>,
}

impl Deputies {
    /// Queues a request; if no thread takes it, it fails at once.
    pub(super) fn put_off(
        &self,
        dispatcher: &Dispatcher,
        later: Later,
        reason: Reason,
        buffer: &mut ReplyBuffer,
    ) {
        let refused = match reason {
            Reason::Space(errno) => match self.space.try_send(later) {
                Err(TrySendError::Full(later) | TrySendError::Disconnected(later)) => {
                    Some((later, errno))
                }
                Ok(()) => None,
            },
            // The thread that answers them lives as long as requests come.
            Reason::Cache(wanted) => {
                self.seeks.send((later, wanted)).err().map(|refused| (refused.0.0, Errno::IO))
            }
            Reason::Frozen => self.frozen.send(later).err().map(|refused| (refused.0, Errno::IO)),
        };
        if let Some((later, errno)) = refused {
            later.answer(dispatcher, Err(errno), 0, buffer);
        }
    }
}
