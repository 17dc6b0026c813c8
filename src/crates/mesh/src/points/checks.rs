//! Whether points can be a surface at all.

use kiddo::{ImmutableKdTree, SquaredEuclidean};
use rayon::prelude::*;
use std::num::NonZeroUsize;

use super::oriented::OrientedPoints;
use crate::narrow::{to_f32s, to_f64s};
use crate::place::Bounds;
use crate::vector::{add, dot, normalize};

/// Share of rows that may be dropped without an error.
const DROPPED_AT_MOST: f64 = 0.01;

/// Neighbours whose mean normal a point's is compared with.
const COMPARED_NEIGHBOURS: usize = 16;

/// Points that are compared, at most: every n-th.
const COMPARED_POINTS: usize = 20_000;

/// Cosine from which a normal agrees with its neighbours'.
const AGREES_FROM: f64 = 0.5;

/// What is wrong with a set of points.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PointsError {
    /// Columns of different length.
    #[error("{places} places, {normals} normals and {colors} colours. Give one of each a point")]
    Lengths {
        /// Rows of places.
        places: usize,
        /// Rows of normals.
        normals: usize,
        /// Rows of colours.
        colors: usize,
    },
    /// Too few.
    #[error(
        "no surface: {found} points of {wanted}. Lower --surface-level or raise --surface-points"
    )]
    TooFew {
        /// How many there are.
        found: usize,
        /// How many it takes.
        wanted: usize,
    },
    /// Too many rows that are no points.
    #[error(
        "{dropped} of {count} points are not finite or have no normal, more than 1 %. Check the model"
    )]
    NotFinite {
        /// Rows that cannot be used.
        dropped: usize,
        /// All rows.
        count: usize,
    },
    /// Normals without order.
    #[error(
        "no consistent surface ({agreeing:.2} of the normals agree with their neighbours', {needed:.2} are needed). Use --force to mesh nevertheless"
    )]
    Inconsistent {
        /// Share of normals that agree.
        agreeing: f64,
        /// Share that is needed.
        needed: f64,
    },
    /// A box whose corners are in the wrong order.
    #[error("the box from {low:?} to {high:?} is empty. Give the smaller corner as --bbox-min")]
    BoxTurned {
        /// Smaller corner.
        low: [f64; 3],
        /// Larger corner.
        high: [f64; 3],
    },
    /// A box beside the points.
    #[error(
        "no point lies in the box from {low:?} to {high:?}; the points reach from {points_low:?} to {points_high:?}. Give a box around those by --bbox-min and --bbox-max"
    )]
    BoxEmpty {
        /// Smaller corner.
        low: [f64; 3],
        /// Larger corner.
        high: [f64; 3],
        /// Smallest coordinates of the points.
        points_low: [f32; 3],
        /// Largest.
        points_high: [f32; 3],
    },
}

/// Drops rows that are not finite or have no normal, and says how many; an error beyond 1 % of them, and
/// below `wanted` rows that are left.
pub fn checked(points: &mut OrientedPoints, wanted: usize) -> Result<usize, PointsError> {
    same_lengths(points)?;
    let places = points.len();
    let finite = |v: &[f32; 3]| v.iter().all(|x| x.is_finite());
    let keep: Vec<bool> = (0..places)
        .into_par_iter()
        .map(|row| {
            let normal = &points.normals[row];
            let is_something = dot(to_f64s(*normal), to_f64s(*normal)) > 0.0;
            let rest = finite(&points.places[row]) && finite(&points.colors[row]);
            rest && finite(normal) && is_something
        })
        .collect();
    let dropped = keep.iter().filter(|&&k| !k).count();
    if dropped as f64 > DROPPED_AT_MOST * places as f64 {
        return Err(PointsError::NotFinite { dropped, count: places });
    }
    if places - dropped < wanted {
        return Err(PointsError::TooFew { found: places - dropped, wanted });
    }
    if dropped > 0 {
        points.retain(&keep);
    }
    Ok(dropped)
}

/// An error where the columns have different lengths.
pub fn same_lengths(points: &OrientedPoints) -> Result<(), PointsError> {
    let (places, normals, colors) =
        (points.places.len(), points.normals.len(), points.colors.len());
    let is_same = places == normals && places == colors;
    if is_same { Ok(()) } else { Err(PointsError::Lengths { places, normals, colors }) }
}

/// Keeps the points inside a box, world space, its lower sides included; returns how many went.
pub fn in_box(
    points: &mut OrientedPoints,
    low: [f64; 3],
    high: [f64; 3],
) -> Result<usize, PointsError> {
    if (0..3).any(|axis| low[axis] >= high[axis] || low[axis].is_nan() || high[axis].is_nan()) {
        return Err(PointsError::BoxTurned { low, high });
    }
    let inside = |place: &[f32; 3]| {
        (0..3).all(|axis| (low[axis]..high[axis]).contains(&f64::from(place[axis])))
    };
    let keep: Vec<bool> = points.places.par_iter().map(inside).collect();
    if !keep.contains(&true) {
        let (points_low, points_high) = bounds(&points.places);
        return Err(PointsError::BoxEmpty { low, high, points_low, points_high });
    }
    Ok(points.retain(&keep))
}

/// Smallest and largest coordinates; (inf, -inf) without points.
pub fn bounds(places: &[[f32; 3]]) -> ([f32; 3], [f32; 3]) {
    let bounds = Bounds::of(places.iter().copied().map(to_f64s));
    (to_f32s(bounds.low), to_f32s(bounds.high))
}

/// Share of points, of up to 20,000, whose normal is within 60 degrees of the mean of its 16 neighbours'.
/// An error where it is below `needed`: such points are no surface. Places are to be finite.
pub fn normals_agreement(points: &OrientedPoints, needed: f64) -> Result<f64, PointsError> {
    same_lengths(points)?;
    if points.places.as_flattened().iter().any(|x| !x.is_finite()) {
        return Err(PointsError::Inconsistent { agreeing: 0.0, needed });
    }
    let Some(wanted) = NonZeroUsize::new(COMPARED_NEIGHBOURS + 1) else { return Ok(1.0) };
    let Ok(tree) = ImmutableKdTree::<f32, 3>::new_from_slice(&points.places) else {
        // An index of 32 bits ran out: that many points are no accident.
        return Ok(1.0);
    };
    let every = points.len().div_ceil(COMPARED_POINTS).max(1);
    let rows: Vec<usize> = (0..points.len()).step_by(every).collect();
    let agreeing = rows
        .par_iter()
        .filter(|&&row| {
            let near = tree
                .query(&points.places[row])
                .nearest_n::<SquaredEuclidean<f32>>(wanted)
                .execute();
            let others = near.iter().map(|n| n.item as usize).filter(|&other| other != row);
            let mean = others
                .fold([0.0; 3], |sum, other| add(sum, normalize(to_f64s(points.normals[other]))));
            dot(normalize(mean), normalize(to_f64s(points.normals[row]))) > AGREES_FROM
        })
        .count();
    let agreeing = agreeing as f64 / rows.len().max(1) as f64;
    if agreeing < needed {
        Err(PointsError::Inconsistent { agreeing, needed })
    } else {
        Ok(agreeing)
    }
}
