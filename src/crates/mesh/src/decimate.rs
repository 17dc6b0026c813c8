//! Fewer faces for the same surface, by edge collapses under quadric errors of places and colours (meshoptimizer),
//! then cleaned.

use meshopt::{SimplifyOptions, SimplifyVertex, simplify_with_update};
use rayon::prelude::*;

use crate::clean::{CleanCounts, CleanError, CleanOptions, MinComponent, Sides, clean};
use crate::mesh::{Mesh, check_mesh, compact, local_faces, vertex_normals};
use crate::narrow::to_u32;

/// Faces that the blocks of a mesh keep together, in final targets. Only the last pass moves what lies between blocks.
const BLOCKS_KEEP: usize = 2;

/// The limits to which to decimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecimateOptions {
    /// Largest number of faces that is left.
    pub target_faces: usize,
    /// Largest number of faces that is decimated at once. A larger mesh is cut in blocks first.
    pub block_faces: usize,
}

impl DecimateOptions {
    /// Decimates to this number of faces, in blocks above a million.
    pub fn to(target_faces: usize) -> Self {
        Self { target_faces, block_faces: 1_000_000 }
    }
}

/// The result of decimation.
#[derive(Clone, Debug, PartialEq)]
pub struct Decimated {
    /// Faces before.
    pub faces_before: usize,
    /// Faces that are left; more than the target only if the surface allows no fewer.
    pub faces: usize,
    /// Blocks of the first pass; 1 without one.
    pub blocks: usize,
    /// Counts of the cleaning afterwards.
    pub cleaned: CleanCounts,
}

/// Decimates a mesh to `target_faces` or fewer. Vertices move and colours change to where the error is least; borders
/// are kept as long as possible. Normals, if there were any, are computed again.
pub fn decimate(
    mut mesh: Mesh,
    options: &DecimateOptions,
) -> Result<(Mesh, Decimated), CleanError> {
    check_mesh(&mesh)?;
    let faces_before = mesh.faces.len();
    let has_normals = !mesh.normals.is_empty();
    let mut blocks = 1;
    if faces_before > options.target_faces {
        mesh.normals.clear();
        let kept = options.target_faces.saturating_mul(BLOCKS_KEEP);
        if faces_before > options.block_faces && faces_before > kept {
            blocks = decimate_in_blocks(&mut mesh, kept, options.block_faces.max(1));
        }
        collapse(&mut mesh, None, options.target_faces, SimplifyOptions::Regularize);
        // The rule for even faces, or keeping all pieces, may have held the first pass back.
        collapse(&mut mesh, None, options.target_faces, SimplifyOptions::Prune);
        if mesh.faces.is_empty() {
            let target = options.target_faces;
            return Err(CleanError::DecimatedAway { faces: faces_before, target });
        }
        compact(&mut mesh);
    }
    let as_it_is = CleanOptions {
        min_component: MinComponent::Faces(0),
        sides: Sides::Kept,
        fill_hole_edges: 0,
    };
    let (mut mesh, cleaned) = clean(mesh, &as_it_is)?;
    if has_normals && faces_before > options.target_faces {
        mesh.normals = vertex_normals(&mesh);
    }
    let faces = mesh.faces.len();
    Ok((mesh, Decimated { faces_before, faces, blocks, cleaned }))
}

/// Weight of a colour channel's error against a place's error, in the mesh's size.
const COLOR_WEIGHT: f32 = 0.05;

/// Collapses edges of a checked mesh without normals until `target_faces` are left or none can be collapsed. Unused
/// vertices stay.
fn collapse(
    mesh: &mut Mesh,
    locks: Option<&[SimplifyVertex]>,
    target_faces: usize,
    options: SimplifyOptions,
) {
    if mesh.faces.len() <= target_faces {
        return;
    }
    let has_colors = !mesh.colors.is_empty();
    let weights: &[f32] = if has_colors { &[COLOR_WEIGHT; 3] } else { &[] };
    let left = simplify_with_update(
        mesh.faces.as_flattened_mut(),
        &mut mesh.vertices,
        mesh.colors.as_flattened_mut(),
        weights,
        size_of_val(weights),
        locks,
        target_faces.saturating_mul(3),
        f32::MAX,
        options,
        None,
    );
    mesh.faces.truncate(left / 3);
    let channels = mesh.colors.as_flattened_mut().iter_mut();
    channels.for_each(|channel| *channel = channel.clamp(0.0, 1.0));
}

/// Decimates a mesh to about `target_faces`, each block of at most `block_faces` by the same share, and returns the
/// number of blocks. Vertices that blocks share stay where they are, so that the blocks fit. The result does not
/// depend on the number of threads.
fn decimate_in_blocks(mesh: &mut Mesh, target_faces: usize, block_faces: usize) -> usize {
    let blocks = cut(mesh, block_faces);
    let is_shared = shared_vertices(mesh, &blocks);
    let total = mesh.faces.len() as u128;
    let decimated = |faces: &Vec<u32>| {
        let share = faces.len() as u128 * target_faces as u128 / total.max(1);
        let mut part = Part::of(mesh, faces);
        let lock = |&vertex: &u32| match is_shared[vertex as usize] {
            true => SimplifyVertex::Lock,
            false => SimplifyVertex::None,
        };
        let locks: Vec<SimplifyVertex> = part.names.iter().map(lock).collect();
        let target = usize::try_from(share).unwrap_or(usize::MAX);
        collapse(&mut part.mesh, Some(&locks), target, SimplifyOptions::Regularize);
        part
    };
    let parts: Vec<Part> = blocks.par_iter().map(decimated).collect();
    mesh.faces.clear();
    for part in parts {
        for (index, &name) in part.names.iter().enumerate() {
            mesh.vertices[name as usize] = part.mesh.vertices[index];
            if let Some(color) = part.mesh.colors.get(index) {
                mesh.colors[name as usize] = *color;
            }
        }
        let faces = part.mesh.faces.iter();
        mesh.faces.extend(faces.map(|face| face.map(|vertex| part.names[vertex as usize])));
    }
    compact(mesh);
    blocks.len()
}

/// A block as a mesh of its own, with the names of its vertices in the whole.
struct Part {
    mesh: Mesh,
    names: Vec<u32>,
}

impl Part {
    fn of(mesh: &Mesh, faces: &[u32]) -> Self {
        let faces = faces.iter().map(|&face| mesh.faces[face as usize]).collect();
        let (names, faces) = local_faces(faces);
        let rows = |rows: &[[f32; 3]]| -> Vec<[f32; 3]> {
            names.iter().filter_map(|&name| rows.get(name as usize).copied()).collect()
        };
        let (vertices, colors) = (rows(&mesh.vertices), rows(&mesh.colors));
        Self { mesh: Mesh { vertices, faces, normals: Vec::new(), colors }, names }
    }
}

/// Cuts the faces at the median of the longest axis until no part has too many. Faces of a block stay in their order.
fn cut(mesh: &Mesh, block_faces: usize) -> Vec<Vec<u32>> {
    let mut blocks = Vec::new();
    let mut left = vec![(0..to_u32(mesh.faces.len())).collect::<Vec<u32>>()];
    while let Some(mut faces) = left.pop() {
        if faces.len() <= block_faces {
            faces.sort_unstable();
            blocks.push(faces);
            continue;
        }
        let first = |face: u32| mesh.vertices[mesh.faces[face as usize][0] as usize];
        let sides: [f32; 3] = std::array::from_fn(|axis| {
            let along = faces.iter().map(|&face| first(face)[axis]);
            along.clone().fold(f32::NEG_INFINITY, f32::max) - along.fold(f32::INFINITY, f32::min)
        });
        let axis = (0..3).max_by(|&a, &b| sides[a].total_cmp(&sides[b])).unwrap_or(0);
        let middle = faces.len() / 2;
        faces.select_nth_unstable_by(middle, |&a, &b| {
            first(a)[axis].total_cmp(&first(b)[axis]).then(a.cmp(&b))
        });
        left.push(faces.split_off(middle));
        left.push(faces);
    }
    blocks
}

/// True for each vertex that faces of more than one block use.
fn shared_vertices(mesh: &Mesh, blocks: &[Vec<u32>]) -> Vec<bool> {
    let mut users = vec![u32::MAX; mesh.vertices.len()];
    let mut is_shared = vec![false; mesh.vertices.len()];
    for (block, faces) in (0_u32..).zip(blocks) {
        for vertex in faces.iter().flat_map(|&face| mesh.faces[face as usize]) {
            let user = &mut users[vertex as usize];
            is_shared[vertex as usize] |= *user != u32::MAX && *user != block;
            *user = block;
        }
    }
    is_shared
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known_meshes::{
        bad_edges, cube, joined, moved, rough_torus, same_on_any_threads, sphere,
    };
    use crate::mesh::Vec3;
    use crate::narrow::to_f64s;
    use crate::place::{centroid, corners, cross, dot, doubled_area, sub};
    use crate::report::MeshReport;
    use crate::search::BoxTree;

    /// Returns a closed torus with bumps, noise of a twentieth of an edge and a checker of colours.
    fn bumpy([around, across]: [u32; 2]) -> Mesh {
        let edge = 0.05 * std::f64::consts::TAU / f64::from(across);
        let mut mesh = rough_torus([around, across], 4, edge);
        mesh.colors = mesh.vertices.iter().map(|&place| checker(to_f64s(place))).collect();
        mesh
    }

    fn checker([x, y, z]: Vec3) -> [f32; 3] {
        let u = y.atan2(x);
        let v = z.atan2(x.hypot(y) - 1.0);
        if (3.0 * u).sin() * (2.0 * v).sin() > 0.0 { [0.9, 0.5, 0.2] } else { [0.1, 0.5, 0.6] }
    }

    /// Returns the mean and the largest distance of face centres to the original surface, and the mean difference of
    /// colour there, in 1/255.
    fn errors(found: &Mesh, truth: &Mesh) -> (f64, f64, f64) {
        let tree = BoxTree::new(truth).unwrap();
        let (mut sum, mut greatest, mut color_sum) = (0.0, 0.0_f64, 0.0);
        for &face in &found.faces {
            let nearest = tree.nearest(centroid(corners(found, face)), f64::INFINITY).unwrap();
            sum += nearest.distance;
            greatest = greatest.max(nearest.distance);
            let found_color = centroid(face.map(|v| to_f64s(found.colors[v as usize])));
            let true_color = at_place(truth, truth.faces[nearest.face as usize], nearest.place);
            let off = sub(found_color, true_color);
            color_sum += off.iter().map(|x| x.abs()).sum::<f64>() / 3.0;
        }
        let count = found.faces.len() as f64;
        (sum / count, greatest, 255.0 * color_sum / count)
    }

    fn at_place(mesh: &Mesh, face: [u32; 3], place: Vec3) -> Vec3 {
        let places = corners(mesh, face);
        let ([a, b, c], normal) = (places, doubled_area(places));
        let part = |p: Vec3, q: Vec3| {
            dot(normal, cross(sub(p, place), sub(q, place))) / dot(normal, normal)
        };
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
        let (found, done) = same_on_any_threads(|| decimate(mesh.clone(), &options).unwrap());
        assert_eq!(done.blocks, 8);
        assert!(found.faces.len() <= 5_000 && bad_edges(&found) == 0, "{}", done.cleaned);
        assert!(errors(&found, &mesh).1 < 0.02);
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
}
