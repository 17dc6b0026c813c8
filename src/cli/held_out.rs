//! Held-out views of a run, and the check that its model was not trained on them.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::exit::{DataError, UsageError};
use super::folder;
use crate::config::{Config, SceneOptions, TestList};
use crate::dataset::Dataset;
use crate::files::OutputError;
use crate::train::checkpoint::StoredCheckpoint;

/// Rule that selects the held-out views of a run.
#[derive(Debug, PartialEq)]
pub(super) enum HeldOut<'a> {
    None,
    EveryNth(u32),
    Spread(u32),
    /// Views that a file names. The file is not read.
    InFile(&'a Path),
    Listed(BTreeSet<&'a str>),
}

impl<'a> HeldOut<'a> {
    pub(super) fn of(scene: &'a SceneOptions) -> Self {
        match (&scene.test_list, scene.test_views) {
            (Some(TestList::File(file)), _) => Self::InFile(file),
            (Some(TestList::Names(names)), _) => {
                Self::Listed(names.iter().map(String::as_str).collect())
            }
            (None, Some(views)) => Self::Spread(views),
            (None, None) if scene.eval => Self::EveryNth(scene.test_every),
            (None, None) => Self::None,
        }
    }

    /// Returns the flags that hold these views out.
    pub(super) fn flag(&self) -> String {
        match self {
            Self::None => "--eval false".to_owned(),
            Self::EveryNth(every) => format!("--eval --test-every {every}"),
            Self::Spread(views) => format!("--test-views {views}"),
            Self::InFile(file) => format!("--test-list {}", file.display()),
            Self::Listed(names) => match names.len() {
                1 => "a --test-list of 1 view".to_owned(),
                views => format!("a --test-list of {views} views"),
            },
        }
    }

    /// Returns the flags of a training with these held-out views, as text.
    pub(super) fn of_training(&self) -> String {
        match self {
            Self::None => "no view held out".to_owned(),
            other => other.flag(),
        }
    }
}

/// Returns an error if a run would hold out training views of the model that it starts from. The cause is a change of
/// the options or of the scene.
pub(super) fn refuse_seen(
    trained: &TrainedViews,
    checkpoint: Option<&StoredCheckpoint>,
    now: &Config,
    dataset: &Dataset,
) -> anyhow::Result<()> {
    let seen = trained.held_out_in(dataset);
    let Some(first) = seen.first() else { return Ok(()) };
    if let Some(checkpoint) = checkpoint {
        let before = HeldOut::of(&checkpoint.about.config.scene);
        let now = HeldOut::of(&now.scene);
        if before != now {
            return Err(split_error(checkpoint.path(), first, &before, &now).into());
        }
    }
    let since = match checkpoint {
        Some(checkpoint) => {
            format!("the checkpoint of iteration {} was written", checkpoint.about.iteration)
        }
        None => "the model of -c was trained".to_owned(),
    };
    Err(DataError(format!(
        "{}: the scene has changed since {since}: {}. Restore it, name the held-out views with --test-list, or \
         use --eval false",
        dataset.root.display(),
        describe_seen(&seen, "its"),
    ))
    .into())
}

/// Describes the held-out views that were trained on.
fn describe_seen(seen: &[&str], whose: &str) -> String {
    format!(
        "{} of {whose} held-out views {} trained on, for instance {}",
        seen.len(),
        if seen.len() == 1 { "was" } else { "were" },
        seen.first().unwrap_or(&""),
    )
}

fn split_error(path: &Path, seen: &str, before: &HeldOut<'_>, now: &HeldOut<'_>) -> UsageError {
    let remedy = match before {
        HeldOut::Listed(_) => "Leave that out".to_owned(),
        before => format!("Leave that out or use {}", before.flag()),
    };
    UsageError(format!(
        "{}: the run was trained with {} and has seen {seen}, which {} holds out. {remedy}, or train it again \
         from the start",
        path.display(),
        before.of_training(),
        now.flag()
    ))
}

/// Returns an error if a held-out view of a measured model was a training view. `before`: options of its training.
/// `instead`: flags that need no held-out view.
pub(super) fn check_unseen(
    model_path: &Path,
    trained: &TrainedViews,
    before: &SceneOptions,
    now: &SceneOptions,
    instead: &str,
    dataset: &Dataset,
) -> Result<(), DataError> {
    let seen = trained.held_out_in(dataset);
    if seen.is_empty() {
        return Ok(());
    }
    let (before, now) = (HeldOut::of(before), HeldOut::of(now));
    let remedy = if before == now {
        let others = unseen(trained, dataset).map_or(String::new(), |name| {
            format!(", name views that it was not trained on with --test-list, such as {name}")
        });
        format!("The scene has changed since: restore its photographs{others}")
    } else if before == HeldOut::None {
        format!("It was trained with no view held out: train it again with {}", now.flag())
    } else {
        format!(
            "It was trained with {}, which is kept where nothing else is asked for: leave {} out",
            before.flag(),
            now.flag()
        )
    };
    Err(DataError(format!(
        "{}: {}. {remedy}, or use {}",
        TrainedViews::path(model_path).display(),
        describe_seen(&seen, "the"),
        instead
    )))
}

/// Returns the error of a scene without held-out views.
pub(super) fn nothing_held_out(trained: Option<&TrainedViews>, dataset: &Dataset) -> UsageError {
    let remedy = match trained.map(|trained| unseen(trained, dataset)) {
        None => "give the --eval, --test-views or --test-list that the model was trained with"
            .to_owned(),
        Some(None) => "train the model again with --eval: it was trained on all views".to_owned(),
        Some(Some(name)) => {
            format!("name views that it was not trained on with --test-list, such as {name}")
        }
    };
    UsageError(format!("no view is held out. Use --split train, or {remedy}"))
}

/// Returns the first view that the model was not trained on.
fn unseen<'a>(trained: &TrainedViews, dataset: &'a Dataset) -> Option<&'a str> {
    let mut names = dataset.views.iter().map(|view| view.name.as_str());
    names.find(|name| !trained.contains(name))
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
        let record = folder::read_record(&Self::path(model_path), unusable)?;
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

    /// Writes the record into a model folder.
    pub(super) fn write(&self, model_path: &Path) -> Result<(), OutputError> {
        folder::write_record(&Self::path(model_path), self)
    }
}
