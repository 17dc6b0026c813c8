//! The model folder: where it is, what is in it, and what happens to what was there before.

use std::fs;
use std::path::{Path, PathBuf};

use super::cfg_args::{self, CFG_ARGS, ConfigText};
use super::exit::DataError;
use super::held_out::{TRAINED_VIEWS, TrainedViews};
use crate::config::{Config, ConfigError};
use crate::dataset::points_ply::write_points_ply;
use crate::dataset::{Dataset, PointCloud};
use crate::export::{write_cameras_json, write_cfg_args};
use crate::files::{
    OutputError, create_folder, entry_refusal, listing_refusal, numbered, remove_abandoned,
    write_text,
};
use crate::telemetry::TIMELAPSE;

/// The model that `splat clean` leaves in a model folder, where no other place is named.
pub(super) const CLEANED: &str = "clean";

/// What that says of its work.
pub(super) const CLEANING: &str = "clean.json";

/// What a run leaves in its folder, besides renders and TensorBoard's files.
const RESULTS: [&str; 19] = [
    "checkpoints",
    "point_cloud",
    "results.json",
    "per_view.json",
    "metrics.csv",
    "run.jsonl",
    "summary.json",
    "config.toml",
    "cfg_args",
    "cameras.json",
    TRAINED_VIEWS,
    "exposure.json",
    "geometry.json",
    "mesh_images.json",
    "mesh_images",
    "input.ply",
    CLEANED,
    CLEANING,
    TIMELAPSE,
];

/// The folder of a run for which none was given: `output/` and the experiment's or scene's name,
/// with a number where that is taken. A run without a named scene trains the one in the working
/// directory.
pub(super) fn default_path(config: &Config, resuming: bool) -> PathBuf {
    let scene = config.scene.source_path.as_deref().unwrap_or(Path::new("."));
    let scene = scene.canonicalize().unwrap_or_else(|_| scene.to_owned());
    let name = config
        .output
        .experiment_name
        .clone()
        .or_else(|| Some(scene.file_name()?.to_string_lossy().into_owned()))
        .unwrap_or_else(|| "model".to_owned());
    let first = Path::new("output").join(&name);
    if resuming || !first.exists() {
        return first;
    }
    (2_u32..)
        .map(|number| Path::new("output").join(format!("{name}-{number}")))
        .find(|path| !path.exists())
        .unwrap_or(first)
}

/// True if this checkpoint is one of the model folder's own.
pub(super) fn holds(model_path: &Path, checkpoint: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    let folder = checkpoint.parent().and_then(real);
    folder.is_some() && folder == real(&model_path.join("checkpoints"))
}

/// Removes what killed programs had not finished writing beside their results.
pub(super) fn sweep(model_path: &Path) {
    let mut folders = entries(model_path, "point_cloud", "iteration_");
    folders.extend(entries(model_path, "mesh", "iteration_"));
    for split in ["train", "test"] {
        for renders in entries(model_path, split, "ours_") {
            folders.extend(["renders", "gt"].map(|kind| renders.join(kind)));
        }
    }
    folders.extend(["", "checkpoints"].map(PathBuf::from));
    for folder in folders {
        remove_abandoned(&model_path.join(folder));
    }
}

/// True if a run has left anything in this folder.
pub(super) fn holds_run(model_path: &Path) -> bool {
    ["checkpoints", "point_cloud", "run.jsonl"].iter().any(|name| model_path.join(name).exists())
}

/// Moves the results of an earlier run into `previous_N/`, so that neither is taken for the other:
/// a resumed run must not find the checkpoints of another.
pub(super) fn set_aside(model_path: &Path) -> Result<Option<PathBuf>, OutputError> {
    if !holds_run(model_path) {
        return Ok(None);
    }
    let Some(aside) = (1_u32..)
        .map(|number| model_path.join(format!("previous_{number}")))
        .find(|path| !path.exists())
    else {
        return Ok(None);
    };
    create_folder(&aside)?;
    let mut names: Vec<PathBuf> = RESULTS.iter().map(PathBuf::from).collect();
    names.extend(entries(model_path, "", "events.out.tfevents."));
    for folder in ["mesh", "refined"] {
        names.extend(entries(model_path, folder, "iteration_"));
    }
    // Not these folders whole: photographs may lie in them, where a scene is its own model folder.
    for split in ["train", "test"] {
        names.extend(entries(model_path, split, "ours_"));
    }
    for name in names {
        let (from, to) = (model_path.join(&name), aside.join(&name));
        if from.exists() {
            to.parent().map_or(Ok(aside.clone()), create_folder)?;
            fs::rename(&from, to).map_err(|source| OutputError::new(&from, source))?;
        }
    }
    for folder in ["train", "test", "mesh", "refined"] {
        // Only where nothing is left in it.
        fs::remove_dir(model_path.join(folder)).ok();
    }
    Ok(Some(aside))
}

/// What begins with `prefix` in a folder below the model folder, as paths relative to the latter.
fn entries(model_path: &Path, below: impl AsRef<Path>, prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(model_path.join(&below)) else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix))
        .map(|name| below.as_ref().join(name))
        .collect()
}

/// Writes what other tools look for in a model folder, the configuration and the views that are
/// trained on. `points` are those that the Gaussians start from; a resumed run keeps its first record
/// of them.
pub(super) fn describe(
    model_path: &Path,
    config: &Config,
    dataset: &Dataset,
    points: &PointCloud,
    trained: &TrainedViews,
    goes_on: bool,
) -> anyhow::Result<()> {
    write_text(&model_path.join("config.toml"), &config.to_toml()?)?;
    trained.write(model_path)?;
    write_cfg_args(model_path, config)?;
    write_cameras_json(model_path, dataset)?;
    let input = model_path.join("input.ply");
    if !goes_on || !input.exists() {
        write_points_ply(&input, points, &dataset.frame)?;
    }
    Ok(())
}

/// `config.toml` of a trained model, if there is one.
pub(super) fn read_config(model_path: &Path) -> Result<Option<ConfigText>, ConfigError> {
    let path = model_path.join("config.toml");
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(ConfigText { origin: path.display().to_string(), text })),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ConfigError::Unreadable { path, source }),
    }
}

/// Options of a trained model: `config.toml`, or else the `cfg_args` of another trainer.
pub(super) fn read_options(model_path: &Path) -> anyhow::Result<Option<ConfigText>> {
    if let Some(text) = read_config(model_path)? {
        return Ok(Some(text));
    }
    let recorded = cfg_args::read(model_path)?;
    recorded.map(|options| options.layer(&model_path.join(CFG_ARGS))).transpose()
}

/// What to say of a model folder that is a file.
pub(super) fn not_a_folder(model_path: &Path) -> Option<DataError> {
    if !model_path.is_file() {
        return None;
    }
    let shown = model_path.display();
    let of_ply = model_path.ancestors().nth(3).filter(|folder| !point_clouds(folder).is_empty());
    Some(DataError(match of_ply {
        Some(folder) => {
            format!(
                "{shown}: is a file, not a model folder. Its model folder is {}",
                folder.display()
            )
        }
        None => format!("{shown}: is a file, not a model folder. Name a folder"),
    }))
}

/// Fails where a folder is there and cannot be read.
pub(super) fn check_readable(folder: &Path) -> Result<(), DataError> {
    match entry_refusal(folder).or_else(|| listing_refusal(folder)) {
        Some(source) => Err(DataError(format!(
            "{}: the folder cannot be read: {source}. Check its permissions",
            folder.display()
        ))),
        None => Ok(()),
    }
}

/// The saved point cloud of this iteration, or the last.
pub(super) fn point_cloud(
    model_path: &Path,
    wanted: Option<u32>,
) -> Result<(u32, PathBuf), DataError> {
    if let Some(problem) = not_a_folder(model_path) {
        return Err(problem);
    }
    check_readable(model_path)?;
    check_readable(&model_path.join("point_cloud"))?;
    let found = point_clouds(model_path);
    let is_wanted = |&&(iteration, _): &&(u32, PathBuf)| wanted.is_none_or(|it| it == iteration);
    found.iter().rev().find(is_wanted).cloned().ok_or_else(|| {
        let folder = model_path.display();
        let saved: Vec<String> = found.iter().map(|(i, _)| i.to_string()).collect();
        DataError(match wanted {
            Some(wanted) if !saved.is_empty() => format!(
                "{folder}: no point cloud of iteration {wanted}; saved are {}. Name one of these iterations",
                saved.join(", ")
            ),
            _ => format!(
                "{folder}: no point_cloud/iteration_N/point_cloud.ply in it. Train a model there \
                 first, or name another folder"
            ),
        })
    })
}

/// The saved point clouds of a model folder: iteration and PLY, ascending.
pub(super) fn point_clouds(model_path: &Path) -> Vec<(u32, PathBuf)> {
    let number = |name: &str| name.strip_prefix("iteration_")?.parse().ok();
    let mut found = numbered(&model_path.join("point_cloud"), number);
    found.iter_mut().for_each(|(_, path)| path.push("point_cloud.ply"));
    found.retain(|(_, ply)| ply.exists());
    found
}
