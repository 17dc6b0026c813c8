//! What values an option takes, wherever they come from.

use std::ffi::OsStr;
use std::fmt::Display;

use clap::builder::RangedU64ValueParser;
use splat_formats::SpzAxes;

use super::ConfigError;

/// A value that an option does not take.
pub(super) struct Refused {
    value: String,
    allowed: &'static str,
}

/// Whether an option takes a value.
pub(super) type Checked = Result<(), Refused>;

impl Refused {
    /// The error that names the option.
    pub(super) fn of(self, section: &'static str, key: &'static str) -> ConfigError {
        ConfigError::OutOfRange {
            flag: format!("--{}", key.replace('_', "-")),
            key,
            section,
            value: self.value,
            allowed: self.allowed,
        }
    }
}

/// Asks a rule about a value.
pub(super) fn check<T>(value: &T, is: impl FnOnce(&T) -> Checked) -> Checked {
    is(value)
}

/// Refuses a value that is not good.
pub(super) fn holds(good: bool, value: impl Display, allowed: &'static str) -> Checked {
    if good { Ok(()) } else { Err(Refused { value: value.to_string(), allowed }) }
}

pub(super) fn count(value: &u32) -> Checked {
    holds(*value >= 1, value, "1 and more")
}

pub(super) fn rate(value: &f64) -> Checked {
    holds(value.is_finite() && *value >= 0.0, value, "a finite number, 0 and more")
}

pub(super) fn share(value: &f64) -> Checked {
    holds((0.0..=1.0).contains(value), value, "0 to 1")
}

/// A length or a factor: there is none of 0.
pub(super) fn positive(value: &f64) -> Checked {
    holds(value.is_finite() && *value > 0.0, value, "a finite number above 0")
}

/// Axes of an SPZ.
pub(super) fn spz_axes(value: &Option<String>) -> Checked {
    let Some(name) = value else { return Ok(()) };
    let is_known = SpzAxes::of_name(name).is_some();
    holds(is_known, name, "three letters such as rub or rdf")
}

pub(super) fn path<T: AsRef<OsStr>>(value: &Option<T>) -> Checked {
    let is_empty = value.as_ref().is_some_and(|path| path.as_ref().is_empty());
    holds(!is_empty, "empty", "a path")
}

/// A list of iterations; -1 is the customary way to write "never".
pub(super) fn iterations(values: &[i64]) -> Checked {
    match values.iter().find(|&&value| value != -1 && value < 1) {
        Some(value) => holds(false, value, "1 and more, or -1 for never"),
        None => Ok(()),
    }
}

/// Whether a count fits TOML's signed integers.
pub(super) fn fits_toml(value: u64) -> bool {
    value <= i64::MAX.unsigned_abs()
}

/// Reads a count that fits TOML's signed integers.
pub(super) fn toml_count() -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(..=i64::MAX.unsigned_abs())
}
