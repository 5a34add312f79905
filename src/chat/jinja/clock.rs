//! `strftime_now`: date and time, in UTC, as few templates print them.

use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] =
    ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
/// The first of January 1970 was a Thursday.
const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// Now, in the format of `strftime`; which directives there are, the error says.
pub fn now(format: &str) -> Result<String, String> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    at(seconds, format)
}

fn at(seconds: u64, format: &str) -> Result<String, String> {
    let (days, time) = (seconds / 86400, seconds % 86400);
    let (year, month, day) = date(days);
    let (month_name, day_name) = (MONTHS[month as usize - 1], DAYS[days as usize % 7]);
    let mut text = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        text += &match chars.next() {
            Some('Y') => year.to_string(),
            Some('y') => format!("{:02}", year % 100),
            Some('m') => format!("{month:02}"),
            Some('d') => format!("{day:02}"),
            Some('B') => month_name.into(),
            Some('b') => month_name[..3].into(),
            Some('A') => day_name.into(),
            Some('a') => day_name[..3].into(),
            Some('H') => format!("{:02}", time / 3600),
            Some('M') => format!("{:02}", time / 60 % 60),
            Some('S') => format!("{:02}", time % 60),
            Some('%') => "%".into(),
            other => {
                let other = other.map_or(String::new(), String::from);
                return Err(format!("strftime_now: expected one of %Y %y %m %d %B %b %A %a %H %M %S %%, found %{other}"));
            }
        };
    }
    Ok(text)
}

/// Year, month and day, after so many days since 1970. Years begin in March, so that the leap day is the last one.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        let cases = [
            (0, "Thu Thursday 01 Jan January 1970 70 00:00:00 %"),
            (951_827_696, "Tue Tuesday 29 Feb February 2000 00 12:34:56 %"),
            (1_709_251_199, "Thu Thursday 29 Feb February 2024 24 23:59:59 %"),
            (1_709_251_200, "Fri Friday 01 Mar March 2024 24 00:00:00 %"),
            (4_102_444_800, "Fri Friday 01 Jan January 2100 00 00:00:00 %"),
        ];
        for (seconds, want) in cases {
            assert_eq!(at(seconds, "%a %A %d %b %B %Y %y %H:%M:%S %%").unwrap(), want);
        }
        assert!(at(0, "%q").unwrap_err().ends_with("found %q") && at(0, "x%").is_err());
        assert!(now("%Y-%m-%d").unwrap().len() >= 10);
    }
}
