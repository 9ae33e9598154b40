//! The bytes of an archive from front to back: headers are read, contents are left where they are.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::super::error::Flaw;
use super::super::store::Store;
use super::forward::Forward;
use super::spool::Spool;

/// The unit of the format.
pub(in crate::source) const BLOCK: usize = 512;

/// Bytes read at a time: few while large contents are skipped, many in a run of headers.
const WINDOW_MIN: usize = 4096;
const WINDOW_MAX: usize = 256 * 1024;

/// An archive that is being read. Positions are bytes of the unpacked archive.
pub(in crate::source) struct Input {
    position: u64,
    body: Body,
    window: Window,
}

enum Body {
    Seekable {
        file: File,
        size: u64,
    },
    Spooled(Spool),
    /// Read once: what was passed is gone.
    Forward(Forward),
}

impl Body {
    /// The number of bytes, waiting for `end` of them if more are to come. The reader is at
    /// `position` and does not go back.
    fn size(&mut self, position: u64, end: u64) -> Result<u64, Flaw> {
        match self {
            Self::Seekable { size, .. } => Ok(*size),
            Self::Spooled(spool) => spool.wait_for(end),
            Self::Forward(forward) => forward.wait_for(position, end),
        }
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        loop {
            let result = match self {
                Self::Seekable { file, .. } => file.read_at(buffer, position),
                Self::Spooled(spool) => spool.read_at(buffer, position),
                Self::Forward(forward) => Ok(forward.read_at(buffer, position)),
            };
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

impl Input {
    /// A file that can be read by position; contents stay in it.
    pub(in crate::source) fn seekable(file: File, size: u64) -> Self {
        Self::new(Body::Seekable { file, size })
    }

    /// A stream: it is unpacked into an unlinked file in `directory`.
    pub(in crate::source) fn stream(
        reader: Box<dyn Read + Send>,
        directory: &Path,
    ) -> Result<Self, Flaw> {
        Ok(Self::new(Body::Spooled(Spool::start(reader, directory)?)))
    }

    /// A stream that is read once, from front to back: nothing is stored.
    pub(in crate::source) fn forward(reader: Box<dyn Read + Send>) -> Result<Self, Flaw> {
        Ok(Self::new(Body::Forward(Forward::start(reader)?)))
    }

    fn new(body: Body) -> Self {
        let window = Window { bytes: Vec::new(), start: 0, next_size: WINDOW_MIN };
        Self { position: 0, body, window }
    }

    /// Seeks to the first byte.
    pub(in crate::source) fn rewind(&mut self) {
        self.position = 0;
    }

    /// Where the next byte lies.
    pub(in crate::source) const fn position(&self) -> u64 {
        self.position
    }

    /// Number of bytes of the archive; `None` of a stream.
    pub(in crate::source) const fn size(&self) -> Option<u64> {
        match &self.body {
            Body::Seekable { size, .. } => Some(*size),
            Body::Spooled(_) | Body::Forward(_) => None,
        }
    }

    /// The file that [`Self::data`] gives positions in, as the store of the name.
    pub(in crate::source) fn store(&self, name: &str) -> io::Result<Store> {
        let (file, direct) = match &self.body {
            Body::Seekable { file, .. } => (file, None),
            Body::Spooled(spool) => (&spool.file, spool.direct.as_ref()),
            Body::Forward(_) => return Err(io::ErrorKind::NotSeekable.into()),
        };
        let direct = direct.map(File::try_clone).transpose()?;
        Ok(Store::Archive { name: name.to_owned(), file: file.try_clone()?, direct })
    }

    /// Reads the next block; `false` if the archive ends before it.
    pub(in crate::source) fn block(&mut self, block: &mut [u8; BLOCK]) -> Result<bool, Flaw> {
        match self.fill(block)? {
            BLOCK => Ok(true),
            0 => Ok(false),
            _ => Err(Flaw::Truncated("a header")),
        }
    }

    /// Appends `size` bytes and drops the padding of their last block. Memory grows with the bytes
    /// that arrive.
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

    /// Skips the contents of an entry and returns where they can be read later, unless the archive
    /// is read once.
    pub(in crate::source) fn data(&mut self, size: u64) -> Result<u64, Flaw> {
        let at = self.position;
        self.pass(size)?;
        self.pad(size)?;
        Ok(at)
    }

    /// Skips contents of an entry.
    pub(in crate::source) fn pass(&mut self, size: u64) -> Result<(), Flaw> {
        let at = self.position;
        let truncated = || Flaw::Truncated("the contents of a file");
        let end = at.checked_add(size).ok_or_else(truncated)?;
        if matches!(self.body, Body::Forward(_)) {
            while self.position < end {
                let next = end.min(self.position + WINDOW_MAX as u64);
                if next > self.body.size(self.position, next)? {
                    return Err(truncated());
                }
                self.position = next;
            }
        } else if end > self.body.size(at, end)? {
            return Err(truncated());
        }
        self.position = end;
        Ok(())
    }

    /// Skips the rest of the last block of an entry's contents.
    pub(in crate::source) fn pad(&mut self, size: u64) -> Result<(), Flaw> {
        // Archives that were cut off inside the last block's padding have all their contents.
        let padding = size.wrapping_neg() % BLOCK as u64;
        let end = self.position.saturating_add(padding);
        self.position = end.min(self.body.size(self.position, end)?);
        Ok(())
    }

    /// Reads contents of an entry: all of `buffer`.
    pub(in crate::source) fn contents(&mut self, buffer: &mut [u8]) -> Result<(), Flaw> {
        let mut filled = 0;
        while filled < buffer.len() {
            let rest = &mut buffer[filled..];
            let count = if rest.len() >= WINDOW_MAX && !self.window.has(self.position) {
                self.body.size(self.position, self.position.saturating_add(1))?;
                self.body.read_at(rest, self.position).map_err(Flaw::Read)?
            } else {
                let bytes = self.window.at(&mut self.body, self.position)?;
                let count = bytes.len().min(rest.len());
                rest[..count].copy_from_slice(&bytes[..count]);
                count
            };
            if count == 0 {
                return Err(Flaw::Truncated("the contents of a file"));
            }
            filled += count;
            self.position += count as u64;
        }
        Ok(())
    }

    /// Skips bytes, up to the end of their last block.
    pub(in crate::source) fn skip(&mut self, size: u64) -> Result<(), Flaw> {
        self.data(size).map(drop)
    }

    /// After the end of the archive: reads the rest, so that a packed stream's own checksum is
    /// verified.
    pub(in crate::source) fn finish(&mut self) -> Result<(), Flaw> {
        match &mut self.body {
            Body::Seekable { .. } => Ok(()),
            Body::Spooled(spool) => spool.finish(),
            Body::Forward(forward) => forward.finish(),
        }
    }

    /// Fills the block as far as there are bytes.
    fn fill(&mut self, block: &mut [u8; BLOCK]) -> Result<usize, Flaw> {
        let mut filled = 0;
        while filled < BLOCK {
            let bytes = self.window.at(&mut self.body, self.position)?;
            let count = bytes.len().min(BLOCK - filled);
            if count == 0 {
                break;
            }
            block[filled..filled + count].copy_from_slice(&bytes[..count]);
            filled += count;
            self.position += count as u64;
        }
        Ok(filled)
    }
}

/// A part of an archive in memory.
struct Window {
    bytes: Vec<u8>,
    start: u64,
    next_size: usize,
}

impl Window {
    const fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Whether the byte at `position` is in memory.
    fn has(&self, position: u64) -> bool {
        (self.start..self.end()).contains(&position)
    }

    /// The bytes from `position` on; none at the end of the file.
    fn at(&mut self, body: &mut Body, position: u64) -> Result<&[u8], Flaw> {
        if !self.has(position) {
            let end = self.end();
            let is_near = position.checked_sub(end).is_some_and(|gap| gap < WINDOW_MIN as u64);
            self.next_size = match is_near {
                true => (self.next_size * 2).min(WINDOW_MAX),
                false => (self.next_size / 4).max(WINDOW_MIN),
            };
            // The bytes of a stream that have arrived, at least a block.
            let least = position.saturating_add(BLOCK as u64);
            let there = body.size(position, least)?.saturating_sub(position);
            let most = usize::try_from(there).unwrap_or(usize::MAX).min(self.next_size);
            self.bytes.resize(most, 0);
            self.start = position;
            let count = body.read_at(&mut self.bytes, position).map_err(Flaw::Read)?;
            self.bytes.truncate(count);
        }
        Ok(&self.bytes[(position - self.start) as usize..])
    }
}
