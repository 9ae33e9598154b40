//! Values of fields, as `set_inode_field`, `set_super_value` and `set_block_group` take them.

use super::words::{Word, number, text};

/// The type of a field.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Number,
    /// With a sign; what a field has no room for is cut off.
    Signed,
    Time,
    Text,
    Uuid,
    Hash,
    Encoding,
}

impl Kind {
    /// Its name in a list of fields.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Number => "unsigned integer",
            Self::Time => "date/time",
            Self::Text => "string",
            Self::Uuid => "UUID",
            Self::Hash => "hash algorithm",
            Self::Signed => "integer",
            Self::Encoding => "unknown",
        }
    }
}

/// A value cannot be read.
pub(super) fn unreadable(value: &[u8], field: &str) -> String {
    format!("Couldn't parse '{}' for field {field}.", text(value))
}

/// A number of at most `bits` bits. A minus sign counts down from 2^64, as in strtoull(3).
pub(super) fn number_of(value: &[u8], field: &str, bits: u32) -> Result<u64, String> {
    let found = match value.strip_prefix(b"-") {
        Some(digits) => number(digits).map(u64::wrapping_neg),
        None => number(value),
    };
    let found = found.ok_or_else(|| unreadable(value, field))?;
    let most = if bits >= u64::BITS { u64::MAX } else { (1 << bits) - 1 };
    if found > most {
        return Err(format!("Value '{}' exceeds field {field} maximum {most}.", text(value)));
    }
    Ok(found)
}

/// The digits of a number between bounds at the start of a text, as strptime(3) takes them: as long
/// as one more can stay within.
fn take(digits: &mut &[u8], least: i64, most: i64, count: usize) -> Option<i64> {
    let mut value = 0;
    let mut taken = 0;
    while taken < count
        && let Some((digit, rest)) = digits.split_first()
        && digit.is_ascii_digit()
        && (taken == 0 || value * 10 <= most)
    {
        value = value * 10 + i64::from(digit - b'0');
        *digits = rest;
        taken += 1;
    }
    (taken > 0 && (least..=most).contains(&value)).then_some(value)
}

/// Days from 1970-01-01 to a day of the calendar; later days of a month run on into the next.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin with March.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// A time: `now`, `@SECONDS`, `YYYYMMDD[HH[MM[SS]]]` in UTC, or seconds since 1970 where the digits
/// are no date.
pub(super) fn time_of(value: &[u8], now: i64) -> Option<i64> {
    if value == b"now" {
        return Some(now);
    }
    if let Some(seconds) = value.strip_prefix(b"@") {
        return number(seconds).and_then(|it| i64::try_from(it).ok());
    }
    let mut digits = value;
    let year = take(&mut digits, 0, 9999, 4);
    let month = year.and_then(|_| take(&mut digits, 1, 12, 2));
    let day = month.and_then(|_| take(&mut digits, 1, 31, 2));
    if let (Some(year), Some(month), Some(day)) = (year, month, day) {
        let hour = take(&mut digits, 0, 23, 2);
        let minute = hour.and_then(|_| take(&mut digits, 0, 59, 2));
        let second = minute.and_then(|_| take(&mut digits, 0, 61, 2));
        let clock = hour.unwrap_or(0) * 3600 + minute.unwrap_or(0) * 60 + second.unwrap_or(0);
        return Some(days(year, month, day) * 86_400 + clock);
    }
    number(value).and_then(|it| i64::try_from(it).ok())
}

/// The bytes of a UUID: `clear`, `random`, or its digits.
pub(super) fn uuid_of(value: &[u8]) -> Option<[u8; 16]> {
    match value {
        b"clear" | b"null" => return Some([0; 16]),
        b"random" => return extant::random_uuid().ok().map(|uuid| uuid.0),
        _ => {}
    }
    let digits: Word = value.iter().copied().filter(|byte| *byte != b'-').collect();
    let digits = std::str::from_utf8(&digits).ok()?;
    let mut uuid = [0; 16];
    if digits.len() != 32 {
        return None;
    }
    for (index, byte) in uuid.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(uuid)
}

/// The number of a hash function of directories.
pub(super) fn hash_of(value: &[u8]) -> Option<u64> {
    match value {
        b"legacy" => Some(0),
        b"half_md4" => Some(1),
        b"tea" => Some(2),
        _ => number(value).filter(|it| *it <= 5),
    }
}

/// The number of an encoding of names.
pub(super) fn encoding_of(value: &[u8]) -> Option<u64> {
    match value {
        b"utf8" | b"utf8-12.1" => Some(1),
        _ => number(value).filter(|it| *it <= u64::from(u16::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As debugfs 1.47.0 reads them (`set_current_time`).
    #[test]
    fn times_are_dates_or_seconds() {
        for (value, seconds) in [
            ("20200101", Some(1_577_836_800)),
            ("2020010112", Some(1_577_880_000)),
            ("202001011230", Some(1_577_881_800)),
            ("20200101123045", Some(1_577_881_845)),
            ("1700000000", Some(1_700_000_000)),
            ("1612345678", Some(-11_291_943_233)),
            ("@5", Some(5)),
            ("0x10", Some(16)),
            ("12", Some(12)),
            ("20201301", Some(20_201_301)),
            ("99999999999", Some(253_392_484_149)),
            ("now", Some(77)),
            ("-1", None),
            ("xyz", None),
        ] {
            assert_eq!(time_of(value.as_bytes(), 77), seconds, "{value}");
        }
    }

    #[test]
    fn numbers_fit_their_fields() {
        assert_eq!(number_of(b"0x1ff", "mode", 16), Ok(511));
        let why = "Value '-1' exceeds field mode maximum 65535.";
        assert_eq!(number_of(b"-1", "mode", 16), Err(why.to_owned()));
        assert_eq!(number_of(b"-1", "mode", 64), Ok(u64::MAX));
        let why = "Couldn't parse 'x' for field mode.";
        assert_eq!(number_of(b"x", "mode", 16), Err(why.to_owned()));
    }
}
