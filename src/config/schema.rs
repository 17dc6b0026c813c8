//! Sections and keys of a configuration file, derived from the flags.

use std::fmt::Write;

use clap::{Arg, Args, Command};

use super::run_options::LOW_DRAM;
use super::{
    Config, ConfigError, DensifyOptions, MemoryOptions, OptimizeOptions, OutputOptions, RunOptions,
    SceneOptions, SugarOptions, TrianglesOptions,
};

/// Section of a configuration file.
pub(super) struct Section {
    /// Name in brackets.
    pub name: &'static str,
    /// Flags of the keys. The id of a flag is its key.
    pub flags: Vec<Arg>,
}

impl Section {
    fn of<T: Args>(name: &'static str) -> Self {
        let command = T::augment_args(Command::new(name));
        let keys = command.get_arguments().filter(|flag| flag.get_id() != LOW_DRAM);
        Self { name, flags: keys.cloned().collect() }
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.flags.iter().any(|flag| flag.get_id() == key)
    }
}

/// Returns all sections in the order of [`Config`].
pub(super) fn sections() -> [Section; 8] {
    [
        Section::of::<SceneOptions>(SceneOptions::NAME),
        Section::of::<OptimizeOptions>(OptimizeOptions::NAME),
        Section::of::<DensifyOptions>(DensifyOptions::NAME),
        Section::of::<TrianglesOptions>(TrianglesOptions::NAME),
        Section::of::<SugarOptions>(SugarOptions::NAME),
        Section::of::<MemoryOptions>(MemoryOptions::NAME),
        Section::of::<OutputOptions>(OutputOptions::NAME),
        Section::of::<RunOptions>(RunOptions::NAME),
    ]
}

/// Returns the text of `configs/reference.toml`: every option with its help and its value in [`Config::default`].
///
/// Options without a default are commented out.
pub fn reference_toml() -> Result<String, ConfigError> {
    let defaults = Config::default().to_table()?;
    let mut text = String::from(
        "# Every option of `splat train` as --preset reference has it, which trains as 3DGS does. Where nothing else is\n\
         # said, a run has some other values, those of fast.toml. A file for --config needs only what differs; flags win\n\
         # over it.\n",
    );
    for section in sections() {
        writeln!(text, "\n[{}]", section.name).ok();
        let values = defaults.get(section.name).and_then(toml::Value::as_table);
        for (index, flag) in section.flags.iter().enumerate() {
            let key = flag.get_id().as_str();
            if index > 0 {
                text.push('\n');
            }
            text.push_str(&comment(flag));
            match values.and_then(|values| values.get(key)) {
                Some(value) => writeln!(text, "{key} = {value}").ok(),
                None => writeln!(text, "# {key} = {}", example(section.name, flag)).ok(),
            };
        }
    }
    Ok(text)
}

/// Largest width of a comment line.
const WIDTH: usize = 100;

/// Formats a flag's help, details and allowed values as comment lines.
fn comment(flag: &Arg) -> String {
    let mut lines = String::new();
    let help = flag.get_long_help().or(flag.get_help()).map(ToString::to_string);
    for paragraph in help.unwrap_or_default().lines().filter(|line| !line.is_empty()) {
        let mut line = "#".to_owned();
        for word in paragraph.split(' ') {
            if line.chars().count() + 1 + word.chars().count() > WIDTH {
                writeln!(lines, "{line}").ok();
                line = "#".to_owned();
            }
            line = format!("{line} {word}");
        }
        writeln!(lines, "{line}").ok();
    }
    for value in flag.get_possible_values() {
        let help = value.get_help().map(ToString::to_string).unwrap_or_default();
        writeln!(lines, "#   {}: {help}", value.get_name()).ok();
    }
    lines
}

/// Returns an example value of an unset option.
fn example(section: &str, flag: &Arg) -> String {
    let key = flag.get_id().as_str();
    let name = flag.get_value_names().and_then(<[_]>::first).map_or("", |name| name.as_str());
    let candidates = [
        format!("\"{name}\""),
        "\"12GiB\"".to_owned(),
        "\"60s\"".to_owned(),
        "0.001".to_owned(),
        "1000000".to_owned(),
        "\"0.5,0.5,0.5\"".to_owned(),
    ];
    let is_valid =
        |value: &String| toml::from_str::<Config>(&format!("[{section}]\n{key} = {value}")).is_ok();
    candidates.into_iter().find(is_valid).unwrap_or_default()
}
