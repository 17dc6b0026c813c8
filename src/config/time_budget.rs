//! Times that options take.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A time above 0: `90`, `90s`, `1.5m`, `2h` or `1h30m`; a number alone is of seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeBudget(f64);

/// Units and their seconds, the longest first.
const UNITS: [(char, f64); 3] = [('h', 3600.0), ('m', 60.0), ('s', 1.0)];

/// A text that is no such time.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no time: write one above 0 such as 60s, 2m or 1h30m")]
pub struct ParseTimeError(String);

impl TimeBudget {
    /// In seconds.
    pub fn seconds(self) -> f64 {
        self.0
    }
}

impl FromStr for TimeBudget {
    type Err = ParseTimeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        seconds(text.trim())
            .filter(|seconds| seconds.is_finite() && *seconds > 0.0)
            .map(Self)
            .ok_or_else(|| ParseTimeError(text.to_owned()))
    }
}

/// The sum of the parts; nothing where one is no number or has no unit of its own.
fn seconds(text: &str) -> Option<f64> {
    let (mut rest, mut sum) = (text, 0.0);
    for (unit, of_unit) in UNITS {
        if let Some((number, after)) = rest.split_once(unit) {
            sum += plain(number)? * of_unit;
            rest = after;
        }
    }
    match rest {
        "" if !text.is_empty() => Some(sum),
        number if number == text => plain(number),
        _ => None,
    }
}

/// A number of digits and a point, without what else a number may be made of.
fn plain(text: &str) -> Option<f64> {
    let text = text.trim();
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    is_plain.then(|| text.parse().ok()).flatten()
}

impl fmt::Display for TimeBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = self.0;
        for (unit, of_unit) in UNITS {
            let whole = if unit == 's' { left } else { (left / of_unit).floor() };
            if whole > 0.0 {
                write!(f, "{whole}{unit}")?;
                left -= whole * of_unit;
            }
        }
        Ok(())
    }
}

impl Serialize for TimeBudget {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A time as a configuration file may have it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Given {
    Seconds(f64),
    Text(String),
}

impl<'de> Deserialize<'de> for TimeBudget {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match Given::deserialize(deserializer)? {
            Given::Seconds(seconds) => seconds.to_string(),
            Given::Text(text) => text,
        };
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_numbers_with_units_from_hours_down() {
        for (text, expected) in [
            ("90", 90.0),
            ("90s", 90.0),
            ("1.5m", 90.0),
            ("2h", 7200.0),
            ("1h30m", 5400.0),
            ("1h 30m 5.5s", 5405.5),
            (" 0.25s ", 0.25),
        ] {
            let time: TimeBudget = text.parse().unwrap();
            assert_eq!(time.seconds(), expected, "{text}");
            assert_eq!(time.to_string().parse::<TimeBudget>().unwrap(), time);
        }
        let shown = |text: &str| text.parse::<TimeBudget>().unwrap().to_string();
        assert_eq!(
            ["90", "2h", "5405.5", "0.25"].map(shown),
            ["1m30s", "2h", "1h30m5.5s", "0.25s"]
        );
    }

    #[test]
    fn what_is_no_time_above_0_is_refused() {
        for text in
            ["", "s", "0", "0s", "-5s", "5x", "5s3m", "1h30", "1e3s", "inf", "nan", "5s5s", "1..5"]
        {
            assert!(text.parse::<TimeBudget>().is_err(), "{text}");
        }
    }
}
