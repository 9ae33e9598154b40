//! Changes that a server has confirmed and no flush has made durable. After a connection is lost
//! the server may be another process, which lacks them: they are carried out again.

use std::collections::VecDeque;

use crate::transmission::{Transfer, TransferData};
use std::io::IoSlice;

/// Bytes of changes that are kept: with more, the server is asked to flush.
pub(crate) const KEPT_MAX: usize = 32 << 20;
/// Bytes that a change without data counts.
const HEADER: usize = 64;

/// A change, as it was sent.
struct Change {
    offset: u64,
    length: u32,
    /// The data of a write; else the command.
    content: Content,
}

enum Content {
    Data(Vec<u8>),
    Command(u16),
}

/// The changes since the last flush, in the order in which they were confirmed.
#[derive(Default)]
pub(crate) struct Unflushed {
    changes: VecDeque<Change>,
    /// Number of changes that were dropped from the front.
    dropped: u64,
    bytes: usize,
    /// Whether changes may be lost that a flush has not reported yet.
    pub(crate) is_uncertain: bool,
}

impl Unflushed {
    pub(crate) fn add(&mut self, piece: &Transfer<'_, '_>) {
        let content = match &piece.data {
            TransferData::Read(_) => return,
            TransferData::Write(buffers) => {
                Content::Data(buffers.iter().flat_map(|buffer| buffer.iter().copied()).collect())
            }
            TransferData::Command(command) => Content::Command(*command),
        };
        let change = Change { offset: piece.offset, length: piece.length, content };
        self.bytes += change.bytes();
        self.changes.push_back(change);
    }

    pub(crate) fn is_much(&self) -> bool {
        self.bytes > KEPT_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// A number for the changes so far.
    pub(crate) fn mark(&self) -> u64 {
        self.dropped + self.changes.len() as u64
    }

    /// The changes up to a mark are durable, or their loss is reported.
    pub(crate) fn drop_to(&mut self, mark: u64) {
        while self.dropped < mark {
            let Some(change) = self.changes.pop_front() else { return };
            self.bytes -= change.bytes();
            self.dropped += 1;
        }
    }

    /// The changes, to be sent again: one after the other, as they may lie on each other.
    pub(crate) fn transfers(&self) -> impl Iterator<Item = Transfer<'_, '_>> {
        self.changes.iter().map(|change| Transfer {
            of: 0,
            offset: change.offset,
            length: change.length,
            data: match &change.content {
                Content::Data(bytes) => TransferData::Write(vec![IoSlice::new(bytes)]),
                Content::Command(command) => TransferData::Command(*command),
            },
        })
    }
}

impl Change {
    fn bytes(&self) -> usize {
        HEADER
            + match &self.content {
                Content::Data(bytes) => bytes.len(),
                Content::Command(_) => 0,
            }
    }
}
