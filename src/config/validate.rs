//! Which values options may have, alone and together.

use super::values::{Checked, holds};
use super::{
    Color, Config, ConfigError, DensifyOptions, OptimizeOptions, Regularize, SceneOptions,
    SugarOptions,
};

/// Opacity that a reset leaves at most.
pub const RESET_OPACITY: f64 = 0.01;

impl Config {
    /// Checks that every value is in its range; the first that is not is the error.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.scene.check_values()?;
        self.scene.check_together()?;
        self.optimize.check_values()?;
        self.optimize.check_together()?;
        self.densify.check_values()?;
        self.densify.check_together()?;
        self.sugar.check_values()?;
        self.sugar.check_together()?;
        self.memory.check_values()?;
        self.output.check_values()?;
        self.run.check_values()
    }

    /// Checks that the coarse stage ends after it starts, and that density control ends before the run
    /// where something follows its end.
    ///
    /// The reference's iterations leave no room for a stage that starts after them. Where a stage
    /// starts may be known only after all else, from a model.
    pub fn validate_schedule(&self) -> Result<(), ConfigError> {
        let checked = holds(
            !self.has_coarse_stage() || self.optimize.iterations < self.last_iteration(),
            self.optimize.iterations,
            "with --sugar-schedule absolute, less than 15000, where that schedule ends (or leave \
             --sugar-schedule at relative)",
        );
        named(OptimizeOptions::NAME, "iterations", checked)?;
        let prunes =
            self.densify.target_gaussians.is_some() && self.sugar.checkpoint_path.is_none();
        let until = self.densify.densify_until_iter;
        let checked = holds(
            !prunes || until < self.optimize.iterations,
            until,
            "with --target-gaussians, less than --iterations: the prune comes after this iteration, and \
             training continues after it",
        );
        named(DensifyOptions::NAME, "densify_until_iter", checked)
    }
}

impl SceneOptions {
    fn check_together(&self) -> Result<(), ConfigError> {
        let background = holds(
            !self.white_background || self.background.is_none_or(|given| given == Color::WHITE),
            self.background_color(),
            "1,1,1 with --white-background. For another colour use --white-background false, for \
             white --background 1,1,1",
        );
        named(Self::NAME, "background", background)?;
        let test_every = holds(
            !self.eval || self.test_every >= 2,
            self.test_every,
            "with --eval, 2 and more (1 would leave no view to train on)",
        );
        named(Self::NAME, "test_every", test_every)
    }
}

impl OptimizeOptions {
    fn check_together(&self) -> Result<(), ConfigError> {
        let position_lr_final = holds(
            (self.position_lr_init > 0.0) == (self.position_lr_final > 0.0),
            self.position_lr_final,
            "more than 0 if --position-lr-init is more than 0, else 0 (a log-linear schedule cannot \
             start or end at 0)",
        );
        named(Self::NAME, "position_lr_final", position_lr_final)?;
        let bilateral_grid = holds(
            !(self.bilateral_grid && self.exposure),
            self.bilateral_grid,
            "false with --exposure: a bilateral grid includes what --exposure learns",
        );
        named(Self::NAME, "bilateral_grid", bilateral_grid)
    }
}

impl DensifyOptions {
    fn check_together(&self) -> Result<(), ConfigError> {
        let absgrad = holds(
            !self.absgrad || self.strategy.takes_absgrad(),
            self.absgrad,
            "false with this --strategy, which uses absolute gradients in its own way or not at all \
             (adc takes them)",
        );
        named(Self::NAME, "absgrad", absgrad)?;
        let is_reset = self.strategy.grows_by_gradient()
            && self.opacity_reset_interval < self.densify_until_iter;
        let min_opacity = holds(
            !is_reset || self.min_opacity < RESET_OPACITY,
            self.min_opacity,
            "less than 0.01: after a reset no opacity is above 0.01, and every Gaussian would be pruned \
             (or train without resets: --opacity-reset-interval as large as --densify-until-iter)",
        );
        named(Self::NAME, "min_opacity", min_opacity)
    }
}

impl SugarOptions {
    fn check_together(&self) -> Result<(), ConfigError> {
        let multi_view = holds(
            !self.multi_view || self.regularize == Regularize::MedianNormal,
            self.multi_view,
            "false without --regularize median-normal, whose median depths it takes: give both, or \
             leave out --multi-view",
        );
        named(Self::NAME, "multi_view", multi_view)
    }
}

/// The outcome for one option, as an error that names it.
fn named(section: &'static str, key: &'static str, checked: Checked) -> Result<(), ConfigError> {
    checked.map_err(|refused| refused.of(section, key))
}
