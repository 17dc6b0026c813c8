//! Charts that bend little, flattened as rigidly as it goes; those that cannot be are boxes.

use rayon::prelude::*;

use super::boxes::boxes;
use super::flat::{FlatChart, LocalFaces};
use super::growth::grow;
use super::rectangle::Place;
use super::rigid::flatten;
use super::surface::Surface;
use crate::place::{area, corners};

/// A face that becomes larger or smaller by more than this factor does not fit into its chart.
const MOST_STRETCH: f64 = 4.0;

/// The share of its faces that may not fit into a chart; of more, the chart is crumpled.
const MOST_MISFITS: f64 = 0.1;

/// How often faces that do not fit are flattened anew; then each lies alone.
const ROUNDS: usize = 3;

/// A mesh as flat charts.
pub(super) struct CutCharts {
    pub(super) charts: Vec<FlatChart>,
    /// Faces of charts that are too crumpled, which are boxes.
    pub(super) boxed: usize,
}

/// Cuts and flattens a mesh.
pub(super) fn charts(surface: &Surface<'_>) -> CutCharts {
    let pieces: Vec<FlattenedPiece> =
        grow(surface).into_par_iter().map(|faces| piece(surface, faces)).collect();
    let mut charts = Vec::new();
    let mut crumpled = Vec::new();
    for piece in pieces {
        match piece {
            FlattenedPiece::Flat(flat) => charts.extend(flat),
            FlattenedPiece::Crumpled(faces) => crumpled.extend(faces),
        }
    }
    crumpled.sort_unstable();
    charts.extend(boxes(surface, &crumpled));
    CutCharts { charts, boxed: crumpled.len() }
}

/// What becomes of a chart.
enum FlattenedPiece {
    /// Itself, and small ones of what does not fit into it.
    Flat(Vec<FlatChart>),
    /// It folds over in too many places.
    Crumpled(Vec<u32>),
}

fn piece(surface: &Surface<'_>, faces: Vec<u32>) -> FlattenedPiece {
    let count = faces.len();
    let mut charts = Vec::new();
    let misfits = split_misfits(surface, faces, &mut charts);
    if misfits.len() as f64 > MOST_MISFITS * count as f64 {
        let left = charts.into_iter().flat_map(|chart| chart.faces);
        return FlattenedPiece::Crumpled(left.chain(misfits).collect());
    }
    let mut left = misfits;
    for _ in 1..ROUNDS {
        let patches = surface.patches(&left);
        left = patches.into_iter().flat_map(|p| split_misfits(surface, p, &mut charts)).collect();
        left.sort_unstable();
    }
    charts.extend(left.into_iter().map(|face| FlatChart::alone(surface.mesh, face)));
    FlattenedPiece::Flat(charts)
}

/// Flattens faces, adds the charts of those that fit and returns the others.
fn split_misfits(surface: &Surface<'_>, faces: Vec<u32>, charts: &mut Vec<FlatChart>) -> Vec<u32> {
    let mesh = surface.mesh;
    if let [face] = faces[..] {
        charts.push(FlatChart::alone(mesh, face));
        return Vec::new();
    }
    let local = LocalFaces::of(mesh, &faces);
    let places = flatten(mesh, &faces, &local);
    let fits = |(&face, ends): (&u32, &[u32; 3])| {
        let doubled = doubled_area_of(ends.map(|end| places[end as usize]));
        let own = 2.0 * area(corners(mesh, mesh.faces[face as usize]));
        doubled >= own / MOST_STRETCH && doubled <= own * MOST_STRETCH
    };
    let fits: Vec<bool> = faces.iter().zip(&local.corners).map(fits).collect();
    let pick = |wanted: bool| -> Vec<u32> {
        let picked = faces.iter().zip(&fits).filter(|(_, fits)| **fits == wanted);
        picked.map(|(&face, _)| face).collect()
    };
    let misfits = pick(false);
    if misfits.is_empty() {
        charts.push(FlatChart::new(faces, local.corners, places));
        return misfits;
    }
    let left = pick(true);
    let whole = FlatChart::new(faces, local.corners, places);
    charts.extend(surface.patches(&left).into_iter().map(|patch| whole.part(patch)));
    misfits
}

/// Twice the signed area; positive from x to y.
fn doubled_area_of([a, b, c]: [Place; 3]) -> f64 {
    (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
}
