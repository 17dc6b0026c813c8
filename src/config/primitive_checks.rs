//! What is made for one kind of primitive, and refused of another.

use std::path::Path;

use clap::ValueEnum as _;

use super::validate::named;
use super::values::holds;
use super::{
    Config, ConfigError, DensifyOptions, OptimizeOptions, PrimitiveName, Regularize, StrategyName,
    SugarOptions,
};

impl Config {
    /// Checks that nothing is asked of surfels that is made for Gaussians with a volume.
    pub(super) fn check_surfels(&self) -> Result<(), ConfigError> {
        if self.optimize.primitive != PrimitiveName::Surfels {
            return Ok(());
        }
        let OptimizeOptions { antialiasing, filter_3d, scale_reg, .. } = self.optimize;
        let antialiasing = holds(
            !antialiasing,
            antialiasing,
            "false with --primitive surfels, which have a filter of their own on the screen (and no preset \
             mip; --primitive gaussians takes both)",
        );
        named(OptimizeOptions::NAME, "antialiasing", antialiasing)?;
        let filter_3d = holds(
            !filter_3d,
            filter_3d,
            "false with --primitive surfels, which have no third axis to widen (and no preset mip; \
             --primitive gaussians takes both)",
        );
        named(OptimizeOptions::NAME, "filter_3d", filter_3d)?;
        let strategy = self.densify.strategy;
        let name = strategy.to_possible_value();
        let strategy = holds(
            !strategy.moves_at_random(),
            name.as_ref().map_or("", |name| name.get_name()),
            "adc, gof or budget with --primitive surfels: the noise and the regularisers of mcmc are about \
             the volumes of 3D Gaussians",
        );
        named(DensifyOptions::NAME, "strategy", strategy)?;
        let scale_reg = holds(
            scale_reg == 0.0,
            scale_reg,
            "0 with --primitive surfels: the mean of the scales includes the third, which they have not",
        );
        named(OptimizeOptions::NAME, "scale_reg", scale_reg)?;
        let regularize = self.sugar.regularize;
        let name = regularize.to_possible_value();
        let regularize = holds(
            regularize == Regularize::None,
            name.as_ref().map_or("", |name| name.get_name()),
            "none with --primitive surfels: the terms of the coarse stage are about the density of 3D \
             Gaussians, and surfels are flat already (--primitive gaussians takes them)",
        );
        named(SugarOptions::NAME, "regularize", regularize)
    }

    /// Checks that nothing is asked of triangles that only Gaussians have.
    pub(super) fn check_triangles(&self) -> Result<(), ConfigError> {
        if self.optimize.primitive != PrimitiveName::Triangles {
            return Ok(());
        }
        let OptimizeOptions { antialiasing, filter_3d, scale_reg, .. } = self.optimize;
        let DensifyOptions { strategy, absgrad, target_gaussians, max_points, .. } = self.densify;
        // First: a strategy brings values of other options.
        let name = strategy.to_possible_value();
        let strategy = holds(
            strategy == StrategyName::Adc,
            name.as_ref().map_or("", |name| name.get_name()),
            "none, or adc, with --primitive triangles, which have density control of their own: see \
             --add-percentage and --prune-triangles-threshold",
        );
        named(DensifyOptions::NAME, "strategy", strategy)?;
        let antialiasing = holds(
            !antialiasing,
            antialiasing,
            "false with --primitive triangles, which are sampled more finely in its place (and no preset \
             mip; --upscaling-factor says how finely)",
        );
        named(OptimizeOptions::NAME, "antialiasing", antialiasing)?;
        let filter_3d = holds(
            !filter_3d,
            filter_3d,
            "false with --primitive triangles, whose vertices have no extent to widen (and no preset mip; \
             --primitive gaussians takes both)",
        );
        named(OptimizeOptions::NAME, "filter_3d", filter_3d)?;
        let scale_reg = holds(
            scale_reg == 0.0,
            scale_reg,
            "0 with --primitive triangles, whose vertices have no scales",
        );
        named(OptimizeOptions::NAME, "scale_reg", scale_reg)?;
        let absgrad = holds(
            !absgrad,
            absgrad,
            "false with --primitive triangles, which are split by their weights in views",
        );
        named(DensifyOptions::NAME, "absgrad", absgrad)?;
        let target = holds(
            target_gaussians.is_none(),
            target_gaussians.unwrap_or_default(),
            "none with --primitive triangles: a vertex that is taken out takes its triangles along (use \
             --max-points)",
        );
        named(DensifyOptions::NAME, "target_gaussians", target)?;
        let max_points = holds(
            max_points.is_none_or(|most| most >= 3),
            max_points.unwrap_or_default(),
            "3 and more with --primitive triangles: it counts vertices",
        );
        named(DensifyOptions::NAME, "max_points", max_points)?;
        let regularize = self.sugar.regularize;
        let name = regularize.to_possible_value();
        let regularize = holds(
            regularize == Regularize::None,
            name.as_ref().map_or("", |name| name.get_name()),
            "none with --primitive triangles: the coarse stage needs 3D Gaussians (--primitive gaussians)",
        );
        named(SugarOptions::NAME, "regularize", regularize)?;
        let checkpoint = &self.sugar.checkpoint_path;
        let shown = checkpoint.as_deref().unwrap_or(Path::new("")).display();
        let checkpoint = holds(
            checkpoint.is_none(),
            shown,
            "none with --primitive triangles, which have no coarse stage (--init starts from triangles)",
        );
        named(SugarOptions::NAME, "checkpoint_path", checkpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ConfigLayer, Layers, ResolutionSchedule, resolve};
    use super::*;

    fn surfels(more: &str) -> Result<Config, ConfigError> {
        let text = format!("optimize.primitive = \"surfels\"\n{more}");
        let base = Some(ConfigLayer { origin: "a.toml", text: &text });
        resolve(Layers { base, ..Layers::default() })
    }

    #[test]
    fn surfels_refuse_what_is_for_gaussians_with_a_volume() {
        for (given, names) in [
            ("optimize.antialiasing = true", ["--antialiasing", "preset mip"]),
            ("optimize.filter_3d = true", ["--filter-3d", "no third axis"]),
            ("densify.strategy = \"mcmc\"", ["--strategy", "is mcmc; allowed: adc, gof or budget"]),
            ("optimize.scale_reg = 0.01", ["--scale-reg", "allowed: 0 with"]),
            ("sugar.regularize = \"dn-consistency\"", ["--regularize", "is dn-consistency"]),
        ] {
            let error = surfels(given).unwrap_err().to_string();
            assert!(names.iter().all(|name| error.contains(name)), "{given}: {error}");
        }
        let mip = resolve(Layers { preset: Some("mip"), ..Layers::default() }).unwrap();
        let mut as_surfels = mip.clone();
        as_surfels.optimize.primitive = PrimitiveName::Surfels;
        assert!(mip.validate().is_ok() && as_surfels.validate().is_err());
    }

    fn triangles(more: &str) -> Result<Config, ConfigError> {
        let text = format!("optimize.primitive = \"triangles\"\n{more}");
        let base = Some(ConfigLayer { origin: "a.toml", text: &text });
        resolve(Layers { base, ..Layers::default() })
    }

    #[test]
    fn triangles_bring_rates_and_rounds_of_their_own() {
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
    fn triangles_in_rooms_bring_values_that_options_still_override() {
        let more =
            "triangles.indoor = true\noptimize.iterations = 3000\ntriangles.prune_size = 900";
        let Config { optimize, densify, triangles: found, .. } = triangles(more).unwrap();
        assert_eq!([optimize.feature_lr, optimize.depth_l1_weight_init], [4e-3, 0.01]);
        assert_eq!(optimize.position_lr_init, 1.5e-3);
        // They follow the length of the run, too.
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
    fn schedules_of_triangles_follow_the_length_of_the_run() {
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
        // Of a run that goes on, every value is given.
        let stored = shortest.to_toml().unwrap().replace("iterations = 1\n", "iterations = 9\n");
        assert_eq!(Config::from_toml("a.toml", &stored).unwrap().densify, shortest.densify);
    }

    #[test]
    fn triangles_refuse_what_is_for_gaussians() {
        for (given, names) in [
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
        ] {
            let error = triangles(given).unwrap_err().to_string();
            assert!(names.iter().all(|name| error.contains(name)), "{given}: {error}");
        }
    }
}
