//! Views of a mesh by a camera, drawn on the host.
//!
//! [`FrontFaces`] finds the front face at each pixel. [`draw`] shows colours of the vertices or of a texture.
//! [`RayHits`] keeps where rays hit faces, to fit colours of vertices to pixels.

use std::ops::Range;

use rayon::prelude::*;

use crate::atlas::Atlas;
use crate::file::Picture;
use crate::mesh::{Camera, Mesh, Vec3};
use crate::narrow::{floor_i32, floor_u32, to_f32, to_f64s, to_index, to_u32};
use crate::place::{add, cross, dot, scale, sub};

/// Rays per pixel along each axis.
const RAYS: usize = 2;

/// Colours of a mesh.
#[derive(Clone, Copy, Debug)]
pub enum Paint<'a> {
    /// Colours of the vertices.
    Vertices,
    /// A picture on the faces.
    Texture {
        /// Positions of the faces on the picture.
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

/// Draws a checked mesh without light, with 4 rays a pixel. A mesh without colours is white.
pub fn draw(mesh: &Mesh, paint: Paint<'_>, camera: &Camera, near: f64) -> DrawnPixels {
    let fine = camera.finer(RAYS);
    let front = FrontFaces::of(mesh, &fine, near);
    let color = |[x, y]: [usize; 2]| -> Option<[f64; 3]> {
        let (face, shares) = front.hit(mesh, &fine, x, y)?;
        Some(color_at(mesh, paint, face, shares))
    };
    let pixels = (0..camera.width * camera.height).into_par_iter().map(|pixel| {
        let first = [pixel % camera.width, pixel / camera.width].map(|at| at * RAYS);
        let (mut sum, mut hits) = ([0.0; 3], 0.0);
        for ray in 0..RAYS * RAYS {
            if let Some(color) = color([first[0] + ray % RAYS, first[1] + ray / RAYS]) {
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

/// Returns the colour of a place of a face, sRGB, 0 to 1.
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

/// Returns the colour at a place of a picture in texels, between the four texels around it.
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

const NO_FACE: u32 = u32::MAX;

/// Rows of pixels that one thread draws at a time.
const BAND_ROWS: usize = 16;

/// Distance by which rounding may put a pixel's centre beside a face, px.
const ROUNDING_PX: f64 = 1e-3;

/// Faces that one thread sorts into bands together.
const FACES_A_LIST: usize = 4096;

/// The front face at the centre of each pixel, from either side.
#[derive(Clone, Debug, PartialEq)]
pub struct FrontFaces {
    /// Width and height in pixels.
    pub size: [usize; 2],
    faces: Vec<u32>,
    /// Depth along the camera's axis, scene units.
    depths: Vec<f32>,
}

impl FrontFaces {
    /// Draws a checked mesh from the depth `near` on, which is above 0. Of faces at one depth, takes the first. The
    /// result does not depend on the number of threads.
    pub fn of(mesh: &Mesh, camera: &Camera, near: f64) -> Self {
        let Camera { width, height, .. } = *camera;
        let places: Vec<Vec3> =
            mesh.vertices.par_iter().map(|&vertex| camera.cam(to_f64s(vertex))).collect();
        let corners = |face: usize| mesh.faces[face].map(|vertex| places[vertex as usize]);
        let across: Vec<f64> = (0..width).map(|x| camera.ray(x, 0)[0]).collect();
        let bands = height.div_ceil(BAND_ROWS);
        let list = |number: usize| {
            let first = number * FACES_A_LIST;
            let faces = first..mesh.faces.len().min(first + FACES_A_LIST);
            let pixels = |face| (to_u32(face), PixelBox::of(corners(face), camera, near));
            BandLists::of(bands, faces.map(pixels))
        };
        let lists = (0..mesh.faces.len().div_ceil(FACES_A_LIST)).into_par_iter().map(list);
        let lists: Vec<BandLists> = lists.collect();
        let mut faces = vec![NO_FACE; width * height];
        let mut depths = vec![f32::INFINITY; width * height];
        let band = BAND_ROWS * width.max(1);
        let bands = faces.par_chunks_mut(band).zip(depths.par_chunks_mut(band)).enumerate();
        bands.for_each(|(number, (faces, depths))| {
            let first = number * BAND_ROWS;
            let end = first + faces.len() / width.max(1);
            for BandEntry { face, pixels, .. } in lists.iter().flat_map(|lists| lists.band(number))
            {
                let Some(rows) = pixels.rows_in(first..end) else { continue };
                let seen = SeenTriangle::new(corners(*face as usize));
                for y in rows {
                    let down = camera.ray(0, y)[1];
                    for x in pixels.columns() {
                        let ray = [across[x], down, 1.0];
                        let depth = seen.depth(ray).filter(|&depth| depth >= near);
                        let at = (y - first) * width + x;
                        if let Some(depth) = depth.map(to_f32).filter(|&depth| depth < depths[at]) {
                            depths[at] = depth;
                            faces[at] = *face;
                        }
                    }
                }
            }
        });
        Self { size: [width, height], faces, depths }
    }

    /// Returns the front face at the pixel of this index, in rows from the top; none beside the mesh.
    pub fn face(&self, pixel: usize) -> Option<usize> {
        self.faces.get(pixel).filter(|&&face| face != NO_FACE).map(|&face| face as usize)
    }

    /// Returns the depth along the camera's axis, scene units; infinite beside the mesh.
    pub fn depth(&self, pixel: usize) -> f32 {
        self.depths.get(pixel).copied().unwrap_or(f32::INFINITY)
    }

    /// Returns the front face of the ray through a pixel and the shares of its corners in the place that is hit.
    fn hit(&self, mesh: &Mesh, camera: &Camera, x: usize, y: usize) -> Option<(usize, [f64; 3])> {
        let face = self.face(y * self.size[0] + x)?;
        let corner = |vertex: u32| camera.cam(to_f64s(mesh.vertices[vertex as usize]));
        Some((face, SeenTriangle::new(mesh.faces[face].map(corner)).shares(camera.ray(x, y))))
    }
}

/// A face that may be visible in a band of rows.
#[derive(Clone, Copy)]
struct BandEntry {
    band: u32,
    face: u32,
    pixels: PixelBox,
}

/// Some faces by band, in ascending order in each.
struct BandLists {
    entries: Vec<BandEntry>,
    /// First entry of each band, and the end.
    starts: Vec<u32>,
}

impl BandLists {
    fn of(bands: usize, faces: impl Iterator<Item = (u32, PixelBox)>) -> Self {
        let mut entries = Vec::new();
        for (face, pixels) in faces.filter(|(_, pixels)| !pixels.columns().is_empty()) {
            let first = pixels.low[1] as usize / BAND_ROWS;
            let end = (pixels.end[1] as usize).div_ceil(BAND_ROWS).min(bands);
            entries.extend((first..end).map(|band| BandEntry { band: to_u32(band), face, pixels }));
        }
        entries.sort_unstable_by_key(|entry| (entry.band, entry.face));
        let start = |band| {
            to_u32(entries.partition_point(|entry: &BandEntry| (entry.band as usize) < band))
        };
        Self { starts: (0..=bands).map(start).collect(), entries }
    }

    fn band(&self, number: usize) -> &[BandEntry] {
        &self.entries[self.starts[number] as usize..self.starts[number + 1] as usize]
    }
}

/// The pixels at which a triangle may be visible: columns and rows from `low` to before `end`.
#[derive(Clone, Copy)]
struct PixelBox {
    low: [u32; 2],
    end: [u32; 2],
}

impl PixelBox {
    const EMPTY: Self = Self { low: [0; 2], end: [0; 2] };

    /// Returns the pixels of a triangle in camera axes.
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
        // The centres in the box, and those that rounding may have put beside it.
        let low = low.map(|edge| floor_u32((edge - 0.5 - ROUNDING_PX).ceil().max(0.0)));
        let end = [0, 1].map(|axis| {
            floor_u32((high[axis] + 0.5 + ROUNDING_PX).max(0.0)).min(to_u32(size[axis]))
        });
        if high.iter().any(|&edge| edge < 0.0) { Self::EMPTY } else { Self { low, end } }
    }

    fn columns(self) -> Range<usize> {
        self.low[0] as usize..self.end[0] as usize
    }

    /// Returns the rows that lie in a band.
    fn rows_in(self, band: Range<usize>) -> Option<Range<usize>> {
        let rows = (self.low[1] as usize).max(band.start)..(self.end[1] as usize).min(band.end);
        (!rows.is_empty()).then_some(rows)
    }
}

/// A triangle in camera axes as planes through the camera and its sides (Olano and Greer 1997): needs no clipping and
/// leaves no gap between two triangles.
struct SeenTriangle {
    planes: [Vec3; 3],
    /// Six times the volume of the tetrahedron of the camera and the triangle.
    volume: f64,
}

impl SeenTriangle {
    fn new([a, b, c]: [Vec3; 3]) -> Self {
        let planes = [cross(b, c), cross(c, a), cross(a, b)];
        Self { planes, volume: dot(a, planes[0]) }
    }

    /// Returns the side of each plane on which a ray runs, and the sum.
    #[inline]
    fn sides(&self, ray: Vec3) -> ([f64; 3], f64) {
        let sides = self.planes.map(|plane| dot(plane, ray));
        (sides, sides[0] + sides[1] + sides[2])
    }

    /// Returns the depth at which a ray of depth 1 hits the triangle.
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

    /// Returns the shares of the corners in the place where a ray hits the triangle.
    fn shares(&self, ray: Vec3) -> [f64; 3] {
        let (sides, sum) = self.sides(ray);
        sides.map(|side| if sum == 0.0 { 1.0 / 3.0 } else { side / sum })
    }
}

/// The faces that the rays of all pixels hit first, with the shares of their corners there; pixel after pixel.
#[derive(Clone, Debug, PartialEq)]
pub struct RayHits {
    hits: Vec<Option<(u32, [f32; 3])>>,
}

/// Sums over the pixels that show a vertex. Double precision: a large face has millions of pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VertexSum {
    /// Sum of the pixels' values times the vertex's shares in the pixels.
    pub value: [f64; 3],
    /// Sum of the shares.
    pub share: f64,
}

impl RayHits {
    /// Finds the hits on a checked mesh, from the depth `near` on, with the rays of [`draw()`].
    pub fn of(mesh: &Mesh, camera: &Camera, near: f64) -> Self {
        let fine = camera.finer(RAYS);
        let front = FrontFaces::of(mesh, &fine, near);
        let meet = |ray: usize| {
            let (pixel, of_pixel) = (ray / (RAYS * RAYS), ray % (RAYS * RAYS));
            let x = pixel % camera.width * RAYS + of_pixel % RAYS;
            let y = pixel / camera.width * RAYS + of_pixel / RAYS;
            let (face, shares) = front.hit(mesh, &fine, x, y)?;
            Some((to_u32(face), shares.map(to_f32)))
        };
        let rays = camera.width * camera.height * RAYS * RAYS;
        Self { hits: (0..rays).into_par_iter().map(meet).collect() }
    }

    /// Draws the mesh in these colours of its vertices, sRGB, 0 to 1.
    pub fn draw(&self, mesh: &Mesh, colors: &[[f32; 3]]) -> DrawnPixels {
        let pixel = |rays: &[Option<(u32, [f32; 3])>]| {
            let (mut sum, mut hits) = ([0.0; 3], 0.0);
            for (face, shares) in rays.iter().flatten() {
                for (vertex, share) in mesh.faces[*face as usize].into_iter().zip(shares) {
                    let color = colors[vertex as usize];
                    sum = std::array::from_fn(|channel| sum[channel] + share * color[channel]);
                }
                hits += 1.0;
            }
            let rays = rays.len() as f32;
            (sum.map(|channel| channel / rays), hits / rays)
        };
        let (colors, covers) = self.hits.par_chunks(RAYS * RAYS).map(pixel).unzip();
        DrawnPixels { colors, covers }
    }

    /// Adds the values of pixels to the vertices that they show, by shares: the transpose of [`Self::draw`]. Skips
    /// pixels without a value. The result does not depend on the number of threads.
    pub fn draw_bwd(&self, mesh: &Mesh, values: &[Option<[f32; 3]>], sums: &mut [VertexSum]) {
        let of_ray = 1.0 / (RAYS * RAYS) as f64;
        for (rays, value) in self.hits.chunks(RAYS * RAYS).zip(values) {
            let Some(value) = value.map(to_f64s) else { continue };
            for (face, shares) in rays.iter().flatten() {
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
    use super::*;
    use crate::known_meshes::{self, cube, mesh_of, same_on_any_threads, sphere};
    use crate::place::{corners, doubled_area};
    use crate::search::BoxTree;

    /// Returns a triangle before another, which it covers in part, and the hits of rays on both.
    fn covered() -> (Mesh, Camera, RayHits) {
        let near = [[-1.0, -0.8, 2.0], [0.9, -0.7, 2.0], [0.0, 0.8, 2.5]];
        let far = [[-1.6, -1.2, 3.0], [1.9, 0.0, 3.5], [-0.4, 1.4, 3.0]];
        let mut mesh = mesh_of(&[near, far].concat(), &[[0, 1, 2], [3, 4, 5]]);
        mesh.colors = (0..6).map(|v| [0.1 * v as f32, 0.9 - 0.1 * v as f32, 0.3]).collect();
        let camera = known_meshes::ahead([0.0; 3], [12, 9], 9.0);
        let rays = RayHits::of(&mesh, &camera, 0.1);
        (mesh, camera, rays)
    }

    #[test]
    fn rays_draw_the_same_as_a_mesh_with_these_colours() {
        let (mesh, camera, rays) = covered();
        let found = rays.draw(&mesh, &mesh.colors);
        let expected = draw(&mesh, Paint::Vertices, &camera, 0.1);
        assert_eq!(found.covers, expected.covers);
        assert!(found.covers.contains(&0.0) && found.covers.contains(&1.0));
        for (found, expected) in found.colors.iter().zip(&expected.colors) {
            // Rounding of single precision.
            assert!((0..3).all(|k| (found[k] - expected[k]).abs() < 1e-6), "{found:?}");
        }
    }

    #[test]
    fn sums_of_pixels_are_the_derivative_of_drawing() {
        let (mesh, _, rays) = covered();
        let value = |p: u8| [0.01 * f32::from(p), 0.5, f32::from(p % 7)];
        // Every fifth pixel has no value.
        let values: Vec<_> = (0..108_u8).map(|p| (p % 5 > 0).then(|| value(p))).collect();
        let mut sums = vec![VertexSum::default(); 6];
        rays.draw_bwd(&mesh, &values, &mut sums);
        // Drawing is linear in the colours: each vertex alone gives its sum.
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

    const NEAR: f64 = 0.01;

    /// Returns a camera of 64 x 48 px that looks along z from a place.
    fn ahead(eye: [f64; 3]) -> Camera {
        known_meshes::ahead(eye, [64, 48], 60.0)
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
                let [x, y] = [pixel % 64, pixel / 64].map(|at| at as f64 + 0.5);
                let ray = [(x - 32.0) / 60.0, (y - 24.0) / 60.0, 1.0];
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
    fn front_faces_do_not_depend_on_the_number_of_threads() {
        let (mesh, camera) = (sphere(1.0, 4), ahead([0.0, 0.0, -3.0]));
        same_on_any_threads(|| FrontFaces::of(&mesh, &camera, NEAR));
    }

    #[test]
    fn a_picture_is_the_right_way_up_and_ends_with_the_mesh() {
        let mesh = mesh_of(
            &[[-1.0, -1.0, 2.0], [1.0, -1.0, 2.0], [1.0, 1.0, 2.0], [-1.0, 1.0, 2.0]],
            &[[0, 1, 2], [0, 2, 3]],
        );
        let places_px = vec![[0.0, 0.0], [8.0, 0.0], [8.0, 8.0], [0.0, 8.0]];
        let faces = mesh.faces.clone();
        let atlas = Atlas { width: 8, height: 8, places_px, faces, charts: 1 };
        let mut picture = Picture::plain(8, 8, [255, 0, 0]);
        for (at, texel) in picture.texels.iter_mut().enumerate() {
            let quarters = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [255; 3]];
            *texel = quarters[at % 8 / 4 + 2 * (at / 32)];
        }
        let paint = Paint::Texture { atlas: &atlas, picture: &picture };
        let drawn = draw(&mesh, paint, &ahead([0.0; 3]), NEAR);
        for (x, y, color) in [
            (16, 8, [1.0, 0.0, 0.0]),
            (48, 8, [0.0, 1.0, 0.0]),
            (16, 40, [0.0, 0.0, 1.0]),
            (48, 40, [1.0; 3]),
            (0, 24, [0.0; 3]),
        ] {
            assert_eq!(drawn.colors[64 * y + x], color, "{x} {y}");
        }
        // 60 px a side, from 2 to 62.
        let row = |x: usize| drawn.covers[64 * 24 + x];
        assert_eq!([row(1), row(2), row(61), row(62)], [0.0, 1.0, 1.0, 0.0]);
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
            let Some(face) = front.face(pixel).filter(|_| drawn.covers[pixel] == 1.0) else {
                continue;
            };
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
}
