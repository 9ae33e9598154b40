//! Where the engine's commands speak, and whom they ask.

use std::io::{self, IsTerminal};

use extant::rooms::image::mkfs::Prompt;

use crate::failure::Failure;
use crate::session::Session;

/// The command speaks to the session and asks on the terminal.
pub(crate) struct Terminal<'a> {
    session: &'a mut Session,
    /// Standard output failed: nothing more is said.
    broken: Option<Failure>,
}

impl<'a> Terminal<'a> {
    pub(crate) fn new(session: &'a mut Session) -> Self {
        Self { session, broken: None }
    }

    /// Whether everything could be said.
    pub(crate) fn close(self) -> Result<(), Failure> {
        self.broken.map_or(Ok(()), Err)
    }

    fn keep(&mut self, outcome: Result<(), Failure>) {
        if let Err(failure) = outcome {
            self.broken.get_or_insert(failure);
        }
    }
}

impl Prompt for Terminal<'_> {
    fn say(&mut self, text: &str) {
        let outcome =
            self.session.out.bytes(text.as_bytes()).and_then(|()| self.session.out.flush());
        self.keep(outcome);
    }

    fn warn(&mut self, text: &str) {
        let outcome = self.session.warn(text);
        self.keep(outcome);
    }

    fn is_interactive(&self) -> bool {
        io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    fn confirm(&mut self, question: &str) -> bool {
        if !self.is_interactive() {
            return false;
        }
        self.say(question);
        let mut answer = String::new();
        let read = io::stdin().read_line(&mut answer);
        read.is_ok() && answer.trim_start().starts_with(['y', 'Y'])
    }
}
