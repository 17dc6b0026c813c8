//! A triangle mesh.

use rayon::prelude::*;

use crate::narrow::{to_f32s, to_f64s, to_u32};
use crate::place::{add, doubled_area, mul, mul_transposed, normalize, scale, sub};

/// A place, direction or difference, in the space that its name gives.
pub type Vec3 = [f64; 3];

/// Triangles over shared vertices.
///
/// Places are in world space, in the scene's unit. Seen from outside, the corners of a face run counter-clockwise, so
/// that its normal, `(b - a) x (c - a)`, points outwards.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mesh {
    /// Place of each vertex, world space.
    pub vertices: Vec<[f32; 3]>,
    /// Three vertices of each face.
    pub faces: Vec<[u32; 3]>,
    /// Unit normal of each vertex, or empty.
    pub normals: Vec<[f32; 3]>,
    /// Colour of each vertex, sRGB, 0 to 1, or empty.
    pub colors: Vec<[f32; 3]>,
}

/// Returns the unit normal of each vertex of a checked mesh: the mean of its faces' normals by their area. Zero at
/// vertices without a face of positive area.
pub fn vertex_normals(mesh: &Mesh) -> Vec<[f32; 3]> {
    let place = |vertex: u32| to_f64s(mesh.vertices[vertex as usize]);
    normals_of(&mesh.faces, mesh.vertices.len(), place).into_iter().map(to_f32s).collect()
}

/// Returns [`vertex_normals`] of `vertices` places in double precision.
pub(super) fn normals_of(
    faces: &[[u32; 3]],
    vertices: usize,
    place: impl Fn(u32) -> Vec3,
) -> Vec<Vec3> {
    let mut sums = vec![[0.0; 3]; vertices];
    for &face in faces {
        let along = doubled_area(face.map(&place));
        for vertex in face {
            sums[vertex as usize] = add(sums[vertex as usize], along);
        }
    }
    sums.into_par_iter().map(normalize).collect()
}

/// Returns the vertices of some faces, ascending, and the faces with indices into these.
pub(super) fn local_faces(mut faces: Vec<[u32; 3]>) -> (Vec<u32>, Vec<[u32; 3]>) {
    let mut vertices = faces.as_flattened().to_vec();
    vertices.par_sort_unstable();
    vertices.dedup();
    let local = |vertex: u32| to_u32(vertices.partition_point(|&v| v < vertex));
    faces.par_iter_mut().with_min_len(1 << 12).for_each(|face| *face = face.map(local));
    (vertices, faces)
}

/// Drops vertices that no face uses, and returns their number.
pub(super) fn compact(mesh: &mut Mesh) -> usize {
    drop_unused(mesh).iter().filter(|&&used| !used).count()
}

/// Drops vertices that no face uses, and returns whether each was used.
pub(super) fn drop_unused(mesh: &mut Mesh) -> Vec<bool> {
    let is_used = renumber_used(&mut mesh.faces, mesh.vertices.len());
    for rows in [&mut mesh.vertices, &mut mesh.normals, &mut mesh.colors] {
        keep_rows(rows, &is_used);
    }
    is_used
}

/// Renumbers the vertices of faces as if only used ones existed, and returns whether each of `vertices` is used.
pub(super) fn renumber_used(faces: &mut [[u32; 3]], vertices: usize) -> Vec<bool> {
    let mut is_used = vec![false; vertices];
    faces.as_flattened().iter().for_each(|&vertex| is_used[vertex as usize] = true);
    let mut names = Vec::with_capacity(is_used.len());
    let mut kept = 0_u32;
    for &used in &is_used {
        names.push(kept);
        kept += u32::from(used);
    }
    faces.as_flattened_mut().iter_mut().for_each(|vertex| *vertex = names[*vertex as usize]);
    is_used
}

/// Keeps the rows that `keep` marks. Rows beyond its end stay.
pub(super) fn keep_rows<T>(rows: &mut Vec<T>, keep: &[bool]) {
    let mut keep = keep.iter();
    rows.retain(|_| keep.next().copied().unwrap_or(true));
}

/// Adds a copy of a vertex, with normal and colour, and returns its index.
pub(super) fn copy_vertex(mesh: &mut Mesh, vertex: u32) -> u32 {
    let name = to_u32(mesh.vertices.len());
    for rows in [&mut mesh.vertices, &mut mesh.normals, &mut mesh.colors] {
        rows.extend(rows.get(vertex as usize).copied());
    }
    name
}

/// The fault in a mesh.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum MeshError {
    #[error(
        "face {face} names vertex {vertex}, but the mesh has {vertices}: write or export the mesh again"
    )]
    UnknownVertex { face: usize, vertex: u32, vertices: usize },
    #[error("{found} {what} for {vertices} vertices: give one a vertex, or none at all")]
    Unequal { what: &'static str, found: usize, vertices: usize },
    #[error(
        "vertex {vertex} lies at {place:?}: remove vertices without a finite place (1e15 at most)"
    )]
    NotFinite { vertex: usize, place: [f32; 3] },
    #[error("vertex {vertex} has values of {what} that are not finite: export the mesh again")]
    NotFiniteValue { vertex: usize, what: &'static str },
    #[error("{found} {what}, but a mesh holds {limit} at most: decimate it in blocks")]
    TooMany { what: &'static str, found: usize, limit: usize },
}

/// Most vertices and most faces: three times as many corners can be named by 32 bits.
const LARGEST_COUNT: usize = (u32::MAX / 3) as usize;

const FARTHEST: f32 = 1e15;

/// Checks that faces name vertices, places are finite, and normals and colours are one a vertex or none.
///
/// Public functions of this crate check the meshes that they get; private ones rely on that.
pub fn check_mesh(mesh: &Mesh) -> Result<(), MeshError> {
    let vertices = mesh.vertices.len();
    for (what, found) in [("vertices", vertices), ("faces", mesh.faces.len())] {
        if found > LARGEST_COUNT {
            return Err(MeshError::TooMany { what, found, limit: LARGEST_COUNT });
        }
    }
    for (what, found) in [("normals", mesh.normals.len()), ("colours", mesh.colors.len())] {
        if found != 0 && found != vertices {
            return Err(MeshError::Unequal { what, found, vertices });
        }
    }
    // Squares of farther places are beyond the range of f32.
    let infinite = |place: &[f32; 3]| !place.iter().all(|x| x.abs() <= FARTHEST);
    let no_number = |values: &[f32; 3]| !values.iter().all(|x| x.is_finite());
    if let Some(vertex) = mesh.vertices.iter().position(infinite) {
        return Err(MeshError::NotFinite { vertex, place: mesh.vertices[vertex] });
    }
    for (what, values) in [("normals", &mesh.normals), ("colours", &mesh.colors)] {
        if let Some(vertex) = values.iter().position(no_number) {
            return Err(MeshError::NotFiniteValue { vertex, what });
        }
    }
    for (face, names) in mesh.faces.iter().enumerate() {
        if let Some(&vertex) = names.iter().find(|&&vertex| vertex as usize >= vertices) {
            return Err(MeshError::UnknownVertex { face, vertex, vertices });
        }
    }
    Ok(())
}

/// A pinhole camera and where it stands: x right, y down, z forward; the centre of the top left pixel is (0.5, 0.5).
/// `point_cam = rotation point_world + translation`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Camera {
    /// Width, px.
    pub width: usize,
    /// Height, px.
    pub height: usize,
    /// Focal lengths, px.
    pub focal_px: [f64; 2],
    /// Principal point, px.
    pub centre_px: [f64; 2],
    /// Rotation from world to camera axes, in rows.
    pub rotation: [Vec3; 3],
    /// Translation in camera axes, scene units.
    pub translation: Vec3,
}

impl Camera {
    /// Returns the camera with `times` pixels in place of one along each axis.
    pub(crate) fn finer(&self, times: usize) -> Self {
        let factor = times as f64;
        Self {
            width: self.width * times,
            height: self.height * times,
            focal_px: self.focal_px.map(|focal| focal * factor),
            centre_px: self.centre_px.map(|centre| centre * factor),
            ..*self
        }
    }

    pub(crate) fn centre(&self) -> Vec3 {
        scale(mul_transposed(&self.rotation, self.translation), -1.0)
    }

    #[inline]
    pub(crate) fn cam(&self, world: Vec3) -> Vec3 {
        add(mul(&self.rotation, world), self.translation)
    }

    /// Returns the ray through a pixel's centre in camera axes, z = 1.
    #[inline]
    pub(crate) fn ray(&self, x: usize, y: usize) -> Vec3 {
        let along =
            |axis: usize, at: usize| (at as f64 + 0.5 - self.centre_px[axis]) / self.focal_px[axis];
        [along(0, x), along(1, y), 1.0]
    }

    /// Returns the place that a pixel shows at this depth, world space.
    #[inline]
    pub(crate) fn world(&self, x: usize, y: usize, depth: f64) -> Vec3 {
        let cam = scale(self.ray(x, y), depth);
        mul_transposed(&self.rotation, sub(cam, self.translation))
    }

    /// Returns the pixel position, px, of a place in camera axes that lies before the camera.
    #[inline]
    pub(crate) fn pixel(&self, cam: Vec3) -> [f64; 2] {
        [0, 1].map(|a| self.focal_px[a] * cam[a] / cam[2] + self.centre_px[a])
    }

    /// True if the camera may see a part of a ball, world space.
    pub(crate) fn sees(&self, centre: Vec3, radius: f64) -> bool {
        let cam = self.cam(centre);
        let size = [self.width as f64, self.height as f64];
        let beside = |axis: usize, span: f64, sign: f64| {
            // The plane through the camera and an edge of the image; its normal points inwards.
            let focal = self.focal_px[axis];
            let distance = (sign * focal * cam[axis] + span * cam[2]) / focal.hypot(span);
            distance < -radius
        };
        let is_beside = |axis: usize| {
            beside(axis, self.centre_px[axis], 1.0)
                || beside(axis, size[axis] - self.centre_px[axis], -1.0)
        };
        cam[2] > -radius && !is_beside(0) && !is_beside(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known_meshes::sphere;
    use crate::place::dot;

    #[test]
    fn normals_of_a_sphere_point_outwards() {
        let mesh = sphere(2.0, 4);
        for (normal, vertex) in vertex_normals(&mesh).into_iter().zip(&mesh.vertices) {
            // Faces of 4 degrees: their mean is within a twentieth of that.
            assert!(dot(to_f64s(normal), to_f64s(*vertex)) / 2.0 > 0.9999);
        }
    }

    #[test]
    fn faults_of_a_mesh_are_named() {
        let good = Mesh {
            vertices: vec![[0.0; 3], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]],
            faces: vec![[0, 1, 2]],
            ..Mesh::default()
        };
        assert_eq!(check_mesh(&good), Ok(()));
        let cases = [
            (Mesh { faces: vec![[0, 1, 2], [0, 1, 3]], ..good.clone() }, "face 1 names vertex 3"),
            (Mesh { colors: vec![[0.5; 3]; 2], ..good.clone() }, "2 colours for 3 vertices"),
            (Mesh { normals: vec![[0.5; 3]; 4], ..good.clone() }, "4 normals for 3 vertices"),
            (
                Mesh { colors: vec![[0.5, f32::NAN, 0.0]; 3], ..good.clone() },
                "vertex 0 has values of colours",
            ),
            (Mesh { vertices: vec![[1e20; 3]; 3], ..good.clone() }, "vertex 0 lies at [1e20"),
            (Mesh { vertices: vec![[f32::NAN; 3]; 3], ..good }, "vertex 0 lies at [NaN"),
        ];
        for (mesh, expected) in cases {
            let found = check_mesh(&mesh).unwrap_err().to_string();
            assert!(found.contains(expected), "{found}");
        }
    }
}
