//! Partition tables: GPT (UEFI specification, chapter 5) and MBR with extended partitions.
//!
//! A GPT is used only with both checksums right; if the first one is damaged, the backup at the
//! device's end is used. Tables for sectors of 512 and of 4096 bytes are found.

mod end;
mod gpt;
mod grow;
mod mbr;
mod table;

use std::sync::Arc;

use extant_device::{Device, SliceDevice};

pub(crate) use end::ImageEnd;
use end::PartitionEnd;
use table::damaged;
pub(crate) use table::{le32, le64};

pub use grow::{grow_last, size_needed};

pub use table::{Partition, PartitionContent, PartitionError, PartitionTable, TableKind};

impl PartitionTable {
    /// Finds and reads the table of a device.
    ///
    /// # Errors
    /// There is no table, it is damaged, or the device failed.
    pub fn read<D: Device + ?Sized>(device: &D) -> Result<Self, PartitionError> {
        let mut first = [0; 512];
        if device.size() < first.len() as u64 {
            return Err(PartitionError::NoTable);
        }
        device.read_at(0, &mut first)?;
        let mbr = mbr::Sector::decode(&first);
        if let Some(mbr) = mbr.as_ref().filter(|mbr| !mbr.is_protective()) {
            return mbr::read(device, mbr);
        }
        match gpt::read(device)? {
            Some(table) => Ok(table),
            None if mbr.is_some() => {
                Err(damaged("GPT", "announced by the MBR, but no valid header found"))
            }
            None => Err(PartitionError::NoTable),
        }
    }

    /// The partition with this number.
    ///
    /// # Errors
    /// The table does not have it.
    pub fn partition(&self, number: u32) -> Result<&Partition, PartitionError> {
        self.partitions.iter().find(|partition| partition.number == number).ok_or_else(|| {
            let known = self.partitions.iter().map(|partition| partition.number).collect();
            PartitionError::NoPartition { number, known }
        })
    }
}

/// Partition `number` of a device, as [`PartitionTable::read`] finds it: 1 is the first, and an
/// MBR's logical partitions begin with 5. [`Device::grow`] reads the table again: another program
/// may have made the partition longer.
///
/// # Errors
/// There is no such partition, or the table is damaged.
pub fn open(whole: Arc<dyn Device>, number: u32) -> Result<SliceDevice, PartitionError> {
    let table = PartitionTable::read(&whole)?;
    let partition = table.partition(number)?;
    let slice = SliceDevice::new(whole, partition.start, partition.size)
        .map_err(|error| PartitionError::OutOfDevice { number, error })?;
    Ok(slice.with_end(PartitionEnd(number)))
}
