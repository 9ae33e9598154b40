//! The L2 tables of a qcow2 file, and their entries.

use std::ops::Range;

use crate::vm::qcow2::be64;

/// The bits of an entry that are a place in the file.
pub(super) const PLACE: u64 = 0x00ff_ffff_ffff_fe00;
const COMPRESSED: u64 = 1 << 62;
pub(super) const COPIED: u64 = 1 << 63;
const ZERO: u64 = 1;

/// How entries are stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) cluster_bits: u32,
    pub(super) is_extended: bool,
    /// Version 2 has no clusters of zeroes.
    pub(super) has_zeroes: bool,
}

/// The entry of a cluster of the disk.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Cluster {
    /// The place of its bytes in the file, 0 for none.
    pub(super) host: u64,
    /// Whether nothing else refers to that place: it may be written.
    pub(super) is_own: bool,
    /// The entry of a compressed cluster, 0 for none.
    pub(super) compressed: u64,
    /// The parts whose bytes are at the place, one bit each.
    pub(super) data: u32,
    /// The parts that are zeroes.
    pub(super) zero: u32,
}

impl Layout {
    pub(super) fn cluster(&self) -> u64 {
        1 << self.cluster_bits
    }

    pub(super) fn entry_size(&self) -> u64 {
        if self.is_extended { 16 } else { 8 }
    }

    /// Clusters of the disk that a table has.
    pub(super) fn per_table(&self) -> u64 {
        self.cluster() / self.entry_size()
    }

    /// Parts of a cluster that an entry tells apart.
    pub(super) fn parts(&self) -> u32 {
        if self.is_extended { 32 } else { 1 }
    }

    /// Bytes of a part.
    pub(super) fn part(&self) -> u64 {
        self.cluster() / u64::from(self.parts())
    }

    /// The bits of parts.
    pub(super) fn mask(&self, parts: Range<u64>) -> u32 {
        let below = |part: u64| ((1_u64 << part) - 1) as u32;
        below(parts.end) & !below(parts.start)
    }

    pub(super) fn all(&self) -> u32 {
        self.mask(0..u64::from(self.parts()))
    }

    /// The entry at a byte of a table.
    ///
    /// # Errors
    /// The entry is not one of the format.
    pub(super) fn decode(&self, table: &[u8], at: usize) -> Result<Cluster, &'static str> {
        let word = be64(table, at);
        let bitmap = if self.is_extended { be64(table, at + 8) } else { 0 };
        if word & COMPRESSED != 0 {
            return match bitmap == 0 && word & COPIED == 0 {
                true => Ok(Cluster { compressed: word, ..Cluster::default() }),
                false => Err("the entry of a compressed cluster"),
            };
        }
        let (host, is_own) = (word & PLACE, word & COPIED != 0);
        let has_zero = word & ZERO != 0;
        if word & !(PLACE | COPIED | ZERO) != 0 || !host.is_multiple_of(self.cluster()) {
            return Err("an entry of an L2 table");
        }
        if is_own && host == 0 || has_zero && (self.is_extended || !self.has_zeroes) {
            return Err("an entry of an L2 table");
        }
        let (data, zero) = match (self.is_extended, has_zero) {
            (true, _) => (bitmap as u32, (bitmap >> 32) as u32),
            (false, true) => (0, 1),
            (false, false) => (u32::from(host != 0), 0),
        };
        match data & zero != 0 || host == 0 && data != 0 {
            true => Err("an entry of an L2 table"),
            false => Ok(Cluster { host, is_own, compressed: 0, data, zero }),
        }
    }

    /// Sets the entry at a byte of a table; the bytes that were changed.
    pub(super) fn encode(&self, table: &mut [u8], at: usize, cluster: Cluster) -> Range<usize> {
        let Cluster { host, is_own, compressed, data, zero } = cluster;
        let mut word = if compressed != 0 { compressed } else { host };
        if is_own {
            word |= COPIED;
        }
        if !self.is_extended && zero != 0 {
            word |= ZERO;
        }
        table[at..at + 8].copy_from_slice(&word.to_be_bytes());
        if self.is_extended {
            let bitmap = u64::from(data) | u64::from(zero) << 32;
            table[at + 8..at + 16].copy_from_slice(&bitmap.to_be_bytes());
        }
        at..at + self.entry_size() as usize
    }

    /// The place of a compressed cluster in the file, and the sectors that it may reach into.
    pub(super) fn compressed(&self, entry: u64) -> Range<u64> {
        let bits = 62 - (self.cluster_bits - 8);
        let at = entry & ((1 << bits) - 1);
        let sectors = ((entry & (COMPRESSED - 1)) >> bits) + 1;
        at..(at / 512 + sectors) * 512
    }
}

/// A table in memory.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) bytes: Vec<u8>,
    /// The bytes that differ from the file.
    pub(super) changed: Range<usize>,
    /// Whether the file does not name it yet.
    pub(super) is_new: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_are_read_are_stored_as_they_were() {
        for (is_extended, words) in [
            (false, [[COPIED | 0x50000, 0], [0x50000, 0], [1, 0], [COPIED | 0x50001, 0]]),
            (true, [[COPIED | 0x50000, 7], [0x50000, 7 << 35], [0, 1 << 63], [0, 0]]),
        ] {
            let layout = Layout { cluster_bits: 16, is_extended, has_zeroes: true };
            for [word, bitmap] in words {
                let mut bytes = word.to_be_bytes().to_vec();
                bytes.extend(bitmap.to_be_bytes());
                let before = bytes.clone();
                let cluster = layout.decode(&bytes, 0).expect("sound");
                layout.encode(&mut bytes, 0, cluster);
                assert_eq!(bytes, before, "{cluster:?}");
            }
        }
        let layout = Layout { cluster_bits: 16, is_extended: true, has_zeroes: true };
        for [word, bitmap] in [[1, 0], [0, 1], [0x50000, 1 | 1 << 32], [0x200, 0], [1 << 57, 0]] {
            let bytes: Vec<u8> =
                [word, bitmap].iter().flat_map(|it: &u64| it.to_be_bytes()).collect();
            assert!(layout.decode(&bytes, 0).is_err(), "{word:#x} {bitmap:#x}");
        }
    }
}
