//! Multi-view photometric consistency: normalised cross-correlation of a patch with another view's photograph under
//! the homography of the plane that the patch's middle pixel shows (PGSR, Chen et al. 2024, with the constants of
//! GGGS, 2601.17835).
//!
//! The plane n · X = h in camera axes goes through the point t r at depth t on the middle pixel's ray
//! r = (x/z, y/z, 1). The inverse depth of the pixel with ray r + δ is (1 + g · δ) / t with the tilt
//! g = (n.x, n.y) / (n · r). It contains only differences of rays, so nothing cancels. The other camera sees the point in
//! the direction R (r + δ) + T (1 + g · δ) / t, which is H = `K_s` (R + T n' / h) `K_r`⁻¹ for one pixel.

use super::Real;
use super::linalg::{Mat3, Vec3, add, dot, length, mul, scale};

/// Number of pixels along a side of a patch.
pub const PATCH_SIDE: usize = 7;

/// Number of pixels of a patch.
pub const PATCH_PIXELS: usize = PATCH_SIDE * PATCH_SIDE;

/// Number of pixels between the middle of a patch and its side.
pub const PATCH_REACH: u32 = 3;

/// Offset of patch variances, in squared grey values of 0..1.
pub const VARIANCE_FLOOR: f64 = 1e-5;

/// Smallest standard deviation of a patch that can be located.
pub const CONTRAST_MIN: f64 = 0.01;

/// Largest cosine between a plane's normal and the ray towards it. Above, the plane is seen at less than 6 degrees or
/// from its back.
pub const FACING_MAX: f64 = -0.1;

/// Correlation below which the patch is hidden in the other view. PGSR drops such patches. Here they cost as much as
/// a patch of this correlation and have no gradient, so that the loss has no step and cannot fall by making patches
/// worse.
pub const AGREEMENT_MIN: f64 = 0.1;

/// Camera of the other view, relative to the reference view.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OtherCamera<R> {
    /// Rotation from reference to other camera axes.
    pub rotation: Mat3<R>,
    /// Translation in the other camera's axes, world units.
    pub translation: Vec3<R>,
    /// Focal lengths, px.
    pub focal_px: [R; 2],
    /// Principal point, px.
    pub centre_px: [R; 2],
    /// Size of the image, px.
    pub size: [u32; 2],
}

impl OtherCamera<f64> {
    /// Converts to another precision.
    pub fn cast<R: Real>(&self) -> OtherCamera<R> {
        OtherCamera {
            rotation: self.rotation.map(|row| row.map(R::of)),
            translation: self.translation.map(R::of),
            focal_px: self.focal_px.map(R::of),
            centre_px: self.centre_px.map(R::of),
            size: self.size,
        }
    }
}

/// Position of a reference ray's point in the other view.
#[derive(Clone, Copy, Debug)]
pub struct OtherPlace<R> {
    /// Position, px.
    pub px: [R; 2],
    /// x/z and y/z in the other camera.
    slopes: [R; 2],
    /// Depth in the other view times the inverse depth in the reference view.
    depth_ratio: R,
}

impl<R: Real> OtherCamera<R> {
    /// Projects the point of an inverse depth on the reference ray of these slopes; `None` if it lies behind the
    /// camera.
    pub fn place(&self, [x, y]: [R; 2], inverse_depth: R) -> Option<OtherPlace<R>> {
        let turned = mul(&self.rotation, [x, y, R::ONE]);
        let [x, y, depth_ratio] = add(turned, scale(self.translation, inverse_depth));
        // Written so that NaN is rejected, too.
        (depth_ratio > R::ZERO).then(|| {
            let slopes = [x / depth_ratio, y / depth_ratio];
            let px = [0, 1].map(|axis| self.focal_px[axis] * slopes[axis] + self.centre_px[axis]);
            OtherPlace { px, slopes, depth_ratio }
        })
    }

    /// Returns `d_inverse_depth` of [`Self::place`].
    pub fn place_bwd(&self, place: &OtherPlace<R>, d_px: [R; 2]) -> R {
        let along = |axis: usize| {
            let moved = self.translation[axis] - place.slopes[axis] * self.translation[2];
            d_px[axis] * self.focal_px[axis] * moved
        };
        (along(0) + along(1)) / place.depth_ratio
    }
}

/// The plane that a pixel shows.
#[derive(Clone, Copy, Debug)]
pub struct PatchPlane<R> {
    /// Unit normal in camera axes, towards the camera.
    pub normal: Vec3<R>,
    /// Depth of the pixel along the view axis, world units.
    pub depth: R,
    /// x/z and y/z of the pixel.
    pub slopes: [R; 2],
}

/// Gradients of [`PatchPlane`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PatchPlaneGradient<R> {
    /// Gradient of the normal.
    pub d_normal: Vec3<R>,
    /// Gradient of the depth.
    pub d_depth: R,
}

impl<R: Real> PatchPlane<R> {
    fn ray(&self) -> Vec3<R> {
        [self.slopes[0], self.slopes[1], R::ONE]
    }

    /// True if the plane faces the camera enough to be compared.
    pub fn faces(&self) -> bool {
        let ray = self.ray();
        dot(self.normal, ray) <= R::of(FACING_MAX) * length(ray)
    }

    /// Returns the derivative of the inverse depth by the slopes, relative to the pixel's inverse depth.
    pub fn tilt(&self) -> [R; 2] {
        let along = dot(self.normal, self.ray());
        [self.normal[0] / along, self.normal[1] / along]
    }

    /// Returns `d_normal` of [`Self::tilt`].
    fn tilt_bwd(&self, tilt: [R; 2], d_tilt: [R; 2]) -> Vec3<R> {
        let along = dot(self.normal, self.ray());
        let d_along = -(tilt[0] * d_tilt[0] + tilt[1] * d_tilt[1]) / along;
        add([d_tilt[0] / along, d_tilt[1] / along, R::ZERO], scale(self.ray(), d_along))
    }

    /// Returns the plane's inverse depth at an offset of slopes from the pixel.
    pub fn inverse_depth(&self, tilt: [R; 2], from_middle: [R; 2]) -> R {
        (R::ONE + tilt[0] * from_middle[0] + tilt[1] * from_middle[1]) / self.depth
    }

    /// Returns the plane's gradient from all `d` of [`Self::inverse_depth`]: `d_sum` is their sum, `d_moment` their
    /// sum times the offsets.
    pub fn inverse_depth_bwd(
        &self,
        tilt: [R; 2],
        d_sum: R,
        d_moment: [R; 2],
    ) -> PatchPlaneGradient<R> {
        let d_tilt = d_moment.map(|d| d / self.depth);
        let relative = d_sum + tilt[0] * d_moment[0] + tilt[1] * d_moment[1];
        PatchPlaneGradient {
            d_normal: self.tilt_bwd(tilt, d_tilt),
            d_depth: -relative / (self.depth * self.depth),
        }
    }
}

/// Returns the grey value of a colour, 0..1 (luma of ITU-R BT.601).
#[inline]
pub fn grey<R: Real>([red, green, blue]: [u8; 3]) -> R {
    let value = |byte: u8| R::of(f64::from(byte));
    let sum = R::of(0.299) * value(red) + R::of(0.587) * value(green) + R::of(0.114) * value(blue);
    sum * R::of(1.0 / 255.0)
}

/// A bilinear sample of a photograph.
#[derive(Clone, Copy, Debug)]
pub struct GreySample<R> {
    /// Grey value.
    pub value: R,
    /// Slopes along x and y, per px.
    pub slope: [R; 2],
}

/// Samples a photograph at a position in px; `None` outside the pixels' centres, or if one of the four pixels is
/// masked.
pub fn bilinear<R: Real>(
    place_px: [R; 2],
    size: [u32; 2],
    grey_at: impl Fn([u32; 2]) -> Option<R>,
) -> Option<GreySample<R>> {
    let at = place_px.map(|px| px - R::HALF);
    let first = at.map(|at| u32::try_from(at.floor_i32()).ok());
    let [x, y] = [first[0]?, first[1]?];
    if x + 1 >= size[0] || y + 1 >= size[1] {
        return None;
    }
    let share = [at[0] - R::of(f64::from(x)), at[1] - R::of(f64::from(y))];
    let [upper_left, upper_right] = [grey_at([x, y])?, grey_at([x + 1, y])?];
    let [lower_left, lower_right] = [grey_at([x, y + 1])?, grey_at([x + 1, y + 1])?];
    let between = |from: R, to: R, share: R| from + share * (to - from);
    let upper = between(upper_left, upper_right, share[0]);
    let lower = between(lower_left, lower_right, share[0]);
    Some(GreySample {
        value: between(upper, lower, share[1]),
        slope: [
            between(upper_right - upper_left, lower_right - lower_left, share[1]),
            lower - upper,
        ],
    })
}

/// Statistics of two patches.
#[derive(Clone, Copy, Debug)]
pub struct Correlation<R> {
    mean_a: R,
    mean_b: R,
    /// Standard deviation of the first patch, without [`VARIANCE_FLOOR`].
    pub contrast: R,
    /// 1 / (`sd_a` `sd_b`).
    inverse_product: R,
    /// 1 / `sd_b`².
    inverse_variance: R,
    /// Normalised cross-correlation, -1..1.
    pub ncc: R,
}

/// Correlates two patches.
pub fn correlation<R: Real>(a: &[R; PATCH_PIXELS], b: &[R; PATCH_PIXELS]) -> Correlation<R> {
    let count = R::of(PATCH_PIXELS as f64);
    let mean = |values: &[R; PATCH_PIXELS]| values.iter().copied().sum::<R>() / count;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let moment = |of: &dyn Fn(R, R) -> R| {
        let each = a.iter().zip(b).map(|(&a, &b)| of(a - mean_a, b - mean_b));
        each.sum::<R>() / count
    };
    let plain = moment(&|a, _| a * a);
    let floor = R::of(VARIANCE_FLOOR);
    let (variance_a, variance_b) = (plain + floor, moment(&|_, b| b * b) + floor);
    let inverse_product = R::ONE / (variance_a * variance_b).sqrt();
    Correlation {
        mean_a,
        mean_b,
        contrast: plain.sqrt(),
        inverse_product,
        inverse_variance: R::ONE / variance_b,
        ncc: moment(&|a, b| a * b) * inverse_product,
    }
}

impl<R: Real> Correlation<R> {
    /// Returns the gradient of [`Self::ncc`] by a pixel of the second patch, from the pixel's values.
    pub fn ncc_bwd(&self, a: R, b: R) -> R {
        let by_a = (a - self.mean_a) * self.inverse_product;
        let by_b = self.ncc * (b - self.mean_b) * self.inverse_variance;
        (by_a - by_b) / R::of(PATCH_PIXELS as f64)
    }

    /// Returns the patch's term of the loss.
    pub fn cost(&self) -> R {
        R::ONE - self.ncc.max(R::of(AGREEMENT_MIN))
    }

    /// True if the cost has a gradient (-1 times the correlation's).
    pub fn is_seen(&self) -> bool {
        self.ncc >= R::of(AGREEMENT_MIN)
    }
}

/// Result of comparing a patch.
#[derive(Clone, Copy, Debug)]
pub struct ComparedPatch<R> {
    /// 1 - correlation, at most 1 - [`AGREEMENT_MIN`].
    pub cost: R,
    /// Gradient of the cost; `None` if the patch is hidden in the other view.
    pub gradient: Option<PatchPlaneGradient<R>>,
}

/// Returns the grey values of the patch around a pixel, row by row; `None` if the patch leaves the image or has a
/// masked pixel.
pub fn patch_at<R: Real>(
    middle: [u32; 2],
    size: [u32; 2],
    grey_at: impl Fn([u32; 2]) -> Option<R>,
) -> Option<[R; PATCH_PIXELS]> {
    let is_inside =
        |axis: usize| middle[axis] >= PATCH_REACH && middle[axis] + PATCH_REACH < size[axis];
    if !is_inside(0) || !is_inside(1) {
        return None;
    }
    let corner = middle.map(|at| at - PATCH_REACH);
    let mut values = [R::ZERO; PATCH_PIXELS];
    for ([column, row], value) in places().zip(&mut values) {
        *value = grey_at([corner[0] + column, corner[1] + row])?;
    }
    Some(values)
}

/// Returns columns and rows of a patch's pixels, row by row.
fn places() -> impl Iterator<Item = [u32; 2]> {
    let side = 0..2 * PATCH_REACH + 1;
    side.clone().flat_map(move |row| side.clone().map(move |column| [column, row]))
}

/// Compares the patch around a pixel with the other photograph. `step` is the difference of slopes of neighbouring
/// pixels. `None` if the plane is seen too obliquely, the patch has no contrast, or a pixel is not in the other
/// photograph.
pub fn compare<R: Real>(
    plane: &PatchPlane<R>,
    step: [R; 2],
    patch: &[R; PATCH_PIXELS],
    other: &OtherCamera<R>,
    grey_at: impl Fn([u32; 2]) -> Option<R>,
) -> Option<ComparedPatch<R>> {
    if !plane.faces() {
        return None;
    }
    let tilt = plane.tilt();
    let from_middle = |[column, row]: [u32; 2]| {
        let away = |at: u32, step: R| R::of(f64::from(at) - f64::from(PATCH_REACH)) * step;
        [away(column, step[0]), away(row, step[1])]
    };
    let mut found = [R::ZERO; PATCH_PIXELS];
    let mut slopes = found;
    for (k, at) in places().enumerate() {
        let away = from_middle(at);
        let inverse_depth = plane.inverse_depth(tilt, away);
        if inverse_depth <= R::ZERO {
            return None;
        }
        let ray = [plane.slopes[0] + away[0], plane.slopes[1] + away[1]];
        let place = other.place(ray, inverse_depth)?;
        let sample = bilinear(place.px, other.size, &grey_at)?;
        found[k] = sample.value;
        slopes[k] = other.place_bwd(&place, sample.slope);
    }
    let correlation = correlation(patch, &found);
    if correlation.contrast < R::of(CONTRAST_MIN) {
        return None;
    }
    let gradient = correlation.is_seen().then(|| {
        let (mut d_sum, mut d_moment) = (R::ZERO, [R::ZERO; 2]);
        for (k, at) in places().enumerate() {
            let d_inverse_depth = -correlation.ncc_bwd(patch[k], found[k]) * slopes[k];
            let away = from_middle(at);
            d_sum += d_inverse_depth;
            d_moment[0] += d_inverse_depth * away[0];
            d_moment[1] += d_inverse_depth * away[1];
        }
        plane.inverse_depth_bwd(tilt, d_sum, d_moment)
    });
    Some(ComparedPatch { cost: correlation.cost(), gradient })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::differences::{assert_near, central};
    use crate::math::linalg::{mul_transposed, rotation, sub};
    use crate::math::random::{RandomStream, RandomUse};

    const SIZE: [u32; 2] = [61, 53];

    const FOCAL_PX: [f64; 2] = [60.0, 57.0];

    const CENTRE_PX: [f64; 2] = [30.2, 26.9];

    /// Returns the texture at a point in the reference's camera axes: smooth, without repetition, projected along z.
    fn painted(point: Vec3<f64>) -> f64 {
        let [x, y, _] = point;
        0.5 + 0.2 * (20.0 * x + 1.3 * y).sin() + 0.2 * (16.0 * y - 2.1 * x + 0.7).cos()
    }

    fn other() -> OtherCamera<f64> {
        OtherCamera {
            rotation: rotation([0.99, 0.02, -0.08, 0.03]),
            translation: [0.21, -0.04, 0.05],
            focal_px: [52.0, 55.0],
            centre_px: [28.7, 27.4],
            size: SIZE,
        }
    }

    fn slopes(px: [f64; 2]) -> [f64; 2] {
        [0, 1].map(|axis| (px[axis] - CENTRE_PX[axis]) / FOCAL_PX[axis])
    }

    fn plane_at(middle: [u32; 2], normal: Vec3<f64>, depth: f64) -> PatchPlane<f64> {
        let slopes = slopes(middle.map(|at| f64::from(at) + 0.5));
        let unit = scale(normal, 1.0 / length(normal));
        PatchPlane { normal: unit, depth, slopes }
    }

    /// Returns the point of a plane on a ray of the reference.
    fn point_of(plane: &PatchPlane<f64>, [x, y]: [f64; 2]) -> Vec3<f64> {
        let from_middle = [x - plane.slopes[0], y - plane.slopes[1]];
        scale([x, y, 1.0], 1.0 / plane.inverse_depth(plane.tilt(), from_middle))
    }

    /// Intersects a ray of the other camera with the plane n · X = h.
    fn point_from_other(
        plane: &PatchPlane<f64>,
        camera: &OtherCamera<f64>,
        px: [f64; 2],
    ) -> Vec3<f64> {
        let ray = [0, 1].map(|axis| (px[axis] - camera.centre_px[axis]) / camera.focal_px[axis]);
        let direction = mul_transposed(&camera.rotation, [ray[0], ray[1], 1.0]);
        let centre = scale(mul_transposed(&camera.rotation, camera.translation), -1.0);
        let on_plane = scale([plane.slopes[0], plane.slopes[1], 1.0], plane.depth);
        let far = dot(plane.normal, sub(on_plane, centre)) / dot(plane.normal, direction);
        add(centre, scale(direction, far))
    }

    const STEP: [f64; 2] = [1.0 / FOCAL_PX[0], 1.0 / FOCAL_PX[1]];

    const NORMAL: Vec3<f64> = [0.25, -0.31, -0.9];

    fn grey_of_reference(plane: &PatchPlane<f64>, [x, y]: [u32; 2]) -> f64 {
        painted(point_of(plane, slopes([x, y].map(|at| f64::from(at) + 0.5))))
    }

    /// Compares a patch of the true plane under another plane, with an affine change of the grey values.
    fn compared(
        truth: &PatchPlane<f64>,
        guess: &PatchPlane<f64>,
        middle: [u32; 2],
    ) -> Option<ComparedPatch<f64>> {
        let patch = patch_at(middle, SIZE, |at| Some(grey_of_reference(truth, at)))?;
        let camera = other();
        let seen = |[x, y]: [u32; 2]| {
            let point = point_from_other(truth, &camera, [x, y].map(|at| f64::from(at) + 0.5));
            Some(0.7 * painted(point) + 0.1)
        };
        compare(guess, STEP, &patch, &camera, seen)
    }

    #[test]
    fn true_plane_matches_under_an_affine_change_of_grey() {
        for (middle, depth) in [([30, 26], 1.4), ([22, 31], 1.1), ([38, 20], 2.0)] {
            let plane = plane_at(middle, NORMAL, depth);
            let right = compared(&plane, &plane, middle).unwrap();
            // The photograph is linear between pixels. Waves of 14 to 20 pixels lose 1 to 3 % of their height, each a
            // different share. The variance floor takes 5e-4.
            assert!(right.cost.abs() < 3e-3, "{middle:?}: {}", right.cost);
            let nearer = PatchPlane { depth: 0.85 * depth, ..plane };
            let wrong = compared(&plane, &nearer, middle).unwrap();
            assert!(wrong.cost > 0.05, "{middle:?}: {}", wrong.cost);
        }
    }

    #[test]
    fn positions_match_the_homography() {
        let plane = plane_at([30, 26], NORMAL, 1.4);
        let (camera, tilt) = (other(), plane.tilt());
        // Hartley and Zisserman: K_s (R + T n' / h) K_r⁻¹.
        let middle = [plane.slopes[0], plane.slopes[1], 1.0];
        let h = plane.depth * dot(plane.normal, middle);
        let homography: Mat3<f64> = [0, 1, 2].map(|row| {
            [0, 1, 2]
                .map(|k| camera.rotation[row][k] + camera.translation[row] * plane.normal[k] / h)
        });
        for px in [[27.5, 23.5], [33.5, 29.5], [30.5, 26.5]] {
            let [x, y] = slopes(px);
            let away = [x - plane.slopes[0], y - plane.slopes[1]];
            let place = camera.place([x, y], plane.inverse_depth(tilt, away)).unwrap();
            let [u, v, w] = mul(&homography, [x, y, 1.0]);
            for (axis, slope) in [u / w, v / w].into_iter().enumerate() {
                let expected = camera.focal_px[axis] * slope + camera.centre_px[axis];
                // Rounding of numbers of about 60.
                assert_near(place.px[axis], expected, 1e-12, px);
            }
        }
    }

    /// Step of the differences. Wider steps would cross squares of pixels, where the photograph's slope jumps.
    const STEP_OF_DIFFERENCES: f64 = 1e-6;

    #[test]
    fn gradients_match_finite_differences() {
        let mut draws =
            (0..).map(|index| RandomStream::new(5, 0, RandomUse::Sample).uniform(index));
        let mut draw = |low: f64, high: f64| low + (high - low) * draws.next().unwrap();
        let mut with_gradient = 0;
        for _ in 0..60 {
            let middle =
                [20.0, 18.0].map(|least| draw(least, least + 20.0).floor_i32().unsigned_abs());
            let depth = draw(1.0, 2.0);
            let truth = plane_at(middle, [draw(-0.6, 0.6), draw(-0.6, 0.6), -1.0], depth);
            let guess = PatchPlane {
                depth: depth * draw(0.95, 1.05),
                ..plane_at(middle, [draw(-0.6, 0.6), draw(-0.6, 0.6), -1.0], depth)
            };
            let cost =
                |plane: &PatchPlane<f64>| compared(&truth, plane, middle).map(|all| all.cost);
            let Some(ComparedPatch { gradient: Some(found), .. }) =
                compared(&truth, &guess, middle)
            else {
                continue;
            };
            with_gradient += 1;
            let close = |found: f64, moved: &dyn Fn(&mut PatchPlane<f64>, f64)| {
                let expected = central(STEP_OF_DIFFERENCES, |by| {
                    let mut plane = guess;
                    moved(&mut plane, by);
                    cost(&plane).unwrap()
                });
                // The step has an error of 1e-12 times the third derivative; rounding adds 1e-16 / 1e-6.
                assert_near(found, expected, 1e-7 + 1e-6 * expected.abs(), guess);
            };
            close(found.d_depth, &|plane, by| plane.depth += by);
            for axis in 0..3 {
                close(found.d_normal[axis], &|plane, by| plane.normal[axis] += by);
            }
        }
        assert!(with_gradient >= 40, "{with_gradient} patches have a gradient");
    }

    #[test]
    fn uninformative_patches_are_skipped() {
        let middle = [30, 26];
        let plane = plane_at(middle, NORMAL, 1.4);
        let camera = other();
        let patch = patch_at(middle, SIZE, |at| Some(grey_of_reference(&plane, at))).unwrap();
        let plain = |_| Some(0.5);
        let striped = |[x, _]: [u32; 2]| Some(f64::from(x % 5) / 5.0);
        let is_compared = |plane: &PatchPlane<f64>, patch: &[f64; PATCH_PIXELS]| {
            compare(plane, STEP, patch, &camera, striped).is_some()
        };
        assert!(is_compared(&plane, &patch));
        // Without contrast, oblique, and from behind.
        assert!(!is_compared(&plane, &[0.5; PATCH_PIXELS]));
        assert!(!is_compared(&plane_at(middle, [1.0, 0.0, -0.05], 1.4), &patch));
        assert!(!is_compared(&plane_at(middle, [0.0, 0.0, 1.0], 1.4), &patch));
        // Partly outside the other image: its left half is missing.
        let edge =
            camera.place(plane.slopes, 1.0 / plane.depth).unwrap().px[0] - camera.centre_px[0];
        let beside = OtherCamera { centre_px: [-edge, camera.centre_px[1]], ..camera };
        assert!(compare(&plane, STEP, &patch, &beside, striped).is_none());
        // Behind the other camera.
        let behind = OtherCamera { translation: [0.0, 0.0, -9.0], ..camera };
        assert!(compare(&plane, STEP, &patch, &behind, striped).is_none());
        // With a masked pixel in either photograph.
        let hidden = |at: [u32; 2]| (at != [29, 25]).then_some(0.5);
        assert!(patch_at(middle, SIZE, hidden).is_none());
        let around = camera.place(plane.slopes, 1.0 / plane.depth).unwrap().px;
        let masked = |at: [u32; 2]| {
            let is_there = (0..2).all(|axis| f64::from(at[axis]) <= around[axis]);
            (!is_there).then_some(0.5)
        };
        assert!(compare(&plane, STEP, &patch, &camera, masked).is_none());
        // At the border of the reference image.
        for middle in [[2, 26], [30, 2], [58, 26], [30, 50]] {
            assert!(patch_at(middle, SIZE, plain).is_none(), "{middle:?}");
        }
        assert!(patch_at([57, 49], SIZE, plain).is_some());
    }

    #[test]
    fn hidden_patches_have_a_cost_but_no_gradient() {
        let middle = [30, 26];
        let plane = plane_at(middle, NORMAL, 1.4);
        let patch = patch_at(middle, SIZE, |at| Some(grey_of_reference(&plane, at))).unwrap();
        let camera = other();
        let negative = |[x, y]: [u32; 2]| {
            let point = point_from_other(&plane, &camera, [x, y].map(|at| f64::from(at) + 0.5));
            Some(1.0 - painted(point))
        };
        let found = compare(&plane, STEP, &patch, &camera, negative).unwrap();
        assert_eq!((found.cost, found.gradient), (0.9, None));
    }
}
