//! Memory that starts at a multiple of a power of two, as direct requests want it.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// Zeroed bytes whose address is a multiple of `alignment`.
pub struct AlignedBuffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    /// `len` zeroes at a multiple of `alignment`, a power of two.
    pub fn new(len: usize, alignment: usize) -> Self {
        assert!(alignment.is_power_of_two(), "alignment {alignment}");
        let bytes = vec![0; len + alignment - 1];
        // The vector never grows, so its bytes stay where they are.
        let start = (bytes.as_ptr() as usize).next_multiple_of(alignment) - bytes.as_ptr() as usize;
        Self { bytes, start, len }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuffer").field("len", &self.len).finish_non_exhaustive()
    }
}
