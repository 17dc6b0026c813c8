//! Which texels each face has, in the order of the faces.

use rayon::prelude::*;

use super::TexelSums;
use super::sight::byte;
use crate::atlas::{Atlas, dilate, for_each_texel, for_each_touched};
use crate::file::Picture;
use crate::mesh::{Mesh, Vec3};
use crate::narrow::{to_f64s, to_u32};
use crate::place::corners;
use crate::vector::{add, scale};

/// Faces that one thread looks at together.
const FACES_A_PIECE: usize = 256;

/// The texels of all faces, one face after the other.
pub(super) struct FaceTexels {
    /// Where each face's begin, and the end.
    starts: Vec<usize>,
    /// Column and row of each.
    pub(super) at: Vec<[u16; 2]>,
}

/// A texel beside the face that it belongs to.
#[derive(Clone, Copy)]
struct TouchedTexel {
    at: [u16; 2],
    face: u32,
}

/// Column and row: pictures have 16,384 texels a side at most.
fn narrow(x: u32, y: u32) -> [u16; 2] {
    [x, y].map(|i| u16::try_from(i).unwrap_or(u16::MAX))
}

/// Some faces next to each other, and values of their texels.
pub(super) struct Piece<'a, T> {
    pub(super) faces: std::ops::Range<usize>,
    /// Number of the first texel.
    pub(super) first: usize,
    pub(super) values: &'a mut [T],
}

impl FaceTexels {
    /// The texels whose centres lie in a face, and those that a face touches and that no face has: filters read
    /// them where a face is thinner than a texel or ends between two.
    pub(super) fn of(atlas: &Atlas) -> Self {
        let inside = Self::with_centres(atlas);
        let touched = inside.touched(atlas);
        if touched.is_empty() { inside } else { inside.and(&touched) }
    }

    fn with_centres(atlas: &Atlas) -> Self {
        let size = [atlas.width, atlas.height];
        let lists = |faces: &[[u32; 3]]| {
            let (mut counts, mut at) = (Vec::with_capacity(faces.len()), Vec::new());
            for &face in faces {
                let before = at.len();
                for_each_texel(atlas.corners_px(face), size, |x, y| at.push(narrow(x, y)));
                counts.push(at.len() - before);
            }
            (counts, at)
        };
        let pieces: Vec<_> = atlas.faces.par_chunks(FACES_A_PIECE).map(lists).collect();
        let mut texels = Self { starts: vec![0], at: Vec::new() };
        texels.at.reserve_exact(pieces.iter().map(|(_, at)| at.len()).sum());
        let mut end = 0;
        for (counts, at) in pieces {
            for count in counts {
                end += count;
                texels.starts.push(end);
            }
            texels.at.extend(at);
        }
        texels
    }

    /// The texels that faces touch and none has the centre of, in the order of the faces; of several faces
    /// the first has it.
    fn touched(&self, atlas: &Atlas) -> Vec<TouchedTexel> {
        let width = atlas.width as usize;
        let mut has_face = vec![false; width * atlas.height as usize];
        let index = |[x, y]: [u16; 2]| usize::from(y) * width + usize::from(x);
        self.at.iter().for_each(|&at| has_face[index(at)] = true);
        let size = [atlas.width, atlas.height];
        let of_face = |face: usize| {
            let mut found = Vec::new();
            for_each_touched(atlas.corners_px(atlas.faces[face]), size, |x, y| {
                let at = narrow(x, y);
                if !has_face[index(at)] {
                    found.push(TouchedTexel { at, face: to_u32(face) });
                }
            });
            found
        };
        let faces = (0..atlas.faces.len()).into_par_iter();
        let mut touched: Vec<TouchedTexel> = faces.flat_map_iter(of_face).collect();
        touched.par_sort_unstable_by_key(|texel| (index(texel.at), texel.face));
        touched.dedup_by_key(|texel| texel.at);
        touched.par_sort_unstable_by_key(|texel| (texel.face, index(texel.at)));
        touched
    }

    /// These texels and further ones, after the own ones of each face.
    fn and(&self, touched: &[TouchedTexel]) -> Self {
        let mut all = Self {
            starts: Vec::with_capacity(self.starts.len()),
            at: Vec::with_capacity(self.at.len() + touched.len()),
        };
        all.starts.push(0);
        let mut touched = touched.iter().peekable();
        for face in 0..self.starts.len() - 1 {
            all.at.extend_from_slice(&self.at[self.of_face(face)]);
            while let Some(texel) = touched.next_if(|texel| texel.face as usize == face) {
                all.at.push(texel.at);
            }
            all.starts.push(all.at.len());
        }
        all
    }

    /// Numbers of a face's texels.
    pub(super) fn of_face(&self, face: usize) -> std::ops::Range<usize> {
        self.starts[face]..self.starts[face + 1]
    }

    /// Parts values of all texels among threads.
    pub(super) fn pieces<'a, T>(&self, mut values: &'a mut [T]) -> Vec<Piece<'a, T>> {
        let faces = self.starts.len() - 1;
        let mut pieces = Vec::with_capacity(faces.div_ceil(FACES_A_PIECE));
        for start in (0..faces).step_by(FACES_A_PIECE) {
            let end = (start + FACES_A_PIECE).min(faces);
            let first = self.starts[start];
            let (own, rest) = values.split_at_mut(self.starts[end] - first);
            pieces.push(Piece { faces: start..end, first, values: own });
            values = rest;
        }
        pieces
    }
}

/// From places on the picture to shares of a face's corners.
pub(super) struct FacePlane {
    origin: [f64; 2],
    /// Rows give the shares of the second and of the third corner.
    shares: [[f64; 2]; 2],
}

impl FacePlane {
    pub(super) fn new([a, b, c]: [[f64; 2]; 3]) -> Self {
        let (u, v) = ([b[0] - a[0], b[1] - a[1]], [c[0] - a[0], c[1] - a[1]]);
        let area = u[0] * v[1] - u[1] * v[0];
        let inverse = if area == 0.0 { 0.0 } else { 1.0 / area };
        Self {
            origin: a,
            shares: [[v[1] * inverse, -v[0] * inverse], [-u[1] * inverse, u[0] * inverse]],
        }
    }

    /// The shares of the corners in the centre of a texel; of one beside the face, in a place of the face
    /// near it.
    #[inline]
    pub(super) fn shares(&self, texel: [u16; 2]) -> [f64; 3] {
        let at: [f64; 2] = std::array::from_fn(|i| f64::from(texel[i]) + 0.5 - self.origin[i]);
        let [b, c] = self.shares.map(|row| row[0] * at[0] + row[1] * at[1]);
        let shares = [1.0 - b - c, b, c];
        if shares.iter().all(|&share| share >= 0.0) {
            return shares;
        }
        let within = shares.map(|share| share.max(0.0));
        let sum: f64 = within.iter().sum();
        if sum.is_finite() { within.map(|share| share / sum) } else { [1.0 / 3.0; 3] }
    }
}

/// A place by the shares of three corners.
#[inline]
pub(super) fn mixed(corners: [Vec3; 3], shares: [f64; 3]) -> Vec3 {
    let [a, b, c] = corners;
    add(add(scale(a, shares[0]), scale(b, shares[1])), scale(c, shares[2]))
}

/// The corners of a face in camera axes.
pub(super) fn corners_cam(mesh: &Mesh, face: usize, camera: &crate::Camera) -> [Vec3; 3] {
    corners(mesh, mesh.faces[face]).map(|corner| camera.cam(corner))
}

// Colours of texels that no view sees.

/// Texels around faces that get a colour, for filters that read across a seam.
const DILATION_PX: u8 = 8;

/// A picture without holes.
pub(super) struct FilledPicture {
    pub(super) picture: Picture,
    /// Faces with texels of which no view sees any.
    pub(super) unseen_faces: usize,
}

pub(super) fn fill(
    mesh: &Mesh,
    atlas: &Atlas,
    texels: &FaceTexels,
    sums: &[TexelSums],
) -> FilledPicture {
    let mean_of_all = mean(sums);
    let unpainted = mean_of_all.unwrap_or([128; 3]);
    let color_faces = |faces: std::ops::Range<usize>| {
        let (mut colors, mut unseen) = (Vec::new(), 0);
        for face in faces {
            let numbers = texels.of_face(face);
            let own = &sums[numbers.clone()];
            let mean_of_face = mean(own);
            unseen += usize::from(mean_of_face.is_none() && !own.is_empty());
            let plane = FacePlane::new(atlas.corners_px(atlas.faces[face]));
            for (number, sums) in numbers.zip(own) {
                let color = match (mean(std::slice::from_ref(sums)), mean_of_face) {
                    (Some(color), _) | (None, Some(color)) => color,
                    _ if mesh.colors.is_empty() => unpainted,
                    _ => {
                        let corners = mesh.faces[face]
                            .map(|v| scale(to_f64s(mesh.colors[v as usize]), 255.0));
                        let color: Vec3 = mixed(corners, plane.shares(texels.at[number]));
                        color.map(byte)
                    }
                };
                colors.push(color);
            }
        }
        (colors, unseen)
    };
    const FACES_A_PIECE: usize = 1024;
    let faces = atlas.faces.len();
    let pieces: Vec<_> = (0..faces.div_ceil(FACES_A_PIECE))
        .into_par_iter()
        .map(|piece| piece * FACES_A_PIECE..faces.min((piece + 1) * FACES_A_PIECE))
        .map(color_faces)
        .collect();
    let mut picture = Picture::plain(atlas.width, atlas.height, unpainted);
    let mut is_set = vec![false; picture.texels.len()];
    let mut unseen_faces = 0;
    let mut at = texels.at.iter();
    for (colors, unseen) in pieces {
        unseen_faces += unseen;
        for (color, &[x, y]) in colors.into_iter().zip(at.by_ref()) {
            let texel = usize::from(y) * atlas.width as usize + usize::from(x);
            picture.texels[texel] = color;
            is_set[texel] = true;
        }
    }
    dilate(&mut picture.texels, &is_set, atlas.width as usize, DILATION_PX);
    FilledPicture { picture, unseen_faces }
}

/// The weighted mean; none where nothing was seen.
fn mean(sums: &[TexelSums]) -> Option<[u8; 3]> {
    let mut color = [0_u64; 3];
    let mut weight = 0_u64;
    for sums in sums {
        color = std::array::from_fn(|channel| color[channel] + u64::from(sums.color[channel]));
        weight += u64::from(sums.weight);
    }
    (weight > 0).then(|| color.map(|sum| ((sum + weight / 2) / weight).min(255) as u8))
}
