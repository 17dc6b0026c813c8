//! `--colors photographs`: the colours of a mesh of triangles are fitted to the photographs of its training.

use clap::ArgMatches;
use splat_mesh::Mesh;

use super::args::{ExportArgs, VertexColors};
use super::trained_scene;
use crate::cli::exit::{DataError, UsageError};
use crate::cli::mesh::exposures;
use crate::cli::scene::{Opened, none_to_compare};
use crate::config::RunOptions;
use crate::mesh::{TextureSource, VertexFit, fit_vertex_colors};
use crate::train::Views;
use crate::train::event::Split;

const FLAG: &str = "--colors photographs";

/// Fails where there is a file alone.
pub(super) fn check(args: &ExportArgs) -> Result<(), UsageError> {
    let is_asked = args.colors == Some(VertexColors::Photographs);
    if is_asked && args.model_path.is_none() { Err(no_model()) } else { Ok(()) }
}

fn no_model() -> UsageError {
    UsageError(format!(
        "{FLAG} fits colours to the photographs of a model's training. Give -m MODEL instead of a file"
    ))
}

/// Fits the colours of the whole mesh, where it was trained, if they are to be; `None` if not.
pub(super) fn fit(
    args: &ExportArgs,
    mesh: &mut Mesh,
    matches: &ArgMatches,
) -> anyhow::Result<Option<VertexFit>> {
    if args.colors != Some(VertexColors::Photographs) {
        return Ok(None);
    }
    let Some(model_path) = args.model_path.clone() else { return Err(no_model().into()) };
    let run = RunOptions::default();
    let opened = trained_scene::open(args, model_path.clone(), run, FLAG, matches)?;
    if opened.dataset.train.is_empty() {
        return Err(DataError(format!(
            "{FLAG}: the scene has none of the photographs that the model was trained on. Name theirs with -s, or \
             give --colors views"
        ))
        .into());
    }
    let exposures = exposures(TextureSource::Photographs, &model_path, &opened)?;
    let Opened { config, dataset, images, .. } = &opened;
    let mut views = Views::new(dataset, images);
    let background = config.scene.background_color().0;
    let fit = fit_vertex_colors(mesh, &mut views, background, &exposures);
    for warning in views.take_warnings() {
        tracing::warn!("{warning}");
    }
    match fit {
        Some(fit) => Ok(Some(fit)),
        None => Err(none_to_compare(&views, Split::Train).into()),
    }
}
