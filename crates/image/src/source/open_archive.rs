//! Archives opened: by name, or from standard input.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use super::error::{EntryName, Flaw, SourceError};
use super::tar::archive_error;
use super::tar::input::Input;
use super::unpack::{self, Packing};

/// Bytes that a pipe holds while it is read; the kernel allows every user this much.
const PIPE_SIZE: usize = 1 << 20;

/// Opens a file, and its name for messages.
pub(super) fn opened(path: &Path) -> Result<(EntryName, File), SourceError> {
    let file = File::open(path).map_err(|error| SourceError::io(path, "open", error))?;
    Ok((EntryName::from(path), file))
}

/// Standard input, and its name for messages.
pub(super) fn standard_input() -> Result<(EntryName, File), SourceError> {
    let name = EntryName(b"standard input".to_vec());
    let stdin = io::stdin().as_fd().try_clone_to_owned();
    let stdin = stdin.map_err(|error| SourceError::io(name.clone(), "use", error))?;
    Ok((name, File::from(stdin)))
}

/// Opens a file as an archive. A plain one that can be read by position stays where it is; of any
/// other `stream` takes the unpacked bytes.
pub(super) fn input_of(
    name: &EntryName,
    file: File,
    stream: impl FnOnce(Box<dyn Read + Send>) -> Result<Input, Flaw>,
) -> Result<Input, SourceError> {
    let failed = |action, error| SourceError::io(name.clone(), action, error);
    let kind = file.metadata().map_err(|error| failed("access", error))?.file_type();
    let is_seekable = kind.is_file() || kind.is_block_device();
    let in_archive = |flaw| archive_error(&name.to_string(), None, 0, flaw);
    let (start, reader) = unpack::peek(file.try_clone().map_err(|error| failed("use", error))?)
        .map_err(|error| failed("read", error))?;
    let packing = Packing::of(&start).map_err(in_archive)?;
    // Standard input may be at an offset in the middle of a file.
    match seekable_from_start(&file, start.len(), is_seekable) {
        Some(size) if packing == Packing::Plain => Ok(Input::seekable(file, size)),
        _ => {
            // With little in the pipe both of its ends wait for each other most of the time. Not
            // allowed, or no pipe: it stays as it is.
            let _ = rustix::pipe::fcntl_setpipe_size(&file, PIPE_SIZE);
            unpack::unpacked(packing, reader).and_then(stream).map_err(in_archive)
        }
    }
}

/// The size of a file of which `read` bytes have been read, if these are its first.
fn seekable_from_start(mut file: &File, read: usize, is_seekable: bool) -> Option<u64> {
    if !is_seekable || file.stream_position().ok()? != read as u64 {
        return None;
    }
    let size = file.seek(SeekFrom::End(0)).ok()?;
    file.seek(SeekFrom::Start(read as u64)).ok()?;
    Some(size)
}
