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
mod distance_tests;
mod hit;
#[cfg(test)]
mod strip_tests;
#[cfg(test)]
mod tests;

pub use hit::{FallOff, HitGradient, TriangleHit};

use serde::{Deserialize, Serialize};

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

/// What gradients of a vertex's place follow.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub enum PlaceGradients {
    /// All that depends on it.
    #[default]
    All,
    /// Only how far samples are from their nearest edges, as if the inscribed circle stayed as large, and how deep the
    /// vertex itself is: neither what colours and depths are between the corners, nor the directions in which harmonics
    /// are seen. As the program of MeshSplatting (Held et al. 2025) has them.
    EdgeDistances,
}

/// `d_corners` of [`triangle`]; nothing where that gives nothing. The opacity's gradient is that of the corner
/// which decides it.
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

/// The gradients of the corners' colours and inverse depths.
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

/// The gradients of the corners' places by all that depends on them.
fn places_bwd<R: Real>(
    corners: &[Vertex<R>; 3],
    drawn: &Triangle<R>,
    outline: &Incircle<R>,
    d: &TriangleGradient<R>,
) -> [[R; 2]; 3] {
    let &Incircle { edges, lengths, perimeter, doubled_area, weights, centre_px, slopes } = outline;
    // A pixel less the centre is in all that is linear.
    let d_centre_px = [0, 1].map(|axis| {
        let of_shares: R = (0..3).map(|k| slopes[k][axis] * d.d_shares[k]).sum();
        let of_color = dot(drawn.color[axis + 1], d.d_color[0]);
        -of_shares - of_color - drawn.inverse_depth[axis + 1] * d.d_inverse_depth[0]
    });

    let mut d_px = [[R::ZERO; 2]; 3];
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
        // Relative to the centre: all weights together are 1, whatever happens.
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

/// The same by the distances of samples to the nearest edges alone.
///
/// At a share u of the way along an edge a sample goes off it by as much as the edge moves there: its start counts
/// 1 - u, its end u. Off an edge by a px is to lose a share |m| a of the way to it.
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
