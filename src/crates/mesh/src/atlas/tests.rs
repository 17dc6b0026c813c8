#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]

use std::time::Instant;

use super::*;
use crate::known_meshes::{cube, mesh_of, sphere, torus};
use crate::place::area;
use crate::random::RandomStream;

const OPTIONS: AtlasOptions = AtlasOptions { layout: Layout::Boxes, side_px: 512, padding_px: 2 };

/// A torus whose tube varies by this share from vertex to vertex.
fn rough([around, across]: [u32; 2], noise: f64) -> Mesh {
    let stream = RandomStream::of_seed(6);
    torus([1.0, 0.4], [around, across], |u, v| {
        let at = (u * 1e6) as u64 * 10_000_000 + (v * 1e6) as u64;
        1.0 + 0.05 * (5.0 * u).sin() * (3.0 * v).cos() + noise * (stream.uniform(at) - 0.5)
    })
}

/// Texels of faces a square unit of their area: from the least to the greatest percent.
fn densities(mesh: &Mesh, atlas: &Atlas) -> [f64; 2] {
    let mut found: Vec<f64> = mesh
        .faces
        .iter()
        .zip(&atlas.faces)
        .map(|(&face, &places)| {
            0.5 * doubled_area_px(atlas.corners_px(places)) / area(corners(mesh, face))
        })
        .collect();
    found.sort_by(f64::total_cmp);
    let middle = found[found.len() / 2];
    [found[found.len() / 100] / middle, found[found.len() * 99 / 100] / middle]
}

/// The distance in texels between what different charts claim is at least twice the padding.
fn keeps_padding(atlas: &Atlas, padding: i64) -> bool {
    let faces = texel_faces(atlas);
    let mut charts = crate::edges::UnionFind::new(atlas.places_px.len());
    for face in &atlas.faces {
        charts.join(face[0], face[1]);
        charts.join(face[0], face[2]);
    }
    let (width, height) = (i64::from(atlas.width), i64::from(atlas.height));
    let mut chart_at = |x: i64, y: i64| {
        let face = *faces.get((y * width + x) as usize)?;
        let face = atlas.faces.get(face as usize)?;
        Some(charts.root(face[0]))
    };
    for y in 0..height {
        for x in 0..width {
            let Some(own) = chart_at(x, y) else { continue };
            for (dx, dy) in [(2 * padding - 1, 0), (0, 2 * padding - 1), (padding, padding - 1)] {
                let is_inside = x + dx < width && y + dy < height;
                if is_inside && chart_at(x + dx, y + dy).is_some_and(|other| other != own) {
                    return false;
                }
            }
        }
    }
    true
}

#[test]
fn boxes_are_sound_even_and_apart() {
    for mesh in [rough([120, 60], 0.002), rough([60, 30], 0.4), sphere(1.0, 4), cube()] {
        let atlas = make_atlas(&mesh, &OPTIONS).unwrap().atlas;
        let check = AtlasCheck::of(&atlas);
        assert!(check.is_sound(), "{check:?}");
        assert!(check.claimed_share() > 0.2, "{check:?}");
        assert!(keeps_padding(&atlas, 2));
        // A direction of 26 is within 37 degrees of a normal, a joined face's within 78.
        assert!(densities(&mesh, &atlas)[0] > 0.15, "{:?}", densities(&mesh, &atlas));
    }
    assert_eq!(make_atlas(&cube(), &OPTIONS).unwrap().atlas.charts, 6);
}

#[test]
fn charts_are_sound_even_and_apart() {
    let options = AtlasOptions { layout: Layout::Charts, ..OPTIONS };
    for mesh in [rough([120, 60], 0.002), sphere(1.0, 4)] {
        let MadeAtlas { atlas, boxed } = make_atlas(&mesh, &options).unwrap();
        assert_eq!(boxed, 0);
        let check = AtlasCheck::of(&atlas);
        assert!(check.is_sound() && check.claimed_share() > 0.2, "{check:?}");
        assert!(keeps_padding(&atlas, 1), "{}", atlas.charts);
        let [least, most] = densities(&mesh, &atlas);
        assert!(least > 0.7 && most < 1.4, "{least} {most}");
    }
}

#[test]
fn a_crumpled_surface_gets_boxes() {
    let options = AtlasOptions { layout: Layout::Charts, ..OPTIONS };
    let MadeAtlas { atlas, boxed } = make_atlas(&rough([60, 30], 0.8), &options).unwrap();
    assert!(AtlasCheck::of(&atlas).is_sound());
    assert!(boxed > 0);
}

#[test]
fn a_surface_that_winds_over_itself_is_parted() {
    // Three turns of a ramp: each lies over the others, all face up.
    let mut ramp = Mesh::default();
    for i in 0..=90_u32 {
        let angle = f64::from(i) * 0.2;
        for radius in [0.5, 1.0] {
            ramp.vertices.push([
                (radius * angle.cos()) as f32,
                (radius * angle.sin()) as f32,
                (0.01 * angle) as f32,
            ]);
        }
        if i > 0 {
            let [a, b, c, d] = [2 * i - 2, 2 * i - 1, 2 * i, 2 * i + 1];
            ramp.faces.extend([[a, b, d], [a, d, c]]);
        }
    }
    let atlas = make_atlas(&ramp, &OPTIONS).unwrap().atlas;
    let check = AtlasCheck::of(&atlas);
    assert!(check.is_sound() && (3..20).contains(&atlas.charts), "{check:?} {}", atlas.charts);
}

#[test]
fn squares_hold_two_faces_each_of_either_number() {
    for faces in [1, 2, 3, 7, 8, 9, 50, 51] {
        let mut mesh = sphere(1.0, 2);
        mesh.faces.truncate(faces);
        for side_px in [4, 5, 8, 10] {
            let options = AtlasOptions { layout: Layout::Squares { side_px }, ..OPTIONS };
            let atlas = make_atlas(&mesh, &options).unwrap().atlas;
            let check = AtlasCheck::of(&atlas);
            assert!(check.is_sound(), "{faces} {side_px} {check:?}");
            assert!(atlas.width >= side_px && atlas.faces.len() == faces);
            assert!(side_px < 8 || keeps_padding(&atlas, 1));
        }
    }
    let small = AtlasOptions { layout: Layout::Squares { side_px: 10 }, side_px: 60, ..OPTIONS };
    let error = make_atlas(&sphere(1.0, 2), &small).unwrap_err().to_string();
    assert!(error.contains("64 charts do not fit a texture of 60 x 60"), "{error}");
    let none = AtlasOptions { layout: Layout::Squares { side_px: 3 }, ..OPTIONS };
    assert!(make_atlas(&sphere(1.0, 2), &none).is_err());
}

#[test]
fn faults_are_found() {
    let atlas = |places_px: Vec<[f32; 2]>, faces: Vec<[u32; 3]>| {
        AtlasCheck::of(&Atlas { width: 16, height: 16, places_px, faces, charts: 1 })
    };
    let square = vec![[2.0, 2.0], [10.0, 2.0], [10.0, 10.0], [2.0, 10.0]];
    let good = atlas(square.clone(), vec![[0, 1, 2], [0, 2, 3]]);
    assert!(good.is_sound() && good.claimed == 64, "{good:?}");
    let flipped = atlas(square.clone(), vec![[0, 1, 2], [0, 3, 2]]);
    assert_eq!((flipped.flipped, flipped.claimed_twice), (1, 0));
    let twice = atlas(square.clone(), vec![[0, 1, 2], [0, 1, 3]]);
    assert!(twice.claimed_twice > 8 && !twice.is_sound());
    assert_eq!(atlas(square, vec![[0, 1, 9]]).outside, 1);
    assert_eq!(atlas(vec![[0.0, 0.0], [17.0, 0.0], [0.0, 9.0]], vec![[0, 1, 2]]).outside, 1);
}

#[test]
fn what_cannot_be_laid_out_is_named() {
    let flat = mesh_of(&[[0.0; 3], [1.0, 0.0, 0.0]], &[[0, 1, 1]]);
    assert!(make_atlas(&flat, &OPTIONS).unwrap_err().to_string().contains("1 faces without area"));
    let broken = mesh_of(&[[0.0; 3]], &[[0, 0, 1]]);
    assert!(make_atlas(&broken, &OPTIONS).is_err());
    let huge = AtlasOptions { side_px: 20_000, ..OPTIONS };
    let error = make_atlas(&cube(), &huge).unwrap_err().to_string();
    assert!(error.contains("20000 x 20000"), "{error}");
    // Too small even for boxes.
    let tiny = AtlasOptions { side_px: 8, ..OPTIONS };
    let error = make_atlas(&rough([60, 30], 0.01), &tiny).unwrap_err().to_string();
    assert!(error.contains("do not fit a texture of 8 x 8"), "{error}");
}

#[test]
fn the_side_follows_the_views() {
    assert_eq!(texture_side_px(&[1e6; 4], 8192), 2832);
    assert_eq!(texture_side_px(&[1e6; 400], 8192), 8192);
    assert_eq!(texture_side_px(&[], 8192), 64);
}

/// The figures of a million triangles:
/// `cargo test --release -p splat-mesh -- --ignored a_million_faces --nocapture`.
#[test]
#[ignore = "takes a minute"]
fn a_million_faces_are_laid_out() {
    let edge = std::f64::consts::TAU / 447.0;
    let mesh = rough([1118, 447], 0.5 * edge);
    for (layout, side_px) in
        [(Layout::Charts, 4096), (Layout::Boxes, 4096), (Layout::Squares { side_px: 8 }, 8192)]
    {
        let started = Instant::now();
        let options = AtlasOptions { layout, side_px, padding_px: 2 };
        let MadeAtlas { atlas, boxed } = make_atlas(&mesh, &options).unwrap();
        assert_eq!(boxed, 0);
        let seconds = started.elapsed().as_secs_f64();
        let check = AtlasCheck::of(&atlas);
        println!(
            "{layout:?}: {seconds:.1} s, {} charts, {:.2} places a vertex, {:.0} % claimed, density {:?}",
            atlas.charts,
            atlas.places_px.len() as f64 / mesh.vertices.len() as f64,
            100.0 * check.claimed_share(),
            densities(&mesh, &atlas)
        );
        assert!(check.is_sound());
    }
}

/// The share of small pictures that is used:
/// `cargo test --release -p splat-mesh -- --ignored small_meshes --nocapture`.
#[test]
#[ignore = "prints figures"]
fn small_meshes_are_laid_out() {
    let edge = std::f64::consts::TAU / 141.0;
    for (name, mesh, side_px) in [
        ("rough 14k 512", rough([120, 60], 0.002), 512),
        ("rough 14k 2048", rough([120, 60], 0.002), 2048),
        ("sphere 2k 512", sphere(1.0, 4), 512),
        ("sphere 8k 1024", sphere(1.0, 5), 1024),
        ("cube", cube(), 512),
        ("noise .25, 100k 2048", rough([354, 141], 0.25 * edge), 2048),
        ("noise .5, 100k 2048", rough([354, 141], 0.5 * edge), 2048),
        ("noise .8, 100k 2048", rough([354, 141], 0.8 * edge), 2048),
    ] {
        let started = Instant::now();
        let options = AtlasOptions { layout: Layout::Charts, side_px, padding_px: 2 };
        let MadeAtlas { atlas, boxed } = make_atlas(&mesh, &options).unwrap();
        let seconds = started.elapsed().as_secs_f64();
        let check = AtlasCheck::of(&atlas);
        println!(
            "{name}: {seconds:.2} s, {} charts, {:.2} places a vertex, {:.1} % claimed, density {:?} {boxed}",
            atlas.charts,
            atlas.places_px.len() as f64 / mesh.vertices.len() as f64,
            100.0 * check.claimed_share(),
            densities(&mesh, &atlas)
        );
        assert!(check.is_sound());
    }
}
