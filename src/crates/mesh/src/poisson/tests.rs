//! Surfaces of points of known solids.

use std::f64::consts::PI;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::known_meshes::{TORUS_VOLUME, bad_edges, torus_distance, volume};
use crate::mesh::Mesh;
use crate::narrow::to_f64s;
use crate::points::OrientedPoints;
use crate::points::shapes::{sphere, torus};
use crate::vector::length;
use crate::watch::{Stopped, Watch};

fn made(points: &OrientedPoints, depth: u32) -> Result<Reconstruction, PoissonError> {
    let stop = AtomicBool::new(false);
    let watch = Watch { stop: &stop, told: &|_, _| () };
    let settings = PoissonSettings { depth: Depth::Exactly(depth), ..Default::default() };
    reconstruct(points, &settings, &watch)
}

/// V - E + F of a closed mesh.
fn euler_number(mesh: &Mesh) -> i64 {
    mesh.vertices.len() as i64 - mesh.faces.len() as i64 / 2
}

#[test]
fn a_torus_is_closed_and_as_near_as_its_noise_allows() {
    let made = made(&torus(1_000_000, [0.003, 0.11]), 8).unwrap();
    let mesh = &made.mesh;
    let distances = mesh.vertices.iter().map(|&v| torus_distance(to_f64s(v)).abs());
    let mean = distances.sum::<f64>() / mesh.vertices.len() as f64;
    // The reference's figure is .00034 on points like these; the bar is the issue's.
    assert!(mean < 0.0005, "{mean}");
    assert_eq!(bad_edges(mesh), 0);
    assert_eq!(euler_number(mesh), 0);
    let share = volume(mesh) / TORUS_VOLUME;
    assert!((share - 1.0).abs() < 0.001, "{share}");
    // 4 pi² R r; the mean of sum phi² over how a surface lies between nodes is exact to a percent.
    assert!((made.area / (4.0 * PI * PI * 0.4) - 1.0).abs() < 0.01, "{}", made.area);
    // Twenty steps a level are enough.
    assert!(made.levels.iter().all(|level| level.residual < 1e-4));
    // Points a cell: count / area times the cell's face; the seam of cells blurs it by a few percent.
    let expected = 1e6 / 15.791 * made.cell * made.cell;
    let mean =
        made.densities.iter().map(|&d| f64::from(d)).sum::<f64>() / made.densities.len() as f64;
    assert!((mean / expected - 1.0).abs() < 0.05, "{mean} against {expected}");
}

#[test]
fn vertices_have_the_colours_of_the_points_around() {
    let made = made(&sphere(30_000, [0.0, 0.0], |_| true), 6).unwrap();
    for (vertex, color) in made.mesh.vertices.iter().zip(&made.mesh.colors) {
        for axis in 0..3 {
            // Half the normal plus a half; a cell of level 5 is .07 wide.
            assert!((0.5 + 0.5 * vertex[axis] - color[axis]).abs() < 0.04);
        }
    }
}

#[test]
fn the_bits_are_the_same_for_any_number_of_threads() {
    let points = torus(10_000, [0.003, 0.11]);
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| made(&points, 6).unwrap())
    };
    let one = with(1);
    assert_eq!(one, with(2));
    assert_eq!(one, with(5));
}

#[test]
fn a_hole_of_a_fifth_is_closed_and_opens_when_trimmed() {
    // A cap of height .4 has a fifth of the unit sphere's area.
    let points = sphere(25_000, [0.002, 0.05], |n| n[2] < 0.6);
    let mut made = made(&points, 6).unwrap();
    assert_eq!(bad_edges(&made.mesh), 0);
    assert_eq!(euler_number(&made.mesh), 2);
    let before = made.mesh.faces.len();
    let trimmed = trim(&mut made.mesh, &mut made.densities, Trim::PointsACell(1.0)).unwrap();
    assert_eq!(made.mesh.faces.len() + trimmed, before);
    assert!(open_edges(&made.mesh) > 50);
    assert_eq!(made.mesh.vertices.len(), made.densities.len());
    assert_eq!(made.mesh.vertices.len(), made.mesh.colors.len());
    // What is left is the sphere; two cells of the density's level beyond the rim may stay.
    let reach = 0.6 + 8.0 * made.cell;
    assert!(made.mesh.vertices.iter().all(|v| f64::from(v[2]) < reach));
    assert!(made.mesh.vertices.iter().any(|v| f64::from(v[2]) > 0.55));
}

#[test]
fn half_a_sphere_is_followed_shut() {
    for depth in [5, 6] {
        let made = made(&sphere(20_000, [0.0, 0.0], |n| n[2] > 0.0), depth).unwrap();
        assert!(!made.is_cut);
        assert_eq!(bad_edges(&made.mesh), 0, "depth {depth}");
        assert_eq!(euler_number(&made.mesh), 2, "depth {depth}");
        // The dome is where the points are.
        for vertex in made.mesh.vertices.iter().filter(|v| v[2] > 0.2) {
            assert!((length(to_f64s(*vertex)) - 1.0).abs() < 0.5 * made.cell, "{vertex:?}");
        }
    }
}

#[test]
fn a_grant_of_bricks_cuts_the_surface_and_says_so() {
    let points = sphere(15_000, [0.0, 0.0], |n| n[2] > 0.0);
    let stop = AtomicBool::new(false);
    let watch = Watch { stop: &stop, told: &|_, _| () };
    let full = made(&points, 6).unwrap();
    let of_points = full.levels.last().unwrap().bricks;
    let exactly = |bricks| PoissonSettings { depth: Depth::Exactly(6), bricks, alpha: 4.0 };
    let cut = reconstruct(&points, &exactly(of_points + 3), &watch).unwrap();
    assert!(cut.is_cut);
    assert!(open_edges(&cut.mesh) > 0);
    let refused = reconstruct(&points, &exactly(of_points - 1), &watch).unwrap_err();
    let found = PoissonError::TooManyBricks {
        depth: 6,
        bricks: of_points,
        granted: of_points - 1,
        fits: 5,
    };
    assert_eq!(refused, found);
}

#[test]
fn the_depth_follows_the_points() {
    let depth = |count: usize| {
        let stop = AtomicBool::new(false);
        let watch = Watch { stop: &stop, told: &|_, _| () };
        let points = sphere(count, [0.0, 0.0], |_| true);
        reconstruct(&points, &PoissonSettings::default(), &watch).unwrap().depth
    };
    // A level more has four times the cells.
    assert_eq!(depth(5_000) + 1, depth(20_000));
    assert!((4..7).contains(&depth(1000)));
}

#[test]
fn a_room_seen_from_inside_is_closed_and_looks_inwards() {
    let mut points = sphere(30_000, [0.0, 0.0], |_| true);
    points.normals.iter_mut().for_each(|n| *n = n.map(|c| -c));
    let made = made(&points, 6).unwrap();
    assert_eq!(bad_edges(&made.mesh), 0);
    // The faces look at the middle, so that the volume counts as negative.
    assert!((volume(&made.mesh) / (-4.0 / 3.0 * PI) - 1.0).abs() < 0.01);
}

#[test]
fn points_that_are_no_surface_are_named_errors() {
    let few = torus(37, [0.0, 0.0]);
    let message = made(&few, 6).unwrap_err().to_string();
    assert!(message.starts_with("no surface: 37 points of 1000"), "{message}");
    let mut same = torus(2000, [0.0, 0.0]);
    same.places.fill([1.0, 2.0, 3.0]);
    assert_eq!(made(&same, 6), Err(PoissonError::NoExtent { points: 2000 }));
    let mut uneven = torus(2000, [0.0, 0.0]);
    uneven.colors.pop();
    assert!(matches!(made(&uneven, 6), Err(PoissonError::Points(PointsError::Lengths { .. }))));
    let mut broken = torus(2000, [0.0, 0.0]);
    broken.places[11] = [f32::NAN; 3];
    broken.normals[12] = [f32::INFINITY; 3];
    assert!(matches!(made(&broken, 6), Err(PoissonError::NotConverged { .. })));
    let points = torus(2000, [0.0, 0.0]);
    assert_eq!(made(&points, 3), Err(PoissonError::Depth { depth: 3, deepest: DEEPEST }));
    assert_eq!(made(&points, 17), Err(PoissonError::Depth { depth: 17, deepest: DEEPEST }));
    let stop = AtomicBool::new(true);
    let watch = Watch { stop: &stop, told: &|_, _| () };
    let stopped = reconstruct(&points, &PoissonSettings::default(), &watch);
    assert_eq!(stopped, Err(PoissonError::Stopped(Stopped)));
}

#[test]
fn hardly_any_points_in_any_shape_break_nothing() {
    // A line, a plane and a cloud: whatever comes out, it is closed or a named error.
    let mut line = torus(1500, [0.0, 0.0]);
    line.places.iter_mut().for_each(|p| *p = [p[0], 0.0, 0.0]);
    let mut plane = torus(1500, [0.0, 0.0]);
    plane.places.iter_mut().for_each(|p| p[2] = 0.0);
    plane.normals.fill([0.0, 0.0, 1.0]);
    let mut cloud = torus(1500, [0.5, 9.0]);
    cloud.places[7] = [40.0, 0.0, 0.0];
    for points in [line, plane, cloud] {
        for depth in [4, 5, 7] {
            if let Ok(made) = made(&points, depth) {
                assert!(made.mesh.vertices.as_flattened().iter().all(|x| x.is_finite()));
                assert_eq!(made.mesh.vertices.len(), made.mesh.colors.len());
            }
        }
    }
}

#[test]
fn a_sheet_runs_to_the_cube_and_says_that_it_is_open() {
    let mut points = torus(20_000, [0.0, 0.0]);
    for (place, normal) in points.places.iter_mut().zip(&mut points.normals) {
        let wide = place[0].hypot(place[1]);
        *place = [place[0] / wide * (wide - 0.6), place[1] / wide * (wide - 0.6), 0.1];
        *normal = [0.0, 0.0, 1.0];
    }
    let made = made(&points, 6).unwrap();
    assert!(made.meets_cube && !made.is_cut);
    assert!(open_edges(&made.mesh) > 0);
    let reach = 1.1 * 0.8 + 0.01;
    let sheet = made.mesh.vertices.iter().filter(|v| v[0].hypot(v[1]) < 0.75);
    assert!(sheet.clone().count() > 1000);
    assert!(sheet.clone().all(|v| (f64::from(v[2]) - 0.1).abs() < 0.2 * made.cell));
    assert!(made.mesh.vertices.iter().flatten().all(|x| f64::from(x.abs()) < reach));
}

/// The left side applied to a function of the nodes of the coarsest level.
fn applied(
    points: &SortedPoints,
    areas: &[f32],
    alpha: f64,
    f: impl Fn([f64; 3]) -> f64,
) -> (Bricks, Vec<f32>) {
    let band = Band::dense(points, COARSEST);
    let screen = Screen::new(points, areas, &band, COARSEST, alpha);
    let mut x = vec![0.0; band.bricks.len() * 512];
    for brick in 0..band.bricks.len() {
        let place = band.bricks.place(brick).map(|p| f64::from(p) * 8.0);
        for node in 0..512 {
            if band::is_set(&band.unknown[brick], node) {
                let local = [node % 8, node / 8 % 8, node / 64];
                x[brick * 512 + node] =
                    to_f32(f(std::array::from_fn(|a| place[a] + local[a] as f64)));
            }
        }
    }
    let operator = Operator { level: COARSEST, band: &band, screen: &screen };
    let mut out = vec![0.0; x.len()];
    let mut block = [0.0; crate::bricks::BLOCK_NODES];
    for (brick, out) in out.chunks_mut(512).enumerate() {
        band.bricks.gather(&x, brick, 0.0, &mut block);
        operator.apply(brick, &block, out);
    }
    (band.bricks, out)
}

fn sorted(points: &OrientedPoints) -> SortedPoints {
    SortedPoints::new(points, Cube::around(&points.places, 2.2).unwrap())
}

#[test]
fn the_left_side_is_zero_for_a_constant_and_linear_inside() {
    let points = sorted(&torus(1000, [0.0, 0.0]));
    let areas = vec![1e-4; points.len()];
    let (_, out) = applied(&points, &areas, 0.0, |_| 1.0);
    // Rounding of f32 in sums of 27 products of up to 3: also at the border, which is free.
    let most = out.iter().fold(0.0, |most: f32, y| most.max(y.abs()));
    assert!(most < 5e-6 && out.iter().all(|y| y.is_finite()), "{most}");
    let (bricks, out) = applied(&points, &areas, 0.0, |at| at[0] - 2.0 * at[1] + 0.5 * at[2]);
    for brick in 0..bricks.len() {
        for node in 0..512 {
            let local = [node % 8, node / 8 % 8, node / 64];
            let place = bricks.place(brick);
            let at: [usize; 3] = std::array::from_fn(|a| place[a] as usize * 8 + local[a]);
            if at.iter().all(|a| (1..32).contains(a)) {
                // Values of up to 80 in f32, a dozen roundings each.
                assert!(out[brick * 512 + node].abs() < 5e-4, "{at:?}");
            }
        }
    }
}

#[test]
fn the_points_part_of_the_left_side_is_their_area_times_the_value() {
    let points = sorted(&torus(5000, [0.0, 0.0]));
    let areas: Vec<f32> = (0..points.len()).map(|row| 1e-4 * (1 + row % 7) as f32).collect();
    let (_, out) = applied(&points, &areas, 4.0, |at| 1.0 + at[0]);
    // Hats sum to one, so that the sum over all nodes is alpha/h² sum_c A_c x(c), and x is linear.
    let found: f64 = out.iter().map(|&y| f64::from(y)).sum();
    let cells = f64::from(1_u32 << COARSEST);
    let value = |row: usize| 1.0 + points.cube.unit(points.points.places[row])[0] * cells;
    let wanted: f64 = (0..points.len()).map(|row| f64::from(areas[row]) * value(row)).sum();
    assert!((found / (4.0 * cells * cells * wanted) - 1.0).abs() < 1e-5);
}

#[test]
fn a_restricted_right_side_is_that_of_the_coarser_hats() {
    let points = sorted(&torus(3000, [0.01, 0.3]));
    let areas: Vec<f32> = (0..points.len()).map(|row| 1e-4 * (1 + row % 5) as f32).collect();
    let (fine, coarse) = (Band::near(&points, COARSEST + 1), Band::dense(&points, COARSEST));
    let fine_b = operator::finest(&points, &areas, &fine, COARSEST + 1);
    let b = operator::restricted(&coarse, &fine.bricks, &fine_b);
    // The integral of grad phi · V over all space against V's moments: summed with the values of a
    // linear function of the fine nodes, both levels give the same integral of its gradient times V.
    let moment = |bricks: &Bricks, b: &[f32], scale: f64| -> [f64; 4] {
        let mut sums = [0.0; 4];
        for (at, &b) in b.iter().enumerate() {
            let place = bricks.place(at / 512);
            let local = [at % 8, at / 8 % 8, at / 64 % 8];
            sums[3] += f64::from(b);
            for a in 0..3 {
                sums[a] += f64::from(b) * scale * (f64::from(place[a]) * 8.0 + local[a] as f64);
            }
        }
        sums
    };
    let of_fine = moment(&fine.bricks, &fine_b, 1.0);
    let of_coarse = moment(&coarse.bricks, &b, 2.0);
    // The integral of V itself, in the fine level's cells.
    let cells = 4.0_f64.powi(6);
    let exact: [f64; 3] = std::array::from_fn(|a| {
        let sum = |row: usize| f64::from(areas[row] * points.points.normals[row][a]);
        cells * (0..points.len()).map(sum).sum::<f64>()
    });
    for a in 0..3 {
        // Sums of some 10^4 terms in f32; each level is divided by its own cell.
        assert!((of_fine[a] - exact[a]).abs() < 1e-3, "{of_fine:?} {exact:?}");
        assert!((2.0 * of_coarse[a] - of_fine[a]).abs() < 1e-3, "{of_coarse:?} {of_fine:?}");
    }
    assert!(of_fine[3].abs() < 1e-3 && of_coarse[3].abs() < 1e-3);
}

#[test]
fn a_trim_that_leaves_nothing_is_a_named_error() {
    let mut made = made(&torus(5000, [0.0, 0.0]), 5).unwrap();
    let whole = made.mesh.clone();
    assert_eq!(trim(&mut made.mesh, &mut made.densities, Trim::Nothing), Ok(0));
    assert_eq!(made.mesh, whole);
    let nothing = trim(&mut made.mesh.clone(), &mut made.densities.clone(), Trim::Quantile(1.0));
    let (vertices, faces) = (whole.vertices.len(), whole.faces.len());
    assert_eq!(nothing, Err(NothingLeft { vertices, faces }));
    let gone = trim(&mut made.mesh, &mut made.densities, Trim::Quantile(0.1)).unwrap();
    // A vertex has six faces and shares each with two more.
    assert!(gone > faces / 20 && gone < faces / 2, "{gone} of {faces}");
    assert!(made.mesh.vertices.len() <= vertices - vertices / 10);
}
