//! A seeded random number generator.

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). For tests
/// and stepped runtimes, not for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `count`.
    ///
    /// # Panics
    /// If `count` is 0.
    pub fn below(&mut self, count: usize) -> usize {
        (self.draw() % count as u64) as usize
    }
}
