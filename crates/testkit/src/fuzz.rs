//! What the fuzz harnesses share: how long they run, and damage to a valid structure.
//!
//! Any bytes seldom get past a magic number. A harness therefore starts from a structure that the project's own encoders made,
//! damages it, mends the checksum or not, and decodes: whatever comes of it, there is no panic and no endless walk.

use bolero::TypeGenerator;
use std::time::Duration;

/// How long a harness runs as an ordinary test; `cargo xtask fuzz` lets it run for longer.
pub const FUZZ_TIME: Duration = Duration::from_millis(300);

/// Bytes that are looked at together when asking where a structure holds something.
const PLACE: usize = 8;

/// Changes to some bytes: a few edits, and perhaps an end that comes too early.
#[derive(Clone, Debug, TypeGenerator)]
pub struct Damage {
    edits: Vec<Edit>,
    end: End,
}

/// One change. A place is a number of bytes, taken modulo the length.
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
    /// Where there is something: counted in places that are not all zeros, and a byte of that place.
    Used(u16, u8),
    /// Near the start, where headers are.
    Front(u8),
}

/// A number that finds edges more often than chance does.
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
    /// The bytes with the damage done, perhaps fewer of them.
    pub fn to(&self, bytes: &[u8]) -> Vec<u8> {
        let mut damaged = self.in_place(bytes);
        if let End::Cut(len) = self.end {
            damaged.truncate(len as usize % (damaged.len() + 1));
        }
        damaged
    }

    /// The bytes with the damage done, as many as before.
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

/// Writes as much of `value` as there is room for at `at`.
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
