//! Handles a request: replies at once, or decides why it is deferred.

use std::sync::Once;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::abi::opcode;
use super::changes::is_change;
use super::dispatch::{DispatchResult, Dispatcher};
use super::message::{Reply, Request};
use super::space_events::wants_space;

/// The reason why a request is deferred.
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
            // After ENOSYS the kernel sends no more SEEK_DATA and SEEK_HOLE, and treats files as
            // fully allocated.
            Self::Cache(_) => {
                static LOGGED: Once = Once::new();
                LOGGED.call_once(|| {
                    tracing::warn!("too many look for holes at once: from now on none are shown");
                });
                Errno::NOSYS
            }
        }
    }
}

/// The result of handling a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Disposition {
    /// Reply with this result.
    Reply(Result<(), Errno>),
    /// It gets no reply.
    NoReply,
    /// Another thread replies.
    Defer(Reason),
}

/// Handles a request.
pub(super) fn handle(
    dispatcher: &Dispatcher,
    request: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Disposition {
    let _change = if is_change(request) {
        match dispatcher.server.begin_change() {
            Some(change) => Some(change),
            None => return Disposition::Defer(Reason::Frozen),
        }
    } else {
        None
    };
    let mut outcome = dispatcher.dispatch(request, reply);
    // Attributes take no space: their error reports earlier data that did not fit.
    if let Err(errno) = outcome
        && wants_space(errno)
        && request.header.opcode != opcode::GETATTR
    {
        if dispatcher.server.open_unlinked_count() > 0 {
            return Disposition::Defer(Reason::Space(errno));
        }
        // The last of them may have gone since.
        reply.clear();
        outcome = dispatcher.dispatch(request, reply);
    }
    match outcome {
        Ok(DispatchResult::Reply) => Disposition::Reply(Ok(())),
        Ok(DispatchResult::NoReply) => Disposition::NoReply,
        Ok(DispatchResult::AfterWriteback(wanted)) => Disposition::Defer(Reason::Cache(wanted)),
        Err(errno) => Disposition::Reply(Err(errno)),
    }
}
