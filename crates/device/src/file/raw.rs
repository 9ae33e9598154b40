//! Positioned, vectored reads and writes that are carried out wholly.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;

use rustix::io::Errno;

/// Buffers the system takes at once: IOV_MAX of Linux.
const BUFFERS_AT_ONCE: usize = 1024;

/// Fills the buffers from `offset` on.
pub(super) fn read_exact_at(
    file: &File,
    buffers: &mut [IoSliceMut<'_>],
    mut offset: u64,
) -> io::Result<()> {
    for group in buffers.chunks_mut(BUFFERS_AT_ONCE) {
        let wanted: usize = group.iter().map(|buffer| buffer.len()).sum();
        let mut done = retry(|| rustix::io::preadv(file, group, offset))?;
        if done < wanted {
            // This is rare: the rest is read in slices of its own so that the caller's keep their
            // lengths.
            let mut own: Vec<_> = group.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
            let mut left = own.as_mut_slice();
            IoSliceMut::advance_slices(&mut left, done);
            while done < wanted {
                let count = retry(|| rustix::io::preadv(file, left, offset + done as u64))?;
                if count == 0 {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the file became shorter",
                    ));
                }
                done += count;
                IoSliceMut::advance_slices(&mut left, count);
            }
        }
        offset += wanted as u64;
    }
    Ok(())
}

/// Writes the buffers at `offset`.
pub(super) fn write_all_at(
    file: &File,
    buffers: &[IoSlice<'_>],
    mut offset: u64,
) -> io::Result<()> {
    for group in buffers.chunks(BUFFERS_AT_ONCE) {
        let wanted: usize = group.iter().map(|buffer| buffer.len()).sum();
        let mut done = retry(|| rustix::io::pwritev(file, group, offset))?;
        if done < wanted {
            let mut own = group.to_vec();
            let mut left = own.as_mut_slice();
            IoSlice::advance_slices(&mut left, done);
            while done < wanted {
                let count = retry(|| rustix::io::pwritev(file, left, offset + done as u64))?;
                if count == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                done += count;
                IoSlice::advance_slices(&mut left, count);
            }
        }
        offset += wanted as u64;
    }
    Ok(())
}

/// Makes the system begin to write the cached pages of a range, and does not wait for it. A hint:
/// the rest is written when the file is flushed.
#[allow(unsafe_code)]
pub(super) fn start_writing(file: &File, offset: u64, length: u64) {
    let (Ok(offset), Ok(length)) = (offset.try_into(), length.try_into()) else { return };
    // SAFETY: sync_file_range(2) takes numbers alone and touches no memory of ours; the descriptor
    // is open as long as `file` is.
    let _ = unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset, length, libc::SYNC_FILE_RANGE_WRITE)
    };
}

fn retry(mut call: impl FnMut() -> Result<usize, Errno>) -> io::Result<usize> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}
