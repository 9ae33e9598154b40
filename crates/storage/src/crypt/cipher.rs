//! Sectors enciphered as dm-crypt does: a block cipher in XTS or CBC mode, and an initial vector
//! made of the sector's number (kernel documentation: admin-guide/device-mapper/dm-crypt).

use std::fmt;

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes192, Aes256, Block};

use super::digest::Hash;
use super::error::CryptError;

/// Bytes that the cipher works on at once.
pub(super) const BLOCK: usize = 16;
/// Bytes of the units in which dm-crypt counts sectors of any size.
pub(super) const IV_SECTOR: u64 = 512;
/// Sectors that are enciphered side by side: the processor works on several blocks at a time, and
/// CBC can begin the next block of a sector only when the one before is done.
const ABREAST: usize = 8;

/// A cipher as dm-crypt names it: `aes-xts-plain64`, `aes-cbc-essiv:sha256`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CipherSpec {
    /// How blocks are chained.
    pub mode: Mode,
    /// How a sector's number becomes its initial vector.
    pub iv: Iv,
}

/// How blocks of a sector are chained.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// Cipher block chaining (NIST SP 800-38A).
    Cbc,
    /// XEX with tweak (IEEE 1619, NIST SP 800-38E): two keys, each half of the whole.
    Xts,
}

/// How a sector's number becomes its initial vector.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Iv {
    /// Its low 32 bits, little-endian.
    Plain,
    /// All of it, little-endian.
    Plain64,
    /// All of it, enciphered with a hash of the key.
    Essiv(Hash),
}

impl CipherSpec {
    /// Reads a cipher's name as cryptsetup and dm-crypt write it.
    ///
    /// # Errors
    /// A cipher, mode or initial vector that is not supported; it is named.
    pub fn parse(text: &str) -> Result<Self, CryptError> {
        let unsupported = |what: &str| CryptError::Unsupported(what.to_owned());
        let mut parts = text.splitn(3, '-');
        let (cipher, mode, iv) = (parts.next(), parts.next(), parts.next());
        if cipher != Some("aes") {
            return Err(unsupported(&format!("cipher {text} (expected aes-xts or aes-cbc)")));
        }
        let mode = match mode {
            Some("xts") => Mode::Xts,
            Some("cbc") => Mode::Cbc,
            _ => return Err(unsupported(&format!("mode of cipher {text} (expected xts or cbc)"))),
        };
        let iv = match iv {
            Some("plain") => Iv::Plain,
            Some("plain64") => Iv::Plain64,
            Some(iv) if iv.starts_with("essiv:") => {
                let hash = Hash::parse(&iv["essiv:".len()..])?;
                if !matches!(hash.output_size(), 16 | 24 | 32) {
                    return Err(unsupported(&format!(
                        "{iv}: the hash size is not an AES key size"
                    )));
                }
                Iv::Essiv(hash)
            }
            _ => {
                let what =
                    format!("initial vector of cipher {text} (expected plain, plain64 or essiv)");
                return Err(unsupported(&what));
            }
        };
        Ok(Self { mode, iv })
    }

    /// Bits of key that are taken by default.
    pub fn default_key_bits(self) -> u32 {
        match self.mode {
            Mode::Cbc => 256,
            Mode::Xts => 512,
        }
    }
}

impl fmt::Display for CipherSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            Mode::Cbc => "cbc",
            Mode::Xts => "xts",
        };
        match self.iv {
            Iv::Plain => write!(f, "aes-{mode}-plain"),
            Iv::Plain64 => write!(f, "aes-{mode}-plain64"),
            Iv::Essiv(hash) => write!(f, "aes-{mode}-essiv:{hash}"),
        }
    }
}

/// AES with any of its keys. Its key is wiped when it is dropped.
enum Aes {
    Bits128(Box<Aes128>),
    Bits192(Box<Aes192>),
    Bits256(Box<Aes256>),
}

impl Aes {
    fn new(key: &[u8]) -> Result<Self, CryptError> {
        let wrong = |_| CryptError::KeySize { bytes: key.len() };
        Ok(match key.len() {
            16 => Self::Bits128(Box::new(Aes128::new_from_slice(key).map_err(wrong)?)),
            24 => Self::Bits192(Box::new(Aes192::new_from_slice(key).map_err(wrong)?)),
            _ => Self::Bits256(Box::new(Aes256::new_from_slice(key).map_err(wrong)?)),
        })
    }

    fn encrypt(&self, blocks: &mut [Block]) {
        match self {
            Self::Bits128(aes) => aes.encrypt_blocks(blocks),
            Self::Bits192(aes) => aes.encrypt_blocks(blocks),
            Self::Bits256(aes) => aes.encrypt_blocks(blocks),
        }
    }

    fn decrypt(&self, blocks: &mut [Block]) {
        match self {
            Self::Bits128(aes) => aes.decrypt_blocks(blocks),
            Self::Bits192(aes) => aes.decrypt_blocks(blocks),
            Self::Bits256(aes) => aes.decrypt_blocks(blocks),
        }
    }
}

/// A cipher with its key: sectors in, sectors out. Keys are wiped from memory when it is dropped.
pub struct SectorCipher {
    spec: CipherSpec,
    data: Aes,
    /// The second key: XTS's tweaks, ESSIV's initial vectors.
    tweak: Option<Aes>,
    essiv: Option<Aes>,
    sector: usize,
    /// Added to a sector's number for each sector: one, or as many as the sector has 512 bytes.
    iv_step: u64,
    /// Number of 512-byte units of one sector number.
    iv_unit: u64,
}

impl fmt::Debug for SectorCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SectorCipher")
            .field("spec", &self.spec)
            .field("sector", &self.sector)
            .finish_non_exhaustive()
    }
}

impl SectorCipher {
    /// A cipher for sectors of `sector` bytes. `iv_large_sectors` counts initial vectors in whole
    /// sectors, and in 512 bytes otherwise.
    ///
    /// # Errors
    /// The key has a size that the cipher does not take, or the sector size is not 512, 1024, 2048
    /// or 4096.
    pub fn new(
        spec: CipherSpec,
        key: &[u8],
        sector: u32,
        iv_large_sectors: bool,
    ) -> Result<Self, CryptError> {
        if !matches!(sector, 512 | 1024 | 2048 | 4096) {
            return Err(CryptError::Unsupported(format!("sectors of {sector} bytes")));
        }
        let (data, tweak) = match (spec.mode, key.len()) {
            (Mode::Cbc, 16 | 24 | 32) => (Aes::new(key)?, None),
            (Mode::Xts, 32 | 48 | 64) => {
                let (data, tweak) = key.split_at(key.len() / 2);
                (Aes::new(data)?, Some(Aes::new(tweak)?))
            }
            (_, bytes) => return Err(CryptError::KeySize { bytes }),
        };
        let essiv = match spec.iv {
            Iv::Essiv(hash) => Some(Aes::new(&hash.of(&[key]))?),
            Iv::Plain | Iv::Plain64 => None,
        };
        let ratio = u64::from(sector) / IV_SECTOR;
        let (iv_step, iv_unit) = if iv_large_sectors { (1, ratio) } else { (ratio, 1) };
        Ok(Self { spec, data, tweak, essiv, sector: sector as usize, iv_step, iv_unit })
    }

    /// Bytes a sector.
    pub fn sector(&self) -> usize {
        self.sector
    }

    /// How many 512 bytes the numbers of initial vectors count by.
    pub fn iv_unit(&self) -> u64 {
        self.iv_unit
    }

    /// The initial vectors of sectors in a row; `first` is the number of the first.
    fn fill_ivs(&self, first: u64, ivs: &mut [Block]) {
        let mut number = first;
        for iv in ivs.iter_mut() {
            iv.fill(0);
            match self.spec.iv {
                // As in dm-crypt, whose plain keeps the low half.
                Iv::Plain => iv[..4].copy_from_slice(&(number as u32).to_le_bytes()),
                Iv::Plain64 | Iv::Essiv(_) => iv[..8].copy_from_slice(&number.to_le_bytes()),
            }
            number = number.wrapping_add(self.iv_step);
        }
        if let Some(essiv) = &self.essiv {
            essiv.encrypt(ivs);
        }
        if let Some(tweak) = &self.tweak {
            tweak.encrypt(ivs);
        }
    }

    /// Enciphers whole sectors in place; `iv` is the first one's number.
    pub fn encrypt(&self, iv: u64, bytes: &mut [u8]) {
        self.each(iv, bytes, |cipher, ivs, blocks| match cipher.spec.mode {
            Mode::Xts => cipher.xts(ivs, blocks, |blocks| cipher.data.encrypt(blocks)),
            Mode::Cbc => cipher.cbc_encrypt(ivs, blocks),
        });
    }

    /// Deciphers whole sectors in place; `iv` is the first one's number.
    pub fn decrypt(&self, iv: u64, bytes: &mut [u8]) {
        self.each(iv, bytes, |cipher, ivs, blocks| match cipher.spec.mode {
            Mode::Xts => cipher.xts(ivs, blocks, |blocks| cipher.data.decrypt(blocks)),
            Mode::Cbc => cipher.cbc_decrypt(ivs, blocks),
        });
    }

    /// Hands out some sectors at a time, with an initial vector each.
    fn each(&self, iv: u64, bytes: &mut [u8], work: impl Fn(&Self, &[Block], &mut [Block])) {
        assert!(bytes.len().is_multiple_of(self.sector), "{} bytes are no sectors", bytes.len());
        let mut ivs = [Block::default(); ABREAST];
        let mut number = iv;
        for run in bytes.chunks_mut(ABREAST * self.sector) {
            let ivs = &mut ivs[..run.len() / self.sector];
            self.fill_ivs(number, ivs);
            number = number.wrapping_add(self.iv_step * ivs.len() as u64);
            let (blocks, rest) = Block::slice_as_chunks_mut(run);
            debug_assert!(rest.is_empty(), "a sector has whole blocks");
            work(self, ivs, blocks);
        }
    }

    fn xts(&self, ivs: &[Block], blocks: &mut [Block], cipher: impl Fn(&mut [Block])) {
        /// Blocks whose tweaks are at hand: one sector of 512 bytes, and a divisor of the larger
        /// ones.
        const RUN: usize = IV_SECTOR as usize / BLOCK;
        let mut tweaks = [0; RUN];
        for (iv, sector) in ivs.iter().zip(blocks.chunks_mut(self.sector / BLOCK)) {
            let mut tweak = u128::from_le_bytes(iv.0);
            for run in sector.chunks_mut(RUN) {
                for (kept, block) in tweaks.iter_mut().zip(run.iter_mut()) {
                    *kept = tweak;
                    xor(block, tweak);
                    // Times x in GF(2^128), modulo x^128 + x^7 + x^2 + x + 1.
                    tweak = tweak << 1 ^ (0x87 & 0_u128.wrapping_sub(tweak >> 127));
                }
                cipher(run);
                for (kept, block) in tweaks.iter().zip(run) {
                    xor(block, *kept);
                }
            }
        }
    }

    /// A block can be enciphered only after the one before it: blocks of several sectors are, side
    /// by side.
    fn cbc_encrypt(&self, ivs: &[Block], blocks: &mut [Block]) {
        let per_sector = self.sector / BLOCK;
        let mut row = [Block::default(); ABREAST];
        let row = &mut row[..ivs.len()];
        row.copy_from_slice(ivs);
        for at in 0..per_sector {
            for (index, chained) in row.iter_mut().enumerate() {
                let plain = u128::from_le_bytes(blocks[index * per_sector + at].0);
                xor(chained, plain);
            }
            self.data.encrypt(row);
            for (index, enciphered) in row.iter().enumerate() {
                blocks[index * per_sector + at] = *enciphered;
            }
        }
    }

    fn cbc_decrypt(&self, ivs: &[Block], blocks: &mut [Block]) {
        const RUN: usize = IV_SECTOR as usize / BLOCK;
        let mut before = [0; RUN];
        for (iv, sector) in ivs.iter().zip(blocks.chunks_mut(self.sector / BLOCK)) {
            let mut last = u128::from_le_bytes(iv.0);
            for run in sector.chunks_mut(RUN) {
                for (before, block) in before.iter_mut().zip(run.iter()) {
                    *before = last;
                    last = u128::from_le_bytes(block.0);
                }
                self.data.decrypt(run);
                for (before, block) in before.iter().zip(run) {
                    xor(block, *before);
                }
            }
        }
    }
}

fn xor(block: &mut Block, with: u128) {
    block.0 = (u128::from_le_bytes(block.0) ^ with).to_le_bytes();
}
