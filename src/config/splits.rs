//! Options that choose held-out and evaluated views.

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use toml::{Table, Value};

/// Options that choose the held-out views.
pub(super) const NAMED: [&str; 2] = ["test_views", "test_list"];

/// Held-out views by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TestList {
    /// File with one name per line.
    File(PathBuf),
    /// Names. A run stores them, so that it does not depend on the file.
    Names(Vec<String>),
}

impl FromStr for TestList {
    type Err = Infallible;

    fn from_str(path: &str) -> Result<Self, Infallible> {
        Ok(Self::File(path.into()))
    }
}

/// Number of evaluated training views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainSample {
    /// This number of views, evenly spread.
    Views(u32),
    /// All views.
    All,
}

impl FromStr for TrainSample {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(count) => Ok(Self::Views(count)),
            Err(_) if text == "all" => Ok(Self::All),
            Err(_) => Err(format!("`{text}` is no number of views; write 5, or `all`")),
        }
    }
}

impl fmt::Display for TrainSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Views(count) => count.fmt(f),
            Self::All => f.write_str("all"),
        }
    }
}

impl Serialize for TrainSample {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Views(count) => serializer.serialize_u32(*count),
            Self::All => serializer.serialize_str("all"),
        }
    }
}

impl<'de> Deserialize<'de> for TrainSample {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum WrittenSample {
            Number(u32),
            Text(String),
        }
        match WrittenSample::deserialize(deserializer)? {
            WrittenSample::Number(count) => Ok(Self::Views(count)),
            WrittenSample::Text(text) => text.parse().map_err(de::Error::custom),
        }
    }
}

/// Removes options that hold out views if the options above choose another rule.
pub(super) fn give_way(below: &mut Table, above: &Table) {
    let chooses = |key: &&str| above.contains_key(*key);
    let holds_none_out = above.get("eval") == Some(&Value::Boolean(false));
    if holds_none_out || NAMED.iter().chain(&["test_every"]).any(chooses) {
        NAMED.iter().for_each(|key| drop(below.remove(*key)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_a_number_or_all() {
        for text in ["0", "5", "all"] {
            assert_eq!(text.parse::<TrainSample>().unwrap().to_string(), text);
        }
        for text in ["", "some", "-1", "2.5"] {
            assert!(text.parse::<TrainSample>().unwrap_err().to_string().contains("`all`"));
        }
    }

    #[test]
    fn a_choice_of_views_overrides_the_lower_layer() {
        let left = |above: &str| {
            let mut below: Table = toml::from_str("test_list = ['a']\neval = true").unwrap();
            give_way(&mut below, &toml::from_str(above).unwrap());
            below.contains_key("test_list")
        };
        assert!(left("eval = true") && left("resolution = 2"));
        assert!(!left("eval = false") && !left("test_views = 2") && !left("test_every = 4"));
    }
}
