//! Options as text, and where they are from.

use crate::config::ConfigLayer;

/// Options as text.
#[derive(Clone, Debug)]
pub(super) struct ConfigText {
    /// The file, or what else, that they are from.
    pub(super) origin: String,
    /// TOML.
    pub(super) text: String,
}

impl ConfigText {
    /// As a layer beneath other options.
    pub(super) fn layer(&self) -> ConfigLayer<'_> {
        ConfigLayer { origin: &self.origin, text: &self.text }
    }
}
