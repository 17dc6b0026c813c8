//! Upper bound on a card's memory, with parsing and printing.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Bytes;

/// A number of bytes (`12GiB`) or a share of the card (`80%`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Absolute size.
    Bytes(Bytes),
    /// Share of the card's memory, per cent.
    Percent(f64),
}

/// Error of a text that is no limit.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a limit; write it like 12GiB, 512M, a number of bytes, or a share like 80%")]
pub struct ParseLimitError(String);

impl Limit {
    /// Returns the limit in bytes on a card with this much memory, at most all of it.
    pub fn on(self, card: Bytes) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes.min(card),
            Self::Percent(percent) => share(card, percent / 100.0),
        }
    }

    /// Returns true if the limit is positive and a share is at most 100%.
    pub fn is_usable(self) -> bool {
        match self {
            Self::Bytes(bytes) => bytes > Bytes(0),
            Self::Percent(percent) => percent > 0.0 && percent <= 100.0,
        }
    }
}

/// Budget of this program on a card that it shares with other programs.
///
/// The budget is at most `threshold` times the limit. The rest of the limit stays free on the card: the budget
/// shrinks if other programs would leave less free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    card: Bytes,
    most: Bytes,
    /// Bytes that stay free.
    reserve: Bytes,
}

impl Allowance {
    /// Creates the budget for a limit, or for the whole card.
    pub fn new(limit: Option<Limit>, threshold: f64, card: Bytes) -> Self {
        let limit = limit.map_or(card, |limit| limit.on(card));
        let most = share(limit, threshold);
        Self { card, most, reserve: Bytes(limit.0 - most.0) }
    }

    /// Returns the budget while other programs hold `foreign` bytes.
    pub fn beside(&self, foreign: Bytes) -> Bytes {
        let left = self.card.0.saturating_sub(foreign.0).saturating_sub(self.reserve.0);
        self.most.min(Bytes(left))
    }

    /// Returns the state of the card if `foreign` bytes of other programs lower the budget.
    pub fn sharing(&self, foreign: Bytes) -> Option<CardSharing> {
        let Self { card, reserve, .. } = *self;
        (self.beside(foreign) < self.most).then_some(CardSharing { card, foreign, reserve })
    }
}

/// State of a card whose other programs lower this program's budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardSharing {
    /// Total memory.
    pub card: Bytes,
    /// Bytes that other programs hold.
    pub foreign: Bytes,
    /// Bytes that stay free because of the threshold.
    pub reserve: Bytes,
}

/// Returns `share` (0 to 1) of `bytes`, rounded down.
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
    fn limits_are_sizes_or_shares_and_at_most_the_card() {
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
        let alone = |limit, threshold| Allowance::new(limit, threshold, CARD).beside(Bytes(0));
        assert_eq!(alone(None, 0.5), Bytes(8 << 30));
        assert_eq!(alone(Some(Limit::Percent(50.0)), 0.5), Bytes(4 << 30));
        assert_eq!(alone(Some(Limit::Bytes(Bytes(100))), 0.97), Bytes(97));
        assert_eq!(alone(None, 1.0), CARD);
    }

    #[test]
    fn memory_of_other_programs_lowers_the_budget_only_on_a_full_card() {
        let half = Allowance::new(Some(Limit::Percent(50.0)), 0.75, CARD);
        assert_eq!(half.beside(Bytes(4 << 30)), Bytes(6 << 30));
        // 2 of 16 GiB stay free and other programs hold 10.
        assert_eq!(half.beside(Bytes(10 << 30)), Bytes(4 << 30));
        assert_eq!(half.beside(Bytes(15 << 30)), Bytes(0));
        assert_eq!(half.beside(Bytes(u64::MAX)), Bytes(0));
        assert_eq!(half.sharing(Bytes(4 << 30)), None);
        let (foreign, reserve) = (Bytes(10 << 30), Bytes(2 << 30));
        assert_eq!(half.sharing(foreign), Some(CardSharing { card: CARD, foreign, reserve }));
        let all = Allowance::new(None, 0.75, CARD);
        assert_eq!(all.beside(Bytes(5 << 30)), Bytes(7 << 30));
    }
}
