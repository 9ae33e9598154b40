//! Users, groups and times as they are written on a command line.

use crate::mkfs::numbers;

/// A number, or the number that a name has in a file of the form `name:password:number:...`.
pub(super) fn id_of(text: &str, file: &str) -> Option<u32> {
    if let Some(number) = numbers::number(text) {
        return u32::try_from(number).ok();
    }
    let known = std::fs::read_to_string(file).ok()?;
    known.lines().find_map(|line| {
        let mut parts = line.split(':');
        (parts.next() == Some(text)).then(|| parts.nth(1)?.parse().ok())?
    })
}

/// `now`, or `YYYYMMDD[HH[MM[SS]]]` in UTC: an image does not know the reader's time zone. Seconds
/// since 1970.
pub(super) fn parse_time(text: &str, now: u64) -> Option<u64> {
    if text == "now" {
        return Some(now);
    }
    let is_whole = matches!(text.len(), 8 | 10 | 12 | 14);
    if !is_whole || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let part = |at: usize, len: usize| match text.get(at..at + len) {
        Some(digits) => digits.parse::<u64>().ok(),
        None => Some(0),
    };
    let (year, month, day) = (part(0, 4)?, part(4, 2)?, part(6, 2)?);
    let (hour, minute, second) = (part(8, 2)?, part(10, 2)?, part(12, 2)?);
    let is_leap =
        |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let days_in = |month: u64| match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let is_date = year >= 1970 && (1..=12).contains(&month) && (1..=days_in(month)).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let years: u64 = (1970..year).map(|year| 365 + u64::from(is_leap(year))).sum();
    let days = years + (1..month).map(days_in).sum::<u64>() + day - 1;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_agree_with_date() {
        // date -u -d '2020-02-29 03:04:05' +%s
        assert_eq!(parse_time("20200229030405", 0), Some(1_582_945_445));
        assert_eq!(parse_time("20200102", 0), Some(1_577_923_200));
        assert_eq!(parse_time("now", 7), Some(7));
        for bad in ["", "2020", "20200230", "20201301", "2020010224", "19691231", "2020-1-2"] {
            assert_eq!(parse_time(bad, 0), None, "{bad}");
        }
    }

    #[test]
    fn names_are_looked_up_and_numbers_are_taken() {
        assert_eq!(id_of("33", "/nowhere"), Some(33));
        assert_eq!(id_of("root", "/etc/passwd"), Some(0));
        assert_eq!(id_of("no such user", "/etc/passwd"), None);
    }
}
