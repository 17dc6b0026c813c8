//! Export of triangle models as meshes with one colour per vertex.

use std::path::{Path, PathBuf};

use clap::ArgMatches;
use serde::Serialize;
use splat_formats::{SceneCamera, SplatFormat};
use splat_mesh::Mesh;
use splat_mesh::file::{Glb, write_obj, write_ply};

use super::args::{ExportArgs, ExportFormat, VertexColors};

use crate::cli::crop::CropOptions;
use crate::cli::exit::{DataError, UsageError};
use crate::cli::output::print_report;
use crate::cli::scene::training_cameras_of;
use crate::dataset::Frame;
use crate::export::{PlyModel, PlyTriangles, coloured_mesh, frame_of_file, read_ply_model};
use crate::files::{OutputError, write_atomically};
use crate::math::{Real as _, sh};
use crate::model::{Gaussians, Primitive as _, TriangleMesh};

use super::fit;
use crate::train::triangles::UsedVertices;

#[derive(Serialize)]
struct ExportedMesh {
    from: PathBuf,
    to: PathBuf,
    vertices: usize,
    triangles: usize,
    left_out: usize,
    colors: VertexColors,
    /// PSNR over all training photographs before the colour fit, dB.
    #[serde(skip_serializing_if = "Option::is_none")]
    psnr_before: Option<f64>,
    /// PSNR before the last iteration of the fit, dB.
    #[serde(skip_serializing_if = "Option::is_none")]
    psnr: Option<f64>,
    bytes: u64,
}

/// Reads, colours, cuts, places and writes triangles. `iteration`: that of the file's model, if it has one.
pub(super) fn run(
    args: &ExportArgs,
    format: &ExportFormat,
    from: &Path,
    iteration: Option<u32>,
    target: &Path,
    matches: &ArgMatches,
) -> anyhow::Result<()> {
    if !matches!(
        format,
        ExportFormat::Splats(SplatFormat::Ply | SplatFormat::Glb) | ExportFormat::Obj
    ) {
        anyhow::bail!(UsageError(format!(
            "-o {}: the format holds Gaussians, and {} holds triangles. End the name with .glb, .obj or .ply",
            args.output.display(),
            from.display()
        )));
    }
    if args.cut.min_opacity > 0.0 {
        tracing::warn!("--min-opacity has no effect: triangles are exported as opaque");
    }
    let PlyModel { gaussians: vertices, triangles, .. } = read_ply_model(from)?;
    let faces = triangles.map_or_else(Vec::new, |PlyTriangles { faces, .. }| faces);
    let mut mesh = TriangleMesh { vertices, faces };
    mesh.vertices.lower_sh_degree(args.cut.sh_degree);
    if mesh.faces.is_empty() {
        anyhow::bail!(DataError(format!("{}: it holds no triangles", from.display())));
    }
    let file = frame_of_file(from)?;
    let cameras = training_cameras(args, iteration, &file)?;
    let mut colored = coloured_mesh(&mesh, cameras.as_deref().unwrap_or_default());
    let fit = fit::fit_to_photographs(args, &mut colored, matches)?;
    let colors = match (&fit, &cameras) {
        (Some(_), _) => VertexColors::Photographs,
        (None, Some(_)) => VertexColors::Views,
        (None, None) => VertexColors::Base,
    };
    // The fit uses the uncut mesh, because photographs also show the parts that are cut off.
    mesh.vertices.lower_sh_degree(0);
    for (harmonic, color) in mesh.vertices.sh_dc.iter_mut().zip(colored.colors.as_flattened()) {
        *harmonic = (color - 0.5) / sh::C0.to_f32();
    }
    let left_out = crop(&mut mesh, &args.cut.place.converted(&file));
    let mut mesh = coloured_mesh(&mesh, &[]);
    if mesh.faces.is_empty() {
        anyhow::bail!(DataError(format!(
            "{}: none of its triangles is left. Give a larger --crop or --crop-sphere",
            from.display()
        )));
    }
    let placement = args.place.placements(&file, &mesh.vertices)?;
    for step in &placement.steps {
        step.place_points(&mut mesh.vertices)?;
    }
    write(target, &mesh, format)?;
    placement.write_offset(target)?;
    let exported = ExportedMesh {
        from: from.to_owned(),
        to: args.output.clone(),
        vertices: mesh.vertices.len(),
        triangles: mesh.faces.len(),
        left_out,
        colors,
        psnr_before: fit.map(|fit| fit.psnr_before),
        psnr: fit.map(|fit| fit.psnr_after),
        bytes: target.metadata().map_or(0, |about| about.len()),
    };
    print_report(&exported, args.json, described)
}

fn described(exported: &ExportedMesh) -> String {
    let ExportedMesh {
        to, vertices, triangles, left_out, colors, bytes, psnr_before, psnr, ..
    } = exported;
    let cut = if *left_out > 0 { format!("; {left_out} left out") } else { String::new() };
    let colors = match colors {
        VertexColors::Views => "means over the training cameras".to_owned(),
        VertexColors::Base => "harmonics of degree 0".to_owned(),
        VertexColors::Photographs => {
            let [before, after] = [psnr_before, psnr].map(|psnr| psnr.unwrap_or(f64::NAN));
            format!("fitted to the training photographs, {before:.2} to {after:.2} dB")
        }
    };
    let megabytes = *bytes as f64 / 1e6;
    format!(
        "{}: {triangles} triangles between {vertices} vertices, {megabytes:.1} MB{cut}\n  colours: {colors}",
        to.display()
    )
}

/// Returns the cameras whose views are averaged into colours, or `None` for colours of degree 0.
fn training_cameras(
    args: &ExportArgs,
    iteration: Option<u32>,
    file: &Frame,
) -> Result<Option<Vec<SceneCamera>>, UsageError> {
    if args.colors == Some(VertexColors::Base) {
        return Ok(None);
    }
    let of_model = args.model_path.as_deref().zip(iteration);
    let cameras = of_model.map(|(model, iteration)| training_cameras_of(model, iteration, file));
    match cameras.filter(|cameras| !cameras.is_empty()) {
        Some(cameras) => Ok(Some(cameras)),
        // The fit may also start from colours of degree 0.
        None if args.colors == Some(VertexColors::Photographs) => Ok(None),
        None if args.colors == Some(VertexColors::Views) => Err(UsageError::new(
            "--colors views: there are no training cameras. Name a model folder with -m, in which \
             cameras.json has them, or give --colors base",
        )),
        None => {
            tracing::warn!(
                "there are no training cameras, so the colours are those of the harmonics of degree 0, about \
                 2 dB worse. Name a model folder with -m, in which cameras.json has them"
            );
            Ok(None)
        }
    }
}

/// Keeps triangles whose corners all lie in the kept region, and their vertices. Returns the number of removed
/// triangles.
fn crop(mesh: &mut TriangleMesh, places: &CropOptions) -> usize {
    let before = mesh.faces.len();
    let (rows, _) = mesh.vertices.means.as_chunks::<3>();
    let is_kept = |&vertex: &u32| {
        let place = rows[vertex as usize];
        let in_box = places.crop.is_empty() || places.crop.iter().any(|it| it.contains(place));
        in_box && places.crop_sphere.is_none_or(|sphere| sphere.contains(place))
    };
    mesh.faces.retain(|face| face.iter().all(is_kept));
    keep_used(mesh);
    before - mesh.faces.len()
}

/// Removes vertices without a triangle.
fn keep_used(mesh: &mut TriangleMesh) {
    let used = UsedVertices::of(&mesh.faces, mesh.vertices.len());
    used.renumber(&mut mesh.faces);
    let mut vertices = Gaussians::empty(mesh.vertices.sh_degree);
    for (to, group) in vertices.groups_mut().into_iter().zip(mesh.vertices.groups()) {
        let row = |&row: &u32| &group.values[row as usize * group.width..][..group.width];
        to.extend(used.kept.iter().flat_map(row));
    }
    mesh.vertices = vertices;
}

fn write(path: &Path, mesh: &Mesh, format: &ExportFormat) -> Result<(), OutputError> {
    match format {
        ExportFormat::Obj => write_atomically(path, |out| write_obj(out, mesh, None)),
        ExportFormat::Splats(SplatFormat::Glb) => {
            let refused = |error| OutputError::new(path, std::io::Error::other(error));
            let glb = Glb::new(mesh, None).map_err(refused)?;
            write_atomically(path, |out| glb.write(out))
        }
        _ => write_atomically(path, |out| write_ply(out, mesh)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_vertices_are_removed_and_faces_renumbered() {
        let mut vertices = Gaussians::zeros(1, 5);
        for (row, place) in vertices.means.as_chunks_mut::<3>().0.iter_mut().enumerate() {
            place[0] = f32::from(u16::try_from(row).unwrap());
        }
        vertices.sh_rest.iter_mut().zip(0_u8..).for_each(|(to, value)| *to = f32::from(value));
        let rows = [1, 3, 4].map(|row| vertices.rows(row..row + 1));
        let mut mesh = TriangleMesh { vertices, faces: vec![[4, 1, 3], [0, 1, 2]] };
        let high = [9.0; 3];
        let crop_box = splat_formats::CropBox { low: [0.5, -1.0, -1.0], high };
        let options = CropOptions { crop: vec![crop_box], crop_sphere: None };
        assert_eq!(crop(&mut mesh, &options), 1);
        assert_eq!(mesh.faces, [[2, 0, 1]]);
        let [mut expected, second, third] = rows;
        expected.append(second);
        expected.append(third);
        assert_eq!(mesh.vertices, expected);
    }
}
