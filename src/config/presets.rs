//! Configurations that come with the program.

use super::ConfigError;

/// Name and text; each is a file in `configs/`.
const PRESETS: [(&str, &str); 9] = [
    ("default", include_str!("../../configs/default.toml")),
    ("8gb", include_str!("../../configs/8gb.toml")),
    ("16gb", include_str!("../../configs/16gb.toml")),
    ("24gb", include_str!("../../configs/24gb.toml")),
    ("mcmc", include_str!("../../configs/mcmc.toml")),
    ("mip", include_str!("../../configs/mip.toml")),
    ("sugar-density", include_str!("../../configs/sugar-density.toml")),
    ("sugar-dn", include_str!("../../configs/sugar-dn.toml")),
    ("smoke", include_str!("../../configs/smoke.toml")),
];

/// Names that `--preset` takes.
pub fn preset_names() -> impl Iterator<Item = &'static str> {
    PRESETS.into_iter().map(|(name, _)| name)
}

/// The TOML text of a preset.
pub fn preset_text(name: &str) -> Result<&'static str, ConfigError> {
    PRESETS.into_iter().find(|&(known, _)| known == name).map(|(_, text)| text).ok_or_else(|| {
        ConfigError::UnknownPreset {
            name: name.to_owned(),
            known: preset_names().collect::<Vec<_>>().join(", "),
        }
    })
}
