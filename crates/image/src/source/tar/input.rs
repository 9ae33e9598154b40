//! The bytes of an archive from front to back: headers are read, contents are left where they are or spooled.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::super::error::{EntryName, Flaw};

/// The unit of the format.
pub(in crate::source) const BLOCK: usize = 512;

/// Bytes read at a time from a seekable archive: few while large contents are skipped, many in a run of headers.
const WINDOW_MIN: usize = 4096;
const WINDOW_MAX: usize = 256 * 1024;
/// Bytes handed over at a time by the thread that reads and unpacks a stream, and how many of such it may be ahead.
const CHUNK: usize = 512 * 1024;
const CHUNKS_AHEAD: usize = 4;
/// Pieces smaller than this are gathered before they are written to the spool.
const GATHER: usize = 256 * 1024;

/// An archive that is being read. Positions are bytes of the unpacked archive.
pub(in crate::source) struct Input {
    position: u64,
    body: Body,
}

enum Body {
    Seekable { file: File, size: u64, window: Window },
    Stream { stream: Stream, spool: Spool },
}

impl Input {
    /// A file that can be read by position; contents stay in it.
    pub(in crate::source) fn seekable(file: File, size: u64) -> Self {
        let window = Window { bytes: Vec::new(), start: 0, next_size: WINDOW_MIN };
        Self { position: 0, body: Body::Seekable { file, size, window } }
    }

    /// A stream, unpacked already; contents go to a spool in `directory`.
    pub(in crate::source) fn stream(
        reader: Box<dyn Read + Send>,
        directory: &Path,
    ) -> Result<Self, Flaw> {
        let spool = Spool::new(directory)?;
        Ok(Self { position: 0, body: Body::Stream { stream: Stream::start(reader)?, spool } })
    }

    /// Where the next byte lies.
    pub(in crate::source) const fn position(&self) -> u64 {
        self.position
    }

    /// A second handle of the file that [`Self::data`] gives positions in.
    pub(in crate::source) fn data_file(&self) -> io::Result<File> {
        match &self.body {
            Body::Seekable { file, .. } => file.try_clone(),
            Body::Stream { spool, .. } => spool.file.try_clone(),
        }
    }

    /// Reads the next block; `false` if the archive ends before it.
    pub(in crate::source) fn block(&mut self, block: &mut [u8; BLOCK]) -> Result<bool, Flaw> {
        match self.fill(block)? {
            BLOCK => Ok(true),
            0 => Ok(false),
            _ => Err(Flaw::Truncated("a header")),
        }
    }

    /// Appends `size` bytes and drops what fills their last block. Memory grows with what is really there.
    pub(in crate::source) fn bytes(&mut self, bytes: &mut Vec<u8>, size: u64) -> Result<(), Flaw> {
        let mut block = [0; BLOCK];
        let mut left = size;
        while left > 0 {
            if !self.block(&mut block)? {
                return Err(Flaw::Truncated("an extended header"));
            }
            let count = left.min(BLOCK as u64);
            bytes.extend_from_slice(&block[..count as usize]);
            left -= count;
        }
        Ok(())
    }

    /// Passes over the contents of an entry and says where they can be read later.
    pub(in crate::source) fn data(&mut self, size: u64) -> Result<u64, Flaw> {
        let at = match &mut self.body {
            Body::Seekable { size: archive, .. } => {
                let at = self.position;
                let end = at.checked_add(size).filter(|end| end <= archive);
                self.position = end.ok_or(Flaw::Truncated("the contents of a file"))?;
                at
            }
            Body::Stream { stream, spool } => {
                let at = spool.written;
                let mut left = size;
                while left > 0 {
                    let bytes = stream.available()?;
                    if bytes.is_empty() {
                        return Err(Flaw::Truncated("the contents of a file"));
                    }
                    let count = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    spool.write(&bytes[..count])?;
                    stream.consume(count);
                    left -= count as u64;
                    self.position += count as u64;
                }
                at
            }
        };
        self.skip_padding(size)?;
        Ok(at)
    }

    /// Passes over bytes that nobody wants, up to the end of their last block.
    pub(in crate::source) fn skip(&mut self, size: u64) -> Result<(), Flaw> {
        match &mut self.body {
            Body::Seekable { .. } => {
                self.data(size)?;
            }
            Body::Stream { stream, .. } => {
                let skipped = stream.skip(size)?;
                self.position += skipped;
                if skipped < size {
                    return Err(Flaw::Truncated("the contents of an entry"));
                }
                self.skip_padding(size)?;
            }
        }
        Ok(())
    }

    /// Archives that were cut off inside the last block's padding have all their contents.
    fn skip_padding(&mut self, size: u64) -> Result<(), Flaw> {
        let padding = size.wrapping_neg() % BLOCK as u64;
        match &mut self.body {
            Body::Seekable { size, .. } => self.position = (self.position + padding).min(*size),
            Body::Stream { stream, .. } => self.position += stream.skip(padding)?,
        }
        Ok(())
    }

    /// After the end of the archive: reads what follows, so that a packed stream's own checksum is looked at, and
    /// writes the last of the spool.
    pub(in crate::source) fn finish(self) -> Result<(), Flaw> {
        if let Body::Stream { mut stream, mut spool } = self.body {
            stream.skip(u64::MAX)?;
            spool.flush()?;
        }
        Ok(())
    }

    /// Fills the block as far as there are bytes.
    fn fill(&mut self, block: &mut [u8; BLOCK]) -> Result<usize, Flaw> {
        let mut filled = 0;
        while filled < BLOCK {
            let bytes = match &mut self.body {
                Body::Seekable { file, window, .. } => {
                    window.at(file, self.position).map_err(Flaw::Read)?
                }
                Body::Stream { stream, .. } => stream.available()?,
            };
            let count = bytes.len().min(BLOCK - filled);
            if count == 0 {
                break;
            }
            block[filled..filled + count].copy_from_slice(&bytes[..count]);
            if let Body::Stream { stream, .. } = &mut self.body {
                stream.consume(count);
            }
            filled += count;
            self.position += count as u64;
        }
        Ok(filled)
    }
}

/// A part of a seekable archive in memory.
struct Window {
    bytes: Vec<u8>,
    start: u64,
    next_size: usize,
}

impl Window {
    /// The bytes from `position` on; none at the end of the file.
    fn at(&mut self, file: &File, position: u64) -> io::Result<&[u8]> {
        let end = self.start + self.bytes.len() as u64;
        if !(self.start..end).contains(&position) {
            let is_near = position.checked_sub(end).is_some_and(|gap| gap < WINDOW_MIN as u64);
            self.next_size = match is_near {
                true => (self.next_size * 2).min(WINDOW_MAX),
                false => (self.next_size / 4).max(WINDOW_MIN),
            };
            self.bytes.resize(self.next_size, 0);
            self.start = position;
            let count = read_some_at(file, &mut self.bytes, position)?;
            self.bytes.truncate(count);
        }
        Ok(&self.bytes[(position - self.start) as usize..])
    }
}

fn read_some_at(file: &File, buffer: &mut [u8], position: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, position) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// A reader that runs ahead in a thread of its own.
struct Stream {
    chunks: Receiver<io::Result<Vec<u8>>>,
    /// Chunks that were read go back to be filled again.
    empty: SyncSender<Vec<u8>>,
    chunk: Vec<u8>,
    at: usize,
    ended: bool,
}

impl Stream {
    fn start(reader: Box<dyn Read + Send>) -> Result<Self, Flaw> {
        let (full, chunks) = sync_channel(CHUNKS_AHEAD);
        let (empty, emptied) = sync_channel(CHUNKS_AHEAD + 1);
        // Not joined: after an error it may be waiting for a pipe. It ends when it finds no one listening.
        thread::Builder::new()
            .name("archive".into())
            .spawn(move || read_ahead(reader, &full, &emptied))
            .map_err(Flaw::Read)?;
        Ok(Self { chunks, empty, chunk: Vec::new(), at: 0, ended: false })
    }

    /// The next bytes; none at the end.
    fn available(&mut self) -> Result<&[u8], Flaw> {
        while self.at == self.chunk.len() && !self.ended {
            match self.chunks.recv() {
                Ok(chunk) => {
                    let done = std::mem::replace(&mut self.chunk, chunk.map_err(Flaw::Read)?);
                    // A full channel only means that the chunk is freed instead.
                    drop(self.empty.try_send(done));
                    self.at = 0;
                }
                Err(_) => self.ended = true,
            }
        }
        Ok(&self.chunk[self.at..])
    }

    fn consume(&mut self, count: usize) {
        self.at += count;
    }

    /// Bytes passed over: fewer than `size` only at the end.
    fn skip(&mut self, size: u64) -> Result<u64, Flaw> {
        let mut skipped = 0;
        while skipped < size {
            let bytes = self.available()?.len();
            if bytes == 0 {
                break;
            }
            let count = bytes.min(usize::try_from(size - skipped).unwrap_or(usize::MAX));
            self.consume(count);
            skipped += count as u64;
        }
        Ok(skipped)
    }
}

fn read_ahead(
    mut reader: Box<dyn Read + Send>,
    full: &SyncSender<io::Result<Vec<u8>>>,
    emptied: &Receiver<Vec<u8>>,
) {
    loop {
        let mut chunk = emptied.try_recv().unwrap_or_default();
        chunk.clear();
        chunk.reserve(CHUNK);
        let result = reader.by_ref().take(CHUNK as u64).read_to_end(&mut chunk);
        // What came before an error is good.
        let is_last = result.as_ref().map_or(true, |&count| count == 0);
        if !chunk.is_empty() && full.send(Ok(chunk)).is_err() {
            return;
        }
        if let Err(error) = result {
            drop(full.send(Err(error)));
        }
        if is_last {
            return;
        }
    }
}

/// Contents of a stream, in an unlinked file. Headers are not kept.
struct Spool {
    file: File,
    directory: PathBuf,
    gathered: Vec<u8>,
    /// Gathered bytes included.
    written: u64,
}

impl Spool {
    fn new(directory: &Path) -> Result<Self, Flaw> {
        let directory = match directory.as_os_str().is_empty() {
            true => PathBuf::from("."),
            false => directory.to_owned(),
        };
        let file = tempfile::tempfile_in(&directory)
            .map_err(|source| Flaw::Spool { directory: directory.as_path().into(), source })?;
        Ok(Self { file, directory, gathered: Vec::new(), written: 0 })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Flaw> {
        if self.gathered.len() + bytes.len() > GATHER {
            self.flush()?;
        }
        if bytes.len() >= GATHER {
            (&self.file).write_all(bytes).map_err(|error| self.failed(error))?;
        } else {
            self.gathered.extend_from_slice(bytes);
        }
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Flaw> {
        (&self.file).write_all(&self.gathered).map_err(|error| self.failed(error))?;
        self.gathered.clear();
        Ok(())
    }

    fn failed(&self, source: io::Error) -> Flaw {
        let directory: EntryName = self.directory.as_path().into();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Flaw::SpoolFull { directory, written: self.written }
            }
            _ => Flaw::Spool { directory, source },
        }
    }
}
