//! Held-out views of a run, and the check that its model was not trained on them.

use std::collections::BTreeSet;
use std::path::Path;

use super::exit::{DataError, UsageError};
use super::folder::TrainedViews;
use crate::config::{Config, SceneOptions, TestList};
use crate::dataset::Dataset;
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
pub(super) fn check_held_out(
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
