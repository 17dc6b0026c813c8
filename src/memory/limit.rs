//! An upper bound on a card's memory, as people write it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Bytes;

/// A number of bytes (`12GiB`) or a share of the card (`80%`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// So many bytes.
    Bytes(Bytes),
    /// So much of the card's memory, per cent.
    Percent(f64),
}

/// A limit that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a limit; write it like 12GiB, 512M, a number of bytes, or 80% of the card")]
pub struct ParseLimitError(String);

impl Limit {
    /// The limit on a card with so much memory; never more than that.
    pub fn on(self, card: Bytes) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes.min(card),
            Self::Percent(percent) => share(card, percent / 100.0),
        }
    }

    /// Whether anything is left, and a share is of one card at most.
    pub fn is_usable(self) -> bool {
        match self {
            Self::Bytes(bytes) => bytes > Bytes(0),
            Self::Percent(percent) => percent > 0.0 && percent <= 100.0,
        }
    }
}

/// Bytes that may be taken on a card: the limit, or the whole card, times the threshold.
pub fn budget(limit: Option<Limit>, threshold: f64, card: Bytes) -> Bytes {
    share(limit.map_or(card, |limit| limit.on(card)), threshold)
}

/// `share` of `bytes`, 0 to 1, rounded down.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of the bytes of a card, held to 0..=1 before"
)]
fn share(bytes: Bytes, share: f64) -> Bytes {
    Bytes((bytes.0 as f64 * share.clamp(0.0, 1.0)) as u64).min(bytes)
}

impl FromStr for Limit {
    type Err = ParseLimitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = match text.trim().strip_suffix('%') {
            Some(percent) => percent.trim().parse().ok().map(Self::Percent),
            None => text.parse().ok().map(Self::Bytes),
        };
        parsed.ok_or_else(|| ParseLimitError(text.to_owned()))
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => bytes.fmt(f),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARD: Bytes = Bytes(16 << 30);

    #[test]
    fn limits_are_sizes_or_shares_of_the_card_and_never_more_than_the_card() {
        for (text, gib) in [("12GiB", 12.0), ("12G", 12.0), ("25%", 4.0), ("12.5 %", 2.0)] {
            assert_eq!(text.parse::<Limit>().unwrap().on(CARD).gib(), gib, "{text}");
        }
        assert_eq!("80GiB".parse::<Limit>().unwrap().on(CARD), CARD);
        assert_eq!("100%".parse::<Limit>().unwrap().on(CARD), CARD);
        for text in ["much", "%", "a%", "-1", ""] {
            assert!(text.parse::<Limit>().unwrap_err().to_string().contains("80%"), "{text}");
        }
    }

    #[test]
    fn printing_and_reading_gives_the_same_limit() {
        for limit in [Limit::Bytes(Bytes(3 << 29)), Limit::Percent(12.5), Limit::Percent(80.0)] {
            assert_eq!(limit.to_string().parse::<Limit>().unwrap(), limit);
        }
    }

    #[test]
    fn nothing_and_more_than_a_card_are_no_usable_limits() {
        for (text, usable) in
            [("0", false), ("1", true), ("0%", false), ("100%", true), ("101%", false)]
        {
            assert_eq!(text.parse::<Limit>().unwrap().is_usable(), usable, "{text}");
        }
        assert!(!Limit::Percent(f64::NAN).is_usable());
    }

    #[test]
    fn the_budget_is_the_limit_or_the_card_times_the_threshold() {
        assert_eq!(budget(None, 0.5, CARD), Bytes(8 << 30));
        assert_eq!(budget(Some(Limit::Percent(50.0)), 0.5, CARD), Bytes(4 << 30));
        assert_eq!(budget(Some(Limit::Bytes(Bytes(100))), 0.97, CARD), Bytes(97));
        assert_eq!(budget(None, 1.0, CARD), CARD);
    }
}
