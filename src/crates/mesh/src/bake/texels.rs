//! Texels of each face, in the order of the faces, and the colours that views have of them.

use rayon::prelude::*;

use super::{ColorView, TexelSums};
use crate::atlas::{Atlas, dilate, for_each_texel, for_each_touched};
use crate::draw::FrontFaces;
use crate::file::Picture;
use crate::mesh::{Mesh, Vec3};
use crate::narrow::{floor_i32, to_f64s, to_index, to_u32};
use crate::place::{add, corners, scale};
use crate::random::RandomStream;

/// Faces that one thread processes together.
const FACES_A_PIECE: usize = 256;

/// The texels of all faces, face after face.
pub(super) struct FaceTexels {
    /// First index of each face's texels, and the end.
    starts: Vec<usize>,
    /// Column and row of each texel.
    pub(super) at: Vec<[u16; 2]>,
}

/// Returns column and row; pictures have at most 16,384 texels a side.
fn narrow(x: u32, y: u32) -> [u16; 2] {
    [x, y].map(|i| u16::try_from(i).unwrap_or(u16::MAX))
}

impl FaceTexels {
    /// Finds the texels whose centres lie in a face, and those that a face touches and that have no face: filters read
    /// them where a face is thinner than a texel or ends between two texels.
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

    pub(super) fn of_face(&self, face: usize) -> std::ops::Range<usize> {
        self.starts[face]..self.starts[face + 1]
    }

    /// Splits values of all texels into pieces: a range of faces, the index of its first texel, and its values.
    pub(super) fn pieces<'a, T>(
        &self,
        mut values: &'a mut [T],
    ) -> Vec<(std::ops::Range<usize>, usize, &'a mut [T])> {
        let faces = self.starts.len() - 1;
        let mut pieces = Vec::with_capacity(faces.div_ceil(FACES_A_PIECE));
        for start in (0..faces).step_by(FACES_A_PIECE) {
            let end = (start + FACES_A_PIECE).min(faces);
            let first = self.starts[start];
            let (own, rest) = values.split_at_mut(self.starts[end] - first);
            pieces.push((start..end, first, own));
            values = rest;
        }
        pieces
    }
}

/// Map from places on the picture to shares of a face's corners.
pub(super) struct FacePlane {
    origin: [f64; 2],
    /// Rows for the shares of the second and the third corner.
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

    /// Returns the shares of the corners at the centre of a texel; for a texel beside the face, at a place of the face
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

/// Returns a place by the shares of three corners.
#[inline]
pub(super) fn mixed(corners: [Vec3; 3], shares: [f64; 3]) -> Vec3 {
    let [a, b, c] = corners;
    add(add(scale(a, shares[0]), scale(b, shares[1])), scale(c, shares[2]))
}

/// Returns the corners of a face in camera axes.
pub(super) fn corners_cam(mesh: &Mesh, face: usize, camera: &crate::Camera) -> [Vec3; 3] {
    corners(mesh, mesh.faces[face]).map(|corner| camera.cam(corner))
}

/// Distance up to which texels around faces get a colour, for filters that read across a seam.
const DILATION_PX: u8 = 8;

/// Fills the texels that no view sees. Returns the picture and the number of unseen faces with texels.
pub(super) fn fill(
    mesh: &Mesh,
    atlas: &Atlas,
    texels: &FaceTexels,
    sums: &[TexelSums],
) -> (Picture, usize) {
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
pub(super) struct ViewSampler<'a> {
    pub(super) view: ColorView<'a>,
    front: FrontFaces,
    /// True for pixels that show only the surface at their centres.
    is_pure: Vec<bool>,
    /// Slack at depth 1.
    slack: f64,
}

impl<'a> ViewSampler<'a> {
    pub(super) fn new(mesh: &Mesh, view: ColorView<'a>) -> Self {
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
    pub(super) fn color(&self, cam: Vec3) -> Option<([u8; 3], bool)> {
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
    pub(super) fn shows(&self, cam: Vec3) -> bool {
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
        let [width, height] = self.front.size();
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
    pub(super) fn may_see(&self, corners: [Vec3; 3]) -> bool {
        if corners.iter().any(|corner| corner[2] < self.view.near) {
            return corners.iter().any(|corner| corner[2] >= self.view.near);
        }
        let px = corners.map(|corner| self.view.camera.pixel(corner));
        let size = self.front.size();
        (0..2).all(|axis| {
            px.iter().any(|px| px[axis] >= 0.0) && px.iter().any(|px| px[axis] <= size[axis] as f64)
        })
    }
}

/// True for pixels that show the same surface as their eight neighbours: not at the edge of the mesh, of a nearer part
/// of it, or of a mask. Photographs mix the colours of both sides there, and a mesh is seldom exact to a pixel.
fn pure(front: &FrontFaces, counts: Option<&[bool]>, slack: f64) -> Vec<bool> {
    let [width, height] = front.size();
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
pub(super) fn byte(channel: f64) -> u8 {
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
pub(super) struct ColorSamples {
    seen: u16,
    kept: [[u8; 3]; KEPT],
}

impl ColorSamples {
    /// Takes another colour, or not; `texel` is the texel's index.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "below the number of colours that were seen"
    )]
    pub(super) fn take(&mut self, texel: usize, color: [u8; 3]) {
        let seen = usize::from(self.seen);
        if seen < KEPT {
            self.kept[seen] = color;
        } else {
            let bits = STREAM.bits((texel as u64) << 16 | seen as u64);
            if let Some(place) = self.kept.get_mut((bits % (seen as u64 + 1)) as usize) {
                *place = color;
            }
        }
        self.seen = self.seen.saturating_add(1);
    }

    /// Returns the colour that most of them agree on; without samples, [`AgreedColor::ANY`].
    pub(super) fn agreed(&self) -> AgreedColor {
        let kept = &self.kept[..KEPT.min(usize::from(self.seen))];
        if kept.is_empty() {
            return AgreedColor::ANY;
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
pub(super) struct AgreedColor {
    color: [u8; 3],
    /// Median distance of the samples.
    spread: u8,
}

impl AgreedColor {
    /// A colour that every colour agrees with.
    pub(super) const ANY: Self = Self { color: [0; 3], spread: u8::MAX };

    #[inline]
    pub(super) fn allows(self, color: [u8; 3]) -> bool {
        u16::from(distance(self.color, color)) <= MAX_DEVIATIONS * u16::from(self.spread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(agreed(&[]), AgreedColor::ANY);
        assert!(AgreedColor::ANY.allows([255; 3]));
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
