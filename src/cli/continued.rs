//! What a run continues: the checkpoint that is named, or the newest of its folder; or the options of
//! a run that stopped before its first checkpoint.

use std::path::{Path, PathBuf};

use clap::ValueEnum as _;

use super::config_text::ConfigText;
use super::exit::{DataError, UsageError};
use super::file_kind::{check_checkpoint, with_ply};
use super::folder;
use super::output::shell_word;
use crate::config::{Config, changes_run, follows_iterations, nearest_preset};
use crate::train::checkpoint::{self, Checkpoint, CheckpointError, StoredCheckpoint};

/// The checkpoint of `--start-checkpoint`.
pub(super) fn named_checkpoint(path: &Path) -> anyhow::Result<StoredCheckpoint> {
    check_checkpoint(path)?;
    let opened = StoredCheckpoint::open(path).map_err(|problem| match problem {
        CheckpointError::Damaged { .. } => {
            let model_path = path.ancestors().nth(2).unwrap_or(path);
            anyhow::Error::from(DataError(format!("{problem}. {}", instead_of(path, model_path))))
        }
        other => other.into(),
    });
    Ok(unbound(path, opened?)?)
}

/// Refuses the checkpoint of a refinement: training would take its Gaussians off their mesh.
fn unbound(path: &Path, checkpoint: StoredCheckpoint) -> Result<StoredCheckpoint, DataError> {
    if !checkpoint.is_bound() {
        return Ok(checkpoint);
    }
    Err(DataError(format!(
        "{}: is a checkpoint of splat refine, whose Gaussians lie on a mesh. The same splat refine \
         continues it; to train its Gaussians without the mesh, {}",
        path.display(),
        with_ply(path, "--init")
    )))
}

/// The newest checkpoint that can be read; damaged ones are skipped with a warning.
pub(super) fn newest_checkpoint(
    model_path: &Path,
) -> anyhow::Result<Option<(PathBuf, StoredCheckpoint)>> {
    folder::check_readable(model_path)?;
    folder::check_readable(&model_path.join("checkpoints"))?;
    let paths = checkpoint::list(model_path);
    let mut first_problem = None;
    for path in &paths {
        match StoredCheckpoint::open(path) {
            Ok(checkpoint) => return Ok(Some((path.clone(), unbound(path, checkpoint)?))),
            Err(
                problem @ (CheckpointError::Damaged { .. } | CheckpointError::Unreadable { .. }),
            ) => {
                tracing::warn!("{problem}");
                first_problem.get_or_insert(problem);
            }
            Err(problem) => return Err(problem.into()),
        }
    }
    if let Some(problem) = first_problem {
        let which = match paths.len() {
            1 => "the model folder's only checkpoint cannot be used",
            _ => "none of the model folder's checkpoints can be used",
        };
        let remedy = without_checkpoint(model_path);
        return Err(DataError(format!("{which}: {problem}. {remedy}")).into());
    }
    tracing::info!("{} has no checkpoint; training starts", model_path.display());
    Ok(None)
}

/// The options of a run that stopped before its first checkpoint.
pub(super) fn earlier_options(model_path: &Path) -> anyhow::Result<Option<ConfigText>> {
    let Some(earlier) = folder::read_config(model_path)? else { return Ok(None) };
    let mut options = Config::from_toml(&earlier.origin, &earlier.text)?;
    if options.sugar.checkpoint_path.is_some() {
        // The PLY of -c, which is looked for again.
        options.optimize.init = None;
    }
    tracing::info!("the options of {} are kept", earlier.origin);
    Ok(Some(ConfigText { text: options.to_toml()?, ..earlier }))
}

/// What to use instead of a damaged checkpoint.
fn instead_of(damaged: &Path, model_path: &Path) -> String {
    let others = checkpoint::list(model_path);
    let is_whole = |path: &&PathBuf| {
        path.file_name() != damaged.file_name() && StoredCheckpoint::open(path).is_ok()
    };
    match others.iter().find(is_whole) {
        Some(other) => format!("Use --start-checkpoint {}", shell_word(other)),
        None => without_checkpoint(model_path),
    }
}

/// What to do where no checkpoint is whole.
fn without_checkpoint(model_path: &Path) -> String {
    match folder::point_clouds(model_path).last() {
        Some((_, ply)) => format!(
            "Train again without it, or start from the Gaussians that were saved with --init {}",
            shell_word(ply)
        ),
        None => "Train again without it".to_owned(),
    }
}

/// Where a run that has iterations left may train on no more images, or for no more time, one step would do them all.
pub(super) fn refuse_spent(
    path: &Path,
    about: &Checkpoint,
    now: &Config,
) -> Result<(), UsageError> {
    let (options, before) = (&now.optimize, &about.config.optimize);
    // With the options that it had, a last step is left at most.
    let is_same = options.iterations == before.iterations
        && options.max_passes == before.max_passes
        && options.time_budget == before.time_budget;
    if is_same || about.iteration >= options.iterations {
        return Ok(());
    }
    let (path, passed) = (path.display(), about.progress());
    let views = about.train_views.len() as u64;
    // Later, few views may raise the limit.
    let passes =
        if options.max_passes > 0 { options.max_passes.max(options.few_view_passes) } else { 0 };
    if passes > 0 && u64::from(passed.images) >= u64::from(passes) * views {
        return Err(UsageError(format!(
            "{path}: --max-passes {passes} allows no more than the {} images done ({views} views). Give a larger \
             number, or 0 for no limit",
            passed.images
        )));
    }
    match options.time_budget {
        Some(budget) if passed.seconds >= budget.seconds() => Err(UsageError(format!(
            "{path}: the run has trained for {:.1} s, and --time-budget {budget} is over. To train on, give a \
             longer time",
            passed.seconds
        ))),
        _ => Ok(()),
    }
}

/// The schedules of a preset that follow the length of a run stay where they were when it is made longer
/// without the preset.
pub(super) fn warn_of_longer(before: &Config, now: &Config, preset: Option<&str>) {
    let (iterations, longer) = (before.optimize.iterations, now.optimize.iterations);
    let share = now.optimize.final_lr_share;
    if preset.is_some_and(follows_iterations) || share == 1.0 || longer <= iterations {
        return;
    }
    tracing::warn!(
        "--iterations {longer} continues a schedule of {iterations}: learning rates rise again (--final-lr-share \
         {share}). To stretch the schedule instead: --preset {} --iterations {longer}",
        nearest_preset(before).unwrap_or("fast")
    );
}

/// Warns of a preset that replaces options of a run that began with others.
pub(super) fn warn_of_other_preset(before: &Config, preset: Option<&str>) {
    let Some(preset) = preset.filter(|preset| changes_run(preset, before)) else { return };
    let earlier = nearest_preset(before)
        .map_or_else(|| "other options".to_owned(), |earlier| format!("--preset {earlier}"));
    tracing::warn!(
        "--preset {preset} replaces options of a run that began with {earlier}. To keep them, leave --preset out"
    );
}

/// What a run is made of stays what it is.
pub(super) fn keep_primitive(path: &Path, before: &Config, now: &Config) -> Result<(), UsageError> {
    let name = |config: &Config| {
        let value = config.optimize.primitive.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    };
    let (before, now) = (name(before), name(now));
    if before == now {
        return Ok(());
    }
    Err(UsageError(format!(
        "{}: the run trains {before} and cannot continue with --primitive {now}. To start another run from \
         them, use --init with its point_cloud.ply",
        path.display()
    )))
}
