//! Points that tetrahedra are built over, so that the surface passes between them.

use crate::mesh::Vec3;
use crate::place::Bounds;
use crate::vector::{add, scale};

/// Standard deviations along its normal between a Gaussian and its pivots.
const REACH: f64 = 3.0;

/// Size of the box around all, over that of the pivots' own.
const ENCLOSURE: f64 = 3.0;

/// Where pivots lie about a Gaussian, besides its mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PivotSides {
    /// On the outer side, where a normal is learned.
    Outer,
    /// On both sides, where its sign means nothing.
    Both,
}

/// Pivots of Gaussians, and a box around them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pivots {
    /// Places, world units; the last [`Pivots::CORNERS`] are the corners of the box.
    pub points: Vec<Vec3>,
}

impl Pivots {
    /// Corners of the box, which lie outside by definition.
    pub const CORNERS: usize = 8;

    /// Pivots of flat Gaussians: each mean, and three standard deviations from it along its normal;
    /// then the corners of a box three times as large as theirs, so that the hull is outside.
    ///
    /// `gaussians` are means (world), unit normals and standard deviations along them (world
    /// units). Pivots that are not finite are left out.
    pub fn of(gaussians: impl IntoIterator<Item = (Vec3, Vec3, f64)>, sides: PivotSides) -> Self {
        let mut points: Vec<Vec3> = gaussians
            .into_iter()
            .flat_map(|(mean, normal, deviation)| {
                let step = scale(normal, REACH * deviation);
                let inner = (sides == PivotSides::Both).then(|| add(mean, scale(step, -1.0)));
                [Some(mean), Some(add(mean, step)), inner].into_iter().flatten()
            })
            .filter(|point| point.iter().all(|x| x.is_finite()))
            .collect();
        points.extend(corners(&points));
        Self { points }
    }

    /// Labels of all from those of the pivots proper: the corners are outside.
    pub fn labels(&self, mut inside: Vec<bool>) -> Vec<bool> {
        inside.truncate(self.points.len().saturating_sub(Self::CORNERS));
        inside.resize(self.points.len(), false);
        inside
    }

    /// The points but for the corners of the box.
    pub fn inner(&self) -> &[Vec3] {
        &self.points[..self.points.len().saturating_sub(Self::CORNERS)]
    }
}

/// Corners of the box around all, of at least unit size where it has none.
fn corners(points: &[Vec3]) -> [Vec3; Pivots::CORNERS] {
    let bounds = Bounds::of(points.iter().copied());
    let side = bounds.longest_side();
    let corner = |corner: usize| {
        std::array::from_fn(|axis| {
            let centre =
                if points.is_empty() { 0.0 } else { (bounds.low[axis] + bounds.high[axis]) / 2.0 };
            let half = ENCLOSURE / 2.0 * if side > 0.0 { side } else { 1.0 };
            if corner >> axis & 1 == 0 { centre - half } else { centre + half }
        })
    };
    std::array::from_fn(corner)
}
