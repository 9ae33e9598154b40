//! Files of lines that say what files of an image are to be: labels, owners, modes.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::error::{EntryName, SourceError};

/// The files of whole distributions have less than 1 MiB, and databases of fakeroot some 100 bytes
/// for each file.
const SIZE_MAX: u64 = 1 << 30;

/// The whole file.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, SourceError> {
    let mut text = Vec::new();
    let file = File::open(path).map_err(|error| SourceError::io(path, "open", error))?;
    let read = file.take(SIZE_MAX + 1).read_to_end(&mut text);
    read.map_err(|error| SourceError::io(path, "read", error))?;
    if text.len() as u64 > SIZE_MAX {
        let error = std::io::Error::from(std::io::ErrorKind::FileTooLarge);
        return Err(SourceError::io(path, "read", error));
    }
    Ok(text)
}

/// Lines with their numbers, from 1, without those that are empty or comments.
pub(super) fn numbered(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let lines = text.split(|&byte| byte == b'\n').enumerate();
    lines.map(|(index, line)| (index + 1, line)).filter(|(_, line)| {
        let first = line.iter().find(|byte| !byte.is_ascii_whitespace());
        first.is_some_and(|&byte| byte != b'#')
    })
}

/// The words of a line; a word that begins with `#` after the first begins a comment.
pub(super) fn fields(line: &[u8]) -> Vec<&[u8]> {
    let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    words.take_while(|word| word[0] != b'#').collect()
}

/// A label with the NUL at its end that the kernel stores.
pub(super) fn label(text: &[u8]) -> Result<Box<[u8]>, String> {
    let parts = text.split(|&byte| byte == b':');
    let is_label = parts.clone().count() >= 3
        && parts.clone().take(4).all(|part| !part.is_empty())
        && text.iter().all(u8::is_ascii_graphic);
    if !is_label {
        let text = text.escape_ascii();
        return Err(format!("invalid label {text} (expected USER:ROLE:TYPE[:RANGE])"));
    }
    Ok([text, b"\0"].concat().into())
}

pub(super) fn broken(path: &Path, line: usize, problem: impl Into<String>) -> SourceError {
    SourceError::Line { path: EntryName::from(path), line, problem: problem.into() }
}
