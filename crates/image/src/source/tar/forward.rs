//! A stream that is read once, from front to back, while one thread reads or unpacks it ahead.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::thread;

use crossbeam::channel::{Receiver, Sender, bounded};

use super::super::error::Flaw;
use super::spool::fill;

/// Bytes taken in at a time.
const CHUNK: usize = 256 * 1024;
/// Number of chunks that are read ahead.
const AHEAD: usize = 16;

/// The end of a stream as far as it is known, and the bytes that were not passed yet.
pub(super) struct Forward {
    chunks: Receiver<io::Result<Vec<u8>>>,
    /// With the position of the first byte of each, oldest first.
    known: VecDeque<(u64, Vec<u8>)>,
    /// Bytes taken in.
    received: u64,
    has_ended: bool,
}

impl Forward {
    /// Starts to read.
    pub(super) fn start(reader: Box<dyn Read + Send>) -> Result<Self, Flaw> {
        let (to_us, chunks) = bounded(AHEAD);
        // The thread is not joined: it may be waiting for a pipe. It ends when data arrive.
        let thread = thread::Builder::new().name("archive".into());
        thread.spawn(move || take_in(reader, &to_us)).map_err(Flaw::Read)?;
        Ok(Self { chunks, known: VecDeque::new(), received: 0, has_ended: false })
    }

    /// Waits until the first `end` bytes were taken in, or all there are; returns how many were.
    /// Those before `position` are dropped.
    pub(super) fn wait_for(&mut self, position: u64, end: u64) -> Result<u64, Flaw> {
        loop {
            while self.known.front().is_some_and(|chunk| chunk_end(chunk) <= position) {
                self.known.pop_front();
            }
            if self.received >= end || self.has_ended {
                return Ok(self.received);
            }
            match self.chunks.recv() {
                Ok(Ok(bytes)) => {
                    let start = self.received;
                    self.received += bytes.len() as u64;
                    self.known.push_back((start, bytes));
                }
                Ok(Err(error)) => {
                    self.has_ended = true;
                    return Err(Flaw::Read(error));
                }
                Err(_) => self.has_ended = true,
            }
        }
    }

    /// Copies some of the bytes from `position` on that were taken in.
    pub(super) fn read_at(&self, buffer: &mut [u8], position: u64) -> usize {
        let known = |chunk: &&(u64, Vec<u8>)| (chunk.0..chunk_end(chunk)).contains(&position);
        let Some((start, bytes)) = self.known.iter().find(known) else { return 0 };
        let bytes = &bytes[(position - start) as usize..];
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        count
    }

    /// Takes in the rest.
    pub(super) fn finish(&mut self) -> Result<(), Flaw> {
        self.wait_for(u64::MAX, u64::MAX).map(drop)
    }
}

fn chunk_end((start, bytes): &(u64, Vec<u8>)) -> u64 {
    start + bytes.len() as u64
}

fn take_in(mut reader: Box<dyn Read + Send>, to: &Sender<io::Result<Vec<u8>>>) {
    loop {
        let mut bytes = vec![0; CHUNK];
        let (len, read) = fill(&mut *reader, &mut bytes);
        bytes.truncate(len);
        // The receiver may have given up.
        if len > 0 && to.send(Ok(bytes)).is_err() {
            return;
        }
        match read {
            Err(error) => {
                let _ = to.send(Err(error));
                return;
            }
            Ok(()) if len < CHUNK => return,
            Ok(()) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_were_passed_are_dropped_and_those_before_an_error_are_given() {
        struct Dead;
        impl Read for Dead {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("the line went dead"))
            }
        }
        let bytes: Vec<u8> = (0..CHUNK * 3 + 77).map(|at| (at ^ (at >> 8)) as u8).collect();
        let reader = Box::new(io::Cursor::new(bytes.clone()).chain(Dead));
        let mut forward = Forward::start(reader).expect("it starts");
        let mut at = 0;
        while at < bytes.len() {
            let there = forward.wait_for(at as u64, at as u64 + 1).expect("no error yet");
            assert!(there > at as u64);
            let mut buffer = [0; 70_001];
            let count = forward.read_at(&mut buffer, at as u64);
            assert!(count > 0 && buffer[..count] == bytes[at..at + count], "{at}");
            assert!(forward.known.len() <= 2, "{}", forward.known.len());
            at += count;
        }
        let end = at as u64;
        assert!(matches!(forward.wait_for(end, end + 1), Err(Flaw::Read(_))));
        assert_eq!(forward.wait_for(end, end + 1).expect("told before"), end);
    }
}
