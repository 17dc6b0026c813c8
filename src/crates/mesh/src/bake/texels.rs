//! Which texels each face has, in the order of the faces.

use rayon::prelude::*;

use super::{ColorView, TexelSums};
use crate::atlas::{Atlas, dilate, for_each_texel, for_each_touched};
use crate::draw::FrontFaces;
use crate::file::Picture;
use crate::mesh::{Mesh, Vec3};
use crate::narrow::{floor_i32, to_f64s, to_index, to_u32};
use crate::place::{add, corners, scale};
use crate::random::RandomStream;

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

// The colour that a view has of a place on the mesh, if it sees it.

/// How much deeper than the front a place may lie and be part of it: a share of its depth.
const SLACK: f64 = 0.002;

/// The same in widths of a pixel there, for surfaces that are seen askew.
const SLACK_PX: f64 = 2.0;

/// How many times the slack neighbouring pixels may differ by and show one surface: up to 80 degrees askew.
const ONE_SURFACE: f64 = 4.0;

/// The share of the four pixels around a place that have to show it.
const LEAST_SHARE: f64 = 0.25;

/// The colour that a view has of a place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SeenColor {
    pub(super) color: [u8; 3],
    /// True if no pixel of it lies at the edge of what is seen, where a photograph also shows what is behind.
    pub(super) is_pure: bool,
}

/// A view and what is in front in it.
pub(super) struct Sighting<'a> {
    pub(super) view: ColorView<'a>,
    front: FrontFaces,
    /// Pixels that show nothing but the surface at their centres.
    is_pure: Vec<bool>,
    /// Slack by depth, of depth 1.
    slack: f64,
}

impl<'a> Sighting<'a> {
    pub(super) fn new(mesh: &Mesh, view: ColorView<'a>) -> Self {
        let front = FrontFaces::of(mesh, &view.camera, view.near);
        let [x, y] = view.camera.focal_px;
        let slack = SLACK + SLACK_PX / x.min(y);
        let is_pure =
            if view.colors.is_empty() { Vec::new() } else { pure(&front, view.counts, slack) };
        Self { view, front, is_pure, slack }
    }

    /// The colour at a place in camera axes: between those of the four pixels around it that show the
    /// place and not something before or beside it.
    #[inline]
    pub(super) fn color(&self, cam: Vec3) -> Option<SeenColor> {
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
        (share >= LEAST_SHARE).then_some(SeenColor { color, is_pure })
    }

    /// True if a place in camera axes is in sight.
    pub(super) fn shows(&self, cam: Vec3) -> bool {
        let mut share = 0.0;
        self.for_each_pixel(cam, |_, weight| share += weight);
        share >= LEAST_SHARE
    }

    /// The pixels around a place that show it, and their weights.
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

/// Which pixels show one surface, as their eight neighbours do: not the edge of the mesh, of a part of it
/// before another, or of a mask. Photographs mix the colours of both sides there, and a mesh is seldom exact to
/// a pixel.
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

/// A channel of 0 to 255, rounded.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
pub(super) fn byte(channel: f64) -> u8 {
    (channel + 0.5) as u8
}

/// Colours that are kept of a texel. Of more, each has the same chance to be kept.
const KEPT: usize = 8;

/// Greatest distance, in median distances, at which a colour is one of the others.
const MOST_DEVIATIONS: u16 = 3;

/// A median distance below this, in 1/255, counts as this: noise of cameras and of compression.
const LEAST_DEVIATION: u8 = 4;

/// Which colours are kept.
const STREAM: RandomStream = RandomStream::of_seed(17);

/// Some of the colours that views have of a texel.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SomeColors {
    seen: u16,
    kept: [[u8; 3]; KEPT],
}

impl SomeColors {
    /// Takes a further colour, or not; `texel` is the texel's number.
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

    /// What most of them agree on; nothing of none.
    pub(super) fn agreed(&self) -> AgreedColor {
        let kept = &self.kept[..KEPT.min(usize::from(self.seen))];
        if kept.is_empty() {
            return AgreedColor::ANY;
        }
        let color = std::array::from_fn(|channel| median(kept.iter().map(|color| color[channel])));
        let spread = median(kept.iter().map(|&other| distance(color, other)));
        AgreedColor { color, spread: spread.max(LEAST_DEVIATION) }
    }
}

/// The median of at most 8 values, of an even number between the middle two.
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

/// The greatest difference of a channel.
fn distance(a: [u8; 3], b: [u8; 3]) -> u8 {
    (0..3).map(|channel| a[channel].abs_diff(b[channel])).fold(0, u8::max)
}

/// A colour that most views agree on, and how much they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AgreedColor {
    color: [u8; 3],
    /// The median distance.
    spread: u8,
}

impl AgreedColor {
    /// What every colour agrees with.
    pub(super) const ANY: Self = Self { color: [0; 3], spread: u8::MAX };

    #[inline]
    pub(super) fn allows(self, color: [u8; 3]) -> bool {
        u16::from(distance(self.color, color)) <= MOST_DEVIATIONS * u16::from(self.spread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed(colors: &[u8]) -> AgreedColor {
        let mut some = SomeColors::default();
        colors.iter().for_each(|&grey| some.take(5, [grey, 100, 50]));
        some.agreed()
    }

    #[test]
    fn a_colour_that_few_have_is_not_allowed() {
        let most = agreed(&[100, 102, 98, 250, 101, 240, 99]);
        assert!(most.allows([104, 100, 50]) && !most.allows([240, 100, 50]));
        assert!(!most.allows([100, 140, 50]));
        // Two that differ: neither is the odd one.
        let two = agreed(&[20, 220]);
        assert!(two.allows([20, 100, 50]) && two.allows([220, 100, 50]));
        assert_eq!(agreed(&[]), AgreedColor::ANY);
        assert!(AgreedColor::ANY.allows([255; 3]));
    }

    #[test]
    fn late_colours_are_kept_as_often_as_early_ones() {
        // 32 views, of which the last 24 agree: the median of what is kept is theirs in most texels.
        let mut theirs = 0;
        for texel in 0..1000 {
            let mut some = SomeColors::default();
            for view in 0..32 {
                some.take(texel, [if view < 8 { 10 } else { 200 }; 3]);
            }
            theirs += usize::from(some.agreed().allows([200; 3]));
        }
        assert!(theirs > 950, "{theirs}");
    }
}
