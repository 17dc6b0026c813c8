//! A colour, as people write it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Red, green and blue, each 0..1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Color(pub [f32; 3]);

/// A colour that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a colour; write red, green and blue from 0 to 1 like 0.5,0.5,0.5")]
pub struct ParseColorError(String);

impl Color {
    /// Black.
    pub const BLACK: Self = Self([0.0; 3]);
    /// White.
    pub const WHITE: Self = Self([1.0; 3]);
}

impl FromStr for Color {
    type Err = ParseColorError;

    fn from_str(text: &str) -> Result<Self, ParseColorError> {
        let share = |part: &str| part.trim().parse().ok().filter(|part| (0.0..=1.0).contains(part));
        let parts: Option<Vec<f32>> = text.split(',').map(share).collect();
        let parts = parts.and_then(|parts| parts.try_into().ok());
        parts.map(Self).ok_or_else(|| ParseColorError(text.to_owned()))
    }
}

impl fmt::Display for Color {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self([red, green, blue]) = self;
        write!(f, "{red},{green},{blue}")
    }
}

impl Serialize for Color {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Color {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_are_three_shares_and_read_back_as_they_were_written() {
        for (text, color) in [
            ("0,0,0", Color::BLACK),
            ("1, 1,1.0", Color::WHITE),
            ("0.1,0.25,1e-3", Color([0.1, 0.25, 0.001])),
        ] {
            let read: Color = text.parse().unwrap();
            assert_eq!((read, read.to_string().parse::<Color>().unwrap()), (color, color));
        }
        for text in ["", "1", "1,1", "0,0,0,0", "0,0,1.01", "-0.1,0,0", "nan,0,0", "red", "0;0;0"] {
            let error = text.parse::<Color>().unwrap_err().to_string();
            assert!(
                error.contains(&format!("`{text}`")) && error.contains("0.5,0.5,0.5"),
                "{error}"
            );
        }
    }
}
