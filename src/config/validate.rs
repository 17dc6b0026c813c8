//! Ranges of single options, and checks of their combinations.

use std::fmt::Display;
use std::path::Path;

use super::values::{holds, value_name};
use super::{
    Color, Config, ConfigError, DensifyOptions, OptimizeOptions, PrimitiveName, RegReach,
    Regularize, SceneOptions, StrategyName, SugarOptions,
};

/// Largest opacity after a reset.
pub const RESET_OPACITY: f64 = 0.01;

impl Config {
    /// Checks all values. Returns an error for the first that is out of range.
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

    /// Checks that an early end of the run leaves no work undone.
    fn check_ends(&self) -> Result<(), ConfigError> {
        let OptimizeOptions { exposure, bilateral_grid, primitive, .. } = self.optimize;
        let budget = self.optimize.time_budget;
        let trains_on = self.has_coarse_stage();
        refuse_unless(
            "optimize.time_budget",
            budget.is_none() || !(exposure || bilateral_grid || trains_on),
            budget.map_or(String::new(), |budget| budget.to_string()),
            "none with --exposure, --bilateral-grid and --regularize, whose schedules go by iterations",
        )?;
        let until = self.optimize.until_psnr;
        refuse_unless(
            "optimize.until_psnr",
            until.is_none() || !(trains_on || primitive == PrimitiveName::Triangles),
            until.unwrap_or_default(),
            "none with --regularize and --primitive triangles, whose models are complete only at the end",
        )
    }

    /// Checks that the densification step after an opacity reset leaves some Gaussians.
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
        refuse_unless("densify.min_opacity", !is_reset || may_be, min_opacity, allowed)
    }

    /// Returns the opacity that Adam can reach between a reset and the next densification step.
    fn regained_opacity(&self) -> f64 {
        let OptimizeOptions { opacity_lr, batch_views, no_batch_scaling, .. } = self.optimize;
        let views = f64::from(batch_views);
        let per_view = if no_batch_scaling { views } else { views.sqrt() };
        let rise = opacity_lr * f64::from(self.densify.densification_interval) / per_view;
        let logit = (RESET_OPACITY / (1.0 - RESET_OPACITY)).ln() + rise;
        1.0 / (1.0 + (-logit).exp())
    }

    /// Checks that the coarse stage ends after its start, and that density control ends before the
    /// run if a prune follows.
    ///
    /// With the reference's iterations a late stage has no room. The start of the stage may depend on a model, so
    /// this check comes last.
    pub fn validate_schedule(&self) -> Result<(), ConfigError> {
        refuse_unless(
            "optimize.iterations",
            !self.has_coarse_stage() || self.optimize.iterations < self.last_iteration(),
            self.optimize.iterations,
            "with --sugar-schedule absolute, less than 15000, where that schedule ends (or leave \
             --sugar-schedule at relative)",
        )?;
        let prunes =
            self.densify.target_gaussians.is_some() && self.sugar.checkpoint_path.is_none();
        let until = self.densify.densify_until_iter;
        refuse_unless(
            "densify.densify_until_iter",
            !prunes || until < self.optimize.iterations,
            until,
            "with --target-gaussians, less than --iterations: the prune comes after this iteration, and \
             training continues after it",
        )
    }
}

impl SceneOptions {
    fn check_together(&self) -> Result<(), ConfigError> {
        refuse_unless(
            "scene.background",
            !self.white_background || self.background.is_none_or(|given| given == Color::WHITE),
            self.background_color(),
            "1,1,1 with --white-background. For another colour use --white-background false, for \
             white --background 1,1,1",
        )?;
        refuse_unless(
            "scene.test_every",
            !self.eval || self.test_every >= 2,
            self.test_every,
            "with --eval, 2 and more (1 would leave no view to train on)",
        )
    }
}

impl Config {
    /// True if `--relax-if-views-agree` can have an effect.
    pub fn can_relax(&self) -> bool {
        self.can_relax_places() && self.optimize.reg_reach != RegReach::All
    }

    /// True if `--relax-if-views-agree` can have an effect unless the photographs show an object that was cut out.
    pub fn can_relax_places(&self) -> bool {
        self.densify.strategy == StrategyName::Budget
            && self.optimize.primitive == PrimitiveName::Gaussians
    }

    /// True if the run trains an ensemble before its model.
    pub fn distils(&self) -> bool {
        self.optimize.ensemble > 0 && self.can_distil()
    }

    /// True if `--ensemble` can have an effect. The renders of an ensemble have one background, and no exposure of
    /// their own.
    pub fn can_distil(&self) -> bool {
        let options = &self.optimize;
        let has_own_colors = options.exposure || options.bilateral_grid;
        options.primitive == PrimitiveName::Gaussians
            && !self.has_coarse_stage()
            && options.until_psnr.is_none()
            && !has_own_colors
            && !options.random_background
    }

    /// True if `--few-view-passes` can have an effect.
    pub fn allows_few_view_passes(&self) -> bool {
        self.densify.strategy == StrategyName::Budget
            && self.optimize.primitive != PrimitiveName::Triangles
            && self.optimize.max_passes > 0
    }
}

impl OptimizeOptions {
    /// True if masked pixels count in the loss. Masks that cut no object out may hide what exists, and learned colours
    /// would change the background.
    pub fn weights_masked_pixels(&self) -> bool {
        let has_own_colors = self.exposure || self.bilateral_grid;
        self.empty_weight > 0.0 && self.reg_reach == RegReach::All && !has_own_colors
    }

    /// Returns the largest number of training images of a run over this many training views with a time budget.
    pub fn most_images(&self, views: usize) -> u64 {
        if self.max_passes > 0 { u64::from(self.max_passes) * views as u64 } else { u64::MAX }
    }

    /// Returns the number of training images of a run over this many training views, without a time budget.
    pub fn images(&self, views: u32) -> u32 {
        let of_passes = |passes: u32| passes.saturating_mul(views).max(1);
        let most = if self.max_passes > 0 { of_passes(self.max_passes) } else { u32::MAX };
        self.iterations.max(of_passes(self.min_passes)).min(most)
    }

    fn check_together(&self) -> Result<(), ConfigError> {
        refuse_unless(
            "optimize.position_lr_final",
            (self.position_lr_init > 0.0) == (self.position_lr_final > 0.0),
            self.position_lr_final,
            "more than 0 if --position-lr-init is more than 0, else 0 (a log-linear schedule cannot \
             start or end at 0)",
        )?;
        refuse_unless(
            "optimize.bilateral_grid",
            !(self.bilateral_grid && self.exposure),
            self.bilateral_grid,
            "false with --exposure: a bilateral grid includes what --exposure learns",
        )
    }
}

impl DensifyOptions {
    fn check_together(&self) -> Result<(), ConfigError> {
        refuse_unless(
            "densify.absgrad",
            !self.absgrad || self.strategy.takes_absgrad(),
            self.absgrad,
            "false with this --strategy, which uses absolute gradients in its own way or not at all \
             (adc takes them)",
        )
    }
}

impl SugarOptions {
    fn check_together(&self) -> Result<(), ConfigError> {
        refuse_unless(
            "sugar.multi_view",
            !self.multi_view || self.regularize == Regularize::MedianNormal,
            self.multi_view,
            "false without --regularize median-normal, whose median depths it takes: give both, or \
             leave out --multi-view",
        )
    }
}

/// Returns an error that names the option, `section.key`, unless its value is `good`.
fn refuse_unless(
    option: &'static str,
    good: bool,
    value: impl Display,
    allowed: &'static str,
) -> Result<(), ConfigError> {
    let (section, key) = option.split_once('.').unwrap_or(("", option));
    holds(good, value, allowed).map_err(|refused| refused.of(section, key))
}

// Options that only fit other primitives.

impl Config {
    /// Rejects options that need Gaussians with a volume for surfels.
    pub(super) fn check_surfels(&self) -> Result<(), ConfigError> {
        if self.optimize.primitive != PrimitiveName::Surfels {
            return Ok(());
        }
        let OptimizeOptions { antialiasing, filter_3d, scale_reg, .. } = self.optimize;
        refuse_unless(
            "optimize.antialiasing",
            !antialiasing,
            antialiasing,
            "false with --primitive surfels, which have a filter of their own on the screen (and no preset \
             mip; --primitive gaussians takes both)",
        )?;
        refuse_unless(
            "optimize.filter_3d",
            !filter_3d,
            filter_3d,
            "false with --primitive surfels, which have no third axis to widen (and no preset mip; \
             --primitive gaussians takes both)",
        )?;
        let strategy = self.densify.strategy;
        refuse_unless(
            "densify.strategy",
            !strategy.moves_at_random(),
            value_name(&strategy),
            "adc, gof or budget with --primitive surfels: the noise and the regularisers of mcmc are about \
             the volumes of 3D Gaussians",
        )?;
        refuse_unless(
            "optimize.scale_reg",
            scale_reg == 0.0,
            scale_reg,
            "0 with --primitive surfels: the mean of the scales includes the third, which they have not",
        )?;
        let regularize = self.sugar.regularize;
        refuse_unless(
            "sugar.regularize",
            regularize == Regularize::None,
            value_name(&regularize),
            "none with --primitive surfels: the terms of the coarse stage are about the density of 3D \
             Gaussians, and surfels are flat already (--primitive gaussians takes them)",
        )
    }

    /// Rejects options that need Gaussians for triangles.
    pub(super) fn check_triangles(&self) -> Result<(), ConfigError> {
        if self.optimize.primitive != PrimitiveName::Triangles {
            return Ok(());
        }
        let OptimizeOptions { antialiasing, filter_3d, scale_reg, .. } = self.optimize;
        let DensifyOptions { strategy, absgrad, target_gaussians, max_points, .. } = self.densify;
        // Check the strategy first, because it implies values of other options.
        refuse_unless(
            "densify.strategy",
            strategy == StrategyName::Adc,
            value_name(&strategy),
            "none, or adc, with --primitive triangles, which have density control of their own: see \
             --add-percentage and --prune-triangles-threshold",
        )?;
        refuse_unless(
            "optimize.antialiasing",
            !antialiasing,
            antialiasing,
            "false with --primitive triangles, which are sampled more finely in its place (and no preset \
             mip; --upscaling-factor says how finely)",
        )?;
        refuse_unless(
            "optimize.filter_3d",
            !filter_3d,
            filter_3d,
            "false with --primitive triangles, whose vertices have no extent to widen (and no preset mip; \
             --primitive gaussians takes both)",
        )?;
        refuse_unless(
            "optimize.scale_reg",
            scale_reg == 0.0,
            scale_reg,
            "0 with --primitive triangles, whose vertices have no scales",
        )?;
        refuse_unless(
            "densify.absgrad",
            !absgrad,
            absgrad,
            "false with --primitive triangles, which are split by their weights in views",
        )?;
        refuse_unless(
            "densify.target_gaussians",
            target_gaussians.is_none(),
            target_gaussians.unwrap_or_default(),
            "none with --primitive triangles: a vertex that is taken out takes its triangles along (use \
             --max-points)",
        )?;
        refuse_unless(
            "densify.max_points",
            max_points.is_none_or(|most| most >= 3),
            max_points.unwrap_or_default(),
            "3 and more with --primitive triangles: it counts vertices",
        )?;
        let regularize = self.sugar.regularize;
        refuse_unless(
            "sugar.regularize",
            regularize == Regularize::None,
            value_name(&regularize),
            "none with --primitive triangles: the coarse stage needs 3D Gaussians (--primitive gaussians)",
        )?;
        let checkpoint = &self.sugar.checkpoint_path;
        let shown = checkpoint.as_deref().unwrap_or(Path::new("")).display();
        refuse_unless(
            "sugar.checkpoint_path",
            checkpoint.is_none(),
            shown,
            "none with --primitive triangles, which have no coarse stage (--init starts from triangles)",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigLayer, Layers, ResolutionSchedule, StrategyName, resolve};

    fn of(primitive: &str, more: &str) -> Result<Config, ConfigError> {
        let text = format!("optimize.primitive = \"{primitive}\"\n{more}");
        let base = Some(ConfigLayer { origin: "a.toml", text: &text });
        resolve(Layers { base, ..Layers::default() })
    }

    fn surfels(more: &str) -> Result<Config, ConfigError> {
        of("surfels", more)
    }

    fn triangles(more: &str) -> Result<Config, ConfigError> {
        of("triangles", more)
    }

    #[test]
    fn surfels_imply_their_minimum_opacity() {
        let least = |more: &str| surfels(more).unwrap().densify.min_opacity;
        assert_eq!([least(""), least("densify.strategy = \"gof\"")], [0.05; 2]);
        assert_eq!(least("densify.min_opacity = 0.02"), 0.02);
        let usual = Config::default().densify.min_opacity;
        assert_eq!(least("densify.strategy = \"budget\""), usual);
    }

    #[test]
    fn surfel_opacities_must_recover_after_a_reset() {
        // 0.01 is 1.65 of a logit below 0.05, which is 33 steps of 0.05.
        assert!(surfels("densify.densification_interval = 34").is_ok());
        let error = surfels("densify.densification_interval = 32").unwrap_err().to_string();
        assert!(error.contains("--min-opacity") && error.contains("--opacity-lr"), "{error}");
        // Steps of 8 views are an eighth as many, and nearly three times as large.
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

    #[test]
    fn triangles_imply_their_rates_and_schedules() {
        let Config { optimize, densify, triangles, .. } = triangles("").unwrap();
        assert_eq!([optimize.position_lr_init, optimize.position_lr_final], [1.5e-3, 1.5e-5]);
        assert_eq!(optimize.position_lr_by_size, 0.5);
        assert_eq!([optimize.feature_lr, optimize.opacity_lr], [1.6e-3, 0.05]);
        assert_eq!((optimize.init_opacity, densify.max_points), (0.28, None));
        assert_eq!((densify.densification_interval, densify.densify_until_iter), (500, 10_000));
        assert_eq!(optimize.resolution_schedule, ResolutionSchedule::Linear);
        assert_eq!([optimize.depth_l1_weight_init, optimize.depth_l1_weight_final], [0.01, 0.001]);
        assert_eq!(triangles, Config::default().triangles);
    }

    #[test]
    fn indoor_values_can_be_overridden() {
        let more =
            "triangles.indoor = true\noptimize.iterations = 3000\ntriangles.prune_size = 900";
        let Config { optimize, densify, triangles: found, .. } = triangles(more).unwrap();
        assert_eq!([optimize.feature_lr, optimize.depth_l1_weight_init], [4e-3, 0.01]);
        assert_eq!(optimize.position_lr_init, 1.5e-3);
        // They scale with the length of the run too.
        assert_eq!((densify.densify_from_iter, found.start_pruning), (100, 300));
        assert_eq!((found.add_percentage, found.size_probs_zero), (1.27, 0.0));
        assert_eq!((found.split_large_triangles, found.lambda_weight), (500, 0.0));
        assert_eq!(found.prune_size, 900.0);
        // Gaussians have no such values.
        let base = ConfigLayer { origin: "a.toml", text: "triangles.indoor = true" };
        let gaussians = resolve(Layers { base: Some(base), ..Layers::default() }).unwrap();
        assert_eq!(gaussians.optimize, Config::default().optimize);
    }

    #[test]
    fn triangle_schedules_scale_with_the_length() {
        let more = "optimize.iterations = 3000\ntriangles.sigma_until = 30000";
        let Config { optimize, densify, triangles: found, .. } = triangles(more).unwrap();
        assert_eq!((optimize.position_lr_max_steps, optimize.sh_degree_interval), (3000, 100));
        assert_eq!((densify.densify_from_iter, densify.densify_until_iter), (50, 1000));
        assert_eq!((densify.densification_interval, found.opacity_floor_interval), (50, 50));
        assert_eq!((found.sigma_start, found.sigma_until), (0, 30_000));
        assert_eq!((found.start_opacity_floor, found.final_opacity_iter), (500, 2400));
        assert_eq!((found.start_upsampling, found.last_upsampling), (2400, 2800));
        assert_eq!((found.start_pruning, found.delaunay_iter), (400, 0));
        let shortest = triangles("optimize.iterations = 1").unwrap();
        assert_eq!(shortest.densify.densification_interval, 1);
        // A resumed run states every value.
        let stored = shortest.to_toml().unwrap().replace("iterations = 1\n", "iterations = 9\n");
        assert_eq!(Config::from_toml("a.toml", &stored).unwrap().densify, shortest.densify);
    }

    #[test]
    fn primitives_reject_options_of_others() {
        let of_surfels = [
            ("optimize.antialiasing = true", ["--antialiasing", "preset mip"]),
            ("optimize.filter_3d = true", ["--filter-3d", "no third axis"]),
            ("densify.strategy = \"mcmc\"", ["--strategy", "is mcmc; allowed: adc, gof or budget"]),
            ("optimize.scale_reg = 0.01", ["--scale-reg", "allowed: 0 with"]),
            ("sugar.regularize = \"dn-consistency\"", ["--regularize", "is dn-consistency"]),
        ];
        let of_triangles = [
            ("optimize.antialiasing = true", ["--antialiasing", "preset mip"]),
            ("optimize.filter_3d = true", ["--filter-3d", "no extent"]),
            ("optimize.scale_reg = 0.01", ["--scale-reg", "no scales"]),
            ("densify.strategy = \"mcmc\"", ["--strategy", "density control of their own"]),
            ("densify.strategy = \"gof\"", ["--strategy", "density control of their own"]),
            ("densify.strategy = \"budget\"", ["--strategy", "density control of their own"]),
            ("densify.absgrad = true", ["--absgrad", "weights in views"]),
            ("densify.target_gaussians = 9", ["--target-gaussians", "--max-points"]),
            ("densify.max_points = 2", ["--max-points", "3 and more"]),
            ("sugar.regularize = \"density\"", ["--regularize", "is density"]),
            ("sugar.checkpoint_path = \"a\"", ["--checkpoint-path", "--init"]),
            ("triangles.upscaling_factor = 5", ["--upscaling-factor", "1 to 4"]),
            ("triangles.add_percentage = 0.9", ["--add-percentage", "1 and more"]),
        ];
        let of_surfels = of_surfels.map(|(given, names)| ("surfels", given, names));
        let of_triangles = of_triangles.map(|(given, names)| ("triangles", given, names));
        for (primitive, given, names) in of_surfels.into_iter().chain(of_triangles) {
            let error = of(primitive, given).unwrap_err().to_string();
            assert!(names.iter().all(|name| error.contains(name)), "{given}: {error}");
        }
        let mip = resolve(Layers { preset: Some("mip"), ..Layers::default() }).unwrap();
        let mut as_surfels = mip.clone();
        as_surfels.optimize.primitive = PrimitiveName::Surfels;
        assert!(mip.validate().is_ok() && as_surfels.validate().is_err());
    }
}
