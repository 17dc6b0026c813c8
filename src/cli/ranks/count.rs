//! How many processes train a model.

use std::str::FromStr;

/// How many processes train a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum RankCount {
    /// As many as the launcher has started.
    Auto,
    /// So many.
    Count(u32),
}

/// Most ranks: beyond, a step of a small batch is all exchange.
pub(super) const MOST: u32 = 64;

impl FromStr for RankCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let count = text.parse().ok().filter(|count| (1..=MOST).contains(count));
        count.map(Self::Count).ok_or_else(|| format!("a number from 1 to {MOST}, or auto"))
    }
}

impl RankCount {
    /// The flag that asks for it, with a space before it; nothing for one process.
    pub(in crate::cli) fn as_flag(self) -> String {
        match self {
            Self::Count(1) => String::new(),
            Self::Count(count) => format!(" --ranks {count}"),
            Self::Auto => " --ranks auto".to_owned(),
        }
    }

    /// Whether more than this process may train.
    pub(in crate::cli) fn may_be_several(self) -> bool {
        self != Self::Count(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_a_number_or_the_launchers() {
        assert_eq!("auto".parse(), Ok(RankCount::Auto));
        assert_eq!("3".parse(), Ok(RankCount::Count(3)));
        let flags = [RankCount::Count(1), RankCount::Count(3), RankCount::Auto];
        assert_eq!(flags.map(RankCount::as_flag), ["", " --ranks 3", " --ranks auto"]);
        assert!(!RankCount::Count(1).may_be_several() && RankCount::Auto.may_be_several());
        for wrong in ["0", "65", "-1", "all", ""] {
            assert!(wrong.parse::<RankCount>().is_err(), "{wrong}");
        }
    }
}
