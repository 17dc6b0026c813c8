//! What is said of a run's options before it begins.

use clap::{ArgMatches, ValueEnum as _};

use super::parser::is_typed;
use crate::config::{Config, Layers, OptimizeOptions};

/// Names the schedule of a time budget.
pub(super) fn tell_budget(config: &Config) {
    let OptimizeOptions { time_budget: Some(budget), iterations, max_passes, .. } = config.optimize
    else {
        return;
    };
    let strategy = config.densify.strategy.to_possible_value();
    let strategy = strategy.as_ref().map_or("", |strategy| strategy.get_name());
    let most =
        config.densify.max_points.map_or(String::new(), |most| format!(", up to {most} Gaussians"));
    let passes = if max_passes > 0 {
        format!(", at most {max_passes} passes over the views")
    } else {
        String::new()
    };
    tracing::debug!(
        "--time-budget {budget}: a schedule of {iterations} iterations with --strategy {strategy}{most}{passes}"
    );
}

/// Names a default of the processor that the coarse stage takes.
pub(super) fn tell_samples(config: &Config, layers: Layers<'_>, matches: &ArgMatches) {
    let samples = config.sugar.n_samples_for_sdf;
    let usual = Config::default().sugar.n_samples_for_sdf;
    let is_told = is_typed(matches, "n_samples_for_sdf") || samples == usual;
    if layers.on_processor && config.has_coarse_stage() && !is_told {
        tracing::info!("on the CPU: --n-samples-for-sdf {samples}; a GPU takes {usual}");
    }
}

/// Says which preset a new run takes by itself, if it takes one, and how to have the other one.
pub(super) fn tell_usual(usual: Option<&str>) {
    if let Some(preset) = usual {
        tracing::info!(
            "--preset {preset}, the default; --preset reference is 3DGS with its 30,000 iterations"
        );
    }
}

/// Names options that were typed and have no effect, since what they belong to is off.
pub(super) fn warn_of_idle(config: &Config, matches: &ArgMatches) {
    let was_typed = |id: &str| is_typed(matches, id);
    for sentence in config.idle_options(was_typed) {
        tracing::warn!("{sentence}");
    }
}

/// Names iterations that were typed and never come, as the reference trainer's 30,000 in a run that took the usual preset.
pub(super) fn warn_of_late(config: &Config, usual: Option<&str>, matches: &ArgMatches) {
    let last = config.last_iteration();
    let reference = i64::from(Config::default().optimize.iterations);
    let output = &config.output;
    // A length that is given, wherever, lifts the usual preset's passes.
    let has_usual_length = usual.is_some() && config.optimize.min_passes > 0;
    for (id, given) in [
        ("test_iterations", &output.test_iterations),
        ("save_iterations", &output.save_iterations),
        ("checkpoint_iterations", &output.checkpoint_iterations),
    ] {
        let late = given.iter().copied().max().filter(|&iteration| iteration > i64::from(last));
        let Some(late) = late.filter(|_| is_typed(matches, id)) else { continue };
        let remedy = if config.has_coarse_stage() {
            String::new()
        } else if has_usual_length && late <= reference {
            format!(": give --iterations {late}, or --preset reference, which has {reference}")
        } else {
            format!(": give --iterations {late}")
        };
        let flag = id.replace('_', "-");
        tracing::warn!("--{flag} {late} is after the last iteration, {last}{remedy}");
    }
}
