//! Multiple-mount protection (MMP): a block that records whether a host has the volume open.
//!
//! Source: `mmp.rst`; the special sequence numbers as stated in `docs/src/internals/on-disk.md`.

use crate::checksum::Crc32c;
use crate::types::BlockNo;
use crate::{Flaw, FormatError, Geometry, Location};
use core::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `mmp_magic`: "MMP".
pub const MMP_MAGIC: u32 = 0x004d_4d50;
/// The volume is not open.
const SEQUENCE_CLEAN: u32 = 0xff4d_4d50;
/// A checker has it open.
const SEQUENCE_FSCK: u32 = 0xe24d_4d50;
/// Maximum sequence number of a mount.
pub const MAX_SEQUENCE: u32 = 0xe24d_4d4f;

/// The structure as stored, little-endian; the rest of its block is not used.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[allow(missing_docs, reason = "the kernel's field names, documented in mmp.rst")]
pub struct RawMmp {
    pub mmp_magic: U32,
    pub mmp_seq: U32,
    pub mmp_time: U64,
    pub mmp_nodename: [u8; 64],
    pub mmp_bdevname: [u8; 32],
    pub mmp_check_interval: U16,
    pub mmp_pad1: U16,
    pub mmp_pad2: [U32; 226],
    pub mmp_checksum: U32,
}

const _: () = assert!(size_of::<RawMmp>() == 1024);
const _: () = assert!(offset_of!(RawMmp, mmp_check_interval) == 0x70);
const _: () = assert!(offset_of!(RawMmp, mmp_checksum) == 0x3fc);

/// The user of the volume.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MmpSequence {
    /// Not open.
    Clean,
    /// A checker.
    Fsck,
    /// A mount, which increments this number while it is active.
    Mounted(u32),
}

impl MmpSequence {
    /// Decodes the stored number.
    pub fn decode(stored: u32) -> Self {
        match stored {
            SEQUENCE_CLEAN => Self::Clean,
            SEQUENCE_FSCK => Self::Fsck,
            sequence => Self::Mounted(sequence),
        }
    }

    /// The stored number.
    pub fn encode(self) -> u32 {
        match self {
            Self::Clean => SEQUENCE_CLEAN,
            Self::Fsck => SEQUENCE_FSCK,
            Self::Mounted(sequence) => sequence,
        }
    }
}

impl RawMmp {
    /// Copies the structure from its block.
    ///
    /// # Errors
    /// A block that is too short.
    pub fn from_bytes(bytes: &[u8], block: BlockNo) -> Result<Self, FormatError> {
        Self::read_from_prefix(bytes)
            .map(|(raw, _)| raw)
            .map_err(|_| Flaw::truncated(bytes.len(), size_of::<Self>()).at(Location::Mmp(block)))
    }

    /// Verifies the magic number, and the checksum with metadata_csum.
    ///
    /// # Errors
    /// [`Flaw::Magic`] or [`Flaw::Checksum`].
    pub fn verify(&self, block: BlockNo, geometry: &Geometry) -> Result<(), FormatError> {
        if self.mmp_magic.get() != MMP_MAGIC {
            return Err(Flaw::magic(self.mmp_magic.get(), MMP_MAGIC).at(Location::Mmp(block)));
        }
        if !geometry.has_metadata_csum() {
            return Ok(());
        }
        let (found, computed) = (self.mmp_checksum.get(), self.checksum(geometry));
        if found != computed {
            return Err(Flaw::checksum(found, computed).at(Location::Mmp(block)));
        }
        Ok(())
    }

    /// Sets the checksum; the last step before the bytes are written.
    pub fn seal(&mut self, geometry: &Geometry) {
        if geometry.has_metadata_csum() {
            self.mmp_checksum.set(self.checksum(geometry));
        }
    }

    fn checksum(&self, geometry: &Geometry) -> u32 {
        let covered = &self.as_bytes()[..offset_of!(Self, mmp_checksum)];
        Crc32c::seeded(geometry.checksum_seed).bytes(covered).value()
    }
}

/// The decoded structure.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mmp {
    /// The user of the volume.
    pub sequence: MmpSequence,
    /// Time of the last update in seconds since 1970.
    pub time: u64,
    /// Host that opened the volume last, for information.
    pub node_name: [u8; 64],
    /// That host's name for the device, for information.
    pub device_name: [u8; 32],
    /// Update interval in seconds.
    pub check_interval: u16,
}

impl Mmp {
    /// The structure of a volume that was never open.
    pub fn new(check_interval: u16, time: u64) -> Self {
        Self {
            sequence: MmpSequence::Clean,
            time,
            node_name: [0; 64],
            device_name: [0; 32],
            check_interval,
        }
    }

    /// Decodes a verified structure.
    pub fn decode(raw: &RawMmp) -> Self {
        Self {
            sequence: MmpSequence::decode(raw.mmp_seq.get()),
            time: raw.mmp_time.get(),
            node_name: raw.mmp_nodename,
            device_name: raw.mmp_bdevname,
            check_interval: raw.mmp_check_interval.get(),
        }
    }

    /// Sets the known fields. Every other byte is not changed.
    pub fn encode_into(&self, raw: &mut RawMmp) {
        raw.mmp_magic.set(MMP_MAGIC);
        raw.mmp_seq.set(self.sequence.encode());
        raw.mmp_time.set(self.time);
        raw.mmp_nodename = self.node_name;
        raw.mmp_bdevname = self.device_name;
        raw.mmp_check_interval.set(self.check_interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn special_sequences_differ_from_a_mounts() {
        assert_eq!(MmpSequence::decode(0xff4d_4d50), MmpSequence::Clean);
        assert_eq!(MmpSequence::decode(0xe24d_4d50), MmpSequence::Fsck);
        assert_eq!(MmpSequence::decode(MAX_SEQUENCE), MmpSequence::Mounted(MAX_SEQUENCE));
    }

    proptest! {
        #[test]
        fn decode_then_encode_keeps_every_byte(bytes in proptest::collection::vec(any::<u8>(), 1024)) {
            let mut raw = RawMmp::from_bytes(&bytes, BlockNo(9)).unwrap();
            raw.mmp_magic.set(MMP_MAGIC);
            let before = raw;
            Mmp::decode(&raw).encode_into(&mut raw);
            prop_assert_eq!(raw.as_bytes(), before.as_bytes());
        }
    }
}
