//! Which photographs of a scene have maps of something beside them.

use std::fmt::Display;

use super::camera::stem;
use super::listing::first_few;

/// The maps of a scene.
#[derive(Debug)]
pub(super) struct FoundMaps<F> {
    /// By the index of their view.
    pub(super) files: Vec<(usize, F)>,
    /// Photographs without, each with the reason.
    pub(super) without: Vec<String>,
    /// Photographs that were looked at.
    pub(super) views: usize,
}

impl<F> FoundMaps<F> {
    /// The maps of these views, which are names and indices. `file` gives that of a name without its
    /// extension and of an index, or says why there is none.
    pub(super) fn of<'a, R: Display>(
        views: impl Iterator<Item = (&'a str, usize)>,
        file: impl Fn(&str, usize) -> Result<F, R>,
    ) -> Self {
        let mut found = Self { files: Vec::new(), without: Vec::new(), views: 0 };
        for (name, index) in views {
            found.views += 1;
            match file(stem(name), index) {
                Ok(file) => found.files.push((index, file)),
                Err(reason) => found.without.push(format!("{name} ({reason})")),
            }
        }
        found
    }

    /// What the user should know where some photographs are trained without their maps of this.
    pub(super) fn warning(&self, of: &str) -> Option<String> {
        let Self { without, views, .. } = self;
        (!without.is_empty()).then(|| {
            let named = first_few(without);
            format!(
                "{} of {views} photographs are trained without their {of}: {named}",
                without.len()
            )
        })
    }
}
