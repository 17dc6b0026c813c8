//! What can be wrong with a configuration; every message names the place, the value and the remedy.

use std::io;
use std::path::PathBuf;

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file does not open or is not text.
    #[error("{path}: cannot be read: {source}. Check the path and its permissions")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// No preset of that name is built in.
    #[error("there is no preset `{name}`{}. Give one of: {known}; or auto for this machine's GPU", meant(.like))]
    UnknownPreset {
        /// What was asked for.
        name: String,
        /// The name that is spelled most like it.
        like: Option<&'static str>,
        /// All names, with commas.
        known: String,
    },
    /// The text is not TOML.
    #[error("{origin}: not valid TOML: {source}")]
    Syntax {
        /// The file or preset.
        origin: String,
        /// Where, and what was expected.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// A name in the file that no option has.
    #[error("{origin}, line {line}: unknown {name}; {remedy}")]
    Unknown {
        /// The file or preset.
        origin: String,
        /// Line in it, from 1.
        line: usize,
        /// What was found, `key `x` in [y]` or `section [x]`.
        name: String,
        /// Where it belongs, or what exists.
        remedy: String,
    },
    /// A value of another type than the option's.
    #[error("{origin}, line {line}: `{key}` in [{section}] cannot be read: {message}")]
    WrongType {
        /// The file or preset.
        origin: String,
        /// Line in it, from 1.
        line: usize,
        /// Section of the option.
        section: String,
        /// The option.
        key: String,
        /// What was found and what was expected.
        message: String,
    },
    /// A value outside of what the option allows.
    #[error("{flag} (`{key}` in [{section}]) is {value}; allowed: {allowed}")]
    OutOfRange {
        /// The option on the command line.
        flag: String,
        /// The option in a file.
        key: &'static str,
        /// Its section there.
        section: &'static str,
        /// What was given.
        value: String,
        /// What may be given.
        allowed: &'static str,
    },
    /// A value that TOML has no way to write, such as a path that is not UTF-8.
    #[error(
        "the configuration cannot be written as TOML: {0}. Use paths in UTF-8 and numbers below 2^63"
    )]
    Unwritable(#[source] Box<toml::ser::Error>),
}

/// Asks for the name that may be meant.
fn meant(like: &Option<&str>) -> String {
    like.map_or_else(String::new, |like| format!(" (do you mean {like}?)"))
}

/// The name that is spelled most like a word, if one is like it.
pub(super) fn most_like<'a>(names: impl Iterator<Item = &'a str>, word: &str) -> Option<&'a str> {
    let word = word.to_lowercase();
    let likeness = |name: &&str| strsim::jaro_winkler(name, &word);
    let best = names.max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    best.filter(|best| likeness(best) > LIKE)
}

/// Jaro-Winkler similarity from which a name is taken for a misspelt one; clap takes about the same.
const LIKE: f64 = 0.8;
