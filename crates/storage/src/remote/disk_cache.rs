//! Pages of an object in a file of this machine, so that a later command does not fetch them again.
//!
//! The file has a name by the URL and the ETag: an object that changed has another file. It is
//! sparse: a header of 4096 bytes, for each page a checksum of 8 bytes (0 where the page is not
//! kept), and from the next multiple of 4096 on the pages at their places. A page whose checksum
//! does not fit, as after a power cut, is fetched again.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crc_fast::{CrcAlgorithm, checksum};
use extant_device::{Device, DeviceError, Request, check_batch, run_reads};
use sha2::{Digest, Sha256};

use super::error::RemoteError;
use crate::far::PAGE;

const HEADER: u64 = 4096;
const MAGIC: &[u8; 16] = b"extant pages 1\n\0";

/// A device with pages of it in a file.
#[derive(Debug)]
pub(super) struct DiskCache {
    inner: Arc<dyn Device>,
    file: File,
    /// Where the pages begin in the file.
    pages_at: u64,
}

/// The file for an object.
pub(super) fn file_name(place: &str, tag: &str) -> String {
    let mut hash = Sha256::new();
    hash.update((place.len() as u64).to_le_bytes());
    hash.update(place);
    hash.update(tag);
    let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{hex}.pages")
}

impl DiskCache {
    /// The pages of `inner`, which is the object with this place and tag, in a file in `directory`.
    ///
    /// # Errors
    /// The file was not opened.
    pub(super) fn open(
        inner: Arc<dyn Device>,
        directory: &Path,
        place: &str,
        tag: &str,
    ) -> Result<Self, RemoteError> {
        let path = directory.join(file_name(place, tag));
        let failed = |path: &PathBuf, error: io::Error| RemoteError::Cache {
            path: path.display().to_string(),
            error: error.kind().to_string(),
        };
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|error| failed(&directory.to_owned(), error))?;
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).mode(0o600);
        let file = options.open(&path).map_err(|error| failed(&path, error))?;
        let count = inner.size().div_ceil(PAGE);
        let pages_at = (HEADER + count * 8).next_multiple_of(HEADER);
        let cache = Self { inner, file, pages_at };
        cache.begin().map_err(|error| failed(&path, error))?;
        Ok(cache)
    }

    /// Writes the header of a file that is new, or has another one.
    fn begin(&self) -> io::Result<()> {
        let mut header = [0; 32];
        header[..16].copy_from_slice(MAGIC);
        header[16..24].copy_from_slice(&self.inner.size().to_le_bytes());
        header[24..].copy_from_slice(&PAGE.to_le_bytes());
        let mut found = [0; 32];
        let is_read = self.file.read_exact_at(&mut found, 0).is_ok();
        if !is_read || found != header {
            self.file.set_len(0)?;
            self.file.write_all_at(&header, 0)?;
        }
        let size = self.pages_at + self.inner.size();
        if self.file.metadata()?.len() < size {
            self.file.set_len(size)?;
        }
        Ok(())
    }

    /// A page of the file; false where it does not have it.
    fn get(&self, page: u64, to: &mut [u8]) -> bool {
        let mut sum = [0; 8];
        let is_kept = self.file.read_exact_at(&mut sum, HEADER + page * 8).is_ok() && sum != [0; 8];
        is_kept
            && self.file.read_exact_at(to, self.pages_at + page * PAGE).is_ok()
            && sum_of(to) == sum
    }

    fn put(&self, page: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.pages_at + page * PAGE)?;
        self.file.write_all_at(&sum_of(bytes), HEADER + page * 8)
    }

    /// The pages that lie in a range as a whole.
    fn pages(&self, range: &Range<u64>) -> Range<u64> {
        let end = if range.end == self.inner.size() {
            range.end.div_ceil(PAGE)
        } else {
            range.end / PAGE
        };
        range.start.div_ceil(PAGE)..end
    }

    /// Reads a range: pages that the file has, and what is between them from the device.
    fn read(&self, range: Range<u64>, to: &mut [u8]) -> Result<(), DeviceError> {
        let bytes_of = |page: u64| page * PAGE..((page + 1) * PAGE).min(self.inner.size());
        let pages = self.pages(&range);
        let mut missing: Vec<Range<u64>> = Vec::new();
        let mut miss = |part: Range<u64>| match missing.last_mut() {
            _ if part.is_empty() => {}
            Some(last) if last.end == part.start => last.end = part.end,
            _ => missing.push(part),
        };
        let mut at = range.start;
        for page in pages.clone() {
            let place = bytes_of(page);
            miss(at..place.start);
            at = place.end;
            let within = (place.start - range.start) as usize..(place.end - range.start) as usize;
            if !self.get(page, &mut to[within]) {
                miss(place);
            }
        }
        miss(at..range.end);
        for part in &missing {
            let within = (part.start - range.start) as usize..(part.end - range.start) as usize;
            self.inner.read_at(part.start, &mut to[within])?;
        }
        for page in missing.iter().flat_map(|part| self.pages(part)) {
            let place = bytes_of(page);
            let within = (place.start - range.start) as usize..(place.end - range.start) as usize;
            if let Err(error) = self.put(page, &to[within]) {
                // A full disk: the bytes are there all the same.
                tracing::debug!(%error, "a page is not kept");
                break;
            }
        }
        Ok(())
    }
}

/// The checksum of a page, never 0.
fn sum_of(bytes: &[u8]) -> [u8; 8] {
    checksum(CrcAlgorithm::Crc64Nvme, bytes).max(1).to_le_bytes()
}

impl Device for DiskCache {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        check_batch(self, batch)?;
        run_reads(batch, |offset, buffer| self.read(offset..offset + buffer.len() as u64, buffer))
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        self.inner.next_data(range)
    }

    fn is_read_only(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_device::MemoryDevice;

    #[test]
    fn pages_are_kept_and_damaged_ones_are_fetched_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let size = 3 * PAGE + 100;
        let memory = Arc::new(MemoryDevice::new(size));
        memory.write_at(0, &vec![1; size as usize]).expect("memory");
        let open = |tag| {
            DiskCache::open(memory.clone(), directory.path(), "https://h/o", tag).expect("opened")
        };
        let mut bytes = vec![0; size as usize];
        open("\"a\"").read_at(0, &mut bytes).expect("read");
        assert!(bytes.iter().all(|byte| *byte == 1));
        // From now on the file alone has ones.
        memory.write_at(0, &vec![2; size as usize]).expect("memory");
        let mut found = vec![0; 2 * PAGE as usize];
        open("\"a\"").read_at(5, &mut found).expect("read");
        assert!(found[PAGE as usize..][..PAGE as usize - 5].iter().all(|byte| *byte == 1));
        assert_eq!((found[0], found[2 * PAGE as usize - 1]), (2, 2));
        let path = directory.path().join(file_name("https://h/o", "\"a\""));
        let file = OpenOptions::new().write(true).open(path).expect("there");
        file.write_all_at(&[9], HEADER + PAGE + 7).expect("damaged");
        open("\"a\"").read_at(0, &mut bytes).expect("read");
        assert!(bytes[..PAGE as usize].iter().all(|byte| *byte == 2));
        assert!(bytes[PAGE as usize..].iter().all(|byte| *byte == 1));
        open("\"b\"").read_at(0, &mut bytes).expect("read");
        assert!(bytes.iter().all(|byte| *byte == 2));
    }
}
