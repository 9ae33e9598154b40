//! Numbers as the command line and the configuration file write them: C's bases, and sizes with a unit.

/// A whole number in C's notation: decimal, `0x` hexadecimal or `0` octal.
pub(crate) fn number(text: &str) -> Option<u64> {
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

/// A size in units of `unit` bytes. A bare number counts such units; the suffixes `s k m g t p e` (either
/// case) are sectors of 512 bytes and powers of 1024 bytes, rounded down to whole units.
pub(crate) fn size(text: &str, unit: u32) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    // `0xff` has no suffix: its letters are digits.
    if text.starts_with("0x") || text.starts_with("0X") || digits.len() == text.len() {
        return number(text);
    }
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "s" => 9,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        "e" => 60,
        _ => return None,
    };
    let bytes = number(digits)?.checked_mul(1 << shift)?;
    Some(bytes / u64::from(unit.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_units_and_bases() {
        assert_eq!(size("64", 1024), Some(64));
        assert_eq!(size("0x40", 1024), Some(64));
        assert_eq!(size("64k", 1024), Some(64));
        assert_eq!(size("64M", 4096), Some(16384));
        assert_eq!(size("64000s", 1024), Some(32000));
        assert_eq!(size("16T", 4096), Some(1 << 32));
        for bad in ["", "k", "64x", "64MB", "64.5M", "-1", "1e9", "99999999999999999999", "99E"] {
            assert_eq!(size(bad, 1024), None, "{bad}");
        }
    }
}
