//! Start of a run: from the scene's points, random points or a model.

use std::borrow::Cow;
use std::path::Path;

use super::check::check;
use super::exit::{DataError, UsageError};
use super::export::read_splats;
use super::file_kind::check_init;
use super::output::shell_word;
use super::settle::MOST_VERTICES;
use super::silhouettes::Silhouettes;
use splat_formats::{SplatFormat, SplatPrimitive, SpzAxes};

use crate::config::{Config, InitRegion, OptimizeOptions, PrimitiveName};
use crate::dataset::{Dataset, Frame, PointCloud};
use crate::export::{
    PlyError, PlyModel, PlyTriangles, frame_of_file, gaussians_of, read_ply_model,
};
use crate::math::{Real, inverse_sigmoid, sh, sigmoid};
use crate::memory::{Bytes, host_memory};
use crate::model::{
    Gaussians, Primitive as _, THICKENED, TriangleMesh, flatten, from_points, random_points,
    thicken, thinned,
};
use crate::train::triangles::{SOUP_VERTICES, soup};
use crate::train::{scene_cube, scene_extent};

/// Source of the first Gaussians or triangles.
pub(super) enum Start<'a> {
    /// Points, one Gaussian each.
    Points(Cow<'a, PointCloud>),
    /// Points, one triangle each.
    Soup(Cow<'a, PointCloud>),
    /// Gaussians of `--init`, at the requested SH degree.
    Model(Gaussians),
    /// Triangles of `--init`, at the requested SH degree.
    Mesh(TriangleMesh),
}

/// Initial model of a training.
pub(super) enum First {
    Gaussians(Gaussians),
    /// Triangles with their vertices.
    Triangles(TriangleMesh),
}

impl<'a> Start<'a> {
    /// Chooses the model of `--init`, or else the scene's points, or else random points. Never
    /// exceeds `--max-points`.
    pub(super) fn of(dataset: &'a Dataset, config: &Config) -> anyhow::Result<Self> {
        let (start, from, remedy) = match &config.optimize.init {
            Some(path) => (
                starting_model(path, config, &dataset.frame)?,
                path,
                "Move them to the cameras' coordinates with splat export --translate",
            ),
            None => {
                let points = starting_points(dataset, config)?;
                let start = match config.optimize.primitive {
                    PrimitiveName::Triangles => Self::Soup(points),
                    PrimitiveName::Gaussians | PrimitiveName::Surfels => Self::Points(points),
                };
                (
                    start,
                    &dataset.root,
                    "Export cameras and points together, in one coordinate system",
                )
            }
        };
        let positions = start.positions();
        if !positions.is_empty() && !dataset.sees_any(positions) {
            anyhow::bail!(DataError(format!(
                "{}: no training camera sees any of its {} points. {remedy}",
                from.display(),
                positions.len()
            )));
        }
        Ok(start)
    }

    fn positions(&self) -> &[[f32; 3]] {
        match self {
            Self::Points(points) | Self::Soup(points) => &points.positions,
            Self::Model(model) => model.means.as_chunks::<3>().0,
            Self::Mesh(mesh) => mesh.vertices.means.as_chunks::<3>().0,
        }
    }

    /// Returns the number of Gaussians or vertices.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Points(points) => points.positions.len(),
            Self::Soup(points) => points.positions.len() * SOUP_VERTICES,
            Self::Model(model) => model.len(),
            Self::Mesh(mesh) => mesh.vertices.len(),
        }
    }

    /// Returns positions and colours.
    pub(super) fn points(&self) -> Cow<'_, PointCloud> {
        match self {
            Self::Points(points) | Self::Soup(points) => Cow::Borrowed(points.as_ref()),
            Self::Model(model) => Cow::Owned(points_of(model)),
            Self::Mesh(mesh) => Cow::Owned(points_of(&mesh.vertices)),
        }
    }

    pub(super) fn first(self, config: &Config, dataset: &Dataset) -> First {
        let (options, seed) = (&config.optimize, config.run.seed);
        match self {
            Self::Points(points) => First::Gaussians(from_points(&points, options, seed)),
            Self::Soup(points) => {
                First::Triangles(soup(&points, options, &scene_cube(dataset), seed))
            }
            Self::Model(model) => First::Gaussians(model),
            Self::Mesh(mesh) => First::Triangles(mesh),
        }
    }
}

/// Reads a model that another run or program has trained.
fn starting_model<'a>(path: &Path, config: &Config, frame: &Frame) -> anyhow::Result<Start<'a>> {
    check_init(path)?;
    let axes = config.optimize.init_spz_axes.as_deref().and_then(SpzAxes::of_name);
    let PlyModel { gaussians: mut model, primitive, triangles } = read_model_file(path, axes)?;
    if model.is_empty() {
        anyhow::bail!(DataError(format!(
            "{}: holds no Gaussians. Name another file, or leave --init out",
            path.display()
        )));
    }
    check_trainable(path, &model)?;
    model.convert(&frame_of_file(path)?, frame);
    let (shown, is_mesh) = (path.display(), primitive == PrimitiveName::Triangles);
    let wants_mesh = config.optimize.primitive == PrimitiveName::Triangles;
    check([
        (
            is_mesh && !wants_mesh,
            format!(
                "--init {shown}: holds triangles, not Gaussians. Give --primitive triangles, or leave --init out"
            ),
        ),
        (
            wants_mesh && !is_mesh,
            format!(
                "--init {shown}: holds Gaussians, and --primitive triangles needs triangles. Leave --init out to start from the scene's points"
            ),
        ),
    ])?;
    if let Some(cap) = config.densify.max_points.filter(|&cap| cap < model.len() as u64) {
        let rows = if triangles.is_some() { "vertices" } else { "Gaussians" };
        anyhow::bail!(UsageError(format!(
            "{}: has {} {rows}, more than --max-points {cap}. Raise it, or remove {rows} in an editor",
            path.display(),
            model.len()
        )));
    }
    match (primitive, config.optimize.primitive) {
        (PrimitiveName::Gaussians, PrimitiveName::Surfels) => {
            tracing::info!(
                "--primitive surfels makes the Gaussians of {} flat: each loses its shortest axis",
                path.display()
            );
            flatten(&mut model);
        }
        (PrimitiveName::Surfels, PrimitiveName::Gaussians) => {
            tracing::warn!(
                "{} holds surfels: as 3D Gaussians they start {THICKENED} times as thick as their smaller \
                 scale. To train them as surfels, give --primitive surfels",
                path.display()
            );
            thicken(&mut model);
        }
        _ => {}
    }
    if config.optimize.filter_3d {
        tracing::info!(
            "--filter-3d widens the Gaussians of {}. If their run had a filter, resume its checkpoint instead",
            path.display()
        );
    }
    let (found, wanted) = (model.sh_degree, config.optimize.sh_degree);
    if wanted < found {
        tracing::warn!(
            "{} has SH degree {found}; harmonics above --sh-degree {wanted} are dropped",
            path.display()
        );
    } else if wanted > found {
        tracing::info!(
            "{} has SH degree {found}; harmonics up to --sh-degree {wanted} start from zero",
            path.display()
        );
    }
    model.set_sh_degree(wanted);
    let Some(PlyTriangles { faces, window }) = triangles else { return Ok(Start::Model(model)) };
    lower_opacity_floor(&mut model.opacity_logits, window.opacity_floor);
    let mut mesh = TriangleMesh { vertices: model, faces };
    mesh.size_vertices();
    Ok(Start::Mesh(mesh))
}

/// Reads a model of this program, or Gaussians in any format.
pub(super) fn read_model_file(path: &Path, axes: Option<SpzAxes>) -> anyhow::Result<PlyModel> {
    let of_name = SplatFormat::of_name(path);
    let own = match of_name {
        None | Some(SplatFormat::Ply) => read_ply_model(path).map_err(Some),
        Some(_) => Err(None),
    };
    let error = match own {
        Ok(model) => return Ok(model),
        Err(error) => error,
    };
    // PLY files of other programs may be text, have other types or lack harmonics.
    let (splats, dropped) = match (read_splats(path, axes), error) {
        (Err(foreign), Some(PlyError::Format { .. }) | None) => return Err(foreign.into()),
        (Err(_), Some(error)) => return Err(error.into()),
        (Ok((_, 1..)), Some(error @ PlyError::NotFinite { .. })) => return Err(error.into()),
        (Ok(read), _) => read,
    };
    if dropped > 0 {
        anyhow::bail!(DataError(format!(
            "{}: {dropped} of its Gaussians have values that are not finite or no rotation, and cannot be \
             trained. Leave them out: splat export {} -o finite.ply",
            path.display(),
            shell_word(path)
        )));
    }
    let primitive = match splats.columns().primitive {
        SplatPrimitive::Gaussians => PrimitiveName::Gaussians,
        SplatPrimitive::Surfels => PrimitiveName::Surfels,
    };
    Ok(PlyModel { gaussians: gaussians_of(splats), primitive, triangles: None })
}

/// Returns an error for values whose squares exceed the range of f32, because the loss would not be finite.
fn check_trainable(path: &Path, model: &Gaussians) -> Result<(), DataError> {
    const MAX_COORDINATE: f32 = 1e15;
    const LARGEST_LOG_SCALE: f32 = 35.0;
    const LARGEST_LOGIT: f32 = 1e6;
    const LARGEST_HARMONIC: f32 = 1e6;
    let columns: [(&str, &[f32], f32); 5] = [
        ("coordinate", &model.means, MAX_COORDINATE),
        ("logarithm of a scale", &model.log_scales, LARGEST_LOG_SCALE),
        ("opacity", &model.opacity_logits, LARGEST_LOGIT),
        ("colour", &model.sh_dc, LARGEST_HARMONIC),
        ("harmonic", &model.sh_rest, LARGEST_HARMONIC),
    ];
    let rows = model.len().max(1);
    for (name, values, most) in columns {
        let is_signed = name != "logarithm of a scale";
        let is_beyond = |value: &&f32| **value > most || (is_signed && **value < -most);
        if let Some((at, value)) = values.iter().enumerate().find(|(_, value)| is_beyond(value)) {
            let row = at / (values.len() / rows).max(1);
            return Err(DataError(format!(
                "{}: Gaussian {row} has a {name} of {value:e}, and {most:e} is the most that can be trained. \
                 Copy or export the file again",
                path.display()
            )));
        }
    }
    Ok(())
}

/// Largest opacity whose logit is computed for a floor of 0.
const MAX_OPACITY: f64 = 1.0 - 1e-6;

/// Recomputes logits for a floor of 0, at which a run begins, so that the opacities stay the same.
fn lower_opacity_floor(logits: &mut [f32], floor: f64) {
    for logit in logits {
        let opacity = floor + (1.0 - floor) * sigmoid(f64::from(*logit));
        *logit = inverse_sigmoid(opacity.min(MAX_OPACITY)).to_f32();
    }
}

/// Returns the centres and base colours of a model.
fn points_of(model: &Gaussians) -> PointCloud {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "held to what 8 bits hold before"
    )]
    let eight_bits = |c: f32| ((0.5 + c * sh::C0.to_f32()).clamp(0.0, 1.0) * 255.0).round() as u8;
    PointCloud {
        positions: model.means.as_chunks::<3>().0.to_vec(),
        colors: model.sh_dc.as_chunks::<3>().0.iter().map(|c| c.map(eight_bits)).collect(),
    }
}

/// Returns the scene's points, or random ones if it has none. Never exceeds `--max-points`.
fn starting_points<'a>(
    dataset: &'a Dataset,
    config: &Config,
) -> Result<Cow<'a, PointCloud>, UsageError> {
    let options = &config.optimize;
    let (rows_of_point, most) = match options.primitive {
        PrimitiveName::Triangles => (SOUP_VERTICES as u64, MOST_VERTICES),
        PrimitiveName::Gaussians | PrimitiveName::Surfels => (1, u64::MAX),
    };
    let cap = config.densify.max_points.unwrap_or(most) / rows_of_point;
    let found = dataset.points.positions.len();
    if found > 0 {
        let Some(cap) = usize::try_from(cap).ok().filter(|&cap| cap < found) else {
            return Ok(Cow::Borrowed(&dataset.points));
        };
        tracing::warn!("the scene has {found} points; {cap} of them are used (--max-points)");
        return Ok(Cow::Owned(thinned(&dataset.points, cap)));
    }
    let count =
        u32::try_from(cap).map_or(options.init_num_pts, |cap| cap.min(options.init_num_pts));
    // At most 59 parameters, each with two moments and a gradient. More than the RAM would kill the process without a
    // message.
    let needed = Bytes(u64::from(count) * 59 * 4 * 4);
    if let Some(host) = host_memory().filter(|host| needed > host.total) {
        return Err(UsageError(format!(
            "--init-num-pts: {count} Gaussians take {:.0} GiB, and this machine has {:.0} GiB. \
             Start with fewer",
            needed.gib(),
            host.total.gib()
        )));
    }
    if let Some(points) = points_in_silhouettes(dataset, config, count as usize) {
        return Ok(Cow::Owned(points));
    }
    let (centre, half_side) = match dataset.random_half_side {
        Some(half_side) => (Frame::SCENE.to(&dataset.frame, [0.0; 3]), half_side),
        None => (dataset.centre(), options.init_extent * scene_extent(dataset)),
    };
    tracing::info!(
        "the scene has no points; {count} random ones within {half_side:.3} of {centre:.3?}"
    );
    Ok(Cow::Owned(random_points(count, centre, half_side, config.run.seed)))
}

/// Draws the points of `--init-region silhouettes`. `None` if the photographs do not show an object that was cut out,
/// or if `--init-extent` asks for a cube.
fn points_in_silhouettes(dataset: &Dataset, config: &Config, count: usize) -> Option<PointCloud> {
    let OptimizeOptions { init_region, init_extent, .. } = config.optimize;
    let has_usual_extent = init_extent == OptimizeOptions::default().init_extent;
    if init_region == InitRegion::Cube || !has_usual_extent {
        return None;
    }
    let points = Silhouettes::of(dataset)?.points(count, config.run.seed)?;
    tracing::info!(
        "the scene has no points; {count} random ones inside the silhouettes of the photographs"
    );
    Some(points)
}
