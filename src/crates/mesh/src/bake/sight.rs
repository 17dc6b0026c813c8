//! The colour that a view has of a place on the mesh, if it sees it.

use rayon::prelude::*;

use super::ColorView;
use crate::draw::FrontFaces;
use crate::mesh::{Mesh, Vec3};
use crate::narrow::{floor_i32, to_index};
use crate::random::RandomStream;

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

// What most views agree on: medians of a few colours of each texel.

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
