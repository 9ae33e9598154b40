//! Times as text. UTC throughout: an image does not know the reader's time zone.

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

/// `2026-11-21 22:08`, as `ls -l` shows it.
pub(crate) fn short(seconds: i64) -> String {
    let civil = Civil::of(seconds);
    let (hour, minute, _) = civil.clock();
    format!("{:04}-{:02}-{:02} {hour:02}:{minute:02}", civil.year, civil.month + 1, civil.day)
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
}
