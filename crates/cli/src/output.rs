//! Standard output: buffered, quiet when the reader goes away, text or JSON.

use std::fmt;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

pub(crate) use extant::inspect::JsonName;
use serde::Serialize;

use crate::failure::Failure;

/// Large enough that a listing costs few system calls.
const BUFFER: usize = 1 << 16;

/// Standard output of a command.
pub(crate) struct Output {
    writer: BufWriter<StdoutLock<'static>>,
    is_terminal: bool,
}

impl Output {
    /// Takes standard output for the rest of the command.
    pub(crate) fn new() -> Self {
        let stdout = io::stdout();
        let is_terminal = stdout.is_terminal();
        Self { writer: BufWriter::with_capacity(BUFFER, stdout.lock()), is_terminal }
    }

    /// Whether a person reads it.
    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Bytes as they are: file contents, archives.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        written(self.writer.write_all(bytes))
    }

    /// A line of text. Called through `say!`.
    pub(crate) fn line(&mut self, line: fmt::Arguments<'_>) -> Result<(), Failure> {
        written(self.writer.write_fmt(line).and_then(|()| self.writer.write_all(b"\n")))
    }

    /// A file name: as it is into a pipe, with control characters escaped on a terminal.
    pub(crate) fn name(&mut self, name: &[u8]) -> Result<(), Failure> {
        if self.is_terminal {
            return self.bytes(printable(name).as_bytes());
        }
        self.bytes(name)
    }

    /// One JSON document, indented.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        written(serde_json::to_writer_pretty(&mut self.writer, value).map_err(io::Error::from))?;
        self.bytes(b"\n")
    }

    /// One JSON document on a line of its own, which the reader has at once.
    pub(crate) fn json_line(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        written(serde_json::to_writer(&mut self.writer, value).map_err(io::Error::from))?;
        self.bytes(b"\n")?;
        self.flush()
    }

    /// A JSON array whose elements come one by one, each on a line of its own. `elements` is handed
    /// the function that writes one.
    pub(crate) fn json_array<T: Serialize>(
        &mut self,
        elements: impl FnOnce(&mut dyn FnMut(&T) -> Result<(), Failure>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.bytes(b"[")?;
        let mut separator: &[u8] = b"\n";
        elements(&mut |element| {
            self.bytes(separator)?;
            separator = b",\n";
            written(serde_json::to_writer(&mut self.writer, element).map_err(io::Error::from))
        })?;
        self.bytes(b"\n]\n")
    }

    /// Everything written so far reaches the reader.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        written(self.writer.flush())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// `say!(session, "{name}: {size}")`: a line on standard output.
#[macro_export]
macro_rules! say {
    ($session:expr, $($what:tt)*) => {
        $session.out.line(format_args!($($what)*))
    };
}

/// A line on standard output of work that goes on whether anybody reads or not.
#[macro_export]
macro_rules! out_line {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($what)*);
    }};
}

/// A line on standard error, which may be closed. Called through `err_line!`.
pub(crate) fn error_line(line: fmt::Arguments<'_>) {
    let line = without_error_numbers(&line.to_string());
    let _ = writeln!(io::stderr(), "{line}");
}

/// A text without the ` (os error N)` that std appends to the system's own words.
pub(crate) fn without_error_numbers(text: &str) -> String {
    const NUMBER: &str = " (os error ";
    let mut parts = text.split(NUMBER);
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.bytes().all(|it| it.is_ascii_digit()) => kept += rest,
            _ => kept = kept + NUMBER + part,
        }
    }
    kept
}

/// A line on standard error, which may be closed.
#[macro_export]
macro_rules! err_line {
    ($($what:tt)*) => {
        $crate::output::error_line(format_args!($($what)*))
    };
}

/// A failed write to standard output: quiet when the reader has gone.
pub(crate) fn written(outcome: io::Result<()>) -> Result<(), Failure> {
    outcome.map_err(write_failure)
}

/// The failure of a write to standard output.
pub(crate) fn write_failure(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::broken_pipe(),
        _ => Failure::at("standard output", error),
    }
}

/// A name for a terminal: control characters and bytes that are not UTF-8 as `\x1b`, so that an
/// image cannot send escape sequences.
pub(crate) fn printable(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character.is_control() {
                true => text.extend(character.escape_default()),
                false => text.push(character),
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

/// A size as `ls -h` shows it: powers of 1024, rounded up, at most three digits.
pub(crate) fn human_size(bytes: u64) -> String {
    let mut unit = 1u128;
    for suffix in ["", "K", "M", "G", "T", "P", "E"] {
        let tenths = (u128::from(bytes) * 10).div_ceil(unit);
        if suffix.is_empty() && bytes < 1024 {
            return bytes.to_string();
        }
        if !suffix.is_empty() && tenths < 100 {
            return format!("{}.{}{suffix}", tenths / 10, tenths % 10);
        }
        let whole = u128::from(bytes).div_ceil(unit);
        if !suffix.is_empty() && whole < 1024 {
            return format!("{whole}{suffix}");
        }
        unit *= 1024;
    }
    format!("{bytes}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_are_shown_without_their_numbers() {
        let error = io::Error::from_raw_os_error(2);
        let text = without_error_numbers(&format!("a: {error}: b: {error}"));
        assert_eq!(text, "a: No such file or directory: b: No such file or directory");
        for text in ["plain", "x (os error y)", "x (os error 2"] {
            assert_eq!(without_error_numbers(text), text);
        }
    }

    #[test]
    fn sizes_read_as_in_ls() {
        let cases = [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10 * 1024, "10K"),
            (10 * 1024 + 1, "11K"),
            (1024 * 1024 - 1, "1.0M"),
            (5 << 30, "5.0G"),
            (u64::MAX, "16E"),
        ];
        for (bytes, text) in cases {
            assert_eq!(human_size(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn a_terminal_gets_no_control_characters() {
        assert_eq!(printable("naïve".as_bytes()), "naïve");
        assert_eq!(printable(b"a\x1b[31m\n"), "a\\u{1b}[31m\\n");
        assert_eq!(printable(b"\xff.txt"), "\\xff.txt");
    }
}
