//! An enciphered device, as dm-crypt shows it: plain, or described by a LUKS1 or LUKS2 header.
//!
//! Sources: the kernel's documentation of dm-crypt, "LUKS1 On-Disk Format Specification" 1.2.3,
//! "LUKS2 On-Disk Format Specification" 1.1.1, and cryptsetup(8). Keys are in memory that is wiped
//! when they are dropped.

mod cipher;
mod cost;
mod digest;
mod error;
mod luks1;
mod luks2;
mod mapping;

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use zeroize::Zeroizing;

use cost::Budget;
use extant_device::{
    Device, Request, RequestKind, RequestStatus, check_batch, check_range, run_batch,
};
use extant_device::{DeviceError, Operation};
use extant_runtime::sync::Mutex;
use extant_runtime::sync::atomic::{AtomicU64, Ordering};
use mapping::Mapping;

pub use cipher::{CipherSpec, Iv, Mode, SectorCipher};
pub use cost::Limits;
pub use digest::Hash;
pub use error::CryptError;

/// Bytes of a batch's writes that are enciphered before the first of them goes out.
const BATCH_BYTES: u64 = 4 << 20;
/// Bytes that a longer request is done by.
const PIECE: usize = 1 << 20;

/// A plain device: nothing on it describes its cipher.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Plain {
    /// The cipher.
    pub cipher: CipherSpec,
    /// Bits of key; the cipher's default otherwise.
    pub key_bits: Option<u32>,
    /// The derivation of a key from a passphrase; without one, the first bytes of the passphrase
    /// are the key.
    pub hash: Option<Hash>,
    /// Added to the number of each sector of 512 bytes: cryptsetup's `--skip`.
    pub skip: u64,
    /// Bytes a sector: 512 to 4096.
    pub sector_size: u32,
    /// Counts initial vectors in whole sectors, not in 512 bytes.
    pub iv_large_sectors: bool,
}

impl Plain {
    /// A cipher with cryptsetup's defaults, and the key taken as it is.
    pub fn new(cipher: CipherSpec) -> Self {
        Self {
            cipher,
            key_bits: None,
            hash: None,
            skip: 0,
            sector_size: 512,
            iv_large_sectors: false,
        }
    }
}

/// A device whose bytes are enciphered on another.
pub struct CryptDevice {
    inner: Arc<dyn Device>,
    start: u64,
    /// It only gets longer.
    size: AtomicU64,
    /// Whether it takes all of the device below.
    takes_rest: bool,
    cipher: SectorCipher,
    iv_offset: u64,
    passes_discards: bool,
    /// Locked while a part of a sector is changed: the rest of it is read before.
    edges: Mutex<()>,
}

impl fmt::Debug for CryptDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CryptDevice")
            .field("inner", &self.inner)
            .field("start", &self.start)
            .field("size", &self.size())
            .field("cipher", &self.cipher)
            .finish_non_exhaustive()
    }
}

impl CryptDevice {
    /// A plain device. `secret` is a key or a passphrase, depending on [`Plain::hash`].
    ///
    /// # Errors
    /// The key does not fit the cipher.
    pub fn plain(inner: Arc<dyn Device>, plain: &Plain, secret: &[u8]) -> Result<Self, CryptError> {
        let bits = plain.key_bits.unwrap_or(plain.cipher.default_key_bits());
        if !bits.is_multiple_of(8) || bits > 512 {
            return Err(CryptError::Unsupported(format!("keys of {bits} bits")));
        }
        let needed = bits as usize / 8;
        let key = match plain.hash {
            Some(hash) => hash.plain_key(secret, needed),
            None if secret.len() < needed => {
                return Err(CryptError::ShortKey { found: secret.len(), needed });
            }
            None => Zeroizing::new(secret[..needed].to_vec()),
        };
        let (sector, large) = (plain.sector_size, plain.iv_large_sectors);
        let cipher = SectorCipher::new(plain.cipher, &key, sector, large)?;
        if !plain.skip.is_multiple_of(cipher.iv_unit()) {
            return Err(CryptError::Unsupported("skip inside a sector".to_owned()));
        }
        Self::new(inner, Mapping { start: 0, size: None, cipher, iv_offset: plain.skip })
    }

    /// A device with a LUKS1 or LUKS2 header. `passphrase` opens one of its key slots.
    ///
    /// # Errors
    /// There is no such header, it is damaged or beyond us, or the passphrase opens no slot.
    pub fn luks(inner: Arc<dyn Device>, passphrase: &[u8]) -> Result<Self, CryptError> {
        Self::luks_within(inner, passphrase, &Limits::default())
    }

    /// As [`CryptDevice::luks`], with other limits of what it may cost.
    ///
    /// # Errors
    /// The same.
    pub fn luks_within(
        inner: Arc<dyn Device>,
        passphrase: &[u8],
        limits: &Limits,
    ) -> Result<Self, CryptError> {
        let mut budget = Budget::new(limits);
        let mut start = [0; 8];
        if inner.size() >= start.len() as u64 && inner.read_at(0, &mut start).is_err() {
            // A LUKS2 header has a second copy; without it, the failure occurs again.
            start.fill(0);
        }
        let mapping = match start {
            [b'L', b'U', b'K', b'S', 0xba, 0xbe, 0, 1] => {
                luks1::open(&*inner, passphrase, &mut budget)?
            }
            _ => match luks2::open(&*inner, passphrase, &mut budget)? {
                Some(mapping) => mapping,
                None if start.starts_with(luks1::MAGIC) => {
                    let version = u16::from_be_bytes([start[6], start[7]]);
                    return Err(CryptError::Unsupported(format!("LUKS version {version}")));
                }
                None if start.starts_with(luks1::BEING_REENCRYPTED) => {
                    let what = "a LUKS1 header with reencryption in progress";
                    return Err(CryptError::Unsupported(what.to_owned()));
                }
                None => return Err(CryptError::NoHeader),
            },
        };
        Self::new(inner, mapping)
    }

    fn new(inner: Arc<dyn Device>, mapping: Mapping) -> Result<Self, CryptError> {
        let Mapping { start, size, cipher, iv_offset } = mapping;
        let whole = inner.size();
        let rest =
            whole.checked_sub(start).ok_or(CryptError::OutOfDevice { start, size: whole })?;
        let takes_rest = size.is_none();
        let size = match size {
            Some(size) if size > rest => {
                return Err(CryptError::OutOfDevice {
                    start: start.saturating_add(size),
                    size: whole,
                });
            }
            Some(size) => size,
            None => rest,
        };
        let size = size - size % cipher.sector() as u64;
        let edges = Mutex::new(());
        Ok(Self {
            inner,
            start,
            size: AtomicU64::new(size),
            takes_rest,
            cipher,
            iv_offset,
            passes_discards: false,
            edges,
        })
    }

    /// Whether discards reach the device below. They reveal there which sectors are free; dm-crypt
    /// passes them only with an option.
    pub fn pass_discards(mut self, pass: bool) -> Self {
        self.passes_discards = pass;
        self
    }

    /// Where the data begins on the device below, in bytes.
    pub fn start(&self) -> u64 {
        self.start
    }

    fn iv(&self, offset: u64) -> u64 {
        (offset / cipher::IV_SECTOR).wrapping_add(self.iv_offset) / self.cipher.iv_unit()
    }

    fn outward(&self, mut error: DeviceError) -> DeviceError {
        error.offset = error.offset.saturating_sub(self.start);
        error
    }

    fn is_whole(&self, number: u64) -> bool {
        number.is_multiple_of(self.cipher.sector() as u64)
    }

    /// Whole sectors around a range.
    fn around(&self, range: Range<u64>) -> Range<u64> {
        let sector = self.cipher.sector() as u64;
        range.start / sector * sector..range.end.next_multiple_of(sector)
    }

    fn read_sectors(&self, offset: u64, to: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read_at(self.start + offset, to).map_err(|error| self.outward(error))?;
        self.cipher.decrypt(self.iv(offset), to);
        Ok(())
    }

    /// Enciphers whole sectors in place and writes them.
    fn write_sectors(&self, offset: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.cipher.encrypt(self.iv(offset), bytes);
        self.inner.write_at(self.start + offset, bytes).map_err(|error| self.outward(error))
    }

    fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), DeviceError> {
        if self.is_whole(offset) && self.is_whole(to.len() as u64) {
            return self.read_sectors(offset, to);
        }
        let mut at = offset;
        let mut buffer = Zeroizing::new(Vec::new());
        for part in to.chunks_mut(PIECE) {
            let end = at + part.len() as u64;
            let around = self.around(at..end);
            buffer.resize((around.end - around.start) as usize, 0);
            self.read_sectors(around.start, &mut buffer)?;
            part.copy_from_slice(&buffer[(at - around.start) as usize..][..part.len()]);
            at = end;
        }
        Ok(())
    }

    /// Writes `length` bytes that `fill` gives piece by piece.
    fn write(
        &self,
        offset: u64,
        length: u64,
        mut fill: impl FnMut(&mut [u8]),
    ) -> Result<(), DeviceError> {
        let is_whole = self.is_whole(offset) && self.is_whole(length);
        let _edges = (!is_whole).then(|| self.edges.lock());
        let mut buffer = Zeroizing::new(Vec::new());
        let (mut at, end) = (offset, offset + length);
        while at < end {
            // Pieces end where sectors do.
            let to = end.min(self.around(at..at + 1).start + PIECE as u64);
            let around = self.around(at..to);
            buffer.resize((around.end - around.start) as usize, 0);
            let sector = self.cipher.sector() as u64;
            if around.start < at {
                let first = (sector as usize).min(buffer.len());
                self.read_sectors(around.start, &mut buffer[..first])?;
            }
            if around.end > to && (around.start == at || around.end - around.start > sector) {
                let last = buffer.len() - sector as usize;
                self.read_sectors(around.end - sector, &mut buffer[last..])?;
            }
            fill(&mut buffer[(at - around.start) as usize..(to - around.start) as usize]);
            self.write_sectors(around.start, &mut buffer)?;
            at = to;
        }
        Ok(())
    }

    fn perform(&self, request: &mut Request<'_>) -> Result<(), DeviceError> {
        match &mut request.kind {
            RequestKind::Read { offset, buffers } => {
                buffers.fill(*offset, |at, buffer| self.read(at, buffer))
            }
            RequestKind::Write { offset, buffers } => {
                let length = buffers.length();
                let mut bytes = Gather::of(buffers.slices());
                self.write(*offset, length, |to| bytes.fill(to))
            }
            RequestKind::Discard { offset, length } => match self.discarded(*offset, *length) {
                Some(range) => self.inner.discard(range).map_err(|error| self.outward(error)),
                None => Ok(()),
            },
            RequestKind::WriteZeroes { offset, length } => {
                self.write(*offset, *length, |to| to.fill(0))
            }
            RequestKind::Flush => self.inner.flush().map_err(|error| self.outward(error)),
        }
    }

    /// The part of a discard that reaches the device below: whole sectors.
    fn discarded(&self, offset: u64, length: u64) -> Option<Range<u64>> {
        let sector = self.cipher.sector() as u64;
        let range = offset.next_multiple_of(sector)..(offset + length) / sector * sector;
        (self.passes_discards && range.start < range.end)
            .then(|| self.start + range.start..self.start + range.end)
    }

    /// Whether the batch is whole sectors in each buffer and small enough to be enciphered at once.
    fn goes_at_once(&self, batch: &[Request<'_>]) -> bool {
        let written: u64 = batch
            .iter()
            .filter(|request| {
                matches!(request.kind, RequestKind::Write { .. } | RequestKind::WriteZeroes { .. })
            })
            .fold(0, |sum, request| sum.saturating_add(request.length()));
        written <= BATCH_BYTES
            && batch.iter().all(|request| match &request.kind {
                RequestKind::Read { offset, buffers } => {
                    self.is_whole(*offset)
                        && buffers.slices().iter().all(|buffer| self.is_whole(buffer.len() as u64))
                }
                RequestKind::Write { offset, buffers } => {
                    self.is_whole(*offset) && self.is_whole(buffers.length())
                }
                RequestKind::WriteZeroes { offset, length } => {
                    self.is_whole(*offset) && self.is_whole(*length)
                }
                RequestKind::Discard { .. } | RequestKind::Flush => true,
            })
    }

    fn submit_at_once(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        let enciphered: Vec<Option<Vec<u8>>> =
            batch.iter().map(|request| self.enciphered(request)).collect();
        let mut below: Vec<Request<'_>> = batch
            .iter_mut()
            .zip(&enciphered)
            .map(|(request, enciphered)| {
                let at = self.start + request.offset();
                match (&mut request.kind, enciphered) {
                    (RequestKind::Read { buffers, .. }, _) => {
                        let buffers = buffers.slices_mut().iter_mut();
                        Request::read_vectored(
                            at,
                            buffers.map(|buffer| IoSliceMut::new(buffer)).collect(),
                        )
                    }
                    (RequestKind::Discard { offset, length }, _) => {
                        let range = self.discarded(*offset, *length);
                        Request::discard(range.unwrap_or(self.start..self.start))
                    }
                    (_, Some(bytes)) => Request::write(at, bytes),
                    (_, None) => Request::flush(),
                }
            })
            .collect();
        let result = self.inner.submit(&mut below);
        let statuses: Vec<RequestStatus> =
            below.into_iter().map(|request| request.status).collect();
        for (request, status) in batch.iter_mut().zip(statuses) {
            request.status = match status {
                // An error names the request that its submitter made.
                RequestStatus::Failed(error) => RequestStatus::Failed(request.error(error.cause)),
                status => status,
            };
            if !request.status.is_done() {
                continue;
            }
            if let RequestKind::Read { offset, buffers } = &mut request.kind {
                let mut at = *offset;
                for buffer in buffers.slices_mut() {
                    self.cipher.decrypt(self.iv(at), buffer);
                    at += buffer.len() as u64;
                }
            }
        }
        result.map_err(|error| {
            let failed = batch.iter().find_map(|request| match &request.status {
                RequestStatus::Failed(error) => Some(error.clone()),
                RequestStatus::Pending | RequestStatus::Done => None,
            });
            failed.unwrap_or_else(|| self.outward(error))
        })
    }

    /// The enciphered bytes of a write for the device below.
    fn enciphered(&self, request: &Request<'_>) -> Option<Vec<u8>> {
        let mut bytes = match &request.kind {
            RequestKind::Write { buffers, .. } => buffers.slices().iter().fold(
                Vec::with_capacity(buffers.length() as usize),
                |mut all, buffer| {
                    all.extend_from_slice(buffer);
                    all
                },
            ),
            RequestKind::WriteZeroes { length, .. } => vec![0; *length as usize],
            RequestKind::Read { .. } | RequestKind::Discard { .. } | RequestKind::Flush => {
                return None;
            }
        };
        self.cipher.encrypt(self.iv(request.offset()), &mut bytes);
        Some(bytes)
    }
}

/// Bytes of several buffers, taken in order.
struct Gather<'a> {
    rest: std::slice::Iter<'a, IoSlice<'a>>,
    current: &'a [u8],
}

impl<'a> Gather<'a> {
    fn of(buffers: &'a [IoSlice<'a>]) -> Self {
        Self { rest: buffers.iter(), current: &[] }
    }

    fn fill(&mut self, mut to: &mut [u8]) {
        while !to.is_empty() {
            if self.current.is_empty() {
                let Some(next) = self.rest.next() else { return };
                self.current = next;
                continue;
            }
            let count = to.len().min(self.current.len());
            let (now, later) = to.split_at_mut(count);
            let (from, rest) = self.current.split_at(count);
            now.copy_from_slice(from);
            (to, self.current) = (later, rest);
        }
    }
}

impl Device for CryptDevice {
    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Without a size in its header it takes all of the device below, as by `cryptsetup resize`.
    /// Its new bytes are noise.
    fn grow(&self, size: u64) -> Result<(), DeviceError> {
        let sector = self.cipher.sector() as u64;
        if self.takes_rest {
            let below = self.start.saturating_add(size).checked_next_multiple_of(sector);
            self.inner.grow(below.unwrap_or(u64::MAX))?;
            let rest = self.inner.size().saturating_sub(self.start);
            self.size.fetch_max(rest - rest % sector, Ordering::AcqRel);
        }
        if size <= self.size() {
            return Ok(());
        }
        let what = format!("the header of the container gives it {} bytes", self.size());
        let full = std::io::Error::new(std::io::ErrorKind::StorageFull, what);
        Err(DeviceError::io(Operation::Resize, 0, size, full))
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        check_batch(self, batch)?;
        if self.goes_at_once(batch) {
            return self.submit_at_once(batch);
        }
        run_batch(batch, |request| {
            let result = self.perform(request);
            result.map_err(|error| request.error(error.cause))
        })
    }

    /// Sectors that were never written decipher to noise: no range is known to be zero.
    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        check_range(self.size(), &range)?;
        Ok(Some(range).filter(|range| !range.is_empty()))
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn can_discard(&self) -> bool {
        self.passes_discards && self.inner.can_discard()
    }

    fn sector_size(&self) -> u32 {
        self.inner.sector_size().max(self.cipher.sector() as u32)
    }

    fn will_need(&self, range: Range<u64>) {
        let around = self.around(range.start.min(self.size())..range.end.min(self.size()));
        if around.start < around.end {
            self.inner.will_need(self.start + around.start..self.start + around.end);
        }
    }
}
