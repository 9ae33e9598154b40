//! Master boot record: four entries in the first sector; one of them may be an extended partition,
//! which holds a chain of further records with one logical partition each.

use super::table::{
    Partition, PartitionContent, PartitionError, PartitionTable, TableKind, damaged, le32,
};
use extant_device::Device;

const SIGNATURE_AT: usize = 510;
const SIGNATURE: [u8; 2] = [0x55, 0xaa];
const ENTRIES_AT: usize = 446;
const ENTRY_SIZE: usize = 16;
const FIRST_LOGICAL: u32 = 5;
/// Records of a chain that are followed: more than any tool makes, so a loop ends here.
const CHAIN_MAX: usize = 256;
/// The protective entry of a GPT in the MBR, which keeps other programs away (UEFI specification,
/// section 5.2.3).
const GPT_PROTECTIVE: u8 = 0xee;
/// Extended: DOS, with LBA, Linux.
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];

/// A boot record's table.
pub(super) struct Sector([Entry; 4]);

#[derive(Clone, Copy)]
struct Entry {
    content: u8,
    start: u32,
    sectors: u32,
}

impl Entry {
    fn is_used(self) -> bool {
        self.content != 0 && self.sectors != 0
    }
    fn is_extended(self) -> bool {
        EXTENDED.contains(&self.content)
    }
}

impl Sector {
    /// `None` if it is not a boot record with a table: a file system's boot sector has the same
    /// signature, but other bytes in the active flags of the entries.
    pub(super) fn decode(bytes: &[u8; 512]) -> Option<Self> {
        if bytes[SIGNATURE_AT..] != SIGNATURE {
            return None;
        }
        let entry = |index: usize| {
            let entry = &bytes[ENTRIES_AT + index * ENTRY_SIZE..][..ENTRY_SIZE];
            let is_plausible = matches!(entry[0], 0 | 0x80);
            is_plausible.then(|| Entry {
                content: entry[4],
                start: le32(entry, 8),
                sectors: le32(entry, 12),
            })
        };
        Some(Self([entry(0)?, entry(1)?, entry(2)?, entry(3)?]))
    }

    pub(super) fn is_protective(&self) -> bool {
        self.0.iter().any(|entry| entry.content == GPT_PROTECTIVE)
    }
}

fn partition(number: u32, entry: Entry, relative_to: u64, sector_size: u32) -> Partition {
    let sector = u64::from(sector_size);
    Partition {
        number,
        // At most (2^32 + 2^32) sectors of 4096 bytes.
        start: (relative_to + u64::from(entry.start)) * sector,
        size: u64::from(entry.sectors) * sector,
        content: PartitionContent::Mbr(entry.content),
    }
}

pub(super) fn read<D: Device + ?Sized>(
    device: &D,
    first: &Sector,
) -> Result<PartitionTable, PartitionError> {
    let sector_size = device.sector_size().max(512);
    let mut partitions = Vec::new();
    for (number, entry) in (1..).zip(first.0) {
        if entry.is_used() {
            partitions.push(partition(number, entry, 0, sector_size));
        }
    }
    if let Some(extended) = first.0.iter().find(|entry| entry.is_used() && entry.is_extended()) {
        read_chain(device, u64::from(extended.start), sector_size, &mut partitions)?;
    }
    Ok(PartitionTable { kind: TableKind::Mbr, sector_size, from_backup: false, partitions })
}

fn read_chain<D: Device + ?Sized>(
    device: &D,
    extended: u64,
    sector_size: u32,
    partitions: &mut Vec<Partition>,
) -> Result<(), PartitionError> {
    let mut number = FIRST_LOGICAL;
    let mut seen = Vec::new();
    let mut at = extended;
    loop {
        let place = format!("extended boot record in sector {at}");
        if seen.contains(&at) {
            return Err(damaged(place, "the chain has a loop"));
        }
        if seen.len() == CHAIN_MAX {
            return Err(damaged(place, format!("more than {CHAIN_MAX} in the chain")));
        }
        seen.push(at);
        let start = at * u64::from(sector_size);
        if start + 512 > device.size() {
            return Err(damaged(place, "past the end of the device"));
        }
        let mut bytes = [0; 512];
        device.read_at(start, &mut bytes)?;
        let Some(record) = Sector::decode(&bytes) else {
            // The first record may be missing: an extended partition without logical ones.
            return if at == extended { Ok(()) } else { Err(damaged(place, "no signature")) };
        };
        let logical = record.0.iter().find(|entry| entry.is_used() && !entry.is_extended());
        if let Some(entry) = logical {
            partitions.push(partition(number, *entry, at, sector_size));
            number += 1;
        }
        match record.0.iter().find(|entry| entry.is_used() && entry.is_extended()) {
            Some(next) => at = extended + u64::from(next.start),
            None => return Ok(()),
        }
    }
}
