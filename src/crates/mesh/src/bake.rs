//! Textures of meshes, averaged over views.
//!
//! [`Bake`] takes all views once, or once for each round in which it leaves out colours that differ from the others.
//! Each texel samples each view, so that fine textures have no holes. Sums are integers, so that they do not depend on
//! the order of the views.

use rayon::prelude::*;
use serde::Serialize;

use crate::atlas::{Atlas, dilate, doubled_area_px, for_each_texel, for_each_touched};
use crate::draw::FrontFaces;
use crate::file::Picture;
use crate::mesh::{Camera, Mesh, Vec3};
use crate::narrow::{floor_i32, to_f64s, to_index, to_u32};
use crate::place::{add, centroid, corners, dot, doubled_area, length, scale};
use crate::random::RandomStream;

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
    sums: Vec<TexelSums>,
    /// Judge of each texel's colours; empty if all colours count.
    judges: Vec<ColorJudge>,
    views: usize,
    left_out: u64,
}

impl<'a> Bake<'a> {
    /// Bytes of memory per texel of a face if all colours count.
    pub const PLAIN_BYTES: usize = size_of::<TexelSums>() + size_of::<[u16; 2]>();

    /// Bytes of memory per texel of a face if colours are left out.
    pub const JUDGED_BYTES: usize = Self::PLAIN_BYTES + size_of::<ColorJudge>();

    /// Starts a texture of a checked mesh and its atlas. With `leaves_out`, rounds after the first leave out colours
    /// farther from the previous round's median than three median distances.
    pub fn new(mesh: &'a Mesh, atlas: &'a Atlas, leaves_out: bool) -> Self {
        let texels = FaceTexels::of(atlas);
        let sums = vec![TexelSums::default(); texels.at.len()];
        let judges = vec![ColorJudge::default(); if leaves_out { sums.len() } else { 0 }];
        Self { mesh, atlas, texels, sums, judges, views: 0, left_out: 0 }
    }

    /// Starts another round: forgets the means; all views have to be added again.
    pub fn next_round(&mut self) {
        (self.views, self.left_out) = (0, 0);
        self.sums.par_iter_mut().for_each(|sums| *sums = TexelSums::default());
        self.judges.par_iter_mut().for_each(|judge| {
            *judge = ColorJudge { agreed: judge.samples.agreed(), ..ColorJudge::default() };
        });
    }

    /// Adds a view. Ignores a view whose colours do not fill its pixels.
    pub fn add(&mut self, view: &ColorView<'_>) {
        if !view.is_whole() {
            return;
        }
        self.views += 1;
        self.left_out += self.take_view(&ViewSampler::new(self.mesh, *view));
    }

    /// Returns the means. Texels that no view sees get the mean of their face; faces that no view sees get the colours
    /// of their vertices. Texels beside faces get the nearest colour, up to 8 texels away.
    pub fn finish(self) -> Baked {
        let Self { mesh, atlas, texels, sums, judges, views, left_out } = self;
        drop(judges);
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

    /// Gives every texel its colour in a view, and returns the number of texels that leave it out.
    fn take_view(&mut self, sampler: &ViewSampler<'_>) -> u64 {
        let Self { mesh, atlas, texels, sums, judges, .. } = self;
        let take_piece = |(sums, judges): (Piece<'_, TexelSums>, Piece<'_, ColorJudge>)| {
            let Piece { faces, first, values: sums } = sums;
            let mut left_out = 0_u64;
            for face in faces {
                let numbers = texels.of_face(face);
                if numbers.is_empty() {
                    continue;
                }
                let corners = corners_cam(mesh, face, &sampler.view.camera);
                if !sampler.may_see(corners) {
                    continue;
                }
                let normal = doubled_area(corners);
                // Only outer sides are textured: the slack would give an inner side the colour of a nearer surface.
                if dot(normal, corners[0]) >= 0.0 {
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
                        let judge = judges.values.get_mut(number - first);
                        if judge.is_none_or(|it| it.accepts(number, color, weight)) {
                            sums[number - first].add(color, weight);
                        } else {
                            left_out += 1;
                        }
                    }
                }
            }
            left_out
        };
        let pieces = texels.pieces(sums).into_par_iter();
        pieces.zip(texels.pieces(judges)).map(take_piece).sum()
    }
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
    /// Area of each face, px².
    pub areas_px2: Vec<f64>,
}

impl SeenAreas {
    /// Starts with a checked mesh that no view has seen yet.
    pub fn new(mesh: &Mesh) -> Self {
        Self { areas_px2: vec![0.0; mesh.faces.len()] }
    }

    /// Adds a camera, which sees from the depth `near` on. A face counts if its middle is visible.
    pub fn add(&mut self, mesh: &Mesh, camera: Camera, near: f64) {
        let view = ColorView { camera, near, colors: &[], counts: None };
        let sampler = ViewSampler::new(mesh, view);
        self.areas_px2.par_iter_mut().enumerate().for_each(|(face, area)| {
            let corners = corners_cam(mesh, face, &camera);
            let is_before = corners.iter().all(|corner| corner[2] >= near);
            if is_before && sampler.shows(centroid(corners)) {
                let doubled = doubled_area_px(corners.map(|corner| camera.pixel(corner)));
                *area = area.max(0.5 * doubled.abs());
            }
        });
    }
}

/// Weight of a colour that may belong to another surface.
const DOUBTFUL: u8 = 1;

/// Least weight of any other colour.
const MIN_WEIGHT: u8 = 16;

/// The weighted sum of a texel's colours and the sum of their weights. Integers, so that the order of the views does
/// not matter. 65,000 views fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TexelSums {
    color: [u32; 3],
    weight: u32,
}

impl TexelSums {
    /// Adds a colour with a weight of 1 to 255. A colour of [`DOUBTFUL`] weight matters only without another.
    #[inline]
    fn add(&mut self, color: [u8; 3], weight: u8) {
        for (sum, channel) in self.color.iter_mut().zip(color) {
            *sum = sum.saturating_add(u32::from(channel) * u32::from(weight));
        }
        self.weight = self.weight.saturating_add(u32::from(weight));
    }
}

/// Judge of a texel's colours, which leaves out those that differ from most. Aligned like the sums.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(4))]
struct ColorJudge {
    /// Agreed colour of the previous round.
    agreed: AgreedColor,
    /// Sample of the colours that this round takes.
    samples: ColorSamples,
}

impl ColorJudge {
    /// Returns true if a colour is not left out; may then keep it as a sample. `texel` is the texel's index.
    #[inline]
    fn accepts(&mut self, texel: usize, color: [u8; 3], weight: u8) -> bool {
        let is_accepted = self.agreed.allows(color);
        if is_accepted && weight > DOUBTFUL {
            self.samples.take(texel, color);
        }
        is_accepted
    }
}

// Texels of each face, in the order of the faces, and the colours that views have of them.

/// Faces that one thread processes together.
const FACES_A_PIECE: usize = 256;

/// The texels of all faces, face after face.
struct FaceTexels {
    /// First index of each face's texels, and the end.
    starts: Vec<usize>,
    /// Column and row of each texel.
    at: Vec<[u16; 2]>,
}

/// Returns column and row; pictures have at most 16,384 texels a side.
fn narrow(x: u32, y: u32) -> [u16; 2] {
    [x, y].map(|i| u16::try_from(i).unwrap_or(u16::MAX))
}

impl FaceTexels {
    /// Finds the texels whose centres lie in a face, and those that a face touches and that have no face: filters read
    /// them where a face is thinner than a texel or ends between two texels.
    fn of(atlas: &Atlas) -> Self {
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

    /// Returns the texels that faces touch and that hold no face's centre, in the order of the faces. A texel belongs
    /// to the first face that touches it.
    fn touched(&self, atlas: &Atlas) -> Vec<([u16; 2], u32)> {
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
                    found.push((at, to_u32(face)));
                }
            });
            found
        };
        let faces = (0..atlas.faces.len()).into_par_iter();
        let mut touched: Vec<([u16; 2], u32)> = faces.flat_map_iter(of_face).collect();
        touched.par_sort_unstable_by_key(|&(at, face)| (index(at), face));
        touched.dedup_by_key(|&mut (at, _)| at);
        touched.par_sort_unstable_by_key(|&(at, face)| (face, index(at)));
        touched
    }

    /// Adds texels after the own ones of each face.
    fn and(&self, touched: &[([u16; 2], u32)]) -> Self {
        let mut all = Self {
            starts: Vec::with_capacity(self.starts.len()),
            at: Vec::with_capacity(self.at.len() + touched.len()),
        };
        all.starts.push(0);
        let mut touched = touched.iter().peekable();
        for face in 0..self.starts.len() - 1 {
            all.at.extend_from_slice(&self.at[self.of_face(face)]);
            while let Some(&(at, _)) = touched.next_if(|&&(_, other)| other as usize == face) {
                all.at.push(at);
            }
            all.starts.push(all.at.len());
        }
        all
    }

    fn of_face(&self, face: usize) -> std::ops::Range<usize> {
        self.starts[face]..self.starts[face + 1]
    }

    /// Splits values of all texels, or of none, into pieces.
    fn pieces<'a, T>(&self, mut values: &'a mut [T]) -> Vec<Piece<'a, T>> {
        let faces = self.starts.len() - 1;
        let mut pieces = Vec::with_capacity(faces.div_ceil(FACES_A_PIECE));
        for start in (0..faces).step_by(FACES_A_PIECE) {
            let end = (start + FACES_A_PIECE).min(faces);
            let first = self.starts[start];
            let count = (self.starts[end] - first).min(values.len());
            let (own, rest) = values.split_at_mut(count);
            pieces.push(Piece { faces: start..end, first, values: own });
            values = rest;
        }
        pieces
    }
}

/// A range of faces, the index of its first texel, and the texels' values.
struct Piece<'a, T> {
    faces: std::ops::Range<usize>,
    first: usize,
    values: &'a mut [T],
}

/// Map from places on the picture to shares of a face's corners.
struct FacePlane {
    origin: [f64; 2],
    /// Rows for the shares of the second and the third corner.
    shares: [[f64; 2]; 2],
}

impl FacePlane {
    fn new([a, b, c]: [[f64; 2]; 3]) -> Self {
        let (u, v) = ([b[0] - a[0], b[1] - a[1]], [c[0] - a[0], c[1] - a[1]]);
        let doubled = doubled_area_px([a, b, c]);
        let inverse = if doubled == 0.0 { 0.0 } else { 1.0 / doubled };
        Self {
            origin: a,
            shares: [[v[1] * inverse, -v[0] * inverse], [-u[1] * inverse, u[0] * inverse]],
        }
    }

    /// Returns the shares of the corners at the centre of a texel; for a texel beside the face, at a place of the face
    /// near it.
    #[inline]
    fn shares(&self, texel: [u16; 2]) -> [f64; 3] {
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

/// Returns a place by the shares of three corners.
#[inline]
fn mixed(corners: [Vec3; 3], shares: [f64; 3]) -> Vec3 {
    let [a, b, c] = corners;
    add(add(scale(a, shares[0]), scale(b, shares[1])), scale(c, shares[2]))
}

/// Returns the corners of a face in camera axes.
fn corners_cam(mesh: &Mesh, face: usize, camera: &Camera) -> [Vec3; 3] {
    corners(mesh, mesh.faces[face]).map(|corner| camera.cam(corner))
}

/// Distance up to which texels around faces get a colour, for filters that read across a seam.
const DILATION_PX: u8 = 8;

/// Fills the texels that no view sees. Returns the picture and the number of unseen faces with texels.
fn fill(mesh: &Mesh, atlas: &Atlas, texels: &FaceTexels, sums: &[TexelSums]) -> (Picture, usize) {
    let unpainted = mean(sums).unwrap_or([128; 3]);
    let color_face = |face: usize| {
        let numbers = texels.of_face(face);
        let own = &sums[numbers.clone()];
        let mean_of_face = mean(own);
        let plane = FacePlane::new(atlas.corners_px(atlas.faces[face]));
        numbers.zip(own).map(move |(number, sums)| {
            match mean(std::slice::from_ref(sums)).or(mean_of_face) {
                Some(color) => color,
                None if mesh.colors.is_empty() => unpainted,
                None => {
                    let color = |v: u32| scale(to_f64s(mesh.colors[v as usize]), 255.0);
                    let shares = plane.shares(texels.at[number]);
                    mixed(mesh.faces[face].map(color), shares).map(byte)
                }
            }
        })
    };
    let is_unseen = |&face: &usize| {
        let own = &sums[texels.of_face(face)];
        !own.is_empty() && mean(own).is_none()
    };
    let faces = (0..atlas.faces.len()).into_par_iter().with_min_len(FACES_A_PIECE);
    let unseen_faces = faces.clone().filter(is_unseen).count();
    let colors: Vec<[u8; 3]> = faces.flat_map_iter(color_face).collect();
    let mut picture = Picture::plain(atlas.width, atlas.height, unpainted);
    let mut is_set = vec![false; picture.texels.len()];
    for (color, &[x, y]) in colors.into_iter().zip(&texels.at) {
        let texel = usize::from(y) * atlas.width as usize + usize::from(x);
        picture.texels[texel] = color;
        is_set[texel] = true;
    }
    dilate(&mut picture.texels, &is_set, atlas.width as usize, DILATION_PX);
    (picture, unseen_faces)
}

/// Returns the weighted mean; none if nothing was seen.
fn mean(sums: &[TexelSums]) -> Option<[u8; 3]> {
    let mut color = [0_u64; 3];
    let mut weight = 0_u64;
    for sums in sums {
        color = std::array::from_fn(|channel| color[channel] + u64::from(sums.color[channel]));
        weight += u64::from(sums.weight);
    }
    (weight > 0).then(|| color.map(|sum| ((sum + weight / 2) / weight).min(255) as u8))
}

/// Largest distance of a place from the front surface that it is part of: a share of its depth.
const SLACK: f64 = 0.002;

/// Additional slack in widths of a pixel, for surfaces at a grazing angle.
const SLACK_PX: f64 = 2.0;

/// Slacks by which neighbouring pixels of one surface may differ: up to 80 degrees between surface and image.
const ONE_SURFACE: f64 = 4.0;

/// Least share of the four pixels around a place that have to show it.
const MIN_SHARE: f64 = 0.25;

/// A view with the front surface at each of its pixels.
struct ViewSampler<'a> {
    view: ColorView<'a>,
    front: FrontFaces,
    /// True for pixels that show only the surface at their centres.
    is_pure: Vec<bool>,
    /// Slack at depth 1.
    slack: f64,
}

impl<'a> ViewSampler<'a> {
    fn new(mesh: &Mesh, view: ColorView<'a>) -> Self {
        let front = FrontFaces::of(mesh, &view.camera, view.near);
        let [x, y] = view.camera.focal_px;
        let slack = SLACK + SLACK_PX / x.min(y);
        let is_pure =
            if view.colors.is_empty() { Vec::new() } else { pure(&front, view.counts, slack) };
        Self { view, front, is_pure, slack }
    }

    /// Returns the colour at a place in camera axes, between the pixels of the four around it that show the place.
    /// Also returns true if none of them lies at the edge of a surface, where a photograph mixes in the background.
    #[inline]
    fn color(&self, cam: Vec3) -> Option<([u8; 3], bool)> {
        let (mut sum, mut share, mut is_pure) = ([0.0; 3], 0.0, true);
        self.for_each_pixel(cam, |pixel, weight| {
            if self.view.counts.is_none_or(|counts| counts[pixel]) {
                let color = self.view.colors[pixel];
                sum = std::array::from_fn(|i| sum[i] + weight * f64::from(color[i]));
                share += weight;
                is_pure &= self.is_pure[pixel] || weight == 0.0;
            }
        });
        let color = sum.map(|channel| byte(channel / share));
        (share >= MIN_SHARE).then_some((color, is_pure))
    }

    /// True if a place in camera axes is visible.
    fn shows(&self, cam: Vec3) -> bool {
        let mut share = 0.0;
        self.for_each_pixel(cam, |_, weight| share += weight);
        share >= MIN_SHARE
    }

    /// Passes the pixels around a place that show it, and their weights.
    #[inline]
    fn for_each_pixel(&self, cam: Vec3, mut visit: impl FnMut(usize, f64)) {
        if cam[2] < self.view.near {
            return;
        }
        let [x, y] = self.view.camera.pixel(cam).map(|at| at - 0.5);
        let [width, height] = self.front.size;
        let (left, top) = (floor_i32(x), floor_i32(y));
        if left < -1 || top < -1 || to_index(left) >= width || to_index(top) >= height {
            return;
        }
        let (s, t) = (x - f64::from(left), y - f64::from(top));
        let slack = self.slack * cam[2];
        for (across, down, weight) in [
            (0, 0, (1.0 - s) * (1.0 - t)),
            (1, 0, s * (1.0 - t)),
            (0, 1, (1.0 - s) * t),
            (1, 1, s * t),
        ] {
            let (x, y) = (left + across, top + down);
            if x < 0 || y < 0 || to_index(x) >= width || to_index(y) >= height {
                continue;
            }
            let pixel = to_index(y) * width + to_index(x);
            if (f64::from(self.front.depth(pixel)) - cam[2]).abs() <= slack {
                visit(pixel, weight);
            }
        }
    }

    /// True if the camera may see a triangle in camera axes.
    fn may_see(&self, corners: [Vec3; 3]) -> bool {
        if corners.iter().any(|corner| corner[2] < self.view.near) {
            return corners.iter().any(|corner| corner[2] >= self.view.near);
        }
        let px = corners.map(|corner| self.view.camera.pixel(corner));
        let size = self.front.size;
        (0..2).all(|axis| {
            px.iter().any(|px| px[axis] >= 0.0) && px.iter().any(|px| px[axis] <= size[axis] as f64)
        })
    }
}

/// True for pixels that show the same surface as their eight neighbours: not at the edge of the mesh, of a nearer part
/// of it, or of a mask. Photographs mix the colours of both sides there, and a mesh is seldom exact to a pixel.
fn pure(front: &FrontFaces, counts: Option<&[bool]>, slack: f64) -> Vec<bool> {
    let [width, height] = front.size;
    let mut pure = vec![false; width * height];
    pure.par_chunks_mut(width.max(1)).enumerate().for_each(|(y, row)| {
        let rows = y.saturating_sub(1)..height.min(y + 2);
        for (x, pure) in row.iter_mut().enumerate() {
            let depth = f64::from(front.depth(y * width + x));
            let columns = x.saturating_sub(1)..width.min(x + 2);
            *pure = depth.is_finite()
                && rows.clone().all(|y| {
                    columns.clone().map(|x| y * width + x).all(|other| {
                        let away = f64::from(front.depth(other)) - depth;
                        away.abs() <= ONE_SURFACE * slack * depth
                            && counts.is_none_or(|counts| counts[other])
                    })
                });
        }
    });
    pure
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn byte(channel: f64) -> u8 {
    (channel + 0.5) as u8
}

/// Number of samples of a texel. Of more colours, each has the same chance to be kept.
const KEPT: usize = 8;

/// Largest distance, in median distances, of a colour that agrees with the others.
const MAX_DEVIATIONS: u16 = 3;

/// Least median distance, in 1/255: noise of cameras and of compression.
const MIN_DEVIATION: u8 = 4;

/// Random numbers of the choice of samples.
const STREAM: RandomStream = RandomStream::of_seed(17);

/// A random sample of the colours that views have of a texel.
#[derive(Clone, Copy, Debug, Default)]
struct ColorSamples {
    seen: u16,
    kept: [[u8; 3]; KEPT],
}

impl ColorSamples {
    /// Takes another colour, or not; `texel` is the texel's index.
    #[inline]
    fn take(&mut self, texel: usize, color: [u8; 3]) {
        let seen = usize::from(self.seen);
        if seen < KEPT {
            self.kept[seen] = color;
        } else {
            let bits = STREAM.bits((texel as u64) << 16 | seen as u64);
            let place = usize::try_from(bits % (seen as u64 + 1)).unwrap_or(usize::MAX);
            if let Some(place) = self.kept.get_mut(place) {
                *place = color;
            }
        }
        self.seen = self.seen.saturating_add(1);
    }

    /// Returns the colour that most of them agree on; without samples, one that every colour agrees with.
    fn agreed(&self) -> AgreedColor {
        let kept = &self.kept[..KEPT.min(usize::from(self.seen))];
        if kept.is_empty() {
            return AgreedColor::default();
        }
        let color = std::array::from_fn(|channel| median(kept.iter().map(|color| color[channel])));
        let spread = median(kept.iter().map(|&other| distance(color, other)));
        AgreedColor { color, spread: spread.max(MIN_DEVIATION) }
    }
}

/// Returns the median of at most 8 values; of an even number, the midpoint of the middle two.
fn median(values: impl Iterator<Item = u8>) -> u8 {
    let mut sorted = [0; KEPT];
    let mut count = 0;
    for (place, value) in sorted.iter_mut().zip(values) {
        *place = value;
        count += 1;
    }
    let sorted = &mut sorted[..count];
    sorted.sort_unstable();
    if count == 0 { 0 } else { sorted[(count - 1) / 2].midpoint(sorted[count / 2]) }
}

fn distance(a: [u8; 3], b: [u8; 3]) -> u8 {
    (0..3).map(|channel| a[channel].abs_diff(b[channel])).fold(0, u8::max)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AgreedColor {
    color: [u8; 3],
    /// Median distance of the samples.
    spread: u8,
}

impl Default for AgreedColor {
    /// Returns a colour that every colour agrees with.
    fn default() -> Self {
        Self { color: [0; 3], spread: u8::MAX }
    }
}

impl AgreedColor {
    #[inline]
    fn allows(self, color: [u8; 3]) -> bool {
        u16::from(distance(self.color, color)) <= MAX_DEVIATIONS * u16::from(self.spread)
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
mod tests {
    use super::*;
    use crate::atlas::{AtlasOptions, Layout, make_atlas};
    use crate::draw::{Paint, draw};
    use crate::known_meshes::{
        self, cube, joined, mesh_of, moved, same_on_any_threads, sphere, square,
    };
    use crate::place::normalize;

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
        let in_steps = |step: usize| {
            let mut bake = Bake::new(&mesh, &atlas, false);
            for number in 0..cameras.len() {
                let number = number * step % cameras.len();
                bake.add(&view(&cameras[number], &shots[number]));
            }
            bake.finish()
        };
        assert_eq!(same_on_any_threads(|| in_steps(1)), in_steps(7));
    }

    #[test]
    fn areas_count_visible_faces() {
        let mesh = moved(cube(), [-0.5; 3]);
        let mut areas = SeenAreas::new(&mesh);
        areas.add(&mesh, looking([0.0, 0.0, -3.0]), NEAR);
        // One side, 2.5 away, focal length 1.2 times the side of the picture.
        let side_px = 1.2 * SIDE as f64 / 2.5;
        let sum: f64 = areas.areas_px2.iter().sum();
        assert!((sum / side_px.powi(2) - 1.0).abs() < 1e-9, "{sum}");
        assert_eq!(areas.areas_px2.iter().filter(|&&area| area > 0.0).count(), 2);
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
        let mut mesh = square();
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

    fn agreed(colors: &[u8]) -> AgreedColor {
        let mut some = ColorSamples::default();
        colors.iter().for_each(|&grey| some.take(5, [grey, 100, 50]));
        some.agreed()
    }

    #[test]
    fn a_colour_that_few_have_is_not_allowed() {
        let most = agreed(&[100, 102, 98, 250, 101, 240, 99]);
        assert!(most.allows([104, 100, 50]) && !most.allows([240, 100, 50]));
        assert!(!most.allows([100, 140, 50]));
        // Two different colours: neither is the outlier.
        let two = agreed(&[20, 220]);
        assert!(two.allows([20, 100, 50]) && two.allows([220, 100, 50]));
        assert_eq!(agreed(&[]), AgreedColor::default());
        assert!(AgreedColor::default().allows([255; 3]));
    }

    #[test]
    fn late_colours_are_kept_as_often_as_early_ones() {
        // The last 24 of 32 views agree: the median of the samples is theirs in most texels.
        let mut theirs = 0;
        for texel in 0..1000 {
            let mut some = ColorSamples::default();
            for view in 0..32 {
                some.take(texel, [if view < 8 { 10 } else { 200 }; 3]);
            }
            theirs += usize::from(some.agreed().allows([200; 3]));
        }
        assert!(theirs > 950, "{theirs}");
    }
}
