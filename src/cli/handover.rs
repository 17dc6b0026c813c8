//! A trained model that SuGaR's coarse stage starts from: its Gaussians and the options of its run.

use std::path::{Path, PathBuf};

use super::cfg_args::{self, CFG_ARGS, KeptFilter, RecordedOptions};
use super::config_text::ConfigText;
use super::exit::UsageError;
use super::file_kind::check_coarse_model;
use super::folder;
use super::held_out::HeldOut;
use crate::config::{Config, SceneOptions, SugarOptions};

/// The iteration of a PLY in a folder without a number: the reference's default.
const USUAL_ITERATION: u32 = 7000;

/// A model to start from.
pub(super) struct Handover {
    /// Its Gaussians.
    pub(super) ply: PathBuf,
    /// The iteration that they are of.
    pub(super) iteration: u32,
    recorded_run: Option<RecordedRun>,
}

/// What is known of the run that a model is of.
struct RecordedRun {
    /// The file that says so.
    path: PathBuf,
    options: RecordedOptions,
}

impl Handover {
    /// The model that the options name, if they do.
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

    /// The options that are kept, as a layer beneath those that are given.
    pub(super) fn kept(&self) -> anyhow::Result<Option<ConfigText>> {
        let Some(RecordedRun { path, options }) = &self.recorded_run else { return Ok(None) };
        Ok(Some(options.layer(path)?))
    }

    /// Fails where a view would be held out that the model was trained on.
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

/// The iteration that a file's folder is named after.
fn iteration_of(ply: &Path) -> Option<u32> {
    ply.parent()?.file_name()?.to_str()?.strip_prefix("iteration_")?.parse().ok()
}

/// The options of a model folder's run: from our own file, or from the one that 3DGS's trainers write.
fn recorded_run(model_path: &Path) -> anyhow::Result<Option<RecordedRun>> {
    if let Some(ConfigText { origin, text }) = folder::read_config(model_path)? {
        let Config { scene, optimize, .. } = Config::from_toml(&origin, &text)?;
        if optimize.exposure || optimize.bilateral_grid {
            tracing::warn!(
                "{origin}: the model was trained with colour changes of the photographs, which are not in \
                 its Gaussians; the coarse stage starts without them"
            );
        }
        // Maps of depths are for training from points.
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
    fn views_that_were_trained_on_are_not_held_out() {
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
    fn a_file_tells_its_iteration_by_its_folder() {
        assert_eq!(iteration_of(Path::new("m/iteration_30000/point_cloud.ply")), Some(30_000));
        assert_eq!(iteration_of(Path::new("m/point_cloud.ply")), None);
    }
}
