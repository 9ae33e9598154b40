//! The failures of a device.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::errno;

/// The operation that was asked of a device.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Operation {
    /// Bytes were to be read.
    Read,
    /// Bytes were to be written.
    Write,
    /// A range was to be given back to the device.
    Discard,
    /// A range was to read as zeroes.
    WriteZeroes,
    /// Everything written was to reach the medium.
    Flush,
    /// The ranges holding data were requested.
    DataRanges,
    /// The size of the device was to change.
    Resize,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Discard => "discard",
            Self::WriteZeroes => "write of zeroes",
            Self::Flush => "flush",
            Self::DataRanges => "search for data",
            Self::Resize => "resize",
        })
    }
}

/// A request that a device did not carry out, and why.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{operation} of {length} bytes at byte {offset}: {cause}")]
pub struct DeviceError {
    /// The operation.
    pub operation: Operation,
    /// First byte of the request, as its submitter counts.
    pub offset: u64,
    /// Number of requested bytes.
    pub length: u64,
    /// Why it failed.
    #[source]
    pub cause: Cause,
}

/// Why a request failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Cause {
    /// The request reaches past the last byte of the device. There are no short reads.
    #[error("past the end of the device ({size} bytes)")]
    PastEnd {
        /// Bytes the device holds.
        size: u64,
    },
    /// A change of a device opened for reading.
    #[error("the device is read-only")]
    ReadOnly,
    /// Not tried, since a request before an earlier flush of the batch, or that flush, failed.
    #[error("not attempted after an earlier failure in the batch")]
    NotTried,
    /// The system's error.
    #[error("{0}")]
    Io(#[source] Arc<io::Error>),
}

impl DeviceError {
    /// A request refused by the system or by a device's own rule.
    pub fn io(operation: Operation, offset: u64, length: u64, source: io::Error) -> Self {
        Self { operation, offset, length, cause: Cause::Io(Arc::new(source)) }
    }

    /// A device that is not a partition was to reach to the end of its image.
    pub fn not_a_partition(size: u64) -> Self {
        let what = "the device is not a partition of an image";
        let source = io::Error::new(io::ErrorKind::Unsupported, what);
        Self::io(Operation::Resize, 0, size, source)
    }

    /// The kind of error as `std::io` names it: `UnexpectedEof` past the end, `ReadOnlyFilesystem`
    /// for a read-only device.
    pub fn kind(&self) -> io::ErrorKind {
        match &self.cause {
            Cause::PastEnd { .. } => io::ErrorKind::UnexpectedEof,
            Cause::ReadOnly => io::ErrorKind::ReadOnlyFilesystem,
            Cause::NotTried => io::ErrorKind::Other,
            Cause::Io(source) => source.kind(),
        }
    }

    /// The number that a system call returns for it.
    pub fn errno(&self) -> i32 {
        match &self.cause {
            Cause::PastEnd { .. } | Cause::NotTried => errno::EIO,
            Cause::ReadOnly => errno::EROFS,
            Cause::Io(source) => errno::of_io(source),
        }
    }

    /// Whether what lies under the device has no space left (a sparse image on a full file system).
    pub fn is_no_space(&self) -> bool {
        self.kind() == io::ErrorKind::StorageFull
    }
}

impl From<DeviceError> for io::Error {
    fn from(error: DeviceError) -> Self {
        io::Error::new(error.kind(), error)
    }
}
