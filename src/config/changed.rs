//! Options that differ from their defaults.

use std::collections::BTreeMap;

use super::{Config, ConfigError};

impl Config {
    /// The options that differ from their defaults, by `section.key`.
    pub fn changed(&self) -> Result<BTreeMap<String, toml::Value>, ConfigError> {
        let defaults = Self::default().by_key()?;
        let mut changed = self.by_key()?;
        changed.retain(|key, value| defaults.get(key) != Some(value));
        Ok(changed)
    }

    /// All options that have a value, by `section.key`.
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
    fn only_what_differs_is_named_by_section_and_key() {
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
