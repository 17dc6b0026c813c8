//! A point of the scene, as people write it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The origin of training in scene coordinates: x, y and z, all finite.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Offset(pub [f64; 3]);

/// Text that is not an offset.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not an offset; write three finite numbers like 500000,4500000,0")]
pub struct ParseOffsetError(String);

impl FromStr for Offset {
    type Err = ParseOffsetError;

    fn from_str(text: &str) -> Result<Self, ParseOffsetError> {
        let number = |part: &str| part.trim().parse().ok().filter(|x: &f64| x.is_finite());
        let parts: Option<Vec<f64>> = text.split(',').map(number).collect();
        let parts = parts.and_then(|parts| parts.try_into().ok());
        parts.map(Self).ok_or_else(|| ParseOffsetError(text.to_owned()))
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self([x, y, z]) = self;
        write!(f, "{x},{y},{z}")
    }
}

impl Serialize for Offset {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Offset {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "an offset is written like \"500000,4500000,0\"")]
        enum Written {
            Text(String),
            Parts([f64; 3]),
        }
        let text = match Written::deserialize(deserializer)? {
            Written::Text(text) => text,
            Written::Parts(parts) => Self(parts).to_string(),
        };
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
