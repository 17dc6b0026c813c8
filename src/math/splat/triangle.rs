//! A triangle between three vertices on the screen, opaque or not (MeshSplatting, Held et al. 2025, with the window
//! of Triangle Splatting, Held et al. 2025).
//!
//! With c the centre of the triangle's inscribed circle, r its radius, nᵢ the outward normal of the edge opposite
//! corner i, and d a pixel minus c, the share of the way from c to that edge is
//!
//! tᵢ = mᵢ·d with mᵢ = nᵢ / r, which is 0 in c and 1 on the edge.
//!
//! Inside, all shares are below 1, and the opacity is o (1 - max tᵢ)^s: a pyramid for s = 1, a solid triangle for s
//! near 0. Gradients of an edge are averaged over a strip inside it ([`FallOff`]). Values that are linear between the
//! corners follow from the same slopes: the barycentric weight of corner i is bᵢ (1 - tᵢ), with bᵢ the length of the
//! opposite edge over the perimeter. Colours are taken as linear on the screen, as in the reference; inverse depths
//! are exactly linear.

use serde::{Deserialize, Serialize};

use super::projection::{Bounds, Ellipse, Rect, Viewpoint};
use crate::math::Real;
use crate::math::blend::ALPHA_MIN;
use crate::math::linalg::{Sym2, Vec3, add, dot, mul, mul_transposed, scale};

/// Largest opacity of a triangle in a sample.
pub const TRIANGLE_ALPHA_MAX: f64 = 0.999;

/// A vertex in a view.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Vertex<R> {
    /// Position, px.
    pub px: [R; 2],
    /// Inverse of the depth along the view axis, per world unit.
    pub inverse_depth: R,
    /// Opacity.
    pub opacity: R,
    /// Colour, not below 0.
    pub color: Vec3<R>,
}

/// Gradients of [`Vertex`].
#[derive(Clone, Copy, Debug, Default)]
pub struct VertexGradient<R> {
    /// Gradient of the position, per px.
    pub d_px: [R; 2],
    /// Gradient of the inverse depth.
    pub d_inverse_depth: R,
    /// Gradient of the opacity.
    pub d_opacity: R,
    /// Gradient of the colour.
    pub d_color: Vec3<R>,
}

/// Projects a point in the world to the screen and returns its position and inverse depth; `None` if it is not beyond
/// [`Viewpoint::near`] or not finite.
pub fn place_vertex<R: Real>(view: &Viewpoint<R>, world: Vec3<R>) -> Option<([R; 2], R)> {
    let [x, y, z] = add(mul(&view.rotation, world), view.translation);
    // Written so that NaN is rejected too.
    if !(z > view.near && z.is_finite()) {
        return None;
    }
    let inverse_depth = R::ONE / z;
    let px = [
        view.focal_px[0] * x * inverse_depth + view.centre_px[0],
        view.focal_px[1] * y * inverse_depth + view.centre_px[1],
    ];
    px.iter().all(|value| value.is_finite()).then_some((px, inverse_depth))
}

/// Returns `d_world` of [`place_vertex`]; `None` if that returns `None`.
pub fn place_vertex_bwd<R: Real>(
    view: &Viewpoint<R>,
    world: Vec3<R>,
    d_px: [R; 2],
    d_inverse_depth: R,
) -> Option<Vec3<R>> {
    let (_, inverse_depth) = place_vertex(view, world)?;
    let [x, y, _] = add(mul(&view.rotation, world), view.translation);
    let [d_x, d_y] = [0, 1].map(|axis| d_px[axis] * view.focal_px[axis]);
    let d_inverse = d_x * x + d_y * y + d_inverse_depth;
    let d_cam =
        [d_x * inverse_depth, d_y * inverse_depth, -d_inverse * inverse_depth * inverse_depth];
    Some(mul_transposed(&view.rotation, d_cam))
}

/// A value that is linear on the screen: the value at the centre of the inscribed circle, and its slopes per px.
pub type Linear<V> = [V; 3];

/// A triangle on the screen (see the module documentation).
#[derive(Clone, Copy, Debug)]
pub struct Triangle<R> {
    /// c: centre of the inscribed circle, px.
    pub centre_px: [R; 2],
    /// m: slopes of the shares, per px, by opposite corner.
    pub slopes: [[R; 2]; 3],
    /// Smallest opacity of the corners.
    pub opacity: R,
    /// Colour.
    pub color: Linear<Vec3<R>>,
    /// Inverse depth, per world unit.
    pub inverse_depth: Linear<R>,
}

/// Gradients of [`Triangle`], summed over samples. The centre's gradient follows from the others.
#[derive(Clone, Copy, Debug, Default)]
pub struct TriangleGradient<R> {
    /// Gradients of the shares.
    pub d_shares: [R; 3],
    /// Gradients of their slopes.
    pub d_slopes: [[R; 2]; 3],
    /// Gradient of the opacity's logarithm.
    pub d_log_opacity: R,
    /// Gradient of the colour.
    pub d_color: Linear<Vec3<R>>,
    /// Gradient of the inverse depth.
    pub d_inverse_depth: Linear<R>,
}

impl<R: Real> TriangleGradient<R> {
    /// Adds the gradients of other samples.
    pub fn add(&mut self, other: &Self) {
        for k in 0..3 {
            self.d_shares[k] += other.d_shares[k];
            self.d_slopes[k][0] += other.d_slopes[k][0];
            self.d_slopes[k][1] += other.d_slopes[k][1];
            self.d_color[k] = add(self.d_color[k], other.d_color[k]);
            self.d_inverse_depth[k] += other.d_inverse_depth[k];
        }
        self.d_log_opacity += other.d_log_opacity;
    }
}

/// Values that depend on the corners' positions only.
struct Incircle<R> {
    /// Edge opposite each corner, px.
    edges: [[R; 2]; 3],
    lengths: [R; 3],
    perimeter: R,
    /// Twice the area; negative for the other orientation.
    doubled_area: R,
    /// b: shares of the perimeter.
    weights: [R; 3],
    centre_px: [R; 2],
    slopes: [[R; 2]; 3],
}

/// Returns `None` if the radius of the inscribed circle is not above `inradius_min_px`.
fn outline<R: Real>(corners: [[R; 2]; 3], inradius_min_px: R) -> Option<Incircle<R>> {
    let edges = [0, 1, 2].map(|i| {
        let (from, to) = (corners[(i + 1) % 3], corners[(i + 2) % 3]);
        [to[0] - from[0], to[1] - from[1]]
    });
    let lengths = edges.map(|[x, y]| (x * x + y * y).sqrt());
    let perimeter = lengths[0] + lengths[1] + lengths[2];
    let doubled_area = edges[2][0] * edges[0][1] - edges[2][1] * edges[0][0];
    // Written so that NaN is rejected too.
    if !(doubled_area.abs() > inradius_min_px * perimeter && perimeter.is_finite()) {
        return None;
    }
    let weights = lengths.map(|length| length / perimeter);
    let slopes = [0, 1, 2].map(|i| {
        let per = R::ONE / (doubled_area * weights[i]);
        [edges[i][1] * per, -edges[i][0] * per]
    });
    let centre_px = [0, 1].map(|axis| (0..3).map(|i| weights[i] * corners[i][axis]).sum());
    let finite = slopes.as_flattened().iter().chain(&centre_px).all(|value| value.is_finite());
    finite.then_some(Incircle {
        edges,
        lengths,
        perimeter,
        doubled_area,
        weights,
        centre_px,
        slopes,
    })
}

/// Returns the triangle between three vertices; `None` if it is too narrow or too transparent to be seen.
pub fn triangle<R: Real>(corners: &[Vertex<R>; 3], inradius_min_px: R) -> Option<Triangle<R>> {
    let Incircle { weights, centre_px, slopes, .. } =
        outline(corners.map(|corner| corner.px), inradius_min_px)?;
    let (_, opacity) = least_opacity(corners);
    // Written so that NaN is rejected too.
    let is_seen = opacity >= R::of(ALPHA_MIN);
    if !is_seen {
        return None;
    }
    let mut color = [[R::ZERO; 3]; 3];
    let mut inverse_depth = [R::ZERO; 3];
    for (i, corner) in corners.iter().enumerate() {
        // λ = b (1 - m·d)
        let linear = [weights[i], -weights[i] * slopes[i][0], -weights[i] * slopes[i][1]];
        for (k, share) in linear.into_iter().enumerate() {
            color[k] = add(color[k], scale(corner.color, share));
            inverse_depth[k] += corner.inverse_depth * share;
        }
    }
    Some(Triangle { centre_px, slopes, opacity, color, inverse_depth })
}

/// Returns the index and opacity of the most transparent corner; the first of equal ones.
fn least_opacity<R: Real>(corners: &[Vertex<R>; 3]) -> (usize, R) {
    let mut least = (0, corners[0].opacity);
    for (i, corner) in corners.iter().enumerate().skip(1) {
        if corner.opacity < least.1 {
            least = (i, corner.opacity);
        }
    }
    least
}

/// Selection of the gradients of vertex positions.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub enum PlaceGradients {
    /// All dependencies.
    #[default]
    All,
    /// Only distances of samples to their nearest edges, with the inscribed circle fixed, and the vertex's own depth.
    /// Ignores the interpolation of colours and depths, and the viewing directions of harmonics. As in the program of
    /// MeshSplatting (Held et al. 2025).
    EdgeDistances,
}

/// Returns `d_corners` of [`triangle`]; `None` if that returns `None`. The opacity's gradient goes to the corner that
/// determines it.
pub fn triangle_bwd<R: Real>(
    corners: &[Vertex<R>; 3],
    inradius_min_px: R,
    gradients: PlaceGradients,
    d: &TriangleGradient<R>,
) -> Option<[VertexGradient<R>; 3]> {
    let drawn = triangle(corners, inradius_min_px)?;
    let outline = outline(corners.map(|corner| corner.px), inradius_min_px)?;
    let mut d_corners = values_bwd(&outline, d);
    let (least, opacity) = least_opacity(corners);
    d_corners[least].d_opacity = d.d_log_opacity / opacity;
    let d_px = match gradients {
        PlaceGradients::All => places_bwd(corners, &drawn, &outline, d),
        PlaceGradients::EdgeDistances => distances_bwd(corners, &outline, d),
    };
    for (d_corner, d_px) in d_corners.iter_mut().zip(d_px) {
        d_corner.d_px = d_px;
    }
    Some(d_corners)
}

/// Returns the gradients of the corners' colours and inverse depths.
fn values_bwd<R: Real>(
    &Incircle { weights, slopes, .. }: &Incircle<R>,
    d: &TriangleGradient<R>,
) -> [VertexGradient<R>; 3] {
    [0, 1, 2].map(|i| {
        let [m_x, m_y] = slopes[i];
        let share = |d0: R, d_x: R, d_y: R| weights[i] * (d0 - m_x * d_x - m_y * d_y);
        let [color_0, color_x, color_y] = d.d_color;
        let [inverse_0, inverse_x, inverse_y] = d.d_inverse_depth;
        VertexGradient {
            d_color: [0, 1, 2].map(|c| share(color_0[c], color_x[c], color_y[c])),
            d_inverse_depth: share(inverse_0, inverse_x, inverse_y),
            ..VertexGradient::default()
        }
    })
}

/// Returns the gradients of the corners' positions through all dependencies.
fn places_bwd<R: Real>(
    corners: &[Vertex<R>; 3],
    drawn: &Triangle<R>,
    outline: &Incircle<R>,
    d: &TriangleGradient<R>,
) -> [[R; 2]; 3] {
    let &Incircle { edges, lengths, perimeter, doubled_area, weights, centre_px, slopes } = outline;
    // All linear values depend on a pixel minus the centre.
    let d_centre_px = [0, 1].map(|axis| {
        let of_shares: R = (0..3).map(|k| slopes[k][axis] * d.d_shares[k]).sum();
        let of_color = dot(drawn.color[axis + 1], d.d_color[0]);
        -of_shares - of_color - drawn.inverse_depth[axis + 1] * d.d_inverse_depth[0]
    });

    let mut d_px = [[R::ZERO; 2]; 3];
    let mut d_weights = [R::ZERO; 3];
    let mut d_slopes = d.d_slopes;
    for (i, corner) in corners.iter().enumerate() {
        // Gradients of the three numbers of this corner's linear share.
        let d_linear = [0, 1, 2]
            .map(|k| dot(corner.color, d.d_color[k]) + corner.inverse_depth * d.d_inverse_depth[k]);
        let [m_x, m_y] = slopes[i];
        d_weights[i] = d_linear[0] - m_x * d_linear[1] - m_y * d_linear[2];
        d_slopes[i][0] -= weights[i] * d_linear[1];
        d_slopes[i][1] -= weights[i] * d_linear[2];
        // Relative to the centre, because the weights always add up to 1.
        let from_centre = [0, 1].map(|axis| corner.px[axis] - centre_px[axis]);
        d_weights[i] += from_centre[0] * d_centre_px[0] + from_centre[1] * d_centre_px[1];
        d_px[i] = d_centre_px.map(|d| weights[i] * d);
    }

    // m = (e_y, -e_x) / (D b)
    let mut d_doubled_area = R::ZERO;
    let mut d_edges = [[R::ZERO; 2]; 3];
    for i in 0..3 {
        let per = R::ONE / (doubled_area * weights[i]);
        let along = slopes[i][0] * d_slopes[i][0] + slopes[i][1] * d_slopes[i][1];
        d_edges[i] = [-d_slopes[i][1] * per, d_slopes[i][0] * per];
        d_weights[i] -= along / weights[i];
        d_doubled_area -= along / doubled_area;
    }
    let d_sum: R = (0..3).map(|i| d_weights[i] * weights[i]).sum();
    for i in 0..3 {
        let d_length = (d_weights[i] - d_sum) / (perimeter * lengths[i]);
        d_edges[i] = [0, 1].map(|axis| d_edges[i][axis] + edges[i][axis] * d_length);
    }
    // D is the cross product of the edges that face the third corner and the first.
    d_edges[2][0] += edges[0][1] * d_doubled_area;
    d_edges[2][1] -= edges[0][0] * d_doubled_area;
    d_edges[0][1] += edges[2][0] * d_doubled_area;
    d_edges[0][0] -= edges[2][1] * d_doubled_area;
    for (i, d_edge) in d_edges.into_iter().enumerate() {
        for (axis, d) in d_edge.into_iter().enumerate() {
            d_px[(i + 2) % 3][axis] += d;
            d_px[(i + 1) % 3][axis] -= d;
        }
    }
    d_px
}

/// Returns the gradients of the corners' positions through the distances of samples to their nearest edges.
///
/// At a share u along an edge, a sample's distance changes by the edge's motion there: 1 - u of its start's motion
/// and u of its end's. Moving by a px changes the sample's share by |m| a.
fn distances_bwd<R: Real>(
    corners: &[Vertex<R>; 3],
    &Incircle { edges, lengths, centre_px, slopes, .. }: &Incircle<R>,
    d: &TriangleGradient<R>,
) -> [[R; 2]; 3] {
    let mut d_px = [[R::ZERO; 2]; 3];
    for i in 0..3 {
        let (start, end) = ((i + 1) % 3, (i + 2) % 3);
        let from_start = [0, 1].map(|axis| centre_px[axis] - corners[start].px[axis]);
        let along =
            |[x, y]: [R; 2]| (edges[i][0] * x + edges[i][1] * y) / (lengths[i] * lengths[i]);
        let of_end = along(from_start) * d.d_shares[i] + along(d.d_slopes[i]);
        let of_start = d.d_shares[i] - of_end;
        for axis in 0..2 {
            d_px[start][axis] -= slopes[i][axis] * of_start;
            d_px[end][axis] -= slopes[i][axis] * of_end;
        }
    }
    d_px
}

// Opacity, colour and inverse depth of a triangle in a sample.

/// Shape of the opacity's fall-off from a triangle's middle to its edges.
#[derive(Clone, Copy, Debug)]
pub struct FallOff<R> {
    /// s: exponent of the window.
    pub exponent: R,
    /// Width of the strips along the edges in which gradients use the mean slope, px.
    pub strip_px: R,
}

/// A triangle in a sample inside it.
#[derive(Clone, Copy, Debug)]
pub struct TriangleHit<R> {
    /// Sample minus the centre of the inscribed circle, px.
    pub offset_px: [R; 2],
    /// Opacity in the sample.
    pub alpha: R,
    /// Index of the nearest edge, by share.
    edge: usize,
    /// 1 - the share of that edge.
    left: R,
}

/// Gradients of a triangle's values in a sample.
#[derive(Clone, Copy, Debug)]
pub struct HitGradient<R> {
    /// Gradient of the opacity there.
    pub d_alpha: R,
    /// Gradient of the colour there.
    pub d_color: Vec3<R>,
    /// Gradient of the inverse depth there.
    pub d_inverse_depth: R,
}

impl<R: Real> Triangle<R> {
    /// Evaluates the triangle in a sample; `None` if the sample is outside or the opacity too low.
    pub fn hit(&self, sample_px: [R; 2], exponent: R) -> Option<TriangleHit<R>> {
        let offset_px = [sample_px[0] - self.centre_px[0], sample_px[1] - self.centre_px[1]];
        let shares = self.slopes.map(|[x, y]| x * offset_px[0] + y * offset_px[1]);
        let mut edge = 0;
        for other in [1, 2] {
            if shares[other] > shares[edge] {
                edge = other;
            }
        }
        let left = R::ONE - shares[edge];
        let is_inside = left > R::ZERO;
        if !is_inside {
            return None;
        }
        let alpha = self.opacity_at(left, exponent);
        (alpha >= R::of(ALPHA_MIN)).then_some(TriangleHit { offset_px, alpha, edge, left })
    }

    /// Returns the opacity at a remaining share of the way to an edge.
    fn opacity_at(&self, left: R, exponent: R) -> R {
        (self.opacity * (exponent * left.ln()).exp()).min(R::of(TRIANGLE_ALPHA_MAX))
    }

    /// Returns the colour in a sample.
    pub fn color_at(&self, hit: &TriangleHit<R>) -> Vec3<R> {
        let [x, y] = hit.offset_px;
        add(self.color[0], add(scale(self.color[1], x), scale(self.color[2], y)))
    }

    /// Returns the inverse depth in a sample.
    pub fn inverse_depth_at(&self, hit: &TriangleHit<R>) -> R {
        let [x, y] = hit.offset_px;
        self.inverse_depth[0] + self.inverse_depth[1] * x + self.inverse_depth[2] * y
    }

    /// Returns the derivative of the opacity by [`TriangleHit::left`].
    ///
    /// Next to an edge it is the mean over a strip, so that the sum over samples is right on average wherever the
    /// edge lies between them. The slope of a solid triangle is so near to its edges that without a strip no sample
    /// would meet it.
    fn slope_of_opacity(&self, hit: &TriangleHit<R>, fall_off: &FallOff<R>) -> R {
        let &FallOff { exponent, strip_px } = fall_off;
        let [x, y] = self.slopes[hit.edge];
        let strip = (strip_px * (x * x + y * y).sqrt()).min(R::ONE);
        if hit.left < strip {
            self.opacity_at(strip, exponent) / strip
        } else if hit.alpha >= R::of(TRIANGLE_ALPHA_MAX) {
            R::ZERO
        } else {
            exponent * hit.alpha / hit.left
        }
    }

    /// Adds the gradients through a sample's opacity, colour and inverse depth. A clamped opacity passes a gradient
    /// only in the strips along edges.
    pub fn hit_bwd(
        &self,
        hit: &TriangleHit<R>,
        fall_off: &FallOff<R>,
        d: &HitGradient<R>,
        sums: &mut TriangleGradient<R>,
    ) {
        let &HitGradient { d_alpha, d_color, d_inverse_depth } = d;
        let [x, y] = hit.offset_px;
        for (k, by) in [R::ONE, x, y].into_iter().enumerate() {
            sums.d_color[k] = add(sums.d_color[k], scale(d_color, by));
            sums.d_inverse_depth[k] += d_inverse_depth * by;
        }
        if hit.alpha < R::of(TRIANGLE_ALPHA_MAX) {
            sums.d_log_opacity += d_alpha * hit.alpha;
        }
        let d_share = -d_alpha * self.slope_of_opacity(hit, fall_off);
        sums.d_shares[hit.edge] += d_share;
        sums.d_slopes[hit.edge][0] += d_share * x;
        sums.d_slopes[hit.edge][1] += d_share * y;
    }
}

// Pixels that a triangle covers.

/// Growth factor of the variance of a triangle's corners, and the variance added to it, px². An ellipse that covers
/// another needs (1 + p) times its own variance and (1 + 1/p) times the other's. With p = 1/8 the triangle's ellipse
/// covers a circle of 0.54 px more, and so the centres of all pixels with a sample inside, as tiles require.
const COVER_GROWTH: f64 = 1.125;

const COVER_VARIANCE_PX2: f64 = 1.3;

/// Share of the total variance that is added along each axis: single precision cannot represent longer slivers.
const COVER_ROUNDNESS: f64 = 1e-4;

/// Exponent of the ellipse through a triangle's corners, whose conic is the inverse of their variance (Steiner).
const COVER_EXPONENT: f64 = -1.0;

/// Returns the largest distance of a corner from the centroid, px.
pub fn reach_px<R: Real>(corners: &[Vertex<R>; 3]) -> R {
    let middle = middle(corners);
    let squared = corners.iter().map(|corner| {
        let [x, y] = [0, 1].map(|axis| corner.px[axis] - middle[axis]);
        x * x + y * y
    });
    squared.fold(R::ZERO, R::max).sqrt()
}

fn middle<R: Real>(corners: &[Vertex<R>; 3]) -> [R; 2] {
    let third = R::ONE / R::of(3.0);
    [0, 1].map(|axis| (corners[0].px[axis] + corners[1].px[axis] + corners[2].px[axis]) * third)
}

/// Returns the ellipse that covers a triangle and the pixels that may have a sample inside; `None` if there are none.
pub fn cover<R: Real>(corners: &[Vertex<R>; 3], size: [u32; 2]) -> Option<(Ellipse<R>, Bounds<R>)> {
    let mean_px = middle(corners);
    let third = R::ONE / R::of(3.0);
    let mut variance: Sym2<R> = [R::ZERO; 3];
    for corner in corners {
        let [x, y] = [0, 1].map(|axis| corner.px[axis] - mean_px[axis]);
        let share = third * R::of(COVER_GROWTH);
        variance = add(variance, scale([x * x, x * y, y * y], share));
    }
    let more = R::of(COVER_VARIANCE_PX2) + R::of(COVER_ROUNDNESS) * (variance[0] + variance[2]);
    variance = [variance[0] + more, variance[1], variance[2] + more];
    let determinant = variance[0] * variance[2] - variance[1] * variance[1];
    let conic = [variance[2], -variance[1], variance[0]].map(|value| value / determinant);
    let inverse = corners.iter().map(|corner| corner.inverse_depth).sum::<R>() * third;
    let ellipse =
        Ellipse { mean_px, depth: R::ONE / inverse, cov_px2: variance, conic, kept: R::ONE };
    let pixels = pixels(corners, size)?;
    let is_finite = conic.iter().all(|value| value.is_finite());
    is_finite.then_some((ellipse, Bounds { pixels, exponent_min: R::of(COVER_EXPONENT) }))
}

/// Returns the pixels that the corners' bounding box touches.
fn pixels<R: Real>(corners: &[Vertex<R>; 3], size: [u32; 2]) -> Option<Rect> {
    let range = |axis: usize| {
        let values = corners.map(|corner| corner.px[axis]);
        let side = f64::from(size[axis]);
        let low = values[0].min(values[1]).min(values[2]).to_f64().max(0.0);
        let high = values[0].max(values[1]).max(values[2]).to_f64().min(side);
        (low < high).then(|| {
            let first = low.floor_i32().unsigned_abs();
            (first, (high.floor_i32().unsigned_abs() + 1).min(size[axis]))
        })
    };
    let ((x0, x1), (y0, y1)) = (range(0)?, range(1)?);
    (x0 < x1 && y0 < y1).then_some(Rect { x0, y0, x1, y1 })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::math::blend::exponent;
    use crate::math::differences::{assert_near, five_point};
    use crate::math::linalg::{cross, rotation, sub};
    use crate::math::random::{RandomStream, RandomUse};
    use crate::math::splat::{Rect, Spans, TILE, reach_px};

    const SIZE: [u32; 2] = [160, 120];

    const INRADIUS_MIN_PX: f64 = 0.01;

    /// Returns a rotated camera away from the origin.
    pub(in super::super) fn view() -> Viewpoint<f64> {
        Viewpoint {
            rotation: rotation([0.9, 0.1, -0.2, 0.05]),
            translation: [0.1, -0.2, 3.0],
            centre_world: [0.0; 3],
            focal_px: [210.0, 190.0],
            centre_px: [80.0, 61.5],
            size: SIZE,
            near: 0.2,
            variance_px2: 0.0,
            compensates: false,
            cuts_sides: false,
        }
    }

    /// A stream of uniform numbers in -1..1.
    struct Draws(RandomStream, u64);

    impl Draws {
        fn new(stream: u64) -> Self {
            Self(RandomStream::new(9, stream, RandomUse::Initialise), 0)
        }

        fn next(&mut self) -> f64 {
            self.1 += 1;
            2.0 * self.0.uniform(self.1) - 1.0
        }

        fn within(&mut self, low: f64, high: f64) -> f64 {
            low + (high - low) * 0.5 * (self.next() + 1.0)
        }
    }

    /// Returns triangles of both orientations: from a pixel to larger than the image, and slivers.
    fn triangles() -> Vec<[Vertex<f64>; 3]> {
        let of = |(k, size): (u64, f64)| {
            let mut draws = Draws::new(k);
            let middle = [draws.within(20.0, 140.0), draws.within(15.0, 105.0)];
            let width = if k.is_multiple_of(3) { 0.02 } else { 1.0 };
            let along = [draws.next(), draws.next()];
            [0; 3].map(|_| {
                let (a, b) = (size * draws.next(), size * width * draws.next());
                let px = [
                    middle[0] + a * along[0] - b * along[1],
                    middle[1] + a * along[1] + b * along[0],
                ];
                Vertex {
                    px,
                    inverse_depth: draws.within(0.1, 3.0),
                    opacity: draws.within(0.3, 0.9),
                    color: [0; 3].map(|_| draws.within(0.0, 1.0)),
                }
            })
        };
        (0..160).zip([0.7, 3.0, 20.0, 400.0].into_iter().cycle()).map(of).collect()
    }

    fn cross2(a: [f64; 2], b: [f64; 2], c: [f64; 2]) -> f64 {
        (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
    }

    /// Returns the distance of a point inside from the edge opposite corner `i`, px.
    fn distance(px: &[[f64; 2]; 3], place: [f64; 2], i: usize) -> f64 {
        let (a, b) = (px[(i + 1) % 3], px[(i + 2) % 3]);
        (cross2(a, b, place) / (b[0] - a[0]).hypot(b[1] - a[1])).abs()
    }

    /// Returns barycentric weights by areas.
    fn weights([a, b, c]: [[f64; 2]; 3], p: [f64; 2]) -> [f64; 3] {
        let area = cross2(a, b, c);
        [cross2(p, b, c) / area, cross2(a, p, c) / area, cross2(a, b, p) / area]
    }

    /// Returns a random point inside and its barycentric weights.
    fn inside(corners: &[Vertex<f64>; 3], draws: &mut Draws) -> ([f64; 2], [f64; 3]) {
        let raw = [0; 3].map(|_| draws.within(0.02, 1.0));
        let shares = raw.map(|w| w / raw.iter().sum::<f64>());
        let px = [0, 1].map(|axis| (0..3).map(|i| shares[i] * corners[i].px[axis]).sum());
        (px, shares)
    }

    #[test]
    fn linear_values_match_barycentric_weights() {
        let (mut orientations, mut seen) = ([0; 2], 0);
        for (k, corners) in (0..).zip(triangles()) {
            let Some(triangle) = triangle(&corners, INRADIUS_MIN_PX) else { continue };
            let px = corners.map(|corner| corner.px);
            orientations[usize::from(cross2(px[0], px[1], px[2]) > 0.0)] += 1;
            let mut draws = Draws::new(1000 + k);
            for _ in 0..20 {
                let (place, shares) = inside(&corners, &mut draws);
                for (found, share) in weights(px, place).into_iter().zip(shares) {
                    assert_near(found, share, 1e-6, shares);
                }
                let Some(hit) = triangle.hit(place, 0.3) else { continue };
                let color = triangle.color_at(&hit);
                for (channel, found) in color.into_iter().enumerate() {
                    let of_corner = |i: usize| shares[i] * corners[i].color[channel];
                    assert!((found - (0..3).map(of_corner).sum::<f64>()).abs() < 1e-6);
                }
                let inverse_depth: f64 = (0..3).map(|i| shares[i] * corners[i].inverse_depth).sum();
                assert!((triangle.inverse_depth_at(&hit) - inverse_depth).abs() < 1e-6);
                seen += 1;
            }
        }
        assert!(orientations.iter().all(|&n| n > 20) && seen > 1000, "{orientations:?} {seen}");
    }

    #[test]
    fn opacity_falls_with_the_distance_to_the_nearest_edge() {
        for (k, corners) in (0..).zip(triangles()) {
            let Some(triangle) = triangle(&corners, INRADIUS_MIN_PX) else { continue };
            let least = corners.iter().map(|corner| corner.opacity).fold(1.0, f64::min);
            let middle = triangle.hit(triangle.centre_px, 1.0).unwrap();
            assert!((middle.alpha - least).abs() < 1e-12);
            let px = corners.map(|corner| corner.px);
            let nearest =
                |place| (0..3).map(|i| distance(&px, place, i)).fold(f64::INFINITY, f64::min);
            let radius = nearest(triangle.centre_px);
            let mut draws = Draws::new(2000 + k);
            for exponent in [1.0, 0.3, 1e-4] {
                let (place, _) = inside(&corners, &mut draws);
                let expected = least * (nearest(place) / radius).powf(exponent);
                match triangle.hit(place, exponent) {
                    Some(hit) => assert!((hit.alpha - expected).abs() < 1e-6, "{expected}"),
                    None => assert!(expected < ALPHA_MIN + 1e-6, "{expected}"),
                }
                // Outside, at the distance of the circle's radius.
                let opposite = [0, 1].map(|axis| 2.0 * px[0][axis] - triangle.centre_px[axis]);
                assert!(triangle.hit(opposite, exponent).is_none());
            }
        }
    }

    #[test]
    fn inverse_depth_matches_the_plane() {
        let view = view();
        let (mut draws, mut seen) = (Draws::new(1), 0);
        for _ in 0..60 {
            let worlds = [0; 3].map(|_| [0; 3].map(|_| draws.next()));
            let placed = worlds.map(|world| place_vertex(&view, world).unwrap());
            let corners = placed.map(|(px, inverse_depth)| Vertex {
                px,
                inverse_depth,
                opacity: 0.8,
                color: [0.5; 3],
            });
            let Some(triangle) = triangle(&corners, INRADIUS_MIN_PX) else { continue };
            let cams = worlds.map(|world| add(mul(&view.rotation, world), view.translation));
            let normal = cross(sub(cams[1], cams[0]), sub(cams[2], cams[0]));
            for _ in 0..10 {
                let (place, _) = inside(&corners, &mut draws);
                let slope =
                    |axis: usize| (place[axis] - view.centre_px[axis]) / view.focal_px[axis];
                let depth = dot(normal, cams[0]) / dot(normal, [slope(0), slope(1), 1.0]);
                let Some(hit) = triangle.hit(place, 1e-4) else { continue };
                let found = triangle.inverse_depth_at(&hit);
                assert!((found * depth - 1.0).abs() < 1e-9, "{found} {depth}");
                seen += 1;
            }
        }
        assert!(seen > 300, "{seen}");
    }

    /// Asserts an error below 1e-6, relative to the value and a scale.
    fn assert_close(found: f64, expected: f64, scale: f64, what: &str) {
        assert_near(found, expected, 1e-6 * (scale + expected.abs()), what);
    }

    /// Returns a sum with fixed weights over samples of a triangle, to differentiate.
    fn value(triangle: &Triangle<f64>, places: &[[f64; 2]], exponent: f64) -> f64 {
        let of_place = |(k, &place): (usize, &[f64; 2])| {
            let hit = triangle.hit(place, exponent).unwrap();
            let k = k as f64;
            (0.7 - 0.1 * k) * hit.alpha
                + dot([0.3, -0.2 * k, 0.5], triangle.color_at(&hit))
                + (0.2 + 0.1 * k) * triangle.inverse_depth_at(&hit)
        };
        places.iter().enumerate().map(of_place).sum()
    }

    fn value_bwd(
        triangle: &Triangle<f64>,
        places: &[[f64; 2]],
        exponent: f64,
    ) -> TriangleGradient<f64> {
        let mut sums = TriangleGradient::default();
        for (k, &place) in places.iter().enumerate() {
            let hit = triangle.hit(place, exponent).unwrap();
            let k = k as f64;
            let d = HitGradient {
                d_alpha: 0.7 - 0.1 * k,
                d_color: [0.3, -0.2 * k, 0.5],
                d_inverse_depth: 0.2 + 0.1 * k,
            };
            let fall_off = FallOff { exponent, strip_px: 0.0 };
            triangle.hit_bwd(&hit, &fall_off, &d, &mut sums);
        }
        sums
    }

    /// Returns the smallest relative distance between two edges' shares, which is 0 at a kink.
    fn from_kink(triangle: &Triangle<f64>, place: [f64; 2]) -> f64 {
        let d = [place[0] - triangle.centre_px[0], place[1] - triangle.centre_px[1]];
        let mut left = triangle.slopes.map(|[x, y]| 1.0 - (x * d[0] + y * d[1]));
        left.sort_by(f64::total_cmp);
        (left[1] - left[0]).min(left[0])
    }

    /// Returns up to `most` points inside that are visible and not near a kink.
    fn samples(
        corners: &[Vertex<f64>; 3],
        exponent: f64,
        stream: u64,
        most: usize,
    ) -> Vec<[f64; 2]> {
        let Some(drawn) = triangle(corners, INRADIUS_MIN_PX) else { return Vec::new() };
        let mut draws = Draws::new(stream);
        (0..60)
            .map(|_| inside(corners, &mut draws).0)
            .filter(|&place| from_kink(&drawn, place) > 0.05)
            .filter(|&place| drawn.hit(place, exponent).is_some())
            .take(most)
            .collect()
    }

    #[test]
    fn gradients_match_finite_differences() {
        let (mut compared, mut narrow) = (0, 0);
        for (k, corners) in (0..).zip(triangles()) {
            for exponent in [1.0, 0.4, 0.05] {
                let Some(drawn) = triangle(&corners, INRADIUS_MIN_PX) else { continue };
                let places = samples(&corners, exponent, 3000 + k, 5);
                let opacities = corners.map(|corner| corner.opacity);
                let apart = |i: usize| (opacities[i] - opacities[(i + 1) % 3]).abs();
                if places.len() < 5 || (0..3).any(|i| apart(i) < 1e-3) {
                    continue;
                }
                let sums = value_bwd(&drawn, &places, exponent);
                let found =
                    triangle_bwd(&corners, INRADIUS_MIN_PX, PlaceGradients::All, &sums).unwrap();
                let shifted = |i: usize, scale: f64, change: &dyn Fn(&mut Vertex<f64>, f64)| {
                    five_point(1e-4 * scale, |h| {
                        let mut moved = corners;
                        change(&mut moved[i], h);
                        value(&triangle(&moved, INRADIUS_MIN_PX).unwrap(), &places, exponent)
                    })
                };
                // A motion by the triangle's width changes the value by about itself.
                let slopes = drawn.slopes.as_flattened();
                let inradius_px = 1.0 / slopes.iter().map(|m| m.abs()).fold(0.0, f64::max);
                narrow += usize::from(inradius_px < 0.05 * reach_px(&corners));
                for (i, d) in found.iter().enumerate() {
                    for axis in 0..2 {
                        let expected = shifted(i, inradius_px, &|v, h| v.px[axis] += h);
                        assert_close(d.d_px[axis], expected, 1.0 / inradius_px, "place");
                    }
                    let expected = shifted(i, 1.0, &|v, h| v.opacity += h);
                    assert_close(d.d_opacity, expected, 1.0, "opacity");
                    let expected = shifted(i, 1.0, &|v, h| v.inverse_depth += h);
                    assert_close(d.d_inverse_depth, expected, 1.0, "inverse depth");
                    for c in 0..3 {
                        let expected = shifted(i, 1.0, &|v, h| v.color[c] += h);
                        assert_close(d.d_color[c], expected, 1.0, "colour");
                    }
                }
                compared += 1;
            }
        }
        assert!(compared > 200 && narrow > 20, "{compared} {narrow}");
    }

    #[test]
    fn position_gradients_match_finite_differences() {
        let (view, mut draws) = (view(), Draws::new(2));
        for _ in 0..50 {
            let world = [0; 3].map(|_| draws.next());
            let (d_px, d_inverse_depth) = ([draws.next(), draws.next()], draws.next());
            let found = place_vertex_bwd(&view, world, d_px, d_inverse_depth).unwrap();
            for k in 0..3 {
                let expected = five_point(1e-4, |h| {
                    let mut moved = world;
                    moved[k] += h;
                    let (px, inverse_depth) = place_vertex(&view, moved).unwrap();
                    px[0] * d_px[0] + px[1] * d_px[1] + inverse_depth * d_inverse_depth
                });
                assert_close(found[k], expected, 1.0, "world");
            }
        }
    }

    /// Returns the columns of pixels that the ellipse covers in the row of tiles of `y`.
    fn columns<R: Real>(
        (ellipse, bounds): &(Ellipse<R>, Bounds<R>),
        y: u32,
    ) -> std::ops::Range<u32> {
        let row = y / TILE * TILE;
        let spans = Spans::new(ellipse, bounds.exponent_min, SIZE);
        spans.columns(row..(row + TILE).min(SIZE[1]))
    }

    #[test]
    fn cover_contains_every_pixel_with_a_sample_inside() {
        let (mut seen, mut without_centre) = (0, 0);
        for corners in triangles() {
            let Some(triangle) = triangle(&corners, INRADIUS_MIN_PX) else { continue };
            let covered = cover(&corners, SIZE);
            for y in 0..SIZE[1] {
                for x in 0..SIZE[0] {
                    let sample = |k: u32| {
                        [(x, k % 4), (y, k / 4)]
                            .map(|(p, i)| f64::from(p) + (f64::from(i) + 0.5) / 4.0)
                    };
                    if !(0..16).any(|k| triangle.hit(sample(k), 1e-4).is_some()) {
                        continue;
                    }
                    seen += 1;
                    let covered = covered.unwrap();
                    let (ellipse, bounds) = covered;
                    let centre = [x, y].map(|p| f64::from(p) + 0.5);
                    without_centre += usize::from(triangle.hit(centre, 1e-4).is_none());
                    let d = [centre[0] - ellipse.mean_px[0], centre[1] - ellipse.mean_px[1]];
                    let found = exponent(ellipse.conic, d);
                    assert!(found > bounds.exponent_min, "{corners:?} {x} {y}");
                    let Rect { x0, y0, x1, y1 } = bounds.pixels;
                    assert!((x0..x1).contains(&x) && (y0..y1).contains(&y));
                    let columns = columns(&covered, y);
                    assert!(columns.contains(&x), "{columns:?} {x}");
                }
            }
        }
        assert!(seen > 10_000 && without_centre > 100, "{seen} {without_centre}");
    }

    #[test]
    fn long_sliver_is_covered_in_single_precision() {
        for turn in 0..40 {
            let (sin, cos) = (f64::from(turn) * 0.11).sin_cos();
            let at = |along: f64, across: f64| {
                [80.0 + along * cos - across * sin, 60.0 + along * sin + across * cos]
            };
            let corners = [at(-7000.0, -0.3), at(9000.0, 0.0), at(-7000.0, 0.3)].map(|px| Vertex {
                px: px.map(f64::to_f32),
                inverse_depth: 1.0,
                opacity: 1.0,
                color: [0.5; 3],
            });
            let triangle = triangle(&corners, 0.01).unwrap();
            let covered = cover(&corners, SIZE).unwrap();
            for y in 0..SIZE[1] {
                let columns = columns(&covered, y);
                for x in 0..SIZE[0] {
                    let centre = [x, y].map(|p| p as f32 + 0.5);
                    let is_seen = triangle.hit(centre, 1e-4).is_some();
                    assert!(!is_seen || columns.contains(&x), "{turn} {x} {y}");
                }
            }
        }
    }

    #[test]
    fn vertices_behind_the_camera_or_not_finite_are_rejected() {
        let view = Viewpoint { rotation: rotation([1.0, 0.0, 0.0, 0.0]), ..view() };
        let at = |z: f64| place_vertex(&view, [0.1, 0.2, z]);
        assert!(at(-2.7).is_some() && at(-2.85).is_none() && at(-5.0).is_none());
        assert!(at(f64::NAN).is_none() && at(f64::INFINITY).is_none());
        assert!(place_vertex(&view, [f64::INFINITY, 0.0, 0.0]).is_none());
        assert!(place_vertex_bwd(&view, [0.1, 0.2, -5.0], [1.0; 2], 1.0).is_none());
    }

    #[test]
    fn degenerate_transparent_or_outside_triangles_are_rejected() {
        let at = |px: [[f64; 2]; 3], opacity: f64| {
            px.map(|px| Vertex { px, inverse_depth: 1.0, opacity, color: [0.5; 3] })
        };
        let fine = [[10.0, 10.0], [20.0, 11.0], [14.0, 19.0]];
        assert!(triangle(&at(fine, 0.5), INRADIUS_MIN_PX).is_some());
        assert!(triangle(&at(fine, 0.003), INRADIUS_MIN_PX).is_none());
        assert!(triangle(&at(fine, f64::NAN), INRADIUS_MIN_PX).is_none());
        let from_edge = [[10.0, 10.0], [20.0, 20.0], [14.0, 14.0 + 1e-3]];
        assert!(triangle(&at(from_edge, 0.5), INRADIUS_MIN_PX).is_none());
        assert!(triangle(&at([[10.0; 2]; 3], 0.5), 0.0).is_none());
        for value in [f64::NAN, f64::INFINITY, 1e200] {
            let broken = at([[10.0, 10.0], [20.0, value], [14.0, 19.0]], 0.5);
            assert!(triangle(&broken, INRADIUS_MIN_PX).is_none());
            let d = TriangleGradient::default();
            assert!(triangle_bwd(&broken, INRADIUS_MIN_PX, PlaceGradients::All, &d).is_none());
        }
        let beside = fine.map(|[x, y]| [x - 30.0, y]);
        assert!(cover(&at(fine, 0.5), SIZE).is_some() && cover(&at(beside, 0.5), SIZE).is_none());
        let below = fine.map(|[x, y]| [x, y + 120.0]);
        assert!(cover(&at(below, 0.5), SIZE).is_none());
    }

    #[test]
    fn edge_distances_ignore_other_dependencies() {
        let mut compared = 0;
        for (k, corners) in (0..).zip(triangles()) {
            let Some(drawn) = triangle(&corners, INRADIUS_MIN_PX) else { continue };
            let exponent = 0.6;
            let places = samples(&corners, exponent, 4000 + k, 4);
            if places.len() < 4 {
                continue;
            }
            let px = corners.map(|corner| corner.px);
            let inradius_px = distance(&px, drawn.centre_px, 0);
            let nearest = |&place: &[f64; 2]| {
                let away = |&edge: &usize| distance(&px, place, edge);
                (0..3).min_by(|a, b| away(a).total_cmp(&away(b))).unwrap()
            };
            let edges: Vec<usize> = places.iter().map(nearest).collect();
            let mut sums = TriangleGradient::default();
            for &place in &places {
                let hit = drawn.hit(place, exponent).unwrap();
                // Gradients of colours and depths must not move a corner.
                let d =
                    HitGradient { d_alpha: 0.7, d_color: [0.3, -0.2, 0.5], d_inverse_depth: 0.4 };
                drawn.hit_bwd(&hit, &FallOff { exponent, strip_px: 0.0 }, &d, &mut sums);
            }
            let by = |gradients| triangle_bwd(&corners, INRADIUS_MIN_PX, gradients, &sums).unwrap();
            let found = by(PlaceGradients::EdgeDistances);
            let value = |moved: &[[f64; 2]; 3]| -> f64 {
                let of = |(place, &edge): (&[f64; 2], &usize)| {
                    let left = distance(moved, *place, edge) / inradius_px;
                    0.7 * drawn.opacity * left.powf(exponent)
                };
                places.iter().zip(&edges).map(of).sum()
            };
            for (i, d) in found.iter().enumerate() {
                for axis in 0..2 {
                    let expected = five_point(1e-4 * inradius_px, |h| {
                        let mut moved = px;
                        moved[i][axis] += h;
                        value(&moved)
                    });
                    assert_close(d.d_px[axis], expected, 1.0 / inradius_px, "place");
                }
                let whole = &by(PlaceGradients::All)[i];
                assert_eq!((d.d_color, d.d_opacity), (whole.d_color, whole.d_opacity));
                assert_eq!(d.d_inverse_depth, whole.d_inverse_depth);
            }
            compared += 1;
        }
        // More than half of 160 triangles have four samples away from kinks.
        assert!(compared > 60, "{compared}");
    }

    const PLACES: [[f64; 2]; 3] = [[7.0, 9.0], [52.0, 14.0], [21.0, 55.0]];

    fn corners(opacity: f64) -> [Vertex<f64>; 3] {
        PLACES.map(|px| Vertex { px, inverse_depth: 1.0, opacity, color: [0.5; 3] })
    }

    #[test]
    fn clamped_opacity_has_a_gradient_only_in_strips() {
        let drawn = triangle(&corners(1.0), INRADIUS_MIN_PX).unwrap();
        let hit = drawn.hit(drawn.centre_px, 1e-4).unwrap();
        assert_eq!(hit.alpha, TRIANGLE_ALPHA_MAX);
        let mut sums = TriangleGradient::default();
        let fall_off = FallOff { exponent: 1e-4, strip_px: 1.0 };
        let d = HitGradient { d_alpha: 1.0, d_color: [1.0; 3], d_inverse_depth: 1.0 };
        drawn.hit_bwd(&hit, &fall_off, &d, &mut sums);
        assert_eq!((sums.d_log_opacity, sums.d_shares), (0.0, [0.0; 3]));
        assert_eq!((sums.d_color[0], sums.d_inverse_depth[0]), ([1.0; 3], 1.0));

        // Half a pixel from the edge opposite the third corner.
        let edge = 2;
        let [x, y] = drawn.slopes[edge];
        let per_px = x.hypot(y);
        let along = (1.0 - 0.5 * per_px) / (per_px * per_px);
        let place = [drawn.centre_px[0] + x * along, drawn.centre_px[1] + y * along];
        let hit = drawn.hit(place, 1e-4).unwrap();
        let mut sums = TriangleGradient::default();
        drawn.hit_bwd(&hit, &fall_off, &d, &mut sums);
        assert_eq!((hit.alpha, sums.d_log_opacity), (TRIANGLE_ALPHA_MAX, 0.0));
        // Over the last pixel to the edge the whole opacity is lost.
        let expected = -TRIANGLE_ALPHA_MAX / per_px;
        assert!((sums.d_shares[edge] / expected - 1.0).abs() < 1e-12, "{:?}", sums.d_shares);
    }

    /// Returns the gradients of the corners' positions, summed over a grid of samples.
    fn coverage_bwd(corners: &[Vertex<f64>; 3], fall_off: &FallOff<f64>) -> [[f64; 2]; 3] {
        const PER_PX: u32 = 20;
        let drawn = triangle(corners, INRADIUS_MIN_PX).unwrap();
        let mut sums = TriangleGradient::default();
        let cell = 1.0 / f64::from(PER_PX);
        let d = HitGradient { d_alpha: cell * cell, d_color: [0.0; 3], d_inverse_depth: 0.0 };
        for at in 0..(60 * PER_PX).pow(2) {
            let [column, row] = [at % (60 * PER_PX), at / (60 * PER_PX)];
            let place = [column, row].map(|k| (f64::from(k) + 0.5) * cell);
            if let Some(hit) = drawn.hit(place, fall_off.exponent) {
                drawn.hit_bwd(&hit, fall_off, &d, &mut sums);
            }
        }
        triangle_bwd(corners, INRADIUS_MIN_PX, PlaceGradients::All, &sums).unwrap().map(|d| d.d_px)
    }

    #[test]
    fn strips_match_the_gradient_of_the_covered_area() {
        // The last is clamped except in its strips.
        for (opacity, exponent) in [(0.9, 1.0), (0.9, 0.3), (0.9, 1e-4), (1.0, 1e-4)] {
            let corners = corners(opacity);
            // A share (1 - u)² of the area A lies above u of the window, so the opacity's sum is 2 o A / ((s + 1) (s
            // + 2)).
            let per_area = 2.0 * opacity / ((exponent + 1.0) * (exponent + 2.0));
            let found = coverage_bwd(&corners, &FallOff { exponent, strip_px: 1.0 });
            let exact = coverage_bwd(&corners, &FallOff { exponent, strip_px: 0.0 });
            for i in 0..3 {
                let (from, to) = (PLACES[(i + 1) % 3], PLACES[(i + 2) % 3]);
                let expected = [from[1] - to[1], to[0] - from[0]].map(|d| 0.5 * per_area * d);
                let length = expected[0].hypot(expected[1]);
                let error = |d: [f64; 2]| (d[0] - expected[0]).hypot(d[1] - expected[1]) / length;
                // A strip of 1 px is a 15th of the inscribed radius, so it is about a 15th shorter than its edge.
                assert!(error(found[i]) < 0.08, "{exponent}: {:?}, not {expected:?}", found[i]);
                // Without strips no sample meets the slope of a solid triangle.
                assert!(exponent > 0.1 || error(exact[i]) > 0.9, "{:?}", exact[i]);
            }
        }
    }
}
