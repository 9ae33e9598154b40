//! Inode timestamps: seconds since 1970 in 34 bits and nanoseconds in 30, from 1901-12-13 to
//! 2446-05-10.
//!
//! Source: "Inode Timestamps" in the kernel's `inodes.rst`. The 32-bit field is the low half of the
//! seconds, as a signed number; the two low bits of the *extra* field add multiples of 2^32, its
//! upper 30 bits are nanoseconds. Without the extra field, times end in 2038 and are in whole
//! seconds.

use core::fmt;

/// Number of bits of the extra field for the seconds.
const EPOCH_BITS: u32 = 2;

/// A time as inodes store it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 00:00:00 UTC.
    pub seconds: i64,
    /// Nanoseconds after that: below 1,000,000,000, unless a damaged inode stores more (up to
    /// 2^30-1).
    pub nanoseconds: u32,
}

impl Timestamp {
    /// The start of 1970.
    pub const EPOCH: Self = Self { seconds: 0, nanoseconds: 0 };
    /// The earliest time that can be stored: 1901-12-13 20:45:52.
    pub const MIN: Self = Self { seconds: -(1 << 31), nanoseconds: 0 };
    /// The latest time with the extra field: 2446-05-10 22:38:55.
    pub const MAX: Self = Self { seconds: (1 << 34) - (1 << 31) - 1, nanoseconds: 0 };
    /// The latest time without it: 2038-01-19 03:14:07.
    pub const MAX_WITHOUT_EXTRA: Self = Self { seconds: (1 << 31) - 1, nanoseconds: 0 };

    /// Seconds since 1970 and nanoseconds after them.
    pub fn new(seconds: i64, nanoseconds: u32) -> Self {
        Self { seconds, nanoseconds }
    }

    /// Joins the 32-bit field and the extra one, if the inode has it.
    pub fn decode(low: u32, extra: Option<u32>) -> Self {
        let seconds = i64::from(low.cast_signed());
        match extra {
            None => Self { seconds, nanoseconds: 0 },
            Some(extra) => Self {
                seconds: seconds + (i64::from(extra & ((1 << EPOCH_BITS) - 1)) << 32),
                nanoseconds: extra >> EPOCH_BITS,
            },
        }
    }

    /// The 32-bit field and the extra one. A time out of range is clamped, see [`Self::clamped`];
    /// without room for the extra field only the first is stored.
    pub fn encode(self, has_extra: bool) -> (u32, u32) {
        let Self { seconds, nanoseconds } = self.clamped(has_extra);
        // Truncation is the encoding: the low 32 bits, and the remainder after these are read as
        // signed.
        let low = seconds as i32;
        let epoch = ((seconds - i64::from(low)) >> 32) as u32;
        (low.cast_unsigned(), nanoseconds << EPOCH_BITS | epoch)
    }

    /// The nearest time that an inode can store, as in the kernel: [`Self::MIN`] to [`Self::MAX`],
    /// or to [`Self::MAX_WITHOUT_EXTRA`] in whole seconds without the extra field. Times in range
    /// are not changed.
    #[must_use]
    pub fn clamped(self, has_extra: bool) -> Self {
        let max = if has_extra { Self::MAX } else { Self::MAX_WITHOUT_EXTRA };
        if self.seconds < Self::MIN.seconds {
            Self::MIN
        } else if self.seconds > max.seconds {
            max
        } else if !has_extra {
            Self { nanoseconds: 0, ..self }
        } else {
            Self { nanoseconds: self.nanoseconds & (u32::MAX >> EPOCH_BITS), ..self }
        }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.seconds, self.nanoseconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The rows of the table in inodes.rst: first and last second of each combination of epoch bits
    /// and sign.
    #[test]
    fn every_row_of_the_documents_table_converts_both_ways() {
        let rows: [(u32, u32, i64); 16] = [
            (0, 0x8000_0000, -0x8000_0000),
            (0, 0xffff_ffff, -1),
            (0, 0, 0),
            (0, 0x7fff_ffff, 0x7fff_ffff),
            (1, 0x8000_0000, 0x8000_0000),
            (1, 0xffff_ffff, 0xffff_ffff),
            (1, 0, 0x1_0000_0000),
            (1, 0x7fff_ffff, 0x1_7fff_ffff),
            (2, 0x8000_0000, 0x1_8000_0000),
            (2, 0xffff_ffff, 0x1_ffff_ffff),
            (2, 0, 0x2_0000_0000),
            (2, 0x7fff_ffff, 0x2_7fff_ffff),
            (3, 0x8000_0000, 0x2_8000_0000),
            (3, 0xffff_ffff, 0x2_ffff_ffff),
            (3, 0, 0x3_0000_0000),
            (3, 0x7fff_ffff, 0x3_7fff_ffff),
        ];
        for (epoch, low, seconds) in rows {
            let extra = 999_999_999 << 2 | epoch;
            let time = Timestamp::new(seconds, 999_999_999);
            assert_eq!(Timestamp::decode(low, Some(extra)), time);
            assert_eq!(time.encode(true), (low, extra), "{seconds}");
        }
    }

    #[test]
    fn times_past_the_ends_are_clamped() {
        let early = Timestamp::new(i64::MIN, 5);
        let late = Timestamp::new(i64::MAX, 5);
        assert_eq!(early.clamped(true), Timestamp::MIN);
        assert_eq!(Timestamp::new(-0x8000_0001, 999).clamped(true), Timestamp::MIN);
        assert_eq!(late.clamped(true), Timestamp::MAX);
        assert_eq!(Timestamp::MAX.seconds, 0x3_7fff_ffff);
        assert_eq!(Timestamp::new(0x3_8000_0000, 0).clamped(true), Timestamp::MAX);
        assert_eq!(late.clamped(false), Timestamp::new(0x7fff_ffff, 0));
        assert_eq!(Timestamp::new(7, 5).clamped(false), Timestamp::new(7, 0));
    }

    #[test]
    fn without_the_extra_field_the_sign_bit_means_before_1970() {
        assert_eq!(Timestamp::decode(0xffff_ffff, None), Timestamp::new(-1, 0));
        assert_eq!(Timestamp::new(-1, 0).encode(false), (0xffff_ffff, 0));
    }

    proptest! {
        #[test]
        fn any_stored_fields_come_back(low: u32, extra: u32) {
            prop_assert_eq!(Timestamp::decode(low, Some(extra)).encode(true), (low, extra));
        }
    }
}
