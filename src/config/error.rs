//! Errors of configurations. Each message names the place, the value and the remedy.

use std::io;
use std::path::PathBuf;

/// Error of a configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be opened or is not text.
    #[error("{path}: cannot be read: {source}. Check the path and its permissions")]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// No preset has this name.
    #[error("there is no preset `{name}`{}. Give one of: {known}; or auto for this machine's GPU", meant(.like))]
    UnknownPreset {
        /// Requested name.
        name: String,
        /// Most similar name.
        like: Option<&'static str>,
        /// All names, separated by commas.
        known: String,
    },
    /// The text is not TOML.
    #[error("{origin}: not valid TOML: {source}")]
    Syntax {
        /// File or preset.
        origin: String,
        /// Position and expectation.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// No option has a name of the file.
    #[error("{origin}, line {line}: unknown {name}; {remedy}")]
    Unknown {
        /// File or preset.
        origin: String,
        /// Line, from 1.
        line: usize,
        /// Unknown section or key, with its kind.
        name: String,
        /// Right section, or similar names.
        remedy: String,
    },
    /// A value has another type than the option.
    #[error("{origin}, line {line}: `{key}` in [{section}] cannot be read: {message}")]
    WrongType {
        /// File or preset.
        origin: String,
        /// Line, from 1.
        line: usize,
        /// Section of the option.
        section: String,
        /// Key of the option.
        key: String,
        /// Found and expected type.
        message: String,
    },
    /// A value is out of range.
    #[error("{flag} (`{key}` in [{section}]) is {value}; allowed: {allowed}")]
    OutOfRange {
        /// Flag on the command line.
        flag: String,
        /// Key in a file.
        key: &'static str,
        /// Section in a file.
        section: &'static str,
        /// Given value.
        value: String,
        /// Allowed values.
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
