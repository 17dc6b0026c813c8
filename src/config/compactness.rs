//! How much of the model `--optimize-memory` makes compact.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::switch::parse_switch;
use crate::memory::plan::Storage;

/// How much of the model's state is made compact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compactness {
    /// Nothing.
    #[default]
    Off,
    /// Colours.
    Sh,
    /// Colours and moments.
    All,
}

/// The word for colours alone.
const SH: &str = "sh";

impl Compactness {
    /// How the model keeps its state.
    pub fn storage(self) -> Storage {
        match self {
            Self::Off => Storage::Full,
            Self::Sh => Storage::HalfColors,
            Self::All => Storage::Compact,
        }
    }
}

impl From<bool> for Compactness {
    fn from(is_on: bool) -> Self {
        if is_on { Self::All } else { Self::Off }
    }
}

impl fmt::Display for Compactness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "false",
            Self::Sh => SH,
            Self::All => "true",
        })
    }
}

/// Reads `true`, `false` or `sh`.
pub(super) fn parse_compactness(text: &str) -> Result<Compactness, String> {
    if text.eq_ignore_ascii_case(SH) {
        return Ok(Compactness::Sh);
    }
    parse_switch(text).map(Compactness::from).map_err(|rest| format!("{rest}, or sh"))
}

impl Serialize for Compactness {
    /// A switch, or the word.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => serializer.serialize_bool(false),
            Self::Sh => serializer.serialize_str(SH),
            Self::All => serializer.serialize_bool(true),
        }
    }
}

impl<'de> Deserialize<'de> for Compactness {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "true, false or \"sh\"")]
        enum WrittenCompactness {
            Switch(bool),
            Word(String),
        }
        match WrittenCompactness::deserialize(deserializer)? {
            WrittenCompactness::Switch(is_on) => Ok(is_on.into()),
            WrittenCompactness::Word(word) if word == SH => Ok(Self::Sh),
            WrittenCompactness::Word(word) => {
                Err(de::Error::custom(format!("`{word}`: write true, false or \"sh\"")))
            }
        }
    }
}
