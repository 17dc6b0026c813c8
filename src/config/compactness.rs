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
    /// Both on a GPU, and nothing on the CPU, where it costs time and a resumed run would not end with the same
    /// bytes.
    Auto,
}

/// The word for colours alone.
const SH: &str = "sh";

/// The word for what depends on the device.
const AUTO: &str = "auto";

impl Compactness {
    /// How the CPU keeps the model's state.
    pub fn storage_on_cpu(self) -> Storage {
        match self {
            Self::Off | Self::Auto => Storage::Full,
            Self::Sh => Storage::HalfColors,
            Self::All => Storage::Compact,
        }
    }

    /// How a GPU keeps the model's state.
    pub fn storage_on_gpu(self) -> Storage {
        match self {
            Self::Auto => Storage::Compact,
            Self::Off | Self::Sh | Self::All => self.storage_on_cpu(),
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
            Self::Auto => AUTO,
        })
    }
}

/// Reads `true`, `false`, `auto` or `sh`.
pub(super) fn parse_compactness(text: &str) -> Result<Compactness, String> {
    if text.eq_ignore_ascii_case(SH) {
        return Ok(Compactness::Sh);
    }
    if text.eq_ignore_ascii_case(AUTO) {
        return Ok(Compactness::Auto);
    }
    let switch = parse_switch(text).ok().map(Compactness::from);
    switch.ok_or_else(|| "write true, false, auto or sh".to_owned())
}

impl Serialize for Compactness {
    /// A switch, or the word.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => serializer.serialize_bool(false),
            Self::Sh => serializer.serialize_str(SH),
            Self::Auto => serializer.serialize_str(AUTO),
            Self::All => serializer.serialize_bool(true),
        }
    }
}

impl<'de> Deserialize<'de> for Compactness {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "true, false, \"auto\" or \"sh\"")]
        enum WrittenCompactness {
            Switch(bool),
            Word(String),
        }
        match WrittenCompactness::deserialize(deserializer)? {
            WrittenCompactness::Switch(is_on) => Ok(is_on.into()),
            WrittenCompactness::Word(word) if word == SH => Ok(Self::Sh),
            WrittenCompactness::Word(word) if word == AUTO => Ok(Self::Auto),
            WrittenCompactness::Word(word) => {
                Err(de::Error::custom(format!("`{word}`: write true, false, \"auto\" or \"sh\"")))
            }
        }
    }
}
