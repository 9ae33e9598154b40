//! Copies of some blocks of a device, each at its place: what e2image writes with `-ra`, `-r` and
//! `-Q`. Which blocks those are, the caller says.

mod qcow2;

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use extant_device::{Device, DeviceError};
use extant_layout::RunSet;

pub use qcow2::clone_to_qcow2;

/// Bytes that are read at once.
const PIECE: u64 = 1 << 20;

/// Blocks of a device.
#[derive(Clone, Copy)]
pub struct CloneSource<'a> {
    /// The device that is read.
    pub device: &'a dyn Device,
    /// Bytes of a block.
    pub block_size: u32,
    /// Numbers of the blocks.
    pub blocks: &'a RunSet,
    /// Bytes of the volume, which a copy is as long as.
    pub size: u64,
    /// Called with the number of blocks that are done.
    pub on_progress: &'a dyn Fn(u64),
}

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum CloneError {
    /// A block cannot be read.
    #[error("cannot read block {block}: {cause}")]
    Source {
        /// Its number.
        block: u64,
        /// The device's error.
        cause: DeviceError,
    },
    /// The copy cannot be written to a device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The copy cannot be written.
    #[error("cannot write: {0}")]
    Target(#[from] io::Error),
    /// The device that the copy is written to is too small.
    #[error("{needed} bytes do not fit into {size}")]
    TooSmall {
        /// Bytes of the copy with its offset.
        needed: u64,
        /// Bytes of the device.
        size: u64,
    },
}

/// Writes into a new file, which is sparse: blocks of zeros and those that are not copied are
/// holes.
///
/// # Errors
/// The device or the file failed.
pub fn clone_to_new_file(source: CloneSource<'_>, file: &File) -> Result<(), CloneError> {
    file.set_len(source.size)?;
    source.for_each(&mut |at, bytes| match bytes {
        Bytes::Data(bytes) => Ok(file.write_all_at(bytes, at)?),
        Bytes::Zeros(_) => Ok(()),
    })
}

/// Writes to a device at `offset`, in bytes. Nothing else of it is changed. With `skips_equal`
/// blocks that it has already are not written; the result is their number.
///
/// # Errors
/// One of the devices failed, or it is too small.
pub fn clone_to_device(
    source: CloneSource<'_>,
    target: &dyn Device,
    offset: u64,
    skips_equal: bool,
) -> Result<u64, CloneError> {
    let (needed, size) = (offset.saturating_add(source.size), target.size());
    if needed > size {
        return Err(CloneError::TooSmall { needed, size });
    }
    let block_size = source.block_size as usize;
    let mut equal = 0;
    source.for_each(&mut |at, bytes| {
        let at = offset + at;
        if !skips_equal {
            match bytes {
                Bytes::Data(bytes) => target.write_at(at, bytes)?,
                Bytes::Zeros(len) => target.write_zeroes(at..at + len)?,
            }
            return Ok(());
        }
        let zeros;
        let bytes = match bytes {
            Bytes::Data(bytes) => bytes,
            // A piece at most.
            Bytes::Zeros(len) => {
                zeros = vec![0; len as usize];
                &zeros
            }
        };
        let mut old = vec![0; bytes.len()];
        target.read_at(at, &mut old)?;
        let blocks = bytes.chunks(block_size).zip(old.chunks(block_size));
        for (index, (new, old)) in blocks.enumerate() {
            match new == old {
                true => equal += 1,
                false => target.write_at(at + (index * block_size) as u64, new)?,
            }
        }
        Ok(())
    })?;
    target.flush()?;
    Ok(equal)
}

/// Writes all of the volume in order. What is not copied is written as zeros.
///
/// # Errors
/// The device failed, or the reader has gone.
pub fn clone_to_stream(source: CloneSource<'_>, out: &mut dyn Write) -> Result<(), CloneError> {
    let mut written = 0;
    source.for_each(&mut |at, bytes| {
        write_zeros(out, at - written)?;
        let len = match bytes {
            Bytes::Data(bytes) => {
                out.write_all(bytes)?;
                bytes.len() as u64
            }
            Bytes::Zeros(len) => {
                write_zeros(out, len)?;
                len
            }
        };
        written = at + len;
        Ok(())
    })?;
    write_zeros(out, source.size - written)?;
    Ok(out.flush()?)
}

/// Calls `visit` for the number of each block that is copied and is not zeros.
///
/// # Errors
/// The device failed, or `visit`.
pub fn list_clone(
    source: CloneSource<'_>,
    visit: &mut dyn FnMut(u64) -> io::Result<()>,
) -> Result<(), CloneError> {
    let block_size = u64::from(source.block_size);
    source.for_each(&mut |at, bytes| {
        if let Bytes::Data(bytes) = bytes {
            let first = at / block_size;
            for block in first..first + bytes.len() as u64 / block_size {
                visit(block)?;
            }
        }
        Ok(())
    })
}

/// The contents of successive blocks.
enum Bytes<'a> {
    Data(&'a [u8]),
    /// This many bytes.
    Zeros(u64),
}

type Put<'a> = &'a mut dyn FnMut(u64, Bytes<'_>) -> Result<(), CloneError>;

impl CloneSource<'_> {
    /// Calls `put` with successive blocks of one kind and their bytes, in order.
    fn for_each(&self, put: Put<'_>) -> Result<(), CloneError> {
        let block_size = u64::from(self.block_size);
        let end = self.size / block_size;
        let mut done = 0;
        let mut buffer = Vec::new();
        for run in self.blocks.runs_in(0..end) {
            for piece in pieces(run, PIECE / block_size) {
                // A piece at most.
                buffer.resize(((piece.end - piece.start) * block_size) as usize, 0);
                self.read(&piece, &mut buffer)?;
                let mut at = piece.start * block_size;
                let blocks: Vec<&[u8]> = buffer.chunks(block_size as usize).collect();
                let mut rest = &buffer[..];
                for alike in blocks.chunk_by(|one, other| is_zeros(one) == is_zeros(other)) {
                    let (bytes, after) = rest.split_at(alike.len() * block_size as usize);
                    rest = after;
                    let len = bytes.len() as u64;
                    put(
                        at,
                        if is_zeros(alike[0]) { Bytes::Zeros(len) } else { Bytes::Data(bytes) },
                    )?;
                    at += len;
                }
                done += piece.end - piece.start;
                (self.on_progress)(done);
            }
        }
        Ok(())
    }

    /// Reads blocks; after an error one by one, so that the error names the right one.
    fn read(&self, piece: &Range<u64>, buffer: &mut [u8]) -> Result<(), CloneError> {
        let block_size = u64::from(self.block_size);
        if self.device.read_at(piece.start * block_size, buffer).is_ok() {
            return Ok(());
        }
        for (block, bytes) in piece.clone().zip(buffer.chunks_mut(self.block_size as usize)) {
            let read = self.device.read_at(block * block_size, bytes);
            read.map_err(|cause| CloneError::Source { block, cause })?;
        }
        Ok(())
    }
}

/// A run in pieces of at most `blocks` blocks.
fn pieces(run: Range<u64>, blocks: u64) -> impl Iterator<Item = Range<u64>> {
    let end = run.end;
    run.step_by(blocks as usize).map(move |start| start..end.min(start + blocks))
}

fn is_zeros(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn write_zeros(out: &mut dyn Write, len: u64) -> io::Result<()> {
    io::copy(&mut io::Read::take(io::repeat(0), len), out).map(drop)
}
