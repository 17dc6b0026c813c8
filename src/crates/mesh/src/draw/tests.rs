use super::*;
use crate::Camera;
use crate::atlas::Atlas;
use crate::file::Picture;
use crate::known_meshes::{cube, mesh_of, sphere};
use crate::mesh::Mesh;
use crate::place::{corners, doubled_area};
use crate::search::BoxTree;
use crate::vector::{dot, mul, scale};

const NEAR: f64 = 0.01;

/// A camera of 64 x 48 px that looks along z from a place.
fn ahead(eye: [f64; 3]) -> Camera {
    let rotation = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    Camera {
        width: 64,
        height: 48,
        focal_px: [60.0, 60.0],
        centre_px: [32.0, 24.0],
        rotation,
        translation: scale(mul(&rotation, eye), -1.0),
    }
}

#[test]
fn the_front_is_what_rays_meet_first() {
    // From without, from within, and through the camera's own plane.
    for (mesh, eye) in [
        (sphere(1.0, 3), [0.2, -0.1, -3.0]),
        (cube(), [0.4, 0.3, 0.45]),
        (cube(), [0.5, 0.5, -2.0]),
    ] {
        let camera = ahead(eye);
        let front = FrontFaces::of(&mesh, &camera, NEAR);
        let tree = BoxTree::new(&mesh).unwrap();
        let mut seen = 0;
        for pixel in 0..64 * 48 {
            let ray = [
                ((pixel % 64) as f64 + 0.5 - 32.0) / 60.0,
                ((pixel / 64) as f64 + 0.5 - 24.0) / 60.0,
                1.0,
            ];
            let hit = tree.first_hit(eye, ray, [NEAR, f64::INFINITY]);
            assert_eq!(front.face(pixel).is_some(), hit.is_some(), "{pixel}");
            if let Some(hit) = hit {
                assert!((f64::from(front.depth(pixel)) - hit.at).abs() < 1e-6 * hit.at);
                seen += 1;
            }
        }
        assert!(seen > 500, "{seen}");
    }
}

#[test]
fn any_number_of_threads_sees_the_same() {
    let (mesh, camera) = (sphere(1.0, 4), ahead([0.0, 0.0, -3.0]));
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| FrontFaces::of(&mesh, &camera, NEAR))
    };
    assert_eq!(on(1), on(3));
}

/// A square of 2 x 2 before the camera, and a picture whose four quarters differ.
fn quadrants() -> (Mesh, Atlas, Picture) {
    let mesh = mesh_of(
        &[[-1.0, -1.0, 2.0], [1.0, -1.0, 2.0], [1.0, 1.0, 2.0], [-1.0, 1.0, 2.0]],
        &[[0, 1, 2], [0, 2, 3]],
    );
    let places_px = vec![[0.0, 0.0], [8.0, 0.0], [8.0, 8.0], [0.0, 8.0]];
    let atlas =
        Atlas { width: 8, height: 8, places_px, faces: vec![[0, 1, 2], [0, 2, 3]], charts: 1 };
    let mut picture = Picture::plain(8, 8, [255, 0, 0]);
    for (at, texel) in picture.texels.iter_mut().enumerate() {
        match (at % 8 < 4, at / 8 < 4) {
            (true, true) => *texel = [255, 0, 0],
            (false, true) => *texel = [0, 255, 0],
            (true, false) => *texel = [0, 0, 255],
            (false, false) => *texel = [255, 255, 255],
        }
    }
    (mesh, atlas, picture)
}

#[test]
fn a_picture_is_the_right_way_up_and_ends_with_the_mesh() {
    let (mesh, atlas, picture) = quadrants();
    let paint = Paint::Texture { atlas: &atlas, picture: &picture };
    let drawn = draw(&mesh, paint, &ahead([0.0; 3]), NEAR);
    let at = |x: usize, y: usize| drawn.colors[64 * y + x];
    assert_eq!(at(16, 8), [1.0, 0.0, 0.0]);
    assert_eq!(at(48, 8), [0.0, 1.0, 0.0]);
    assert_eq!(at(16, 40), [0.0, 0.0, 1.0]);
    assert_eq!(at(48, 40), [1.0, 1.0, 1.0]);
    // 60 px a side, from 2 to 62.
    let row = |x: usize| drawn.covers[64 * 24 + x];
    assert_eq!([row(1), row(2), row(61), row(62)], [0.0, 1.0, 1.0, 0.0]);
    assert_eq!(at(0, 24), [0.0; 3]);
}

#[test]
fn colours_of_vertices_are_linear_on_a_face_seen_askew() {
    let mut mesh = sphere(1.0, 2);
    let color = |v: &[f32; 3]| v.map(|x| 0.5 + 0.4 * x);
    mesh.colors = mesh.vertices.iter().map(color).collect();
    let camera = ahead([0.3, 0.0, -2.5]);
    let drawn = draw(&mesh, Paint::Vertices, &camera, NEAR);
    let front = FrontFaces::of(&mesh, &camera, NEAR);
    let mut compared = 0;
    for pixel in 0..64 * 48 {
        let Some(face) = front.face(pixel).filter(|_| drawn.covers[pixel] == 1.0) else { continue };
        let depth = f64::from(front.depth(pixel));
        let place = camera.world(pixel % 64, pixel / 64, depth);
        for (color, x) in drawn.colors[pixel].into_iter().zip(place) {
            let error = f64::from(color) - (0.5 + 0.4 * x);
            assert!(error.abs() < 0.02, "{pixel} {error}");
        }
        // A closed surface shows its outer side.
        let outwards = doubled_area(corners(&mesh, mesh.faces[face]));
        assert!(dot(outwards, [place[0] - 0.3, place[1], place[2] + 2.5]) < 0.0);
        compared += 1;
    }
    assert!(compared > 1000);
}
