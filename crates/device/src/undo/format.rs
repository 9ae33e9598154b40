//! The undo file of e2fsprogs, as its programs write and read it; all numbers little-endian.
//!
//! The file is a row of blocks: the header, the superblock, then key blocks, each followed by the
//! data of its keys. The data of a key are whole blocks; the last is filled with zeroes.
//!
//! | header | at | bytes |
//! |---|---|---|
//! | `E2UNDO02` | 0 | 8 |
//! | number of keys | 8 | 8 |
//! | block of the superblock | 16 | 8 |
//! | the first key block | 24 | 8 |
//! | bytes of a block of this file | 32 | 4 |
//! | bytes of a file system block, in which keys count | 36 | 4 |
//! | checksum of the superblock | 40 | 4 |
//! | state: 1 if the file is finished | 44 | 4 |
//! | compatible features: 1 if the offset is given | 48 | 4 |
//! | incompatible features, read-only features | 52 | 8 |
//! | offset of the file system in the device's file, bytes | 64 | 8 |
//! | checksum of the 508 bytes before | 508 | 4 |
//!
//! | key block | at | bytes |
//! |---|---|---|
//! | `0xCADECADE` | 0 | 4 |
//! | checksum of the block, with zeroes here | 4 | 4 |
//! | reserved | 8 | 8 |
//! | keys | 16 | 16 each |
//!
//! | key | at | bytes |
//! |---|---|---|
//! | first file system block | 0 | 8 |
//! | checksum of the data | 8 | 4 |
//! | bytes of the data | 12 | 4 |
//!
//! Checksums are crc32c, not inverted at the end, as of all that ext4 stores. The superblock is
//! that of the file system as the command left it; its magic number is inverted, so that the undo
//! file is not taken for a file system.

use super::CHUNK;

/// The first bytes.
pub const MAGIC: &[u8; 8] = b"E2UNDO02";
/// The first bytes of a key block.
pub const KEY_BLOCK_MAGIC: u32 = 0xcade_cade;
/// Bytes of the header.
pub const HEADER_LEN: usize = 512;
/// Bytes of a key.
pub const KEY_LEN: usize = 16;
/// Bytes of a key block before its keys.
pub const KEY_BLOCK_HEAD_LEN: usize = 16;
/// The smallest block of a file and of a file system.
pub const MIN_BLOCK_SIZE: u32 = 1024;
/// The largest block of a file that is read; e2fsprogs' programs write up to 32 KiB.
pub const MAX_BLOCK_SIZE: u32 = 1 << 20;
/// Blocks of data that e2undo takes for a key at most.
pub const MAX_DATA_BLOCKS: u64 = 512;
/// Where the superblock lies in the file system.
pub const SUPERBLOCK_AT: u64 = 1024;
/// Bytes of the superblock.
pub const SUPERBLOCK_LEN: usize = 1024;

const SUM_AT: usize = HEADER_LEN - 4;
const KEY_BLOCK_SUM: std::ops::Range<usize> = 4..8;
const IS_FINISHED: u32 = 1;
const HAS_OFFSET: u32 = 1;

/// A checksum that goes on over several pieces.
pub(super) struct Sum(crc_fast::Digest);

impl Sum {
    pub(super) fn new() -> Self {
        Self(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi))
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn value(&self) -> u32 {
        // A CRC of 32 bits in 64, whose inversion at the end is taken back.
        !(self.0.finalize() as u32)
    }

    /// Of one piece.
    pub(super) fn of(bytes: &[u8]) -> u32 {
        let mut sum = Self::new();
        sum.update(bytes);
        sum.value()
    }

    /// Of `length` zeroes.
    pub(super) fn of_zeroes(length: u64) -> u32 {
        let zeroes = vec![0; CHUNK.min(length) as usize];
        let mut sum = Self::new();
        let mut left = length;
        while left > 0 {
            let now = left.min(CHUNK);
            sum.update(&zeroes[..now as usize]);
            left -= now;
        }
        sum.value()
    }
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
    /// Number of keys.
    pub keys: u64,
    /// Block of the superblock.
    pub superblock: u64,
    /// The first key block.
    pub key_block: u64,
    /// Bytes of a block of the file.
    pub block_size: u32,
    /// Bytes of a file system block.
    pub fs_block_size: u32,
    /// Checksum of the superblock, its magic number as on the device.
    pub superblock_sum: u32,
    /// Whether the command came to its end.
    pub is_finished: bool,
    /// Offset of the file system in the device's file.
    pub offset: Option<u64>,
}

impl Header {
    /// As stored.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(MAGIC);
        let numbers = [(8, self.keys), (16, self.superblock), (24, self.key_block)];
        for (at, number) in numbers.into_iter().chain([(64, self.offset.unwrap_or(0))]) {
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        let words = [
            (32, self.block_size),
            (36, self.fs_block_size),
            (40, self.superblock_sum),
            (44, if self.is_finished { IS_FINISHED } else { 0 }),
            (48, if self.offset.is_some() { HAS_OFFSET } else { 0 }),
        ];
        for (at, word) in words {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        let sum = Sum::of(&bytes[..SUM_AT]);
        bytes[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// From the first bytes of a file.
    ///
    /// # Errors
    /// The mistake in them.
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Self, &'static str> {
        if &bytes[..8] != MAGIC {
            return Err("bad magic number");
        }
        if Sum::of(&bytes[..SUM_AT]) != le32(bytes, SUM_AT) {
            return Err("header checksum does not match");
        }
        if le32(bytes, 52) != 0 || le32(bytes, 56) != 0 {
            return Err("unknown feature set");
        }
        let header = Self {
            keys: le64(bytes, 8),
            superblock: le64(bytes, 16),
            key_block: le64(bytes, 24),
            block_size: le32(bytes, 32),
            fs_block_size: le32(bytes, 36),
            superblock_sum: le32(bytes, 40),
            is_finished: le32(bytes, 44) & IS_FINISHED != 0,
            offset: (le32(bytes, 48) & HAS_OFFSET != 0).then(|| le64(bytes, 64)),
        };
        let is_possible = |size: u32| (MIN_BLOCK_SIZE..=MAX_BLOCK_SIZE).contains(&size);
        if !is_possible(header.block_size) || !is_possible(header.fs_block_size) {
            return Err("invalid block size");
        }
        Ok(header)
    }

    /// Number of keys in a key block.
    pub fn keys_per_block(&self) -> usize {
        (self.block_size as usize - KEY_BLOCK_HEAD_LEN) / KEY_LEN
    }
}

/// Where the old contents of some blocks are kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Key {
    /// First file system block.
    pub block: u64,
    /// Checksum of the data.
    pub sum: u32,
    /// Bytes of the data.
    pub length: u32,
}

impl Key {
    /// Number of blocks of the file that hold the data.
    pub fn data_blocks(&self, block_size: u32) -> u64 {
        u64::from(self.length.div_ceil(block_size))
    }

    fn decode(bytes: &[u8]) -> Self {
        Self { block: le64(bytes, 0), sum: le32(bytes, 8), length: le32(bytes, 12) }
    }
}

/// A key block as stored.
pub fn encode_keys(keys: &[Key], block_size: u32) -> Vec<u8> {
    let mut bytes = vec![0; block_size as usize];
    bytes[..4].copy_from_slice(&KEY_BLOCK_MAGIC.to_le_bytes());
    for (key, place) in keys.iter().zip(bytes[KEY_BLOCK_HEAD_LEN..].chunks_exact_mut(KEY_LEN)) {
        place[..8].copy_from_slice(&key.block.to_le_bytes());
        place[8..12].copy_from_slice(&key.sum.to_le_bytes());
        place[12..].copy_from_slice(&key.length.to_le_bytes());
    }
    let sum = Sum::of(&bytes);
    bytes[KEY_BLOCK_SUM].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The first `count` keys of a key block, and whether its magic number and checksum are right.
pub fn decode_keys(bytes: &[u8], count: usize) -> (Vec<Key>, bool) {
    let mut summed = bytes.to_vec();
    summed[KEY_BLOCK_SUM].fill(0);
    let is_whole =
        le32(bytes, 0) == KEY_BLOCK_MAGIC && Sum::of(&summed) == le32(bytes, KEY_BLOCK_SUM.start);
    let keys = bytes[KEY_BLOCK_HEAD_LEN..].chunks_exact(KEY_LEN).take(count).map(Key::decode);
    (keys.collect(), is_whole)
}

/// The superblock with its magic number inverted: as stored from the device, or the other way.
pub fn with_inverted_magic(superblock: &[u8; SUPERBLOCK_LEN]) -> [u8; SUPERBLOCK_LEN] {
    let mut inverted = *superblock;
    for byte in &mut inverted[0x38..0x3a] {
        *byte = !*byte;
    }
    inverted
}
