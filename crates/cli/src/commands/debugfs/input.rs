//! Where requests come from: a script, standard input, or a user at a terminal.

use std::fs::File;
use std::io::{self, BufReader, IsTerminal};
use std::path::Path;

use super::host::host_error;
use super::shell::{Refusal, Shell};
use crate::failure::Failure;
use crate::lines::{ask, for_each_line, for_each_typed_line};

/// The prompt.
const PROMPT: &str = "debugfs:  ";
/// Runs a script. Its lines are shown before what they do; those that begin with `#` are comments.
pub(super) fn script(shell: &mut Shell<'_>, path: &Path) -> Result<(), Failure> {
    let run = |line: &[u8]| {
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
    };
    if path == Path::new("-") {
        return for_each_typed_line(run);
    }
    let opened = File::open(path);
    match opened {
        Ok(file) => for_each_line(&mut BufReader::new(file), run),
        Err(error) => {
            let what = format!("{}: {}", path.display(), host_error(&error));
            shell.report(Refusal::Line(what))
        }
    }
}

/// Runs the lines of standard input, of which a terminal is asked for each.
pub(super) fn standard_input(shell: &mut Shell<'_>) -> Result<(), Failure> {
    if io::stdin().is_terminal() {
        return at_terminal(shell);
    }
    shell.session.out.bytes(PROMPT.as_bytes())?;
    for_each_typed_line(|line| {
        shell.session.out.bytes(line)?;
        shell.session.out.bytes(b"\n")?;
        shell.run_line(line, true)?;
        if !shell.has_quit {
            shell.session.out.bytes(PROMPT.as_bytes())?;
        }
        Ok(!shell.has_quit)
    })
}

/// Asks a user for each line.
fn at_terminal(shell: &mut Shell<'_>) -> Result<(), Failure> {
    if shell.has_quit {
        return Ok(());
    }
    shell.session.out.flush()?;
    ask(PROMPT, |line| {
        shell.run_line(line, true)?;
        shell.session.out.flush()?;
        Ok(!shell.has_quit)
    })
}
