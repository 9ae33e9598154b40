//! Directory hashes: the keys of names in an htree.
//!
//! Source: `directory.rst` names the versions; `docs/src/internals/on-disk.md` has the functions
//! themselves, which are verified by vectors made with debugfs (`tests/data/dx-hash-vectors.tsv`).
//! Does not allocate: a bulk build calls this for every name. A casefolded directory hashes the
//! folded name; the caller folds it.

use crate::features::IncompatFeatures;
use crate::superblock::Superblock;
use crate::{Flaw, FormatError, Location};

/// The kernel's mark for the end of a directory; no name has this hash.
pub const END_OF_DIRECTORY: u32 = 0xffff_fffe;

/// Initial state if the superblock's hash seed is all zero: that of MD4.
const MD4_START: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// The hash function stored in an htree root.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum HashVersion {
    /// The first version, weak.
    Legacy = 0,
    /// A cut-down MD4, the default.
    HalfMd4 = 1,
    /// Tiny Encryption Algorithm.
    Tea = 2,
    /// [`Self::Legacy`] with unsigned characters.
    LegacyUnsigned = 3,
    /// [`Self::HalfMd4`] with unsigned characters.
    HalfMd4Unsigned = 4,
    /// [`Self::Tea`] with unsigned characters.
    TeaUnsigned = 5,
    /// Keyed; for directories that are both encrypted and casefolded.
    SipHash = 6,
}

impl HashVersion {
    /// Decodes the stored number; `None` if it is unknown.
    pub fn decode(stored: u8) -> Option<Self> {
        Some(match stored {
            0 => Self::Legacy,
            1 => Self::HalfMd4,
            2 => Self::Tea,
            3 => Self::LegacyUnsigned,
            4 => Self::HalfMd4Unsigned,
            5 => Self::TeaUnsigned,
            6 => Self::SipHash,
            _ => return None,
        })
    }

    /// The stored number.
    pub fn encode(self) -> u8 {
        self as u8
    }

    /// The effective version for a root: roots store the signed numbers, and the superblock has the
    /// signedness.
    #[must_use]
    pub fn with_signedness(self, is_unsigned: bool) -> Self {
        match self {
            Self::Legacy if is_unsigned => Self::LegacyUnsigned,
            Self::HalfMd4 if is_unsigned => Self::HalfMd4Unsigned,
            Self::Tea if is_unsigned => Self::TeaUnsigned,
            stated => stated,
        }
    }

    /// The name that mke2fs and debugfs use, `_unsigned` appended to those of unsigned characters.
    pub fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::HalfMd4 => "half_md4",
            Self::Tea => "tea",
            Self::LegacyUnsigned => "legacy_unsigned",
            Self::HalfMd4Unsigned => "half_md4_unsigned",
            Self::TeaUnsigned => "tea_unsigned",
            Self::SipHash => "siphash",
        }
    }
}

/// The key of a name in an htree, in the order of the tree.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct DirHash {
    /// The hash in index blocks: bit 0 is clear.
    pub hash: u32,
    /// Orders names of equal hash for directory reads; 0 with the legacy versions.
    pub minor: u32,
}

/// A hash function with its initial state.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DirHasher {
    function: Function,
    is_unsigned: bool,
    start: [u32; 4],
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Function {
    Legacy,
    HalfMd4,
    Tea,
}

impl DirHasher {
    /// `version` is the effective one (see [`HashVersion::with_signedness`]), `seed` that of the
    /// superblock.
    ///
    /// # Errors
    /// [`FormatError::Unsupported`] for SipHash: its key derives from the encryption key, which is
    /// not on the volume.
    pub fn new(version: HashVersion, seed: [u32; 4]) -> Result<Self, FormatError> {
        let (function, is_unsigned) = match version {
            HashVersion::Legacy => (Function::Legacy, false),
            HashVersion::HalfMd4 => (Function::HalfMd4, false),
            HashVersion::Tea => (Function::Tea, false),
            HashVersion::LegacyUnsigned => (Function::Legacy, true),
            HashVersion::HalfMd4Unsigned => (Function::HalfMd4, true),
            HashVersion::TeaUnsigned => (Function::Tea, true),
            HashVersion::SipHash => {
                let keyed = IncompatFeatures::ENCRYPT | IncompatFeatures::CASEFOLD;
                return Err(FormatError::Unsupported(keyed));
            }
        };
        let start = if seed == [0; 4] { MD4_START } else { seed };
        Ok(Self { function, is_unsigned, start })
    }

    /// The hash function for new directories of a volume.
    ///
    /// # Errors
    /// The default hash version is unknown or SipHash.
    pub fn of_volume(superblock: &Superblock) -> Result<Self, FormatError> {
        let stored = superblock.def_hash_version;
        let version = HashVersion::decode(stored).ok_or_else(|| {
            Flaw::bad_value("s_def_hash_version", stored)
                .at(Location::Superblock(crate::GroupNo(0)))
        })?;
        Self::new(version.with_signedness(superblock.hash_is_unsigned()), superblock.hash_seed)
    }

    /// The version as htree roots store it: without signedness, which is in the superblock.
    pub fn stored_version(&self) -> HashVersion {
        match self.function {
            Function::Legacy => HashVersion::Legacy,
            Function::HalfMd4 => HashVersion::HalfMd4,
            Function::Tea => HashVersion::Tea,
        }
    }

    /// The hash of a name.
    pub fn hash(&self, name: &[u8]) -> DirHash {
        let (hash, minor) = match self.function {
            Function::Legacy => (legacy(name, self.is_unsigned), 0),
            Function::HalfMd4 => {
                let state = self.rounds::<8>(name, half_md4);
                (state[1], state[2])
            }
            Function::Tea => {
                let state = self.rounds::<4>(name, tea);
                (state[0], state[1])
            }
        };
        let hash = hash & !1;
        DirHash { hash: if hash == END_OF_DIRECTORY { END_OF_DIRECTORY - 2 } else { hash }, minor }
    }

    /// Feeds the name in chunks of `WORDS` words. The empty name is not hashed.
    fn rounds<const WORDS: usize>(
        &self,
        name: &[u8],
        round: impl Fn(&mut [u32; 4], &[u32; WORDS]),
    ) -> [u32; 4] {
        let mut state = self.start;
        let mut left = name;
        while !left.is_empty() {
            let words = packed(left, self.is_unsigned);
            round(&mut state, &words);
            left = left.get(WORDS * 4..).unwrap_or_default();
        }
        state
    }
}

/// The next bytes of a name as words: big-endian sums. The rest of the last word and of the chunk
/// is filled with a pad made from the number of bytes left.
fn packed<const WORDS: usize>(left: &[u8], is_unsigned: bool) -> [u32; WORDS] {
    // Names end at 255 bytes; for longer input the format's 32-bit arithmetic wraps.
    let count = left.len() as u32;
    let pad = count | count << 8;
    let pad = pad | pad << 16;
    let mut words = [pad; WORDS];
    for (word, bytes) in words.iter_mut().zip(left.chunks(4)) {
        *word = match <[u8; 4]>::try_from(bytes) {
            // The pad is shifted out, and ASCII is the same in both cases.
            Ok(four) if is_unsigned || four.is_ascii() => u32::from_be_bytes(four),
            _ if is_unsigned => summed(pad, bytes, unsigned),
            _ => summed(pad, bytes, signed),
        };
    }
    words
}

#[inline(always)]
fn summed(pad: u32, bytes: &[u8], widened: impl Fn(u8) -> u32) -> u32 {
    bytes.iter().fold(pad, |sum, &byte| (sum << 8).wrapping_add(widened(byte)))
}

fn signed(byte: u8) -> u32 {
    i32::from(byte.cast_signed()).cast_unsigned()
}

fn unsigned(byte: u8) -> u32 {
    u32::from(byte)
}

/// Three rounds of MD4's functions on eight words; the result is added to the state.
fn half_md4(state: &mut [u32; 4], words: &[u32; 8]) {
    const F_SHIFTS: [u32; 4] = [3, 7, 11, 19];
    const G_ORDER: [usize; 8] = [1, 3, 5, 7, 0, 2, 4, 6];
    const G_SHIFTS: [u32; 4] = [3, 5, 9, 13];
    const G_CONSTANT: u32 = 0x5a82_7999;
    const H_ORDER: [usize; 8] = [3, 7, 2, 6, 1, 5, 0, 4];
    const H_SHIFTS: [u32; 4] = [3, 9, 11, 15];
    const H_CONSTANT: u32 = 0x6ed9_eba1;

    // Each step writes the word that the next one reads last: a, d, c, b in turn.
    #[inline(always)]
    fn step(
        [a, b, c, d]: [u32; 4],
        mixed: impl Fn(u32, u32, u32) -> u32,
        input: u32,
        shift: u32,
    ) -> [u32; 4] {
        [d, a.wrapping_add(mixed(b, c, d)).wrapping_add(input).rotate_left(shift), b, c]
    }
    let mut sums = *state;
    for at in 0..8 {
        sums = step(sums, |x, y, z| z ^ (x & (y ^ z)), words[at], F_SHIFTS[at % 4]);
    }
    for at in 0..8 {
        let input = words[G_ORDER[at]].wrapping_add(G_CONSTANT);
        sums = step(sums, |x, y, z| (x & y).wrapping_add((x ^ y) & z), input, G_SHIFTS[at % 4]);
    }
    for at in 0..8 {
        let input = words[H_ORDER[at]].wrapping_add(H_CONSTANT);
        sums = step(sums, |x, y, z| x ^ y ^ z, input, H_SHIFTS[at % 4]);
    }
    for (word, sum) in state.iter_mut().zip(sums) {
        *word = word.wrapping_add(sum);
    }
}

/// Sixteen cycles of TEA on the first two words of the state, keyed by the name.
fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    const DELTA: u32 = 0x9e37_79b9;
    let [mut x, mut y] = [state[0], state[1]];
    let mut sum = 0_u32;
    for _ in 0..16 {
        sum = sum.wrapping_add(DELTA);
        x = x.wrapping_add(
            (y << 4).wrapping_add(key[0]) ^ y.wrapping_add(sum) ^ (y >> 5).wrapping_add(key[1]),
        );
        y = y.wrapping_add(
            (x << 4).wrapping_add(key[2]) ^ x.wrapping_add(sum) ^ (x >> 5).wrapping_add(key[3]),
        );
    }
    state[0] = state[0].wrapping_add(x);
    state[1] = state[1].wrapping_add(y);
}

fn legacy(name: &[u8], is_unsigned: bool) -> u32 {
    const FACTOR: u32 = 7_152_373;
    let (mut h0, mut h1) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
    for &byte in name {
        let widened = if is_unsigned { unsigned(byte) } else { signed(byte) };
        let mut h = h1.wrapping_add(h0 ^ widened.wrapping_mul(FACTOR));
        if h >> 31 == 1 {
            h = h.wrapping_sub(0x7fff_ffff);
        }
        (h1, h0) = (h0, h);
    }
    h0 << 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Uuid;
    use alloc::vec::Vec;

    fn hex(text: &str) -> u32 {
        u32::from_str_radix(text, 16).expect("hexadecimal")
    }

    fn seed(text: &str) -> [u32; 4] {
        if text == "-" {
            return [0; 4];
        }
        let bytes = Uuid::parse(text).expect("a UUID").0;
        core::array::from_fn(|at| u32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[at * 4 + byte])))
    }

    #[test]
    fn hashes_are_those_of_debugfs() {
        let vectors = include_str!("../tests/data/dx-hash-vectors.tsv");
        let mut count = 0;
        for line in vectors.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split('\t').collect();
            let [version, seed_text, name, hash, minor] = fields[..] else { panic!("{line:?}") };
            let version = match version {
                "legacy" => HashVersion::Legacy,
                "half_md4" => HashVersion::HalfMd4,
                "tea" => HashVersion::Tea,
                other => panic!("{other}"),
            };
            let found = DirHasher::new(version, seed(seed_text)).unwrap().hash(name.as_bytes());
            assert_eq!(found, DirHash { hash: hex(hash), minor: hex(minor) }, "{line:?}");
            count += 1;
        }
        assert_eq!(count, 324);
    }

    #[test]
    fn signedness_matters_only_beyond_ascii() {
        for version in [HashVersion::Legacy, HashVersion::HalfMd4, HashVersion::Tea] {
            let signed = DirHasher::new(version, [1, 2, 3, 4]).unwrap();
            let unsigned = DirHasher::new(version.with_signedness(true), [1, 2, 3, 4]).unwrap();
            assert_eq!(signed.hash(b"plain"), unsigned.hash(b"plain"));
            assert_ne!(signed.hash(b"\xc3\xbc"), unsigned.hash(b"\xc3\xbc"));
        }
    }

    #[test]
    fn bit_0_is_clear_for_every_name() {
        for version in (0..6).filter_map(HashVersion::decode) {
            let hasher = DirHasher::new(version, [0; 4]).unwrap();
            assert!((0..1000_u32).all(|name| hasher.hash(&name.to_le_bytes()).hash & 1 == 0));
        }
    }

    #[test]
    fn siphash_is_refused_by_the_features_that_bring_it() {
        let refused = DirHasher::new(HashVersion::SipHash, [0; 4]).unwrap_err();
        let keyed = IncompatFeatures::ENCRYPT | IncompatFeatures::CASEFOLD;
        assert_eq!(refused, FormatError::Unsupported(keyed));
    }

    #[test]
    fn versions_read_what_they_store() {
        for stored in 0..=6 {
            assert_eq!(HashVersion::decode(stored).map(HashVersion::encode), Some(stored));
        }
        assert_eq!(HashVersion::decode(7), None);
    }
}
