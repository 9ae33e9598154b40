//! Reading a spool around the host's page cache.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use extant_device::AlignedBuffer;
use rustix::fs::{Mode, OFlags};

/// Alignment of memory, offsets and lengths for direct requests, sufficient for every disk.
pub(super) const ALIGNMENT: usize = 4096;

/// Bytes read at a time: more with each read that starts near the end of the one before.
const LEAST: usize = 64 << 10;
const MOST: usize = 512 << 10;

/// A second handle of the open file, for requests around the page cache; `None` if the host does
/// not support it.
pub(super) fn reopened_direct(file: &File) -> Option<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok().map(File::from)
}

/// The part of a spool that was read last, for one that reads small files in their order there.
#[derive(Debug)]
pub struct SourcePrefetch {
    buffer: AlignedBuffer,
    /// Which store the bytes are of.
    store: Option<u16>,
    start: u64,
    len: usize,
    next_size: usize,
}

impl Default for SourcePrefetch {
    fn default() -> Self {
        let buffer = AlignedBuffer::new(0, ALIGNMENT);
        Self { buffer, store: None, start: 0, len: 0, next_size: LEAST }
    }
}

impl SourcePrefetch {
    /// Fills `bytes` from `position` of the store's file on.
    pub(super) fn read_exact_at(
        &mut self,
        store: u16,
        file: &File,
        mut bytes: &mut [u8],
        mut position: u64,
    ) -> io::Result<()> {
        while !bytes.is_empty() {
            let known = self.known(store, position);
            if known.is_empty() {
                self.read(store, file, position, bytes.len())?;
                continue;
            }
            let count = known.len().min(bytes.len());
            let (now, later) = bytes.split_at_mut(count);
            now.copy_from_slice(&known[..count]);
            bytes = later;
            position += count as u64;
        }
        Ok(())
    }

    /// The bytes in memory from `position` on.
    fn known(&self, store: u16, position: u64) -> &[u8] {
        let at = position.checked_sub(self.start).filter(|_| self.store == Some(store));
        let at = at.and_then(|at| usize::try_from(at).ok()).filter(|at| *at < self.len);
        at.map_or(&[], |at| &self.buffer[at..self.len])
    }

    /// Reads the bytes around `position`, at least one.
    fn read(&mut self, store: u16, file: &File, position: u64, wanted: usize) -> io::Result<()> {
        let end = self.start + self.len as u64;
        let is_near = self.store == Some(store) && (end..end + LEAST as u64).contains(&position);
        self.next_size = if is_near { (self.next_size * 2).min(MOST) } else { LEAST };
        if self.buffer.is_empty() {
            self.buffer = AlignedBuffer::new(MOST, ALIGNMENT);
        }
        self.start = position - position % ALIGNMENT as u64;
        let before = (position - self.start) as usize;
        let size = (before + wanted).next_multiple_of(ALIGNMENT).max(self.next_size).min(MOST);
        (self.store, self.len) = (Some(store), 0);
        self.len = loop {
            match file.read_at(&mut self.buffer[..size], self.start) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        if self.len <= before { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_testkit::tree::Random;

    #[test]
    fn reads_in_any_order_give_the_files_bytes() {
        let size = 3 * MOST + 777;
        let bytes: Vec<u8> = (0..size).map(|at| (at ^ (at >> 9)) as u8).collect();
        let file = tempfile::tempfile().expect("room for a file");
        file.write_all_at(&bytes, 0).expect("room for the bytes");
        let direct = reopened_direct(&file).unwrap_or(file);
        let mut ahead = SourcePrefetch::default();
        let mut random = Random::new(7);
        let mut below = |end: usize| random.number() as usize % end;
        let mut start = 0;
        for round in 0..500 {
            // Most continue near the end of the last one.
            start = if round % 5 == 0 { below(size) } else { start + below(9000) };
            let mut found = vec![0; 1 + below(if round % 7 == 0 { 2 * MOST } else { 20_000 })];
            let result = ahead.read_exact_at(below(2) as u16, &direct, &mut found, start as u64);
            match bytes.get(start..start + found.len()) {
                Some(expected) => assert!(result.is_ok() && found == expected, "round {round}"),
                None => assert_eq!(
                    result.map_err(|error| error.kind()),
                    Err(io::ErrorKind::UnexpectedEof)
                ),
            }
            start += found.len();
        }
    }
}
