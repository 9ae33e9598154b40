//! GUID partition table: a header in the second sector and, as backup, in the last one, each with
//! its own array of entries (UEFI specification 2.10, section 5.3).

use crc_fast::{CrcAlgorithm, checksum};

use super::table::{
    Partition, PartitionContent, PartitionError, PartitionTable, TableKind, damaged, le32, le64,
};
use extant_device::Device;

const SIGNATURE: &[u8; 8] = b"EFI PART";
/// Bytes of the header that are defined; its size may be larger, up to a sector.
const HEADER_SIZE: usize = 92;
const HEADER_CRC_AT: usize = 16;
const HEADER_SIZE_AT: usize = 12;
const MY_LBA_AT: usize = 24;
const OTHER_LBA_AT: usize = 32;
const LAST_USABLE_AT: usize = 48;
const ENTRIES_AT: usize = 72;
const ENTRY_COUNT_AT: usize = 80;
const ENTRY_SIZE_AT: usize = 84;
const ENTRIES_CRC_AT: usize = 88;
const ENTRY_SIZE_MIN: u32 = 128;
/// Bytes of entries that are read: the usual table has 16 KiB.
const ENTRIES_MAX: u64 = 4 << 20;
const SECTOR_SIZES: [u32; 2] = [512, 4096];

struct Header {
    /// The sector number that the header contains for itself.
    my_lba: u64,
    entries_lba: u64,
    entry_count: u32,
    entry_size: u32,
    entries_crc: u32,
}

/// One copy of the table, as stored.
pub(super) struct Copy {
    /// The sector of the header.
    pub(super) header: Vec<u8>,
    pub(super) entries: Vec<u8>,
}

impl Copy {
    pub(super) fn sector_size(&self) -> u64 {
        self.header.len() as u64
    }

    /// Number of sectors of the entries.
    pub(super) fn entry_sectors(&self) -> u64 {
        (self.entries.len() as u64).div_ceil(self.sector_size())
    }

    pub(super) fn entries_lba(&self) -> u64 {
        le64(&self.header, ENTRIES_AT)
    }

    /// The entry of a partition.
    pub(super) fn entry_mut(&mut self, number: u32) -> Option<&mut [u8]> {
        let size = le32(&self.header, ENTRY_SIZE_AT) as usize;
        let start = (number.checked_sub(1)? as usize).checked_mul(size)?;
        self.entries.get_mut(start..start.checked_add(size)?)
    }

    /// Sets what is different in this copy, and the checksums.
    pub(super) fn seal(&mut self, at: u64, other: u64, entries_lba: u64, last_usable: u64) {
        for (place, value) in [
            (MY_LBA_AT, at),
            (OTHER_LBA_AT, other),
            (LAST_USABLE_AT, last_usable),
            (ENTRIES_AT, entries_lba),
        ] {
            self.header[place..place + 8].copy_from_slice(&value.to_le_bytes());
        }
        let entries = crc32(&self.entries);
        self.header[ENTRIES_CRC_AT..ENTRIES_CRC_AT + 4].copy_from_slice(&entries.to_le_bytes());
        let size = (le32(&self.header, HEADER_SIZE_AT) as usize).min(self.header.len());
        self.header[HEADER_CRC_AT..HEADER_CRC_AT + 4].fill(0);
        let header = crc32(&self.header[..size]);
        self.header[HEADER_CRC_AT..HEADER_CRC_AT + 4].copy_from_slice(&header.to_le_bytes());
    }
}

/// The first copy of the table.
pub(super) fn read_primary<D: Device + ?Sized>(
    device: &D,
    sector_size: u32,
) -> Result<Copy, PartitionError> {
    if read_copy(device, sector_size, 1)?.is_none() {
        return Err(damaged("GPT header in sector 1", "not found"));
    }
    let mut header = vec![0; sector_size as usize];
    device.read_at(u64::from(sector_size), &mut header)?;
    // Checked above: at most ENTRIES_MAX bytes, on the device.
    let bytes = le32(&header, ENTRY_COUNT_AT) as usize * le32(&header, ENTRY_SIZE_AT) as usize;
    let mut entries = vec![0; bytes];
    device.read_at(le64(&header, ENTRIES_AT) * u64::from(sector_size), &mut entries)?;
    Ok(Copy { header, entries })
}

fn crc32(bytes: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32IsoHdlc, bytes) as u32
}

/// Reads the table; `None` where no copy has the signature.
pub(super) fn read<D: Device + ?Sized>(
    device: &D,
) -> Result<Option<PartitionTable>, PartitionError> {
    let mut sizes = SECTOR_SIZES;
    if device.sector_size() == SECTOR_SIZES[1] {
        sizes.reverse();
    }
    let mut first_damage = None;
    for backup in [false, true] {
        for sector_size in sizes {
            let sectors = device.size() / u64::from(sector_size);
            let lba = if backup { sectors.saturating_sub(1) } else { 1 };
            if lba == 0 || lba >= sectors {
                continue;
            }
            match read_copy(device, sector_size, lba) {
                Ok(None) => {}
                Ok(Some(partitions)) => {
                    if backup {
                        tracing::warn!("the first GPT is damaged: its backup is used");
                    }
                    let (kind, from_backup) = (TableKind::Gpt, backup);
                    return Ok(Some(PartitionTable { kind, sector_size, from_backup, partitions }));
                }
                Err(PartitionError::Device(error)) => return Err(error.into()),
                Err(damage) => {
                    first_damage.get_or_insert(damage);
                }
            }
        }
    }
    first_damage.map_or(Ok(None), Err)
}

fn read_copy<D: Device + ?Sized>(
    device: &D,
    sector_size: u32,
    lba: u64,
) -> Result<Option<Vec<Partition>>, PartitionError> {
    let mut sector = vec![0; sector_size as usize];
    device.read_at(lba * u64::from(sector_size), &mut sector)?;
    let place = format!("GPT header in sector {lba}");
    let Some(header) = Header::decode(&sector, &place)? else { return Ok(None) };
    if header.my_lba != lba {
        return Err(damaged(place, format!("gives its own location as sector {}", header.my_lba)));
    }
    let bytes = u64::from(header.entry_count) * u64::from(header.entry_size);
    if bytes > ENTRIES_MAX {
        return Err(damaged(
            place,
            format!("{bytes} bytes of entries, at most {ENTRIES_MAX} are read"),
        ));
    }
    let start = header.entries_lba.checked_mul(u64::from(sector_size));
    let Some(start) =
        start.filter(|start| start.checked_add(bytes).is_some_and(|end| end <= device.size()))
    else {
        return Err(damaged(
            place,
            format!("entries in sector {}, past the end", header.entries_lba),
        ));
    };
    let mut entries = vec![0; bytes as usize];
    device.read_at(start, &mut entries)?;
    let computed = crc32(&entries);
    if computed != header.entries_crc {
        let flaw = format!("checksum {:#010x}, computed {computed:#010x}", header.entries_crc);
        return Err(damaged(format!("GPT entries in sector {}", header.entries_lba), flaw));
    }
    let mut partitions = Vec::new();
    for (number, entry) in (1..).zip(entries.chunks_exact(header.entry_size as usize)) {
        if let Some(partition) = decode_entry(number, entry, sector_size)? {
            partitions.push(partition);
        }
    }
    Ok(Some(partitions))
}

impl Header {
    fn decode(sector: &[u8], place: &str) -> Result<Option<Self>, PartitionError> {
        if !sector.starts_with(SIGNATURE) {
            return Ok(None);
        }
        let size = le32(sector, HEADER_SIZE_AT) as usize;
        if !(HEADER_SIZE..=sector.len()).contains(&size) {
            return Err(damaged(place, format!("header of {size} bytes")));
        }
        let mut summed = sector[..size].to_vec();
        summed[HEADER_CRC_AT..HEADER_CRC_AT + 4].fill(0);
        let (found, computed) = (le32(sector, HEADER_CRC_AT), crc32(&summed));
        if found != computed {
            return Err(damaged(
                place,
                format!("checksum {found:#010x}, computed {computed:#010x}"),
            ));
        }
        let header = Self {
            my_lba: le64(sector, MY_LBA_AT),
            entries_lba: le64(sector, ENTRIES_AT),
            entry_count: le32(sector, ENTRY_COUNT_AT),
            entry_size: le32(sector, ENTRY_SIZE_AT),
            entries_crc: le32(sector, ENTRIES_CRC_AT),
        };
        if header.entry_size < ENTRY_SIZE_MIN || !header.entry_size.is_multiple_of(8) {
            return Err(damaged(place, format!("entries of {} bytes", header.entry_size)));
        }
        Ok(Some(header))
    }
}

fn decode_entry(
    number: u32,
    entry: &[u8],
    sector_size: u32,
) -> Result<Option<Partition>, PartitionError> {
    let content: [u8; 16] = entry[..16].try_into().expect("sixteen bytes");
    if content == [0; 16] {
        return Ok(None);
    }
    // Both sectors belong to the partition.
    let (first, last) = (le64(entry, 32), le64(entry, 40));
    let sector = u64::from(sector_size);
    let sectors = last.checked_sub(first).and_then(|between| between.checked_add(1));
    let start = first.checked_mul(sector);
    let size = sectors.and_then(|sectors| sectors.checked_mul(sector));
    let (Some(start), Some(size)) = (start, size) else {
        return Err(damaged(format!("GPT entry {number}"), format!("sectors {first} to {last}")));
    };
    Ok(Some(Partition { number, start, size, content: PartitionContent::Gpt(content) }))
}
