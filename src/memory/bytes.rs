//! Sizes in bytes, with parsing and printing of units.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A number of bytes.
///
/// Reads `12GiB`, `12G`, `512M` or a plain number; `K`, `M`, `G` without `iB` are powers of 1024. Prints with the
/// largest unit that divides the number. In JSON a plain number; configuration files store it [`as_text`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// Serde as text with a unit: `"2GiB"`.
pub mod as_text {
    use serde::{Deserialize, Deserializer, Serializer, de};

    use super::Bytes;

    /// Writes the size with the largest unit that divides it.
    pub fn serialize<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(bytes)
    }

    /// Reads text with or without a unit.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Error of a text that is no size.
#[derive(Debug, thiserror::Error)]
#[error("`{text}` is not a size; write it like 2GiB, 512M or a number of bytes")]
pub struct ParseBytesError {
    text: String,
    #[source]
    source: parse_size::Error,
}

const UNITS: [(&str, u64); 4] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

impl Bytes {
    /// One mebibyte.
    pub const MIB: Self = Self(1 << 20);
    /// One gibibyte.
    pub const GIB: Self = Self(1 << 30);

    /// Returns the bytes of `count` values of type `T`.
    pub const fn of<T>(count: usize) -> Self {
        Self(count as u64 * size_of::<T>() as u64)
    }

    /// Converts to gibibytes, for display.
    pub fn gib(self) -> f64 {
        self.0 as f64 / Self::GIB.0 as f64
    }

    /// Converts to mebibytes, for display.
    pub fn mib(self) -> f64 {
        self.0 as f64 / Self::MIB.0 as f64
    }

    /// Formats the size in MiB below 1 GiB, else in GiB.
    pub fn in_words(self) -> String {
        if self < Self::GIB {
            format!("{:.0} MiB", self.mib())
        } else {
            format!("{:.2} GiB", self.gib())
        }
    }
}

impl FromStr for Bytes {
    type Err = ParseBytesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_size::Config::new()
            .with_binary()
            .parse_size(text)
            .map(Self)
            .map_err(|source| ParseBytesError { text: text.to_owned(), source })
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, size) in UNITS {
            if self.0 >= size && self.0.is_multiple_of(size) {
                return write!(f, "{}{unit}", self.0 / size);
            }
        }
        write!(f, "{}", self.0)
    }
}

impl Add for Bytes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
        items.fold(Self(0), Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_the_binary_suffix() {
        for (text, bytes) in
            [("2GiB", 2 << 30), ("2G", 2 << 30), ("1.5 MiB", 3 << 19), ("777", 777), ("3k", 3072)]
        {
            assert_eq!(text.parse::<Bytes>().unwrap(), Bytes(bytes), "{text}");
        }
        assert!(
            "a lot".parse::<Bytes>().unwrap_err().to_string().contains("`a lot` is not a size")
        );
        assert!("-1".parse::<Bytes>().is_err());
    }

    #[test]
    fn printing_and_reading_gives_the_same_number() {
        for bytes in [0, 1, 1023, 1024, 1536, 3 << 20, (5 << 30) + 1, 7 << 40] {
            assert_eq!(Bytes(bytes).to_string().parse::<Bytes>().unwrap(), Bytes(bytes));
        }
    }
}
