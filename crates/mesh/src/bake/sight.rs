//! The colour that a view has of a place on the mesh, if it sees it.

use super::view::ColorView;
use crate::draw::FrontFaces;
use crate::mesh::{Mesh, Vec3};
use crate::narrow::{floor_i32, to_index};

/// How much deeper than the front a place may lie and be part of it: a share of its depth.
const SLACK: f64 = 0.002;

/// The same in widths of a pixel there, for surfaces that are seen askew.
const SLACK_PX: f64 = 2.0;

/// The share of the four pixels around a place that have to show it.
const LEAST_SHARE: f64 = 0.25;

/// A view and what is in front in it.
pub(super) struct Sighting<'a> {
    pub(super) view: ColorView<'a>,
    front: FrontFaces,
    /// Slack by depth, of depth 1.
    slack: f64,
}

impl<'a> Sighting<'a> {
    pub(super) fn new(mesh: &Mesh, view: ColorView<'a>) -> Self {
        let front = FrontFaces::of(mesh, &view.camera, view.near);
        let [x, y] = view.camera.focal_px;
        Self { view, front, slack: SLACK + SLACK_PX / x.min(y) }
    }

    /// The colour at a place in camera axes: between those of the four pixels around it that show the
    /// place and not something before or beside it.
    #[inline]
    pub(super) fn color(&self, cam: Vec3) -> Option<[u8; 3]> {
        let (mut sum, mut share) = ([0.0; 3], 0.0);
        self.for_each_pixel(cam, |pixel, weight| {
            if self.view.counts.is_none_or(|counts| counts[pixel]) {
                let color = self.view.colors[pixel];
                sum = std::array::from_fn(|i| sum[i] + weight * f64::from(color[i]));
                share += weight;
            }
        });
        (share >= LEAST_SHARE).then(|| sum.map(|channel| byte(channel / share)))
    }

    /// Whether a place in camera axes is in sight.
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

    /// Whether the camera may see a triangle in camera axes.
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

/// A channel of 0 to 255, rounded.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
pub(super) fn byte(channel: f64) -> u8 {
    (channel + 0.5) as u8
}
