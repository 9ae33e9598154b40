//! Lines of requests and commands: of a script, of standard input, or of a user at a terminal.

use std::io::{self, BufRead};

use crate::failure::Failure;

/// Bytes of a line: more than a path and its attributes need.
const MAX_LINE: u64 = 1 << 20;

/// Runs the lines of a file, each without its end, until `run` returns false.
pub(crate) fn for_each_line(
    from: &mut dyn BufRead,
    mut run: impl FnMut(&[u8]) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let mut line = Vec::new();
    while next_line(from, &mut line)? && run(&line)? {}
    Ok(())
}

/// The same for standard input, of which `run` may read lines too.
pub(crate) fn for_each_typed_line(
    mut run: impl FnMut(&[u8]) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let mut line = Vec::new();
    while next_line(&mut io::stdin().lock(), &mut line)? && run(&line)? {}
    Ok(())
}

/// Reads a line, without its end, into `line`; false after the last one.
pub(crate) fn next_line(from: &mut dyn BufRead, line: &mut Vec<u8>) -> Result<bool, Failure> {
    line.clear();
    let read = io::Read::take(&mut *from, MAX_LINE).read_until(b'\n', line);
    if read.map_err(|error| Failure::at("standard input", error))? == 0 {
        return Ok(false);
    }
    let end = line.iter().position(|byte| [b'\n', b'\r'].contains(byte));
    line.truncate(end.unwrap_or(line.len()));
    Ok(true)
}

/// Asks a user, with the lines before at hand, until `run` returns false. `run` flushes what it
/// prints.
#[cfg(feature = "prompt")]
pub(crate) fn ask(
    prompt: &str,
    mut run: impl FnMut(&[u8]) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    use rustyline::error::ReadlineError;
    let at = |error: ReadlineError| Failure::at("terminal", error);
    let mut editor = rustyline::DefaultEditor::new().map_err(at)?;
    loop {
        match editor.readline(prompt) {
            Ok(line) => {
                // A line that is not kept can still be run.
                let _ = editor.add_history_entry(&line);
                if !run(line.as_bytes())? {
                    return Ok(());
                }
            }
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(at(error)),
        }
    }
}

/// Asks a user line by line, until `run` returns false. `run` flushes what it prints.
#[cfg(not(feature = "prompt"))]
pub(crate) fn ask(
    prompt: &str,
    mut run: impl FnMut(&[u8]) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    use std::io::Write;
    let show = || {
        let mut out = io::stdout();
        crate::output::written(out.write_all(prompt.as_bytes()).and_then(|()| out.flush()))
    };
    show()?;
    for_each_typed_line(|line| {
        let goes_on = run(line)?;
        if goes_on {
            show()?;
        }
        Ok(goes_on)
    })
}
