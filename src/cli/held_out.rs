//! Which views a run holds out, and that a model has not seen them.

use std::collections::BTreeSet;
use std::path::Path;

use super::exit::{DataError, UsageError};
use crate::config::{SceneOptions, TestList};
use crate::dataset::Dataset;
use crate::train::checkpoint::Checkpoint;

/// Which views a run holds out.
#[derive(Debug, PartialEq)]
pub(super) enum HeldOut<'a> {
    None,
    EveryNth(u32),
    Spread(u32),
    /// Those that a file names, which is not read.
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

    /// The flags that hold these out.
    pub(super) fn flag(&self) -> String {
        match self {
            Self::None => "--eval false".to_owned(),
            Self::EveryNth(every) => format!("--eval --test-every {every}"),
            Self::Spread(views) => format!("--test-views {views}"),
            Self::InFile(file) => format!("--test-list {}", file.display()),
            Self::Listed(names) => format!("a --test-list of {} views", names.len()),
        }
    }

    /// How a model was trained that held these out.
    pub(super) fn of_training(&self) -> String {
        match self {
            Self::None => "no view held out".to_owned(),
            other => other.flag(),
        }
    }
}

/// Fails where the options of a resumed run would hold views out that it was trained on. `now` names
/// its views.
pub(super) fn keep_split(
    path: &Path,
    before: &SceneOptions,
    now: &SceneOptions,
) -> Result<(), UsageError> {
    let (before, now) = (HeldOut::of(before), HeldOut::of(now));
    if now == HeldOut::None || now == before {
        return Ok(());
    }
    Err(UsageError(format!(
        "{}: the run was trained with {}, so it has seen views that {} holds out, and their figures \
         would be meaningless. Leave that out or use {}, so that the run keeps its held-out views, or \
         train it again from the start",
        path.display(),
        before.of_training(),
        now.flag(),
        before.flag()
    )))
}

/// Fails where the scene has changed since a checkpoint was written, so that a view is held out now
/// that the run was trained on.
pub(super) fn refuse_seen(checkpoint: &Checkpoint, dataset: &Dataset) -> Result<(), DataError> {
    let trained: BTreeSet<&str> = checkpoint.train_views.iter().map(String::as_str).collect();
    let held_out = dataset.test.iter().map(|&view| dataset.views[view].name.as_str());
    let seen: Vec<&str> = held_out.filter(|name| trained.contains(name)).collect();
    let Some(first) = seen.first() else { return Ok(()) };
    Err(DataError(format!(
        "{}: the scene has changed since the checkpoint of iteration {} was written: {} of its \
         held-out views {} trained on, {first} for instance, and their figures would be meaningless. \
         Restore its photographs, name the views that were held out with --test-list, or use --eval \
         false",
        dataset.root.display(),
        checkpoint.iteration,
        seen.len(),
        if seen.len() == 1 { "was" } else { "were" },
    )))
}
