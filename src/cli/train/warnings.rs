//! What is said of a training before it begins.

use crate::backend::Rows as _;
use crate::config::{Config, PrimitiveName, TrainingBackground};
use crate::dataset::{AlphaMeaning, Dataset, ImageSource};
use crate::telemetry::grouped;
use crate::train::checkpoint::StoredCheckpoint;
use crate::train::forecast;

/// Photographs that are blended over one colour teach the model that colour.
pub(super) fn warn_of_background(dataset: &Dataset, config: &Config) {
    let blended = |source: &ImageSource| matches!(source.alpha, AlphaMeaning::BlendOver(_));
    let flag = if config.optimize.random_background {
        "--random-background"
    } else if config.densify.training_background == TrainingBackground::Grey {
        "--training-background grey"
    } else {
        return;
    };
    if dataset.sources.iter().any(blended) {
        tracing::warn!(
            "{flag}: the photographs' transparent parts are blended over one colour, \
             and the model will learn to be opaque there"
        );
    }
}

/// A smaller `--max-points` than the checkpoint has Gaussians stops their growth and no more.
pub(super) fn warn_of_cap(checkpoint: &StoredCheckpoint, config: &Config) {
    let found = checkpoint.len();
    if let Some(cap) = config.densify.max_points.filter(|&cap| cap < found as u64) {
        tracing::warn!(
            "the checkpoint has {found} Gaussians, more than --max-points {cap}: none are removed \
             for that, and none are added"
        );
    }
}

/// Number of Gaussians of a run.
pub(super) struct Growth {
    /// At the start.
    pub(super) now: u64,
    /// Most that they grow to, if it follows from the photographs.
    pub(super) goal: Option<u64>,
    /// Preset that the run took by itself.
    pub(super) preset: Option<&'static str>,
    /// Number of training views.
    pub(super) views: u32,
}

/// Prints the first line of a run: length, growth and preset.
pub(super) fn tell_run(config: &Config, dataset: &Dataset, growth: &Growth) {
    let is_trained = config.sugar.checkpoint_path.is_some();
    let grows = !is_trained && forecast::has_rounds(config, &*forecast::strategy(config, dataset));
    let line = run_line(config, &Growth { goal: growth.goal.filter(|_| grows), ..*growth });
    tracing::info!(is_headline = true, "{line}");
}

fn run_line(config: &Config, &Growth { now, goal, preset, views }: &Growth) -> String {
    let number = |count: u64| grouped(usize::try_from(count).unwrap_or(usize::MAX));
    let iterations = |count: u32| format!("{} iterations", number(count.into()));
    let length = match config.optimize.time_budget {
        Some(budget) => format!("{budget} of training"),
        None if config.has_coarse_stage() => format!(
            "{}, coarse stage to {}",
            iterations(config.optimize.iterations),
            number(config.last_iteration().into())
        ),
        None => {
            let (all, images) = (config.optimize.iterations, config.optimize.images(views));
            // Limits of passes shorten or lengthen the run.
            let images = match images == all {
                true => String::new(),
                false => format!(" ({} images)", number(images.into())),
            };
            format!("{}{images}", iterations(all))
        }
    };
    let rows = match config.optimize.primitive {
        PrimitiveName::Triangles => "vertices",
        PrimitiveName::Gaussians | PrimitiveName::Surfels => "Gaussians",
    };
    let growth = match goal {
        Some(goal) if goal > now => format!(", up to {} {rows}", number(goal)),
        Some(_) => format!(", {} {rows} throughout (raise --max-points)", number(now)),
        None => String::new(),
    };
    let preset = preset.map_or(String::new(), |preset| format!(" (--preset {preset})"));
    format!("{length}{growth}{preset}")
}

/// Nobody who names a number of Gaussians should get another without a word.
pub(super) fn warn_of_no_rounds(config: &Config, dataset: &Dataset, start: u64) {
    let densify = &config.densify;
    let goal =
        densify.max_points.filter(|&goal| densify.strategy.grows_to_a_number() && goal > start);
    let is_trained = config.sugar.checkpoint_path.is_some();
    let Some(goal) = goal.filter(|_| !is_trained) else { return };
    if forecast::has_rounds(config, &*forecast::strategy(config, dataset)) {
        return;
    }
    tracing::warn!(
        "--max-points {goal} is not reached: no densification step falls between --densify-from-iter {} and \
         iteration {}; the run keeps its {start} Gaussians",
        densify.densify_from_iter,
        densify.densify_until_iter.min(config.optimize.iterations)
    );
}

#[cfg(test)]
pub(in crate::cli) mod tests {
    use super::*;

    /// First lines of runs.
    pub(in crate::cli) fn samples() -> Vec<String> {
        let mut config = Config::default();
        config.optimize.iterations = 6000;
        let growth = |goal, preset| Growth { now: 12_449, goal, preset, views: 26 };
        let mut lines = vec![
            run_line(&config, &growth(Some(246_768), Some("fast"))),
            run_line(&config, &growth(Some(12_449), None)),
            run_line(&config, &growth(None, None)),
        ];
        config.optimize.max_passes = 100;
        lines.push(run_line(&config, &growth(Some(246_768), Some("fast"))));
        config.optimize.max_passes = 0;
        config.optimize.time_budget = "90s".parse().ok();
        lines.push(run_line(&config, &growth(Some(246_768), Some("fast"))));
        config.optimize.time_budget = None;
        config.sugar.regularize = crate::config::Regularize::Density;
        lines.push(run_line(&config, &growth(None, None)));
        config.sugar.regularize = crate::config::Regularize::None;
        config.optimize.primitive = PrimitiveName::Triangles;
        lines.push(run_line(&config, &growth(Some(879_106), None)));
        lines
    }

    #[test]
    fn the_first_line_names_length_growth_and_preset() {
        let lines = samples();
        assert_eq!(lines[0], "6,000 iterations, up to 246,768 Gaussians (--preset fast)");
        let short = "6,000 iterations (2,600 images), up to 246,768 Gaussians (--preset fast)";
        assert_eq!(lines[3], short);
        assert!(lines.iter().all(|line| line.len() <= 80), "{lines:#?}");
    }
}
