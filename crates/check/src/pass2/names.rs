//! The names of one directory block, to find duplicates: an open hash table of offsets, reused from
//! block to block.

/// Names are compared by their hash first, then by their bytes.
pub(crate) struct NameSet {
    /// Generation in the high half, place in units of 4 bytes in the low half, plus one.
    slots: Vec<u32>,
    generation: u32,
}

impl NameSet {
    /// For blocks of `block_len` bytes.
    pub(crate) fn new(block_len: usize) -> Self {
        // At least twice as many slots as there are records of 12 bytes.
        let slots = (block_len / 6).next_power_of_two();
        Self { slots: vec![0; slots], generation: 0 }
    }

    /// Starts a new block.
    pub(crate) fn clear(&mut self) {
        self.generation += 1;
        if self.generation > 0xffff {
            self.slots.fill(0);
            self.generation = 1;
        }
    }

    /// Adds the name at byte `at`; false if `is_same`, called with the offset of another name,
    /// finds it there.
    pub(crate) fn insert(
        &mut self,
        hash: u32,
        at: usize,
        mut is_same: impl FnMut(usize) -> bool,
    ) -> bool {
        let mask = self.slots.len() - 1;
        let mut slot = (hash.wrapping_mul(0x9e37_79b9) >> 7) as usize & mask;
        for _ in 0..self.slots.len() {
            let found = self.slots[slot];
            if found >> 16 != self.generation {
                self.slots[slot] = self.generation << 16 | (at / 4) as u32 & 0xffff;
                return true;
            }
            if is_same((found & 0xffff) as usize * 4) {
                return false;
            }
            slot = (slot + 1) & mask;
        }
        true
    }
}

/// A hash of a name's bytes that only this table uses.
pub(crate) fn quick_hash(name: &[u8]) -> u32 {
    let mut hash = 0x811c_9dc5_u64 ^ name.len() as u64;
    let (words, rest) = name.as_chunks::<8>();
    for word in words {
        hash =
            (hash.rotate_left(5) ^ u64::from_le_bytes(*word)).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    hash = (hash.rotate_left(5) ^ u64::from_le_bytes(last)).wrapping_mul(0x517c_c1b7_2722_0a95);
    (hash >> 32) as u32
}
