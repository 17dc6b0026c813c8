//! Meshes and points with known properties, for tests.

use std::collections::HashMap;
use std::f64::consts::{PI, TAU};
use std::fmt::Debug;
use std::sync::atomic::AtomicBool;

use crate::Watch;
use crate::bricks::{BRICK_NODES, Bricks, SIDE};
use crate::mesh::{Camera, Mesh, Vec3};
use crate::narrow::{floor_usize, to_f32s, to_f64s, to_u32};
use crate::place::{add, corners, cross, mul, normalize, scale, six_volumes, sub};
use crate::points::OrientedPoints;
use crate::random::RandomStream;

pub(crate) fn unwatched() -> Watch<'static> {
    static STOP: AtomicBool = AtomicBool::new(false);
    Watch { stop: &STOP, on_progress: &|_, _| () }
}

/// Returns a camera at `from` that looks at `to`.
pub(crate) fn looking(from: Vec3, to: Vec3, size: [usize; 2], focal_px: f64) -> Camera {
    let forward = normalize(sub(to, from));
    let right = normalize(cross(forward, [0.1, 0.2, 1.0]));
    let rotation = [right, cross(forward, right), forward];
    let translation = scale(mul(&rotation, from), -1.0);
    Camera { rotation, translation, ..ahead(from, size, focal_px) }
}

/// Returns a camera at `eye` that looks along z, y down.
pub(crate) fn ahead(eye: Vec3, size: [usize; 2], focal_px: f64) -> Camera {
    let rotation = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    let ([width, height], centre_px) = (size, size.map(|pixels| 0.5 * pixels as f64));
    let translation = scale(eye, -1.0);
    Camera { width, height, focal_px: [focal_px; 2], centre_px, rotation, translation }
}

/// Runs `work` in pools of several sizes, and returns its result, which has to be the same in all of them.
pub(crate) fn same_on_any_threads<T: Debug + PartialEq + Send>(work: impl Fn() -> T + Sync) -> T {
    let on = |threads| {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(&work)
    };
    let alone = on(1);
    for threads in [2, 3, 5] {
        assert_eq!(on(threads), alone, "{threads} threads");
    }
    alone
}

pub(crate) fn mesh_of(vertices: &[[f32; 3]], faces: &[[u32; 3]]) -> Mesh {
    Mesh { vertices: vertices.to_vec(), faces: faces.to_vec(), ..Mesh::default() }
}

/// Returns the places of all nodes, in the order of the bricks.
pub(crate) fn node_places(bricks: &Bricks) -> impl Iterator<Item = [usize; 3]> {
    (0..bricks.len() * BRICK_NODES).map(|at| {
        let node = at % BRICK_NODES;
        let local = [node % SIDE, node / SIDE % SIDE, node / (SIDE * SIDE)];
        let brick = bricks.place(at / BRICK_NODES);
        std::array::from_fn(|axis| brick[axis] as usize * SIDE + local[axis])
    })
}

/// Returns two triangles with one vertex in common.
pub(crate) fn bow_tie() -> Mesh {
    mesh_of(
        &[[0.0; 3], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]],
        &[[0, 1, 2], [0, 3, 4]],
    )
}

/// Returns a square of side 1 of two triangles, upwards.
pub(crate) fn square() -> Mesh {
    mesh_of(&[[0.0; 3], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 1.0, 0.0]], &[[0, 1, 2], [0, 2, 3]])
}

/// Returns a cube of side 1 at the origin, closed and outward.
pub(crate) fn cube() -> Mesh {
    let vertices: Vec<[f32; 3]> =
        (0..8_u8).map(|i| [i & 1, i >> 1 & 1, i >> 2 & 1].map(f32::from)).collect();
    let faces = [
        [[0, 2, 1], [1, 2, 3], [4, 5, 6], [5, 7, 6], [0, 1, 4], [1, 5, 4]],
        [[2, 6, 3], [3, 6, 7], [0, 4, 2], [2, 4, 6], [1, 3, 5], [3, 7, 5]],
    ];
    mesh_of(&vertices, faces.as_flattened())
}

/// Returns an octahedron's faces cut in four `cuts` times, on a sphere about the origin; outward.
pub(crate) fn sphere(radius: f64, cuts: u32) -> Mesh {
    let mut places: Vec<Vec3> = (0..6)
        .map(|i| std::array::from_fn(|a| if a == i / 2 { 1.0 - 2.0 * (i % 2) as f64 } else { 0.0 }))
        .collect();
    let mut faces: Vec<[u32; 3]> = [
        [[0, 2, 4], [2, 1, 4], [1, 3, 4], [3, 0, 4]],
        [[2, 0, 5], [1, 2, 5], [3, 1, 5], [0, 3, 5]],
    ]
    .concat();
    for _ in 0..cuts {
        faces = cut(&mut places, &faces);
    }
    let vertices = places.into_iter().map(|p| to_f32s(scale(normalize(p), radius))).collect();
    Mesh { vertices, faces, ..Mesh::default() }
}

pub(crate) fn subdivided(mesh: &Mesh) -> Mesh {
    let mut places: Vec<Vec3> = mesh.vertices.iter().map(|&v| to_f64s(v)).collect();
    let faces = cut(&mut places, &mesh.faces);
    Mesh { vertices: places.into_iter().map(to_f32s).collect(), faces, ..Mesh::default() }
}

fn cut(places: &mut Vec<Vec3>, faces: &[[u32; 3]]) -> Vec<[u32; 3]> {
    let mut middles: HashMap<[u32; 2], u32> = HashMap::new();
    let mut middle = |a: u32, b: u32| {
        *middles.entry([a.min(b), a.max(b)]).or_insert_with(|| {
            places.push(scale(add(places[a as usize], places[b as usize]), 0.5));
            to_u32(places.len() - 1)
        })
    };
    let quarter = |&[a, b, c]: &[u32; 3]| {
        let [ab, bc, ca] = [middle(a, b), middle(b, c), middle(c, a)];
        [[a, ab, ca], [ab, b, bc], [ca, bc, c], [ab, bc, ca]]
    };
    faces.iter().flat_map(quarter).collect()
}

/// Returns a torus about the z axis of `around` x `across` quads cut in two, its tube's radius times `bump(u, v)`,
/// both angles in radians; outward.
pub(crate) fn torus(
    [large, small]: [f64; 2],
    [around, across]: [u32; 2],
    bump: impl Fn(f64, f64) -> f64,
) -> Mesh {
    let mut mesh = Mesh::default();
    for i in 0..around {
        for j in 0..across {
            let (u, v) =
                (TAU * f64::from(i) / f64::from(around), TAU * f64::from(j) / f64::from(across));
            let r = small * bump(u, v);
            let ring = large + r * v.cos();
            mesh.vertices.push(to_f32s([ring * u.cos(), ring * u.sin(), r * v.sin()]));
            let [a, b, c, d] = [[0, 0], [1, 0], [1, 1], [0, 1]]
                .map(|[di, dj]| (i + di) % around * across + (j + dj) % across);
            mesh.faces.extend([[a, b, c], [a, c, d]]);
        }
    }
    mesh
}

/// Returns a torus with bumps whose tube varies by a random part of `noise` from vertex to vertex.
pub(crate) fn rough_torus(sizes: [u32; 2], seed: u64, noise: f64) -> Mesh {
    let stream = RandomStream::of_seed(seed);
    torus([1.0, 0.4], sizes, |u, v| {
        let [u_step, v_step] = [u, v].map(|angle| floor_usize(angle * 1e6) as u64);
        let random = stream.uniform(u_step * 10_000_000 + v_step) - 0.5;
        1.0 + 0.05 * (5.0 * u).sin() * (3.0 * v).cos() + noise * random
    })
}

/// Radius of the torus' circle and of its tube.
pub(crate) const TORUS: [f64; 2] = [1.0, 0.4];

pub(crate) const TORUS_VOLUME: f64 = 2.0 * PI * PI * TORUS[0] * TORUS[1] * TORUS[1];

/// Returns a place on the torus at angles around and across, and its outward normal.
pub(crate) fn on_torus(u: f64, v: f64) -> [Vec3; 2] {
    let normal = [v.cos() * u.cos(), v.cos() * u.sin(), v.sin()];
    let ring = [TORUS[0] * u.cos(), TORUS[0] * u.sin(), 0.0];
    [add(ring, scale(normal, TORUS[1])), normal]
}

/// Returns the distance to the torus, below zero inside.
pub(crate) fn torus_distance([x, y, z]: Vec3) -> f64 {
    (x.hypot(y) - TORUS[0]).hypot(z) - TORUS[1]
}

/// Counts directed edges without exactly one opposite.
pub(crate) fn bad_edges(mesh: &Mesh) -> usize {
    let directed = mesh.faces.iter().flat_map(|&[a, b, c]| [[a, b], [b, c], [c, a]]);
    let mut edges: Vec<([u32; 2], bool)> =
        directed.map(|[a, b]| ([a.min(b), a.max(b)], a < b)).collect();
    edges.sort_unstable();
    let of_edge = edges.chunk_by(|a, b| a.0 == b.0);
    of_edge.filter(|uses| !matches!(uses, [a, b] if a.1 != b.1)).map(<[_]>::len).sum()
}

pub(crate) fn volume(mesh: &Mesh) -> f64 {
    mesh.faces.iter().map(|&face| six_volumes(corners(mesh, face))).sum::<f64>() / 6.0
}

pub(crate) fn joined(mut first: Mesh, second: &Mesh) -> Mesh {
    let offset = to_u32(first.vertices.len());
    first.vertices.extend(&second.vertices);
    first.faces.extend(second.faces.iter().map(|face| face.map(|v| v + offset)));
    first
}

pub(crate) fn moved(mut mesh: Mesh, by: Vec3) -> Mesh {
    for vertex in &mut mesh.vertices {
        *vertex = to_f32s(add(to_f64s(*vertex), by));
    }
    mesh
}

pub(crate) fn turned_over(mut mesh: Mesh) -> Mesh {
    mesh.faces.iter_mut().for_each(|face| face.swap(1, 2));
    mesh
}

/// Returns the places of all corners of the faces.
pub(crate) fn corner_places(mesh: &Mesh) -> Vec<[f32; 3]> {
    mesh.faces.iter().flatten().map(|&vertex| mesh.vertices[vertex as usize]).collect()
}

/// Returns a uniform number in [0, 1) by its index.
pub(crate) fn uniform(index: u64) -> f64 {
    RandomStream::of_seed(0).uniform(index)
}

pub(crate) fn normal(index: u64) -> f64 {
    RandomStream::of_seed(0).normal(index)
}

/// Returns `count` of the places and normals that `sample` returns for the numbers from 0 on; noise of places and of
/// normals, standard deviation an axis.
fn sampled(
    count: usize,
    noise: [f64; 2],
    sample: impl Fn(u64) -> Option<[Vec3; 2]>,
) -> OrientedPoints {
    let mut points = OrientedPoints::default();
    for [place, direction] in (0..).filter_map(sample).take(count) {
        let index = points.len() as u64 * 8 + (1 << 50);
        let jitter = |first: u64, size: f64| -> Vec3 {
            std::array::from_fn(|a| size * normal(index + first + a as u64))
        };
        points.places.push(to_f32s(add(place, jitter(0, noise[0]))));
        points.normals.push(to_f32s(normalize(add(direction, jitter(3, noise[1])))));
        points.colors.push(to_f32s(std::array::from_fn(|a| 0.5 + 0.5 * direction[a])));
    }
    points
}

/// Returns points of the torus, uniform by area.
pub(crate) fn torus_points(count: usize, noise: [f64; 2]) -> OrientedPoints {
    let [big, small] = TORUS;
    sampled(count, noise, |index| {
        let [u, v] = [uniform(3 * index), uniform(3 * index + 1)].map(|t| t * TAU);
        let is_kept = uniform(3 * index + 2) * (big + small) < big + small * v.cos();
        is_kept.then(|| on_torus(u, v))
    })
}

/// Returns points of the unit sphere, uniform by area, for which `keep` is true.
pub(crate) fn sphere_points(
    count: usize,
    noise: [f64; 2],
    keep: impl Fn(Vec3) -> bool,
) -> OrientedPoints {
    sampled(count, noise, |index| {
        let z = 2.0 * uniform(2 * index) - 1.0;
        let u = TAU * uniform(2 * index + 1);
        let r = (1.0 - z * z).sqrt();
        let normal = [r * u.cos(), r * u.sin(), z];
        keep(normal).then_some([normal; 2])
    })
}
