//! Options without effect, because of other options or the device.

use super::declare::{Idle, flag, idle_options};
use super::densify::DensifiedRun;
use super::triangles::TriangleRun;
use super::{
    Compactness, Config, ConfigError, DensifyOptions, MemoryOptions, Offload, OptimizeOptions,
    OutputOptions, RunOptions, SceneOptions, SugarOptions, TrianglesOptions,
};

impl Config {
    /// Returns a sentence for each given option without effect, because what it belongs to is off.
    pub fn idle_options(&self, was_given: impl Fn(&str) -> bool) -> Vec<String> {
        let given: &dyn Fn(&str) -> bool = &was_given;
        let densified = DensifiedRun {
            strategy: self.densify.strategy,
            primitive: self.optimize.primitive,
            is_trained: self.sugar.checkpoint_path.is_some(),
            has_max_points: self.densify.max_points.is_some(),
            has_random_background: self.optimize.random_background,
            until: self.densify.densify_until_iter,
        };
        let triangles = TriangleRun {
            primitive: self.optimize.primitive,
            reference_gradients: self.triangles.reference_gradients,
            is_connected: self.triangles.delaunay_iter > 0,
        };
        [
            idle_options(SceneOptions::IDLE, &self.scene, given),
            self.idle_normals(given).into_iter().collect(),
            idle_options(OptimizeOptions::IDLE, self, given),
            idle_options(DensifyOptions::IDLE, &densified, given),
            idle_options(TrianglesOptions::IDLE, &triangles, given),
            idle_options(SugarOptions::IDLE, &self.sugar, given),
            idle_options(MemoryOptions::IDLE, &self.memory, given),
            self.idle_compactness(given).into_iter().collect(),
            idle_options(OutputOptions::IDLE, &self.output, given),
            idle_options(RunOptions::IDLE, &self.run, given),
        ]
        .concat()
    }

    /// Reports normal maps that do not count, or only after the end of the run.
    fn idle_normals(&self, was_given: &dyn Fn(&str) -> bool) -> Option<String> {
        if !was_given("normals") {
            return None;
        }
        if self.normals_folder().is_none() {
            return Some("--normals has no effect with --lambda-normals-super 0".to_owned());
        }
        let (from, last) = (self.optimize.normals_from_iter, self.last_iteration());
        (from >= last).then(|| {
            format!(
                "--normals has no effect: it counts after iteration {from} (--normals-from-iter), and the run \
                 ends at {last}"
            )
        })
    }

    /// Reports `--optimize-memory sh` if `--offload` already includes it.
    fn idle_compactness(&self, was_given: &dyn Fn(&str) -> bool) -> Option<String> {
        let MemoryOptions { optimize_memory, offload, .. } = self.memory;
        let is_less = (optimize_memory, offload) == (Compactness::Sh, Offload::Sh);
        (is_less && was_given("optimize_memory")).then(|| {
            "--optimize-memory sh has no effect on a GPU with --offload sh, which keeps moments compact, too"
                .to_owned()
        })
    }

    /// Returns the folder of normal maps, if they are used.
    pub fn normals_folder(&self) -> Option<&str> {
        let folder = self.optimize.normals.as_deref();
        folder.filter(|_| self.optimize.lambda_normals_super > 0.0)
    }
}

impl MemoryOptions {
    /// Returns the flags of given options that differ from their defaults and have no effect on the CPU.
    pub fn idle_on_cpu(
        &self,
        was_given: impl Fn(&str) -> bool,
    ) -> Result<Vec<String>, ConfigError> {
        let table = |options: &Self| {
            toml::Table::try_from(options)
                .map_err(|source| ConfigError::Unwritable(Box::new(source)))
        };
        let (given, usual) = (table(self)?, table(&Self::default())?);
        let idle = Self::IDLE.iter().filter(|(_, idle)| matches!(idle, Idle::OnCpu));
        Ok(idle
            .filter(|(key, _)| was_given(key) && given.get(*key) != usual.get(*key))
            .map(|(key, _)| flag(key))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command};

    use super::super::PrimitiveName;
    use super::*;
    use crate::config::declare::Idle;

    type Rules = Vec<(&'static str, Option<&'static str>)>;

    fn rules_of<C>(rules: &[(&'static str, Idle<C>)]) -> Rules {
        let words = |idle: &Idle<C>| match idle {
            Idle::When { words, .. } => Some(*words),
            Idle::OnCpu => None,
        };
        rules.iter().map(|(key, idle)| (*key, words(idle))).collect()
    }

    fn all_rules() -> Rules {
        [
            rules_of(SceneOptions::IDLE),
            rules_of(OptimizeOptions::IDLE),
            rules_of(DensifyOptions::IDLE),
            rules_of(TrianglesOptions::IDLE),
            rules_of(SugarOptions::IDLE),
            rules_of(MemoryOptions::IDLE),
            rules_of(OutputOptions::IDLE),
            rules_of(RunOptions::IDLE),
        ]
        .concat()
    }

    #[test]
    fn rules_name_flags_that_exist() {
        let command = Config::augment_args(Command::new("splat"));
        let is_flag = |word: &str| {
            command.get_arguments().any(|arg| match word.strip_prefix("--") {
                Some(long) => arg.get_long() == Some(long),
                None => arg.get_short().is_some_and(|short| word == format!("-{short}")),
            })
        };
        for (key, words) in all_rules() {
            assert!(is_flag(&flag(key)), "{key}");
            let Some(words) = words else { continue };
            let mut flags =
                words.split([' ', ',', ':', '(', ')']).filter(|word| word.starts_with('-'));
            assert!(
                flags.all(|word| word == "--preset" || is_flag(word)) && words.contains('-'),
                "{key}: {words}"
            );
        }
    }

    #[test]
    fn options_are_idle_if_their_feature_is_off() {
        let mut config = Config::default();
        let idle = |config: &Config, key: &str| config.idle_options(|given| given == key);
        assert_eq!(idle(&config, "kernel_size").len(), 1);
        assert_eq!(
            idle(&config, "exposure_lr_init"),
            ["--exposure-lr-init has no effect without --exposure"]
        );
        assert!(config.idle_options(|_| false).is_empty());
        config.memory.offload = Offload::Sh;
        for (compactness, sentences) in [(Compactness::All, 0), (Compactness::Sh, 1)] {
            config.memory.optimize_memory = compactness;
            assert_eq!(idle(&config, "optimize_memory").len(), sentences, "{compactness:?}");
        }
        config.optimize.exposure = true;
        assert!(idle(&config, "exposure_lr_init").is_empty());
        assert_eq!(
            idle(&config, "hidden_interval"),
            ["--hidden-interval has no effect without --primitive triangles"]
        );
        config.optimize.primitive = PrimitiveName::Triangles;
        assert!(idle(&config, "edge_strip").is_empty());
        config.triangles.reference_gradients = true;
        assert_eq!(idle(&config, "edge_strip").len(), 1);
        assert!(idle(&config, "edge_strip")[0].contains("--reference-gradients"));
        assert!(idle(&config, "hidden_interval")[0].contains("--delaunay-iter"));
        config.triangles.delaunay_iter = 8000;
        assert!(idle(&config, "hidden_interval").is_empty());
    }

    #[test]
    fn limits_of_a_gpu_are_idle_on_the_cpu() {
        assert!(MemoryOptions::default().idle_on_cpu(|_| true).unwrap().is_empty());
        let memory = MemoryOptions {
            vram_limit: Some("80%".parse().unwrap()),
            high_dram: true,
            profile_tensors: true,
            ..MemoryOptions::default()
        };
        let idle = |of: &str| memory.idle_on_cpu(|key| key.contains(of)).unwrap();
        assert_eq!(idle(""), ["--vram-limit", "--profile-tensors"]);
        assert_eq!(idle("vram"), ["--vram-limit"]);
    }
}
