//! Depth maps of scenes whose surfaces are known.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kiddo::{ImmutableKdTree, SquaredEuclidean};
use proptest::prelude::*;

use super::*;
use crate::camera::Camera;
use crate::mesh::Vec3;
use crate::narrow::{to_f32, to_f64s};
use crate::vector::{cross, dot, length, mul_transposed, normalize, scale, sub};
use crate::watch::Watch;

const WIDTH: usize = 160;
const HEIGHT: usize = 120;
const FOCAL_PX: f64 = 90.0;

/// A closed room with a ball in it; or a ball in the open, far from a dome.
#[derive(Clone, Copy)]
struct Scene {
    /// Half the room's sides around the origin; without it, a dome of this radius.
    walls: Result<Vec3, f64>,
    ball: Vec3,
    ball_radius: f64,
}

const ROOM: Scene = Scene { walls: Ok([3.0, 2.0, 1.35]), ball: [0.5, 0.2, -0.5], ball_radius: 0.6 };
const OPEN: Scene = Scene { walls: Err(8.0), ball: [0.1, 0.0, 0.0], ball_radius: 1.0 };

impl Scene {
    /// The distance along a ray that starts inside.
    fn hit(&self, from: Vec3, along: Vec3) -> f64 {
        let sphere = |centre: Vec3, radius: f64, sign: f64| {
            let d = sub(from, centre);
            let (b, c) = (dot(d, along), dot(d, d) - radius * radius);
            let root = b * b - c;
            if root < 0.0 { f64::INFINITY } else { -b + sign * root.sqrt() }
        };
        let far = match self.walls {
            Ok(half) => (0..3)
                .map(|a| (half[a] * along[a].signum() - from[a]) / along[a])
                .filter(|t| *t > 0.0)
                .fold(f64::INFINITY, f64::min),
            Err(radius) => sphere([0.0; 3], radius, 1.0),
        };
        let near = sphere(self.ball, self.ball_radius, -1.0);
        if near > 0.0 { near.min(far) } else { far }
    }

    fn distance(&self, place: Vec3) -> f64 {
        let wall = match self.walls {
            Ok(half) => {
                (0..3).map(|a| (half[a] - place[a].abs()).abs()).fold(f64::INFINITY, f64::min)
            }
            Err(radius) => (length(place) - radius).abs(),
        };
        (length(sub(place, self.ball)) - self.ball_radius).abs().min(wall)
    }
}

/// A view's maps, owned.
#[derive(Clone)]
struct Drawn {
    rotation: [Vec3; 3],
    translation: Vec3,
    depths: Vec<f32>,
    colors: Vec<[f32; 3]>,
}

impl Drawn {
    fn new(scene: &Scene, from: Vec3, to: Vec3) -> Self {
        let forward = normalize(sub(to, from));
        let right = normalize(cross(forward, [0.1, 0.2, 1.0]));
        let rotation = [right, cross(forward, right), forward];
        let translation = rotation.map(|row| -dot(row, from));
        let mut drawn = Self { rotation, translation, depths: Vec::new(), colors: Vec::new() };
        for pixel in 0..WIDTH * HEIGHT {
            let at = [(pixel % WIDTH) as f64 + 0.5 - 80.0, (pixel / WIDTH) as f64 + 0.5 - 60.0];
            let ray = [at[0] / FOCAL_PX, at[1] / FOCAL_PX, 1.0];
            let along = mul_transposed(&rotation, normalize(ray));
            let depth = scene.hit(from, along) / length(ray);
            drawn.depths.push(to_f32(depth));
            let hit = to_f64s([0, 1, 2].map(|a| to_f32(from[a] + along[a] * depth * length(ray))));
            drawn.colors.push([0, 1, 2].map(|a| to_f32(0.5 + hit[a] / 20.0)));
        }
        drawn
    }

    fn view(&self) -> DepthView<'_> {
        DepthView {
            camera: Camera {
                width: WIDTH,
                height: HEIGHT,
                focal_px: [FOCAL_PX; 2],
                centre_px: [80.0, 60.0],
                rotation: self.rotation,
                translation: self.translation,
            },
            depths: &self.depths,
            normals: None,
            mask: None,
            colors: &self.colors,
        }
    }
}

/// Cameras on a ring that look across it and a little up and down.
fn ring(scene: &Scene, radius: f64, count: usize) -> Vec<Drawn> {
    (0..count)
        .map(|i| {
            let turn = std::f64::consts::TAU * i as f64 / count as f64;
            let from = [radius * turn.cos(), radius * turn.sin(), 0.25 * (3.0 * turn).sin()];
            let up = [0.0, 0.9, -0.9, 0.4, -0.4][i % 5] * radius;
            let out = if i % 2 == 0 { -1.0 } else { 2.0 };
            Drawn::new(scene, from, [out * from[0] + 0.1, out * from[1], up])
        })
        .collect()
}

fn fused(space: Space, views: &[Drawn]) -> Result<Fused, FusionError> {
    let stop = AtomicBool::new(false);
    let watch = Watch { stop: &stop, told: &|_, _| () };
    let mut survey = Survey::new(space);
    views.iter().try_for_each(|view| survey.add(&view.view(), &watch))?;
    let mut fusion = Fusion::new(Arc::new(survey.finish(usize::MAX)?));
    views.iter().try_for_each(|view| fusion.add(&view.view(), &watch))?;
    fusion.surface(&watch)
}

fn room_space(voxels: u32) -> Space {
    Space::in_box([-3.2, -2.2, -1.5], [3.2, 2.2, 1.5], 6.4 / f64::from(voxels)).unwrap()
}

#[test]
fn exact_depths_of_a_room_give_its_walls() {
    let space = room_space(160);
    let made = fused(space, &ring(&ROOM, 1.4, 40)).unwrap();
    let mut errors: Vec<f64> =
        made.mesh.vertices.iter().map(|&v| ROOM.distance(to_f64s(v)) / space.voxel()).collect();
    errors.sort_unstable_by(f64::total_cmp);
    assert!(errors.len() > 40_000, "{}", errors.len());
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    let p99 = errors[errors.len() * 99 / 100];
    // Planes are exact; what is left are the ball's outline and pixels coarser than a voxel.
    assert!(mean < 0.05 && p99 < 0.3, "mean {mean}, p99 {p99}, max {:?}", errors.last());
    // Planned: 80 N² voxels of 512 a brick.
    assert!(made.bricks < 80 * 160 * 160 / 512, "{}", made.bricks);
    for (vertex, color) in made.mesh.vertices.iter().zip(&made.mesh.colors) {
        // A voxel is .002 of colour, a step .004; half a step is lost at every view.
        assert!((0..3).all(|a| (color[a] - 0.5 - vertex[a] / 20.0).abs() < 0.03), "{vertex:?}");
    }
}

#[test]
fn faces_look_at_the_cameras() {
    let made = fused(room_space(80), &ring(&ROOM, 1.4, 20)).unwrap();
    for face in &made.mesh.faces {
        let [a, b, c] = face.map(|v| to_f64s(made.mesh.vertices[v as usize]));
        let normal = cross(sub(b, a), sub(c, a));
        let walls = (0..3).any(|k| a[k].abs() > [2.9, 1.9, 1.25][k]);
        if walls && length(sub(a, ROOM.ball)) > 0.8 {
            let corner = (0..3).filter(|&k| a[k].abs() > [2.6, 1.6, 0.95][k]).count() > 1;
            assert!(corner || dot(normal, a) < 0.0, "{a:?}");
        }
    }
}

#[test]
fn far_and_near_are_fused_in_contracted_space() {
    let space = Space::contracted([0.0; 3], 2.0, 160).unwrap();
    let made = fused(space, &ring(&OPEN, 2.0, 30)).unwrap();
    let mut near = Vec::new();
    let mut far = Vec::new();
    for &vertex in &made.mesh.vertices {
        let place = to_f64s(vertex);
        let voxel = space.truncation(space.nodes_of(place).unwrap()) / 4.0;
        let list = if length(place) < 2.0 { &mut near } else { &mut far };
        list.push(OPEN.distance(place) / voxel);
    }
    for errors in [&mut near, &mut far] {
        errors.sort_unstable_by(f64::total_cmp);
        assert!(errors.len() > 500, "{}", errors.len());
        let p95 = errors[errors.len() * 95 / 100];
        assert!(p95 < 0.3, "{p95} of {}", errors.len());
    }
}

#[test]
fn the_order_of_views_moves_no_vertex_by_a_thousandth_of_a_voxel() {
    let views = ring(&ROOM, 1.4, 15);
    let space = room_space(80);
    let forth = fused(space, &views).unwrap().mesh;
    let turned: Vec<Drawn> = views.iter().rev().cloned().collect();
    let back = fused(space, &turned).unwrap().mesh;
    let tree = ImmutableKdTree::<f32, 3>::new_from_slice(&back.vertices).unwrap();
    let apart = |place: &[f32; 3]| {
        let near = tree.query(place).nearest_one::<SquaredEuclidean<f32>>().execute();
        f64::from(near.distance).sqrt() / space.voxel()
    };
    let mut apart: Vec<f64> = forth.vertices.iter().map(apart).collect();
    apart.sort_unstable_by(f64::total_cmp);
    // Where a voxel lies on the surface, its sign may go either way: one in a thousand.
    assert!(apart[apart.len() * 999 / 1000] < 1e-3, "{}", apart[apart.len() * 999 / 1000]);
    assert!(apart[apart.len() / 2] < 1e-4);
}

#[test]
fn the_bits_are_the_same_for_any_number_of_threads() {
    let views = ring(&ROOM, 1.4, 10);
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| fused(room_space(60), &views).unwrap())
    };
    let one = with(1);
    assert_eq!(one, with(2));
    assert_eq!(one, with(5));
}

#[test]
fn a_floating_speck_of_one_view_leaves_nothing() {
    let mut views = ring(&ROOM, 1.4, 20);
    let speck = Drawn::new(&ROOM, [-0.6, 0.0, 0.0], [-2.0, 0.0, 0.0]);
    views.insert(0, speck);
    let clean = fused(room_space(60), &views).unwrap().mesh;
    // A patch of a wall that is not there, near the camera, where its weight is largest.
    for y in 50..70 {
        views[0].depths[y * WIDTH + 70..][..20].fill(0.5);
    }
    let made = fused(room_space(60), &views).unwrap().mesh;
    let floating = |mesh: &crate::mesh::Mesh| {
        let is_off = |v: &&[f32; 3]| ROOM.distance(to_f64s(**v)) > 0.3;
        mesh.vertices.iter().filter(is_off).count()
    };
    assert_eq!(floating(&clean), 0);
    assert_eq!(floating(&made), 0);
}

#[test]
fn masked_and_empty_pixels_show_nothing() {
    let mut views = ring(&ROOM, 1.4, 10);
    let stop = AtomicBool::new(false);
    let watch = Watch { stop: &stop, told: &|_, _| () };
    let mut survey = Survey::new(room_space(40));
    let mask = vec![false; WIDTH * HEIGHT];
    survey.add(&DepthView { mask: Some(&mask), ..views[0].view() }, &watch).unwrap();
    for view in &mut views {
        view.depths.fill(f32::NAN);
        view.depths[7..99].fill(0.0);
    }
    views.iter().try_for_each(|view| survey.add(&view.view(), &watch)).unwrap();
    assert_eq!(survey.finish(1000).unwrap_err(), FusionError::Empty { views: 11 });
}

#[test]
fn what_cannot_be_fused_is_a_named_error() {
    let views = ring(&ROOM, 1.4, 4);
    let stop = AtomicBool::new(false);
    let watch = Watch { stop: &stop, told: &|_, _| () };
    let mut survey = Survey::new(room_space(40));
    let short = DepthView { depths: &views[0].depths[1..], ..views[0].view() };
    assert!(matches!(survey.add(&short, &watch), Err(FusionError::MapSize { .. })));
    let mut flat = views[0].view();
    flat.camera.focal_px = [90.0, 0.0];
    assert!(matches!(survey.add(&flat, &watch), Err(FusionError::Focal { .. })));
    survey.add(&views[0].view(), &watch).unwrap();
    assert!(matches!(survey.clone().finish(3), Err(FusionError::TooManyBricks { .. })));
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(matches!(survey.add(&views[1].view(), &watch), Err(FusionError::Stopped(_))));
    let side = |high, voxel| Space::in_box([0.0; 3], [high, 1.0, 1.0], voxel);
    assert!(matches!(side(1.0, 1e-7), Err(FusionError::TooFine { .. })));
    assert!(matches!(side(-1.0, 0.1), Err(FusionError::NoSize { .. })));
    assert!(matches!(side(1.0, f64::NAN), Err(FusionError::NoSize { .. })));
    assert!(matches!(Space::contracted([0.0; 3], 0.0, 64), Err(FusionError::NoSize { .. })));
    assert!(matches!(Space::contracted([0.0; 3], 1.0, 0), Err(FusionError::NoSize { .. })));
    // One view alone makes nothing valid.
    let alone = fused(room_space(40), &views[..1]).unwrap_err();
    assert_eq!(alone, FusionError::NoSurface { views: 1 });
}

proptest! {
    #[test]
    fn contraction_and_its_inverse_undo_each_other(
        x in -30.0_f64..30.0, y in -30.0_f64..30.0, z in -30.0_f64..30.0,
    ) {
        let space = Space::contracted([1.0, -2.0, 0.5], 1.7, 1024).unwrap();
        let world = [x, y, z];
        if let Some(nodes) = space.nodes_of(world) {
            let back = space.world(nodes);
            // Far out a step of the contracted place is up to 400 steps of the world.
            let reach = length(sub(world, [1.0, -2.0, 0.5]));
            prop_assert!(length(sub(back, world)) < 1e-11 * (1.0 + reach * reach));
        } else {
            prop_assert!(length(scale(sub(world, [1.0, -2.0, 0.5]), 1.0 / 1.7)) > 19.0);
        }
    }
}
