//! Where requests come from: a script, standard input, or a user at a terminal.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::path::Path;

use super::host::host_error;
use super::shell::{Refusal, Shell};
use crate::failure::Failure;

/// The prompt.
const PROMPT: &str = "debugfs:  ";
/// Bytes of a line: more than a path and its attributes need.
const MAX_LINE: u64 = 1 << 20;

/// The lines of a file, each without its end.
fn for_each_line(
    from: &mut dyn BufRead,
    mut run: impl FnMut(&[u8]) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = io::Read::take(&mut *from, MAX_LINE).read_until(b'\n', &mut line);
        if read.map_err(|error| Failure::at("standard input", error))? == 0 {
            return Ok(());
        }
        let end = line.iter().position(|byte| [b'\n', b'\r'].contains(byte));
        line.truncate(end.unwrap_or(line.len()));
        if !run(&line)? {
            return Ok(());
        }
    }
}

/// Runs a script. Its lines are shown before what they do; those that begin with `#` are comments.
pub(super) fn script(shell: &mut Shell<'_>, path: &Path) -> Result<(), Failure> {
    let mut from: Box<dyn BufRead> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        match File::open(path) {
            Ok(file) => Box::new(BufReader::new(file)),
            Err(error) => {
                let what = format!("{}: {}", path.display(), host_error(&error));
                return shell.report(Refusal::Line(what));
            }
        }
    };
    for_each_line(&mut *from, |line| {
        let is_comment = line.starts_with(b"#");
        let before: &[u8] = if is_comment { b"" } else { b"debugfs: " };
        shell.session.out.bytes(before)?;
        shell.session.out.bytes(line)?;
        shell.session.out.bytes(b"\n")?;
        if !is_comment {
            shell.run_line(line, false)?;
        }
        // `quit` ends no script.
        Ok(true)
    })
}

/// Runs the lines of standard input, of which a terminal is asked for each.
pub(super) fn standard_input(shell: &mut Shell<'_>) -> Result<(), Failure> {
    if io::stdin().is_terminal() {
        return at_terminal(shell);
    }
    shell.session.out.bytes(PROMPT.as_bytes())?;
    for_each_line(&mut io::stdin().lock(), |line| {
        shell.session.out.bytes(line)?;
        shell.session.out.bytes(b"\n")?;
        shell.run_line(line, true)?;
        if !shell.has_quit {
            shell.session.out.bytes(PROMPT.as_bytes())?;
        }
        Ok(!shell.has_quit)
    })
}

/// Asks a user, with the lines before at hand.
#[cfg(feature = "prompt")]
fn at_terminal(shell: &mut Shell<'_>) -> Result<(), Failure> {
    use rustyline::error::ReadlineError;
    let at = |error: ReadlineError| Failure::at("terminal", error);
    let mut editor = rustyline::DefaultEditor::new().map_err(at)?;
    while !shell.has_quit {
        shell.session.out.flush()?;
        match editor.readline(PROMPT) {
            Ok(line) => {
                // A line that is not kept can still be run.
                let _ = editor.add_history_entry(&line);
                shell.run_line(line.as_bytes(), true)?;
            }
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(at(error)),
        }
    }
    Ok(())
}

/// Asks a user line by line.
#[cfg(not(feature = "prompt"))]
fn at_terminal(shell: &mut Shell<'_>) -> Result<(), Failure> {
    shell.session.out.bytes(PROMPT.as_bytes())?;
    shell.session.out.flush()?;
    for_each_line(&mut io::stdin().lock(), |line| {
        shell.run_line(line, true)?;
        if !shell.has_quit {
            shell.session.out.bytes(PROMPT.as_bytes())?;
            shell.session.out.flush()?;
        }
        Ok(!shell.has_quit)
    })
}
