//! From views to a texture.

use rayon::prelude::*;
use serde::Serialize;

use super::fill::fill;
use super::sight::{Sighting, byte};
use super::sums::{DOUBTFUL, JudgedTexel, LEAST_WEIGHT, TexelState, TexelSums};
use super::texels::{FacePlane, FaceTexels, Piece, corners_cam, mixed};
use super::view::ColorView;
use crate::atlas::Atlas;
use crate::file::Picture;
use crate::mesh::Mesh;
use crate::vector::{cross, dot, length, sub};

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
