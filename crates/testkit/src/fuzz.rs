//! Common parts of the fuzz harnesses: their run time, and damage to a valid structure.
//!
//! Random bytes seldom have a valid magic number. A harness therefore takes a structure from the
//! project's own encoders, damages it, corrects the checksum or not, and decodes: there must be no
//! panic and no endless loop.

use bolero::TypeGenerator;
use std::time::Duration;

/// Run time of a harness as an ordinary test; `cargo xtask fuzz` runs it for longer.
pub const FUZZ_TIME: Duration = Duration::from_millis(300);

/// Number of bytes per unit in which used places of a structure are counted.
const PLACE: usize = 8;

/// Damage to some bytes: a few edits, and optionally a truncation.
#[derive(Clone, Debug, TypeGenerator)]
pub struct Damage {
    edits: Vec<Edit>,
    end: End,
}

/// One edit. A position is a byte offset modulo the length.
#[derive(Clone, Debug, TypeGenerator)]
enum Edit {
    /// One byte.
    Byte(At, u8),
    /// A little- or big-endian 16-bit number.
    Half(At, Number, bool),
    /// A little- or big-endian 32-bit number.
    Word(At, Number, bool),
    /// A run of one byte.
    Fill(At, u8, u8),
    /// A run of bytes from elsewhere.
    Copy(At, At, u8),
}

#[derive(Clone, Debug, TypeGenerator)]
enum At {
    /// Anywhere.
    Any(u32),
    /// In a used place: the index among units that are not all zeros, and a byte in that unit.
    Used(u16, u8),
    /// Near the start, where headers are.
    Front(u8),
}

/// A number that is an edge case more often than a random one.
#[derive(Clone, Debug, TypeGenerator)]
enum Number {
    Any(u32),
    Small(u8),
    BelowMax(u8),
    Power(u8),
    BelowPower(u8),
}

#[derive(Clone, Debug, TypeGenerator)]
enum End {
    Whole,
    StillWhole,
    Cut(u32),
}

impl Damage {
    /// The damaged bytes, which may be fewer.
    pub fn to(&self, bytes: &[u8]) -> Vec<u8> {
        let mut damaged = self.in_place(bytes);
        if let End::Cut(len) = self.end {
            damaged.truncate(len as usize % (damaged.len() + 1));
        }
        damaged
    }

    /// The damaged bytes, with the length of the original.
    pub fn in_place(&self, bytes: &[u8]) -> Vec<u8> {
        let mut damaged = bytes.to_vec();
        if bytes.is_empty() {
            return damaged;
        }
        let is_used = |place: &[u8]| place.iter().any(|byte| *byte != 0);
        let chunks = bytes.chunks(PLACE).enumerate();
        let used: Vec<_> = chunks.filter(|(_, place)| is_used(place)).map(|(at, _)| at).collect();
        let byte_of = |at: &At| match at {
            At::Used(place, within) if !used.is_empty() => {
                used[usize::from(*place) % used.len()] * PLACE + usize::from(*within) % PLACE
            }
            At::Used(at, _) => usize::from(*at),
            At::Any(at) => *at as usize,
            At::Front(at) => usize::from(*at),
        } % bytes.len();
        for edit in &self.edits {
            match edit {
                Edit::Byte(at, value) => damaged[byte_of(at)] = *value,
                Edit::Half(at, number, is_big) => {
                    let value = (number.value() & 0xffff) as u16;
                    let value = if *is_big { value.to_be_bytes() } else { value.to_le_bytes() };
                    write(&mut damaged, byte_of(at) & !1, &value);
                }
                Edit::Word(at, number, is_big) => {
                    let value = number.value();
                    let value = if *is_big { value.to_be_bytes() } else { value.to_le_bytes() };
                    write(&mut damaged, byte_of(at) & !3, &value);
                }
                Edit::Fill(at, value, len) => {
                    write(&mut damaged, byte_of(at), &vec![*value; usize::from(*len)]);
                }
                Edit::Copy(from, to, len) => {
                    let from = byte_of(from);
                    let end = bytes.len().min(from + usize::from(*len));
                    let run = damaged[from..end].to_vec();
                    write(&mut damaged, byte_of(to), &run);
                }
            }
        }
        damaged
    }
}

impl Number {
    fn value(&self) -> u32 {
        match *self {
            Self::Any(value) => value,
            Self::Small(value) => u32::from(value),
            Self::BelowMax(value) => u32::MAX - u32::from(value),
            Self::Power(power) => 1 << (power % 32),
            Self::BelowPower(power) => (1 << (power % 32)) - 1,
        }
    }
}

/// Writes `value` at `at`, truncated to the room there.
fn write(bytes: &mut [u8], at: usize, value: &[u8]) {
    let len = value.len().min(bytes.len() - at);
    bytes[at..at + len].copy_from_slice(&value[..len]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_keeps_within_the_bytes() {
        bolero::check!().with_type::<(Damage, Vec<u8>)>().with_test_time(FUZZ_TIME).for_each(
            |(damage, bytes)| {
                assert_eq!(damage.in_place(bytes).len(), bytes.len());
                assert!(damage.to(bytes).len() <= bytes.len());
            },
        );
    }

    #[test]
    fn a_run_is_moved_as_far_as_there_is_room() {
        let edits = vec![Edit::Copy(At::Front(0), At::Front(6), 4), Edit::Byte(At::Any(9), 7)];
        let damage = Damage { edits, end: End::Cut(7) };
        assert_eq!(damage.in_place(&[1, 2, 3, 4, 0, 0, 0, 0]), [1, 7, 3, 4, 0, 0, 1, 2]);
        assert_eq!(damage.to(&[1, 2, 3, 4, 0, 0, 0, 0]), [1, 7, 3, 4, 0, 0, 1]);
    }
}
