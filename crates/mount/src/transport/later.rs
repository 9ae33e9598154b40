//! Requests that another thread answers than the one that got them.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, TrySendError};

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::defer::Reason;
use super::dispatch::Dispatcher;
use super::message::{OwnedRequest, ReplyBuffer, Request};
use super::ring::RingRequest;

/// A request that is answered later.
#[derive(Debug)]
pub(super) enum Later {
    /// One that was read, and where its answer is written.
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

    /// Sends the answer of `len` bytes that lies in `buffer`, or an error.
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

/// Writes an answer to a descriptor of the connection.
pub(super) fn send(
    dispatcher: &Dispatcher,
    connection: &OwnedFd,
    unique: u64,
    outcome: Result<(), Errno>,
    len: usize,
    buffer: &mut ReplyBuffer,
) {
    // Where nobody waits for the answer any more, or there is none, the kernel holds nothing.
    let is_sent = rustix::io::write(connection, buffer.message(unique, outcome, len)).is_ok();
    if !is_sent || outcome.is_err() {
        dispatcher.take_back(buffer.held());
    }
}

/// Those who answer later.
#[derive(Clone, Debug)]
pub(super) struct Deputies {
    pub(super) space: SyncSender<Later>,
    pub(super) seeks: Sender<(Later, SeekFrom)>,
    pub(super) frozen: Sender<Later>,
}

impl Deputies {
    /// Hands a request on; where nobody takes it, it fails at once.
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
            // Who answers them is there as long as requests come.
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
