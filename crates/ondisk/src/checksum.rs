//! The checksums of the format: crc32c of metadata_csum, crc16 of uninit_bg, CRC-32 of the old
//! journal checksum.
//!
//! All three are used "raw": the state is the given start value, and the result is not inverted.

/// crc32c (Castagnoli, reflected), computed incrementally. The kernel's documents start it at ~0,
/// at the volume's seed or at a structure's own seed.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Crc32c(u32);

impl Crc32c {
    /// Starts at ~0.
    pub fn new() -> Self {
        Self(!0)
    }

    /// Starts at an earlier checksum.
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

    /// Feeds `count` zero bytes, for a checksum field that counts as zero.
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

    /// Removes `count` zero bytes: the state before they were fed.
    pub fn without_zeros(self, count: usize) -> Self {
        Self((0..count).fold(self.0, |crc, _| crc << 8 ^ BEFORE_ZERO[(crc >> 24) as usize]))
    }

    /// The state from which feeding `bytes` leads to this one.
    pub fn without(self, bytes: &[u8]) -> Self {
        Self(self.0 ^ Self(0).bytes(bytes).0).without_zeros(bytes.len())
    }

    /// The change (by `^`) of a checksum when a single bit changes. `bits_after` is the number of
    /// bits after it: those of later bytes, and the higher ones of its own byte.
    #[must_use]
    pub fn of_bit(bits_after: u32) -> u32 {
        let (bytes, bits) = (bits_after / 8, bits_after % 8);
        let near = BIT_POWERS.near[(bytes % NEAR) as usize];
        let near = (0..bits).fold(near, |power, _| times_x(power));
        (0..bytes / NEAR).fold(near, |power, _| product(power, BIT_POWERS.step))
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

/// For each highest byte of a state after a zero byte, what the state before it has in addition to
/// the other bytes, shifted.
static BEFORE_ZERO: [u32; 256] = {
    const REFLECTED: u32 = 0x82f6_3b78;
    let mut table = [0; 256];
    let mut highest = 0;
    while highest < 256 {
        let mut crc = (highest as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            // The highest bit is set if the polynomial was added.
            crc = if crc >> 31 == 1 { (crc ^ REFLECTED) << 1 | 1 } else { crc << 1 };
            bit += 1;
        }
        table[highest] = crc;
        highest += 1;
    }
    table
};

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

/// Minimum length in bytes for which the vector code is faster than the tables.
#[cfg(feature = "std")]
const SHORT: usize = 64;

#[cfg(feature = "std")]
fn crc32c_update(state: u32, bytes: &[u8]) -> u32 {
    if bytes.len() < SHORT {
        return CRC32C.update(state, bytes);
    }
    let mut digest =
        crc_fast::Digest::new_with_init_state(crc_fast::CrcAlgorithm::Crc32Iscsi, u64::from(state));
    digest.update(bytes);
    // The library inverts the result; the format does not.
    !(digest.finalize() as u32)
}

#[cfg(not(feature = "std"))]
fn crc32c_update(state: u32, bytes: &[u8]) -> u32 {
    CRC32C.update(state, bytes)
}

/// The polynomial, reflected: the highest bit is the lowest power.
const CASTAGNOLI: u32 = 0x82f6_3b78;

static CRC32C: SlicedTables = SlicedTables::new(CASTAGNOLI);

/// Number of bytes covered by [`BIT_POWERS`]: enough for most bitmaps.
const NEAR: u32 = 4096;

static BIT_POWERS: BitPowers = BitPowers::new();

/// Changes of crc32c by single bits, as remainders.
struct BitPowers {
    /// For a bit followed by this number of bytes.
    near: [u32; NEAR as usize],
    /// Multiplier for each further [`NEAR`] bytes.
    step: u32,
}

impl BitPowers {
    const fn new() -> Self {
        let mut near = [CASTAGNOLI; NEAR as usize];
        let mut at = 1;
        while at < near.len() {
            near[at] = times_x_to_8(near[at - 1]);
            at += 1;
        }
        // x to the power of 0, then of the number of bits in NEAR bytes.
        let mut step = 1 << 31;
        let mut bytes = 0;
        while bytes < NEAR {
            step = times_x_to_8(step);
            bytes += 1;
        }
        Self { near, step }
    }
}

const fn times_x_to_8(value: u32) -> u32 {
    let (mut power, mut bit) = (value, 0);
    while bit < 8 {
        power = times_x(power);
        bit += 1;
    }
    power
}

const fn times_x(value: u32) -> u32 {
    (value >> 1) ^ (CASTAGNOLI & (value & 1).wrapping_neg())
}

/// The product of two remainders.
const fn product(one: u32, other: u32) -> u32 {
    let (mut sum, mut other, mut bit) = (0, other, 32);
    while bit > 0 {
        bit -= 1;
        sum ^= other & (one >> bit & 1).wrapping_neg();
        other = times_x(other);
    }
    sum
}

/// Tables for a reflected CRC of 32 bits, eight bytes a step: table `n` is for a byte followed by
/// `n` zero bytes.
struct SlicedTables([ReflectedTable; 8]);

impl SlicedTables {
    const fn new(polynomial: u32) -> Self {
        let first = ReflectedTable::new(polynomial);
        let mut tables = [first; 8];
        let mut zeros = 1;
        while zeros < 8 {
            let mut byte = 0;
            while byte < 256 {
                tables[zeros].0[byte] = first.step(tables[zeros - 1].0[byte], 0);
                byte += 1;
            }
            zeros += 1;
        }
        Self(tables)
    }

    fn update(&self, state: u32, bytes: &[u8]) -> u32 {
        let mut state = state;
        let (eights, rest) = bytes.as_chunks::<8>();
        for eight in eights {
            state = self.together(u64::from_le_bytes(*eight) ^ u64::from(state), 8);
        }
        let (fours, rest) = rest.as_chunks::<4>();
        for four in fours {
            state = self.together(u64::from(u32::from_le_bytes(*four) ^ state), 4);
        }
        self.0[0].update(state, rest)
    }

    /// The state after `count` bytes, at least four of them, with the previous state added to the
    /// first four.
    #[inline(always)]
    fn together(&self, bytes: u64, count: usize) -> u32 {
        let tables = self.0[..count].iter().rev();
        tables
            .zip(bytes.to_le_bytes())
            .fold(0, |sum, (table, byte)| sum ^ table.0[usize::from(byte)])
    }
}

/// A table for a reflected CRC of 32 bits, one byte a step.
#[derive(Clone, Copy)]
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

/// crc16 of uninit_bg (polynomial 0x8005 reflected, as CRC-16/ARC), from a start value; group
/// descriptors start at ~0.
#[must_use]
pub fn crc16(start: u16, bytes: &[u8]) -> u16 {
    const TABLE: ReflectedTable = ReflectedTable::new(0xa001);
    // The high half of the state stays zero, so the 32-bit table can be used.
    bytes.iter().fold(u32::from(start), |state, &byte| TABLE.step(state, byte)) as u16
}

/// CRC-32 with polynomial 0x04c11db7, most significant bit first: checksum v1 of the journal, which
/// starts it at ~0.
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

    /// Input of the published check values of CRCs: the digits 1 to 9.
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
    fn a_bit_changes_a_checksum_by_what_it_adds() {
        let mut bytes: Vec<u8> = (0..65_536_u32).map(|at| (at * 7 % 251) as u8).collect();
        let bits = bytes.len() as u32 * 8;
        for bit in [0, 1, 7, 8, 1023, 1024, 1025, 77_777, bits / 2, bits - 9, bits - 1] {
            let before = Crc32c::new().bytes(&bytes).value();
            bytes[bit as usize / 8] ^= 1 << (bit % 8);
            let bits_after = bits - 8 - bit / 8 * 8 + 7 - bit % 8;
            let after = Crc32c::new().bytes(&bytes).value();
            assert_eq!(before ^ Crc32c::of_bit(bits_after), after, "bit {bit}");
        }
        let last = Crc32c::seeded(0).bytes(&[0x80]).zeros(1 << 17).value();
        assert_eq!(Crc32c::of_bit(1 << 20), last, "farther than the tables reach");
    }

    #[test]
    fn pieces_and_whole_give_the_same_checksum() {
        let bytes: Vec<u8> = (0..1000_u32).map(|at| (at * 7 % 251) as u8).collect();
        let whole = Crc32c::new().bytes(&bytes).value();
        assert_eq!(whole, CRC32C.update(!0, &bytes));
        assert_eq!(whole, CRC32C.0[0].update(!0, &bytes), "byte by byte");
        for cut in [1, 3, 4, 7, 8, 31, 63, 64, 65, 500, 999] {
            let (front, back) = bytes.split_at(cut);
            assert_eq!(Crc32c::new().bytes(front).bytes(back).value(), whole, "cut at {cut}");
        }
    }
}
