//! Partitions and parts of an image that get longer while they are open.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use extant_device::{Device, DeviceError, Operation, SliceEnd, errno};

use super::grow::{grow_last, size_needed};
use super::table::{Partition, PartitionError, PartitionTable, TableKind};

/// An image is made longer by whole MiB, to which partitions are aligned.
const MIB: u64 = 1 << 20;

/// A partition ends where its table says.
#[derive(Debug)]
pub(super) struct PartitionEnd(pub(super) u32);

impl SliceEnd for PartitionEnd {
    fn reach(
        &self,
        whole: &Arc<dyn Device>,
        slice: Range<u64>,
        wanted: u64,
    ) -> Result<u64, DeviceError> {
        // A table that cannot be read, or has another partition there, leaves the size.
        let table = PartitionTable::read(whole).ok();
        let found = table.and_then(|table| table.partition(self.0).cloned().ok());
        let held = slice.end - slice.start;
        let size = match found.filter(|partition| partition.start == slice.start) {
            Some(Partition { size, .. }) => size.max(held),
            None => held,
        };
        if wanted > size {
            let what = format!("partition {} has {size} bytes", self.0);
            return Err(full(wanted, what));
        }
        Ok(size)
    }

    fn extend(
        &self,
        whole: &Arc<dyn Device>,
        slice: Range<u64>,
        wanted: u64,
    ) -> Result<u64, DeviceError> {
        let failed = |error: PartitionError| {
            let source = io::Error::new(errno::kind(error.errno()), error);
            DeviceError::io(Operation::Resize, 0, wanted, source)
        };
        let needed = size_needed(&**whole, self.0, wanted).map_err(failed)?;
        if needed > whole.size() {
            whole.grow(needed.checked_next_multiple_of(MIB).unwrap_or(needed))?;
        }
        grow_last(&**whole, self.0).map_err(failed)?;
        self.reach(whole, slice, wanted)
    }
}

/// A part that reaches to the end of an image ends there, or with the partition that it begins in,
/// for others may follow, or in front of the next one.
#[derive(Debug)]
pub(crate) struct ImageEnd;

impl SliceEnd for ImageEnd {
    fn reach(
        &self,
        whole: &Arc<dyn Device>,
        slice: Range<u64>,
        wanted: u64,
    ) -> Result<u64, DeviceError> {
        let table = PartitionTable::read(whole).ok();
        let end = |partition: &Partition| partition.start.saturating_add(partition.size);
        let around = table
            .iter()
            .flat_map(|table| &table.partitions)
            .find(|partition| partition.start <= slice.start && slice.start < end(partition));
        let Some(partition) = around else {
            let most = room_outside(table.as_ref(), slice.start, wanted)?;
            // To the next partition, or as far as the image can reach.
            let end = slice.start.saturating_add(most.unwrap_or(wanted).min(wanted));
            whole.grow(end)?;
            let rest = whole.size().saturating_sub(slice.start);
            return Ok(most.map_or(rest, |most| rest.min(most)));
        };
        let most = end(partition) - slice.start;
        if wanted > most {
            let what = format!("partition {} ends after {most} bytes there", partition.number);
            return Err(full(wanted, what));
        }
        Ok(slice.end - slice.start)
    }
}

/// The number of bytes from `start`, which is in no partition, to the next one; `None` where none
/// follows.
fn room_outside(
    table: Option<&PartitionTable>,
    start: u64,
    wanted: u64,
) -> Result<Option<u64>, DeviceError> {
    let Some(table) = table else { return Ok(None) };
    let next = table.partitions.iter().filter(|next| next.start > start);
    if let Some(next) = next.min_by_key(|next| next.start) {
        let most = next.start - start;
        if wanted > most {
            let what = format!("partition {} begins after {most} bytes there", next.number);
            return Err(full(wanted, what));
        }
        return Ok(Some(most));
    }
    // The backup of a GPT is at the end of its disk.
    if table.kind == TableKind::Gpt && wanted > 0 {
        return Err(full(wanted, "no partition of the GPT is there".to_owned()));
    }
    Ok(None)
}

fn full(wanted: u64, what: String) -> DeviceError {
    let source = io::Error::new(io::ErrorKind::StorageFull, what);
    DeviceError::io(Operation::Resize, 0, wanted, source)
}
