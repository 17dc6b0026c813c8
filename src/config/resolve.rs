//! Resolution of options from several sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;

use clap::ArgMatches;
use clap::parser::ValueSource;
use toml::Table;
use toml::de::DeTable;

use super::error::most_like;
use super::presets::REFERENCE;
use super::run_options::LOW_DRAM;
use super::schema::{Section, sections};
use super::splits::{NAMED, give_way};
use super::strategy::Implied;
use super::stretch::{
    LENGTH, follow_clock, follows_iterations, free_passes, has_clock, stretched, triangles_for,
};
use super::sugar::{Regularize, SugarSchedule};
use super::values::holds;
use super::{
    Config, ConfigError, DensifyOptions, OptimizeOptions, PrimitiveName, SceneOptions,
    SugarOptions, preset_text,
};

/// TOML text and its source.
#[derive(Clone, Copy, Debug)]
pub struct ConfigLayer<'a> {
    /// Name in messages, usually a path.
    pub origin: &'a str,
    /// TOML text.
    pub text: &'a str,
}

/// Options of the command line.
#[derive(Clone, Copy, Debug)]
pub struct Typed<'a> {
    /// Values of the flags, including defaults.
    pub flags: &'a Config,
    /// Matches that tell which flags were typed.
    pub matches: &'a ArgMatches,
}

/// Sources of options. Each overrides those above it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Layers<'a> {
    /// Configuration of an earlier run: a checkpoint's, or `config.toml` of a model folder.
    pub base: Option<ConfigLayer<'a>>,
    /// True for a new run. `base` then has lower priority than the preset `fast`, except for its length and its
    /// opacity weight, unless a layer above chooses another kind of growth.
    pub is_new: bool,
    /// True if the run trains on the processor, which has other defaults.
    pub on_processor: bool,
    /// Name of a preset.
    pub preset: Option<&'a str>,
    /// Configuration file.
    pub file: Option<&'a Path>,
    /// Command line.
    pub typed: Option<Typed<'a>>,
}

/// Default preset of a new run.
const USUAL_PRESET: &str = "fast";

/// Options that choose a kind of growth, for which [`Config::default`] replaces the usual preset. The last value of
/// each chooses nothing.
const GROWTH_OPTIONS: [(&str, &str, Option<&str>); 4] = [
    (DensifyOptions::NAME, STRATEGY, Some("budget")),
    (OptimizeOptions::NAME, "primitive", Some("gaussians")),
    (SugarOptions::NAME, "regularize", Some("none")),
    (SugarOptions::NAME, "checkpoint_path", None),
];

const STRATEGY: &str = "strategy";

/// Options of `adc` and `gof` only. Without a strategy they choose a kind of growth too, except for
/// switches that are off.
const GRADIENT_OPTIONS: [&str; 4] =
    ["absgrad", "densify_grad_threshold", "near_fade", "prune_scale"];

/// Merges all layers to a valid configuration.
///
/// Unless a layer overrides them, `mcmc` implies the values of its preset, `gof` its threshold and fade, and
/// `absgrad` its threshold. Surfels imply their minimum opacity, triangles their rates, weights and schedules by the
/// length of the run, with other values for rooms (`--indoor`).
pub fn resolve(layers: Layers<'_>) -> Result<Config, ConfigError> {
    let given = layers.table()?;
    let defaults = Config::default().to_table()?;
    let decided = merged(defaults.clone(), given.clone())?;
    let mut table = defaults;
    let DensifyOptions { strategy, absgrad, .. } = decided.densify;
    let primitive = decided.optimize.primitive;
    let given_on_processor = layers.on_processor.then_some(Implied {
        origin: "the processor",
        text: "[sugar]\nn_samples_for_sdf = 10000\n",
    });
    let implied = [
        given_on_processor,
        primitive.implied(strategy),
        primitive.implied_indoors(decided.triangles.indoor),
        strategy.implied(absgrad)?,
    ];
    for Implied { origin, text } in implied.into_iter().flatten() {
        overlay(&mut table, read_strictly(origin, text)?);
    }
    if primitive == PrimitiveName::Triangles {
        triangles_for(&mut table, decided.optimize.iterations);
    }
    let mut config = merged(table, given)?;
    config.scene.eval |= config.scene.chooses_views();
    config.validate()?;
    Ok(config)
}

/// Merges two tables. The upper one wins.
fn merged(mut lower: Table, upper: Table) -> Result<Config, ConfigError> {
    overlay(&mut lower, upper);
    lower.try_into().map_err(|source: toml::de::Error| {
        // Each layer was read as a `Config` before, so this is an error of this module.
        ConfigError::Syntax { origin: "all options together".to_owned(), source: Box::new(source) }
    })
}

impl Layers<'_> {
    /// Merges all given options.
    fn table(self) -> Result<Table, ConfigError> {
        let base = self.base_table()?.unwrap_or_default();
        let above = self.above_the_base()?;
        let mut table = base.clone();
        if !self.is_new {
            free_passes(&mut table, &above);
        }
        if let Some(name) = self.usual_above(&above) {
            let layers: Vec<Table> = std::iter::once(base).chain(above.iter().cloned()).collect();
            let mut usual = stretched(name, read_preset(name)?, &layers);
            if layers.iter().any(has_clock) {
                follow_clock(name, &mut usual);
            }
            keep_base_values(&mut usual, &table);
            overlay(&mut table, usual);
        }
        for layer in above {
            overlay(&mut table, layer);
        }
        Ok(table)
    }

    /// Returns the preset that a new run uses by default, unless a layer chooses a kind of growth.
    pub fn usual_preset(self) -> Result<Option<&'static str>, ConfigError> {
        Ok(self.usual_above(&self.above_the_base()?))
    }

    fn usual_above(self, above: &[Table]) -> Option<&'static str> {
        let is_named =
            self.preset.is_some_and(|name| name == REFERENCE || follows_iterations(name));
        (self.is_new && !is_named && !chooses_growth(above)).then_some(USUAL_PRESET)
    }

    /// Returns the options of an earlier run.
    fn base_table(self) -> Result<Option<Table>, ConfigError> {
        self.base.map(|ConfigLayer { origin, text }| read_strictly(origin, text)).transpose()
    }

    /// Returns the layers that override an earlier run.
    fn above_the_base(self) -> Result<Vec<Table>, ConfigError> {
        let mut layers = Vec::new();
        if let Some(path) = self.file {
            layers.push(read_file(path)?);
        }
        if let Some(typed) = self.typed {
            let typed = typed.table()?;
            check_contradiction(&typed)?;
            layers.push(typed);
        }
        if let Some(name) = self.preset.filter(|&name| name != REFERENCE) {
            let mut preset = stretched(name, read_preset(name)?, &layers);
            // The clock of an earlier run continues.
            if layers.iter().chain(&self.base_table()?).any(has_clock) {
                follow_clock(name, &mut preset);
            }
            layers.insert(0, preset);
        }
        Ok(layers)
    }
}

impl Config {
    /// Returns the TOML text of the configuration, which [`Config::from_toml`] reads.
    pub fn to_toml(&self) -> Result<String, ConfigError> {
        toml::to_string(self).map_err(|source| ConfigError::Unwritable(Box::new(source)))
    }

    /// Reads a configuration file. Missing options take their defaults.
    pub fn from_toml(origin: &str, text: &str) -> Result<Self, ConfigError> {
        resolve(Layers { base: Some(ConfigLayer { origin, text }), ..Layers::default() })
    }

    /// Returns the sections as tables.
    pub(super) fn to_table(&self) -> Result<Table, ConfigError> {
        Table::try_from(self).map_err(|source| ConfigError::Unwritable(Box::new(source)))
    }
}

impl Typed<'_> {
    /// Returns only the typed options.
    fn table(self) -> Result<Table, ConfigError> {
        let mut table = self.flags.to_table()?;
        for (_, section) in &mut table {
            if let Some(section) = section.as_table_mut() {
                section.retain(|key, _| is_typed(self.matches, key));
            }
        }
        let low_dram = self.matches.try_get_one::<bool>(LOW_DRAM).ok().flatten();
        if let Some(low_dram) = low_dram.filter(|_| is_typed(self.matches, LOW_DRAM)) {
            let memory = table.entry("memory").or_insert_with(|| Table::new().into());
            if let Some(memory) = memory.as_table_mut() {
                memory.insert("high_dram".to_owned(), (!low_dram).into());
            }
        }
        Ok(table)
    }
}

/// True if a flag was typed. Commands may lack sections, and thereby the flag.
pub fn is_typed(matches: &ArgMatches, id: &str) -> bool {
    matches!(matches.try_contains_id(id), Ok(true))
        && matches.value_source(id) == Some(ValueSource::CommandLine)
}

/// Returns the names of the options in a configuration file.
pub fn keys_of_file(path: &Path) -> Result<BTreeSet<String>, ConfigError> {
    let sections = read_file(path)?;
    let sections = sections.into_iter().filter_map(|(_, section)| match section {
        toml::Value::Table(section) => Some(section),
        _ => None,
    });
    Ok(sections.flatten().map(|(key, _)| key).collect())
}

fn read_file(path: &Path) -> Result<Table, ConfigError> {
    let text = fs::read_to_string(path)
        .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    read_strictly(&path.display().to_string(), &text)
}

/// Rejects a command line that both holds views out and turns `--eval` off. A file may state `eval` at its default.
fn check_contradiction(typed: &Table) -> Result<(), ConfigError> {
    let says = |key: &str| typed.get(SceneOptions::NAME).and_then(|scene| scene.get(key));
    let holds_some_out = NAMED.iter().any(|key| says(key).is_some());
    let holds_none_out = says("eval").and_then(toml::Value::as_bool) == Some(false);
    let allowed =
        "true with --test-views or --test-list, which hold views out (or leave those out)";
    holds(!(holds_none_out && holds_some_out), false, allowed)
        .map_err(|refused| refused.of(SceneOptions::NAME, "eval"))
}

/// Replaces the keys of `table` that `upper` has.
fn overlay(table: &mut Table, upper: Table) {
    for (name, section) in upper {
        match (table.get_mut(&name).and_then(toml::Value::as_table_mut), section) {
            (Some(below), toml::Value::Table(above)) => {
                if name == SceneOptions::NAME {
                    give_way(below, &above);
                }
                below.extend(above);
            }
            (_, section) => {
                table.insert(name, section);
            }
        }
    }
}

/// True if the layers choose a kind of growth.
fn chooses_growth(layers: &[Table]) -> bool {
    let given = |section: &str, key: &str| {
        layers.iter().rev().find_map(|layer| layer.get(section)?.get(key))
    };
    let chooses = |(section, key, usual): &(&str, &str, Option<&str>)| {
        given(section, key).is_some_and(|value| usual.is_none() || value.as_str() != *usual)
    };
    let of_densify = |key: &str| given(DensifyOptions::NAME, key);
    let is_on = |value: &toml::Value| value.as_bool() != Some(false);
    GROWTH_OPTIONS.iter().any(chooses)
        || (of_densify(STRATEGY).is_none()
            && GRADIENT_OPTIONS.into_iter().filter_map(of_densify).any(is_on))
}

/// Keeps the length of the run and the opacity weight of the layer beneath, if it has them.
fn keep_base_values(preset: &mut Table, beneath: &Table) {
    let given = beneath.get(OptimizeOptions::NAME).and_then(toml::Value::as_table);
    let section = preset.get_mut(OptimizeOptions::NAME).and_then(toml::Value::as_table_mut);
    let (Some(given), Some(section)) = (given, section) else { return };
    for key in [LENGTH, "opacity_reg"] {
        if let Some(value) = given.get(key) {
            section.insert(key.to_owned(), value.clone());
        }
    }
}

fn read_preset(name: &str) -> Result<Table, ConfigError> {
    read_strictly(&format!("preset {name}"), preset_text(name)?)
}

/// Reads a layer. Unknown keys and values of another type are errors.
fn read_strictly(origin: &str, text: &str) -> Result<Table, ConfigError> {
    let syntax =
        |source| ConfigError::Syntax { origin: origin.to_owned(), source: Box::new(source) };
    let spans = DeTable::parse(text).map_err(syntax)?;
    check_known_keys(origin, text, spans.get_ref())?;
    match toml::from_str::<Config>(text) {
        Ok(_) => toml::from_str(text).map_err(syntax),
        Err(source) => Err(wrong_type(origin, text, spans.get_ref(), source)),
    }
}

/// Returns an error if the file has an unknown section or key.
fn check_known_keys(origin: &str, text: &str, table: &DeTable<'_>) -> Result<(), ConfigError> {
    let sections = sections();
    let unknown = |span: Range<usize>, name: String, remedy: String| ConfigError::Unknown {
        origin: origin.to_owned(),
        line: line_of(text, span.start),
        name,
        remedy,
    };
    for (name, value) in table.iter() {
        let found = name.get_ref().as_ref();
        let Some(section) = sections.iter().find(|section| section.name == found) else {
            let what =
                if value.get_ref().is_table() { "section" } else { "key outside of sections" };
            let remedy =
                place_of(&sections, found).unwrap_or_else(|| all_sections(&sections, found));
            return Err(unknown(name.span(), format!("{what} `{found}`"), remedy));
        };
        let Some(keys) = value.get_ref().as_table() else { continue };
        if let Some(key) = keys.keys().find(|key| !section.has(key.get_ref())) {
            let found = key.get_ref().as_ref();
            let remedy = place_of(&sections, found).unwrap_or_else(|| nearest(section, found));
            return Err(unknown(
                key.span(),
                format!("key `{found}` in [{}]", section.name),
                remedy,
            ));
        }
    }
    Ok(())
}

/// Returns advice for a key in the wrong section.
fn place_of(sections: &[Section], key: &str) -> Option<String> {
    let spelled = key.replace('-', "_");
    if spelled == LOW_DRAM {
        return Some("write `high_dram = false` in [memory]".to_owned());
    }
    let section = sections.iter().find(|section| section.has(&spelled))?;
    Some(format!("write `{spelled}` in section [{}]", section.name))
}

/// Suggests the most similar key of a section. Models of other program versions may have other keys.
fn nearest(section: &Section, key: &str) -> String {
    match most_like(section.flags.iter().map(|flag| flag.get_id().as_str()), key) {
        Some(best) => format!("do you mean `{best}`? All keys: splat train --help"),
        None => {
            "remove it, or use the version of splat that wrote it. All keys: splat train --help"
                .to_owned()
        }
    }
}

fn all_sections(sections: &[Section], found: &str) -> String {
    let like = most_like(sections.iter().map(|section| section.name), found);
    let meant = like.map_or_else(String::new, |like| format!("do you mean [{like}]? "));
    let names: Vec<_> = sections.iter().map(|section| format!("[{}]", section.name)).collect();
    format!("{meant}the sections are {}", names.join(" "))
}

/// Returns an error that names the key at the error's position.
fn wrong_type(
    origin: &str,
    text: &str,
    table: &DeTable<'_>,
    source: toml::de::Error,
) -> ConfigError {
    let at = source.span().map_or(0, |span| span.start);
    for (section, value) in table.iter() {
        for (key, value) in value.get_ref().as_table().into_iter().flatten() {
            if value.span().contains(&at) || key.span().contains(&at) {
                return ConfigError::WrongType {
                    origin: origin.to_owned(),
                    line: line_of(text, at),
                    section: section.get_ref().to_string(),
                    key: key.get_ref().to_string(),
                    message: in_plain_words(source.message()),
                };
            }
        }
    }
    ConfigError::Syntax { origin: origin.to_owned(), source: Box::new(source) }
}

/// Replaces Rust types in a parser error.
fn in_plain_words(message: &str) -> String {
    let Some((found, kind)) = message.rsplit_once("expected ") else { return message.to_owned() };
    let kind = match kind {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number of 0 or more",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        other => other,
    };
    format!("{found}expected {kind}")
}

/// Returns the line of a position in a text, from 1.
fn line_of(text: &str, position: usize) -> usize {
    1 + text.bytes().take(position).filter(|&byte| byte == b'\n').count()
}

// Ends of the stages of a run.

/// Last iteration of the coarse stage with the reference's schedule.
const ABSOLUTE_LAST: u32 = 15_000;

impl Config {
    /// True if SuGaR's coarse stage follows the photometric stage.
    pub fn has_coarse_stage(&self) -> bool {
        self.sugar.regularize != Regularize::None
    }

    /// Returns the last iteration of the run, including the coarse stage.
    pub fn last_iteration(&self) -> u32 {
        let photometric = self.optimize.iterations;
        if !self.has_coarse_stage() {
            return photometric;
        }
        match self.sugar.sugar_schedule {
            SugarSchedule::Relative => photometric.saturating_add(self.sugar.sugar_iterations),
            SugarSchedule::Absolute => ABSOLUTE_LAST,
        }
    }
}

impl Config {
    /// Returns the options that differ from their defaults, by `section.key`.
    pub fn changed(&self) -> Result<BTreeMap<String, toml::Value>, ConfigError> {
        let defaults = Self::default().by_key()?;
        let mut changed = self.by_key()?;
        changed.retain(|key, value| defaults.get(key) != Some(value));
        Ok(changed)
    }

    /// Returns all options that have a value, by `section.key`.
    pub fn by_key(&self) -> Result<BTreeMap<String, toml::Value>, ConfigError> {
        let mut found = BTreeMap::new();
        for (section, options) in self.to_table()? {
            let toml::Value::Table(options) = options else { continue };
            found.extend(
                options.into_iter().map(|(key, value)| (format!("{section}.{key}"), value)),
            );
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_options_are_listed() {
        assert!(Config::default().changed().unwrap().is_empty());
        let mut config = Config::default();
        config.optimize.iterations = 7000;
        config.scene.source_path = Some("garden".into());
        let changed: Vec<_> = config.changed().unwrap().into_iter().collect();
        let expected = [
            ("optimize.iterations".to_owned(), toml::Value::Integer(7000)),
            ("scene.source_path".to_owned(), toml::Value::String("garden".to_owned())),
        ];
        assert_eq!(changed, expected);
    }
}
