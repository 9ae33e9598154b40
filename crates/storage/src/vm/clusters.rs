//! Parts of qcow2 that imago does not read: clusters compressed by zstd, extended L2 entries,
//! internal snapshots. By QEMU's `docs/interop/qcow2.rst`.

use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::Arc;

use extant_device::{Device, DeviceError};
use extant_runtime::sync::Mutex;
use flate2::read::DeflateDecoder;

use super::error::VmImageError;
use super::files::{NamedFile, Role};
use super::mapped::{Map, MappedDevice, Source, damaged};
use super::qcow2::{Header, be16, be32, be64};

/// The bits of an entry that are a place in the file.
const PLACE: u64 = 0x00ff_ffff_ffff_fe00;
const COMPRESSED: u64 = 1 << 62;
const COPIED: u64 = 1 << 63;
const ZERO: u64 = 1;
/// Parts of a cluster that extended entries tell apart.
const PARTS: u64 = 32;
/// Tables that are kept.
const TABLES_KEPT: usize = 16;
/// Bits of the longest window of zstd: a cluster has 21 at most.
const WINDOW_LOG_MAX: u32 = 24;
/// Snapshots that are looked through; qemu makes no more.
const SNAPSHOTS_MAX: u32 = 65_536;

/// The clusters of one image.
struct Clusters {
    header: Header,
    size: u64,
    l1: Vec<u64>,
    tables: Mutex<HashMap<u64, Arc<[u8]>>>,
    /// The compressed cluster that was read last.
    last: Mutex<Option<(u64, Arc<[u8]>)>>,
}

/// A snapshot: where its table is, and the size of its disk.
struct Snapshot {
    l1_at: u64,
    l1_entries: u64,
    size: u64,
}

/// The disk of an image with its backing files, from the innermost one outwards.
pub(super) fn open(
    files: &[NamedFile],
    snapshot: Option<&str>,
) -> Result<Arc<dyn Device>, VmImageError> {
    let (mut below, mut data): (Option<Arc<dyn Device>>, _) = (None, None);
    for (index, named) in files.iter().enumerate().rev() {
        let file: Arc<dyn Device> = named.file.clone();
        match named.role {
            Role::DataFile => data = Some(file),
            Role::Qcow2 => {
                let snapshot = snapshot.filter(|_| index == 0);
                let clusters = Clusters::open(&*file, snapshot)?;
                let device = MappedDevice::new(file, clusters).with(below.take(), data.take());
                below = Some(Arc::new(device));
            }
            _ => below = Some(file),
        }
    }
    below.ok_or(VmImageError::OtherFormat { format: "qcow2" })
}

impl Clusters {
    fn open(file: &dyn Device, snapshot: Option<&str>) -> Result<Self, VmImageError> {
        let header = Header::read(file)?;
        let (mut l1_at, mut entries, mut size) = (header.l1_at, header.l1_entries, header.size);
        if let Some(name) = snapshot {
            let found = find(file, &header, name)?;
            (l1_at, entries, size) = (found.l1_at, found.l1_entries, found.size);
        }
        header.check_l1(entries, size)?;
        let end = l1_at.checked_add(entries * 8);
        if end.is_none_or(|end| end > file.size()) {
            return Err(VmImageError::Damaged { what: "the L1 table is past the end" });
        }
        let mut bytes = vec![0; (entries * 8) as usize];
        file.read_at(l1_at, &mut bytes)?;
        let l1 = bytes.chunks_exact(8).map(|entry| be64(entry, 0)).collect();
        let (tables, last) = (Mutex::default(), Mutex::default());
        Ok(Self { header, size, l1, tables, last })
    }

    fn cluster(&self) -> u64 {
        1 << self.header.cluster_bits
    }

    fn entry_size(&self) -> u64 {
        if self.header.is_extended { 16 } else { 8 }
    }

    fn table(&self, file: &dyn Device, at: u64) -> Result<Arc<[u8]>, DeviceError> {
        let mut tables = self.tables.lock();
        if let Some(table) = tables.get(&at) {
            return Ok(table.clone());
        }
        let mut bytes = vec![0; self.cluster() as usize];
        file.read_at(at, &mut bytes)?;
        let table: Arc<[u8]> = bytes.into();
        if tables.len() >= TABLES_KEPT {
            tables.clear();
        }
        tables.insert(at, table.clone());
        Ok(table)
    }

    /// The bytes of a compressed cluster.
    fn decompressed(&self, file: &dyn Device, entry: u64) -> Result<Arc<[u8]>, DeviceError> {
        let mut last = self.last.lock();
        if let Some((_, bytes)) = last.as_ref().filter(|(known, _)| *known == entry) {
            return Ok(bytes.clone());
        }
        let (bits, is_zstd) = (self.header.cluster_bits, self.header.is_zstd);
        let bytes: Arc<[u8]> = decompress(file, bits, is_zstd, entry)?.into();
        *last = Some((entry, bytes.clone()));
        Ok(bytes)
    }

    /// A part of a cluster with an extended entry: what it is, and how many parts are alike.
    fn parts(&self, bitmap: u64, first: u64) -> (bool, bool, u64) {
        let kind = |part: u64| (bitmap >> part & 1 != 0, bitmap >> (part + PARTS) & 1 != 0);
        let (is_allocated, is_zero) = kind(first);
        let alike = (first..PARTS).take_while(|part| kind(*part) == kind(first)).count() as u64;
        (is_allocated, is_zero, alike)
    }
}

/// The bytes of a compressed cluster, which has an entry of an L2 table.
pub(super) fn decompress(
    file: &dyn Device,
    cluster_bits: u32,
    is_zstd: bool,
    entry: u64,
) -> Result<Vec<u8>, DeviceError> {
    let bits = 62 - (cluster_bits - 8);
    let at = entry & ((1 << bits) - 1);
    let sectors = ((entry & (COMPRESSED - 1)) >> bits) + 1;
    let length = sectors * 512 - at % 512;
    let length = length.min(file.size().saturating_sub(at));
    let mut packed = vec![0; length as usize];
    file.read_at(at, &mut packed)?;
    let mut bytes = vec![0; 1 << cluster_bits];
    let done: io::Result<()> = match is_zstd {
        false => DeflateDecoder::new(&packed[..]).read_exact(&mut bytes),
        true => zstd::Decoder::with_buffer(&packed[..]).and_then(|decoder| {
            let mut decoder = decoder.single_frame();
            decoder.window_log_max(WINDOW_LOG_MAX)?;
            decoder.read_exact(&mut bytes)
        }),
    };
    done.map_err(|_| damaged(at, "a compressed cluster"))?;
    Ok(bytes)
}

impl Map for Clusters {
    fn size(&self) -> u64 {
        self.size
    }

    fn locate(&self, file: &dyn Device, at: u64) -> Result<(Source, u64), DeviceError> {
        let (cluster, bits) = (self.cluster(), self.header.cluster_bits);
        let per_table = cluster / self.entry_size();
        let (number, within) = (at >> bits, at % cluster);
        let table_at = self.l1.get((number / per_table) as usize).copied().unwrap_or(0) & PLACE;
        if table_at == 0 {
            let span = per_table * cluster;
            return Ok((Source::Below(at), (span - at % span).min(self.size - at)));
        }
        let table = self.table(file, table_at)?;
        let place = (number % per_table * self.entry_size()) as usize;
        let entry = be64(&table, place);
        let length = (cluster - within).min(self.size - at);
        if entry & COMPRESSED != 0 {
            let bytes = self.decompressed(file, entry)?;
            return Ok((Source::Held(bytes, within as usize), length));
        }
        let start = entry & PLACE;
        // In a file of their own, data may be at its start.
        let is_allocated = start != 0 || self.header.has_data_file && entry & COPIED != 0;
        if !self.header.is_extended {
            return Ok(match (entry & ZERO != 0, is_allocated) {
                (true, _) => (Source::Zero, length),
                (false, true) => (Source::File(start + within), length),
                (false, false) => (Source::Below(at), length),
            });
        }
        let part = cluster / PARTS;
        let (is_data, is_zero, alike) = self.parts(be64(&table, place + 8), within / part);
        let length = length.min(alike * part - within % part);
        match (is_data, is_zero) {
            (true, true) => Err(damaged(at, "a part of a cluster is data and zeroes")),
            (_, true) => Ok((Source::Zero, length)),
            (true, _) if is_allocated => Ok((Source::File(start + within), length)),
            (true, _) => Err(damaged(at, "a part of a cluster that is not allocated")),
            (false, false) => Ok((Source::Below(at), length)),
        }
    }
}

/// The snapshot with this ID or name.
fn find(file: &dyn Device, header: &Header, wanted: &str) -> Result<Snapshot, VmImageError> {
    let wrong = || VmImageError::Damaged { what: "the table of snapshots" };
    let mut at = header.snapshots_at;
    let mut names = Vec::new();
    if header.snapshots > SNAPSHOTS_MAX {
        return Err(wrong());
    }
    for _ in 0..header.snapshots {
        let mut fixed = [0; 40];
        let end = at.checked_add(40).filter(|end| *end <= file.size()).ok_or_else(wrong)?;
        file.read_at(at, &mut fixed)?;
        let (id, name) = (usize::from(be16(&fixed, 12)), usize::from(be16(&fixed, 14)));
        let extra = be32(&fixed, 36) as usize;
        let length = extra.checked_add(id + name).filter(|length| *length <= 1 << 20);
        let length = length.ok_or_else(wrong)?;
        let next = end.checked_add(length as u64).filter(|next| *next <= file.size());
        let next = next.ok_or_else(wrong)?;
        let mut rest = vec![0; length];
        file.read_at(end, &mut rest)?;
        let text =
            |range: std::ops::Range<usize>| String::from_utf8_lossy(&rest[range]).into_owned();
        let (id, name) = (text(extra..extra + id), text(extra + id..length));
        if id == wanted || name == wanted {
            let size = if extra >= 16 { be64(&rest, 8) } else { header.size };
            let l1_entries = u64::from(be32(&fixed, 8));
            return Ok(Snapshot { l1_at: be64(&fixed, 0), l1_entries, size });
        }
        if names.len() < 10 {
            names.push(name);
        }
        at = next.checked_next_multiple_of(8).ok_or_else(wrong)?;
    }
    let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Err(VmImageError::NoSnapshot { name: wanted.to_owned(), known })
}
