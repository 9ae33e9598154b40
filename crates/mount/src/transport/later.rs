//! Requests that another thread answers than the one that got them.

use std::os::fd::OwnedFd;
use std::sync::mpsc::{Sender, SyncSender, TrySendError};
use std::sync::{Arc, Once};

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::abi::opcode;
use super::dispatch::{Dispatcher, Outcome};
use super::frozen::is_change;
use super::message::{OwnedRequest, Reply, ReplyBuffer, Request};
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

/// Why a request is answered later.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reason {
    /// It found no space where there may be some soon; with this error otherwise.
    Space(Errno),
    /// The kernel must write what it keeps of the file before.
    Cache(SeekFrom),
    /// The volume is frozen, and it would change it.
    Frozen,
}

impl Reason {
    /// The error that is right where nothing can be waited for.
    pub(super) fn at_once(self) -> Errno {
        match self {
            Self::Space(errno) => errno,
            Self::Frozen => Errno::BUSY,
            // The kernel does not ask for data and holes any more, and takes all that a file has for data.
            Self::Cache(_) => {
                static TOLD: Once = Once::new();
                TOLD.call_once(|| {
                    tracing::warn!("too many look for holes at once: from now on none are shown");
                });
                Errno::NOSYS
            }
        }
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    /// This is the answer.
    Answer(Result<(), Errno>),
    /// It gets none.
    Silent,
    /// Somebody else answers it.
    Later(Reason),
}

/// Does what a request wants.
pub(super) fn judge(
    dispatcher: &Dispatcher,
    request: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Verdict {
    let _change = if is_change(request) {
        match dispatcher.server.begin_change() {
            Some(change) => Some(change),
            None => return Verdict::Later(Reason::Frozen),
        }
    } else {
        None
    };
    let mut outcome = dispatcher.dispatch(request, reply);
    // Attributes take no space: they tell of what did not fit before.
    if let Err(errno) = outcome
        && wants_space(errno)
        && request.header.opcode != opcode::GETATTR
    {
        if dispatcher.server.nameless_count() > 0 {
            return Verdict::Later(Reason::Space(errno));
        }
        // The last of them may have gone since.
        reply.clear();
        outcome = dispatcher.dispatch(request, reply);
    }
    match outcome {
        Ok(Outcome::Answered) => Verdict::Answer(Ok(())),
        Ok(Outcome::Silent) => Verdict::Silent,
        Ok(Outcome::AfterCache(wanted)) => Verdict::Later(Reason::Cache(wanted)),
        Err(errno) => Verdict::Answer(Err(errno)),
    }
}

/// Whether more space would have helped.
pub(super) fn wants_space(errno: Errno) -> bool {
    matches!(errno, Errno::NOSPC | Errno::DQUOT)
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
