//! A triangle between three vertices on the screen, opaque or not (MeshSplatting, Held et al. 2025; the window is
//! that of Triangle Splatting, Held et al. 2025).
//!
//! With c the centre of the triangle's inscribed circle, r its radius, nᵢ the outward normal of the edge that
//! faces corner i, and d a pixel less c, the share of the way from c to that edge is
//!
//! tᵢ = mᵢ·d with mᵢ = nᵢ / r, which is 0 in c and 1 on the edge.
//!
//! Inside all shares are below 1. There the opacity is o (1 - max tᵢ)^s: with s = 1 a pyramid, with s near 0 a
//! solid triangle. Gradients of an edge are averaged over a strip inside it ([`FallOff`]). What is linear between
//! the corners follows from the same slopes: the barycentric weight of corner i is bᵢ (1 - tᵢ), with bᵢ the length of
//! the edge that faces it over the perimeter. Colours are linear on the screen, as the reference has them; inverse
//! depths really are.

#[cfg(test)]
mod strip_tests;
#[cfg(test)]
mod tests;

use super::projection::Viewpoint;
use crate::math::Real;
use crate::math::blend::ALPHA_MIN;
use crate::math::linalg::{Vec3, add, dot, mul, mul_transposed, scale};

/// Largest opacity of a triangle in a sample: a solid one leaves next to nothing of what is behind.
pub const TRIANGLE_ALPHA_MAX: f64 = 0.999;

/// A vertex as a view shows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Vertex<R> {
    /// Place, px.
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
    /// Of the place, per px.
    pub d_px: [R; 2],
    /// Of the inverse depth.
    pub d_inverse_depth: R,
    /// Of the opacity.
    pub d_opacity: R,
    /// Of the colour.
    pub d_color: Vec3<R>,
}

/// Where a place in the world is on the screen, and its inverse depth; `None` where it is not beyond
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

/// `d_world` of [`place_vertex`]; nothing where that gives nothing.
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

/// A value that is linear on the screen: at the centre of the inscribed circle, and its slopes, per px.
pub type Linear<V> = [V; 3];

/// A triangle on the screen; see the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct Triangle<R> {
    /// c: centre of the inscribed circle, px.
    pub centre_px: [R; 2],
    /// m: slopes of the shares, per px; each of the edge that faces that corner.
    pub slopes: [[R; 2]; 3],
    /// Smallest opacity of its corners.
    pub opacity: R,
    /// Colour.
    pub color: Linear<Vec3<R>>,
    /// Inverse depth, per world unit.
    pub inverse_depth: Linear<R>,
}

/// Gradients of [`Triangle`], summed over samples. That of the centre follows from the others.
#[derive(Clone, Copy, Debug, Default)]
pub struct TriangleGradient<R> {
    /// Of the shares.
    pub d_shares: [R; 3],
    /// Of their slopes.
    pub d_slopes: [[R; 2]; 3],
    /// Of the opacity's logarithm.
    pub d_log_opacity: R,
    /// Of the colour.
    pub d_color: Linear<Vec3<R>>,
    /// Of the inverse depth.
    pub d_inverse_depth: Linear<R>,
}

impl<R: Real> TriangleGradient<R> {
    /// Adds what other samples give.
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

/// What the corners' places alone decide.
struct Incircle<R> {
    /// Of each corner the edge that faces it, px.
    edges: [[R; 2]; 3],
    lengths: [R; 3],
    perimeter: R,
    /// Twice the area, negative where the corners run the other way.
    doubled_area: R,
    /// b
    weights: [R; 3],
    centre_px: [R; 2],
    slopes: [[R; 2]; 3],
}

/// Nothing where the radius of the inscribed circle is not above `inradius_min_px`.
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

/// The triangle between three vertices; nothing where it is too narrow, or too transparent to be seen.
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

/// The corner of the smallest opacity, of equal ones the first, and that opacity.
fn least_opacity<R: Real>(corners: &[Vertex<R>; 3]) -> (usize, R) {
    let mut least = (0, corners[0].opacity);
    for (i, corner) in corners.iter().enumerate().skip(1) {
        if corner.opacity < least.1 {
            least = (i, corner.opacity);
        }
    }
    least
}

/// `d_corners` of [`triangle`]; nothing where that gives nothing. The opacity's gradient is that of the corner
/// which decides it.
pub fn triangle_bwd<R: Real>(
    corners: &[Vertex<R>; 3],
    inradius_min_px: R,
    d: &TriangleGradient<R>,
) -> Option<[VertexGradient<R>; 3]> {
    let drawn = triangle(corners, inradius_min_px)?;
    let Incircle { edges, lengths, perimeter, doubled_area, weights, centre_px, slopes } =
        outline(corners.map(|corner| corner.px), inradius_min_px)?;
    let mut d_corners = [VertexGradient::default(); 3];
    let (least, opacity) = least_opacity(corners);
    d_corners[least].d_opacity = d.d_log_opacity / opacity;

    // A pixel less the centre is in all that is linear.
    let d_centre_px = [0, 1].map(|axis| {
        let of_shares: R = (0..3).map(|k| slopes[k][axis] * d.d_shares[k]).sum();
        let of_color = dot(drawn.color[axis + 1], d.d_color[0]);
        -of_shares - of_color - drawn.inverse_depth[axis + 1] * d.d_inverse_depth[0]
    });

    let mut d_weights = [R::ZERO; 3];
    let mut d_slopes = d.d_slopes;
    for (i, corner) in corners.iter().enumerate() {
        // Of the three numbers that stand for this corner's share of what is linear.
        let d_linear = [0, 1, 2]
            .map(|k| dot(corner.color, d.d_color[k]) + corner.inverse_depth * d.d_inverse_depth[k]);
        let [m_x, m_y] = slopes[i];
        d_weights[i] = d_linear[0] - m_x * d_linear[1] - m_y * d_linear[2];
        d_slopes[i][0] -= weights[i] * d_linear[1];
        d_slopes[i][1] -= weights[i] * d_linear[2];
        let share = |d0: R, d_x: R, d_y: R| weights[i] * (d0 - m_x * d_x - m_y * d_y);
        let [color_0, color_x, color_y] = d.d_color;
        d_corners[i].d_color = [0, 1, 2].map(|c| share(color_0[c], color_x[c], color_y[c]));
        let [inverse_0, inverse_x, inverse_y] = d.d_inverse_depth;
        d_corners[i].d_inverse_depth = share(inverse_0, inverse_x, inverse_y);
        // Relative to the centre: all weights together are 1, whatever happens.
        let from_centre = [0, 1].map(|axis| corner.px[axis] - centre_px[axis]);
        d_weights[i] += from_centre[0] * d_centre_px[0] + from_centre[1] * d_centre_px[1];
        d_corners[i].d_px = d_centre_px.map(|d| weights[i] * d);
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
            d_corners[(i + 2) % 3].d_px[axis] += d;
            d_corners[(i + 1) % 3].d_px[axis] -= d;
        }
    }
    Some(d_corners)
}

/// How the opacity of a triangle falls off from its middle to its edges.
#[derive(Clone, Copy, Debug)]
pub struct FallOff<R> {
    /// s
    pub exponent: R,
    /// Width of the strips along the edges in which gradients take the mean slope, px.
    pub strip_px: R,
}

/// A triangle in a sample that it changes.
#[derive(Clone, Copy, Debug)]
pub struct TriangleHit<R> {
    /// The sample less the centre, px.
    pub offset_px: [R; 2],
    /// Opacity there.
    pub alpha: R,
    /// The edge that is nearest, by its share.
    edge: usize,
    /// What is left to that edge: 1 - its share.
    left: R,
}

/// Gradients of what a sample takes of a triangle.
#[derive(Clone, Copy, Debug)]
pub struct HitGradient<R> {
    /// Of the opacity there.
    pub d_alpha: R,
    /// Of the colour there.
    pub d_color: Vec3<R>,
    /// Of the inverse depth there.
    pub d_inverse_depth: R,
}

impl<R: Real> Triangle<R> {
    /// In a sample at this place; nothing where it leaves it as it is.
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

    /// Where so much of the way to an edge is left.
    fn opacity_at(&self, left: R, exponent: R) -> R {
        (self.opacity * (exponent * left.ln()).exp()).min(R::of(TRIANGLE_ALPHA_MAX))
    }

    /// Colour in a sample.
    pub fn color_at(&self, hit: &TriangleHit<R>) -> Vec3<R> {
        let [x, y] = hit.offset_px;
        add(self.color[0], add(scale(self.color[1], x), scale(self.color[2], y)))
    }

    /// Inverse depth in a sample.
    pub fn inverse_depth_at(&self, hit: &TriangleHit<R>) -> R {
        let [x, y] = hit.offset_px;
        self.inverse_depth[0] + self.inverse_depth[1] * x + self.inverse_depth[2] * y
    }

    /// What the opacity grows by with [`TriangleHit::left`].
    ///
    /// Next to an edge it is the mean over a strip. Wherever the edge lies between samples, these together then
    /// give what they give on average. Of a solid triangle all of the slope is so near to the edge that without
    /// a strip no sample would meet it.
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

    /// Adds what a sample gives: the gradients of its opacity, its colour and its inverse depth. Where the opacity
    /// was held at the largest, only strips along edges pass one.
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
