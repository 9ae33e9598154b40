//! A line of input, run.

use super::shell::{Done, Refusal, Shell, refuse};
use super::table::{self, Handler, REQUESTS, Request};
use super::words::{self, Word, text};
use crate::failure::Failure;

impl Shell<'_> {
    /// Runs a line. `is_typed`: it was read from standard input, where an unknown request has
    /// another message.
    pub(super) fn run_line(&mut self, line: &[u8], is_typed: bool) -> Result<(), Failure> {
        let in_shell = |what: String| Refusal::Line(format!("debugfs: {what}"));
        let Some(words) = words::split(line) else {
            self.unknown += 1;
            return self.report(in_shell("Unbalanced quotes in command line".to_owned()));
        };
        let Some(name) = words.first() else { return Ok(()) };
        let Some(request) = table::find(name) else {
            self.unknown += 1;
            let name = text(name);
            return self.report(in_shell(match is_typed {
                true => format!("Unknown request \"{name}\".  Type \"?\" for a request list."),
                false => format!("Command not found {name}"),
            }));
        };
        let outcome = match request.run {
            Handler::Does(run) => run(self, &words),
            Handler::Lists => list(self),
            Handler::Helps => help(self, &words),
            Handler::Refused => Err(refuse(&words, "not supported by extant")),
        };
        self.session.out.flush()?;
        outcome.or_else(|refusal| self.report(refusal))
    }
}

fn list(shell: &mut Shell<'_>) -> Done {
    let lines = REQUESTS.iter().map(Request::lines).collect::<String>();
    shell.print(format!("Available debugfs requests:\n\n{lines}"))
}

fn help(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    match words {
        [_, name] => match table::find(name) {
            Some(request) => shell.print(request.lines()),
            None => Err(refuse(words, format_args!("unknown request '{}'", text(name)))),
        },
        _ => list(shell),
    }
}
