//! The record of the views that a model was trained on, in its folder. They are never held out again.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::exit::DataError;
use crate::config::Config;
use crate::dataset::Dataset;
use crate::files::write_text;
use crate::train::checkpoint::StoredCheckpoint;

/// Name of the file in the model folder.
pub(super) const TRAINED_VIEWS: &str = "trained_views.json";

/// Names of views, each with the iterations that were done when it was first trained on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct TrainedViews(BTreeMap<String, u32>);

impl TrainedViews {
    /// Where the record of a model folder is.
    pub(super) fn path(model_path: &Path) -> PathBuf {
        model_path.join(TRAINED_VIEWS)
    }

    /// What the model of this iteration was trained on; nothing where that is not recorded, as in folders
    /// of other programs.
    pub(super) fn read(model_path: &Path, iteration: u32) -> Result<Option<Self>, DataError> {
        let path = Self::path(model_path);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| unusable(&path, &error))?,
        };
        let Self(mut first) =
            serde_json::from_str(&text).map_err(|error| unusable(&path, &error))?;
        first.retain(|_, done| *done < iteration);
        Ok(Some(Self(first)))
    }

    /// What the model was trained on that a run starts from.
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
        // The folder has views, too, whose photographs were gone when the checkpoint was written.
        let real = checkpoint.path().canonicalize().ok();
        let folder = real.as_deref().and_then(|path| path.ancestors().nth(2));
        let read = folder.map(|folder| Self::read(folder, about.iteration)).transpose()?;
        let mut views = read.flatten().unwrap_or_default();
        views.add(about.train_views.iter().map(String::as_str), 0);
        Ok(views)
    }

    /// Adds views that are trained on after so many iterations.
    pub(super) fn add<'a>(&mut self, names: impl Iterator<Item = &'a str>, done: u32) {
        for name in names {
            self.0.entry(name.to_owned()).or_insert(done);
        }
    }

    /// Whether a view is one of them.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The same of a name without its extension.
    pub(super) fn contains_stem(&self, stem: &str) -> bool {
        self.0.keys().any(|name| Path::new(name).with_extension("") == Path::new(stem))
    }

    /// Those that a scene holds out now.
    pub(super) fn held_out_in<'a>(&self, dataset: &'a Dataset) -> Vec<&'a str> {
        let held_out = dataset.test.iter().map(|&view| dataset.views[view].name.as_str());
        held_out.filter(|name| self.contains(name)).collect()
    }

    /// Writes the record into a model folder.
    pub(super) fn write(&self, model_path: &Path) -> anyhow::Result<()> {
        let text =
            serde_json::to_string_pretty(self).context("names and numbers are plain values")?;
        Ok(write_text(&Self::path(model_path), &(text + "\n"))?)
    }
}

fn unusable(path: &Path, problem: &dyn std::error::Error) -> DataError {
    DataError(format!(
        "{}: the record of the training views cannot be used: {problem}. Restore it, or remove it if you know which \
         views are held out",
        path.display()
    ))
}
