//! Colours and offsets as people write them: text like `0.5,0.5,0.5`, or an array in TOML.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Text that is not three valid numbers.
#[derive(Debug, thiserror::Error)]
#[error("`{text}`: {expected}")]
pub struct ParseTripleError {
    text: String,
    expected: &'static str,
}

/// Parses three numbers between commas if all are valid.
fn parse<T: FromStr>(
    text: &str,
    is_valid: fn(&T) -> bool,
    expected: &'static str,
) -> Result<[T; 3], ParseTripleError> {
    let number = |part: &str| part.trim().parse().ok().filter(is_valid);
    let parts: Option<Vec<T>> = text.split(',').map(number).collect();
    let error = || ParseTripleError { text: text.to_owned(), expected };
    parts.and_then(|parts| parts.try_into().ok()).ok_or_else(error)
}

/// Defines a type over three numbers with its text form.
macro_rules! triple {
    ($(#[$doc:meta])* $name:ident, $number:ty, $is_valid:expr, $expected:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct $name(pub [$number; 3]);

        impl FromStr for $name {
            type Err = ParseTripleError;

            fn from_str(text: &str) -> Result<Self, ParseTripleError> {
                parse(text, $is_valid, $expected).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let Self([a, b, c]) = self;
                write!(f, "{a},{b},{c}")
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                #[derive(Deserialize)]
                #[serde(untagged, expecting = $expected)]
                enum Written {
                    Text(String),
                    Numbers([$number; 3]),
                }
                let text = match Written::deserialize(deserializer)? {
                    Written::Text(text) => text,
                    Written::Numbers(numbers) => Self(numbers).to_string(),
                };
                text.parse().map_err(de::Error::custom)
            }
        }
    };
}

triple!(
    /// Red, green and blue, each 0..1.
    Color,
    f32,
    |share: &f32| (0.0..=1.0).contains(share),
    "write a colour as red, green and blue from 0 to 1, like 0.5,0.5,0.5"
);

triple!(
    /// The origin of training in scene coordinates: x, y and z, all finite.
    Offset,
    f64,
    |x: &f64| x.is_finite(),
    "write an offset as three finite numbers, like 500000,4500000,0"
);

impl Color {
    /// Black.
    pub const BLACK: Self = Self([0.0; 3]);
    /// White.
    pub const WHITE: Self = Self([1.0; 3]);
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
        #[derive(Debug, Deserialize)]
        struct Scene {
            background: Color,
        }
        let read = |value: &str| toml::from_str::<Scene>(&format!("background = {value}"));
        for value in ["\"0.5,0.25,1\"", "[0.5, 0.25, 1]"] {
            assert_eq!(read(value).unwrap().background, Color([0.5, 0.25, 1.0]));
        }
        for value in ["[0.5, 0.25]", "[0.5, 0.25, 2]", "true", "\"grey\""] {
            assert!(read(value).unwrap_err().to_string().contains("0.5,0.5,0.5"), "{value}");
        }
        for text in ["", "1", "1,1", "0,0,0,0", "0,0,1.01", "-0.1,0,0", "nan,0,0", "red", "0;0;0"] {
            let error = text.parse::<Color>().unwrap_err().to_string();
            assert!(
                error.contains(&format!("`{text}`")) && error.contains("0.5,0.5,0.5"),
                "{error}"
            );
        }
    }

    #[test]
    fn offsets_keep_every_digit_of_a_double() {
        for offset in [[0.0; 3], [500_000.0, -4_500_000.125, 1e-3], [0.1, 1.0 / 3.0, 6_378_137.3]] {
            assert_eq!(Offset(offset).to_string().parse::<Offset>().unwrap(), Offset(offset));
        }
        for text in ["", "1,2", "1,2,3,4", "1,2,x", "1,2,inf", "nan,0,0"] {
            let error = text.parse::<Offset>().unwrap_err().to_string();
            assert!(error.contains("500000"), "{error}");
        }
    }
}
