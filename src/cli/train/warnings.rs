//! What is said of a training before it begins.

use crate::backend::Rows as _;
use crate::cli::settle::OF_PIXELS;
use crate::config::{Config, PrimitiveName, TrainingBackground};
use crate::dataset::{AlphaMeaning, Dataset, ImageSource};
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

/// Says what a model grows to, from so many, where that follows from the scene.
pub(super) fn tell_goal(config: &Config, dataset: &Dataset, [now, goal]: [u64; 2]) {
    let is_trained = config.sugar.checkpoint_path.is_some();
    if is_trained || !forecast::has_rounds(config, &*forecast::strategy(config, dataset)) {
        return;
    }
    let (growing, rows) = match config.optimize.primitive {
        PrimitiveName::Triangles => ("growing to at most", "vertices"),
        PrimitiveName::Gaussians | PrimitiveName::Surfels => ("growing to", "Gaussians"),
    };
    if goal > now {
        tracing::info!(
            "{growing} {goal} {rows}, chosen {OF_PIXELS}; --max-points names another number"
        );
    } else {
        tracing::info!(
            "the start has {now} {rows}, as many as the training views have room for, and more are not made; \
             --max-points names another number"
        );
    }
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
        "this run has no round of density control: it ends with the {start} Gaussians that it starts with, \
         and not with --max-points {goal}. Rounds come between --densify-from-iter {} and \
         --densify-until-iter {} or the last iteration, {}, every --densification-interval {}",
        densify.densify_from_iter,
        densify.densify_until_iter,
        config.optimize.iterations,
        densify.densification_interval
    );
}
