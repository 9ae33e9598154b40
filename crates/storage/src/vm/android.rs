//! The sparse images of Android (`img2simg`, `fastboot`), by the header file `sparse_format.h` of
//! AOSP: chunks one after the other, each of them bytes, four bytes again and again, or nothing.

use std::sync::Arc;

use extant_device::{Device, DeviceError};

use super::error::VmImageError;
use super::mapped::{Map, MappedDevice, Source};

pub(super) const MAGIC: u32 = 0xed26_ff3a;
pub(super) const HEADER: u64 = 28;
pub(super) const CHUNK_HEADER: u64 = 12;
pub(super) const RAW: u16 = 0xcac1;
pub(super) const FILL: u16 = 0xcac2;
pub(super) const DONT_CARE: u16 = 0xcac3;
const CHECKSUM: u16 = 0xcac4;
/// The most chunks that are kept in memory.
const CHUNKS_MAX: usize = 1 << 22;
/// Bytes of headers that are read together.
const PART: u64 = 64 << 10;

struct Android {
    size: u64,
    /// Where each chunk begins on the disk, and where its bytes are.
    chunks: Vec<(u64, Source)>,
}

fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("2 bytes"))
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

/// A file that is read forwards, in parts.
struct Forwards<'f> {
    file: &'f dyn Device,
    start: u64,
    bytes: Vec<u8>,
}

impl Forwards<'_> {
    /// Bytes from a place on.
    fn get(&mut self, at: u64, length: u64) -> Result<&[u8], VmImageError> {
        let end = at.checked_add(length).filter(|end| *end <= self.file.size());
        let end = end.ok_or(VmImageError::Damaged { what: "the file is cut off" })?;
        if at < self.start || end > self.start + self.bytes.len() as u64 {
            self.start = at;
            self.bytes = vec![0; PART.min(self.file.size() - at) as usize];
            self.file.read_at(at, &mut self.bytes)?;
        }
        let within = (at - self.start) as usize;
        Ok(&self.bytes[within..within + length as usize])
    }
}

/// The disk of an image.
pub(super) fn open(file: Arc<dyn Device>) -> Result<Arc<dyn Device>, VmImageError> {
    let map = read(&*file)?;
    Ok(Arc::new(MappedDevice::new(file, map)))
}

fn read(file: &dyn Device) -> Result<Android, VmImageError> {
    let damaged = |what| VmImageError::Damaged { what };
    let mut from = Forwards { file, start: 0, bytes: Vec::new() };
    if file.size() < HEADER || le32(from.get(0, HEADER)?, 0) != MAGIC {
        return Err(VmImageError::OtherFormat { format: "sparse" });
    }
    let header = from.get(0, HEADER)?;
    if le16(header, 4) != 1 {
        let what = format!("version {} of sparse images", le16(header, 4));
        return Err(VmImageError::Unsupported { what });
    }
    let (header_size, chunk_header) = (u64::from(le16(header, 8)), u64::from(le16(header, 10)));
    let (block, blocks) = (u64::from(le32(header, 12)), u64::from(le32(header, 16)));
    let count = le32(header, 20) as usize;
    if header_size < HEADER || chunk_header < CHUNK_HEADER {
        return Err(damaged("its headers are too short"));
    }
    if block == 0 || !block.is_multiple_of(4) || block > 1 << 30 {
        return Err(damaged("invalid block size"));
    }
    let (mut chunks, mut at, mut disk) = (Vec::new(), header_size, 0_u64);
    for _ in 0..count {
        let chunk = from.get(at, CHUNK_HEADER)?;
        let (kind, length) = (le16(chunk, 0), u64::from(le32(chunk, 4)) * block);
        let total = u64::from(le32(chunk, 8));
        let data = at + chunk_header;
        let expected = match kind {
            RAW => length,
            FILL | CHECKSUM => 4,
            DONT_CARE => 0,
            _ => return Err(damaged("a chunk of an unknown kind")),
        };
        if total != chunk_header + expected {
            return Err(damaged("a chunk of an invalid length"));
        }
        let source = match kind {
            RAW => Source::File(data),
            FILL => {
                let pattern = from.get(data, 4)?;
                Source::Fill(pattern.try_into().expect("4 bytes"))
            }
            _ => Source::Zero,
        };
        let end = at.checked_add(total).filter(|end| *end <= file.size());
        at = end.ok_or(damaged("the file is cut off"))?;
        let is_known = matches!((chunks.last(), &source), (Some((_, Source::Zero)), Source::Zero));
        if kind != CHECKSUM && length > 0 {
            if !is_known {
                chunks.push((disk, source));
            }
            disk = disk.checked_add(length).ok_or(damaged("its chunks are too long"))?;
        }
        if chunks.len() > CHUNKS_MAX {
            return Err(damaged("too many chunks"));
        }
    }
    match disk == blocks * block {
        true => Ok(Android { size: disk, chunks }),
        false => Err(damaged("its chunks do not fit the size of the disk")),
    }
}

impl Map for Android {
    fn size(&self) -> u64 {
        self.size
    }

    fn locate(&self, _: &dyn Device, at: u64) -> Result<(Source, u64), DeviceError> {
        let after = self.chunks.partition_point(|(start, _)| *start <= at);
        let end = self.chunks.get(after).map_or(self.size, |(start, _)| *start);
        let (start, source) = &self.chunks[after - 1];
        let source = match source {
            Source::File(place) => Source::File(place + (at - start)),
            source => source.clone(),
        };
        Ok((source, end - at))
    }
}
