//! Limits of the cost to open a header: a header is untrusted, and a forged one could ask for days
//! or for all memory.

use super::digest::Hash;
use super::error::{CryptError, damaged};

/// The most memory that Argon2 is ever given: cryptsetup's limit, in KiB.
const MOST_KIB: u64 = 4 << 20;
/// Rounds of PBKDF2 in one place; cryptsetup measures some millions for a key slot.
const MAX_ROUNDS: u32 = 1 << 30;
/// Rounds of all places that a passphrase is tried in, minutes on today's processors. A key that is
/// longer than a hash takes as many times more.
const ALL_ROUNDS: u64 = 1 << 31;
/// KiB that Argon2 goes through in all of them, minutes too: 512 GiB. cryptsetup's slots take some
/// GiB each.
const ALL_KIB: u64 = 512 << 20;

/// The limits of the cost to open a LUKS header.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Bytes of memory for Argon2 at most; cryptsetup's default limit if not set.
    pub memory: u64,
}

impl Limits {
    /// Most bytes of memory for Argon2.
    pub const MOST_MEMORY: u64 = MOST_KIB << 10;
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory: 1 << 30 }
    }
}

/// The rest of the limits.
pub(super) struct Budget {
    memory: u64,
    rounds: u64,
    kib: u64,
}

impl Budget {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { memory: (limits.memory >> 10).min(MOST_KIB), rounds: ALL_ROUNDS, kib: ALL_KIB }
    }

    /// Subtracts the cost of PBKDF2 for an output of `bytes` bytes.
    pub(super) fn take_pbkdf2(
        &mut self,
        (hash, rounds): (Hash, u32),
        bytes: usize,
        place: &str,
    ) -> Result<(), CryptError> {
        check_rounds(rounds, place)?;
        let cost = u64::from(rounds) * bytes.div_ceil(hash.output_size()) as u64;
        self.rounds = self.rounds.checked_sub(cost).ok_or_else(|| {
            let asked = format!("{rounds} more rounds of PBKDF2");
            CryptError::TooCostly { place: place.to_owned(), asked, given: String::new() }
        })?;
        Ok(())
    }

    /// Takes what Argon2 costs.
    pub(super) fn take_argon2(
        &mut self,
        kib: u32,
        passes: u32,
        place: &str,
    ) -> Result<(), CryptError> {
        let too_costly =
            |asked, given| CryptError::TooCostly { place: place.to_owned(), asked, given };
        if u64::from(kib) > self.memory {
            let given = match u64::from(kib) > MOST_KIB {
                true => String::new(),
                false => format!(", and {} are given: kdf-memory=SIZE gives more", self.memory),
            };
            return Err(too_costly(format!("{kib} KiB of memory for Argon2"), given));
        }
        let left = self.kib.checked_sub(u64::from(kib) * u64::from(passes));
        self.kib = left.ok_or_else(|| {
            let asked = format!("{passes} passes of Argon2 through {kib} KiB");
            too_costly(asked, String::new())
        })?;
        Ok(())
    }
}

/// Refuses what no header has.
pub(super) fn check_rounds(rounds: u32, place: &str) -> Result<(), CryptError> {
    match rounds {
        0 => Err(damaged(place, "no rounds of PBKDF2")),
        1..=MAX_ROUNDS => Ok(()),
        _ => Err(damaged(place, format!("{rounds} rounds of PBKDF2, more than {MAX_ROUNDS}"))),
    }
}
