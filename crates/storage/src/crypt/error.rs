//! Why a device was not deciphered.

use extant_device::{DeviceError, errno};

/// A device that was not deciphered.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CryptError {
    /// Healthy, and beyond this code.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The header is corrupt.
    #[error("{place}: {flaw}")]
    Damaged {
        /// Which part of it.
        place: String,
        /// The mistake.
        flaw: String,
    },
    /// There is neither a LUKS1 nor a LUKS2 header.
    #[error("no LUKS header (a plain device requires cipher=)")]
    NoHeader,
    /// No key slot opens with the key.
    #[error("no key slot opens with this key")]
    WrongKey,
    /// The key is not as long as the cipher's.
    #[error("invalid key size for the cipher: {bytes} bytes")]
    KeySize {
        /// Its bytes.
        bytes: usize,
    },
    /// The key file is shorter than the key.
    #[error("key of {found} bytes, {needed} needed")]
    ShortKey {
        /// The given value.
        found: usize,
        /// The values that the cipher takes.
        needed: usize,
    },
    /// The enciphered area does not lie on the device.
    #[error("the data begins at byte {start}, past the end of the device ({size} bytes)")]
    OutOfDevice {
        /// The position of the data according to the header.
        start: u64,
        /// Bytes of the device.
        size: u64,
    },
    /// Opening it would take too long or too much memory.
    #[error("{place}: requires {asked}{given}")]
    TooCostly {
        /// The key slot.
        place: String,
        /// The required cost.
        asked: String,
        /// The limit, and how to raise it.
        given: String,
    },
    /// The memory that the header asks for was not to be had.
    #[error("{place}: no memory for {kib} KiB of Argon2")]
    NoMemory {
        /// The key slot.
        place: String,
        /// The required cost.
        kib: u32,
    },
    /// The header was not read.
    #[error("header: {0}")]
    Device(#[from] DeviceError),
}

impl CryptError {
    /// The number that a system call returns for it.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Unsupported(_) => errno::EOPNOTSUPP,
            Self::Damaged { .. } | Self::OutOfDevice { .. } => errno::EUCLEAN,
            Self::NoHeader | Self::KeySize { .. } | Self::ShortKey { .. } => errno::EINVAL,
            Self::WrongKey => errno::EKEYREJECTED,
            Self::TooCostly { .. } | Self::NoMemory { .. } => errno::ENOMEM,
            Self::Device(error) => error.errno(),
        }
    }
}

/// A header whose data begin at byte 0 or inside the header: the data lie on another device.
pub(super) fn detached(version: u8) -> CryptError {
    CryptError::Unsupported(format!("a LUKS{version} header that is detached from its data"))
}

pub(super) fn damaged(place: impl Into<String>, flaw: impl Into<String>) -> CryptError {
    CryptError::Damaged { place: place.into(), flaw: flaw.into() }
}
