//! Which values options may have, alone and together.

use super::values::{Checked, holds};
use super::{
    Color, Config, ConfigError, DensifyOptions, OptimizeOptions, PrimitiveName, Regularize,
    SceneOptions, StrategyName, SugarOptions,
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
        self.triangles.check_values()?;
        self.check_surfels()?;
        self.check_triangles()?;
        self.check_resets()?;
        self.check_ends()?;
        self.memory.check_values()?;
        self.output.check_values()?;
        self.run.check_values()
    }

    /// Checks that what ends a run before its last iteration leaves nothing of it undone.
    fn check_ends(&self) -> Result<(), ConfigError> {
        let OptimizeOptions { exposure, bilateral_grid, primitive, .. } = self.optimize;
        let budget = self.optimize.time_budget;
        let trains_on = self.has_coarse_stage();
        let checked = holds(
            budget.is_none() || !(exposure || bilateral_grid || trains_on),
            budget.map_or(String::new(), |budget| budget.to_string()),
            "none with --exposure, --bilateral-grid and --regularize, whose schedules go by iterations",
        );
        named(OptimizeOptions::NAME, "time_budget", checked)?;
        let until = self.optimize.until_psnr;
        let checked = holds(
            until.is_none() || !(trains_on || primitive == PrimitiveName::Triangles),
            until.unwrap_or_default(),
            "none with --regularize and --primitive triangles, whose models are complete only at the end",
        );
        named(OptimizeOptions::NAME, "until_psnr", checked)
    }

    /// Checks that some Gaussians are left in the round after opacities were reset.
    fn check_resets(&self) -> Result<(), ConfigError> {
        let DensifyOptions { min_opacity, strategy, opacity_reset_interval, .. } = self.densify;
        let is_reset = strategy.grows_by_gradient()
            && opacity_reset_interval < self.densify.densify_until_iter;
        let (may_be, allowed) = match self.optimize.primitive {
            PrimitiveName::Gaussians => (
                min_opacity < RESET_OPACITY,
                "less than 0.01, else a reset prunes all Gaussians (or --opacity-reset-interval as large as \
                 --densify-until-iter)",
            ),
            PrimitiveName::Triangles => return Ok(()),
            PrimitiveName::Surfels => (
                min_opacity < self.regained_opacity(),
                "less than opacities regain after a reset to 0.01 (--opacity-lr), else all surfels are pruned \
                 (or --opacity-reset-interval as large as --densify-until-iter)",
            ),
        };
        let min_opacity = holds(!is_reset || may_be, min_opacity, allowed);
        named(DensifyOptions::NAME, "min_opacity", min_opacity)
    }

    /// The opacity that Adam can raise one to between a reset and the next round of density control.
    fn regained_opacity(&self) -> f64 {
        let OptimizeOptions { opacity_lr, batch_views, no_batch_scaling, .. } = self.optimize;
        let views = f64::from(batch_views);
        let per_view = if no_batch_scaling { views } else { views.sqrt() };
        let rise = opacity_lr * f64::from(self.densify.densification_interval) / per_view;
        let logit = (RESET_OPACITY / (1.0 - RESET_OPACITY)).ln() + rise;
        1.0 / (1.0 + (-logit).exp())
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

impl Config {
    /// Returns whether --few-view-passes can have an effect.
    pub fn allows_few_view_passes(&self) -> bool {
        self.densify.strategy == StrategyName::Budget
            && self.optimize.primitive != PrimitiveName::Triangles
            && self.optimize.max_passes > 0
    }
}

impl OptimizeOptions {
    /// Returns the number of training images of a run over this many training views, without a time budget.
    pub fn images(&self, views: u32) -> u32 {
        let of_passes = |passes: u32| passes.saturating_mul(views).max(1);
        let most = if self.max_passes > 0 { of_passes(self.max_passes) } else { u32::MAX };
        self.iterations.max(of_passes(self.min_passes)).min(most)
    }

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
        named(Self::NAME, "absgrad", absgrad)
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
pub(super) fn named(
    section: &'static str,
    key: &'static str,
    checked: Checked,
) -> Result<(), ConfigError> {
    checked.map_err(|refused| refused.of(section, key))
}

#[cfg(test)]
mod tests {
    use super::super::{ConfigLayer, Layers, StrategyName, resolve};
    use super::*;

    fn surfels(more: &str) -> Result<Config, ConfigError> {
        let text = format!("optimize.primitive = \"surfels\"\n{more}");
        let base = Some(ConfigLayer { origin: "a.toml", text: &text });
        resolve(Layers { base, ..Layers::default() })
    }

    #[test]
    fn surfels_bring_the_opacity_below_which_they_go() {
        let least = |more: &str| surfels(more).unwrap().densify.min_opacity;
        assert_eq!([least(""), least("densify.strategy = \"gof\"")], [0.05; 2]);
        assert_eq!(least("densify.min_opacity = 0.02"), 0.02);
        let usual = Config::default().densify.min_opacity;
        assert_eq!(least("densify.strategy = \"budget\""), usual);
    }

    #[test]
    fn opacities_of_surfels_must_be_able_to_rise_again_after_a_reset() {
        // 0.01 is 1.65 of a logit below 0.05, which is 33 steps of 0.05.
        assert!(surfels("densify.densification_interval = 34").is_ok());
        let error = surfels("densify.densification_interval = 32").unwrap_err().to_string();
        assert!(error.contains("--min-opacity") && error.contains("--opacity-lr"), "{error}");
        // Of 8 views a step there are an eighth as many, nearly three times as large.
        assert!(surfels("optimize.batch_views = 8").is_ok());
        assert!(surfels("optimize.batch_views = 8\noptimize.no_batch_scaling = true").is_err());
        assert!(surfels("densify.densification_interval = 9\ndensify.min_opacity = 0.005").is_ok());
        let never = "densify.densification_interval = 9\ndensify.opacity_reset_interval = 15000";
        assert!(surfels(never).is_ok());
        let mut gaussians = Config::default();
        gaussians.densify.min_opacity = 0.02;
        assert!(gaussians.validate().is_err());
        gaussians.densify.strategy = StrategyName::Budget;
        assert!(gaussians.validate().is_ok());
    }
}
