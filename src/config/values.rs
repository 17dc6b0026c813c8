//! Allowed values of options from any source.

use std::ffi::OsStr;
use std::fmt::{self, Display};
use std::str::FromStr;

use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::strategy::Implied;
use super::{ConfigError, StrategyName};
use crate::memory::plan::Storage;

/// Value that an option does not accept.
pub(super) struct Refused {
    value: String,
    allowed: &'static str,
}

pub(super) type Checked = Result<(), Refused>;

impl Refused {
    /// Returns the error that names the option.
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

/// Applies a rule to a value.
pub(super) fn check<T>(value: &T, is: impl FnOnce(&T) -> Checked) -> Checked {
    is(value)
}

/// Applies a rule to a value, if there is one.
pub(super) fn check_given<T>(value: &Option<T>, is: impl FnOnce(&T) -> Checked) -> Checked {
    value.as_ref().map_or(Ok(()), is)
}

/// Returns an error for a value unless it is `good`.
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

/// Checks a length or a factor, which must be above 0.
pub(super) fn positive(value: &f64) -> Checked {
    holds(value.is_finite() && *value > 0.0, value, "a finite number above 0")
}

pub(super) fn path<T: AsRef<OsStr>>(value: &T) -> Checked {
    holds(!value.as_ref().is_empty(), "empty", "a path")
}

/// Checks a list of iterations. -1 is the customary way to write "never".
pub(super) fn iterations(values: &[i64]) -> Checked {
    match values.iter().find(|&&value| value != -1 && value < 1) {
        Some(value) => holds(false, value, "1 and more, or -1 for never"),
        None => Ok(()),
    }
}

/// True if a count fits TOML's signed integers.
pub(super) fn fits_toml(value: u64) -> bool {
    value <= i64::MAX.unsigned_abs()
}

/// Reads a count that fits TOML's signed integers.
pub(super) fn toml_count() -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(..=i64::MAX.unsigned_abs())
}

/// Returns the name of a value on the command line.
pub fn value_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

// Switches that take a value.

/// Parses a switch. Python's spelling is accepted (`--eval True`).
pub fn parse_switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err("write true or false".to_owned()),
    }
}

/// Axes of the normals of `--normals`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NormalsFrame {
    /// x right, y down, z along the view (OpenCV; Metric3D, Omnidata)
    #[default]
    Camera,
    /// x right, y up, z towards the camera (DN-Splatter writes DSINE so)
    Opengl,
    /// As camera, but pointing away from it (DSINE)
    Inverted,
    /// The axes of the scene
    World,
}

/// Part of the model in RAM instead of the GPU's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Offload {
    /// Nothing
    #[default]
    None,
    /// Colours and their moments, compact as with --optimize-memory
    Sh,
}

/// Gaussians on which the weights of opacity and scale act.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RegReach {
    /// All Gaussians, in each step
    #[default]
    All,
    /// Gaussians that the views of the step show
    Seen,
    /// Like all if much of the photographs is masked or background, otherwise like seen
    Auto,
}

/// Region of the Gaussians of a scene without points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InitRegion {
    /// The cube of --init-extent
    #[default]
    Cube,
    /// Points that the masks or alpha channels of the photographs show as opaque
    Silhouettes,
}

/// Schedule of the training views' size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResolutionSchedule {
    /// Always at full size
    #[default]
    None,
    /// At a quarter, then half of their sides; their pixels grow linearly
    Linear,
}

/// Background of the training views until density control ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrainingBackground {
    /// The background
    #[default]
    Same,
    /// Grey
    Grey,
    /// Grey, unless photographs show much of the background's colour
    Auto,
}

impl TrainingBackground {
    /// Grey background.
    pub const GREY: Color = Color([0.5; 3]);
}

// Colours and offsets: text like `0.5,0.5,0.5`, or an array in TOML.

/// Parses three numbers between commas if all are valid.
fn parse<T: FromStr>(
    text: &str,
    is_valid: fn(&T) -> bool,
    expected: &str,
) -> Result<[T; 3], String> {
    let number = |part: &str| part.trim().parse().ok().filter(is_valid);
    let parts: Option<Vec<T>> = text.split(',').map(number).collect();
    parts.and_then(|parts| parts.try_into().ok()).ok_or_else(|| format!("`{text}`: {expected}"))
}

/// Defines a type over three numbers with its text form.
macro_rules! triple {
    ($(#[$doc:meta])* $name:ident, $number:ty, $is_valid:expr, $expected:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct $name(pub [$number; 3]);

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
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
    /// Origin of training in scene coordinates: x, y and z, all finite.
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

// Time budgets.

/// Time above 0: `90`, `90s`, `1.5m`, `2h` or `1h30m`. A number alone means seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeBudget(f64);

/// Units and their seconds, the longest first.
const UNITS: [(char, f64); 3] = [('h', 3600.0), ('m', 60.0), ('s', 1.0)];

impl TimeBudget {
    /// Returns the budget of this many seconds, above 0.
    pub fn of_seconds(seconds: f64) -> Self {
        Self(seconds)
    }

    /// Returns the seconds.
    pub fn seconds(self) -> f64 {
        self.0
    }
}

impl FromStr for TimeBudget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let seconds = seconds(text.trim()).filter(|it| it.is_finite() && *it > 0.0);
        let wrong = || format!("`{text}` is no time: write one above 0 such as 60s, 2m or 1h30m");
        seconds.map(Self).ok_or_else(wrong)
    }
}

/// Sums the parts. `None` if a part is no number or has no unit of its own.
fn seconds(text: &str) -> Option<f64> {
    let (mut rest, mut sum) = (text, 0.0);
    for (unit, of_unit) in UNITS {
        if let Some((number, after)) = rest.split_once(unit) {
            sum += plain(number)? * of_unit;
            rest = after;
        }
    }
    match rest {
        "" if !text.is_empty() => Some(sum),
        number if number == text => plain(number),
        _ => None,
    }
}

/// Parses a number of digits and a point, without sign and exponent.
fn plain(text: &str) -> Option<f64> {
    let text = text.trim();
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    is_plain.then(|| text.parse().ok()).flatten()
}

impl Display for TimeBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = self.0;
        for (unit, of_unit) in UNITS {
            let whole = if unit == 's' { left } else { (left / of_unit).floor() };
            if whole > 0.0 {
                write!(f, "{whole}{unit}")?;
                left -= whole * of_unit;
            }
        }
        Ok(())
    }
}

impl Serialize for TimeBudget {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Time in a configuration file.
#[derive(Deserialize)]
#[serde(untagged)]
enum Given {
    Seconds(f64),
    Text(String),
}

impl<'de> Deserialize<'de> for TimeBudget {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match Given::deserialize(deserializer)? {
            Given::Seconds(seconds) => seconds.to_string(),
            Given::Text(text) => text,
        };
        text.parse().map_err(de::Error::custom)
    }
}

/// Compactness of the model's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "WrittenCompactness", try_from = "WrittenCompactness")]
pub enum Compactness {
    /// Full precision.
    #[default]
    Off,
    /// Compact colours.
    Sh,
    /// Compact colours and moments.
    All,
    /// Like `All` on a GPU and like `Off` on the CPU, where compact state costs time and resumed runs would end with
    /// other bytes.
    Auto,
}

/// Word for compact colours.
const SH: &str = "sh";

/// Word for the choice by device.
const AUTO: &str = "auto";

impl Compactness {
    /// Returns the storage of the model's state on the CPU.
    pub fn storage_on_cpu(self) -> Storage {
        match self {
            Self::Off | Self::Auto => Storage::Full,
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

impl Display for Compactness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "false",
            Self::Sh => SH,
            Self::All => "true",
            Self::Auto => AUTO,
        })
    }
}

/// Parses `true`, `false`, `auto` or `sh`.
pub(super) fn parse_compactness(text: &str) -> Result<Compactness, String> {
    match text.to_ascii_lowercase().as_str() {
        SH => Ok(Compactness::Sh),
        AUTO => Ok(Compactness::Auto),
        switch => match parse_switch(switch) {
            Ok(is_on) => Ok(is_on.into()),
            Err(_) => Err("write true, false, auto or sh".to_owned()),
        },
    }
}

/// Compactness in a configuration file: a switch or a word.
#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "true, false, \"auto\" or \"sh\"")]
enum WrittenCompactness {
    Switch(bool),
    Word(String),
}

impl From<Compactness> for WrittenCompactness {
    fn from(found: Compactness) -> Self {
        match found {
            Compactness::Off => Self::Switch(false),
            Compactness::All => Self::Switch(true),
            Compactness::Sh | Compactness::Auto => Self::Word(found.to_string()),
        }
    }
}

impl TryFrom<WrittenCompactness> for Compactness {
    type Error = String;

    fn try_from(written: WrittenCompactness) -> Result<Self, String> {
        match written {
            WrittenCompactness::Switch(is_on) => Ok(is_on.into()),
            WrittenCompactness::Word(word) if word == SH => Ok(Self::Sh),
            WrittenCompactness::Word(word) if word == AUTO => Ok(Self::Auto),
            WrittenCompactness::Word(word) => {
                Err(format!("`{word}`: write true, false, \"auto\" or \"sh\""))
            }
        }
    }
}

/// Primitive of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PrimitiveName {
    /// 3D Gaussians, as 3DGS
    #[default]
    Gaussians,
    /// Flat Gaussians that rays meet: discs, as 2DGS
    Surfels,
    /// Triangles between shared vertices, opaque at the end, as MeshSplatting
    Triangles,
}

impl PrimitiveName {
    /// Returns the options that the primitive implies unless a layer overrides them.
    pub(super) fn implied(self, strategy: StrategyName) -> Option<Implied> {
        match self {
            // The authors' `opacity_cull`, for their density control (Huang et al. 2024). With other strategies
            // opacities may stay lower for longer.
            Self::Surfels if strategy.grows_by_gradient() => Some(Implied {
                origin: "primitive surfels",
                text: "[densify]\nmin_opacity = 0.05\n",
            }),
            // The authors' values (Held et al. 2025), except for the exponent of the size, small views at first, and
            // the rate of opacities, which stays 0.05 as theirs does in rooms.
            Self::Triangles => Some(Implied {
                origin: "primitive triangles",
                text: "[optimize]\nposition_lr_init = 1.5e-3\nposition_lr_final = 1.5e-5\n\
                       position_lr_by_size = 0.5\nresolution_schedule = \"linear\"\n\
                       feature_lr = 1.6e-3\ninit_opacity = 0.28\n\
                       depth_l1_weight_init = 0.01\ndepth_l1_weight_final = 0.001\n\
                       [densify]\ndensification_interval = 500\ndensify_until_iter = 10000\n",
            }),
            Self::Gaussians | Self::Surfels => None,
        }
    }

    /// Returns the additional options of triangles in rooms: the authors' values for `--indoor`,
    /// but depth maps still count.
    pub(super) fn implied_indoors(self, is_indoors: bool) -> Option<Implied> {
        (self == Self::Triangles && is_indoors).then_some(Implied {
            origin: "indoor",
            text: "[optimize]\nfeature_lr = 4e-3\n\
                   [densify]\ndensify_from_iter = 1000\n\
                   [triangles]\nadd_percentage = 1.27\nsize_probs_zero = 0.0\n\
                   split_large_triangles = 500\nstart_pruning = 3000\n\
                   lambda_weight = 0.0\nprune_size = 1300.0\n",
        })
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

    #[test]
    fn times_are_numbers_with_units_from_hours_down() {
        for (text, expected) in [
            ("90", 90.0),
            ("90s", 90.0),
            ("1.5m", 90.0),
            ("2h", 7200.0),
            ("1h30m", 5400.0),
            ("1h 30m 5.5s", 5405.5),
            (" 0.25s ", 0.25),
        ] {
            let time: TimeBudget = text.parse().unwrap();
            assert_eq!(time.seconds(), expected, "{text}");
            assert_eq!(time.to_string().parse::<TimeBudget>().unwrap(), time);
        }
        let shown = |text: &str| text.parse::<TimeBudget>().unwrap().to_string();
        assert_eq!(
            ["90", "2h", "5405.5", "0.25"].map(shown),
            ["1m30s", "2h", "1h30m5.5s", "0.25s"]
        );
    }

    #[test]
    fn only_times_above_0_are_accepted() {
        for text in
            ["", "s", "0", "0s", "-5s", "5x", "5s3m", "1h30", "1e3s", "inf", "nan", "5s5s", "1..5"]
        {
            assert!(text.parse::<TimeBudget>().is_err(), "{text}");
        }
    }
}
