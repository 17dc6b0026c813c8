//! What a camera sees of a mesh, on the host.
//!
//! [`FrontFaces`] finds the face in front at each pixel, [`draw`] gives it colours: those of the vertices or
//! of a texture. [`MetRays`] keeps where the rays meet faces, for colours of vertices that are fitted to pixels.

mod front;
#[cfg(test)]
mod tests;

use front::SeenTriangle;
use rayon::prelude::*;

use crate::atlas::Atlas;
use crate::camera::Camera;
use crate::file::Picture;
use crate::mesh::Mesh;
use crate::narrow::{floor_i32, to_f32, to_f64s, to_index};

pub use front::{FrontFaces, MetRays, VertexSum};

// A mesh in its colours.

/// Rays a pixel, along and across.
const RAYS: usize = 2;

/// What gives a mesh its colours.
#[derive(Clone, Copy, Debug)]
pub enum Paint<'a> {
    /// The vertices' own colours.
    Vertices,
    /// A picture on the faces.
    Texture {
        /// Where the faces lie on it.
        atlas: &'a Atlas,
        /// The picture.
        picture: &'a Picture,
    },
}

/// A drawn mesh, in rows from the top.
#[derive(Clone, Debug, PartialEq)]
pub struct DrawnPixels {
    /// Colours, sRGB, 0 to 1; black beside the mesh.
    pub colors: Vec<[f32; 3]>,
    /// The share of each pixel that the mesh covers.
    pub covers: Vec<f32>,
}

/// Draws a checked mesh as it is, without light, with 4 rays a pixel. A mesh without colours is white.
pub fn draw(mesh: &Mesh, paint: Paint<'_>, camera: &Camera, near: f64) -> DrawnPixels {
    let fine = camera.finer(RAYS);
    let front = FrontFaces::of(mesh, &fine, near);
    let color = |pixel: usize| -> Option<[f64; 3]> {
        let face = front.face(pixel)?;
        let corners =
            mesh.faces[face].map(|vertex| fine.cam(to_f64s(mesh.vertices[vertex as usize])));
        let ray = fine.ray(pixel % fine.width, pixel / fine.width);
        let shares = SeenTriangle::new(corners).shares(ray);
        Some(color_at(mesh, paint, face, shares))
    };
    let pixels = (0..camera.width * camera.height).into_par_iter().map(|pixel| {
        let first = [pixel % camera.width, pixel / camera.width].map(|at| at * RAYS);
        let (mut sum, mut hits) = ([0.0; 3], 0.0);
        for ray in 0..RAYS * RAYS {
            let [x, y] = [first[0] + ray % RAYS, first[1] + ray / RAYS];
            if let Some(color) = color(y * fine.width + x) {
                sum = std::array::from_fn(|channel| sum[channel] + color[channel]);
                hits += 1.0;
            }
        }
        let rays = (RAYS * RAYS) as f64;
        (sum.map(|channel| to_f32(channel / rays)), to_f32(hits / rays))
    });
    let (colors, covers) = pixels.unzip();
    DrawnPixels { colors, covers }
}

/// The colour of a place of a face, sRGB, 0 to 1.
fn color_at(mesh: &Mesh, paint: Paint<'_>, face: usize, shares: [f64; 3]) -> [f64; 3] {
    let mix = |corners: [[f64; 3]; 3]| {
        std::array::from_fn(|channel| (0..3).map(|i| shares[i] * corners[i][channel]).sum())
    };
    match paint {
        Paint::Vertices if mesh.colors.is_empty() => [1.0; 3],
        Paint::Vertices => mix(mesh.faces[face].map(|v| to_f64s(mesh.colors[v as usize]))),
        Paint::Texture { atlas, picture } => {
            let corners = atlas.corners_px(atlas.faces[face]);
            let at = [0, 1].map(|axis| (0..3).map(|i| shares[i] * corners[i][axis]).sum());
            texel_between(picture, at)
        }
    }
}

/// The colour at a place of a picture in texels, between the four texels around it.
fn texel_between(picture: &Picture, at_px: [f64; 2]) -> [f64; 3] {
    let [x, y] = at_px.map(|at| at - 0.5);
    let (left, top) = (floor_i32(x), floor_i32(y));
    let (s, t) = (x - f64::from(left), y - f64::from(top));
    let texel = |across: i32, down: i32| {
        let within = |at: i32, size: u32| to_index(at).min((size as usize).saturating_sub(1));
        let at = within(top.saturating_add(down), picture.height) * picture.width as usize
            + within(left.saturating_add(across), picture.width);
        picture.texels.get(at).copied().unwrap_or_default().map(f64::from)
    };
    let corners = [texel(0, 0), texel(1, 0), texel(0, 1), texel(1, 1)];
    let weights = [(1.0 - s) * (1.0 - t), s * (1.0 - t), (1.0 - s) * t, s * t];
    std::array::from_fn(|channel| {
        (0..4).map(|i| weights[i] * corners[i][channel]).sum::<f64>() / 255.0
    })
}
