//! Which of several places an option's value comes from.

use std::fs;
use std::ops::Range;
use std::path::Path;

use clap::ArgMatches;
use clap::parser::ValueSource;
use toml::Table;
use toml::de::DeTable;

use super::implied::Implied;
use super::run_options::LOW_DRAM;
use super::schema::{Section, sections};
use super::splits::{NAMED, give_way};
use super::stretch::{stretched, triangles_for};
use super::values::holds;
use super::{
    Config, ConfigError, DensifyOptions, OptimizeOptions, PrimitiveName, SceneOptions, preset_text,
};

/// TOML text and where it is from.
#[derive(Clone, Copy, Debug)]
pub struct ConfigLayer<'a> {
    /// Name in messages: a path, as a rule.
    pub origin: &'a str,
    /// The text.
    pub text: &'a str,
}

/// Options as the command line gave them.
#[derive(Clone, Copy, Debug)]
pub struct Typed<'a> {
    /// The flags' values, defaults included.
    pub flags: &'a Config,
    /// Which of them were typed.
    pub matches: &'a ArgMatches,
}

/// Places that options come from; each wins over those above it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Layers<'a> {
    /// The configuration of an earlier run: a checkpoint's, or `config.toml` of a model folder.
    pub base: Option<ConfigLayer<'a>>,
    /// Whether that is no earlier run's, so that a time budget may bring a preset.
    pub is_new: bool,
    /// Name of a preset.
    pub preset: Option<&'a str>,
    /// A configuration file.
    pub file: Option<&'a Path>,
    /// The command line.
    pub typed: Option<Typed<'a>>,
}

/// The preset that a time budget brings.
const PRESET_OF_BUDGETS: &str = "fast";

/// The configuration that all layers give together, proven to be in range.
///
/// The strategy `mcmc` brings the values of its preset, `gof` its threshold and fade, and `absgrad` its
/// threshold, where no layer says otherwise. Surfels bring the opacity below which they go, triangles rates,
/// weights and schedules that follow the length of the run, and other ones in rooms (`--indoor`).
pub fn resolve(layers: Layers<'_>) -> Result<Config, ConfigError> {
    let given = layers.table()?;
    let defaults = Config::default().to_table()?;
    let decided = together(defaults.clone(), given.clone())?;
    let mut table = defaults;
    let DensifyOptions { strategy, absgrad, .. } = decided.densify;
    let primitive = decided.optimize.primitive;
    let implied = [
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
    let mut config = together(table, given)?;
    config.scene.eval |= config.scene.chooses_views();
    config.validate()?;
    Ok(config)
}

/// What stands in the upper table, and in the lower where the upper says nothing.
fn together(mut lower: Table, upper: Table) -> Result<Config, ConfigError> {
    overlay(&mut lower, upper);
    lower.try_into().map_err(|source: toml::de::Error| {
        // Each layer was read as a `Config` before, so only an error of this module ends here.
        ConfigError::Syntax { origin: "all options together".to_owned(), source: Box::new(source) }
    })
}

impl Layers<'_> {
    /// What is given anywhere.
    fn table(self) -> Result<Table, ConfigError> {
        let mut table = Table::new();
        if let Some(ConfigLayer { origin, text }) = self.base {
            overlay(&mut table, read_strictly(origin, text)?);
        }
        let above = self.above_the_preset()?;
        if let Some(name) = self.preset.or_else(|| self.implied_preset(&above)) {
            let preset = read_strictly(&format!("preset {name}"), preset_text(name)?)?;
            overlay(&mut table, stretched(name, preset, &above));
        }
        for layer in above {
            overlay(&mut table, layer);
        }
        Ok(table)
    }

    /// The preset of a new run with a time budget, where nothing else says how it grows.
    fn implied_preset(&self, above: &[Table]) -> Option<&'static str> {
        let says = |section: &str, key: &str| {
            let given =
                |layer: &Table| layer.get(section).is_some_and(|table| table.get(key).is_some());
            above.iter().any(given)
        };
        let is_open = (self.base.is_none() || self.is_new)
            && !says(DensifyOptions::NAME, "strategy")
            && !says(OptimizeOptions::NAME, "primitive");
        (is_open && says(OptimizeOptions::NAME, "time_budget")).then_some(PRESET_OF_BUDGETS)
    }

    /// What wins over the preset.
    fn above_the_preset(&self) -> Result<Vec<Table>, ConfigError> {
        let mut layers = Vec::new();
        if let Some(path) = self.file {
            let text = fs::read_to_string(path)
                .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
            layers.push(read_strictly(&path.display().to_string(), &text)?);
        }
        if let Some(typed) = self.typed {
            let typed = typed.table()?;
            refuse_contradiction(&typed)?;
            layers.push(typed);
        }
        Ok(layers)
    }
}

impl Config {
    /// The configuration as a file of a model folder holds it; [`Config::from_toml`] reads it.
    pub fn to_toml(&self) -> Result<String, ConfigError> {
        toml::to_string(self).map_err(|source| ConfigError::Unwritable(Box::new(source)))
    }

    /// Reads a configuration file; what it does not name takes its default.
    pub fn from_toml(origin: &str, text: &str) -> Result<Self, ConfigError> {
        resolve(Layers { base: Some(ConfigLayer { origin, text }), ..Layers::default() })
    }

    /// The sections as tables.
    pub(super) fn to_table(&self) -> Result<Table, ConfigError> {
        Table::try_from(self).map_err(|source| ConfigError::Unwritable(Box::new(source)))
    }
}

impl Typed<'_> {
    /// Only those options that were typed.
    fn table(self) -> Result<Table, ConfigError> {
        let mut table = self.flags.to_table()?;
        for (_, section) in &mut table {
            if let Some(section) = section.as_table_mut() {
                section.retain(|key, _| self.was_typed(key));
            }
        }
        let low_dram = self.matches.try_get_one::<bool>(LOW_DRAM).ok().flatten();
        if let Some(low_dram) = low_dram.filter(|_| self.was_typed(LOW_DRAM)) {
            let memory = table.entry("memory").or_insert_with(|| Table::new().into());
            if let Some(memory) = memory.as_table_mut() {
                memory.insert("high_dram".to_owned(), (!low_dram).into());
            }
        }
        Ok(table)
    }

    /// A command may leave out sections, so a flag that it does not know was not typed.
    fn was_typed(self, id: &str) -> bool {
        matches!(self.matches.try_contains_id(id), Ok(true))
            && self.matches.value_source(id) == Some(ValueSource::CommandLine)
    }
}

/// Refuses a command line that holds views out and none at once. In a file `eval` may stand at its
/// default.
fn refuse_contradiction(typed: &Table) -> Result<(), ConfigError> {
    let says = |key: &str| typed.get(SceneOptions::NAME).and_then(|scene| scene.get(key));
    let holds_some_out = NAMED.iter().any(|key| says(key).is_some());
    let holds_none_out = says("eval").and_then(toml::Value::as_bool) == Some(false);
    let allowed =
        "true with --test-views or --test-list, which hold views out (or leave those out)";
    holds(!(holds_none_out && holds_some_out), false, allowed)
        .map_err(|refused| refused.of(SceneOptions::NAME, "eval"))
}

/// Replaces in `table` the keys that `upper` has.
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

/// Reads a layer; every key in it must be an option and every value of the option's type.
fn read_strictly(origin: &str, text: &str) -> Result<Table, ConfigError> {
    let syntax =
        |source| ConfigError::Syntax { origin: origin.to_owned(), source: Box::new(source) };
    let spans = DeTable::parse(text).map_err(syntax)?;
    refuse_unknown(origin, text, spans.get_ref())?;
    match toml::from_str::<Config>(text) {
        Ok(_) => toml::from_str(text).map_err(syntax),
        Err(source) => Err(wrong_type(origin, text, spans.get_ref(), source)),
    }
}

/// An error where the file names a section or key that no option has.
fn refuse_unknown(origin: &str, text: &str, table: &DeTable<'_>) -> Result<(), ConfigError> {
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
            let remedy = place_of(&sections, found).unwrap_or_else(|| all_sections(&sections));
            return Err(unknown(name.span(), format!("{what} `{found}`"), remedy));
        };
        let Some(keys) = value.get_ref().as_table() else { continue };
        if let Some(key) = keys.keys().find(|key| !section.has(key.get_ref())) {
            let found = key.get_ref().as_ref();
            let remedy = place_of(&sections, found).unwrap_or_else(|| {
                let keys: Vec<_> =
                    section.flags.iter().map(|flag| flag.get_id().as_str()).collect();
                format!("this section has {}. {}", keys.join(", "), all_sections(&sections))
            });
            return Err(unknown(
                key.span(),
                format!("key `{found}` in [{}]", section.name),
                remedy,
            ));
        }
    }
    Ok(())
}

/// Where a key belongs that stands in the wrong place.
fn place_of(sections: &[Section], key: &str) -> Option<String> {
    let spelled = key.replace('-', "_");
    if spelled == LOW_DRAM {
        return Some("write `high_dram = false` in [memory]".to_owned());
    }
    let section = sections.iter().find(|section| section.has(&spelled))?;
    Some(format!("write `{spelled}` in section [{}]", section.name))
}

fn all_sections(sections: &[Section]) -> String {
    let names: Vec<_> = sections.iter().map(|section| format!("[{}]", section.name)).collect();
    format!("the sections are {}", names.join(" "))
}

/// Names the key whose value the error's span lies in.
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
                    message: source.message().to_owned(),
                };
            }
        }
    }
    ConfigError::Syntax { origin: origin.to_owned(), source: Box::new(source) }
}

/// The line, from 1, of a position in a text.
fn line_of(text: &str, position: usize) -> usize {
    1 + text.bytes().take(position).filter(|&byte| byte == b'\n').count()
}
