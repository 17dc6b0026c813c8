//! Defaults in the help of commands that train: those of a run of which nothing else is said.

use clap::{Arg, Command};
use toml::{Table, Value};

use crate::config::{Config, ConfigError, Layers, resolve};

/// Commands whose new runs take the usual preset.
const NEW_RUNS: [&str; 2] = ["train", "plan"];

/// Has the help of the command say both defaults of an option: that of a usual run, and the reference's.
pub(super) fn with_usual_defaults(command: Command) -> Command {
    let changed = if NEW_RUNS.contains(&command.get_name()) { changed() } else { Ok(Vec::new()) };
    // The presets are part of the program, and tests read them all.
    let changed = changed.unwrap_or_default();
    command.mut_args(|arg| {
        let usual = changed.iter().find(|(key, _)| arg.get_id() == key.as_str());
        usual.map_or(arg.clone(), |(_, usual)| with_both(arg, usual))
    })
}

/// Options of which a usual run has other values than [`Config::default`], and these.
fn changed() -> Result<Vec<(String, String)>, ConfigError> {
    let usual = resolve(Layers { is_new: true, ..Layers::default() })?;
    let [usual, reference] = [usual, Config::default()].map(|config| tables(&config));
    let reference = reference?;
    let mut changed = Vec::new();
    for (section, values) in usual? {
        for (key, value) in values.as_table().into_iter().flatten() {
            let other = reference.get(&section).and_then(|section| section.get(key));
            if other != Some(value) {
                changed.push((key.clone(), shown(value)));
            }
        }
    }
    Ok(changed)
}

fn tables(config: &Config) -> Result<Table, ConfigError> {
    let text = config.to_toml()?;
    let read =
        |source| ConfigError::Syntax { origin: "the presets".to_owned(), source: Box::new(source) };
    text.parse().map_err(read)
}

/// As a flag takes it.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn with_both(arg: Arg, usual: &str) -> Arg {
    let defaults: Vec<_> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let reference = if defaults.is_empty() { "none".to_owned() } else { defaults.join(" ") };
    let both = format!("[default: {usual}; of --preset reference: {reference}]");
    let [short, long] = [arg.get_help(), arg.get_long_help()]
        .map(|help| help.map(ToString::to_string).unwrap_or_default());
    let arg = arg.hide_default_value(true).help(format!("{short} {both}"));
    if long.is_empty() { arg } else { arg.long_help(format!("{long}\n\n{both}")) }
}
