//! A quick hash of trusted numbers: no attacker chooses them to collide.

use std::hash::{BuildHasherDefault, Hasher};

/// Mixes words: for each a multiplication by an odd constant (the golden ratio) and a shift.
#[derive(Default)]
pub struct WordHasher(u64);

/// For maps with numbers as keys.
pub type ByWord = BuildHasherDefault<WordHasher>;

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
    fn write_isize(&mut self, value: isize) {
        // Discriminants: only the bits count.
        self.write_u64(value.cast_unsigned() as u64);
    }
}
