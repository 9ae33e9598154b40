//! Sparse extents of VMDK, by VMware's "Virtual Disk Format 1.1": grains that a directory of tables
//! finds, compressed one by one in the variant "stream-optimized". imago does not read them.
//!
//! All numbers are little-endian and count sectors of 512 bytes.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use extant_device::{
    Cause, Device, DeviceError, LinearDevice, LinearPart, Operation, Request, check_batch,
    check_range, run_reads,
};
use extant_runtime::sync::Mutex;
use flate2::read::ZlibDecoder;

use super::error::VmImageError;

pub(super) const MAGIC: &[u8; 4] = b"KDMV";
const SECTOR: u64 = 512;
const HEADER: usize = 79;
/// Flags of the header.
const HAS_ZERO_GRAINS: u32 = 1 << 2;
const IS_COMPRESSED: u32 = 1 << 16;
const HAS_MARKERS: u32 = 1 << 17;
const KNOWN_FLAGS: u32 = 1 | 1 << 1 | HAS_ZERO_GRAINS | IS_COMPRESSED | HAS_MARKERS;
/// The directory is named by a footer, a header again in the last sector but one.
const AT_END: u64 = u64::MAX;
const FOOTER: u64 = 1024;
const DEFLATE: u16 = 1;
/// Entries of a table: the format has no other number.
const TABLE: u64 = 512;
/// Sectors of a grain.
const GRAIN: Range<u64> = 8..4097;
/// Bytes of a directory, and tables that are kept.
const DIRECTORY_MAX: u64 = 64 << 20;
const TABLES_KEPT: usize = 256;
/// The entry of a grain of zeroes.
const ZERO_GRAIN: u32 = 1;
/// Bytes in front of a compressed grain: its sector and its length.
const GRAIN_HEADER: u64 = 12;
pub(super) const DESCRIPTOR_MAX: u64 = 2 << 20;

/// The fields of a header.
struct Header {
    flags: u32,
    capacity: u64,
    grain: u64,
    descriptor: Range<u64>,
    directory: u64,
    compression: u16,
}

impl Header {
    fn read(file: &dyn Device, at: u64) -> Result<Self, VmImageError> {
        let damaged = |what| VmImageError::Damaged { what };
        let mut bytes = [0; HEADER];
        if at + HEADER as u64 > file.size() {
            return Err(damaged("the header is cut off"));
        }
        file.read_at(at, &mut bytes)?;
        let short = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        if !bytes.starts_with(MAGIC) {
            return Err(damaged("the footer is not there"));
        }
        if !(1..=3).contains(&short(4)) {
            let what = format!("version {} of a sparse extent", short(4));
            return Err(VmImageError::Unsupported { what });
        }
        let start = long(28).saturating_mul(SECTOR);
        let end = start.saturating_add(long(36).saturating_mul(SECTOR));
        let header = Self {
            flags: short(8),
            capacity: long(12),
            grain: long(20),
            descriptor: start..end,
            directory: long(56),
            compression: u16::from_le_bytes([bytes[77], bytes[78]]),
        };
        if header.flags & !KNOWN_FLAGS != 0 {
            let what = format!("flags {:#x} of a sparse extent", header.flags);
            return Err(VmImageError::Unsupported { what });
        }
        if !GRAIN.contains(&header.grain) || !header.grain.is_power_of_two() {
            return Err(damaged("invalid size of a grain"));
        }
        if u64::from(short(44)) != TABLE {
            return Err(damaged("invalid length of the grain tables"));
        }
        if header.capacity > i64::MAX as u64 / SECTOR {
            return Err(damaged("invalid capacity"));
        }
        Ok(header)
    }
}

/// The descriptor inside a sparse extent; empty for an extent without one.
pub(super) fn descriptor(file: &dyn Device) -> Result<Vec<u8>, VmImageError> {
    let Range { start, end } = Header::read(file, 0)?.descriptor;
    if start == 0 || end > file.size() || end - start > DESCRIPTOR_MAX {
        return Ok(Vec::new());
    }
    let mut bytes = vec![0; (end - start) as usize];
    file.read_at(start, &mut bytes)?;
    let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes.truncate(length);
    Ok(bytes)
}

/// A sparse extent, as a device that is only read.
pub(super) struct SparseExtent {
    file: Arc<dyn Device>,
    size: u64,
    /// Bytes of a grain.
    grain: u64,
    flags: u32,
    directory: Vec<u32>,
    tables: Mutex<BTreeMap<u32, Arc<[u32]>>>,
    /// The compressed grain that was read last.
    last: Mutex<Option<(u32, Arc<[u8]>)>>,
}

/// Where the bytes of a grain are.
enum Grain {
    Zero,
    /// Its sector in the file.
    At(u32),
}

impl SparseExtent {
    pub(super) fn open(file: Arc<dyn Device>) -> Result<Self, VmImageError> {
        let damaged = |what| VmImageError::Damaged { what };
        let mut header = Header::read(&*file, 0)?;
        if header.directory == AT_END {
            let footer = file.size().checked_sub(FOOTER).ok_or(damaged("the footer is cut off"))?;
            header = Header::read(&*file, footer)?;
        }
        if header.flags & IS_COMPRESSED != 0 && header.compression != DEFLATE {
            let what = format!("compression {} of a sparse extent", header.compression);
            return Err(VmImageError::Unsupported { what });
        }
        let tables = header.capacity.div_ceil(header.grain).div_ceil(TABLE);
        let start = header.directory.checked_mul(SECTOR);
        let end = start.and_then(|start| start.checked_add(tables * 4));
        let place = start.zip(end).filter(|(_, end)| *end <= file.size());
        let (start, end) = place.ok_or(damaged("the grain directory is past the end"))?;
        if end - start > DIRECTORY_MAX {
            return Err(damaged("the grain directory is too long"));
        }
        Ok(Self {
            directory: numbers(&*file, start, tables)?,
            file,
            size: header.capacity * SECTOR,
            grain: header.grain * SECTOR,
            flags: header.flags,
            tables: Mutex::new(BTreeMap::new()),
            last: Mutex::new(None),
        })
    }

    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    fn table(&self, sector: u32) -> Result<Arc<[u32]>, DeviceError> {
        let mut tables = self.tables.lock();
        if let Some(table) = tables.get(&sector) {
            return Ok(table.clone());
        }
        let table: Arc<[u32]> = numbers(&*self.file, u64::from(sector) * SECTOR, TABLE)?.into();
        if tables.len() >= TABLES_KEPT {
            tables.clear();
        }
        tables.insert(sector, table.clone());
        Ok(table)
    }

    fn find(&self, grain: u64) -> Result<Grain, DeviceError> {
        let table = self.directory[(grain / TABLE) as usize];
        if table == 0 {
            return Ok(Grain::Zero);
        }
        Ok(match self.table(table)?[(grain % TABLE) as usize] {
            0 => Grain::Zero,
            ZERO_GRAIN if self.has(HAS_ZERO_GRAINS) => Grain::Zero,
            sector => Grain::At(sector),
        })
    }

    /// The bytes of a compressed grain.
    fn decompressed(&self, sector: u32) -> Result<Arc<[u8]>, DeviceError> {
        let mut last = self.last.lock();
        if let Some((_, bytes)) = last.as_ref().filter(|(at, _)| *at == sector) {
            return Ok(bytes.clone());
        }
        let at = u64::from(sector) * SECTOR;
        let failed = |what: &str| {
            let source = io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
            DeviceError::io(Operation::Read, at, self.grain, source)
        };
        let mut header = [0; GRAIN_HEADER as usize];
        self.file.read_at(at, &mut header)?;
        let length = u32::from_le_bytes(header[8..].try_into().expect("4 bytes"));
        // Data that zlib cannot shorten take a few bytes more.
        if u64::from(length) > self.grain * 2 {
            return Err(failed("damaged image: a compressed grain is too long"));
        }
        let mut packed = vec![0; length as usize];
        self.file.read_at(at + GRAIN_HEADER, &mut packed)?;
        let mut bytes = vec![0; self.grain as usize];
        let mut decoder = ZlibDecoder::new(&packed[..]);
        let mut count = 0;
        // The last grain of a disk may be shorter.
        while count < bytes.len() {
            match decoder.read(&mut bytes[count..]) {
                Ok(0) => break,
                Ok(more) => count += more,
                Err(error) => return Err(failed(&format!("damaged image: {error}"))),
            }
        }
        let bytes: Arc<[u8]> = bytes.into();
        *last = Some((sector, bytes.clone()));
        Ok(bytes)
    }

    fn read(&self, mut offset: u64, mut to: &mut [u8]) -> Result<(), DeviceError> {
        while !to.is_empty() {
            let within = offset % self.grain;
            let count = (self.grain - within).min(to.len() as u64) as usize;
            let (part, rest) = to.split_at_mut(count);
            match self.find(offset / self.grain)? {
                Grain::Zero => part.fill(0),
                Grain::At(sector) if self.has(IS_COMPRESSED) => {
                    let bytes = self.decompressed(sector)?;
                    part.copy_from_slice(&bytes[within as usize..within as usize + count]);
                }
                Grain::At(sector) => {
                    self.file.read_at(u64::from(sector) * SECTOR + within, part)?
                }
            }
            offset += count as u64;
            to = rest;
        }
        Ok(())
    }

    /// Whether a grain may hold something, and the end of those that are alike: the grains of a
    /// table that is not there are passed at once.
    fn run(&self, at: u64, end: u64) -> Result<(bool, u64), DeviceError> {
        let (mut grain, last) = (at / self.grain, end.div_ceil(self.grain));
        let is_data = |grain| Ok::<_, DeviceError>(!matches!(self.find(grain)?, Grain::Zero));
        let first = is_data(grain)?;
        while grain < last {
            if !first && self.directory[(grain / TABLE) as usize] == 0 {
                grain = (grain / TABLE + 1) * TABLE;
            } else if is_data(grain)? == first {
                grain += 1;
            } else {
                break;
            }
        }
        Ok((first, (grain * self.grain).min(end)))
    }
}

/// Numbers one after the other; the file must have them.
fn numbers(file: &dyn Device, at: u64, count: u64) -> Result<Vec<u32>, DeviceError> {
    let mut bytes = vec![0; (count * 4) as usize];
    file.read_at(at, &mut bytes)?;
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("4 bytes"));
    Ok(bytes.chunks_exact(4).map(number).collect())
}

impl Device for SparseExtent {
    fn size(&self) -> u64 {
        self.size
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        check_batch(self, batch)?;
        run_reads(batch, |offset, buffer| {
            self.read(offset, buffer).map_err(|error| match error.cause {
                Cause::PastEnd { .. } => {
                    let what = "damaged image: a grain is past the end";
                    let source = io::Error::new(io::ErrorKind::InvalidData, what);
                    DeviceError::io(Operation::Read, offset, 0, source)
                }
                _ => error,
            })
        })
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        check_range(self.size, &range)?;
        let mut at = range.start;
        while at < range.end {
            let (is_data, end) = self.run(at, range.end)?;
            if is_data {
                return Ok(Some(at..end));
            }
            at = end;
        }
        Ok(None)
    }

    fn is_read_only(&self) -> bool {
        true
    }
}

impl fmt::Debug for SparseExtent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SparseExtent")
            .field("file", &self.file)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

/// The disk of several sparse extents, one after the other.
pub(super) fn joined(files: Vec<Arc<dyn Device>>) -> Result<Arc<dyn Device>, VmImageError> {
    let mut parts = Vec::new();
    for file in files {
        let extent = SparseExtent::open(file)?;
        parts.push(LinearPart { offset: 0, size: extent.size, device: Arc::new(extent) });
    }
    let joined = LinearDevice::new(parts);
    Ok(Arc::new(joined.map_err(|_| VmImageError::Damaged { what: "the extents are too long" })?))
}
