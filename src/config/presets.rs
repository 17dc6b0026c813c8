//! Built-in configurations.

use super::ConfigError;
use super::error::most_like;
use crate::memory::Bytes;

/// Name and text of each preset, a file in `configs/`.
const PRESETS: [(&str, &str); 13] = [
    ("reference", include_str!("../../configs/reference.toml")),
    ("draft", include_str!("../../configs/draft.toml")),
    ("fast", include_str!("../../configs/fast.toml")),
    ("best", include_str!("../../configs/best.toml")),
    ("8gb", include_str!("../../configs/8gb.toml")),
    ("12gb", include_str!("../../configs/12gb.toml")),
    ("16gb", include_str!("../../configs/16gb.toml")),
    ("24gb", include_str!("../../configs/24gb.toml")),
    ("mcmc", include_str!("../../configs/mcmc.toml")),
    ("mip", include_str!("../../configs/mip.toml")),
    ("sugar-density", include_str!("../../configs/sugar-density.toml")),
    ("sugar-dn", include_str!("../../configs/sugar-dn.toml")),
    ("smoke", include_str!("../../configs/smoke.toml")),
];

/// Other names of presets.
const ALIASES: [(&str, &str); 1] = [("default", "fast")];

/// Presets for cards with the card's size in GiB, ascending.
const CARD_PRESETS: [(&str, u64); 4] = [("8gb", 8), ("12gb", 12), ("16gb", 16), ("24gb", 24)];

/// Deviation of a card's memory from its nominal size, per cent.
const CARD_TOLERANCE: u64 = 7;

/// Returns the preset for a card: the largest that fits, or else the smallest. Larger cards than
/// all presets need none.
pub fn preset_for_card(memory: Bytes) -> Option<&'static str> {
    let above = |gib: u64, percent: u64| memory.0 >= (gib << 30) / 100 * percent;
    let (_, largest) = CARD_PRESETS[CARD_PRESETS.len() - 1];
    if above(largest, 100 + CARD_TOLERANCE) {
        return None;
    }
    let fitting = CARD_PRESETS.iter().rev().find(|(_, gib)| above(*gib, 100 - CARD_TOLERANCE));
    fitting.or(CARD_PRESETS.first()).map(|(name, _)| *name)
}

/// Preset that equals [`Config::default`](super::Config). Naming it keeps a new run from the usual preset.
pub(super) const REFERENCE: &str = "reference";

/// Returns the names that `--preset` accepts.
pub fn preset_names() -> impl Iterator<Item = &'static str> {
    PRESETS.into_iter().map(|(name, _)| name)
}

/// Resolves an alias of a preset.
pub(super) fn unaliased(name: &str) -> &str {
    ALIASES.into_iter().find(|&(alias, _)| alias == name).map_or(name, |(_, of)| of)
}

/// Returns the TOML text of a preset.
pub fn preset_text(name: &str) -> Result<&'static str, ConfigError> {
    let name = unaliased(name);
    PRESETS.into_iter().find(|&(known, _)| known == name).map(|(_, text)| text).ok_or_else(|| {
        ConfigError::UnknownPreset {
            name: name.to_owned(),
            like: most_like(preset_names(), name),
            known: preset_names().collect::<Vec<_>>().join(", "),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_is_an_alias_of_fast() {
        assert_eq!(preset_text("default").unwrap(), preset_text("fast").unwrap());
        assert!(preset_text("refer").is_err());
    }

    #[test]
    fn a_card_gets_the_largest_preset_that_fits() {
        for (mib, preset) in [
            (4096, Some("8gb")),
            (8192, Some("8gb")),
            (11_264, Some("8gb")),
            // Sizes that drivers report for cards of 12, 16 and 24 GiB.
            (11_909, Some("12gb")),
            (15_931, Some("16gb")),
            (20_480, Some("16gb")),
            (24_564, Some("24gb")),
            (32_607, None),
            (143_771, None),
        ] {
            assert_eq!(preset_for_card(Bytes(mib << 20)), preset, "{mib} MiB");
        }
        for (name, _) in CARD_PRESETS {
            preset_text(name).unwrap();
        }
    }
}
