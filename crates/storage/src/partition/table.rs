//! The contents of a partition table, and why it was not read.

use extant_device::{DeviceError, SliceError, errno};

/// How a partition table is laid out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TableKind {
    /// GUID partition table.
    Gpt,
    /// The PC's old table, with logical partitions in a chain.
    Mbr,
}

/// The contents of a device's partition table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PartitionTable {
    /// Which kind of table it is.
    pub kind: TableKind,
    /// Bytes the table counts as one sector.
    pub sector_size: u32,
    /// Whether a GPT's first copy was damaged and its backup was read.
    pub from_backup: bool,
    /// The partitions in use, by number.
    pub partitions: Vec<Partition>,
}

/// One partition.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Partition {
    /// 1 is the table's first entry; an MBR's logical partitions begin with 5.
    pub number: u32,
    /// First byte on the device.
    pub start: u64,
    /// Bytes.
    pub size: u64,
    /// The declared content.
    pub content: PartitionContent,
}

/// The declared content of a partition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PartitionContent {
    /// An MBR's type.
    Mbr(u8),
    /// A GPT's type GUID, as stored.
    Gpt([u8; 16]),
}

/// A partition that was not found.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PartitionError {
    /// Neither a GPT nor an MBR.
    #[error("no partition table")]
    NoTable,
    /// The table does not have this partition.
    #[error("no partition {number}: the table has {}", listed(.known))]
    NoPartition {
        /// The requested number.
        number: u32,
        /// The numbers it has.
        known: Vec<u32>,
    },
    /// The table is corrupt.
    #[error("partition table damaged: {place}: {flaw}")]
    Damaged {
        /// Which part of it.
        place: String,
        /// The mistake.
        flaw: String,
    },
    /// The partition does not lie on the device: the image may be cut short.
    #[error("partition {number}: {error}")]
    OutOfDevice {
        /// The partition.
        number: u32,
        /// Where it would lie.
        error: SliceError,
    },
    /// A partition that grows is in a table of another kind.
    #[error("only the last partition of a GPT can grow, and the table is an MBR")]
    NotGpt,
    /// Another partition lies after one that grows.
    #[error("partition {number} cannot grow: partition {after} lies after it")]
    NotLast {
        /// The partition.
        number: u32,
        /// The other one.
        after: u32,
    },
    /// The table was not read.
    #[error("partition table: {0}")]
    Device(#[from] DeviceError),
}

impl PartitionError {
    /// The number that a system call returns for it.
    pub fn errno(&self) -> i32 {
        match self {
            Self::NoTable | Self::NoPartition { .. } => errno::ENOENT,
            Self::Damaged { .. } | Self::OutOfDevice { .. } => errno::EUCLEAN,
            Self::NotGpt => errno::EOPNOTSUPP,
            Self::NotLast { .. } => errno::ENOSPC,
            Self::Device(error) => error.errno(),
        }
    }
}

fn listed(numbers: &[u32]) -> String {
    match numbers {
        [] => "none".to_owned(),
        _ => numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
    }
}

pub(super) fn damaged(place: impl Into<String>, flaw: impl Into<String>) -> PartitionError {
    PartitionError::Damaged { place: place.into(), flaw: flaw.into() }
}

pub(crate) fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
