//! The undo file: a header of 4,096 bytes, then records; all numbers little-endian.
//!
//! | header | at | bytes |
//! |---|---|---|
//! | `EXTANT-UNDO-FILE` | 0 | 16 |
//! | version, 1 | 16 | 4 |
//! | bytes of a unit | 20 | 4 |
//! | bytes of the device | 24 | 8 |
//! | the mark: the device's bytes 1,024 to 2,047 when the file was made | 64 | 1,024 |
//! | crc32c of all before | 4,092 | 4 |
//!
//! | record | at | bytes |
//! |---|---|---|
//! | kind: `OLD `, `HOLE` (zeroes) or `END ` | 0 | 4 |
//! | bytes of data that follow the record's header | 4 | 4 |
//! | offset on the device | 8 | 8 |
//! | bytes that were kept | 16 | 8 |
//! | number of the record, from 0 | 24 | 4 |
//! | crc32c of the header before and the data | 28 | 4 |
//!
//! A unit is kept once, before it is first overwritten, and the file is synced before the overwrite
//! is passed on. So a torn record at the end, or none at all where one was to come, means that its
//! unit is still untouched. `END ` holds the mark as it was when the work was done: an image that
//! has another mark was changed since.

/// The first bytes.
pub const MAGIC: &[u8; 16] = b"EXTANT-UNDO-FILE";
/// The version written.
pub const VERSION: u32 = 1;
/// Bytes of the header.
pub const HEADER_LEN: usize = 4096;
/// Bytes of a record's header.
pub const RECORD_LEN: usize = 32;
/// Where the mark lies on the device.
pub const MARK_AT: u64 = 1024;
/// Bytes of the mark.
pub const MARK_LEN: usize = 1024;
/// The part of the mark that survives most changes: the volume's UUID.
pub const UUID_IN_MARK: std::ops::Range<usize> = 0x68..0x78;
/// Bytes kept together. Larger than a block, since neighbours of a repaired block are often
/// repaired next, and each unit costs a sync.
pub const UNIT: u32 = 1 << 15;

pub(super) const HEADER_MARK_AT: usize = 64;

/// The contents of a record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Old bytes.
    Old,
    /// Old bytes that were all zero.
    Hole,
    /// The mark of the finished device.
    End,
}

/// A record's header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Record {
    /// The contents.
    pub kind: Kind,
    /// Bytes of data that follow.
    pub data_len: u32,
    /// Where on the device.
    pub offset: u64,
    /// Bytes of the device.
    pub length: u64,
    /// Its number, from 0.
    pub number: u32,
}

const OLD: [u8; 4] = *b"OLD ";
const HOLE: [u8; 4] = *b"HOLE";
const END: [u8; 4] = *b"END ";

pub(super) fn crc(parts: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    // A CRC of 32 bits in 64.
    digest.finalize() as u32
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from(le32(bytes, at)) | u64::from(le32(bytes, at + 4)) << 32
}

/// The header.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Header {
    /// Bytes of a unit.
    pub unit: u32,
    /// Bytes of the device.
    pub device_size: u64,
    /// The mark.
    pub mark: Vec<u8>,
}

impl Header {
    /// As stored.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN];
        bytes[..16].copy_from_slice(MAGIC);
        bytes[16..20].copy_from_slice(&VERSION.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.unit.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.device_size.to_le_bytes());
        bytes[HEADER_MARK_AT..HEADER_MARK_AT + MARK_LEN].copy_from_slice(&self.mark);
        let sum = crc(&[&bytes[..HEADER_LEN - 4]]);
        bytes[HEADER_LEN - 4..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// From the first [`HEADER_LEN`] bytes of a file.
    ///
    /// # Errors
    /// The mistake in them.
    pub fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        if bytes.len() < HEADER_LEN {
            return Err("too short");
        }
        if &bytes[..16] != MAGIC {
            return Err("bad magic number");
        }
        if le32(bytes, 16) != VERSION {
            return Err("unknown version");
        }
        if crc(&[&bytes[..HEADER_LEN - 4]]) != le32(bytes, HEADER_LEN - 4) {
            return Err("header checksum does not match");
        }
        let unit = le32(bytes, 20);
        if !unit.is_power_of_two() || unit < 512 {
            return Err("invalid block size");
        }
        let mark = bytes[HEADER_MARK_AT..HEADER_MARK_AT + MARK_LEN].to_vec();
        Ok(Self { unit, device_size: le64(bytes, 24), mark })
    }
}

impl Record {
    /// As stored, with the checksum of itself and `data`.
    pub fn encode(&self, data: &[u8]) -> [u8; RECORD_LEN] {
        let mut bytes = [0; RECORD_LEN];
        let kind = match self.kind {
            Kind::Old => OLD,
            Kind::Hole => HOLE,
            Kind::End => END,
        };
        bytes[..4].copy_from_slice(&kind);
        bytes[4..8].copy_from_slice(&self.data_len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.length.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.number.to_le_bytes());
        let sum = crc(&[&bytes[..28], data]);
        bytes[28..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The header of a record; `None` for invalid bytes, or for a length beyond a unit.
    pub fn decode(bytes: &[u8; RECORD_LEN], unit: u32) -> Option<Self> {
        let kind = match [bytes[0], bytes[1], bytes[2], bytes[3]] {
            OLD => Kind::Old,
            HOLE => Kind::Hole,
            END => Kind::End,
            _ => return None,
        };
        let record = Self {
            kind,
            data_len: le32(bytes, 4),
            offset: le64(bytes, 8),
            length: le64(bytes, 16),
            number: le32(bytes, 24),
        };
        let is_possible = match kind {
            Kind::Old => record.data_len <= unit && u64::from(record.data_len) == record.length,
            Kind::Hole => record.data_len == 0 && record.length <= u64::from(unit),
            Kind::End => record.data_len as usize == MARK_LEN,
        };
        is_possible.then_some(record)
    }

    /// Whether the stored header and data have the checksum that they should.
    pub fn is_whole(bytes: &[u8; RECORD_LEN], data: &[u8]) -> bool {
        crc(&[&bytes[..28], data]) == le32(bytes, 28)
    }
}
