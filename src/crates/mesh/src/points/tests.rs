//! Points that are none, and points far from the others.

use std::num::NonZeroUsize;

use super::*;
use crate::narrow::to_f32;
use crate::points::shapes::{normal, torus, uniform};
use crate::poisson::Cube;

#[test]
fn rows_that_are_not_finite_are_dropped_and_counted() {
    let mut points = torus(2000, [0.0, 0.0]);
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
    let mut few = torus(37, [0.0, 0.0]);
    assert_eq!(checked(&mut few, 1000), Err(PointsError::TooFew { found: 37, wanted: 1000 }));
    assert!(matches!(checked(&mut OrientedPoints::default(), 1), Err(PointsError::TooFew { .. })));
}

#[test]
fn a_box_keeps_its_points_or_says_where_they_are() {
    let mut points = torus(2000, [0.0, 0.0]);
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
    let points = torus(20_000, [0.003, 0.11]);
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
    let mut points = torus(50_000, [0.0, 0.0]);
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
fn no_points_and_points_that_are_none_break_nothing() {
    let twenty = NonZeroUsize::new(20).unwrap();
    assert!(outliers_by_neighbours(&[], twenty, 20.0).is_empty());
    assert_eq!(outliers_by_neighbours(&[[f32::INFINITY; 3]], twenty, 20.0), [false]);
    assert_eq!(outliers_by_neighbours(&[[1.0; 3]; 3], twenty, 20.0), [true; 3]);
    let mut points = torus(1000, [0.0, 0.0]);
    points.places[9] = [f32::NAN; 3];
    assert!(normals_agreement(&points, 0.0).is_err());
    points.normals.pop();
    assert!(matches!(normals_agreement(&points, 0.0), Err(PointsError::Lengths { .. })));
    assert_eq!(Cube::around(&[], 1.1), None);
    assert_eq!(Cube::around(&[[f32::NAN; 3]], 1.1), None);
}

#[test]
fn a_place_has_a_point_within_the_distance_of_the_nearest() {
    let points = torus(5000, [0.0, 0.0]).places;
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
