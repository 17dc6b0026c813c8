//! Errors of configurations. Each message names the place, the value and the remedy.

use std::io;
use std::path::PathBuf;

/// Error of a configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages explain variants and fields")]
pub enum ConfigError {
    #[error("{path}: cannot be read: {source}. Check the path and its permissions")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("there is no preset `{name}`{}. Give one of: {known}; or auto for this machine's GPU", meant(.like))]
    UnknownPreset { name: String, like: Option<&'static str>, known: String },
    #[error("{origin}: not valid TOML: {source}")]
    Syntax { origin: String, source: Box<toml::de::Error> },
    #[error("{origin}, line {line}: unknown {name}; {remedy}")]
    Unknown { origin: String, line: usize, name: String, remedy: String },
    #[error("{origin}, line {line}: `{key}` in [{section}] cannot be read: {message}")]
    WrongType { origin: String, line: usize, section: String, key: String, message: String },
    #[error("{flag} (`{key}` in [{section}]) is {value}; allowed: {allowed}")]
    OutOfRange {
        flag: String,
        key: &'static str,
        section: &'static str,
        value: String,
        allowed: &'static str,
    },
    /// TOML cannot express a value, such as a path that is not UTF-8.
    #[error(
        "the configuration cannot be written as TOML: {0}. Use paths in UTF-8 and numbers below 2^63"
    )]
    Unwritable(#[source] Box<toml::ser::Error>),
}

/// Formats the suggestion of a similar name.
fn meant(like: &Option<&str>) -> String {
    like.map_or_else(String::new, |like| format!(" (do you mean {like}?)"))
}

/// Returns the name that is most similar to a word, if any is similar enough.
pub(super) fn most_like<'a>(names: impl Iterator<Item = &'a str>, word: &str) -> Option<&'a str> {
    let word = word.to_lowercase();
    let likeness = |name: &&str| strsim::jaro_winkler(name, &word);
    let best = names.max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    best.filter(|best| likeness(best) > MIN_SIMILARITY)
}

/// Smallest Jaro-Winkler similarity of a suggestion, about the same as clap's.
const MIN_SIMILARITY: f64 = 0.8;
