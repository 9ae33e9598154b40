//! Times as text. UTC throughout: an image does not know the reader's time zone.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use extant::rooms::image::mkfs::{EPOCH_VARIABLE, fake_time};

use crate::failure::Failure;

/// The seconds since 1970 that stand in for the clock, where the environment gives them.
pub(crate) fn epoch() -> Result<Option<i64>, Failure> {
    let Some(text) = std::env::var_os(EPOCH_VARIABLE).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let seconds = text.to_str().and_then(|text| text.trim().parse().ok());
    let seconds = seconds.ok_or_else(|| {
        Failure::usage(format_args!("{EPOCH_VARIABLE}: invalid time '{}'", text.display()))
    })?;
    Ok(Some(seconds))
}

/// The clock, or the time that the environment gives in its place: by `E2FSPROGS_FAKE_TIME`, else
/// by `SOURCE_DATE_EPOCH`.
pub(crate) fn now() -> Result<SystemTime, Failure> {
    let fake = fake_time().map(u64::cast_signed);
    let Some(seconds) = fake.map_or_else(epoch, |time| Ok(Some(time)))? else {
        return Ok(SystemTime::now());
    };
    let moment = moment(seconds, 0);
    moment.ok_or_else(|| Failure::usage(format_args!("{EPOCH_VARIABLE}: invalid time '{seconds}'")))
}

/// A moment as the system counts it; `None` where it cannot.
pub(crate) fn moment(seconds: i64, nanoseconds: u32) -> Option<SystemTime> {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let start = match seconds < 0 {
        true => UNIX_EPOCH.checked_sub(whole)?,
        false => UNIX_EPOCH.checked_add(whole)?,
    };
    start.checked_add(Duration::from_nanos(nanoseconds.into()))
}

/// Seconds of a day.
const DAY: i64 = 86_400;
/// Days of 400 years of the Gregorian calendar.
const ERA: i64 = 146_097;
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

/// A moment on the calendar.
struct Civil {
    year: i64,
    month: usize,
    day: i64,
    weekday: usize,
    second_of_day: i64,
}

impl Civil {
    fn of(seconds: i64) -> Self {
        let (days, second_of_day) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
        // Years begin with March, so that a leap day is a year's last: 719,468 days lie between
        // 0000-03-01 and 1970-01-01.
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted.div_euclid(ERA), shifted.rem_euclid(ERA));
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = (month_from_march + 2) % 12;
        Self {
            year: year_of_era + era * 400 + i64::from(month < 2),
            month: month as usize,
            day: day_of_year - (153 * month_from_march + 2) / 5 + 1,
            weekday: days.rem_euclid(7) as usize,
            second_of_day,
        }
    }

    fn clock(&self) -> (i64, i64, i64) {
        (self.second_of_day / 3600, self.second_of_day / 60 % 60, self.second_of_day % 60)
    }
}

/// A moment in seconds since 1970 and nanoseconds: `@SECONDS`, or `YYYY-MM-DD[ HH:MM[:SS]]` in UTC
/// with `T` or a blank between, either with a fraction of a second.
pub(crate) fn parse(text: &str) -> Option<(i64, u32)> {
    // Z, for UTC, ends times of ISO 8601.
    let text = text.strip_suffix('Z').filter(|time| time.contains('T')).unwrap_or(text);
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (text, None),
    };
    let nanoseconds = match fraction {
        Some(digits) if (1..=9).contains(&digits.len()) => {
            let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
            format!("{digits:0<9}").parse().ok().filter(|_| is_number)?
        }
        Some(_) => return None,
        None => 0,
    };
    if let Some(seconds) = whole.strip_prefix('@') {
        let seconds: i64 = seconds.parse().ok()?;
        // A fraction goes away from 1970, as the sign does.
        return Some(match (seconds < 0 || whole.starts_with("@-"), nanoseconds) {
            (true, 1..) => (seconds.checked_sub(1)?, 1_000_000_000 - nanoseconds),
            _ => (seconds, nanoseconds),
        });
    }
    let (date, clock) = match whole.split_once(['T', ' ']) {
        Some((date, clock)) => (date, clock),
        None if fraction.is_some() => return None,
        None => (whole, "00:00"),
    };
    let [year, month, day] = numbers(date, '-')?.try_into().ok()?;
    let clock = numbers(clock, ':')?;
    let (hour, minute, second) = match clock[..] {
        [hour, minute] if fraction.is_none() => (hour, minute, 0),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    let is_time = hour < 24 && minute < 60 && second < 60;
    // The days of 9,999 years fit by far.
    let seconds = days(year, month, day)? * DAY + hour * 3600 + minute * 60 + second;
    is_time.then_some((seconds, nanoseconds))
}

/// Numbers of at most four digits.
fn numbers(text: &str, separator: char) -> Option<Vec<i64>> {
    text.split(separator)
        .map(|part| {
            let is_number = part.bytes().all(|digit| digit.is_ascii_digit());
            part.parse().ok().filter(|_| is_number && part.len() <= 4)
        })
        .collect()
}

/// Days from 1970-01-01 to a day that there is.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || day < 1 {
        return None;
    }
    // Years begin with March, see `Civil::of`.
    let shifted = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (shifted.div_euclid(400), shifted.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * ERA + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = days - 719_468;
    let civil = Civil::of(days * DAY);
    let is_day = (civil.year, civil.month as i64 + 1, civil.day) == (year, month, day);
    is_day.then_some(days)
}

/// `2026-11-21 22:08`, as `ls -l` shows it.
pub(crate) fn short(seconds: i64) -> String {
    let civil = Civil::of(seconds);
    let (hour, minute, _) = civil.clock();
    format!("{:04}-{:02}-{:02} {hour:02}:{minute:02}", civil.year, civil.month + 1, civil.day)
}

/// `2026-11-21 22:08:27`.
pub(crate) fn to_second(seconds: i64) -> String {
    let (_, _, second) = Civil::of(seconds).clock();
    format!("{}:{second:02}", short(seconds))
}

/// `2026-11-21 22:08:27.123456789 +0000`, as `stat` shows it.
pub(crate) fn long(seconds: i64, nanoseconds: u32) -> String {
    let civil = Civil::of(seconds);
    let (hour, minute, second) = civil.clock();
    format!(
        "{:04}-{:02}-{:02} {hour:02}:{minute:02}:{second:02}.{nanoseconds:09} +0000",
        civil.year,
        civil.month + 1,
        civil.day
    )
}

/// `21-Nov-2026 22:08`, as debugfs lists files.
pub(crate) fn day_first(seconds: i64) -> String {
    let civil = Civil::of(seconds);
    let (hour, minute, _) = civil.clock();
    let month = MONTHS[civil.month];
    format!("{:2}-{month}-{:04} {hour:02}:{minute:02}", civil.day, civil.year)
}

/// `Sat Nov 21 22:08:27 2026`, as ctime(3) and dumpe2fs show it.
pub(crate) fn ctime(seconds: i64) -> String {
    let civil = Civil::of(seconds);
    let (hour, minute, second) = civil.clock();
    format!(
        "{} {} {:2} {hour:02}:{minute:02}:{second:02} {:04}",
        WEEKDAYS[civil.weekday], MONTHS[civil.month], civil.day, civil.year
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_agree_with_date() {
        // date -u -d @SECONDS
        let cases = [
            (0, "Thu Jan  1 00:00:00 1970"),
            (-1, "Wed Dec 31 23:59:59 1969"),
            (951_782_399, "Mon Feb 28 23:59:59 2000"),
            (951_782_400, "Tue Feb 29 00:00:00 2000"),
            (4_107_542_400, "Mon Mar  1 00:00:00 2100"),
            (-2_147_483_648, "Fri Dec 13 20:45:52 1901"),
            (15_032_385_535, "Thu May 10 22:38:55 2446"),
            (1_795_298_907, "Sat Nov 21 22:08:27 2026"),
        ];
        for (seconds, text) in cases {
            assert_eq!(ctime(seconds), text, "{seconds}");
        }
        assert_eq!(short(-1), "1969-12-31 23:59");
        assert_eq!(long(951_782_400, 5), "2000-02-29 00:00:00.000000005 +0000");
    }

    #[test]
    fn moments_are_read_as_they_are_shown() {
        // date -u -d TEXT +%s.%N
        for (text, moment) in [
            ("@0", (0, 0)),
            ("@-5", (-5, 0)),
            ("@-0.25", (-1, 750_000_000)),
            ("@1795298907.5", (1_795_298_907, 500_000_000)),
            ("2026-11-21 22:08:27", (1_795_298_907, 0)),
            ("2026-11-21T22:08:27.000000001Z", (1_795_298_907, 1)),
            ("2000-02-29", (951_782_400, 0)),
            ("1901-12-13 20:45", (-2_147_483_700, 0)),
            ("2446-05-10 22:38:55", (15_032_385_535, 0)),
        ] {
            assert_eq!(parse(text), Some(moment), "{text}");
        }
        for text in
            ["", "@", "now", "2001-02-29", "2026-13-01", "2026-11-21 24:00", "2026-11-21.5", "@1."]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
