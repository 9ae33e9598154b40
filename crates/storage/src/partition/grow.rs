//! The last partition of a GPT is made longer, up to the end of its device.

use extant_device::Device;

use super::gpt::{self, Copy};
use super::table::{PartitionError, PartitionTable, TableKind, damaged, le64};

/// Where an entry has its last sector.
const LAST_AT: usize = 40;
/// Where a protective MBR has its first entry's type and number of sectors.
const MBR_TYPE_AT: usize = 450;
const MBR_SECTORS_AT: usize = 458;
/// The type of an entry that covers a GPT.
const PROTECTIVE: u8 = 0xee;

/// Number of bytes that a device must have at least, so that the partition `number` can have
/// `size` bytes and the backup of the table has room after it.
///
/// # Errors
/// As [`grow_last`].
pub fn size_needed<D: Device + ?Sized>(
    device: &D,
    number: u32,
    size: u64,
) -> Result<u64, PartitionError> {
    let table = last_of(device, number)?;
    let copy = gpt::read_primary(device, table.sector_size)?;
    let sector = u64::from(table.sector_size);
    let backup = (copy.entry_sectors() + 1) * sector;
    let start = table.partition(number)?.start;
    let size = size.checked_next_multiple_of(sector);
    let end = size.and_then(|size| start.checked_add(size)?.checked_add(backup));
    end.ok_or_else(|| damaged("GPT", "no room for a partition of that size"))
}

/// Lets the partition `number`, the last one of a GPT, reach to the end of the device, and moves
/// the table's backup there. Returns whether it got longer. After a power cut one of the two copies
/// of the table is valid.
///
/// # Errors
/// The table is not a GPT, the first copy of it is damaged, another partition lies after this one,
/// or the device failed.
pub fn grow_last<D: Device + ?Sized>(device: &D, number: u32) -> Result<bool, PartitionError> {
    let table = last_of(device, number)?;
    let sector = u64::from(table.sector_size);
    let sectors = device.size() / sector;
    let mut copy = gpt::read_primary(device, table.sector_size)?;
    let backup_entries = sectors.saturating_sub(1 + copy.entry_sectors());
    let last = backup_entries.saturating_sub(1);
    let entry = copy.entry_mut(number).ok_or_else(|| damaged("GPT", "too few entries"))?;
    if le64(entry, LAST_AT) >= last {
        return Ok(false);
    }
    entry[LAST_AT..LAST_AT + 8].copy_from_slice(&last.to_le_bytes());
    let primary_entries = copy.entries_lba();
    copy.write(device, sectors - 1, 1, backup_entries, last)?;
    copy.write(device, 1, sectors - 1, primary_entries, last)?;
    let mut mbr = [0; 512];
    device.read_at(0, &mut mbr)?;
    if mbr[MBR_TYPE_AT] == PROTECTIVE {
        let covered = u32::try_from(sectors - 1).unwrap_or(u32::MAX);
        mbr[MBR_SECTORS_AT..MBR_SECTORS_AT + 4].copy_from_slice(&covered.to_le_bytes());
        device.write_at(0, &mbr)?;
        device.flush()?;
    }
    Ok(true)
}

/// The table, if it is a GPT and `number` its last partition.
fn last_of<D: Device + ?Sized>(device: &D, number: u32) -> Result<PartitionTable, PartitionError> {
    let table = PartitionTable::read(device)?;
    let start = table.partition(number)?.start;
    if table.kind != TableKind::Gpt {
        return Err(PartitionError::NotGpt);
    }
    match table.partitions.iter().find(|other| other.start > start) {
        Some(other) => Err(PartitionError::NotLast { number, after: other.number }),
        None => Ok(table),
    }
}

impl Copy {
    /// Writes this copy of the table: its entries, then its header.
    fn write<D: Device + ?Sized>(
        &mut self,
        device: &D,
        at: u64,
        other: u64,
        entries_lba: u64,
        last_usable: u64,
    ) -> Result<(), PartitionError> {
        self.seal(at, other, entries_lba, last_usable);
        device.write_at(entries_lba * self.sector_size(), &self.entries)?;
        device.write_at(at * self.sector_size(), &self.header)?;
        Ok(device.flush()?)
    }
}
