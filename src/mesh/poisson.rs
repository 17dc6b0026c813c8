//! Screened Poisson reconstruction (Kazhdan and Hoppe 2013) from points of the level set, as in SuGaR (Guédon and
//! Lepetit 2024).

use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use splat_mesh::Watch;
use splat_mesh::free_space::VisibilityVotes;
use splat_mesh::place::Bounds;
use splat_mesh::points::{
    OrientedPoints, checked, have_points_within, outliers_by_cells, outliers_by_neighbours,
};
use splat_mesh::poisson::{
    CUBE_FACTOR, Cube, Depth, FEWEST_POINTS, NothingLeft, PoissonSettings, Trim, cut_off,
    depth_for, reconstruct, trim,
};

use super::drawn::ALL_VIEWS;
use super::finish::{Extracted, ExtractionFigures, PoissonFigures, Surface};
use super::level_set::{OpaqueGaussians, PointSearch, agreement, level_set_points};
use super::options::{Consistency, MeshOptions, Outliers, PoissonOptions};
use super::{DrawnModel, ExtractionError, WorldBox};
use crate::backend::{PixelDepth, TrainDevice};
use crate::memory::Bytes;
use crate::model::Gaussians;

/// Host memory of a brick of 512 nodes of the finest level: five vectors of the solver, a third more for the coarser
/// levels, key and neighbours.
pub(super) const BRICK_BYTES: u64 = 512 * 20 * 4 / 3 + 136;

/// Host memory of a point of the level set: position, normal and colour, three times while the vectors grow.
pub(super) const POINT_BYTES: u64 = 3 * (3 * 12);

/// Factor from the size of the box to the size of the background.
const BACKGROUND: f64 = 4.0;

/// Neighbours, and standard deviations of their mean distance, of the reference's outliers.
const OUTLIER_NEIGHBOURS: usize = 20;
const OUTLIER_DEVIATIONS: f64 = 20.0;

/// Octree levels between the finest cells and the cells of the outlier test.
const OUTLIERS_ABOVE: u32 = 2;

/// Fits a surface to points of the level set in a box, and with [`PoissonOptions::mesh_background`] a second one
/// around the box. Uses at most `room` of the host's memory.
pub fn fit<B: TrainDevice>(
    drawn: &mut DrawnModel<'_, '_, B>,
    gaussians: &Gaussians,
    world_box: &WorldBox,
    options: &MeshOptions,
    seed: u64,
    room: Bytes,
) -> Result<Extracted, ExtractionError> {
    let consistency = options.consistency();
    let options = &options.poisson;
    let opaque = OpaqueGaussians::of(gaussians)?;
    let wanted = options.surface_points.min(drawn.pixels());
    let fits = room.0 / POINT_BYTES;
    if wanted > fits {
        return Err(ExtractionError::SurfacePoints { wanted, fits });
    }
    let search = PointSearch {
        wanted: options.surface_points,
        level: options.surface_level,
        seed,
        every: ALL_VIEWS,
    };
    let begun = Instant::now();
    let points = level_set_points(drawn, &opaque, &search)?;
    let independent = opaque.len();
    drop(opaque);
    tracing::info!(
        "{} points found where the density is {}, {:.1} s",
        points.len(),
        options.surface_level,
        begun.elapsed().as_secs_f64()
    );
    let (inside, around) = parted(points, world_box, options.mesh_background);
    let on_progress = drawn.on_progress;
    let surface_of = |points| surface(points, independent, options, consistency, room, on_progress);
    let mut fitted = vec![surface_of(inside)?];
    if options.mesh_background {
        match surface_of(around) {
            Ok(background) => fitted.push(background),
            Err(error) => tracing::warn!("there is no mesh around the box: {error}"),
        }
    }
    if options.trim() != Trim::Nothing {
        let reach = if options.mesh_background { BACKGROUND } else { 1.0 };
        let free = in_free_space(drawn, &fitted, &world_box.scaled(reach))?;
        fitted = opened(fitted, &free, options)?;
    }
    let (surfaces, figures) =
        fitted.into_iter().map(|FittedSurface { surface, figures, .. }| (surface, figures)).unzip();
    Ok(Extracted { surfaces, figures: ExtractionFigures::Poisson(figures) })
}

/// Removes unsupported parts of the surfaces. A background that becomes empty is dropped.
fn opened(
    fitted: Vec<FittedSurface>,
    free: &[Vec<bool>],
    options: &PoissonOptions,
) -> Result<Vec<FittedSurface>, ExtractionError> {
    let mut left = Vec::with_capacity(fitted.len());
    for (mut surface, free) in fitted.into_iter().zip(free) {
        match surface.open(free, options) {
            Ok(()) => left.push(surface),
            Err(error) if left.is_empty() => return Err(error.into()),
            Err(error) => tracing::warn!("there is no mesh around the box: {error}"),
        }
    }
    Ok(left)
}

/// Splits the points into those in the box and, if requested, those of the background.
fn parted(
    mut points: OrientedPoints,
    world_box: &WorldBox,
    with_background: bool,
) -> (OrientedPoints, OrientedPoints) {
    let far = world_box.scaled(BACKGROUND);
    let is_in = |world_box: &WorldBox, place: &[f32; 3]| world_box.holds(place.map(f64::from));
    let near: Vec<bool> = points.places.iter().map(|place| is_in(world_box, place)).collect();
    let mut around = OrientedPoints::default();
    if with_background {
        around = points.clone();
        let keep = near.iter().zip(&around.places).map(|(near, place)| !near && is_in(&far, place));
        let keep: Vec<bool> = keep.collect();
        around.retain(&keep);
    }
    points.retain(&near);
    (points, around)
}

/// Fits a closed surface to points of `independent` Gaussians.
fn surface(
    mut points: OrientedPoints,
    independent: usize,
    options: &PoissonOptions,
    consistency: Consistency,
    room: Bytes,
    on_progress: &(dyn Fn(&'static str, f64) + Sync),
) -> Result<FittedSurface, ExtractionError> {
    // The weight of a surface is its number of points.
    let weight = points.len() as f64;
    checked(&mut points, FEWEST_POINTS)?;
    let outliers = drop_outliers(&mut points, options)?;
    let agreement = agreement(&points, independent, consistency)?;
    tracing::info!("{:.0} % of their normals agree with their neighbours'", 100.0 * agreement);
    let stop = AtomicBool::new(false);
    let watch = Watch { stop: &stop, on_progress };
    let settings = PoissonSettings {
        depth: Depth::UpTo(options.poisson_depth),
        bricks: usize::try_from(room.0 / BRICK_BYTES).unwrap_or(usize::MAX),
        ..PoissonSettings::default()
    };
    let begun = Instant::now();
    let made = reconstruct(&points, &settings, &watch)?;
    tracing::info!(
        "surface of {} triangles through {} points, 2^{} cells along its cube, {:.1} s",
        made.mesh.faces.len(),
        points.len(),
        made.depth,
        begun.elapsed().as_secs_f64()
    );
    if made.is_cut {
        tracing::warn!(
            "the surface was not followed to its end, for which --host-limit leaves no memory: it is \
             open there"
        );
    }
    let figures = PoissonFigures {
        points: points.len(),
        outliers,
        agreement,
        depth: made.depth,
        cell: made.cell,
        in_free_space: 0,
        trimmed: 0,
    };
    let surface = Surface { mesh: made.mesh, weight };
    Ok(FittedSurface { surface, densities: made.densities, points: points.places, figures })
}

fn drop_outliers(
    points: &mut OrientedPoints,
    options: &PoissonOptions,
) -> Result<usize, ExtractionError> {
    let keep = match options.outliers {
        Outliers::Keep => return Ok(0),
        Outliers::Knn => {
            let Some(neighbours) = NonZeroUsize::new(OUTLIER_NEIGHBOURS) else { return Ok(0) };
            outliers_by_neighbours(&points.places, neighbours, OUTLIER_DEVIATIONS)
        }
        Outliers::Cells => {
            let Some(cube) = Cube::around(&points.places, CUBE_FACTOR) else { return Ok(0) };
            let depth = depth_for(points, Depth::UpTo(options.poisson_depth))?;
            outliers_by_cells(&points.places, &cube, depth.saturating_sub(OUTLIERS_ABOVE))
        }
    };
    let dropped = points.retain(&keep);
    checked(points, FEWEST_POINTS)?;
    Ok(dropped)
}

struct FittedSurface {
    surface: Surface,
    /// Points per cell around each vertex.
    densities: Vec<f32>,
    /// Positions of the points, world space.
    points: Vec<[f32; 3]>,
    figures: PoissonFigures,
}

impl FittedSurface {
    /// Cuts off the vertices in free space, then the vertices with few points, as the options say.
    fn open(&mut self, is_free: &[bool], options: &PoissonOptions) -> Result<(), NothingLeft> {
        self.figures.in_free_space = cut_off(&mut self.surface.mesh, &mut self.densities, is_free)?;
        if self.figures.in_free_space > 0 {
            tracing::info!(
                "{} triangles cut off that closed the surface through free space",
                self.figures.in_free_space
            );
        }
        self.figures.trimmed = trim(&mut self.surface.mesh, &mut self.densities, options.trim())?;
        Ok(())
    }
}

// A closed surface also spans regions without points and hides there the surfaces behind. These parts are cut off.

/// Distance in cells below which a point is on a surface: the finest cells blur the surface by two or three.
const MARGIN_CELLS: f64 = 4.0;

/// Distance in cells to the nearest point beyond which a vertex may be in free space. Nearer vertices close small
/// holes.
const FAR_CELLS: f64 = 8.0;

/// Points per cell below which a vertex may be far from all points.
const SPARSE: f32 = 0.5;

/// Returns for each vertex of each surface whether it is in free space: far from all points, and more training views
/// see through it, to the box `meshed` or to nothing, than show it.
fn in_free_space<B: TrainDevice>(
    drawn: &mut DrawnModel<'_, '_, B>,
    surfaces: &[FittedSurface],
    meshed: &WorldBox,
) -> Result<Vec<Vec<bool>>, ExtractionError> {
    let meshed = Bounds { low: meshed.low, high: meshed.high };
    let far: Vec<FarVertices> = surfaces.iter().map(FarVertices::of).collect();
    let margins = surfaces.iter().map(|fitted| MARGIN_CELLS * fitted.figures.cell);
    let places = far.iter().map(|far| far.places.as_slice()).zip(margins);
    let votes = places.map(|(places, margin)| VisibilityVotes::new(places, margin, meshed));
    let mut votes: Vec<VisibilityVotes<'_>> = votes.collect();
    drawn.each("finding free space", ALL_VIEWS, PixelDepth::Median, |view| {
        votes.iter_mut().for_each(|votes| votes.add(&view.depth_view()));
        Ok(())
    })?;
    let mut free: Vec<_> = surfaces.iter().map(|it| vec![false; it.densities.len()]).collect();
    for ((votes, far), free) in votes.iter().zip(&far).zip(&mut free) {
        for (&row, is_free) in far.rows.iter().zip(votes.is_free()) {
            free[row] = is_free;
        }
    }
    Ok(free)
}

/// Vertices of a surface that are far from its points.
struct FarVertices {
    rows: Vec<usize>,
    /// World space.
    places: Vec<[f32; 3]>,
}

impl FarVertices {
    fn of(FittedSurface { surface, densities, points, figures }: &FittedSurface) -> Self {
        let vertices = &surface.mesh.vertices;
        // Only vertices of sparse cells can be far from all points.
        let sparse: Vec<usize> =
            (0..vertices.len()).filter(|&row| densities[row] < SPARSE).collect();
        let places: Vec<[f32; 3]> = sparse.iter().map(|&row| vertices[row]).collect();
        let is_near = have_points_within(points, &places, FAR_CELLS * figures.cell);
        let vertices = sparse.into_iter().zip(places).zip(is_near);
        let far = vertices.filter(|&(_, is_near)| !is_near).map(|(vertex, _)| vertex);
        let (rows, places) = far.unzip();
        Self { rows, places }
    }
}
