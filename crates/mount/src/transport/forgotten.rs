//! Files that the kernel has forgotten.
//!
//! A program that removes files one after the other has the kernel forget each while it asks for
//! the next thing already: the space of a file is freed once that is answered, while the program
//! gets its answer.

use extant_ondisk::InodeNo;

use super::abi::opcode;
use super::dispatch::Dispatcher;
use super::message::Request;

/// So many wait at most.
const MOST: usize = 32;

/// Files of which a thread has still to give holds back. Nobody waits for that but who wants their
/// space.
#[derive(Debug, Default)]
pub(super) struct Forgotten(Vec<(InodeNo, u64)>);

impl Forgotten {
    /// Takes a request that says what is forgotten; `false` for another one, or where there is no
    /// room.
    pub(super) fn take(&mut self, dispatcher: &Dispatcher, request: &Request<'_>) -> bool {
        let is_one = request.header.opcode == opcode::FORGET;
        if is_one && self.0.len() < MOST {
            // One that is cut short says nothing.
            let _ = dispatcher.each_forgotten(request, |file, count| self.0.push((file, count)));
            return true;
        }
        false
    }

    /// Gives the holds of one file back.
    pub(super) fn let_go_of_one(&mut self, dispatcher: &Dispatcher) {
        if let Some((file, count)) = self.0.pop() {
            dispatcher.forget(file, count);
        }
    }

    /// Gives all back.
    pub(super) fn let_go(&mut self, dispatcher: &Dispatcher) {
        while !self.0.is_empty() {
            self.let_go_of_one(dispatcher);
        }
    }
}
