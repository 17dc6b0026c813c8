#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]

use super::*;
use crate::Camera;
use crate::atlas::{Atlas, AtlasOptions, Layout, make_atlas};
use crate::draw::{Paint, draw};
use crate::known_meshes::{cube, joined, mesh_of, moved, sphere};
use crate::mesh::{Mesh, Vec3};
use crate::vector::{cross, mul, normalize, scale};

const NEAR: f64 = 0.01;
const SIDE: usize = 96;

/// A camera that looks from a place to the origin.
fn looking(eye: Vec3) -> Camera {
    let forward = normalize(scale(eye, -1.0));
    let right = normalize(cross(forward, [0.1, 0.2, 1.0]));
    let rotation = [right, cross(forward, right), forward];
    Camera {
        width: SIDE,
        height: SIDE,
        focal_px: [1.2 * SIDE as f64; 2],
        centre_px: [0.5 * SIDE as f64; 2],
        rotation,
        translation: scale(mul(&rotation, eye), -1.0),
    }
}

fn around() -> Vec<Camera> {
    let steps = [-1.0, 0.0, 1.0];
    let all = steps.iter().flat_map(|x| steps.iter().flat_map(move |y| steps.map(|z| [*x, *y, z])));
    all.filter(|&eye| eye != [0.0; 3]).map(|eye| looking(scale(normalize(eye), 3.0))).collect()
}

/// What a camera sees of a coloured mesh.
fn photograph(mesh: &Mesh, camera: &Camera) -> Vec<[u8; 3]> {
    let drawn = draw(mesh, Paint::Vertices, camera, NEAR);
    drawn.colors.iter().map(|color| color.map(|c| (255.0 * c).round() as u8)).collect()
}

fn view<'a>(camera: &Camera, colors: &'a [[u8; 3]]) -> ColorView<'a> {
    ColorView { camera: *camera, near: NEAR, colors, counts: None }
}

fn atlas_of(mesh: &Mesh, layout: Layout) -> Atlas {
    make_atlas(mesh, &AtlasOptions { layout, side_px: 256, padding_px: 2 }).unwrap().atlas
}

/// Colours that vary with the place.
fn colored(mut mesh: Mesh) -> Mesh {
    mesh.colors = mesh.vertices.iter().map(|v| v.map(|x| 0.5 + 0.4 * x)).collect();
    mesh
}

/// Decibels between a drawn texture and drawn vertices, on the mesh.
fn agreement(mesh: &Mesh, atlas: &Atlas, baked: &Baked, camera: &Camera) -> f64 {
    let paint = Paint::Texture { atlas, picture: &baked.picture };
    let textured = draw(mesh, paint, camera, NEAR);
    let truth = draw(mesh, Paint::Vertices, camera, NEAR);
    let (mut sum, mut count) = (0.0, 0.0);
    for pixel in (0..SIDE * SIDE).filter(|&pixel| truth.covers[pixel] == 1.0) {
        for channel in 0..3 {
            let error = textured.colors[pixel][channel] - truth.colors[pixel][channel];
            sum += f64::from(error).powi(2);
            count += 1.0;
        }
    }
    assert!(count > 1000.0);
    -10.0 * (sum / count).log10()
}

#[test]
fn a_texture_looks_as_the_views_it_was_made_of() {
    let mesh = colored(sphere(1.0, 3));
    for layout in [Layout::Charts, Layout::Boxes, Layout::Squares { side_px: 7 }] {
        let atlas = atlas_of(&mesh, layout);
        let mut bake = Bake::new(&mesh, &atlas, false);
        for camera in around() {
            bake.add(&view(&camera, &photograph(&mesh, &camera)));
        }
        let baked = bake.finish();
        assert_eq!((baked.figures.views, baked.figures.unseen_faces), (26, 0));
        assert_eq!(baked.figures.seen_texels, baked.figures.texels);
        let found = agreement(&mesh, &atlas, &baked, &looking([1.5, 2.0, -1.0]));
        assert!(found > 36.0, "{layout:?}: {found}");
    }
}

#[test]
fn a_constant_stays_constant_to_the_seams() {
    let mut mesh = cube();
    mesh.colors = vec![[77.0 / 255.0, 200.0 / 255.0, 3.0 / 255.0]; mesh.vertices.len()];
    let mesh = moved(mesh, [-0.5; 3]);
    for leaves_out in [false, true] {
        for layout in [Layout::Charts, Layout::Boxes, Layout::Squares { side_px: 10 }] {
            let atlas = atlas_of(&mesh, layout);
            let mut bake = Bake::new(&mesh, &atlas, leaves_out);
            let plain = vec![[77, 200, 3]; SIDE * SIDE];
            for round in 0..2 {
                // One side is never seen.
                let cameras = around().into_iter().filter(|camera| camera.centre()[2] < 0.5);
                cameras.for_each(|camera| bake.add(&view(&camera, &plain)));
                if round == 0 {
                    bake.next_round();
                }
            }
            let baked = bake.finish();
            assert!(baked.picture.texels.iter().all(|&texel| texel == [77, 200, 3]));
            assert_eq!((baked.figures.unseen_faces, baked.figures.left_out), (2, 0));
        }
    }
}

#[test]
fn what_is_hidden_or_does_not_count_gives_no_colour() {
    // A white plate before a larger red one, seen from the front.
    let plate = |half: f32, z: f32| {
        mesh_of(
            &[[-half, -half, z], [half, -half, z], [half, half, z], [-half, half, z]],
            &[[0, 2, 1], [0, 3, 2]],
        )
    };
    let mut mesh = joined(plate(1.0, 0.0), &plate(0.4, -0.5));
    mesh.colors = [[1.0, 0.0, 0.0]; 4].into_iter().chain([[1.0; 3]; 4]).collect();
    let camera = looking([0.0, 0.0, -3.0]);
    let seen = photograph(&mesh, &camera);
    mesh.colors.clear();
    let atlas = atlas_of(&mesh, Layout::Boxes);
    let mut bake = Bake::new(&mesh, &atlas, false);
    // The left half does not count: all black.
    let counts: Vec<bool> = (0..SIDE * SIDE).map(|pixel| pixel % SIDE >= SIDE / 2).collect();
    let blackened = |(pixel, &color): (usize, &[u8; 3])| if counts[pixel] { color } else { [0; 3] };
    let seen: Vec<[u8; 3]> = seen.iter().enumerate().map(blackened).collect();
    bake.add(&ColorView { counts: Some(&counts), ..view(&camera, &seen) });
    let baked = bake.finish();
    let share = baked.figures.seen_texels as f64 / baked.figures.texels as f64;
    assert!(share < 0.5, "{share}");
    let colors: Vec<[u8; 3]> = baked.picture.texels;
    assert!(!colors.contains(&[0, 0, 0]));
    let red = colors.iter().filter(|&&color| color == [255, 0, 0]).count();
    let white = colors.iter().filter(|&&color| color == [255; 3]).count();
    assert!(red > 1000 && white > 100, "{red} {white}");
}

#[test]
fn what_few_photographs_show_is_left_out() {
    let mesh = colored(sphere(1.0, 3));
    let atlas = atlas_of(&mesh, Layout::Boxes);
    let found = [false, true].map(|leaves_out| {
        let mut bake = Bake::new(&mesh, &atlas, leaves_out);
        for round in 0..3 {
            for (number, camera) in around().iter().enumerate() {
                let mut colors = photograph(&mesh, camera);
                // Somebody walks through every fifth photograph.
                if number % 5 == 0 {
                    colors[SIDE * SIDE / 3..SIDE * SIDE / 2].fill([0; 3]);
                }
                bake.add(&view(camera, &colors));
            }
            if round < 2 {
                bake.next_round();
            }
        }
        let baked = bake.finish();
        assert_eq!(baked.figures.left_out > 0, leaves_out);
        agreement(&mesh, &atlas, &baked, &looking([1.5, 2.0, -1.0]))
    });
    assert!(found[1] > 36.0 && found[1] > found[0] + 6.0, "{found:?}");
}

#[test]
fn threads_and_the_order_of_views_change_nothing() {
    let mesh = colored(sphere(1.0, 2));
    let atlas = atlas_of(&mesh, Layout::Boxes);
    let cameras = around();
    let shots: Vec<_> = cameras.iter().map(|camera| photograph(&mesh, camera)).collect();
    let on = |threads: usize, step: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut bake = Bake::new(&mesh, &atlas, false);
            for number in 0..cameras.len() {
                let number = number * step % cameras.len();
                bake.add(&view(&cameras[number], &shots[number]));
            }
            bake.finish()
        })
    };
    assert_eq!(on(1, 1), on(3, 7));
}

#[test]
fn areas_are_those_of_what_is_in_sight() {
    let mesh = moved(cube(), [-0.5; 3]);
    let mut areas = SeenAreas::new(&mesh);
    areas.add(&mesh, looking([0.0, 0.0, -3.0]), NEAR);
    // One side, 2.5 away, focal length 1.2 times the side of the picture.
    let side_px = 1.2 * SIDE as f64 / 2.5;
    let sum: f64 = areas.areas_px2().iter().sum();
    assert!((sum / side_px.powi(2) - 1.0).abs() < 1e-9, "{sum}");
    assert_eq!(areas.areas_px2().iter().filter(|&&area| area > 0.0).count(), 2);
    // A view whose colours do not fit shows nothing.
    let atlas = atlas_of(&mesh, Layout::Boxes);
    let mut bake = Bake::new(&mesh, &atlas, false);
    bake.add(&view(&looking([0.0, 0.0, -3.0]), &[[9; 3]; 5]));
    assert_eq!(bake.finish().figures.views, 0);
}
