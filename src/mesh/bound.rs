//! Binding of Gaussians to the triangles of a mesh, and the mesh after refinement.

use std::num::NonZeroUsize;
use std::sync::Arc;

use kiddo::SquaredEuclidean;
use rayon::prelude::*;
use splat_mesh::{Mesh, vertex_normals};

use crate::math::bound::{BoundPlace, FlatForm, PerTriangle, place};
use crate::math::linalg::{Vec3, cross, length, sub};
use crate::math::morton::Cube;
use crate::math::{Real, inverse_sigmoid, sh};
use crate::model::{BoundColumns, BoundTopology, Gaussians, TooManyBound};

/// Colour where no Gaussian is opaque, sRGB.
const GREY: [f32; 3] = [0.5; 3];

/// Minimum opacity of Gaussians that a vertex takes its colour from.
const OPAQUE: f32 = 0.5;

/// Initial opacity of bound Gaussians, high since surfaces are opaque. The reference starts with 0.1, which costs
/// 0.7 dB on held-out views of a small scene after 120 iterations.
const INITIAL_OPACITY: f32 = 0.9;

/// Options of the binding.
#[derive(Clone, Copy, Debug)]
pub struct BindRule {
    /// Gaussians per triangle.
    pub per_triangle: PerTriangle,
    /// Degree of the spherical harmonics.
    pub sh_degree: u32,
    /// Scale of the Gaussians along the normals, world units.
    pub thickness: f64,
    /// Cube of the space-filling curve that orders the triangles.
    pub cube: Cube,
}

/// Bound Gaussians before their first step.
#[derive(Clone, Debug)]
pub struct BoundStart {
    /// Fixed structure of the mesh.
    pub topology: Arc<BoundTopology>,
    /// Vertices and shapes.
    pub columns: BoundColumns,
    /// Gaussians with opacities and colours; all other columns follow from the mesh.
    pub gaussians: Gaussians,
    /// Mean length of the edges, world units.
    pub edge: f64,
    /// Number of degenerate triangles, which have no Gaussians.
    pub dropped: usize,
}

/// Error of a mesh without usable triangles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages explain variants and fields")]
pub enum BindError {
    #[error(
        "zero triangles are left of {faces}: none has an area. Make another mesh with splat mesh, or \
         name one with --mesh FILE"
    )]
    NoTriangles { faces: usize },
    #[error(transparent)]
    TooMany(#[from] TooManyBound),
}

/// Binds Gaussians to the triangles of a mesh with a colour for each vertex. Neighbours in space become neighbours in
/// memory.
pub fn bind_mesh(mut mesh: Mesh, rule: &BindRule) -> Result<BoundStart, BindError> {
    let all = mesh.faces.len();
    let place = |vertex: u32| mesh.vertices[vertex as usize];
    let mut faces: Vec<[u32; 3]> =
        mesh.faces.iter().filter(|face| has_area(face.map(place))).copied().collect();
    if faces.is_empty() {
        return Err(BindError::NoTriangles { faces: all });
    }
    let dropped = all - faces.len();
    faces.par_sort_by_cached_key(|face| {
        let corners = face.map(place);
        rule.cube.key([0, 1, 2].map(|axis| corners.iter().map(|corner| corner[axis] / 3.0).sum()))
    });
    let vertices = renumbered(&mut faces, mesh.vertices.len());
    let taken = |of: &[[f32; 3]]| vertices.iter().map(|&vertex| of[vertex as usize]).collect();
    let places: Vec<[f32; 3]> = taken(&mesh.vertices);
    mesh.colors.resize(mesh.vertices.len(), GREY);
    let colors: Vec<[f32; 3]> = taken(&mesh.colors);
    let log_thickness = rule.thickness.ln().to_f32();
    let topology = BoundTopology::new(faces, places.len(), rule.per_triangle, log_thickness)?;
    let columns = BoundColumns::at_rest(&places, &topology);
    let mut gaussians = Gaussians::zeros(rule.sh_degree, topology.gaussians());
    gaussians.opacity_logits.fill(inverse_sigmoid(INITIAL_OPACITY));
    gaussians.sh_dc = topology
        .faces
        .iter()
        .flat_map(|face| {
            let corners = face.map(|vertex| colors[vertex as usize]);
            rule.per_triangle.weights().iter().flat_map(move |weights| dc_of(&corners, weights))
        })
        .collect();
    let edge = mean_edge(&places, &topology.faces);
    Ok(BoundStart { topology: Arc::new(topology), columns, gaussians, edge, dropped })
}

/// Returns the Gaussians at their initial positions.
pub fn placed_gaussians(start: &BoundStart) -> Gaussians {
    let BoundStart { topology, columns, gaussians, .. } = start;
    let (vertices, _) = columns.vertices.as_chunks::<3>();
    let (log_scales, _) = columns.log_scales.as_chunks::<2>();
    let (turns, _) = columns.turns.as_chunks::<2>();
    let weights = topology.per_triangle.weights();
    let mut placed = gaussians.clone();
    for (number, face) in topology.faces.iter().enumerate() {
        let corners = face.map(|vertex| vertices[vertex as usize]);
        for (row, weights) in topology.rows_of(number).zip(weights) {
            let form = FlatForm { log_scales: log_scales[row], turn: turns[row] };
            let BoundPlace { mean, quat } = place(&corners, weights.map(Real::to_f32), &form);
            placed.means[3 * row..][..3].copy_from_slice(&mean);
            placed.quats[4 * row..][..4].copy_from_slice(&quat);
            let [first, second] = form.log_scales;
            let scales = [topology.log_thickness, first, second];
            placed.log_scales[3 * row..][..3].copy_from_slice(&scales);
        }
    }
    placed
}

/// Returns the learned mesh. The colour of a vertex is the weighted mean of the Gaussians around it, in their
/// constant SH coefficients.
pub fn refined_mesh(topology: &BoundTopology, vertices: &[f32], sh_dc: &[f32]) -> Mesh {
    let weights = topology.per_triangle.weights();
    let colors = (0..topology.vertices()).into_par_iter().map(|vertex| {
        let (mut sum, mut whole) = ([0.0_f64; 3], 0.0);
        for &corner in topology.corners_of.numbers_of(vertex) {
            let [face, place] = [corner / 3, corner % 3].map(|number| number as usize);
            for (row, weights) in topology.rows_of(face).zip(weights) {
                whole += weights[place];
                for channel in 0..3 {
                    let dc = f64::from(sh_dc[3 * row + channel]);
                    sum[channel] += weights[place] * (0.5 + sh::C0 * dc);
                }
            }
        }
        match whole > 0.0 {
            true => sum.map(|channel| (channel / whole).clamp(0.0, 1.0).to_f32()),
            false => GREY,
        }
    });
    let mut mesh = Mesh {
        vertices: vertices.as_chunks::<3>().0.to_vec(),
        faces: topology.faces.clone(),
        normals: Vec::new(),
        colors: colors.collect(),
    };
    mesh.normals = vertex_normals(&mesh);
    mesh
}

/// Returns the colour of the nearest opaque Gaussian for each vertex; grey if no Gaussian is opaque.
pub fn colors_of_model(gaussians: &Gaussians, vertices: &[[f32; 3]]) -> Vec<[f32; 3]> {
    let least = inverse_sigmoid(OPAQUE);
    let rows: Vec<usize> =
        (0..gaussians.len()).filter(|&row| gaussians.opacity_logits[row] > least).collect();
    let (means, _) = gaussians.means.as_chunks::<3>();
    let (dc, _) = gaussians.sh_dc.as_chunks::<3>();
    let places: Vec<[f32; 3]> = rows.iter().map(|&row| means[row]).collect();
    let tree = kiddo::ImmutableKdTree::<f32, 3>::new_from_slice(&places).ok();
    let Some(tree) = tree.filter(|_| !places.is_empty()) else {
        return vec![GREY; vertices.len()];
    };
    let color_of = |vertex: &[f32; 3]| {
        let one = NonZeroUsize::MIN;
        let found = tree.query(vertex).nearest_n::<SquaredEuclidean<f32>>(one).execute();
        let row = found.first().and_then(|nearest| rows.get(nearest.item as usize));
        row.map_or(GREY, |&row| dc[row].map(|dc| (0.5 + sh::C0.to_f32() * dc).clamp(0.0, 1.0)))
    };
    vertices.par_iter().map(color_of).collect()
}

/// Returns true if the triangle's area and edges are large enough to divide by in single precision.
fn has_area(corners: [[f32; 3]; 3]) -> bool {
    let [a, b, c] = corners;
    let doubled = length(cross(sub(a, b), sub(b, c)));
    doubled.is_normal() && (1.0 / doubled).is_finite()
}

/// Renumbers the vertices in the order in which faces use them. Returns the old number of each new vertex.
fn renumbered(faces: &mut [[u32; 3]], vertices: usize) -> Vec<u32> {
    const UNUSED: u32 = u32::MAX;
    let mut names = vec![UNUSED; vertices];
    let mut old = Vec::new();
    let mut next = 0;
    for vertex in faces.iter_mut().flatten() {
        let name = &mut names[*vertex as usize];
        if *name == UNUSED {
            *name = next;
            next += 1;
            old.push(*vertex);
        }
        *vertex = *name;
    }
    old
}

/// Returns the constant SH coefficients of the interpolated colour of three corners.
fn dc_of(corners: &[[f32; 3]; 3], weights: &[f64; 3]) -> [f32; 3] {
    [0, 1, 2].map(|channel| {
        let mix: f64 =
            corners.iter().zip(weights).map(|(c, weight)| f64::from(c[channel]) * weight).sum();
        ((mix - 0.5) / sh::C0).to_f32()
    })
}

/// Returns the mean length of the faces' edges, world units.
fn mean_edge(vertices: &[[f32; 3]], faces: &[[u32; 3]]) -> f64 {
    let place = |vertex: u32| vertices[vertex as usize].map(f64::from);
    let edges = faces.iter().flat_map(|face| {
        let [a, b, c]: [Vec3<f64>; 3] = face.map(place);
        [sub(a, b), sub(b, c), sub(c, a)].map(length)
    });
    edges.sum::<f64>() / (3 * faces.len()).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUBE: Cube = Cube { centre: [0.0; 3], half_side: 4.0 };

    fn rule(per_triangle: PerTriangle) -> BindRule {
        BindRule { per_triangle, sh_degree: 1, thickness: 1e-6, cube: CUBE }
    }

    /// Returns two distant triangles, the second first on the curve, and one degenerate triangle.
    fn three() -> Mesh {
        let second = [[3.0, 3.0, 3.0], [3.5, 3.0, 3.0], [3.0, 3.5, 3.0]];
        let first = [[-3.0, -3.0, -3.0], [-2.0, -3.0, -3.0], [-3.0, -2.0, -3.0]];
        Mesh {
            vertices: [second.as_slice(), &first, &[[9.0; 3]]].concat(),
            faces: vec![[0, 1, 2], [0, 1, 1], [3, 4, 5]],
            colors: [[[1.0, 0.0, 0.0]; 3], [[0.0, 0.25, 1.0]; 3]].concat(),
            ..Mesh::default()
        }
    }

    #[test]
    fn triangles_are_ordered_and_keep_their_colours() {
        for per_triangle in PerTriangle::ALL {
            let start = bind_mesh(three(), &rule(per_triangle)).unwrap();
            assert_eq!((start.dropped, start.topology.faces.len()), (1, 2));
            assert_eq!(start.columns.vertices[..3], [-3.0, -3.0, -3.0]);
            assert_eq!(start.gaussians.len(), 2 * per_triangle.count());
            assert_eq!(start.gaussians.opacity_logits[0], inverse_sigmoid(INITIAL_OPACITY));
            let expected = (1.5 * (2.0 + 2.0_f64.sqrt())) / 6.0;
            assert!((start.edge - expected).abs() < 1e-6, "{}", start.edge);
            let columns = &start.columns;
            let mesh = refined_mesh(&start.topology, &columns.vertices, &start.gaussians.sh_dc);
            assert_eq!(mesh.vertices[3], [3.0, 3.0, 3.0]);
            for (color, expected) in
                [(mesh.colors[0], [0.0, 0.25, 1.0]), (mesh.colors[5], [1.0, 0.0, 0.0])]
            {
                let off = color.iter().zip(expected).map(|(a, b): (&f32, f32)| (a - b).abs());
                assert!(off.fold(0.0, f32::max) < 1e-6, "{color:?}");
            }
        }
    }

    #[test]
    fn a_degenerate_mesh_is_an_error() {
        let mut mesh = three();
        mesh.faces = vec![[0, 1, 1]; 4];
        let error = bind_mesh(mesh, &rule(PerTriangle::One)).unwrap_err().to_string();
        assert!(error.contains("zero triangles are left of 4"), "{error}");
    }

    #[test]
    fn vertices_take_the_colour_of_the_nearest_opaque_gaussian() {
        let mut model = Gaussians::zeros(0, 3);
        model.means = vec![0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.9, 0.0, 0.0];
        model.opacity_logits = vec![3.0, 3.0, -3.0];
        model.sh_dc[0] = (0.5 / sh::C0).to_f32();
        let colors = colors_of_model(&model, &[[0.1, 0.0, 0.0], [0.8, 0.0, 0.0]]);
        assert!((colors[0][0] - 1.0).abs() < 1e-6 && (colors[1][0] - 0.5).abs() < 1e-6);
        model.opacity_logits.fill(-3.0);
        assert_eq!(colors_of_model(&model, &[[0.0; 3]]), [GREY]);
    }
}
