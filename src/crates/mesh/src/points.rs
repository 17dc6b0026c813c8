//! Oriented points: checks, boxes, and the removal of points far from all others.

use std::num::NonZeroUsize;

use kiddo::{ImmutableKdTree, SquaredEuclidean};
use rayon::prelude::*;

use crate::bricks;
use crate::cubes::Cube;
use crate::mesh::keep_rows;
use crate::narrow::{to_f32, to_f32s, to_f64s};
use crate::place::{Bounds, add, dot, normalize};

/// A cell with fewer points than this is thin.
const THIN_BELOW: usize = 3;

/// A neighbour with this many points vouches for a thin cell.
const VOUCHES_FROM: usize = 8;

/// Returns which points to keep, by the cells of a cube with `2^level` a side. A point goes if its cell holds fewer
/// than 3 points and has no neighbour, of 26, with 8. `level` is two below the depth to be solved.
pub fn outliers_by_cells(places: &[[f32; 3]], cube: &Cube, level: u32) -> Vec<bool> {
    let keys: Vec<u64> = places.par_iter().map(|&place| cube.key(place, level)).collect();
    let mut sorted = keys.clone();
    sorted.par_sort_unstable();
    let runs = sorted.chunk_by(|a, b| a == b);
    let cells: Vec<(u64, usize)> = runs.map(|run| (run[0], run.len())).collect();
    let count =
        |key: u64| cells.binary_search_by_key(&key, |cell| cell.0).map_or(0, |i| cells[i].1);
    let lost: Vec<u64> = cells
        .par_iter()
        .filter(|(key, held)| *held < THIN_BELOW && !is_vouched_for(*key, level, &count))
        .map(|(key, _)| *key)
        .collect();
    keys.par_iter().map(|key| lost.binary_search(key).is_err()).collect()
}

fn is_vouched_for(key: u64, level: u32, count: &impl Fn(u64) -> usize) -> bool {
    let [x, y, z] = bricks::cell(key);
    let near = |c: u32| c.saturating_sub(1)..=(c + 1).min((1 << level) - 1);
    near(z).any(|z| near(y).any(|y| near(x).any(|x| count(bricks::key([x, y, z])) >= VOUCHES_FROM)))
}

/// Points of a surface, world space; rows of equal number in each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OrientedPoints {
    /// Places, scene units.
    pub places: Vec<[f32; 3]>,
    /// Outward normals, of any length but zero.
    pub normals: Vec<[f32; 3]>,
    /// Colours, sRGB, 0 to 1.
    pub colors: Vec<[f32; 3]>,
}

impl OrientedPoints {
    /// Returns the number of points.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Keeps the rows that `keep` names, and returns the number of dropped rows.
    pub fn retain(&mut self, keep: &[bool]) -> usize {
        let before = self.len();
        for column in [&mut self.places, &mut self.normals, &mut self.colors] {
            keep_rows(column, keep);
        }
        before - self.len()
    }
}

/// Returns which points to keep: those whose mean distance to their `neighbours` nearest is at most the mean of all
/// these means plus `deviations` standard deviations (the reference: 20 and 20).
///
/// As in the reference, a point is its own nearest, at distance 0. A place that is not finite goes.
pub fn outliers_by_neighbours(
    places: &[[f32; 3]],
    neighbours: NonZeroUsize,
    deviations: f64,
) -> Vec<bool> {
    let is_finite = |place: &[f32; 3]| place.iter().all(|x| x.is_finite());
    let finite: Vec<[f32; 3]> = places.iter().copied().filter(is_finite).collect();
    if finite.is_empty() {
        return vec![false; places.len()];
    }
    let Ok(tree) = ImmutableKdTree::<f32, 3>::new_from_slice(&finite) else {
        // An index of 32 bits ran out: that many points hide no outlier.
        return places.iter().map(is_finite).collect();
    };
    let mean_distance = |place: &[f32; 3]| {
        let near = tree.query(place).nearest_n::<SquaredEuclidean<f32>>(neighbours).execute();
        let mut distances: Vec<f32> = near.iter().map(|n| n.distance.max(0.0).sqrt()).collect();
        distances.sort_unstable_by(f32::total_cmp);
        let sum: f64 = distances.iter().map(|&d| f64::from(d)).sum();
        sum / distances.len().max(1) as f64
    };
    let means: Vec<f64> = finite.par_iter().map(mean_distance).collect();
    let count = means.len().max(1) as f64;
    let mean = means.iter().sum::<f64>() / count;
    let variance =
        means.iter().map(|m| (m - mean) * (m - mean)).sum::<f64>() / (count - 1.0).max(1.0);
    let most = mean + deviations * variance.sqrt();
    let mut means = means.into_iter();
    let keeps = |place| is_finite(place) && means.next().is_some_and(|mean| mean <= most);
    places.iter().map(keeps).collect()
}

/// True for each place that has one of these points within `radius` scene units.
///
/// The time of a place far from all points does not grow with their number.
pub fn have_points_within(points: &[[f32; 3]], places: &[[f32; 3]], radius: f64) -> Vec<bool> {
    let tree = (!points.is_empty()).then(|| ImmutableKdTree::<f32, 3>::new_from_slice(points));
    let Some(Ok(tree)) = tree else { return vec![false; places.len()] };
    let most = to_f32(radius * radius);
    let has_point = |place: &[f32; 3]| {
        let nearest = tree.query(place).nearest_n::<SquaredEuclidean<f32>>(NonZeroUsize::MIN);
        !nearest.within(most).execute().is_empty()
    };
    places.par_iter().map(has_point).collect()
}

/// Largest share of rows that may be dropped without an error.
const DROPPED_AT_MOST: f64 = 0.01;

/// Neighbours whose mean normal a point's is compared with.
const COMPARED_NEIGHBOURS: usize = 16;

/// Largest number of compared points: every n-th is taken.
const COMPARED_POINTS: usize = 20_000;

/// Cosine from which a normal agrees with its neighbours'.
const AGREES_FROM: f64 = 0.5;

/// The fault in a set of points.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum PointsError {
    #[error("{places} places, {normals} normals and {colors} colours. Give one of each a point")]
    Lengths { places: usize, normals: usize, colors: usize },
    #[error(
        "no surface: {found} points of {wanted}. Lower --surface-level or raise --surface-points"
    )]
    TooFew { found: usize, wanted: usize },
    #[error(
        "{dropped} of {count} points are not finite or have no normal, more than 1 %. Check the model"
    )]
    NotFinite { dropped: usize, count: usize },
    #[error(
        "no consistent surface ({agreeing:.2} of the normals agree with their neighbours', {needed:.2} are needed). Use --force to mesh nevertheless"
    )]
    Inconsistent { agreeing: f64, needed: f64 },
    #[error("the box from {low:?} to {high:?} is empty. Give the smaller corner as --bbox-min")]
    BoxTurned { low: [f64; 3], high: [f64; 3] },
    #[error(
        "no point lies in the box from {low:?} to {high:?}; the points reach from {points_low:?} to {points_high:?}. Give a box around those by --bbox-min and --bbox-max"
    )]
    BoxEmpty { low: [f64; 3], high: [f64; 3], points_low: [f32; 3], points_high: [f32; 3] },
}

/// Drops rows that are not finite or have no normal, and returns their number. Fails if they are more than 1 %, or if
/// fewer than `wanted` rows are left.
pub fn checked(points: &mut OrientedPoints, wanted: usize) -> Result<usize, PointsError> {
    same_lengths(points)?;
    let places = points.len();
    let finite = |v: &[f32; 3]| v.iter().all(|x| x.is_finite());
    let is_kept = |row: usize| {
        let normal = to_f64s(points.normals[row]);
        let columns = [&points.places, &points.normals, &points.colors];
        columns.iter().all(|column| finite(&column[row])) && dot(normal, normal) > 0.0
    };
    let keep: Vec<bool> = (0..places).into_par_iter().map(is_kept).collect();
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

/// Fails if the columns have different lengths.
pub fn same_lengths(points: &OrientedPoints) -> Result<(), PointsError> {
    let (places, normals, colors) =
        (points.places.len(), points.normals.len(), points.colors.len());
    let is_same = places == normals && places == colors;
    if is_same { Ok(()) } else { Err(PointsError::Lengths { places, normals, colors }) }
}

/// Keeps the points inside a box, world space, its lower sides included, and returns the number of others.
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

/// Returns the smallest and largest coordinates; (inf, -inf) without points.
pub fn bounds(places: &[[f32; 3]]) -> ([f32; 3], [f32; 3]) {
    let bounds = Bounds::of(places.iter().copied().map(to_f64s));
    (to_f32s(bounds.low), to_f32s(bounds.high))
}

/// Returns the share of points, of up to 20,000, whose normal is within 60 degrees of the mean of their 16
/// neighbours'. Fails if it is below `needed`: such points are no surface. Places are to be finite.
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
    let normal = |row: usize| normalize(to_f64s(points.normals[row]));
    let agrees = |&&row: &&usize| {
        let near = tree.query(&points.places[row]).nearest_n::<SquaredEuclidean<f32>>(wanted);
        let near = near.execute();
        let others = near.iter().map(|n| n.item as usize).filter(|&other| other != row);
        let mean = others.fold([0.0; 3], |sum, other| add(sum, normal(other)));
        dot(normalize(mean), normal(row)) > AGREES_FROM
    };
    let agreeing = rows.par_iter().filter(agrees).count() as f64 / rows.len().max(1) as f64;
    if agreeing < needed {
        Err(PointsError::Inconsistent { agreeing, needed })
    } else {
        Ok(agreeing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known_meshes::{normal, torus_points, uniform};
    use crate::poisson::Cube;

    #[test]
    fn rows_that_are_not_finite_are_dropped_and_counted() {
        let mut points = torus_points(2000, [0.0, 0.0]);
        points.places[3][1] = f32::NAN;
        points.normals[5] = [0.0; 3];
        points.colors[7][0] = f32::INFINITY;
        let fourth = points.places[4];
        assert_eq!(checked(&mut points, 1000), Ok(3));
        assert_eq!(points.len(), 1997);
        assert_eq!(points.places[3], fourth);
        points.places[..30].fill([f32::NAN; 3]);
        assert_eq!(
            checked(&mut points, 1000),
            Err(PointsError::NotFinite { dropped: 30, count: 1997 })
        );
        points.colors.pop();
        assert!(matches!(checked(&mut points, 1000), Err(PointsError::Lengths { .. })));
        let mut few = torus_points(37, [0.0, 0.0]);
        assert_eq!(checked(&mut few, 1000), Err(PointsError::TooFew { found: 37, wanted: 1000 }));
        assert!(matches!(
            checked(&mut OrientedPoints::default(), 1),
            Err(PointsError::TooFew { .. })
        ));
    }

    #[test]
    fn a_box_keeps_its_points_or_says_where_they_are() {
        let mut points = torus_points(2000, [0.0, 0.0]);
        let gone = in_box(&mut points, [0.0, -2.0, -2.0], [2.0; 3]).unwrap();
        assert_eq!(gone + points.len(), 2000);
        assert!(points.places.iter().all(|p| p[0] >= 0.0) && gone > 800);
        let beside = in_box(&mut points, [3.0; 3], [4.0; 3]).unwrap_err();
        assert!(beside.to_string().contains("the points reach from [0."), "{beside}");
        let turned = in_box(&mut points, [1.0; 3], [1.0, 2.0, 2.0]);
        assert!(matches!(turned, Err(PointsError::BoxTurned { .. })));
        assert!(in_box(&mut points, [f64::NAN; 3], [1.0; 3]).is_err());
    }

    #[test]
    fn normals_of_a_surface_agree_and_random_ones_do_not() {
        let points = torus_points(20_000, [0.003, 0.11]);
        assert!(normals_agreement(&points, 0.3).unwrap() > 0.99);
        let mut random = OrientedPoints::default();
        for index in 0..5000 {
            random.places.push([0, 1, 2].map(|a| to_f32(uniform(3 * index + a))));
            random.normals.push([3, 4, 5].map(|a| to_f32(normal(6 * index + a))));
            random.colors.push([0.5; 3]);
        }
        let error = normals_agreement(&random, 0.3).unwrap_err();
        assert!(error.to_string().starts_with("no consistent surface (0.2"), "{error}");
        // A sixth of the mean of 16 random directions' cosines is above a half.
        let PointsError::Inconsistent { agreeing, .. } = error else { panic!("{error}") };
        assert!((0.2..0.3).contains(&agreeing), "{agreeing}");
    }

    #[test]
    fn lone_points_go_and_a_thin_rim_stays() {
        let mut points = torus_points(50_000, [0.0, 0.0]);
        let lone = [[0.0, 0.0, 0.0], [1.4, 1.4, 0.3], [0.05, 0.0, 0.1]];
        points.places.extend(lone);
        let cube = Cube::around(&points.places, 1.1).unwrap();
        let keep = outliers_by_cells(&points.places, &cube, 5);
        assert_eq!(keep[50_000..], [false; 3]);
        assert_eq!(keep.iter().filter(|&&k| !k).count(), 3);
        points.places.push([f32::NAN; 3]);
        let twenty = NonZeroUsize::new(20).unwrap();
        let mut keep = outliers_by_neighbours(&points.places, twenty, 20.0);
        assert_eq!(keep.pop(), Some(false));
        assert_eq!(keep[50_000..], [false; 3]);
        assert_eq!(keep.iter().filter(|&&k| !k).count(), 3);
    }

    #[test]
    fn empty_and_invalid_points_break_nothing() {
        let twenty = NonZeroUsize::new(20).unwrap();
        assert!(outliers_by_neighbours(&[], twenty, 20.0).is_empty());
        assert_eq!(outliers_by_neighbours(&[[f32::INFINITY; 3]], twenty, 20.0), [false]);
        assert_eq!(outliers_by_neighbours(&[[1.0; 3]; 3], twenty, 20.0), [true; 3]);
        let mut points = torus_points(1000, [0.0, 0.0]);
        points.places[9] = [f32::NAN; 3];
        assert!(normals_agreement(&points, 0.0).is_err());
        points.normals.pop();
        assert!(matches!(normals_agreement(&points, 0.0), Err(PointsError::Lengths { .. })));
        assert_eq!(Cube::around(&[], 1.1), None);
        assert_eq!(Cube::around(&[[f32::NAN; 3]], 1.1), None);
    }

    #[test]
    fn a_place_has_a_point_within_the_distance_of_the_nearest() {
        let points = torus_points(5000, [0.0, 0.0]).places;
        let along = |index: u64| to_f32(6.0 * uniform(index) - 3.0);
        let places: Vec<[f32; 3]> =
            (0..200).map(|n| [along(3 * n), along(3 * n + 1), along(3 * n + 2)]).collect();
        let squared = |a: &[f32; 3], b: &[f32; 3]| {
            (0..3).map(|axis| f64::from(a[axis] - b[axis]).powi(2)).sum::<f64>()
        };
        for radius in [0.05, 0.5, 1.5] {
            let expected: Vec<bool> = places
                .iter()
                .map(|place| points.iter().any(|point| squared(place, point) <= radius * radius))
                .collect();
            assert!(expected.contains(&true) && expected.contains(&false), "{radius}");
            assert_eq!(have_points_within(&points, &places, radius), expected, "{radius}");
        }
        assert_eq!(have_points_within(&[], &places[..2], 1.0), [false; 2]);
    }
}
