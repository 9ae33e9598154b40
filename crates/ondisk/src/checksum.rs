//! The checksums of the format: crc32c of metadata_csum, crc16 of uninit_bg, CRC-32 of the old journal checksum.
//!
//! All three are used "raw": the state is the start value given, and nothing is inverted at the end.

/// crc32c (Castagnoli, reflected), fed piece by piece. The kernel's documents start it at ~0, the volume's seed
/// or a structure's own seed.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Crc32c(u32);

impl Crc32c {
    /// Starts at ~0.
    pub fn new() -> Self {
        Self(!0)
    }

    /// Starts at a checksum computed before.
    pub fn seeded(seed: u32) -> Self {
        Self(seed)
    }

    /// Feeds bytes.
    pub fn bytes(self, bytes: &[u8]) -> Self {
        Self(crc32c_update(self.0, bytes))
    }

    /// Feeds a little-endian 32-bit number.
    pub fn le32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Feeds a big-endian 32-bit number, as the journal stores it.
    pub fn be32(self, value: u32) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Feeds `count` zero bytes: a checksum field read as zero.
    pub fn zeros(self, count: usize) -> Self {
        const ZEROS: [u8; 64] = [0; 64];
        let mut crc = self;
        let mut left = count;
        while left > 0 {
            let now = left.min(ZEROS.len());
            crc = crc.bytes(&ZEROS[..now]);
            left -= now;
        }
        crc
    }

    /// The checksum.
    #[must_use]
    pub fn value(self) -> u32 {
        self.0
    }

    /// The checksum's low half, for structures with 16 bits of room.
    #[must_use]
    pub fn low16(self) -> u16 {
        (self.0 & 0xffff) as u16
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

/// Below this many bytes the table is faster than setting up the vector code.
#[cfg(feature = "std")]
const SHORT: usize = 32;

#[cfg(feature = "std")]
fn crc32c_update(state: u32, bytes: &[u8]) -> u32 {
    if bytes.len() < SHORT {
        return CRC32C.update(state, bytes);
    }
    let mut digest =
        crc_fast::Digest::new_with_init_state(crc_fast::CrcAlgorithm::Crc32Iscsi, u64::from(state));
    digest.update(bytes);
    // The library inverts at the end; the format does not.
    !(digest.finalize() as u32)
}

#[cfg(not(feature = "std"))]
fn crc32c_update(state: u32, bytes: &[u8]) -> u32 {
    CRC32C.update(state, bytes)
}

const CRC32C: ReflectedTable = ReflectedTable::new(0x82f6_3b78);

/// A table for a reflected CRC of 32 bits, one byte a step.
struct ReflectedTable([u32; 256]);

impl ReflectedTable {
    const fn new(polynomial: u32) -> Self {
        let mut table = [0_u32; 256];
        let mut index = 0;
        while index < 256 {
            let mut value = index as u32;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 { (value >> 1) ^ polynomial } else { value >> 1 };
                bit += 1;
            }
            table[index] = value;
            index += 1;
        }
        Self(table)
    }

    const fn step(&self, state: u32, byte: u8) -> u32 {
        (state >> 8) ^ self.0[((state ^ byte as u32) & 0xff) as usize]
    }

    fn update(&self, state: u32, bytes: &[u8]) -> u32 {
        bytes.iter().fold(state, |state, &byte| self.step(state, byte))
    }
}

/// crc16 of uninit_bg (polynomial 0x8005 reflected, as CRC-16/ARC), from a start value; group descriptors start at ~0.
#[must_use]
pub fn crc16(start: u16, bytes: &[u8]) -> u16 {
    const TABLE: ReflectedTable = ReflectedTable::new(0xa001);
    // The high half of the state stays zero, so the 32-bit table serves.
    bytes.iter().fold(u32::from(start), |state, &byte| TABLE.step(state, byte)) as u16
}

/// CRC-32 with polynomial 0x04c11db7, most significant bit first: the journal's checksum v1. Starts at ~0 there.
#[must_use]
pub fn crc32_be(start: u32, bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0_u32; 256];
        let mut index = 0;
        while index < 256 {
            let mut value = (index as u32) << 24;
            let mut bit = 0;
            while bit < 8 {
                value = if value >> 31 == 1 { (value << 1) ^ 0x04c1_1db7 } else { value << 1 };
                bit += 1;
            }
            table[index] = value;
            index += 1;
        }
        table
    };
    bytes
        .iter()
        .fold(start, |state, &byte| (state << 8) ^ TABLE[((state >> 24) as u8 ^ byte) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// The check value of each published CRC: of the digits 1 to 9.
    const CHECK: &[u8] = b"123456789";

    #[test]
    fn crc32c_agrees_with_its_published_check_value() {
        assert_eq!(!Crc32c::new().bytes(CHECK).value(), 0xe306_9283);
    }

    #[test]
    fn crc16_agrees_with_the_published_check_value_of_crc16_arc() {
        assert_eq!(crc16(0, CHECK), 0xbb3d);
    }

    #[test]
    fn crc32_be_agrees_with_the_published_check_value_of_crc32_mpeg2() {
        assert_eq!(crc32_be(!0, CHECK), 0x0376_e6e7);
    }

    #[test]
    fn pieces_and_whole_give_the_same_checksum() {
        let bytes: Vec<u8> = (0..1000_u32).map(|at| (at * 7 % 251) as u8).collect();
        let whole = Crc32c::new().bytes(&bytes).value();
        assert_eq!(whole, CRC32C.update(!0, &bytes));
        for cut in [1, 31, 32, 33, 500, 999] {
            let (front, back) = bytes.split_at(cut);
            assert_eq!(Crc32c::new().bytes(front).bytes(back).value(), whole, "cut at {cut}");
        }
    }
}
