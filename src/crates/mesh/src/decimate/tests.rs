#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]

use std::time::Instant;

use super::*;
use crate::known_meshes::{cube, joined, moved, sphere, torus};
use crate::mesh::Vec3;
use crate::narrow::to_f64s;
use crate::place::{centroid, corners};
use crate::random::RandomStream;
use crate::report::MeshReport;
use crate::search::BoxTree;
use crate::vector::{cross, dot, sub};

/// A closed torus with bumps, noise of a twentieth of an edge and a checker of colours.
fn bumpy([around, across]: [u32; 2]) -> Mesh {
    let noise = RandomStream::of_seed(4);
    let edge = 0.05 * std::f64::consts::TAU / f64::from(across);
    let mut mesh = torus([1.0, 0.4], [around, across], |u, v| {
        let at = (u * 1e6) as u64 * 10_000_000 + (v * 1e6) as u64;
        1.0 + 0.05 * (5.0 * u).sin() * (3.0 * v).cos() + edge * (noise.uniform(at) - 0.5)
    });
    mesh.colors = mesh.vertices.iter().map(|&place| checker(to_f64s(place))).collect();
    mesh
}

fn checker([x, y, z]: Vec3) -> [f32; 3] {
    let u = y.atan2(x);
    let v = z.atan2(x.hypot(y) - 1.0);
    if (3.0 * u).sin() * (2.0 * v).sin() > 0.0 { [0.9, 0.5, 0.2] } else { [0.1, 0.5, 0.6] }
}

/// Directed edges without exactly one opposite.
fn bad_edges(mesh: &Mesh) -> usize {
    let report = MeshReport::of(mesh).unwrap();
    report.boundary_edges + report.nonmanifold_edges + report.misoriented_edges
}

/// Distances of face centres to the surface that was decimated: mean and greatest; and the mean
/// difference of colour there, in 1/255.
fn errors(found: &Mesh, truth: &Mesh) -> (f64, f64, f64) {
    let tree = BoxTree::new(truth).unwrap();
    let (mut sum, mut greatest, mut color_sum) = (0.0, 0.0_f64, 0.0);
    for &face in &found.faces {
        let nearest = tree.nearest(centroid(corners(found, face)), f64::INFINITY).unwrap();
        sum += nearest.distance;
        greatest = greatest.max(nearest.distance);
        let of_face =
            |mesh: &Mesh, face: [u32; 3]| face.map(|vertex| to_f64s(mesh.colors[vertex as usize]));
        let found_color = centroid(of_face(found, face));
        let true_color = at_place(truth, truth.faces[nearest.face as usize], nearest.place);
        let off = sub(found_color, true_color);
        color_sum += off.iter().map(|x| x.abs()).sum::<f64>() / 3.0;
    }
    let count = found.faces.len() as f64;
    (sum / count, greatest, 255.0 * color_sum / count)
}

/// Colour at a place of a face, by areas.
fn at_place(mesh: &Mesh, face: [u32; 3], place: Vec3) -> Vec3 {
    let [a, b, c] = corners(mesh, face);
    let normal = cross(sub(b, a), sub(c, a));
    let part =
        |p: Vec3, q: Vec3| dot(normal, cross(sub(p, place), sub(q, place))) / dot(normal, normal);
    let shares = [part(b, c), part(c, a), part(a, b)];
    std::array::from_fn(|channel| {
        (0..3).map(|i| shares[i] * f64::from(mesh.colors[face[i] as usize][channel])).sum()
    })
}

#[test]
fn a_tenth_of_the_faces_keeps_shape_colour_and_closedness() {
    let mesh = bumpy([500, 200]);
    let (found, done) = decimate(mesh.clone(), &DecimateOptions::to(20_000)).unwrap();
    assert!(found.faces.len() <= 20_000 && found.faces.len() > 19_000, "{}", found.faces.len());
    assert_eq!((done.faces_before, done.faces, done.blocks), (200_000, found.faces.len(), 1));
    assert_eq!(bad_edges(&found), 0, "{}", done.cleaned);
    let report = MeshReport::of(&found).unwrap();
    assert_eq!((report.genus, report.components, report.unused_vertices), (Some(1), 1, 0));
    let (mean, greatest, color) = errors(&found, &mesh);
    // A face of edge e leaves a surface of radius r by e²/(8 r): .003 at the tube.
    assert!(mean < 0.001 && greatest < 0.01, "{mean} {greatest}");
    assert!(color < 4.0, "{color}");
    let (again, _) = decimate(mesh, &DecimateOptions::to(20_000)).unwrap();
    assert_eq!(again, found);
}

#[test]
fn blocks_fit_and_are_the_same_for_any_number_of_threads() {
    let mesh = bumpy([250, 100]);
    let options = DecimateOptions { target_faces: 5_000, block_faces: 10_000 };
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| decimate(mesh.clone(), &options).unwrap())
    };
    let (found, done) = run(1);
    assert_eq!(done.blocks, 8);
    assert!(found.faces.len() <= 5_000 && bad_edges(&found) == 0, "{}", done.cleaned);
    assert!(errors(&found, &mesh).1 < 0.02);
    assert_eq!(run(3).0, found);
}

#[test]
fn a_mesh_below_the_target_stays_as_it_is() {
    let mut mesh = sphere(1.0, 2);
    mesh.normals = mesh.vertices.clone();
    let (found, done) = decimate(mesh.clone(), &DecimateOptions::to(128)).unwrap();
    assert_eq!((found, done.faces), (mesh, 128));
}

#[test]
fn a_border_stays_and_normals_are_new() {
    let mut mesh = sphere(1.0, 5);
    mesh.faces.retain(|face| face.iter().all(|&v| mesh.vertices[v as usize][2] > -1e-6));
    mesh.normals = vec![[0.0, 0.0, 1.0]; mesh.vertices.len()];
    let (found, _) = decimate(mesh, &DecimateOptions::to(600)).unwrap();
    assert!(found.faces.len() <= 600);
    assert_eq!(found.normals, vertex_normals(&found));
    let on_border = found.vertices.iter().filter(|v| v[2].abs() < 1e-3);
    // The rim stays a circle.
    let report = MeshReport::of(&found).unwrap();
    assert!(report.boundary_edges > 20 && on_border.clone().count() >= report.boundary_edges);
    assert!(on_border.into_iter().all(|v| (v[0].hypot(v[1]) - 1.0).abs() < 0.01));
}

#[test]
fn pieces_that_cannot_shrink_give_way_to_the_target() {
    let mut many = cube();
    for i in 1..50 {
        many = joined(many, &moved(cube(), [2.0 * f64::from(i), 0.0, 0.0]));
    }
    let (found, done) = decimate(many.clone(), &DecimateOptions::to(100)).unwrap();
    assert!(done.faces <= 100 && done.faces > 0, "{}", found.faces.len());
    let error = decimate(many.clone(), &DecimateOptions::to(0)).unwrap_err().to_string();
    assert!(error.contains("zero triangles are left of 600"), "{error}");
    let broken = Mesh { faces: vec![[0, 1, 900]], ..many };
    assert!(decimate(broken, &DecimateOptions::to(100)).is_err());
}

/// The figures of 2 million triangles: `cargo test --release -- --ignored two_million --nocapture`.
#[test]
#[ignore = "takes half a minute"]
fn two_million_faces_take_seconds() {
    let mesh = bumpy([1581, 632]);
    let copy = mesh.clone();
    let cleaned = Instant::now();
    let (_, counts) = clean(mesh.clone(), &CleanOptions::default()).unwrap();
    println!("cleaned in {:.1} s: {counts}", cleaned.elapsed().as_secs_f64());
    let started = Instant::now();
    let (found, done) = decimate(copy, &DecimateOptions::to(200_000)).unwrap();
    let seconds = started.elapsed().as_secs_f64();
    let (mean, greatest, color) = errors(&found, &mesh);
    println!(
        "{} -> {} faces in {seconds:.1} s, cleaned: {}",
        done.faces_before, done.faces, done.cleaned
    );
    println!(
        "error {mean:.2e}, greatest {greatest:.2e}, colour {color:.2}/255, bad edges {}",
        bad_edges(&found)
    );
    assert!(bad_edges(&found) == 0 && color < 2.0 && done.faces <= 200_000);
}
