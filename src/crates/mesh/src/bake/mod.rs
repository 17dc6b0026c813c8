//! The texture of a mesh, of views that see it.
//!
//! [`Bake`] is shown all views once, or once more for each round in which it leaves out colours that differ
//! from the others. Each texel looks into each view, so that fine textures have no holes; sums are whole
//! numbers, so that no order changes them.

mod sight;
#[cfg(test)]
mod tests;
mod texels;

use rayon::prelude::*;
use serde::Serialize;
use sight::{AgreedColor, SomeColors};
use sight::{Sighting, byte};
use texels::fill;
use texels::{FacePlane, FaceTexels, Piece, corners_cam, mixed};

use crate::atlas::Atlas;
use crate::camera::Camera;
use crate::file::Picture;
use crate::mesh::Mesh;
use crate::place::centroid;
use crate::vector::{cross, dot, length, sub};

// From views to a texture.

/// How a texture was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BakeFigures {
    /// Views that were looked into.
    pub views: usize,
    /// Texels of faces.
    pub texels: usize,
    /// Texels that some view sees.
    pub seen_texels: usize,
    /// Faces with texels of which no view sees any.
    pub unseen_faces: usize,
    /// Colours that differed from those of most views and were left out of the last round.
    pub left_out: u64,
}

/// A finished texture.
#[derive(Clone, Debug, PartialEq)]
pub struct Baked {
    /// The texture.
    pub picture: Picture,
    /// How it was made.
    pub figures: BakeFigures,
}

/// A texture in the making.
pub struct Bake<'a> {
    mesh: &'a Mesh,
    atlas: &'a Atlas,
    texels: FaceTexels,
    states: States,
    views: usize,
    left_out: u64,
}

enum States {
    /// All colours count.
    Plain(Vec<TexelSums>),
    /// Colours are left out.
    Judged(Vec<JudgedTexel>),
}

impl<'a> Bake<'a> {
    /// Bytes of memory a texel of a face where all colours count.
    pub const PLAIN_BYTES: usize = size_of::<TexelSums>() + size_of::<[u16; 2]>();

    /// The same where colours are left out.
    pub const JUDGED_BYTES: usize = size_of::<JudgedTexel>() + size_of::<[u16; 2]>();

    /// Of a checked mesh and its atlas. With `leaves_out`, rounds after the first leave out colours that
    /// are farther from the median of the round before than three median distances.
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

    /// Begins a further round: means so far are forgotten, and all views have to be shown again.
    pub fn next_round(&mut self) {
        (self.views, self.left_out) = (0, 0);
        match &mut self.states {
            States::Plain(states) => states.par_iter_mut().for_each(TexelState::next_round),
            States::Judged(states) => states.par_iter_mut().for_each(TexelState::next_round),
        }
    }

    /// Adds what a view shows; one whose colours do not fill its pixels shows nothing.
    pub fn add(&mut self, view: &ColorView<'_>) {
        if !view.is_whole() {
            return;
        }
        self.views += 1;
        let looking = Looking {
            mesh: self.mesh,
            atlas: self.atlas,
            texels: &self.texels,
            sighting: Sighting::new(self.mesh, *view),
        };
        self.left_out += match &mut self.states {
            States::Plain(states) => looking.take_all(states),
            States::Judged(states) => looking.take_all(states),
        };
    }

    /// The means. What no view sees of a face gets the mean of what they see of it; faces that none sees
    /// get the colours of their vertices. Texels beside faces get those of the nearest up to 8 texels away.
    pub fn finish(self) -> Baked {
        let Self { mesh, atlas, texels, states, views, left_out } = self;
        let sums: Vec<TexelSums> = match states {
            States::Plain(sums) => sums,
            States::Judged(states) => states.par_iter().map(|state| *state.sums()).collect(),
        };
        let filled = fill(mesh, atlas, &texels, &sums);
        let figures = BakeFigures {
            views,
            texels: sums.len(),
            seen_texels: sums.iter().filter(|sums| sums.weight > 0).count(),
            unseen_faces: filled.unseen_faces,
            left_out,
        };
        Baked { picture: filled.picture, figures }
    }
}

/// A view that is looked into for all texels.
struct Looking<'a> {
    mesh: &'a Mesh,
    atlas: &'a Atlas,
    texels: &'a FaceTexels,
    sighting: Sighting<'a>,
}

impl Looking<'_> {
    /// Gives every texel its colour in the view; how many leave it out.
    fn take_all<S: TexelState>(&self, states: &mut [S]) -> u64 {
        let pieces = self.texels.pieces(states).into_par_iter();
        pieces.map(|piece| self.take_piece(piece)).sum()
    }

    fn take_piece<S: TexelState>(&self, piece: Piece<'_, S>) -> u64 {
        let mut left_out = 0;
        for face in piece.faces {
            let numbers = self.texels.of_face(face);
            if numbers.is_empty() {
                continue;
            }
            let corners = corners_cam(self.mesh, face, &self.sighting.view.camera);
            if !self.sighting.may_see(corners) {
                continue;
            }
            let [a, b, c] = corners;
            let normal = cross(sub(b, a), sub(c, a));
            // Outer sides are textured; from within, slack would take them for what is before them.
            if dot(normal, a) >= 0.0 {
                continue;
            }
            let size = length(normal);
            let plane = FacePlane::new(self.atlas.corners_px(self.atlas.faces[face]));
            for number in numbers {
                let cam = mixed(corners, plane.shares(self.texels.at[number]));
                if let Some(seen) = self.sighting.color(cam) {
                    let cosine = dot(normal, cam).abs() / (size * length(cam));
                    let sure = byte(255.0 * cosine).max(LEAST_WEIGHT);
                    let weight = if seen.is_pure { sure } else { DOUBTFUL };
                    let state = &mut piece.values[number - piece.first];
                    left_out += u64::from(!state.take(number, seen.color, weight));
                }
            }
        }
        left_out
    }
}

// A picture of a mesh, and where it was taken from.

/// A picture of a mesh, and where it was taken from; one value a pixel in rows from the top.
#[derive(Clone, Copy, Debug)]
pub struct ColorView<'a> {
    /// What saw it, and from where.
    pub camera: Camera,
    /// Depth along the axis from which on the camera sees, above 0, scene units.
    pub near: f64,
    /// Colours, sRGB.
    pub colors: &'a [[u8; 3]],
    /// Which pixels count; without it, all.
    pub counts: Option<&'a [bool]>,
}

impl ColorView<'_> {
    /// True if there is a colour for each pixel.
    fn is_whole(&self) -> bool {
        let pixels = self.camera.width * self.camera.height;
        self.colors.len() == pixels && self.counts.is_none_or(|counts| counts.len() == pixels)
    }
}

// How large views show the faces of a mesh, by which a texture's size is chosen.

/// The largest area of each face in any view.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenAreas {
    /// px².
    areas: Vec<f64>,
}

impl SeenAreas {
    /// Of a checked mesh that no view has seen yet.
    pub fn new(mesh: &Mesh) -> Self {
        Self { areas: vec![0.0; mesh.faces.len()] }
    }

    /// Adds a camera, which sees from the depth `near` on. A face counts where its middle is in sight.
    pub fn add(&mut self, mesh: &Mesh, camera: Camera, near: f64) {
        let view = ColorView { camera, near, colors: &[], counts: None };
        let sighting = Sighting::new(mesh, view);
        self.areas.par_iter_mut().enumerate().for_each(|(face, area)| {
            let corners = corners_cam(mesh, face, &camera);
            let is_before = corners.iter().all(|corner| corner[2] >= near);
            if is_before && sighting.shows(centroid(corners)) {
                let [a, b, c] = corners.map(|corner| camera.pixel(corner));
                let doubled = (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]);
                *area = area.max(0.5 * doubled.abs());
            }
        });
    }

    /// The areas of the faces, px².
    pub fn areas_px2(&self) -> &[f64] {
        &self.areas
    }
}

// What is added up for each texel.

/// The weight of a colour that may be that of something else.
const DOUBTFUL: u8 = 1;

/// The least weight of any other.
const LEAST_WEIGHT: u8 = 16;

/// What the views' colours of a texel come to.
trait TexelState: Copy + Default + Send + Sync {
    /// Takes a colour with a weight of 1 to 255, or leaves it out; whether it is taken. `texel` is the texel's
    /// number. One of [`DOUBTFUL`] weight matters where there is no other.
    fn take(&mut self, texel: usize, color: [u8; 3], weight: u8) -> bool;

    /// The sums of the round.
    fn sums(&self) -> &TexelSums;

    /// Begins another round.
    fn next_round(&mut self);
}

/// The weighted sum of a texel's colours and of their weights, in whole numbers, so that no order of the
/// views changes it. 65,000 views do not exceed them.
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
    /// Of the round before.
    agreed: AgreedColor,
    /// Of those that are taken in this round.
    some: SomeColors,
}

impl Default for JudgedTexel {
    fn default() -> Self {
        Self { sums: TexelSums::default(), agreed: AgreedColor::ANY, some: SomeColors::default() }
    }
}

impl TexelState for JudgedTexel {
    #[inline]
    fn take(&mut self, texel: usize, color: [u8; 3], weight: u8) -> bool {
        let is_taken = self.agreed.allows(color);
        if is_taken {
            self.sums.take(texel, color, weight);
            if weight > DOUBTFUL {
                self.some.take(texel, color);
            }
        }
        is_taken
    }

    fn sums(&self) -> &TexelSums {
        &self.sums
    }

    fn next_round(&mut self) {
        *self = Self { agreed: self.some.agreed(), ..Self::default() };
    }
}
