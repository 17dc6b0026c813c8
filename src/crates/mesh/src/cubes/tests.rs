//! The surface of random and of known fields.

use std::sync::atomic::AtomicBool;

use super::extract;
use crate::bricks::{BRICK_NODES, Bricks, SIDE, morton};
use crate::known_meshes::{bad_edges, volume};
use crate::mesh::Mesh;
use crate::random::mix;
use crate::vector::{cross, dot, sub};
use crate::watch::Watch;

fn surface(bricks: &Bricks, values: &[f32]) -> Mesh {
    let stop = AtomicBool::new(false);
    let watch = Watch { stop: &stop, told: &|_, _| () };
    extract(bricks, values, 0.0, &watch).unwrap().mesh(bricks, &|p| p)
}

/// A cube of bricks with these values; outside of `inner` nodes from the border all is outside.
fn cube_of(side: u32, mut value: impl FnMut([usize; 3]) -> f32) -> (Bricks, Vec<f32>) {
    let keys = (0..side.pow(3)).map(|i| morton::key([i % side, i / side % side, i / side / side]));
    let bricks = Bricks::of_keys(keys.collect());
    let mut values = Vec::new();
    for brick in 0..bricks.len() {
        let place = bricks.place(brick).map(|p| p as usize * SIDE);
        for node in 0..BRICK_NODES {
            values.push(value([
                node % 8 + place[0],
                node / 8 % 8 + place[1],
                node / 64 + place[2],
            ]));
        }
    }
    (bricks, values)
}

#[test]
fn each_edge_of_a_random_field_has_one_opposite() {
    for seed in 0..250 {
        let mut index = seed << 20;
        let (bricks, values) = cube_of(1 + (seed % 2) as u32, |at| {
            let last = SIDE * (1 + (seed % 2) as usize) - 1;
            index += 1;
            let border = at.iter().any(|&a| a == 0 || a == last);
            let uniform = (mix(index) >> 40) as f32 / (1 << 24) as f32 - 0.5;
            // A node on the level itself counts as outside.
            if border {
                1.0
            } else if uniform.abs() < 0.05 {
                0.0
            } else {
                uniform
            }
        });
        let mesh = surface(&bricks, &values);
        assert_eq!(bad_edges(&mesh), 0, "seed {seed}");
        assert!(mesh.faces.len() > 100);
    }
}

#[test]
fn cells_of_all_cases_meet_their_six_neighbours() {
    for case in 0..256_u32 {
        for around in 0..16_u64 {
            // The cell in the middle has the case; the nodes around it, which its six neighbours
            // use, are random.
            let (bricks, values) = cube_of(1, |at| {
                let corner = at.map(|a| a.wrapping_sub(3));
                if corner.iter().all(|&c| c < 2) {
                    let bit = corner[0] + 2 * corner[1] + 4 * corner[2];
                    return if case >> bit & 1 == 1 { -1.0 } else { 1.0 };
                }
                let inner = at.iter().all(|&a| (2..6).contains(&a));
                let number = (at[0] + 8 * at[1] + 64 * at[2]) as u64;
                let is_inside = inner && mix(number + (around << 32) + 1) & 1 == 1;
                if is_inside { -1.0 } else { 1.0 }
            });
            assert_eq!(bad_edges(&surface(&bricks, &values)), 0, "case {case}, around {around}");
        }
    }
}

#[test]
fn a_ball_has_its_volume_and_looks_outwards() {
    let radius = 12.3;
    let (bricks, values) = cube_of(4, |at| {
        let d = at.map(|a| a as f32 - 15.7);
        (d[0] * d[0] + d[1] * d[1] + d[2] * d[2]).sqrt() - radius
    });
    let mesh = surface(&bricks, &values);
    let corner = |v: u32| mesh.vertices[v as usize].map(f64::from);
    let exact = 4.0 / 3.0 * std::f64::consts::PI * f64::from(radius).powi(3);
    // Chords cut off h² / (4 r²) or so of each part: 1 / 600.
    let share = volume(&mesh) / exact;
    assert!((share - 1.0).abs() < 0.004, "{share}");
    assert!(mesh.faces.iter().all(|f| {
        let [a, b, c] = f.map(corner);
        dot(cross(sub(b, a), sub(c, a)), sub(a, [15.7; 3])) > 0.0
    }));
}

#[test]
fn unknown_nodes_leave_a_hole_and_no_stray_vertex() {
    let (bricks, values) =
        cube_of(2, |at| if at == [7, 7, 7] { f32::NAN } else { at[2] as f32 - 7.5 });
    let mesh = surface(&bricks, &values);
    // 15 x 15 cells in two triangles each, less the four with the corner.
    assert_eq!(mesh.faces.len(), 2 * (15 * 15 - 4));
    let mut used = vec![false; mesh.vertices.len()];
    mesh.faces.as_flattened().iter().for_each(|&v| used[v as usize] = true);
    assert!(used.iter().all(|&u| u));
}
