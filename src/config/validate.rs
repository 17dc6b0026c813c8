//! What values an option may have.

use std::fmt::Display;

use super::{
    Color, Config, ConfigError, DensifyOptions, MemoryOptions, OptimizeOptions, OutputOptions,
    RunOptions, SceneOptions, SugarOptions,
};
use crate::memory::Bytes;

/// The widest image that JPEG can hold, px.
const MAX_WIDTH: i32 = 65_535;

/// The longest lists of neighbours that devices make.
const MOST_NEIGHBOURS: u32 = 32;

impl Config {
    /// Proves that every value is in its range; the first that is not is the error.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.scene.validate()?;
        self.optimize.validate()?;
        self.densify.validate()?;
        self.sugar.validate()?;
        self.memory.validate()?;
        self.output.validate()?;
        self.run.validate()
    }
}

impl Config {
    /// Proves that a coarse stage lies behind its start: the reference's iterations leave no room for one
    /// that starts behind them. Where a stage starts may be known only when all else is, from a model.
    pub fn validate_schedule(&self) -> Result<(), ConfigError> {
        OptionKey::in_section("optimize")("iterations").holds(
            !self.has_coarse_stage() || self.optimize.iterations < self.last_iteration(),
            self.optimize.iterations,
            "with --sugar-schedule absolute, less than 15000, where that schedule ends (or leave \
             --sugar-schedule at relative)",
        )
    }
}

impl SceneOptions {
    fn validate(&self) -> Result<(), ConfigError> {
        let key = OptionKey::in_section("scene");
        if let Some(path) = &self.source_path {
            key("source_path").text(&path.to_string_lossy())?;
        }
        if let Some(folder) = &self.depths {
            key("depths").text(folder)?;
        }
        key("background").holds(
            !self.white_background || self.background.is_none_or(|given| given == Color::WHITE),
            self.background_color(),
            "1,1,1 where --white-background is on; for another colour turn that off \
             (--white-background false), and for white name it (--background 1,1,1)",
        )?;
        key("resolution").holds(
            self.resolution == -1 || (1..=MAX_WIDTH).contains(&self.resolution),
            self.resolution,
            "-1, or 1 to 65535",
        )?;
        key("test_every").holds(
            !self.eval || self.test_every >= 2,
            self.test_every,
            "with --eval, 2 and more (1 would leave no view to train on)",
        )
    }
}

impl OptimizeOptions {
    fn validate(&self) -> Result<(), ConfigError> {
        let key = OptionKey::in_section("optimize");
        key("iterations").count(self.iterations)?;
        key("sh_degree").holds(self.sh_degree <= 3, self.sh_degree, "0 to 3")?;
        key("sh_degree_interval").count(self.sh_degree_interval)?;
        key("position_lr_init").rate(self.position_lr_init)?;
        key("position_lr_final").rate(self.position_lr_final)?;
        key("position_lr_final").holds(
            (self.position_lr_init > 0.0) == (self.position_lr_final > 0.0),
            self.position_lr_final,
            "more than 0 where --position-lr-init is more than 0, else 0 \
             (no log-linear way leads from or to 0)",
        )?;
        key("position_lr_max_steps").count(self.position_lr_max_steps)?;
        key("feature_lr").rate(self.feature_lr)?;
        key("opacity_lr").rate(self.opacity_lr)?;
        key("scaling_lr").rate(self.scaling_lr)?;
        key("rotation_lr").rate(self.rotation_lr)?;
        key("lambda_dssim").share(self.lambda_dssim)?;
        key("kernel_size").rate(self.kernel_size)?;
        key("opacity_reg").rate(self.opacity_reg)?;
        key("scale_reg").rate(self.scale_reg)?;
        key("exposure_lr_init").rate(self.exposure_lr_init)?;
        key("exposure_lr_final").rate(self.exposure_lr_final)?;
        key("bilateral_grid").holds(
            !(self.bilateral_grid && self.exposure),
            self.bilateral_grid,
            "false where --exposure is on: a grid holds what an exposure would",
        )?;
        key("depth_l1_weight_init").rate(self.depth_l1_weight_init)?;
        key("depth_l1_weight_final").rate(self.depth_l1_weight_final)?;
        if let Some(path) = &self.init {
            key("init").text(&path.to_string_lossy())?;
        }
        key("init_num_pts").count(self.init_num_pts)?;
        key("init_opacity").holds(
            self.init_opacity > 0.0 && self.init_opacity < 1.0,
            self.init_opacity,
            "more than 0, less than 1",
        )?;
        key("init_scale").holds(
            self.init_scale.is_finite() && self.init_scale > 0.0,
            self.init_scale,
            "a finite number above 0",
        )?;
        key("init_extent").holds(
            self.init_extent.is_finite() && self.init_extent > 0.0,
            self.init_extent,
            "a finite number above 0",
        )
    }
}

impl DensifyOptions {
    fn validate(&self) -> Result<(), ConfigError> {
        let key = OptionKey::in_section("densify");
        key("densification_interval").count(self.densification_interval)?;
        key("opacity_reset_interval").count(self.opacity_reset_interval)?;
        key("densify_grad_threshold").rate(self.densify_grad_threshold)?;
        key("absgrad").holds(
            !self.absgrad || self.strategy.takes_absgrad(),
            self.absgrad,
            "false where --strategy is not adc: gof has its own use of absolute gradients, and mcmc \
             has none",
        )?;
        key("near_fade").share(self.near_fade)?;
        key("noise_lr").rate(self.noise_lr)?;
        key("percent_dense").share(self.percent_dense)?;
        match self.max_points {
            Some(count) => key("max_points").storable(count, 1, "1 to 2^63 - 1"),
            None => Ok(()),
        }
    }
}

impl SugarOptions {
    fn validate(&self) -> Result<(), ConfigError> {
        let key = OptionKey::in_section("sugar");
        if let Some(path) = &self.checkpoint_path {
            key("checkpoint_path").text(&path.to_string_lossy())?;
        }
        key("sugar_iterations").count(self.sugar_iterations)?;
        key("estimation_factor").rate(self.estimation_factor)?;
        key("normal_factor").rate(self.normal_factor)?;
        key("dn_factor").rate(self.dn_factor)?;
        key("n_samples_for_sdf").count(self.n_samples_for_sdf)?;
        key("regularity_knn").holds(
            (1..=MOST_NEIGHBOURS).contains(&self.regularity_knn),
            self.regularity_knn,
            "1 to 32",
        )?;
        key("sdf_every").count(self.sdf_every)
    }
}

impl MemoryOptions {
    fn validate(&self) -> Result<(), ConfigError> {
        let key = OptionKey::in_section("memory");
        key("image_cache").holds(
            self.image_cache > Bytes(0),
            self.image_cache,
            "more than 0 bytes, for instance 512MiB",
        )?;
        if let Some(limit) = self.vram_limit {
            key("vram_limit").holds(
                limit.is_usable(),
                limit,
                "a size above 0, for instance 12GiB, or more than 0% and at most 100%",
            )?;
        }
        key("vram_threshold").holds(
            self.vram_threshold > 0.0 && self.vram_threshold <= 1.0,
            self.vram_threshold,
            "more than 0, at most 1",
        )?;
        key("host_limit").holds(
            self.host_limit.is_usable(),
            self.host_limit,
            "a size above 0, for instance 16GiB, or more than 0% and at most 100%",
        )
    }
}

impl OutputOptions {
    fn validate(&self) -> Result<(), ConfigError> {
        let key = OptionKey::in_section("output");
        if let Some(path) = &self.lpips_weights {
            key("lpips_weights").text(&path.to_string_lossy())?;
        }
        if let Some(path) = &self.model_path {
            key("model_path").text(&path.to_string_lossy())?;
        }
        if let Some(name) = &self.experiment_name {
            key("experiment_name").holds(
                !["", ".", ".."].contains(&name.as_str()) && !name.contains(['/', '\\']),
                format_args!("`{name}`"),
                "the name of a folder, without slashes",
            )?;
        }
        key("test_iterations").iterations(&self.test_iterations)?;
        key("save_iterations").iterations(&self.save_iterations)?;
        key("checkpoint_iterations").iterations(&self.checkpoint_iterations)
    }
}

impl RunOptions {
    fn validate(&self) -> Result<(), ConfigError> {
        let key = OptionKey::in_section("run");
        key("seed").storable(self.seed, 0, "0 to 2^63 - 1")
    }
}

/// One option, to be named in an error.
struct OptionKey {
    section: &'static str,
    key: &'static str,
}

impl OptionKey {
    fn in_section(section: &'static str) -> impl Fn(&'static str) -> Self {
        move |key| Self { section, key }
    }

    fn holds(
        self,
        good: bool,
        value: impl Display,
        allowed: &'static str,
    ) -> Result<(), ConfigError> {
        if good {
            return Ok(());
        }
        Err(ConfigError::OutOfRange {
            flag: format!("--{}", self.key.replace('_', "-")),
            key: self.key,
            section: self.section,
            value: value.to_string(),
            allowed,
        })
    }

    fn count(self, value: u32) -> Result<(), ConfigError> {
        self.holds(value >= 1, value, "1 and more")
    }

    fn rate(self, value: f64) -> Result<(), ConfigError> {
        self.holds(value.is_finite() && value >= 0.0, value, "a finite number, 0 and more")
    }

    fn share(self, value: f64) -> Result<(), ConfigError> {
        self.holds((0.0..=1.0).contains(&value), value, "0 to 1")
    }

    fn text(self, value: &str) -> Result<(), ConfigError> {
        self.holds(!value.is_empty(), "empty", "a path")
    }

    /// A count that TOML's signed integers can hold.
    fn storable(self, value: u64, least: u64, allowed: &'static str) -> Result<(), ConfigError> {
        self.holds((least..=i64::MAX.unsigned_abs()).contains(&value), value, allowed)
    }

    /// A list of iterations; -1 is the customary way to write "never".
    fn iterations(self, values: &[i64]) -> Result<(), ConfigError> {
        match values.iter().find(|&&value| value != -1 && value < 1) {
            Some(value) => self.holds(false, value, "1 and more, or -1 for never"),
            None => Ok(()),
        }
    }
}
