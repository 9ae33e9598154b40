//! Whether a request is answered now, or why later.

use std::sync::Once;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::abi::opcode;
use super::changes::is_change;
use super::dispatch::{Dispatcher, Outcome};
use super::message::{Reply, Request};
use super::news::wants_space;

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
            // The kernel does not ask for data and holes any more, and takes all that a file has
            // for data.
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
        if dispatcher.server.open_unlinked_count() > 0 {
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
