//! Files that the kernel has forgotten.
//!
//! When a program removes files one after the other, the kernel sends FORGET for each together with
//! the next request: the space of a file is freed after the reply to that request, while the
//! program already runs again.

use extant_ondisk::InodeNo;

use super::abi::opcode;
use super::dispatch::Dispatcher;
use super::message::Request;

/// Maximum number of waiting entries.
const MOST: usize = 32;

/// Lookup counts that a thread has still to drop. Only requests that need the space wait for it.
#[derive(Debug, Default)]
pub(super) struct ForgetBatch(Vec<(InodeNo, u64)>);

impl ForgetBatch {
    /// Takes a FORGET request; `false` for another one, or if there is no room.
    pub(super) fn take(&mut self, dispatcher: &Dispatcher, request: &Request<'_>) -> bool {
        let is_one = request.header.opcode == opcode::FORGET;
        if is_one && self.0.len() < MOST {
            // A truncated one is ignored.
            let _ = dispatcher.each_forgotten(request, |file, count| self.0.push((file, count)));
            return true;
        }
        false
    }

    /// Gives the holds of one file back.
    pub(super) fn drop_one(&mut self, dispatcher: &Dispatcher) {
        if let Some((file, count)) = self.0.pop() {
            dispatcher.forget(file, count);
        }
    }

    /// Gives all back.
    pub(super) fn drop_all(&mut self, dispatcher: &Dispatcher) {
        while !self.0.is_empty() {
            self.drop_one(dispatcher);
        }
    }
}
