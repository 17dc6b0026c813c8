//! The mesh that Gaussians are bound to.

use std::fs;
use std::path::{Path, PathBuf};

use splat_mesh::Mesh;
use splat_mesh::clean::CleanError;
use splat_mesh::decimate::{DecimateOptions, decimate};
use splat_mesh::file::read_mesh;

use crate::cli::exit::DataError;
use crate::cli::scene::{ModelArgs, ReadModel};
use crate::export::frame_of_file;
use crate::mesh::{colors_of_model, convert_mesh};

/// The mesh that is named, or the newest that was made of an iteration of the model.
pub(super) fn mesh_file(
    model: &ModelArgs,
    named: Option<&Path>,
    iteration: u32,
) -> Result<PathBuf, DataError> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    let folder = model.model_path.join("mesh");
    let newest = |iteration: u32| {
        let entries = fs::read_dir(folder.join(format!("iteration_{iteration}"))).ok()?;
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        // Beside each mesh of the program lies the record of how it was made.
        let meshes = paths.filter(|path| {
            path.extension().is_some_and(|it| it == "ply") && path.with_extension("json").exists()
        });
        let dated = meshes.filter_map(|path| {
            let written = fs::metadata(&path).and_then(|about| about.modified()).ok()?;
            Some((written, path))
        });
        Some(dated.max()?.1)
    };
    newest(iteration).ok_or_else(|| {
        let others = crate::files::numbered(&folder, |name| {
            name.strip_prefix("iteration_")?.parse().ok()
        });
        let other = others.into_iter().map(|(other, _)| other).rfind(|&at| newest(at).is_some());
        let advice = other.map_or(String::new(), |other| {
            format!(". There is one of iteration {other}: take it with --iteration {other}")
        });
        DataError(format!(
            "{}: no mesh of iteration {iteration}, as PLY. Make one with splat mesh -m {}, or name one \
             with --mesh FILE{advice}",
            folder.display(),
            model.model_path.display()
        ))
    })
}

/// The mesh of a file, in the coordinates of a model, with a colour for each vertex, decimated to about so many vertices.
pub(super) fn prepared(
    path: &Path,
    vertices: Option<usize>,
    model: &ReadModel,
) -> anyhow::Result<Mesh> {
    let ReadModel { dataset, gaussians, .. } = model;
    let mut mesh = read_mesh(path)?;
    convert_mesh(&mut mesh, &frame_of_file(path)?, &dataset.frame);
    if mesh.colors.is_empty() {
        tracing::info!(
            "{}: the mesh has no vertex colours; each takes that of the nearest Gaussian",
            path.display()
        );
        mesh.colors = colors_of_model(gaussians, &mesh.vertices);
    }
    let Some(wanted) = vertices else { return Ok(mesh) };
    let found = mesh.vertices.len();
    if found <= wanted {
        return Ok(mesh);
    }
    let target_faces = (mesh.faces.len() as u128 * wanted as u128 / found as u128).max(1);
    let target_faces = usize::try_from(target_faces).unwrap_or(usize::MAX);
    let decimated = decimate(mesh, &DecimateOptions::to(target_faces));
    let (mesh, _) = decimated.map_err(|error| {
        let remedy = match error {
            CleanError::DecimatedAway { .. } => ", with a larger --vertices",
            _ => "",
        };
        DataError(format!("{}: {error}{remedy}", path.display()))
    })?;
    tracing::info!("decimated from {found} vertices to {}", mesh.vertices.len());
    Ok(mesh)
}
