//! Choice of the held-out views.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::camera::{View, stem};
use super::error::DatasetError;
use super::finder::{first_few, utf8};
use crate::config::{SceneOptions, TestList};

/// Held-out views with `--eval` alone.
#[derive(Clone, Copy, Debug)]
pub(super) enum Holdout {
    /// Every n-th by name.
    EveryNth,
    /// The views of the scene's own test file.
    AsListed,
}

/// Returns `wanted` indices out of the first `count`, evenly spread from 0; all if there are fewer.
pub fn evenly_spread(wanted: usize, count: usize) -> impl Iterator<Item = usize> + Clone {
    let wanted = wanted.min(count);
    (0..wanted).map(move |k| k * count / wanted.max(1))
}

/// Replaces the file of `--test-list` by its names.
pub fn read_test_list(options: &mut SceneOptions) -> Result<(), DatasetError> {
    if let Some(TestList::File(path)) = &options.test_list {
        let names = names_in(path)?;
        options.test_list = Some(TestList::Names(names));
    }
    Ok(())
}

/// Returns the names in a file, one per line, without empty lines and `#` comments.
fn names_in(path: &Path) -> Result<Vec<String>, DatasetError> {
    let text = fs::read(path)
        .map_err(|source| DatasetError::TestListUnreadable { path: path.to_owned(), source })?;
    let text = utf8(&text);
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().map(str::trim);
    let names: Vec<String> = lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    if names.is_empty() {
        return Err(DatasetError::EmptyTestList { path: path.to_owned() });
    }
    Ok(names)
}

/// Views of the scene, and its own choice of held-out ones.
pub(super) struct KnownViews<'a> {
    /// Names of all views, also of those without a usable photograph.
    pub(super) all: Vec<&'a str>,
    /// Views with a usable photograph.
    pub(super) kept: &'a [View],
    /// True for each of these that the scene itself holds out.
    pub(super) listed: &'a [bool],
    pub(super) holdout: Holdout,
}

/// True if each view is held out.
pub(super) fn held_out(
    options: &SceneOptions,
    known: &KnownViews<'_>,
) -> Result<Vec<bool>, DatasetError> {
    let count = known.kept.len();
    let mut options = options.clone();
    read_test_list(&mut options)?;
    if let Some(TestList::Names(names)) = &options.test_list {
        return by_name(names, known);
    }
    if let Some(wanted) = options.test_views {
        if wanted as usize >= count {
            return Err(DatasetError::TooManyTestViews { wanted, count });
        }
        let chosen: BTreeSet<usize> = evenly_spread(wanted as usize, count).collect();
        return Ok((0..count).map(|index| chosen.contains(&index)).collect());
    }
    let is_held_out = |index: usize| {
        options.eval
            && match known.holdout {
                Holdout::EveryNth => index.checked_rem(options.test_every as usize) == Some(0),
                Holdout::AsListed => known.listed[index],
            }
    };
    Ok((0..count).map(is_held_out).collect())
}

/// Chooses views by name. Names may lack their extension, as in other tools' lists.
fn by_name(names: &[String], known: &KnownViews<'_>) -> Result<Vec<bool>, DatasetError> {
    let mut sought: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let mut unknown = sought.clone();
    for name in &known.all {
        unknown.remove(name);
        unknown.remove(stem(name));
    }
    if !unknown.is_empty() {
        let unknown: Vec<String> = unknown.iter().map(|&name| name.to_owned()).collect();
        return Err(DatasetError::UnknownTestViews {
            count: unknown.len(),
            names: first_few(&unknown),
            example: known.all.first().map_or(String::new(), |&name| name.to_owned()),
        });
    }
    // `a` stands for `a.png`, unless a view is called `a`.
    sought.extend(known.all.iter().filter(|name| names.iter().any(|it| it == stem(name))));
    Ok(known.kept.iter().map(|view| sought.contains(view.name.as_str())).collect())
}
