//! Numbers of bytes as users write them.

use std::fmt;
use std::str::FromStr;

/// How a size is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SizeGrammar {
    /// Decimal digits with an optional unit `K M G T P E`, in either case, alone or with `B` or
    /// `iB` after it: a power of 1024. Without a unit it counts bytes.
    Plain,
    /// As [`SizeGrammar::Plain`], but `KB`, `MB` and so on are powers of 1000, as coreutils has
    /// them.
    Coreutils,
    /// As FFSB reads it: `k m g` in either case, alone or with `b`, are powers of 1024. (FFSB takes
    /// any other unit for zero; here it is an error.)
    Ffsb,
    /// As mke2fs reads a size: C's notation of numbers (see [`c_number`]), and without a unit it
    /// counts blocks. The units `s k m g t p e`, in either case, are sectors of 512 bytes and
    /// powers of 1024.
    Mke2fs {
        /// Bytes of a block.
        block_size: u32,
    },
}

/// A number of bytes that was written as text.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ByteSize(pub u64);

/// A text that is not a size.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct InvalidSize;

impl fmt::Display for InvalidSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("invalid size (expected bytes, or a number with K, M, G, T, P or E)")
    }
}

impl std::error::Error for InvalidSize {}

impl ByteSize {
    /// Reads a size; an error too where it has more than 64 bits.
    pub fn parse(text: &str, grammar: SizeGrammar) -> Result<Self, InvalidSize> {
        let digits = text.trim_end_matches(|it: char| it.is_ascii_alphabetic());
        let (number, unit) = match (grammar, c_number(text)) {
            // `0xff` has no unit: its letters are digits.
            (SizeGrammar::Mke2fs { block_size }, Some(number)) => (Some(number), block_size.into()),
            (SizeGrammar::Mke2fs { .. }, None) => {
                (c_number(digits), unit(&text[digits.len()..], grammar)?)
            }
            _ => (decimal(digits), unit(&text[digits.len()..], grammar)?),
        };
        number.and_then(|number| number.checked_mul(unit)).map(Self).ok_or(InvalidSize)
    }
}

impl FromStr for ByteSize {
    type Err = InvalidSize;

    fn from_str(text: &str) -> Result<Self, InvalidSize> {
        Self::parse(text, SizeGrammar::Plain)
    }
}

/// Bytes of a unit.
fn unit(name: &str, grammar: SizeGrammar) -> Result<u64, InvalidSize> {
    let name = name.to_ascii_lowercase();
    let mut letters = name.chars();
    let (letter, rest) = (letters.next(), letters.as_str());
    let power = match letter {
        None if !matches!(grammar, SizeGrammar::Mke2fs { .. }) => return Ok(1),
        Some('s') if matches!(grammar, SizeGrammar::Mke2fs { .. }) && rest.is_empty() => {
            return Ok(512);
        }
        Some('k') => 1,
        Some('m') => 2,
        Some('g') => 3,
        Some('t') => 4,
        Some('p') => 5,
        Some('e') => 6,
        _ => return Err(InvalidSize),
    };
    let base: u64 = match (grammar, rest) {
        (SizeGrammar::Ffsb, _) if power > 3 => return Err(InvalidSize),
        (_, "")
        | (SizeGrammar::Plain, "b" | "ib")
        | (SizeGrammar::Coreutils, "ib")
        | (SizeGrammar::Ffsb, "b") => 1024,
        (SizeGrammar::Coreutils, "b") => 1000,
        _ => return Err(InvalidSize),
    };
    Ok(base.pow(power))
}

/// A number in decimal digits alone.
fn decimal(digits: &str) -> Option<u64> {
    if digits.starts_with('+') { None } else { digits.parse().ok() }
}

/// A whole number in C's notation: decimal, hexadecimal after `0x`, octal after `0`. White space
/// before it is passed over, as strtoul(3) does; a sign is refused.
#[must_use]
pub fn c_number(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    if digits.starts_with('+') {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, grammar: SizeGrammar) -> Option<u64> {
        ByteSize::parse(text, grammar).ok().map(|size| size.0)
    }

    #[test]
    fn plain_sizes_are_bytes_or_have_a_unit_of_1024() {
        let cases = [
            ("0", 0),
            ("65536", 65536),
            ("64k", 64 << 10),
            ("64M", 64 << 20),
            ("50MB", 50 << 20),
            ("1GiB", 1 << 30),
            ("5t", 5 << 40),
            ("3P", 3 << 50),
            ("1E", 1 << 60),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse(text, SizeGrammar::Plain), Some(bytes), "{text}");
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        let wrong =
            ["", "M", "1X", "1.5M", "-1", "+1", " 1", "1 M", "64s", "1iB", "99999999999T", "16E"];
        for text in wrong {
            assert_eq!(parse(text, SizeGrammar::Plain), None, "{text}");
        }
    }

    #[test]
    fn coreutils_has_units_of_1000_too() {
        let cases = [("1K", 1024), ("1k", 1024), ("1KiB", 1024), ("1KB", 1000), ("2MB", 2_000_000)];
        for (text, bytes) in cases {
            assert_eq!(parse(text, SizeGrammar::Coreutils), Some(bytes), "{text}");
        }
    }

    #[test]
    fn ffsb_knows_three_units() {
        assert_eq!(parse("8gb", SizeGrammar::Ffsb), Some(8 << 30));
        assert_eq!(parse("64K", SizeGrammar::Ffsb), Some(64 << 10));
        for text in ["1t", "64p", "4kib", "1x"] {
            assert_eq!(parse(text, SizeGrammar::Ffsb), None, "{text}");
        }
    }

    #[test]
    fn mke2fs_counts_blocks_in_c_notation() {
        let of = |block_size| SizeGrammar::Mke2fs { block_size };
        assert_eq!(parse("64", of(1024)), Some(64 << 10));
        assert_eq!(parse("0x40", of(4096)), Some(64 << 12));
        assert_eq!(parse("010", of(1)), Some(8));
        assert_eq!(parse("64k", of(1024)), Some(64 << 10));
        assert_eq!(parse("64000s", of(1024)), Some(64000 * 512));
        assert_eq!(parse("16T", of(4096)), Some(16 << 40));
        let wrong = ["", "k", "64x", "64MB", "64.5M", "-1", "1e9", "99999999999999999999", "99E"];
        for text in wrong {
            assert_eq!(parse(text, of(1024)), None, "{text}");
        }
    }
}
