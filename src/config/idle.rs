//! Options that have no effect because of others, or because of the device.

use super::{
    Config, ConfigError, DensifyOptions, MemoryOptions, OptimizeOptions, OutputOptions, RunOptions,
    SceneOptions, SugarOptions,
};

/// When an option has no effect.
#[derive(Clone, Copy)]
pub(super) enum Idle {
    /// Where other options have certain values.
    When {
        /// Whether they have them.
        is: fn(&Config) -> bool,
        /// What follows `--key has no effect`.
        words: &'static str,
    },
    /// On the CPU.
    OnCpu,
}

/// Every option that may be idle, and when; an option may stand there more than once.
fn all() -> impl Iterator<Item = (&'static str, Idle)> {
    let sections = [
        SceneOptions::IDLE,
        OptimizeOptions::IDLE,
        DensifyOptions::IDLE,
        SugarOptions::IDLE,
        MemoryOptions::IDLE,
        OutputOptions::IDLE,
        RunOptions::IDLE,
    ];
    sections.into_iter().flatten().copied()
}

fn flag(key: &str) -> String {
    format!("--{}", key.replace('_', "-"))
}

impl Config {
    /// A sentence for each option that was given and has no effect, since what it belongs to is off.
    pub fn idle_options(&self, was_given: impl Fn(&str) -> bool) -> Vec<String> {
        all()
            .filter(|(key, _)| was_given(key))
            .filter_map(|(key, idle)| match idle {
                Idle::When { is, words } => {
                    is(self).then(|| format!("{} has no effect {words}", flag(key)))
                }
                Idle::OnCpu => None,
            })
            .collect()
    }
}

impl MemoryOptions {
    /// Flags of the options that are not at their defaults and have no effect on the CPU.
    pub fn idle_on_cpu(&self) -> Result<Vec<String>, ConfigError> {
        let given = Config { memory: self.clone(), ..Config::default() }.to_table()?;
        let usual = Config::default().to_table()?;
        let value =
            |config: &toml::Table, key: &str| config.get(Self::NAME)?.as_table()?.get(key).cloned();
        let idle = Self::IDLE.iter().filter(|(_, idle)| matches!(idle, Idle::OnCpu));
        let is_given = |key: &str| value(&given, key) != value(&usual, key);
        Ok(idle.filter(|(key, _)| is_given(key)).map(|(key, _)| flag(key)).collect())
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command};

    use super::*;

    #[test]
    fn rules_name_flags_that_exist() {
        let command = Config::augment_args(Command::new("splat"));
        let is_flag = |word: &str| {
            command.get_arguments().any(|arg| match word.strip_prefix("--") {
                Some(long) => arg.get_long() == Some(long),
                None => arg.get_short().is_some_and(|short| word == format!("-{short}")),
            })
        };
        for (key, idle) in all() {
            assert!(is_flag(&flag(key)), "{key}");
            let Idle::When { words, .. } = idle else { continue };
            let mut flags =
                words.split([' ', ',', ':', '(', ')']).filter(|word| word.starts_with('-'));
            assert!(
                flags.all(|word| word == "--preset" || is_flag(word)) && words.contains('-'),
                "{key}: {words}"
            );
        }
    }

    #[test]
    fn options_are_idle_where_what_they_belong_to_is_off() {
        let mut config = Config::default();
        let idle = |config: &Config, key: &str| config.idle_options(|given| given == key);
        assert_eq!(idle(&config, "kernel_size").len(), 1);
        assert_eq!(
            idle(&config, "exposure_lr_init"),
            ["--exposure-lr-init has no effect without --exposure"]
        );
        assert!(config.idle_options(|_| false).is_empty());
        config.optimize.exposure = true;
        assert!(idle(&config, "exposure_lr_init").is_empty());
    }

    #[test]
    fn limits_of_a_gpu_are_idle_on_the_cpu() {
        assert!(MemoryOptions::default().idle_on_cpu().unwrap().is_empty());
        let memory = MemoryOptions {
            vram_limit: Some("80%".parse().unwrap()),
            high_dram: true,
            profile_tensors: true,
            ..MemoryOptions::default()
        };
        assert_eq!(memory.idle_on_cpu().unwrap(), ["--vram-limit", "--profile-tensors"]);
    }
}
