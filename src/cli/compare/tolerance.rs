//! How much quality may be lost.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// Relative differences of this size come from rounding, per cent.
const ROUNDING: f64 = 1e-9;

/// A share of a figure, per cent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub(super) struct Tolerance(f64);

/// A tolerance that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a tolerance; write a share from 0% to 100%, for instance 0.5%")]
pub(super) struct ParseToleranceError(String);

impl Tolerance {
    /// Whether a figure that is worse by so many per cent is accepted.
    pub(super) fn accepts(self, worse_percent: f64) -> bool {
        let rounding = if self.0 > 0.0 { ROUNDING } else { 0.0 };
        worse_percent <= self.0 + rounding
    }
}

impl FromStr for Tolerance {
    type Err = ParseToleranceError;

    /// The sign is asked for: `0.5` may be meant as a half or as half a per cent. Nothing is nothing.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| text.trim().parse::<f64>().ok();
        let percent = match text.trim().strip_suffix('%') {
            Some(text) => number(text),
            None => number(text).filter(|&number| number == 0.0),
        };
        // -0 is written without its sign.
        let percent = percent.map(|percent| percent + 0.0);
        percent
            .filter(|percent| (0.0..=100.0).contains(percent))
            .map(Self)
            .ok_or_else(|| ParseToleranceError(text.to_owned()))
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_written_with_its_sign() {
        let parsed = |text: &str| text.parse::<Tolerance>().ok().map(|it| it.to_string());
        assert_eq!(parsed("0.5%").as_deref(), Some("0.5%"));
        assert_eq!(parsed(" 2 %").as_deref(), Some("2%"));
        for text in ["0%", "0", "0.0", "-0%"] {
            assert_eq!(parsed(text).as_deref(), Some("0%"), "{text}");
        }
        for text in ["0.5", "-1%", "101%", "nan%", "", "%", "half"] {
            assert_eq!(parsed(text), None, "{text}");
        }
        assert!(Tolerance(0.0).accepts(0.0) && !Tolerance(0.0).accepts(0.001));
        assert!(!Tolerance(0.0).accepts(1e-10) && Tolerance(1.0).accepts(1.0 + 1e-10));
        assert!(!Tolerance(100.0).accepts(f64::INFINITY) && !Tolerance(1.0).accepts(f64::NAN));
    }
}
