//! Durations as text: `30d`.

/// The longest duration an option accepts: a hundred years, far from every overflow of date arithmetic.
const LONGEST_SECS: u64 = 36_500 * 86_400;

/// Unit, its length in seconds, and its name.
const UNITS: [(char, u64, &str); 5] =
    [('s', 1, "second"), ('m', 60, "minute"), ('h', 3_600, "hour"), ('d', 86_400, "day"), ('w', 604_800, "week")];

/// A whole number of seconds, minutes, hours, days or weeks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Duration {
    count: u64,
    unit: usize,
}

impl Duration {
    /// Seven days, how long claims are kept unless the user says otherwise.
    pub(crate) const WEEK: Self = Self { count: 7, unit: 3 };

    /// Reads `30d`.
    ///
    /// # Errors
    ///
    /// What is wrong with the text, as the end of a sentence that starts with the text.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err("is not a whole number followed by a unit");
        }
        let mut letters = text[digits.len()..].chars();
        let unit = match (letters.next(), letters.next()) {
            (Some(letter), None) => UNITS.iter().position(|(unit, ..)| *unit == letter),
            (None, _) => return Err("has no unit"),
            _ => None,
        };
        let unit = unit.ok_or("has an unknown unit")?;
        let count = digits.parse().map_err(|_| "is longer than 36500d")?;
        let duration = Self { count, unit };
        match count.checked_mul(UNITS[unit].1) {
            Some(0) => Err("is zero"),
            Some(1..=LONGEST_SECS) => Ok(duration),
            _ => Err("is longer than 36500d"),
        }
    }

    pub(crate) const fn secs(self) -> u64 {
        self.count * UNITS[self.unit].1
    }

    /// Twice as long, in the same unit and within the limit: an example that cannot be wrong.
    pub(crate) fn doubled(self) -> Self {
        let longest = LONGEST_SECS / UNITS[self.unit].1;
        Self { count: (self.count * 2).min(longest), unit: self.unit }
    }

    /// `30d`
    pub(crate) fn short(self) -> String {
        format!("{}{}", self.count, UNITS[self.unit].0)
    }

    /// `30 days`
    pub(crate) fn long(self) -> String {
        let plural = if self.count == 1 { "" } else { "s" };
        format!("{} {}{plural}", self.count, UNITS[self.unit].2)
    }
}

/// The longest wait: a day, which every engine can count.
const LONGEST_WAIT_MILLIS: u64 = 86_400_000;

/// Reads how long to wait, in milliseconds: `5s`, `250ms`, or zero of any unit.
///
/// # Errors
///
/// What is wrong with the text, as the end of a sentence that starts with the text.
pub(crate) fn wait_millis(text: &str) -> Result<u64, &'static str> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let number = || digits.parse::<u64>().map_err(|_| "is no whole number followed by a unit");
    let millis = match &text[digits.len()..] {
        "ms" => number()?,
        unit if UNITS.iter().any(|(letter, ..)| unit.chars().eq([*letter])) && number() == Ok(0) => 0,
        _ => Duration::parse(text)?.secs() * 1000,
    };
    if millis > LONGEST_WAIT_MILLIS { Err("is longer than a day") } else { Ok(millis) }
}

#[cfg(test)]
mod tests {
    use super::Duration;

    #[test]
    fn every_unit_is_read() {
        let secs = |text: &str| Duration::parse(text).map(Duration::secs);
        assert_eq!(secs("1s"), Ok(1));
        assert_eq!(secs("2m"), Ok(120));
        assert_eq!(secs("3h"), Ok(10_800));
        assert_eq!(secs("30d"), Ok(2_592_000));
        assert_eq!(secs("2w"), Ok(1_209_600));
        assert_eq!(secs("007d"), Ok(604_800));
        assert_eq!(secs("36500d"), Ok(3_153_600_000));
    }

    #[test]
    fn everything_else_is_refused() {
        for text in ["", "d", "30", "30x", "30 d", " 30d", "30d ", "-1d", "+1d", "1.5h", "1h30m", "30D", "30days", "٣d"]
        {
            assert!(Duration::parse(text).is_err(), "{text}");
        }
        assert_eq!(Duration::parse("0d"), Err("is zero"));
        assert_eq!(Duration::parse("30"), Err("has no unit"));
        assert_eq!(Duration::parse("36501d"), Err("is longer than 36500d"));
        assert_eq!(Duration::parse("99999999999999999999d"), Err("is longer than 36500d"));
        assert_eq!(Duration::parse("18446744073709551615w"), Err("is longer than 36500d"));
    }

    #[test]
    fn it_is_written_short_and_long() {
        assert_eq!(Duration::WEEK.short(), "7d");
        assert_eq!(Duration::WEEK.long(), "7 days");
        assert_eq!(Duration::parse("1h").map(Duration::long), Ok("1 hour".to_owned()));
        assert_eq!(Duration::parse("36500d").map(Duration::doubled), Duration::parse("36500d"));
        assert_eq!(Duration::parse("3d").map(Duration::doubled), Duration::parse("6d"));
    }
}
