//! Where the rays of a camera's pixels meet a mesh, by which colours of vertices become pixels, and what pixels say
//! goes back to vertices.

use rayon::prelude::*;

use super::front::{FrontFaces, SeenTriangle};
use super::paint::{DrawnPixels, RAYS};
use crate::camera::Camera;
use crate::mesh::Mesh;
use crate::narrow::{to_f32, to_f64s, to_u32};

/// The face that a ray meets first, and the shares of its corners in that place.
#[derive(Clone, Copy, Debug, PartialEq)]
struct MetFace {
    face: u32,
    shares: [f32; 3],
}

/// The faces that the rays of all pixels meet; those of a pixel follow one another.
#[derive(Clone, Debug, PartialEq)]
pub struct MetRays {
    met: Vec<Option<MetFace>>,
}

/// What pixels say to a vertex. In double precision: a vertex of a large face has millions of pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VertexSum {
    /// Of the pixels' values, each times the vertex's share in it.
    pub value: [f64; 3],
    /// Of the shares.
    pub share: f64,
}

impl MetRays {
    /// Of a checked mesh, from the depth `near` on, with the rays of [`draw`](super::draw).
    pub fn of(mesh: &Mesh, camera: &Camera, near: f64) -> Self {
        let fine = camera.finer(RAYS);
        let front = FrontFaces::of(mesh, &fine, near);
        let meet = |ray: usize| {
            let (pixel, of_pixel) = (ray / (RAYS * RAYS), ray % (RAYS * RAYS));
            let [x, y] = [
                pixel % camera.width * RAYS + of_pixel % RAYS,
                pixel / camera.width * RAYS + of_pixel / RAYS,
            ];
            let face = front.face(y * fine.width + x)?;
            let corners =
                mesh.faces[face].map(|vertex| fine.cam(to_f64s(mesh.vertices[vertex as usize])));
            let shares = SeenTriangle::new(corners).shares(fine.ray(x, y)).map(to_f32);
            Some(MetFace { face: to_u32(face), shares })
        };
        let rays = camera.width * camera.height * RAYS * RAYS;
        Self { met: (0..rays).into_par_iter().map(meet).collect() }
    }

    /// The mesh in these colours of its vertices, sRGB, 0 to 1.
    pub fn draw(&self, mesh: &Mesh, colors: &[[f32; 3]]) -> DrawnPixels {
        let pixel = |rays: &[Option<MetFace>]| {
            let (mut sum, mut hits) = ([0.0; 3], 0.0);
            for MetFace { face, shares } in rays.iter().flatten() {
                for (vertex, share) in mesh.faces[*face as usize].into_iter().zip(shares) {
                    let color = colors[vertex as usize];
                    sum = std::array::from_fn(|channel| sum[channel] + share * color[channel]);
                }
                hits += 1.0;
            }
            let rays = rays.len() as f32;
            (sum.map(|channel| channel / rays), hits / rays)
        };
        let (colors, covers) = self.met.par_chunks(RAYS * RAYS).map(pixel).unzip();
        DrawnPixels { colors, covers }
    }

    /// Adds to each vertex the values of the pixels that show it, as much as they show of it: [`Self::draw`] the other
    /// way round. A pixel without a value says nothing. The same for any number of threads.
    pub fn draw_bwd(&self, mesh: &Mesh, values: &[Option<[f32; 3]>], sums: &mut [VertexSum]) {
        let of_ray = 1.0 / (RAYS * RAYS) as f64;
        for (rays, value) in self.met.chunks(RAYS * RAYS).zip(values) {
            let Some(value) = value.map(to_f64s) else { continue };
            for MetFace { face, shares } in rays.iter().flatten() {
                for (vertex, &share) in mesh.faces[*face as usize].into_iter().zip(shares) {
                    let (sum, share) = (&mut sums[vertex as usize], f64::from(share) * of_ray);
                    sum.value = std::array::from_fn(|k| sum.value[k] + share * value[k]);
                    sum.share += share;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Paint, draw};
    use super::*;

    const CAMERA: Camera = Camera {
        width: 12,
        height: 9,
        focal_px: [9.0, 9.0],
        centre_px: [6.0, 4.5],
        rotation: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        translation: [0.0; 3],
    };

    /// A triangle before another, which it covers in part.
    fn mesh() -> Mesh {
        Mesh {
            vertices: vec![
                [-1.0, -0.8, 2.0],
                [0.9, -0.7, 2.0],
                [0.0, 0.8, 2.5],
                [-1.6, -1.2, 3.0],
                [1.9, 0.0, 3.5],
                [-0.4, 1.4, 3.0],
            ],
            faces: vec![[0, 1, 2], [3, 4, 5]],
            colors: (0..6).map(|v| [0.1 * v as f32, 0.9 - 0.1 * v as f32, 0.3]).collect(),
            ..Mesh::default()
        }
    }

    #[test]
    fn rays_draw_what_a_mesh_with_these_colours_is_drawn_as() {
        let mesh = mesh();
        let rays = MetRays::of(&mesh, &CAMERA, 0.1);
        let (found, expected) =
            (rays.draw(&mesh, &mesh.colors), draw(&mesh, Paint::Vertices, &CAMERA, 0.1));
        assert_eq!(found.covers, expected.covers);
        assert!(found.covers.contains(&0.0) && found.covers.contains(&1.0));
        for (found, expected) in found.colors.iter().zip(&expected.colors) {
            // Rounding of single precision.
            assert!((0..3).all(|k| (found[k] - expected[k]).abs() < 1e-6), "{found:?}");
        }
    }

    #[test]
    fn what_pixels_say_is_the_derivative_of_what_is_drawn() {
        let mesh = mesh();
        let rays = MetRays::of(&mesh, &CAMERA, 0.1);
        let value = |p: u8| [0.01 * f32::from(p), 0.5, f32::from(p % 7)];
        // Every fifth pixel says nothing.
        let values: Vec<_> = (0..108_u8).map(|p| (p % 5 > 0).then(|| value(p))).collect();
        let mut sums = vec![VertexSum::default(); 6];
        rays.draw_bwd(&mesh, &values, &mut sums);
        // Drawing is linear in the colours: one vertex of one colour says all.
        for (vertex, sum) in sums.iter().enumerate() {
            let mut colors = vec![[0.0; 3]; 6];
            colors[vertex] = [1.0; 3];
            let drawn = rays.draw(&mesh, &colors);
            let mut expected = VertexSum::default();
            for (color, value) in drawn.colors.iter().zip(&values) {
                let (Some(value), share) = (value.map(to_f64s), f64::from(color[0])) else {
                    continue;
                };
                expected.value = std::array::from_fn(|k| expected.value[k] + share * value[k]);
                expected.share += share;
            }
            // Pixels are rounded to single precision.
            assert!((sum.share - expected.share).abs() < 1e-4, "{vertex}: {sum:?}");
            for k in 0..3 {
                assert!((sum.value[k] - expected.value[k]).abs() < 1e-3, "{vertex}: {sum:?}");
            }
        }
        assert!(sums.iter().all(|sum| sum.share > 1.0), "all are seen: {sums:?}");
    }
}
