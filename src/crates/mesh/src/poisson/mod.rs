//! Screened Poisson reconstruction (Kazhdan and Hoppe 2013) on sparse bricks.
//!
//! A function x rises by one from inside to outside, where its gradient is the points' normals, spread
//! over the area that each stands for; the surface is where x has the value that it has at the points.
//! Levels of 2^l cells along the cube of the surface, l = 4 to the depth, are solved one after another with
//! trilinear hats, the coarsest everywhere and the others near the points only, where each begins at the
//! coarser one. Inside the modules, levels count the cells of the domain, which is twice as wide.

mod band;
mod color;
mod density;
mod error;
mod follow;
mod hats;
mod levels;
mod nodes;
mod operator;
mod pyramid;
mod rhs;
mod screen;
mod solve;
mod sorted;
#[cfg(test)]
mod tests;
mod trim;

pub use crate::cube::Cube;
pub use error::PoissonError;
pub use levels::{DEEPEST, SHALLOWEST};
pub use solve::LevelReport;
pub use trim::{NothingLeft, Trim, cut_off, open_edges, trim};

use rayon::prelude::*;

use crate::bricks::Bricks;
use crate::cubes::extract;
use crate::mesh::{Mesh, Vec3};
use crate::narrow::to_f32;
use crate::points::{OrientedPoints, PointsError, same_lengths};
use crate::watch::Watch;
use band::Band;
use density::{Density, POINTS_A_PART};
use follow::follow;
use levels::{COARSEST, WIDER};
use nodes::Reader;
use operator::Operator;
use pyramid::{Pyramid, Solved};
use screen::Screen;
use sorted::SortedPoints;

/// Points that a surface takes at least.
pub const FEWEST_POINTS: usize = 1000;

/// Side of the surface's cube over the longest side of the points' box.
pub const CUBE_FACTOR: f64 = 1.1;

/// Levels between the depth and that of the density.
const DENSITY_ABOVE: u32 = 2;

/// Conjugate-gradient steps on the coarsest level.
const COARSEST_STEPS: usize = 200;

/// Conjugate-gradient steps on every other level.
const STEPS: usize = 20;

/// How a surface is sought.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoissonSettings {
    /// Level of the finest cells.
    pub depth: Depth,
    /// How much passing near the points counts against following their normals.
    pub alpha: f64,
    /// Bricks that the finest level may have, those included into which the surface is followed.
    pub bricks: usize,
}

/// Level of the finest cells: 2^level of them along the cube.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The finest whose occupied cells hold 1.5 points on average, at most this.
    UpTo(u32),
    /// This.
    Exactly(u32),
}

impl Default for PoissonSettings {
    fn default() -> Self {
        Self { depth: Depth::UpTo(10), alpha: 4.0, bricks: usize::MAX }
    }
}

/// A surface, and how it was made.
#[derive(Clone, Debug, PartialEq)]
pub struct Reconstruction {
    /// The surface, world space, with colours.
    pub mesh: Mesh,
    /// Points a cell of the finest level around each vertex; 0 where there are none.
    pub densities: Vec<f32>,
    /// The level of the finest cells.
    pub depth: u32,
    /// Length of their side, scene units.
    pub cell: f64,
    /// Area that the points stand for, scene units squared.
    pub area: f64,
    /// The function's value on the surface.
    pub iso: f64,
    /// How each level went, the coarsest first.
    pub levels: Vec<LevelReport>,
    /// Whether the surface was followed further than the plan grants, and so has a border.
    pub is_cut: bool,
    /// Whether the surface reaches the cube, and ends there.
    pub meets_cube: bool,
}

/// The surface of the points: at least [`FEWEST_POINTS`], finite, with normals
/// ([`checked`](crate::points::checked)).
///
/// Closed and manifold, unless it meets the cube or is cut. Its bits do not depend on the number
/// of threads.
pub fn reconstruct(
    points: &OrientedPoints,
    settings: &PoissonSettings,
    watch: &Watch<'_>,
) -> Result<Reconstruction, PoissonError> {
    same_lengths(points)?;
    if points.len() < FEWEST_POINTS {
        return Err(PointsError::TooFew { found: points.len(), wanted: FEWEST_POINTS }.into());
    }
    let no_extent = PoissonError::NoExtent { points: points.len() };
    let domain = domain_of(points).ok_or(no_extent)?;
    watch.tell("points", 0.0)?;
    let points = SortedPoints::new(points, domain);
    let level = level_of(settings.depth, &points)?;
    let density = Density::new(&points, level - DENSITY_ABOVE);
    let areas = density.areas(&points);
    watch.tell("points", 1.0)?;

    let (pyramid, finest, levels) = solve(&points, &areas, level, settings, watch)?;
    let iso = level_at_points(&points, &areas, &finest, level);
    let followed = follow(&pyramid, finest, level, to_f32(iso), settings.bricks, watch)?;
    drop(pyramid);
    let place = |nodes: Vec3| domain.world(nodes, level);
    let surface = extract(&followed.bricks, &followed.values, to_f32(iso), watch)?;
    let mut mesh = surface.mesh(&followed.bricks, &place);
    let (is_cut, meets_cube) = (followed.is_cut, followed.meets_cube);
    drop(followed);
    if mesh.faces.is_empty() {
        return Err(PoissonError::NoSurface { points: points.len() });
    }
    let units: Vec<Vec3> = mesh.vertices.par_iter().map(|&vertex| domain.unit(vertex)).collect();
    let densities = density.points_a_cell(&units, level);
    watch.tell("colours", 0.0)?;
    mesh.colors = color::colors_at(&points, &areas, &units, level - 1);
    watch.tell("colours", 1.0)?;
    let area = areas.iter().map(|&a| f64::from(a)).sum::<f64>() * domain.side * domain.side;
    let cell = domain.side / f64::from(1_u32 << level);
    Ok(Reconstruction {
        mesh,
        densities,
        depth: level - WIDER,
        cell,
        area,
        iso,
        levels,
        is_cut,
        meets_cube,
    })
}

/// The depth that [`reconstruct`] would take for these points, so that those can be prepared for it.
pub fn depth_for(points: &OrientedPoints, depth: Depth) -> Result<u32, PoissonError> {
    let no_extent = PoissonError::NoExtent { points: points.len() };
    let domain = domain_of(points).ok_or(no_extent)?;
    Ok(level_of(depth, &SortedPoints::new(points, domain))? - WIDER)
}

/// The cube of the equations.
fn domain_of(points: &OrientedPoints) -> Option<Cube> {
    Cube::around(&points.places, CUBE_FACTOR * f64::from(1_u32 << WIDER))
}

/// The finest level of the domain.
fn level_of(depth: Depth, points: &SortedPoints) -> Result<u32, PoissonError> {
    let (Depth::UpTo(wanted) | Depth::Exactly(wanted)) = depth;
    if !(SHALLOWEST..=DEEPEST).contains(&wanted) {
        return Err(PoissonError::Depth { depth: wanted, deepest: DEEPEST });
    }
    Ok(match depth {
        Depth::UpTo(deepest) => points.finest_full(deepest + WIDER),
        Depth::Exactly(depth) => depth + WIDER,
    })
}

/// The levels below the finest, the finest, and how each went.
type Solution = (Pyramid, Solved, Vec<LevelReport>);

fn solve(
    points: &SortedPoints,
    areas: &[f32],
    finest: u32,
    settings: &PoissonSettings,
    watch: &Watch<'_>,
) -> Result<Solution, PoissonError> {
    let mut band = band_of(points, finest);
    if band.bricks.len() > settings.bricks {
        let (bricks, granted) = (band.bricks.len(), settings.bricks);
        let mut coarser = (COARSEST..finest).rev();
        let fits = coarser.find(|&level| band_of(points, level).bricks.len() <= granted);
        let (depth, fits) = (finest - WIDER, fits.unwrap_or(COARSEST) - WIDER);
        return Err(PoissonError::TooManyBricks { depth, bricks, granted, fits });
    }
    watch.tell("equations", 0.0)?;
    let mut b = rhs::finest(points, areas, &band, finest);
    // From the finest level to the coarsest, since each right side comes from the finer one's.
    let mut levels = Vec::new();
    for level in (COARSEST..finest).rev() {
        watch.check()?;
        let coarse = band_of(points, level);
        let coarse_b = rhs::restricted(&coarse, &band.bricks, &b);
        levels.push((
            level + 1,
            std::mem::replace(&mut band, coarse),
            std::mem::replace(&mut b, coarse_b),
        ));
    }
    levels.push((COARSEST, band, b));
    watch.tell("equations", 1.0)?;

    let mut pyramid = Pyramid::default();
    let mut reports: Vec<LevelReport> = Vec::new();
    while let Some((level, band, mut b)) = levels.pop() {
        watch.tell("solve", f64::from(level - COARSEST) / f64::from(finest - COARSEST + 1))?;
        let screen = Screen::new(points, areas, &band, level, settings.alpha);
        let mut x = pyramid.start(level, &band);
        let steps = if level == COARSEST { COARSEST_STEPS } else { STEPS };
        let operator = Operator { level, band: &band, screen: &screen };
        reports.push(operator.solve(&mut x, &mut b, steps, watch)?);
        pyramid.levels.push(Solved { bricks: band.bricks, x });
    }
    watch.tell("solve", 1.0)?;
    let no_levels = Solved { bricks: Bricks::default(), x: Vec::new() };
    let solved = pyramid.levels.pop().unwrap_or(no_levels);
    Ok((pyramid, solved, reports))
}

fn band_of(points: &SortedPoints, level: u32) -> Band {
    if level == COARSEST { Band::dense(points, level) } else { Band::near(points, level) }
}

/// Mean of the function at the points, by area.
fn level_at_points(points: &SortedPoints, areas: &[f32], finest: &Solved, level: u32) -> f64 {
    let parts: Vec<[f64; 2]> = points
        .points
        .places
        .par_chunks(POINTS_A_PART)
        .zip(areas.par_chunks(POINTS_A_PART))
        .map(|(places, areas)| {
            let mut reader = Reader::new(level, &finest.bricks, [finest.x.as_slice()]);
            places.iter().zip(areas).fold([0.0; 2], |[sum, whole], (&place, &area)| {
                let [x] = reader.at(points.cube.unit(place));
                [sum + f64::from(area) * x, whole + f64::from(area)]
            })
        })
        .collect();
    let [sum, whole] = parts.iter().fold([0.0; 2], |a, b| [a[0] + b[0], a[1] + b[1]]);
    sum / whole
}
