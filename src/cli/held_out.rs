//! Which views a run holds out, and that a model has not seen them.

use std::collections::BTreeSet;
use std::path::Path;

use super::exit::{DataError, UsageError};
use crate::config::{SceneOptions, TestList};
use crate::dataset::Dataset;
use crate::train::checkpoint::StoredCheckpoint;

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
            Self::Listed(names) => match names.len() {
                1 => "a --test-list of 1 view".to_owned(),
                views => format!("a --test-list of {views} views"),
            },
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

/// Fails where a resumed run would hold out a view that it was trained on: because of its options, of
/// which `now` are those of its scene, or because the scene has changed.
pub(super) fn refuse_seen(
    checkpoint: &StoredCheckpoint,
    now: &SceneOptions,
    dataset: &Dataset,
) -> anyhow::Result<()> {
    let about = &checkpoint.about;
    let trained: BTreeSet<&str> = about.train_views.iter().map(String::as_str).collect();
    let held_out = dataset.test.iter().map(|&view| dataset.views[view].name.as_str());
    let seen: Vec<&str> = held_out.filter(|name| trained.contains(name)).collect();
    let Some(first) = seen.first() else { return Ok(()) };
    let (before, now) = (HeldOut::of(&about.config.scene), HeldOut::of(now));
    if before != now {
        return Err(other_split(checkpoint.path(), first, &before, &now).into());
    }
    Err(DataError(format!(
        "{}: the scene has changed since the checkpoint of iteration {} was written: {} of its \
         held-out views {} trained on, {first} for instance, and their figures would be meaningless. \
         Restore its photographs, name the views that were held out with --test-list, or use --eval \
         false",
        dataset.root.display(),
        about.iteration,
        seen.len(),
        if seen.len() == 1 { "was" } else { "were" },
    ))
    .into())
}

fn other_split(path: &Path, seen: &str, before: &HeldOut<'_>, now: &HeldOut<'_>) -> UsageError {
    let remedy = match before {
        HeldOut::Listed(_) => "Leave that out".to_owned(),
        before => format!("Leave that out or use {}", before.flag()),
    };
    UsageError(format!(
        "{}: the run was trained with {}, so it has seen {seen}, which {} holds out, and its figures \
         would be meaningless. {remedy}, so that the run keeps its held-out views, or train it again \
         from the start",
        path.display(),
        before.of_training(),
        now.flag()
    ))
}
