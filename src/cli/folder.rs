//! Model folder: its path, contents and earlier results.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::cfg_args::{self, CFG_ARGS, ConfigText};
use super::exit::DataError;
use crate::config::{Config, ConfigError};
use crate::dataset::points_ply::write_points_ply;
use crate::dataset::{Dataset, PointCloud};
use crate::export::{write_cameras_json, write_cfg_args};
use crate::files::{
    OutputError, create_folder, entry_refusal, listing_refusal, numbered, remove_abandoned,
    write_text,
};
use crate::telemetry::TIMELAPSE;
use crate::train::checkpoint::StoredCheckpoint;

/// Default folder of `splat clean` inside the model folder.
pub(super) const CLEANED: &str = "clean";

/// Report of `splat clean`.
pub(super) const CLEANING: &str = "clean.json";

/// Files of a run, besides renders and TensorBoard's files.
const RESULTS: [&str; 20] = [
    "pseudo_views",
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

/// Returns the default model folder: `output/` and the experiment's or scene's name, with a number if that folder
/// exists. Without a named scene the working directory is the scene.
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

/// True if the checkpoint lies in the model folder.
pub(super) fn holds(model_path: &Path, checkpoint: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    let folder = checkpoint.parent().and_then(real);
    folder.is_some() && folder == real(&model_path.join("checkpoints"))
}

/// Removes temporary files of killed programs.
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

/// True if the folder holds results of a run.
pub(super) fn holds_run(model_path: &Path) -> bool {
    ["checkpoints", "point_cloud", "run.jsonl"].iter().any(|name| model_path.join(name).exists())
}

/// Moves the results of an earlier run into `previous_N/`, so that a resumed run cannot find its checkpoints.
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
    // Keep the other contents: a scene that is its own model folder may have photographs here.
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
        // This fails, as intended, if the folder is not empty.
        fs::remove_dir(model_path.join(folder)).ok();
    }
    Ok(Some(aside))
}

/// Returns the entries of a subfolder that begin with `prefix`, relative to the model folder.
fn entries(model_path: &Path, below: impl AsRef<Path>, prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(model_path.join(&below)) else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix))
        .map(|name| below.as_ref().join(name))
        .collect()
}

/// Writes the configuration, the training views and the files that other tools read. `points` are the initial points.
/// A resumed run keeps its first `input.ply`.
pub(super) fn describe(
    model_path: &Path,
    config: &Config,
    dataset: &Dataset,
    points: &PointCloud,
    trained: &TrainedViews,
    goes_on: bool,
) -> anyhow::Result<()> {
    write_config(model_path, config)?;
    trained.write(model_path)?;
    write_cfg_args(model_path, config)?;
    write_cameras_json(model_path, dataset)?;
    let input = model_path.join("input.ply");
    if !goes_on || !input.exists() {
        write_points_ply(&input, points, &dataset.frame)?;
    }
    Ok(())
}

/// Writes the options of a run.
pub(super) fn write_config(model_path: &Path, config: &Config) -> anyhow::Result<()> {
    Ok(write_text(&model_path.join("config.toml"), &config.to_toml()?)?)
}

/// Reads `config.toml` of a trained model, if it exists.
pub(super) fn read_config(model_path: &Path) -> Result<Option<ConfigText>, ConfigError> {
    let path = model_path.join("config.toml");
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(ConfigText { origin: path.display().to_string(), text })),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ConfigError::Unreadable { path, source }),
    }
}

/// Reads the options of a trained model from `config.toml` or from another trainer's `cfg_args`.
pub(super) fn read_options(model_path: &Path) -> anyhow::Result<Option<ConfigText>> {
    if let Some(text) = read_config(model_path)? {
        return Ok(Some(text));
    }
    let recorded = cfg_args::read(model_path)?;
    recorded.map(|options| options.layer(&model_path.join(CFG_ARGS))).transpose()
}

/// Returns an error if the model folder is a file.
pub(super) fn check_not_file(model_path: &Path) -> Result<(), DataError> {
    if !model_path.is_file() {
        return Ok(());
    }
    let shown = model_path.display();
    let of_ply = model_path.ancestors().nth(3).filter(|folder| !point_clouds(folder).is_empty());
    Err(DataError(match of_ply {
        Some(folder) => format!(
            "{shown}: is a file, not a model folder. Its model folder is {}",
            folder.display()
        ),
        None => format!("{shown}: is a file, not a model folder. Name a folder"),
    }))
}

/// Returns an error if an existing folder cannot be read.
pub(super) fn check_readable(folder: &Path) -> Result<(), DataError> {
    match entry_refusal(folder).or_else(|| listing_refusal(folder)) {
        Some(source) => Err(DataError(format!(
            "{}: the folder cannot be read: {source}. Check its permissions",
            folder.display()
        ))),
        None => Ok(()),
    }
}

/// Returns the saved point cloud of this iteration, or the last.
pub(super) fn point_cloud(
    model_path: &Path,
    wanted: Option<u32>,
) -> Result<(u32, PathBuf), DataError> {
    check_not_file(model_path)?;
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

/// Returns the subfolders `iteration_N` of a folder by ascending iteration.
pub(super) fn iterations(folder: &Path) -> Vec<(u32, PathBuf)> {
    numbered(folder, |name| name.strip_prefix("iteration_")?.parse().ok())
}

/// Returns the most recently written file of a folder among the wanted ones. Ties go to the last name.
pub(super) fn newest_file(folder: &Path, is_wanted: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let paths = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let dated = paths.filter(|path| is_wanted(path)).map(|path| {
        let written = fs::metadata(&path).and_then(|file| file.modified());
        (written.unwrap_or(SystemTime::UNIX_EPOCH), path)
    });
    dated.max().map(|(_, path)| path)
}

/// Returns the saved point clouds of a model folder by ascending iteration.
pub(super) fn point_clouds(model_path: &Path) -> Vec<(u32, PathBuf)> {
    let mut found = iterations(&model_path.join("point_cloud"));
    found.iter_mut().for_each(|(_, path)| path.push("point_cloud.ply"));
    found.retain(|(_, ply)| ply.exists());
    found
}

/// Reads a JSON record. `None` if there is none. `unusable` describes a record that cannot be read.
pub(super) fn read_record<T: DeserializeOwned>(
    path: &Path,
    unusable: impl Fn(&dyn Error) -> String,
) -> Result<Option<T>, DataError> {
    let refused = |error: &dyn Error| DataError(format!("{}: {}", path.display(), unusable(error)));
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|error| refused(&error))?,
    };
    serde_json::from_str(&text).map(Some).map_err(|error| refused(&error))
}

pub(super) fn write_record(path: &Path, record: &impl Serialize) -> Result<(), OutputError> {
    let text = serde_json::to_string_pretty(record)
        .map_err(|error| OutputError::new(path, error.into()))?;
    write_text(path, &(text + "\n"))
}

// Record of the training views in the model folder.

/// File name in the model folder.
pub(super) const TRAINED_VIEWS: &str = "trained_views.json";

/// Names of training views, each with the number of iterations done before its first use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct TrainedViews(BTreeMap<String, u32>);

impl TrainedViews {
    /// Returns the path of the record in a model folder.
    pub(super) fn path(model_path: &Path) -> PathBuf {
        model_path.join(TRAINED_VIEWS)
    }

    /// Reads the training views of the model of this iteration. `None` if there is no record, as in folders of other
    /// programs.
    pub(super) fn read(model_path: &Path, iteration: u32) -> Result<Option<Self>, DataError> {
        let unusable = |problem: &dyn Error| {
            format!(
                "the record of the training views cannot be used: {problem}. Restore it, or remove it if you know which \
                 views are held out"
            )
        };
        let record = read_record(&Self::path(model_path), unusable)?;
        let Some(Self(mut first)) = record else { return Ok(None) };
        first.retain(|_, done| *done < iteration);
        Ok(Some(Self(first)))
    }

    /// Returns the training views of the model that a run starts from.
    pub(super) fn of_start(
        config: &Config,
        checkpoint: Option<&StoredCheckpoint>,
    ) -> Result<Self, DataError> {
        let Some(checkpoint) = checkpoint else {
            let model = config.sugar.checkpoint_path.as_deref().filter(|path| path.is_dir());
            let read = model.map(|folder| Self::read(folder, config.optimize.iterations));
            return Ok(read.transpose()?.flatten().unwrap_or_default());
        };
        let about = &checkpoint.about;
        // The record also has views whose photographs were gone when the checkpoint was written.
        let real = checkpoint.path().canonicalize().ok();
        let folder = real.as_deref().and_then(|path| path.ancestors().nth(2));
        let read = folder.map(|folder| Self::read(folder, about.iteration)).transpose()?;
        let mut views = read.flatten().unwrap_or_default();
        views.add(about.train_views.iter().map(String::as_str), 0);
        Ok(views)
    }

    /// Adds views whose training begins after `done` iterations.
    pub(super) fn add<'a>(&mut self, names: impl Iterator<Item = &'a str>, done: u32) {
        for name in names {
            self.0.entry(name.to_owned()).or_insert(done);
        }
    }

    /// True if the model was trained on the view.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// True if the model was trained on a view with this name, compared without extension.
    pub(super) fn contains_stem(&self, stem: &str) -> bool {
        self.0.keys().any(|name| Path::new(name).with_extension("") == Path::new(stem))
    }

    /// Returns the training views that a scene holds out now.
    pub(super) fn held_out_in<'a>(&self, dataset: &'a Dataset) -> Vec<&'a str> {
        let held_out = dataset.test.iter().map(|&view| dataset.views[view].name.as_str());
        held_out.filter(|name| self.contains(name)).collect()
    }

    pub(super) fn write(&self, model_path: &Path) -> Result<(), OutputError> {
        write_record(&Self::path(model_path), self)
    }
}
