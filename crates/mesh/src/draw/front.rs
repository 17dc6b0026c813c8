//! The face in front at each pixel, and how deep it lies.

use std::ops::Range;

use rayon::prelude::*;

use crate::camera::Camera;
use crate::mesh::{Mesh, Vec3};
use crate::narrow::{floor_u32, to_f32, to_f64s, to_u32};
use crate::vector::{add, cross, dot, scale, sub};

/// No face.
const NO_FACE: u32 = u32::MAX;

/// Rows of pixels that one thread draws at a time.
const BAND_ROWS: usize = 16;

/// What a camera sees of a mesh: for each pixel the face in front at its centre, from either side.
#[derive(Clone, Debug, PartialEq)]
pub struct FrontFaces {
    width: usize,
    height: usize,
    faces: Vec<u32>,
    /// Along the camera's axis, scene units.
    depths: Vec<f32>,
}

impl FrontFaces {
    /// Of a checked mesh, from the depth `near` on, which is above 0. Of faces at one depth, the first.
    /// The same for any number of threads.
    pub fn of(mesh: &Mesh, camera: &Camera, near: f64) -> Self {
        let Camera { width, height, .. } = *camera;
        let places: Vec<Vec3> =
            mesh.vertices.par_iter().map(|&vertex| camera.cam(to_f64s(vertex))).collect();
        let corners = |face: &[u32; 3]| face.map(|vertex| places[vertex as usize]);
        let boxes: Vec<PixelBox> =
            mesh.faces.par_iter().map(|face| PixelBox::of(corners(face), camera, near)).collect();
        let mut faces = vec![NO_FACE; width * height];
        let mut depths = vec![f32::INFINITY; width * height];
        let band = BAND_ROWS * width.max(1);
        let bands = faces.par_chunks_mut(band).zip(depths.par_chunks_mut(band)).enumerate();
        bands.for_each(|(number, (faces, depths))| {
            let first = number * BAND_ROWS;
            let end = first + faces.len() / width.max(1);
            for (index, pixels) in boxes.iter().enumerate() {
                let Some(rows) = pixels.rows_in(first..end) else { continue };
                let seen = SeenTriangle::new(corners(&mesh.faces[index]));
                for y in rows {
                    for x in pixels.columns() {
                        let depth = seen.depth(camera.ray(x, y)).filter(|&depth| depth >= near);
                        let at = (y - first) * width + x;
                        if let Some(depth) = depth.map(to_f32).filter(|&depth| depth < depths[at]) {
                            depths[at] = depth;
                            faces[at] = to_u32(index);
                        }
                    }
                }
            }
        });
        Self { width, height, faces, depths }
    }

    /// Width and height in pixels.
    pub fn size(&self) -> [usize; 2] {
        [self.width, self.height]
    }

    /// The face in front at a pixel of this number, in rows from the top; none beside the mesh.
    pub fn face(&self, pixel: usize) -> Option<usize> {
        self.faces.get(pixel).filter(|&&face| face != NO_FACE).map(|&face| face as usize)
    }

    /// Its depth along the camera's axis, scene units; infinite beside the mesh.
    pub fn depth(&self, pixel: usize) -> f32 {
        self.depths.get(pixel).copied().unwrap_or(f32::INFINITY)
    }
}

/// The pixels that a triangle may be seen at: columns and rows from the first to before the last.
#[derive(Clone, Copy)]
struct PixelBox {
    low: [u32; 2],
    end: [u32; 2],
}

impl PixelBox {
    const EMPTY: Self = Self { low: [0; 2], end: [0; 2] };

    /// Of a triangle in camera axes.
    fn of(corners: [Vec3; 3], camera: &Camera, near: f64) -> Self {
        let (mut low, mut high) = ([f64::INFINITY; 2], [f64::NEG_INFINITY; 2]);
        let mut include = |place: Vec3| {
            let px = camera.pixel(place);
            low = std::array::from_fn(|axis| low[axis].min(px[axis]));
            high = std::array::from_fn(|axis| high[axis].max(px[axis]));
        };
        for side in 0..3 {
            let (from, to) = (corners[side], corners[(side + 1) % 3]);
            if from[2] >= near {
                include(from);
            }
            if (from[2] >= near) != (to[2] >= near) {
                let share = (near - from[2]) / (to[2] - from[2]);
                let [x, y, _] = add(from, scale(sub(to, from), share));
                include([x, y, near]);
            }
        }
        if low[0] > high[0] {
            return Self::EMPTY;
        }
        let size = [camera.width, camera.height];
        // A pixel wider than the centres in it, for rounding.
        let low = low.map(|edge| floor_u32((edge - 1.0).max(0.0)));
        let end = [0, 1].map(|axis| floor_u32(high[axis] + 1.5).min(to_u32(size[axis])));
        if high.iter().any(|&edge| edge < 0.0) { Self::EMPTY } else { Self { low, end } }
    }

    fn columns(self) -> Range<usize> {
        self.low[0] as usize..self.end[0] as usize
    }

    /// The rows that are among these.
    fn rows_in(self, band: Range<usize>) -> Option<Range<usize>> {
        let rows = (self.low[1] as usize).max(band.start)..(self.end[1] as usize).min(band.end);
        (!rows.is_empty()).then_some(rows)
    }
}

/// A triangle in camera axes and the planes through the camera and its sides (Olano and Greer 1997):
/// no clipping, and of two triangles at a side none leaves a gap.
pub(super) struct SeenTriangle {
    planes: [Vec3; 3],
    /// Six times the volume of the tetrahedron of the camera and the triangle.
    volume: f64,
}

impl SeenTriangle {
    pub(super) fn new([a, b, c]: [Vec3; 3]) -> Self {
        let planes = [cross(b, c), cross(c, a), cross(a, b)];
        Self { planes, volume: dot(a, planes[0]) }
    }

    /// On which side of each plane a ray runs, and the sum.
    #[inline]
    fn sides(&self, ray: Vec3) -> ([f64; 3], f64) {
        let sides = self.planes.map(|plane| dot(plane, ray));
        (sides, sides[0] + sides[1] + sides[2])
    }

    /// Where a ray of depth 1 meets the triangle, in multiples of its length.
    #[inline]
    fn depth(&self, ray: Vec3) -> Option<f64> {
        let (sides, sum) = self.sides(ray);
        let is_in = if sum > 0.0 {
            sides.iter().all(|&side| side >= 0.0)
        } else {
            sides.iter().all(|&side| side <= 0.0)
        };
        (is_in && sum != 0.0).then(|| self.volume / sum)
    }

    /// The shares of the corners in the place where a ray meets the triangle.
    pub(super) fn shares(&self, ray: Vec3) -> [f64; 3] {
        let (sides, sum) = self.sides(ray);
        sides.map(|side| if sum == 0.0 { 1.0 / 3.0 } else { side / sum })
    }
}
