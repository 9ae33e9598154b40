//! The mapping of the data that a header describes, or the options of a plain device.

use super::cipher::SectorCipher;

/// Where the data lies and how it is enciphered.
pub(super) struct Mapping {
    pub(super) start: u64,
    /// Up to the device's end if not given.
    pub(super) size: Option<u64>,
    pub(super) cipher: SectorCipher,
    pub(super) iv_offset: u64,
}
