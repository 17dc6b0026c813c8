//! Sources that a run continues from: a named checkpoint, the newest checkpoint of its folder, or the options of
//! a run that stopped before its first checkpoint.

use std::path::{Path, PathBuf};

use super::cfg_args::{self, CFG_ARGS, ConfigText, KeptFilter, RecordedOptions};
use super::exit::{DataError, UsageError};
use super::file_kind::{check_checkpoint, check_coarse_model, with_ply};
use super::folder;
use super::held_out::HeldOut;
use super::output::shell_word;
use crate::config::{
    Config, SceneOptions, SugarOptions, changes_run, follows_iterations, nearest_preset, value_name,
};
use crate::dataset::Dataset;
use crate::train::checkpoint::{self, Checkpoint, CheckpointError, StoredCheckpoint};

/// Opens the checkpoint of `--start-checkpoint`.
pub(super) fn named_checkpoint(path: &Path) -> anyhow::Result<StoredCheckpoint> {
    check_checkpoint(path)?;
    let opened = StoredCheckpoint::open(path).map_err(|problem| match problem {
        CheckpointError::Damaged { .. } => {
            let model_path = path.ancestors().nth(2).unwrap_or(path);
            anyhow::Error::from(DataError(format!("{problem}. {}", use_instead(path, model_path))))
        }
        other => other.into(),
    });
    Ok(check_unbound(path, opened?)?)
}

/// Rejects the checkpoint of a refinement, because training would move its Gaussians off the mesh.
fn check_unbound(path: &Path, checkpoint: StoredCheckpoint) -> Result<StoredCheckpoint, DataError> {
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

/// Opens the newest readable checkpoint. Damaged checkpoints are skipped with a warning.
pub(super) fn newest_checkpoint(
    model_path: &Path,
) -> anyhow::Result<Option<(PathBuf, StoredCheckpoint)>> {
    folder::check_readable(model_path)?;
    folder::check_readable(&model_path.join("checkpoints"))?;
    let paths = checkpoint::list(model_path);
    let mut first_problem = None;
    for path in &paths {
        match StoredCheckpoint::open(path) {
            Ok(checkpoint) => {
                return Ok(Some((path.clone(), check_unbound(path, checkpoint)?)));
            }
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
        let remedy = restart_advice(model_path);
        return Err(DataError(format!("{which}: {problem}. {remedy}")).into());
    }
    tracing::info!("{} has no checkpoint; training starts", model_path.display());
    Ok(None)
}

/// Returns the options of a run that stopped before its first checkpoint.
pub(super) fn earlier_options(model_path: &Path) -> anyhow::Result<Option<ConfigText>> {
    let Some(earlier) = folder::read_config(model_path)? else { return Ok(None) };
    let mut options = Config::from_toml(&earlier.origin, &earlier.text)?;
    if options.sugar.checkpoint_path.is_some() {
        // `-c` finds the PLY again.
        options.optimize.init = None;
    }
    tracing::info!("the options of {} are kept", earlier.origin);
    Ok(Some(ConfigText { text: options.to_toml()?, ..earlier }))
}

/// Returns advice that replaces a damaged checkpoint.
fn use_instead(damaged: &Path, model_path: &Path) -> String {
    let others = checkpoint::list(model_path);
    let is_whole = |path: &&PathBuf| {
        path.file_name() != damaged.file_name() && StoredCheckpoint::open(path).is_ok()
    };
    match others.iter().find(is_whole) {
        Some(other) => format!("Use --start-checkpoint {}", shell_word(other)),
        None => restart_advice(model_path),
    }
}

/// Returns advice for a folder without a usable checkpoint.
fn restart_advice(model_path: &Path) -> String {
    match folder::point_clouds(model_path).last() {
        Some((_, ply)) => format!(
            "Train again without it, or start from the Gaussians that were saved with --init {}",
            shell_word(ply)
        ),
        None => "Train again without it".to_owned(),
    }
}

/// Rejects a resumed run whose limit of images or of time is already reached.
pub(super) fn check_iterations_left(
    path: &Path,
    about: &Checkpoint,
    now: &Config,
) -> Result<(), UsageError> {
    let (options, before) = (&now.optimize, &about.config.optimize);
    // With unchanged options at most the last step is left.
    let is_same = options.iterations == before.iterations
        && options.max_passes == before.max_passes
        && options.time_budget == before.time_budget;
    if is_same || about.iteration >= options.iterations {
        return Ok(());
    }
    let (path, passed) = (path.display(), about.progress());
    let photographs = about.train_views.len();
    let pseudo = if about.config.distils() { Dataset::pseudo_views_of(photographs) } else { 0 };
    let views = (photographs + pseudo) as u64;
    // A run with few views may raise the limit.
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

/// Warns if a run is made longer without its preset, because the preset's schedules keep the old length.
pub(super) fn warn_about_longer(before: &Config, now: &Config, preset: Option<&str>) {
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

/// Warns if a preset replaces options that the run began with.
pub(super) fn warn_about_other_preset(before: &Config, preset: Option<&str>) {
    let Some(preset) = preset.filter(|preset| changes_run(preset, before)) else { return };
    let earlier = nearest_preset(before)
        .map_or_else(|| "other options".to_owned(), |earlier| format!("--preset {earlier}"));
    tracing::warn!(
        "--preset {preset} replaces options of a run that began with {earlier}. To keep them, leave --preset out"
    );
}

/// Rejects a change of the primitive between the checkpoint and now.
pub(super) fn keep_primitive(path: &Path, before: &Config, now: &Config) -> Result<(), UsageError> {
    let (before, now) = (before.optimize.primitive, now.optimize.primitive);
    if before == now {
        return Ok(());
    }
    let (before, now) = (value_name(&before), value_name(&now));
    Err(UsageError(format!(
        "{}: the run trains {before} and cannot continue with --primitive {now}. To start another run from \
         them, use --init with its point_cloud.ply",
        path.display()
    )))
}

// Trained model that SuGaR's coarse stage starts from.

/// Iteration of a PLY whose folder has no number: the reference's default.
const USUAL_ITERATION: u32 = 7000;

/// Trained model to start from.
pub(super) struct Handover {
    pub(super) ply: PathBuf,
    pub(super) iteration: u32,
    recorded_run: Option<RecordedRun>,
}

/// Recorded options of the model's run.
struct RecordedRun {
    /// File that records the options.
    path: PathBuf,
    options: RecordedOptions,
}

impl Handover {
    /// Returns the model that the options name, if any.
    pub(super) fn find(options: &SugarOptions) -> anyhow::Result<Option<Self>> {
        let Some(path) = &options.checkpoint_path else { return Ok(None) };
        check_coarse_model(path)?;
        if path.is_file() {
            let iteration = options.iteration_to_load.or_else(|| iteration_of(path));
            let iteration = iteration.unwrap_or(USUAL_ITERATION);
            return Ok(Some(Self { ply: path.clone(), iteration, recorded_run: None }));
        }
        let (iteration, ply) = folder::point_cloud(path, options.iteration_to_load)?;
        Ok(Some(Self { ply, iteration, recorded_run: recorded_run(path)? }))
    }

    /// Returns the recorded options as a layer with lower priority than the command line.
    pub(super) fn kept(&self) -> anyhow::Result<Option<ConfigText>> {
        let Some(RecordedRun { path, options }) = &self.recorded_run else { return Ok(None) };
        Ok(Some(options.layer(path)?))
    }

    /// Returns an error if a held-out view was a training view of the model.
    pub(super) fn check_split(&self, now: &SceneOptions) -> Result<(), UsageError> {
        if !now.eval {
            return Ok(());
        }
        let Some(RecordedRun { path, options }) = &self.recorded_run else {
            tracing::warn!(
                "{}: it is unknown which views it was trained on; figures of held-out views are \
                 meaningful only if it has not seen those of {}",
                self.ply.display(),
                HeldOut::of(now).flag()
            );
            return Ok(());
        };
        let before = &options.scene;
        if HeldOut::of(before) == HeldOut::of(now) {
            if path.ends_with(CFG_ARGS) {
                tracing::warn!(
                    "{}: views were held out, but the file does not say which; 3DGS's own trainer holds \
                     out every 8th by name",
                    path.display()
                );
            }
            return Ok(());
        }
        let before = HeldOut::of(before);
        let (was, remedy) = (before.of_training(), before.flag());
        Err(UsageError(format!(
            "{}: the model was trained with {was} and has seen views that {} holds out. Use {remedy}, or \
             train the model again",
            path.display(),
            HeldOut::of(now).flag()
        )))
    }
}

/// Parses the iteration from the name of a file's folder.
fn iteration_of(ply: &Path) -> Option<u32> {
    ply.parent()?.file_name()?.to_str()?.strip_prefix("iteration_")?.parse().ok()
}

/// Reads the options of a model folder from `config.toml` or from 3DGS's `cfg_args`.
fn recorded_run(model_path: &Path) -> anyhow::Result<Option<RecordedRun>> {
    if let Some(ConfigText { origin, text }) = folder::read_config(model_path)? {
        let Config { scene, optimize, .. } = Config::from_toml(&origin, &text)?;
        if optimize.exposure || optimize.bilateral_grid {
            tracing::warn!(
                "{origin}: the model was trained with colour changes of the photographs, which are not in \
                 its Gaussians; the coarse stage starts without them"
            );
        }
        // Depth maps are only for training from points.
        let scene = SceneOptions { depths: None, ..scene };
        let filter =
            KeptFilter { antialiasing: optimize.antialiasing, kernel_size: optimize.kernel_size };
        let options = RecordedOptions { scene, optimize: filter };
        return Ok(Some(RecordedRun { path: PathBuf::from(origin), options }));
    }
    let options = cfg_args::read(model_path)?;
    Ok(options.map(|options| RecordedRun { path: model_path.join(CFG_ARGS), options }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TestList;

    #[test]
    fn training_views_are_not_held_out() {
        let model = |eval, test_every| {
            let scene = SceneOptions { eval, test_every, ..SceneOptions::default() };
            let options = RecordedOptions { scene, ..RecordedOptions::default() };
            Handover {
                ply: "a.ply".into(),
                iteration: 7,
                recorded_run: Some(RecordedRun { path: "cfg_args".into(), options }),
            }
        };
        let now = SceneOptions { eval: true, ..SceneOptions::default() };
        assert!(model(true, 8).check_split(&now).is_ok());
        assert!(model(false, 8).check_split(&SceneOptions::default()).is_ok());
        let error = model(false, 8).check_split(&now).expect_err("all views were seen").0;
        assert!(error.contains("--eval false"), "{error}");
        let error = model(true, 7).check_split(&now).expect_err("other views were held out").0;
        assert!(error.contains("Use --eval --test-every 7"), "{error}");
        let listed = |name: &str| {
            let test_list = Some(TestList::Names(vec![name.to_owned()]));
            SceneOptions { eval: true, test_list, ..SceneOptions::default() }
        };
        let mut before = model(true, 8);
        before.recorded_run.iter_mut().for_each(|run| run.options.scene = listed("a.png"));
        assert!(before.check_split(&listed("a.png")).is_ok());
        let error = before.check_split(&listed("b.png")).expect_err("it has seen b.png").0;
        assert!(error.contains("Use a --test-list of 1 view"), "{error}");
    }

    #[test]
    fn the_iteration_comes_from_the_folder_name() {
        assert_eq!(iteration_of(Path::new("m/iteration_30000/point_cloud.ply")), Some(30_000));
        assert_eq!(iteration_of(Path::new("m/point_cloud.ply")), None);
    }
}
