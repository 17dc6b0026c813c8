#![expect(clippy::cast_possible_truncation, reason = "small numbers")]

use std::f64::consts::{PI, TAU};

use proptest::prelude::*;

use super::*;
use crate::known_meshes::{cube, joined, mesh_of, moved, sphere, torus, turned_over};
use crate::narrow::{to_f32s, to_f64s};
use crate::report::MeshReport;

/// Cleans with every component kept.
fn cleaned(mesh: &Mesh) -> (Mesh, CleanCounts) {
    let options = CleanOptions { min_component: MinComponent::Faces(0), ..CleanOptions::default() };
    clean(mesh.clone(), &options).unwrap()
}

fn report(mesh: &Mesh) -> MeshReport {
    MeshReport::of(mesh).unwrap()
}

/// A band of `n` quads about the z axis that turns by so many half turns.
fn band(n: u32, half_turns: f64) -> Mesh {
    let mut mesh = Mesh::default();
    for i in 0..n {
        let u = TAU * f64::from(i) / f64::from(n);
        for side in [-0.2, 0.2] {
            let (sin, cos) = (half_turns * u / 2.0).sin_cos();
            let ring = 1.0 + side * cos;
            mesh.vertices.push(to_f32s([ring * u.cos(), ring * u.sin(), side * sin]));
        }
        let crosses = i + 1 == n && (half_turns % 2.0).abs() > 0.5;
        let (a, b) = (2 * i, 2 * i + 1);
        let (mut c, mut d) = ((2 * i + 2) % (2 * n), (2 * i + 3) % (2 * n));
        if crosses {
            std::mem::swap(&mut c, &mut d);
        }
        mesh.faces.extend([[a, c, b], [b, c, d]]);
    }
    mesh
}

#[test]
fn a_clean_mesh_stays_as_it_is() {
    let mesh = torus([1.0, 0.4], [30, 20], |_, _| 1.0);
    let (found, counts) = cleaned(&mesh);
    assert_eq!(found, mesh);
    assert_eq!(counts, CleanCounts { rounds: 1, ..CleanCounts::default() });
    assert_eq!(counts.to_string(), "nothing to clean");
}

#[test]
fn a_soup_of_triangles_becomes_one_surface() {
    let mesh = sphere(1.0, 3);
    let mut soup = Mesh::default();
    for (index, face) in (0..).zip(&mesh.faces) {
        soup.vertices.extend(face.map(|v| mesh.vertices[v as usize].map(|x| -x)));
        soup.faces.push([3 * index, 3 * index + 1, 3 * index + 2]);
    }
    soup.colors = soup.vertices.clone();
    let (found, counts) = cleaned(&soup);
    assert_eq!(counts.equal_vertices, soup.vertices.len() - mesh.vertices.len());
    let found_report = report(&found);
    assert_eq!((found_report.genus, found_report.components), (Some(0), 1));
    // A mirrored sphere is inside out.
    assert!(counts.turned_faces == mesh.faces.len() && found_report.volume.unwrap() > 4.0);
    assert_eq!(found.colors, found.vertices);
}

#[test]
fn a_bow_tie_gets_a_vertex_for_each_wing() {
    let wings = mesh_of(
        &[[0.0; 3], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]],
        &[[0, 1, 2], [0, 3, 4]],
    );
    let (found, counts) = cleaned(&wings);
    assert_eq!((counts.split_vertices, found.vertices.len()), (1, 6));
    assert_eq!(report(&found).nonmanifold_vertices, 0);
    assert_eq!(found.vertices[5], [0.0; 3]);
}

#[test]
fn of_three_faces_at_an_edge_the_flattest_two_stay_together() {
    let three = mesh_of(
        &[[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.5], [-1.0, 0.1, 0.5], [0.2, 1.0, 0.5]],
        &[[0, 4, 1], [0, 1, 2], [1, 0, 3]],
    );
    let (found, counts) = cleaned(&three);
    assert_eq!((counts.nonmanifold_edges, counts.split_vertices), (1, 2));
    let shared =
        |a: usize, b: usize| found.faces[a].iter().filter(|v| found.faces[b].contains(v)).count();
    assert_eq!((shared(1, 2), shared(0, 1), shared(0, 2)), (2, 0, 0));
    assert_eq!(report(&found).nonmanifold_edges, 0);
}

#[test]
fn bodies_that_touch_along_an_edge_stay_closed() {
    // Two cubes with one edge in common, three with one vertex.
    let two = joined(cube(), &moved(cube(), [1.0, 1.0, 0.0]));
    let three = joined(two, &moved(cube(), [-1.0, -1.0, -1.0]));
    let (found, counts) = cleaned(&three);
    assert_eq!(counts.nonmanifold_edges, 1);
    let report = report(&found);
    assert!(report.watertight && report.nonmanifold_vertices == 0, "{report}");
    assert_eq!(report.volume, Some(3.0));
}

#[test]
fn a_patch_that_shows_its_back_is_turned() {
    let mut mesh = torus([1.0, 0.4], [40, 20], |_, _| 1.0);
    mesh.normals = vec![[0.0, 0.0, 1.0]; mesh.vertices.len()];
    mesh.faces[100..240].iter_mut().for_each(|face| face.swap(0, 1));
    let (found, counts) = cleaned(&mesh);
    assert_eq!(counts.turned_faces, 140);
    let report = report(&found);
    assert!(report.watertight && report.volume.unwrap() > 3.0, "{report}");
    assert_eq!(found.normals, vertex_normals(&found));
}

#[test]
fn a_moebius_band_is_said_to_have_one_side() {
    let (_, plain) = cleaned(&band(40, 0.0));
    assert_eq!(plain.one_sided_edges, 0);
    let (found, counts) = cleaned(&band(40, 1.0));
    assert!(counts.one_sided_edges > 0);
    assert!(counts.to_string().contains("without a consistent side"), "{counts}");
    assert!(!report(&found).watertight);
}

#[test]
fn spheres_inside_out_are_turned_and_cavities_are_not() {
    let nested =
        joined(joined(turned_over(sphere(3.0, 4)), &sphere(2.0, 4)), &turned_over(sphere(1.0, 4)));
    let (found, counts) = cleaned(&nested);
    assert_eq!(counts.turned_faces, nested.faces.len());
    // Solid, hollow, solid: 4/3 pi (27 - 8 + 1), less what the faces cut off.
    let volume = report(&found).volume.unwrap();
    assert!((volume / (80.0 / 3.0 * PI) - 1.0).abs() < 0.01, "{volume}");
}

#[test]
fn cameras_decide_where_they_see_a_surface() {
    // A room: its inner side is the one to be seen.
    let cameras = [[0.1, 0.2, 0.0], [0.0, -0.3, 0.2]];
    let options = CleanOptions { sides: Sides::Outward(&cameras), ..CleanOptions::default() };
    let (room, counts) = clean(sphere(2.0, 3), &options).unwrap();
    assert_eq!(counts.turned_faces, room.faces.len());
    assert!(report(&room).volume.unwrap() < 0.0);
    // An open wall, seen from one side.
    let wall = mesh_of(&[[0.0; 3], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], &[[0, 1, 2]]);
    for (z, turned) in [(1.0, 0), (-1.0, 1)] {
        let cameras = [[0.2, 0.2, z]];
        let options = CleanOptions { sides: Sides::Outward(&cameras), ..CleanOptions::default() };
        assert_eq!(clean(wall.clone(), &options).unwrap().1.turned_faces, turned);
    }
}

#[test]
fn small_components_go_by_share_number_or_rank() {
    let all = joined(
        joined(sphere(1.0, 3), &moved(sphere(0.5, 1), [4.0, 0.0, 0.0])),
        &moved(sphere(0.05, 2), [8.0, 0.0, 0.0]),
    );
    for (min, components) in [
        (MinComponent::FaceShare(0.1), 2),
        (MinComponent::FaceShare(0.3), 1),
        (MinComponent::Faces(33), 2),
        (MinComponent::Largest(2), 2),
        (MinComponent::Largest(50), 3),
    ] {
        let options = CleanOptions { min_component: min, ..CleanOptions::default() };
        let (found, counts) = clean(all.clone(), &options).unwrap();
        assert_eq!(report(&found).components, components, "{min:?}");
        assert_eq!(counts.small_components, 3 - components);
        assert_eq!(report(&found).unused_vertices, 0);
    }
    let none =
        CleanOptions { min_component: MinComponent::Faces(10_000), ..CleanOptions::default() };
    let error = clean(all, &none).unwrap_err().to_string();
    assert!(
        error.contains("nothing is left after the removal of small components: 672"),
        "{error}"
    );
    let error = clean(Mesh::default(), &none).unwrap_err().to_string();
    assert!(error.contains("after extraction"), "{error}");
}

#[test]
fn slivers_are_mended_without_a_hole() {
    // A needle: a pole of a sphere, doubled. A cap: a corner on its longest side.
    let mut mesh = sphere(1.0, 2);
    let pole = 4;
    assert_eq!(mesh.vertices[pole as usize], [0.0, 0.0, 1.0]);
    mesh.vertices.push([1e-12, 0.0, 1.0]);
    let twin = mesh.vertices.len() as u32 - 1;
    // One of the faces about the pole goes to its twin, and two needles stand at its sides.
    let first = mesh.faces.iter().position(|face| face.contains(&pole)).unwrap();
    let at = mesh.faces[first].iter().position(|&v| v == pole).unwrap();
    let [b, c] = [mesh.faces[first][(at + 1) % 3], mesh.faces[first][(at + 2) % 3]];
    mesh.faces[first] = [twin, b, c];
    mesh.faces.extend([[pole, b, twin], [pole, twin, c]]);
    assert!(report(&mesh).watertight);
    let (found, counts) = cleaned(&mesh);
    assert!(report(&found).watertight && counts.degenerate_faces == 2, "{counts}");
    assert_eq!(found.faces.len(), 128);

    let mut mesh = cube();
    let middle = mesh.vertices.len() as u32;
    mesh.vertices.push([0.5, 0.5, 0.0]);
    // The bottom's diagonal runs through the new vertex on one side only.
    assert_eq!(mesh.faces[..2], [[0, 2, 1], [1, 2, 3]]);
    mesh.faces[0] = [0, 2, middle];
    mesh.faces.extend([[0, middle, 1], [1, middle, 2]]);
    let (found, counts) = cleaned(&mesh);
    let report = report(&found);
    assert!(report.watertight && counts.degenerate_faces == 1, "{report}");
    assert_eq!((report.faces, report.volume), (14, Some(1.0)));
}

#[test]
fn doubled_faces_go_whichever_side_they_show() {
    let mut mesh = cube();
    mesh.faces.extend([mesh.faces[3], [1, 2, 0]]);
    let (found, counts) = cleaned(&mesh);
    assert_eq!((counts.duplicate_faces, found.faces), (2, cube().faces));
}

#[test]
fn holes_up_to_the_given_size_are_closed() {
    let whole = sphere(1.0, 4);
    let mut pierced = whole.clone();
    // Around the poles: a hole of 4 faces, 4 edges, and a large one.
    pierced.faces.retain(|f| !f.iter().any(|&v| whole.vertices[v as usize][2] > 0.9999));
    pierced.faces.retain(|f| !f.iter().all(|&v| whole.vertices[v as usize][2] < -0.9));
    let boundary = report(&pierced).boundary_edges;
    for (edges, holes) in [(0, 0), (4, 1), (1000, 2)] {
        let options = CleanOptions { fill_hole_edges: edges, ..CleanOptions::default() };
        let (found, counts) = clean(pierced.clone(), &options).unwrap();
        assert_eq!(counts.filled_holes, holes);
        let found = report(&found);
        assert_eq!(found.watertight, holes == 2, "{found}");
        if holes == 2 {
            assert_eq!((found.genus, counts.added_faces), (Some(0), boundary - 4));
            assert!(found.volume.unwrap() > 3.8);
        }
    }
}

#[test]
fn a_large_hole_is_closed_by_ears() {
    let mut open = band(200, 0.0);
    open.vertices
        .iter_mut()
        .enumerate()
        .for_each(|(i, v)| v[2] = if i % 2 == 0 { 0.0 } else { 0.3 });
    let options = CleanOptions { fill_hole_edges: 200, ..CleanOptions::default() };
    let (found, counts) = clean(open, &options).unwrap();
    let found = report(&found);
    assert!(found.watertight && counts.added_faces == 2 * 198, "{found}");
    assert_eq!(found.genus, Some(0));
}

#[test]
fn borders_are_peeled_ring_by_ring() {
    let mesh = {
        let mut mesh = band(30, 0.0);
        let wide_band = band(30, 0.0);
        mesh.faces.clear();
        mesh.vertices.clear();
        // Seven rows of vertices, six of faces.
        for row in 0..7_u32 {
            mesh.vertices.extend((0..30).map(|i| {
                let v = to_f64s(wide_band.vertices[2 * i]);
                to_f32s([v[0], v[1], f64::from(row)])
            }));
        }
        for row in 0..6 {
            for i in 0..30 {
                let [a, b] = [30 * row + i, 30 * row + (i + 1) % 30];
                mesh.faces.extend([[a, b, a + 30], [b, b + 30, a + 30]]);
            }
        }
        mesh
    };
    let stay = |times| peel_border(&mesh, times).iter().filter(|&&stays| stays).count();
    // The first round takes one triangle of each quad at both borders, the next the other.
    assert_eq!([stay(0), stay(1), stay(2), stay(20)], [360, 300, 240, 0]);
    assert_eq!(face_centres(&mesh).len(), 360);
}

proptest! {
    #[test]
    fn any_faces_become_a_manifold_once_and_for_all(
        faces in prop::collection::vec(prop::array::uniform3(0..9_u32), 1..40),
        places in prop::collection::vec(prop::array::uniform3(0..4_i8), 9),
    ) {
        let vertices: Vec<[f32; 3]> = places.iter().map(|p| p.map(f32::from)).collect();
        let options = CleanOptions {
            min_component: MinComponent::Faces(0), fill_hole_edges: 6, ..CleanOptions::default()
        };
        match clean(mesh_of(&vertices, &faces), &options) {
            Err(error) => prop_assert!(error.to_string().contains("nothing is left")),
            Ok((found, counts)) => {
                let report = report(&found);
                prop_assert_eq!(report.nonmanifold_edges, 0);
                prop_assert_eq!(report.nonmanifold_vertices, 0);
                prop_assert_eq!(report.unused_vertices, 0);
                prop_assert_eq!(report.misoriented_edges, counts.one_sided_edges);
            }
        }
    }
}
