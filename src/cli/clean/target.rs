//! Where a cleaned model goes: a model folder of its own.

use std::fs;
use std::path::{Path, PathBuf};

use super::report::CleanReport;
use crate::clean::Cleaning;
use crate::cli::exit::UsageError;
use crate::cli::folder;
use crate::cli::scene::{Opened, absolute};
use crate::cli::trained_views::{TRAINED_VIEWS, TrainedViews};
use crate::export::{PlyStyle, write_ply_chunks};
use crate::files::{
    FolderLock, OutputError, WorkFolder, check_writable, create_folder, replace_file, write_text,
};
use crate::model::Gaussians;
use crate::train::save::render_mode;

/// What describes a model beside its Gaussians, and is the same of the cleaned one.
const DESCRIPTION: [&str; 5] =
    ["config.toml", "cfg_args", "cameras.json", "exposure.json", "input.ply"];

/// A folder that a cleaned model may be written to.
pub(super) struct CleanTarget {
    from: PathBuf,
    to: PathBuf,
}

impl CleanTarget {
    /// Fails where something would be lost, or where nothing can be written. Nothing is written yet, but
    /// for the folder.
    pub(super) fn check(from: &Path, to: PathBuf, overwrite: bool) -> anyhow::Result<Self> {
        let shown = to.display();
        if absolute(from) == absolute(&to) {
            return Err(UsageError(format!(
                "-o {shown}: is the model itself, which stays as it is. Name another folder"
            ))
            .into());
        }
        if let Some(problem) = folder::not_a_folder(&to) {
            return Err(problem.into());
        }
        if folder::holds_run(&to) && !overwrite {
            return Err(UsageError(format!(
                "{shown}: holds a model already. Name another folder with -o, or give --overwrite"
            ))
            .into());
        }
        create_folder(&to)?;
        check_writable(&to)?;
        Ok(Self { from: from.to_owned(), to })
    }

    pub(super) fn path(&self) -> &Path {
        &self.to
    }

    /// Writes what is left.
    pub(super) fn write(
        &self,
        opened: &Opened,
        cleaning: &Cleaning,
        mut trained: TrainedViews,
        report: &CleanReport,
    ) -> anyhow::Result<()> {
        let Self { from, to } = self;
        let _lock = FolderLock::take(to)?;
        if let Some(aside) = folder::set_aside(to)? {
            tracing::info!("--overwrite: the earlier model is moved to {}", aside.display());
        }
        let _work = WorkFolder::open(to);
        let ply = to.join("point_cloud").join(format!("iteration_{}", opened.iteration));
        create_folder(&ply)?;
        let left = cleaning.left(&opened.gaussians);
        let mode = render_mode(&opened.config);
        let style = PlyStyle { mode, frame: opened.dataset.frame };
        let path = ply.join("point_cloud.ply");
        write_ply_chunks::<Gaussians, _, _>(
            &path,
            style,
            left.sh_degree,
            left.len(),
            [Ok::<_, OutputError>(&left)],
        )?;
        for name in DESCRIPTION {
            copy_file(&from.join(name), &to.join(name))?;
        }
        // What was removed was decided by these views: nothing is held out of them any more.
        if from.join(TRAINED_VIEWS).exists() {
            let views = opened.dataset.train.iter().map(|&view| &opened.dataset.views[view]);
            trained.add(views.map(|view| view.name.as_str()), 0);
            trained.write(to)?;
        }
        write_text(&to.join(folder::CLEANING), &serde_json::to_string_pretty(report)?)?;
        Ok(())
    }
}

/// Copies a file where there is one.
fn copy_file(from: &Path, to: &Path) -> Result<(), OutputError> {
    let Ok(mut source) = fs::File::open(from) else { return Ok(()) };
    replace_file(to, |file| {
        std::io::copy(&mut source, file).map(drop).map_err(|error| OutputError::new(to, error))
    })
}
