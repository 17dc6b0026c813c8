//! Textures of meshes, averaged over views.
//!
//! [`Bake`] takes all views once, or once for each round in which it leaves out colours that differ from the others.
//! Each texel samples each view, so that fine textures have no holes. Sums are integers, so that they do not depend on
//! the order of the views.

mod texels;

use rayon::prelude::*;
use serde::Serialize;
use texels::{
    AgreedColor, ColorSamples, FacePlane, FaceTexels, ViewSampler, byte, corners_cam, fill, mixed,
};

use crate::atlas::Atlas;
use crate::file::Picture;
use crate::mesh::{Camera, Mesh};
use crate::place::{centroid, cross, dot, length, sub};

/// Figures of a baked texture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BakeFigures {
    /// Views with colours.
    pub views: usize,
    /// Texels of faces.
    pub texels: usize,
    /// Texels that some view sees.
    pub seen_texels: usize,
    /// Faces that have texels but none that a view sees.
    pub unseen_faces: usize,
    /// Colours that differed from those of most views and were left out of the last round.
    pub left_out: u64,
}

/// A finished texture.
#[derive(Clone, Debug, PartialEq)]
pub struct Baked {
    /// The texture.
    pub picture: Picture,
    /// Figures of the texture.
    pub figures: BakeFigures,
}

/// A texture that views are added to.
pub struct Bake<'a> {
    mesh: &'a Mesh,
    atlas: &'a Atlas,
    texels: FaceTexels,
    states: States,
    views: usize,
    left_out: u64,
}

enum States {
    Plain(Vec<TexelSums>),
    Judged(Vec<JudgedTexel>),
}

impl<'a> Bake<'a> {
    /// Bytes of memory per texel of a face if all colours count.
    pub const PLAIN_BYTES: usize = size_of::<TexelSums>() + size_of::<[u16; 2]>();

    /// Bytes of memory per texel of a face if colours are left out.
    pub const JUDGED_BYTES: usize = size_of::<JudgedTexel>() + size_of::<[u16; 2]>();

    /// Starts a texture of a checked mesh and its atlas. With `leaves_out`, rounds after the first leave out colours
    /// farther from the previous round's median than three median distances.
    pub fn new(mesh: &'a Mesh, atlas: &'a Atlas, leaves_out: bool) -> Self {
        let texels = FaceTexels::of(atlas);
        let count = texels.at.len();
        let states = if leaves_out {
            States::Judged(vec![JudgedTexel::default(); count])
        } else {
            States::Plain(vec![TexelSums::default(); count])
        };
        Self { mesh, atlas, texels, states, views: 0, left_out: 0 }
    }

    /// Starts another round: forgets the means; all views have to be added again.
    pub fn next_round(&mut self) {
        (self.views, self.left_out) = (0, 0);
        match &mut self.states {
            States::Plain(states) => states.par_iter_mut().for_each(TexelState::next_round),
            States::Judged(states) => states.par_iter_mut().for_each(TexelState::next_round),
        }
    }

    /// Adds a view. Ignores a view whose colours do not fill its pixels.
    pub fn add(&mut self, view: &ColorView<'_>) {
        if !view.is_whole() {
            return;
        }
        self.views += 1;
        let Self { mesh, atlas, texels, states, .. } = self;
        let sampler = ViewSampler::new(mesh, *view);
        self.left_out += match states {
            States::Plain(states) => take_view(mesh, atlas, texels, &sampler, states),
            States::Judged(states) => take_view(mesh, atlas, texels, &sampler, states),
        };
    }

    /// Returns the means. Texels that no view sees get the mean of their face; faces that no view sees get the colours
    /// of their vertices. Texels beside faces get the nearest colour, up to 8 texels away.
    pub fn finish(self) -> Baked {
        let Self { mesh, atlas, texels, states, views, left_out } = self;
        let sums: Vec<TexelSums> = match states {
            States::Plain(sums) => sums,
            States::Judged(states) => states.par_iter().map(|state| *state.sums()).collect(),
        };
        let (picture, unseen_faces) = fill(mesh, atlas, &texels, &sums);
        let figures = BakeFigures {
            views,
            texels: sums.len(),
            seen_texels: sums.iter().filter(|sums| sums.weight > 0).count(),
            unseen_faces,
            left_out,
        };
        Baked { picture, figures }
    }
}

/// Gives every texel its colour in a view, and returns the number of texels that leave it out.
fn take_view<S: TexelState>(
    mesh: &Mesh,
    atlas: &Atlas,
    texels: &FaceTexels,
    sampler: &ViewSampler<'_>,
    states: &mut [S],
) -> u64 {
    let take_piece = |(faces, first, states): (std::ops::Range<usize>, usize, &mut [S])| {
        let mut left_out = 0;
        for face in faces {
            let numbers = texels.of_face(face);
            if numbers.is_empty() {
                continue;
            }
            let corners = corners_cam(mesh, face, &sampler.view.camera);
            if !sampler.may_see(corners) {
                continue;
            }
            let [a, b, c] = corners;
            let normal = cross(sub(b, a), sub(c, a));
            // Only outer sides are textured: the slack would give an inner side the colour of a nearer surface.
            if dot(normal, a) >= 0.0 {
                continue;
            }
            let size = length(normal);
            let plane = FacePlane::new(atlas.corners_px(atlas.faces[face]));
            for number in numbers {
                let cam = mixed(corners, plane.shares(texels.at[number]));
                if let Some((color, is_pure)) = sampler.color(cam) {
                    let cosine = dot(normal, cam).abs() / (size * length(cam));
                    let sure = byte(255.0 * cosine).max(MIN_WEIGHT);
                    let weight = if is_pure { sure } else { DOUBTFUL };
                    left_out += u64::from(!states[number - first].take(number, color, weight));
                }
            }
        }
        left_out
    };
    texels.pieces(states).into_par_iter().map(take_piece).sum()
}
/// A picture of a mesh with its camera; one value a pixel in rows from the top.
#[derive(Clone, Copy, Debug)]
pub struct ColorView<'a> {
    /// Camera of the picture.
    pub camera: Camera,
    /// Depth along the axis from which on the camera sees, above 0, scene units.
    pub near: f64,
    /// Colours, sRGB.
    pub colors: &'a [[u8; 3]],
    /// True for pixels that count. `None` if all count.
    pub counts: Option<&'a [bool]>,
}

impl ColorView<'_> {
    fn is_whole(&self) -> bool {
        let pixels = self.camera.width * self.camera.height;
        self.colors.len() == pixels && self.counts.is_none_or(|counts| counts.len() == pixels)
    }
}

/// The largest area of each face in any view.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenAreas {
    areas: Vec<f64>,
}

impl SeenAreas {
    /// Starts with a checked mesh that no view has seen yet.
    pub fn new(mesh: &Mesh) -> Self {
        Self { areas: vec![0.0; mesh.faces.len()] }
    }

    /// Adds a camera, which sees from the depth `near` on. A face counts if its middle is visible.
    pub fn add(&mut self, mesh: &Mesh, camera: Camera, near: f64) {
        let view = ColorView { camera, near, colors: &[], counts: None };
        let sampler = ViewSampler::new(mesh, view);
        self.areas.par_iter_mut().enumerate().for_each(|(face, area)| {
            let corners = corners_cam(mesh, face, &camera);
            let is_before = corners.iter().all(|corner| corner[2] >= near);
            if is_before && sampler.shows(centroid(corners)) {
                let [a, b, c] = corners.map(|corner| camera.pixel(corner));
                let doubled = (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]);
                *area = area.max(0.5 * doubled.abs());
            }
        });
    }

    /// Returns the areas of the faces, px².
    pub fn areas_px2(&self) -> &[f64] {
        &self.areas
    }
}

/// Weight of a colour that may belong to another surface.
const DOUBTFUL: u8 = 1;

/// Least weight of any other colour.
const MIN_WEIGHT: u8 = 16;

/// Colours of a texel in all views.
trait TexelState: Copy + Default + Send + Sync {
    /// Takes a colour with a weight of 1 to 255. Returns false if the colour is left out. `texel` is the texel's
    /// index. A colour of [`DOUBTFUL`] weight matters only without another.
    fn take(&mut self, texel: usize, color: [u8; 3], weight: u8) -> bool;

    fn sums(&self) -> &TexelSums;

    fn next_round(&mut self);
}

/// The weighted sum of a texel's colours and the sum of their weights. Integers, so that the order of the views does
/// not matter. 65,000 views fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TexelSums {
    color: [u32; 3],
    weight: u32,
}

impl TexelState for TexelSums {
    #[inline]
    fn take(&mut self, _texel: usize, color: [u8; 3], weight: u8) -> bool {
        for (sum, channel) in self.color.iter_mut().zip(color) {
            *sum = sum.saturating_add(u32::from(channel) * u32::from(weight));
        }
        self.weight = self.weight.saturating_add(u32::from(weight));
        true
    }

    fn sums(&self) -> &TexelSums {
        self
    }

    fn next_round(&mut self) {
        *self = Self::default();
    }
}

/// Sums from which colours that differ from most are left out.
#[derive(Clone, Copy, Debug)]
struct JudgedTexel {
    sums: TexelSums,
    /// Agreed colour of the previous round.
    agreed: AgreedColor,
    /// Sample of the colours that this round takes.
    samples: ColorSamples,
}

impl Default for JudgedTexel {
    fn default() -> Self {
        Self {
            sums: TexelSums::default(),
            agreed: AgreedColor::ANY,
            samples: ColorSamples::default(),
        }
    }
}

impl TexelState for JudgedTexel {
    #[inline]
    fn take(&mut self, texel: usize, color: [u8; 3], weight: u8) -> bool {
        let is_taken = self.agreed.allows(color);
        if is_taken {
            self.sums.take(texel, color, weight);
            if weight > DOUBTFUL {
                self.samples.take(texel, color);
            }
        }
        is_taken
    }

    fn sums(&self) -> &TexelSums {
        &self.sums
    }

    fn next_round(&mut self) {
        *self = Self { agreed: self.samples.agreed(), ..Self::default() };
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
mod tests {
    use super::*;
    use crate::atlas::{AtlasOptions, Layout, make_atlas};
    use crate::draw::{Paint, draw};
    use crate::known_meshes::{self, cube, joined, mesh_of, moved, on_threads, sphere};
    use crate::mesh::Vec3;
    use crate::place::{normalize, scale};

    const NEAR: f64 = 0.01;
    const SIDE: usize = 96;

    fn looking(eye: Vec3) -> Camera {
        known_meshes::looking(eye, [0.0; 3], [SIDE; 2], 1.2 * SIDE as f64)
    }

    /// Returns a plate of two triangles at the depth `z`.
    fn plate([x, y]: [f32; 2], z: f32) -> Mesh {
        mesh_of(&[[-x, -y, z], [x, -y, z], [x, y, z], [-x, y, z]], &[[0, 2, 1], [0, 3, 2]])
    }

    fn around() -> Vec<Camera> {
        let steps = [-1.0, 0.0, 1.0];
        let all =
            steps.iter().flat_map(|x| steps.iter().flat_map(move |y| steps.map(|z| [*x, *y, z])));
        all.filter(|&eye| eye != [0.0; 3]).map(|eye| looking(scale(normalize(eye), 3.0))).collect()
    }

    /// Draws a coloured mesh as a camera sees it.
    fn photograph(mesh: &Mesh, camera: &Camera) -> Vec<[u8; 3]> {
        let drawn = draw(mesh, Paint::Vertices, camera, NEAR);
        drawn.colors.iter().map(|color| color.map(|c| (255.0 * c).round() as u8)).collect()
    }

    fn view<'a>(camera: &Camera, colors: &'a [[u8; 3]]) -> ColorView<'a> {
        ColorView { camera: *camera, near: NEAR, colors, counts: None }
    }

    fn atlas_of(mesh: &Mesh, layout: Layout) -> Atlas {
        make_atlas(mesh, &AtlasOptions { layout, side_px: 256, padding_px: 2 }).unwrap().atlas
    }

    fn colored(mut mesh: Mesh) -> Mesh {
        mesh.colors = mesh.vertices.iter().map(|v| v.map(|x| 0.5 + 0.4 * x)).collect();
        mesh
    }

    /// Returns the decibels between a drawn texture and drawn vertices, on the mesh.
    fn agreement(mesh: &Mesh, atlas: &Atlas, baked: &Baked, camera: &Camera) -> f64 {
        let paint = Paint::Texture { atlas, picture: &baked.picture };
        let textured = draw(mesh, paint, camera, NEAR);
        let truth = draw(mesh, Paint::Vertices, camera, NEAR);
        let (mut sum, mut count) = (0.0, 0.0);
        for pixel in (0..SIDE * SIDE).filter(|&pixel| truth.covers[pixel] == 1.0) {
            for channel in 0..3 {
                let error = textured.colors[pixel][channel] - truth.colors[pixel][channel];
                sum += f64::from(error).powi(2);
                count += 1.0;
            }
        }
        assert!(count > 1000.0);
        -10.0 * (sum / count).log10()
    }

    #[test]
    fn a_texture_looks_like_its_views() {
        let mesh = colored(sphere(1.0, 3));
        for layout in [Layout::Charts, Layout::Boxes, Layout::Squares { side_px: 7 }] {
            let atlas = atlas_of(&mesh, layout);
            let mut bake = Bake::new(&mesh, &atlas, false);
            for camera in around() {
                bake.add(&view(&camera, &photograph(&mesh, &camera)));
            }
            let baked = bake.finish();
            assert_eq!((baked.figures.views, baked.figures.unseen_faces), (26, 0));
            assert_eq!(baked.figures.seen_texels, baked.figures.texels);
            let found = agreement(&mesh, &atlas, &baked, &looking([1.5, 2.0, -1.0]));
            assert!(found > 36.0, "{layout:?}: {found}");
        }
    }

    #[test]
    fn a_constant_stays_constant_to_the_seams() {
        let mut mesh = cube();
        mesh.colors = vec![[77.0 / 255.0, 200.0 / 255.0, 3.0 / 255.0]; mesh.vertices.len()];
        let mesh = moved(mesh, [-0.5; 3]);
        for leaves_out in [false, true] {
            for layout in [Layout::Charts, Layout::Boxes, Layout::Squares { side_px: 10 }] {
                let atlas = atlas_of(&mesh, layout);
                let mut bake = Bake::new(&mesh, &atlas, leaves_out);
                let plain = vec![[77, 200, 3]; SIDE * SIDE];
                for round in 0..2 {
                    // One side is never seen.
                    let cameras = around().into_iter().filter(|camera| camera.centre()[2] < 0.5);
                    cameras.for_each(|camera| bake.add(&view(&camera, &plain)));
                    if round == 0 {
                        bake.next_round();
                    }
                }
                let baked = bake.finish();
                assert!(baked.picture.texels.iter().all(|&texel| texel == [77, 200, 3]));
                assert_eq!((baked.figures.unseen_faces, baked.figures.left_out), (2, 0));
            }
        }
    }

    #[test]
    fn hidden_and_masked_pixels_give_no_colour() {
        // A white plate before a larger red one, seen from the front.
        let mut mesh = joined(plate([1.0; 2], 0.0), &plate([0.4; 2], -0.5));
        mesh.colors = [[1.0, 0.0, 0.0]; 4].into_iter().chain([[1.0; 3]; 4]).collect();
        let camera = looking([0.0, 0.0, -3.0]);
        let seen = photograph(&mesh, &camera);
        mesh.colors.clear();
        let atlas = atlas_of(&mesh, Layout::Boxes);
        let mut bake = Bake::new(&mesh, &atlas, false);
        // The left half does not count: all black.
        let counts: Vec<bool> = (0..SIDE * SIDE).map(|pixel| pixel % SIDE >= SIDE / 2).collect();
        let blackened =
            |(pixel, &color): (usize, &[u8; 3])| if counts[pixel] { color } else { [0; 3] };
        let seen: Vec<[u8; 3]> = seen.iter().enumerate().map(blackened).collect();
        bake.add(&ColorView { counts: Some(&counts), ..view(&camera, &seen) });
        let baked = bake.finish();
        let share = baked.figures.seen_texels as f64 / baked.figures.texels as f64;
        assert!(share < 0.5, "{share}");
        let colors: Vec<[u8; 3]> = baked.picture.texels;
        assert!(!colors.contains(&[0, 0, 0]));
        let red = colors.iter().filter(|&&color| color == [255, 0, 0]).count();
        let white = colors.iter().filter(|&&color| color == [255; 3]).count();
        assert!(red > 1000 && white > 100, "{red} {white}");
    }

    #[test]
    fn colours_of_few_photographs_are_left_out() {
        let mesh = colored(sphere(1.0, 3));
        let atlas = atlas_of(&mesh, Layout::Boxes);
        let found = [false, true].map(|leaves_out| {
            let mut bake = Bake::new(&mesh, &atlas, leaves_out);
            for round in 0..3 {
                for (number, camera) in around().iter().enumerate() {
                    let mut colors = photograph(&mesh, camera);
                    // A person covers part of every fifth photograph.
                    if number % 5 == 0 {
                        colors[SIDE * SIDE / 3..SIDE * SIDE / 2].fill([0; 3]);
                    }
                    bake.add(&view(camera, &colors));
                }
                if round < 2 {
                    bake.next_round();
                }
            }
            let baked = bake.finish();
            assert_eq!(baked.figures.left_out > 0, leaves_out);
            agreement(&mesh, &atlas, &baked, &looking([1.5, 2.0, -1.0]))
        });
        assert!(found[1] > 36.0 && found[1] > found[0] + 6.0, "{found:?}");
    }

    #[test]
    fn threads_and_the_order_of_views_change_nothing() {
        let mesh = colored(sphere(1.0, 2));
        let atlas = atlas_of(&mesh, Layout::Boxes);
        let cameras = around();
        let shots: Vec<_> = cameras.iter().map(|camera| photograph(&mesh, camera)).collect();
        let on = |threads: usize, step: usize| {
            on_threads(threads, || {
                let mut bake = Bake::new(&mesh, &atlas, false);
                for number in 0..cameras.len() {
                    let number = number * step % cameras.len();
                    bake.add(&view(&cameras[number], &shots[number]));
                }
                bake.finish()
            })
        };
        assert_eq!(on(1, 1), on(3, 7));
    }

    #[test]
    fn areas_count_visible_faces() {
        let mesh = moved(cube(), [-0.5; 3]);
        let mut areas = SeenAreas::new(&mesh);
        areas.add(&mesh, looking([0.0, 0.0, -3.0]), NEAR);
        // One side, 2.5 away, focal length 1.2 times the side of the picture.
        let side_px = 1.2 * SIDE as f64 / 2.5;
        let sum: f64 = areas.areas_px2().iter().sum();
        assert!((sum / side_px.powi(2) - 1.0).abs() < 1e-9, "{sum}");
        assert_eq!(areas.areas_px2().iter().filter(|&&area| area > 0.0).count(), 2);
        // A view whose colours do not fit shows nothing.
        let atlas = atlas_of(&mesh, Layout::Boxes);
        let mut bake = Bake::new(&mesh, &atlas, false);
        bake.add(&view(&looking([0.0, 0.0, -3.0]), &[[9; 3]; 5]));
        assert_eq!(bake.finish().figures.views, 0);
    }

    /// Returns the largest difference between a channel of the texture and of the vertices' colours at places of some
    /// faces, in 1/255.
    fn worst_at(mesh: &Mesh, atlas: &Atlas, baked: &Baked, faces: std::ops::Range<usize>) -> f64 {
        let mut worst = 0.0_f64;
        for face in faces {
            let corners_px = atlas.corners_px(atlas.faces[face]);
            for shares in [[0.4, 0.3, 0.3], [0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]] {
                let at: [usize; 2] = std::array::from_fn(|axis| {
                    (0..3).map(|i| shares[i] * corners_px[i][axis]).sum::<f64>() as usize
                });
                let found = baked.picture.texels[at[1] * atlas.width as usize + at[0]];
                for (channel, found) in found.into_iter().enumerate() {
                    let own = mesh.faces[face].map(|v| f64::from(mesh.colors[v as usize][channel]));
                    let own: f64 = (0..3).map(|i| shares[i] * own[i]).sum();
                    worst = worst.max((255.0 * own - f64::from(found)).abs());
                }
            }
        }
        worst
    }

    #[test]
    fn faces_thinner_than_a_texel_have_colours_of_their_own() {
        // A dark plate, and bright needles of a twentieth of a texel.
        let mut mesh = mesh_of(
            &[[0.0; 3], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 1.0, 0.0]],
            &[[0, 1, 2], [0, 2, 3]],
        );
        mesh.colors = vec![[0.1; 3]; 4];
        for i in 0..30_u32 {
            let (first, x) = (4 + 3 * i, 1.1 + 0.02 * i as f32);
            mesh.vertices.extend([[x, 0.0, 0.0], [x + 2e-4, 0.0, 0.0], [x, 0.3, 0.1]]);
            mesh.colors.extend([[0.9; 3]; 3]);
            mesh.faces.push([first, first + 1, first + 2]);
        }
        for layout in [Layout::Charts, Layout::Boxes] {
            let atlas = atlas_of(&mesh, layout);
            let baked = Bake::new(&mesh, &atlas, false).finish();
            let worst = worst_at(&mesh, &atlas, &baked, 0..mesh.faces.len());
            assert!(worst < 2.0, "{layout:?}: {worst}");
        }
    }

    #[test]
    fn edges_of_a_nearer_surface_do_not_darken_a_face() {
        // A black bar before a white plate, seen from five places: pixels at its edges are grey.
        let mut mesh = joined(plate([1.0; 2], 0.0), &plate([0.1, 1.2], -1.0));
        mesh.colors = [[1.0; 3]; 4].into_iter().chain([[0.0; 3]; 4]).collect();
        let atlas = atlas_of(&mesh, Layout::Charts);
        let mut bake = Bake::new(&mesh, &atlas, false);
        for x in [-0.8, -0.4, 0.0, 0.4, 0.8] {
            let camera = looking([x, 0.0, -3.0]);
            bake.add(&view(&camera, &photograph(&mesh, &camera)));
        }
        let baked = bake.finish();
        let faces = crate::atlas::texel_faces(&atlas);
        let of_plate: Vec<[u32; 2]> = (0..atlas.height)
            .flat_map(|y| (0..atlas.width).map(move |x| [x, y]))
            .filter(|[x, y]| faces[(y * atlas.width + x) as usize] < 2)
            .collect();
        let [low, high] = [0, 1].map(|end| {
            [0, 1].map(|axis| {
                let along = of_plate.iter().map(|at| at[axis]);
                if end == 0 { along.min() } else { along.max() }.unwrap()
            })
        });
        // The plate's own edges are grey in all views.
        let is_inner = |at: &&[u32; 2]| (0..2).all(|i| at[i] > low[i] + 8 && at[i] + 8 < high[i]);
        let inner: Vec<&[u32; 2]> = of_plate.iter().filter(is_inner).collect();
        let darkest = inner
            .iter()
            .map(|[x, y]| baked.picture.texels[(y * atlas.width + x) as usize][0])
            .min();
        assert!(inner.len() > 2000 && darkest >= Some(252), "{} {darkest:?}", inner.len());
    }

    /// Prints the figures of a million triangles: `cargo test --release -p splat-mesh -- --ignored a_million_faces
    /// --nocapture`.
    #[test]
    #[ignore = "takes a minute"]
    fn a_million_faces_are_baked() {
        let mesh = colored(known_meshes::torus([1.0, 0.4], [1118, 447], |_, _| 1.0));
        let options = AtlasOptions { layout: Layout::Boxes, side_px: 4096, padding_px: 2 };
        let atlas = make_atlas(&mesh, &options).unwrap().atlas;
        let colors = vec![[90; 3]; 1600 * 1067];
        let cameras = around().into_iter().map(|camera| Camera {
            width: 1600,
            height: 1067,
            focal_px: [1300.0; 2],
            centre_px: [800.0, 533.5],
            ..camera
        });
        let started = std::time::Instant::now();
        let mut areas = SeenAreas::new(&mesh);
        cameras.clone().for_each(|camera| areas.add(&mesh, camera, NEAR));
        let seconds = started.elapsed().as_secs_f64();
        println!("areas: {:.3} s a view", seconds / 26.0);
        for leaves_out in [false, true] {
            let started = std::time::Instant::now();
            let mut bake = Bake::new(&mesh, &atlas, leaves_out);
            let begun = started.elapsed().as_secs_f64();
            cameras.clone().for_each(|camera| bake.add(&view(&camera, &colors)));
            let added = started.elapsed().as_secs_f64();
            let figures = bake.finish().figures;
            let end = started.elapsed().as_secs_f64() - added;
            let a_view = (added - begun) / 26.0;
            println!("begin {begun:.2} s, {a_view:.3} s a view, end {end:.2} s: {figures:?}");
        }
    }
}
