//! Stage `normals`: compares the normals of drawn depths with the drawn normals or with the photograph's normal map,
//! and computes the gradients.

use std::mem;

use rayon::prelude::*;

use super::blend::Canvas;
use super::depth::{self, ComparedDepths};
use crate::abi::terms::NormalDepths;
use crate::dataset::Image;
use crate::math::Real;
use crate::math::linalg::dot;
use crate::math::normals::{
    OPAQUE_MIN, blended_normal, blended_normal_bwd, is_smooth, mapped_normal, slope, slope_bwd,
    surface_normal, surface_normal_bwd,
};
use crate::math::splat::Viewpoint;
use crate::memory::Bytes;

/// Comparison of a frame's normals with its depths.
#[derive(Debug)]
pub(crate) struct ComparedNormals<R> {
    /// Unweighted mean over all pixels.
    pub(crate) mean: f64,
    /// Weighted gradient of depth and of x and y of the normals, `[height, width, 3]`.
    pub(crate) d_surface: Vec<R>,
    /// Gradient of the final transmittance, `[height, width]`, or empty.
    pub(crate) d_through: Vec<R>,
    /// Gradient of the median depths, `[height, width]`; empty if they are not compared.
    pub(crate) d_medians: Vec<R>,
}

impl<R: Real> ComparedNormals<R> {
    /// Returns an empty comparison.
    pub(crate) fn none() -> Self {
        let nothing = Vec::new;
        Self { mean: 0.0, d_surface: nothing(), d_through: nothing(), d_medians: nothing() }
    }

    /// Fills missing gradients with zeros.
    pub(crate) fn make_room(&mut self, pixels: usize) {
        self.d_surface.resize(3 * pixels, R::ZERO);
        self.d_through.resize(pixels, R::ZERO);
        self.d_medians.resize(pixels, R::ZERO);
    }

    pub(crate) fn bytes(&self) -> Bytes {
        let all = [&self.d_surface, &self.d_through, &self.d_medians];
        Bytes::of::<R>(all.into_iter().map(Vec::capacity).sum())
    }
}

/// Depths and normals of a view that are compared.
struct ComparedSurface<R> {
    /// Depths, `[height, width]`; 0 if missing.
    depths: Vec<R>,
    /// x and y of the normals, `[height, width]`.
    normals: Vec<[R; 2]>,
}

impl<R: Real> ComparedSurface<R> {
    fn new(canvas: &Canvas<R>, mask: Option<&[u8]>, of: NormalDepths) -> Self {
        let sums = canvas.surface.as_chunks::<4>().0;
        match of {
            NormalDepths::All => Self {
                depths: sums.iter().map(|pixel| pixel[0]).collect(),
                normals: sums.iter().map(|pixel| [pixel[1], pixel[2]]).collect(),
            },
            NormalDepths::Opaque | NormalDepths::Median => {
                let shown = |(at, &[depth, x, y, opacity]): (usize, &[R; 4])| {
                    let is_excluded = mask.is_some_and(|mask| mask[at] == 0);
                    if is_excluded || opacity < R::of(OPAQUE_MIN) {
                        return (R::ZERO, [R::ZERO; 2]);
                    }
                    let medians =
                        canvas.median_depths.get(at).filter(|_| of == NormalDepths::Median);
                    let depth = medians.copied().unwrap_or(depth / opacity);
                    (depth, [x / opacity, y / opacity])
                };
                let (depths, normals) = sums.iter().enumerate().map(shown).unzip();
                Self { depths, normals }
            }
        }
    }
}

/// Error of one pixel and its gradients.
#[derive(Clone, Copy, Debug)]
struct NormalPixel<R> {
    disagreement: R,
    /// Gradient of the depth slopes along x and y.
    d_slopes: [R; 2],
    /// Gradient of x and y of the normal.
    d_normal: [R; 2],
}

/// Maps of a view.
#[derive(Clone, Copy)]
struct SurfaceMapsOf<'a, R> {
    map: SlopedMap<'a, R>,
    of: NormalDepths,
    /// x and y of the normals, `[height, width]`.
    normals: &'a [[R; 2]],
}

/// Compares the normals of a frame with those of its depths.
pub(crate) fn compare<R: Real>(
    canvas: &Canvas<R>,
    view: &Viewpoint<R>,
    target: &Image,
    of: NormalDepths,
    weight: f64,
) -> ComparedNormals<R> {
    let shown = ComparedSurface::new(canvas, target.mask.as_deref(), of);
    let map = SlopedMap { view, depths: &shown.depths, smooth: of != NormalDepths::All };
    let maps = SurfaceMapsOf { map, of, normals: &shown.normals };
    let pixels = canvas.surface.len() / 4;
    let d_mean = R::of(weight / pixels as f64);
    let of_pixels: Vec<NormalPixel<R>> =
        (0..pixels).into_par_iter().map(|pixel| maps.pixel(map.at(pixel), d_mean)).collect();
    let mean = depth::mean(pixels, |pixel| of_pixels[pixel].disagreement.to_f64());
    let d_shown = (0..pixels).into_par_iter().map(|pixel| {
        let [x, y] = of_pixels[pixel].d_normal;
        [map.d_depth(map.at(pixel), |beside| of_pixels[beside].d_slopes), x, y]
    });
    let mut d_shown: Vec<[R; 3]> = d_shown.collect();
    let d_medians = match of {
        NormalDepths::All | NormalDepths::Opaque => Vec::new(),
        // The drawn depths are not compared.
        NormalDepths::Median => d_shown.iter_mut().map(|d| mem::take(&mut d[0])).collect(),
    };
    let [d_surface, d_through] = match of {
        NormalDepths::All => [d_shown.into_flattened(), Vec::new()],
        NormalDepths::Opaque | NormalDepths::Median => over_opacity_bwd(canvas, &shown, d_shown),
    };
    ComparedNormals { mean, d_surface, d_through, d_medians }
}

/// Returns the gradients of the blended maps and of the final transmittance, from those of depths and normals that
/// were divided by the opacity.
fn over_opacity_bwd<R: Real>(
    canvas: &Canvas<R>,
    shown: &ComparedSurface<R>,
    mut d_shown: Vec<[R; 3]>,
) -> [Vec<R>; 2] {
    let opacities = canvas.surface.as_chunks::<4>().0.iter().map(|pixel| pixel[3]);
    let values = shown.depths.iter().zip(&shown.normals).zip(opacities);
    let d_through = d_shown
        .iter_mut()
        .zip(values)
        .map(|(d_shown, ((&depth, &[x, y]), opacity))| {
            if depth <= R::ZERO {
                return R::ZERO;
            }
            *d_shown = d_shown.map(|d| d / opacity);
            dot(*d_shown, [depth, x, y])
        })
        .collect();
    [d_shown.into_flattened(), d_through]
}

impl<R: Real> SurfaceMapsOf<'_, R> {
    /// Returns the error of a pixel. With [`NormalDepths::All`], a missing depth normal counts as a right angle.
    fn pixel(&self, at: [u32; 2], d_mean: R) -> NormalPixel<R> {
        let Some(slopes) = self.map.slopes(at) else {
            let disagreement = match self.of {
                NormalDepths::All => R::ONE,
                NormalDepths::Opaque | NormalDepths::Median => R::ZERO,
            };
            let nothing = [R::ZERO; 2];
            return NormalPixel { disagreement, d_slopes: nothing, d_normal: nothing };
        };
        let view = self.map.view;
        let (xy, ray) = (self.normals[view.index(at)], view.slopes(at));
        let (drawn, expected) = (blended_normal(xy), surface_normal(slopes, ray));
        NormalPixel {
            disagreement: R::ONE - dot(drawn, expected),
            d_slopes: surface_normal_bwd(slopes, ray, drawn.map(|n| -(n * d_mean))),
            d_normal: blended_normal_bwd(xy, expected.map(|n| -(n * d_mean))),
        }
    }
}

/// Depths of a view's pixels, or their inverses. Slopes of inverse depths have the opposite sign, since
/// (1/b - 1/a) / (1/a + 1/b) = (a - b) / (a + b), and depth steps are at the same pixels.
#[derive(Clone, Copy)]
pub(crate) struct SlopedMap<'a, R> {
    pub(crate) view: &'a Viewpoint<R>,
    /// Depths, `[height, width]`; 0 if missing.
    pub(crate) depths: &'a [R],
    /// True if pixels beside a depth step have no slope.
    pub(crate) smooth: bool,
}

impl<R: Real> SlopedMap<'_, R> {
    /// Returns the coordinates of a pixel index.
    pub(crate) fn at(&self, index: usize) -> [u32; 2] {
        let width = self.view.size[0] as usize;
        [index % width, index / width].map(|side| u32::try_from(side).unwrap_or(u32::MAX))
    }

    pub(crate) fn depth(&self, at: [u32; 2]) -> R {
        self.depths[self.view.index(at)]
    }

    /// Returns the previous and next pixels along an axis, if both exist.
    fn beside(&self, at: [u32; 2], axis: usize) -> Option<[[u32; 2]; 2]> {
        let (mut before, mut behind) = (at, at);
        before[axis] = at[axis].checked_sub(1)?;
        behind[axis] = at[axis] + 1;
        (behind[axis] < self.view.size[axis]).then_some([before, behind])
    }

    fn slope(&self, at: [u32; 2], axis: usize) -> Option<R> {
        let [before, behind] = self.beside(at, axis)?.map(|at| self.depth(at));
        let focal_px = self.view.focal_px[axis];
        let is_smooth = |beside| is_smooth(focal_px, self.depth(at), beside);
        let counts = !self.smooth || (is_smooth(before) && is_smooth(behind));
        counts.then(|| slope(focal_px, before, behind)).flatten()
    }

    /// Returns the slopes at a pixel along x and y, if both exist.
    pub(crate) fn slopes(&self, at: [u32; 2]) -> Option<[R; 2]> {
        Some([self.slope(at, 0)?, self.slope(at, 1)?])
    }

    /// Returns the gradient of a depth from those of the slopes of its four neighbours, given by pixel index.
    pub(crate) fn d_depth(&self, at: [u32; 2], d_slopes: impl Fn(usize) -> [R; 2]) -> R {
        let mut sum = R::ZERO;
        for axis in 0..2 {
            let mut beside = [at; 2];
            beside[0][axis] = at[axis].wrapping_sub(1);
            beside[1][axis] = at[axis] + 1;
            for (side, place) in beside.into_iter().enumerate() {
                if place[axis] >= self.view.size[axis] || self.slope(place, axis).is_none() {
                    continue;
                }
                let Some(ends) = self.beside(place, axis) else { continue };
                let [before, behind] = ends.map(|at| self.depth(at));
                let d_slope = d_slopes(self.view.index(place))[axis];
                let d = slope_bwd(self.view.focal_px[axis], before, behind, d_slope);
                // For the previous pixel, this pixel is the next one.
                sum += d[1 - side];
            }
        }
        sum
    }
}

/// Compares the normals of a frame's inverse depths with the photograph's map of equal size; `None` without a map.
///
/// A pixel counts if the map has a normal there, the pixel and its four neighbours have depths and are not masked, and
/// there is no depth step between them. Other pixels have no error; the mean of 1 - cos is over all pixels.
/// The selection has no gradient.
pub(crate) fn compare_with_map<R: Real>(
    canvas: &Canvas<R>,
    view: &Viewpoint<R>,
    target: &Image,
    weight: f64,
) -> Option<ComparedDepths<R>> {
    let mapped = target.normals.as_ref()?.values.as_chunks::<3>().0;
    let mask = target.mask.as_deref();
    let shown = |(at, &drawn): (usize, &R)| {
        let is_excluded = mask.is_some_and(|mask| mask[at] == 0);
        if is_excluded { R::ZERO } else { drawn }
    };
    let shown: Vec<R> = canvas.inverse_depths.iter().enumerate().map(shown).collect();
    let map = SlopedMap { view, depths: &shown, smooth: true };
    let pixels = shown.len();
    let d_mean = R::of(weight / pixels as f64);
    let of_pixel = |pixel: usize| {
        let at = map.at(pixel);
        let compared = mapped_normal(mapped[pixel]).zip(map.slopes(at));
        compared.map_or((R::ZERO, [R::ZERO; 2]), |(expected, inverse)| {
            // Slopes of inverse depths have the opposite sign.
            let (slopes, ray) = (inverse.map(|slope| -slope), view.slopes(at));
            let disagreement = R::ONE - dot(surface_normal(slopes, ray), expected);
            let d_normal = expected.map(|n| -(n * d_mean));
            (disagreement, surface_normal_bwd(slopes, ray, d_normal).map(|d| -d))
        })
    };
    let of_pixels: Vec<(R, [R; 2])> = (0..pixels).into_par_iter().map(of_pixel).collect();
    let mean = depth::mean(pixels, |pixel| of_pixels[pixel].0.to_f64());
    let d_inverse_depths = (0..pixels)
        .into_par_iter()
        .map(|pixel| map.d_depth(map.at(pixel), |beside| of_pixels[beside].1))
        .collect();
    Some(ComparedDepths { mean, d_inverse_depths })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::DrawSettings;
    use crate::dataset::NormalMap;
    use crate::math::differences::{assert_near, five_point};
    use crate::math::linalg::{Vec3, cross, normalize, scale, sub};
    use crate::math::normals::STORED_ONE;
    use crate::math::random::{RandomStream, RandomUse};

    const SIZE: [u32; 2] = [11, 8];

    const PIXELS: usize = 88;

    fn view() -> Viewpoint<f64> {
        Viewpoint {
            rotation: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
            translation: [0.0; 3],
            centre_world: [0.0; 3],
            focal_px: [13.0, 9.0],
            centre_px: [5.2, 4.9],
            size: SIZE,
            near: 0.01,
            variance_px2: 0.3,
            compensates: false,
            cuts_sides: false,
        }
    }

    const WEIGHT: f64 = 1.7;

    /// Creates a canvas with this surface map.
    fn canvas(surface: Vec<f64>) -> Canvas<f64> {
        let settings = DrawSettings { surface: true, ..DrawSettings::DEFAULT };
        let mut canvas = Canvas::blank(SIZE, &settings);
        assert_eq!(canvas.surface.len(), surface.len());
        canvas.surface = surface;
        canvas
    }

    fn photo(mask: Option<Vec<u8>>, normals: Option<NormalMap>) -> Image {
        let [width, height] = SIZE;
        Image { width, height, rgb: vec![0; 3 * PIXELS], mask, depth: None, normals }
    }

    fn compared(surface: &[f64], of: NormalDepths, mask: Option<Vec<u8>>) -> ComparedNormals<f64> {
        compare(&canvas(surface.to_vec()), &view(), &photo(mask, None), of, WEIGHT)
    }

    const BOTH: [NormalDepths; 2] = [NormalDepths::All, NormalDepths::Opaque];

    /// Returns the ray through a pixel's centre.
    fn ray(pixel: usize) -> Vec3<f64> {
        let (view, width) = (view(), SIZE[0] as usize);
        let at = [pixel % width, pixel / width];
        let [x, y] = [0, 1].map(|i| (at[i] as f64 + 0.5 - view.centre_px[i]) / view.focal_px[i]);
        [x, y, 1.0]
    }

    /// Returns the maps of a plane with this unit normal through a point of the view axis.
    fn plane(normal: Vec3<f64>, depth: f64) -> Vec<f64> {
        let depth = |pixel| depth * normal[2] / dot(normal, ray(pixel));
        (0..PIXELS).flat_map(|pixel| [depth(pixel), normal[0], normal[1], 1.0]).collect()
    }

    /// Returns the index of a pixel.
    fn at([x, y]: [usize; 2]) -> usize {
        y * SIZE[0] as usize + x
    }

    const CENTRE: [usize; 2] = [5, 4];

    /// The centre and its four neighbours.
    const AROUND: [[usize; 2]; 5] = [CENTRE, [4, 4], [6, 4], [5, 3], [5, 5]];

    /// Returns a mask that excludes one pixel.
    fn mask_without(pixel: [usize; 2]) -> Vec<u8> {
        (0..PIXELS).map(|other| if other == at(pixel) { 0 } else { 255 }).collect()
    }

    /// Share of border pixels.
    const BORDER: f64 = 34.0 / 88.0;

    #[test]
    fn a_plane_at_any_angle_disagrees_at_the_border_only() {
        for along in [[0.0, 0.0], [0.7, 0.0], [0.0, -0.7], [0.5, 0.4], [-0.9, 0.6]] {
            let normal = normalize([along[0], along[1], -1.0]);
            for (of, expected) in BOTH.into_iter().zip([BORDER, 0.0]) {
                let found = compared(&plane(normal, 2.5), of, None).mean;
                // Rounding of a hundred terms.
                assert_near(found, expected, 1e-13, along);
            }
            // A flipped plane disagrees everywhere unless it faces the camera.
            let turned = normalize([-along[0], -along[1], -1.0]);
            let mut surface = plane(normal, 2.5);
            for pixel in surface.as_chunks_mut::<4>().0 {
                (pixel[1], pixel[2]) = (turned[0], turned[1]);
            }
            let expected = BORDER + (1.0 - BORDER) * (1.0 - dot(turned, normal));
            assert_near(compared(&surface, NormalDepths::All, None).mean, expected, 1e-13, along);
        }
    }

    #[test]
    fn normals_of_depths_match_the_unprojected_points() {
        let (view, draws) = (view(), RandomStream::new(3, 1, RandomUse::Sample));
        let surface: Vec<f64> =
            (0..PIXELS as u64).flat_map(|i| [1.0 + draws.uniform(i), 0.0, 0.0, 1.0]).collect();
        let shown = ComparedSurface::new(&canvas(surface), None, NormalDepths::All);
        let map = SlopedMap { view: &view, depths: &shown.depths, smooth: false };
        let point = |at: [u32; 2]| {
            let [x, y] = view.slopes(at);
            scale([x, y, 1.0], map.depth(at))
        };
        for [x, y] in (1..10).flat_map(|x| (1..7).map(move |y| [x, y])) {
            let down = sub(point([x, y + 1]), point([x, y - 1]));
            let along = sub(point([x + 1, y]), point([x - 1, y]));
            let expected = normalize(cross(down, along));
            let found = surface_normal(map.slopes([x, y]).expect("depths"), view.slopes([x, y]));
            for (found, expected) in found.into_iter().zip(expected) {
                assert_near(found, expected, 1e-13, [x, y]);
            }
        }
    }

    #[test]
    fn gradients_of_the_maps_agree_with_their_differences() {
        let draws = RandomStream::new(3, 0, RandomUse::Sample);
        let mut surface: Vec<f64> = (0..PIXELS as u64 * 4)
            .map(|i| draws.uniform(i))
            .enumerate()
            .map(|(i, u)| [1.0 + u, 1.2 * u - 0.6, 1.2 * u - 0.6, 0.2 + 0.8 * u][i % 4])
            .collect();
        // Two pixels on both sides of another have no depth.
        surface[4 * (3 * 11 + 4)] = 0.0;
        surface[4 * (3 * 11 + 6)] = 0.0;
        // A depth of 0 makes the slopes beside it jump.
        let has_jump = |pixel: usize| surface[pixel * 4] == 0.0;
        assert_gradients(&surface, NormalDepths::All, has_jump);
    }

    /// Compares the gradients of the maps with differences, except those of depths that `leaves_out` selects.
    fn assert_gradients(surface: &[f64], of: NormalDepths, leaves_out: impl Fn(usize) -> bool) {
        let found = compared(surface, of, None);
        for at in (0..PIXELS).flat_map(|pixel| (0..4).map(move |channel| [pixel, channel])) {
            let [pixel, channel] = at;
            if channel == 0 && leaves_out(pixel) {
                continue;
            }
            let expected = five_point(1e-4, |by| {
                let mut surface = surface.to_vec();
                surface[pixel * 4 + channel] += by;
                WEIGHT * compared(&surface, of, None).mean
            });
            let found = match channel {
                // The opacity is 1 less the transmittance.
                3 => -found.d_through.get(pixel).copied().unwrap_or(0.0),
                _ => found.d_surface[pixel * 3 + channel],
            };
            // The rounding error is 1e-16 / 1e-4.
            assert_near(found, expected, 1e-7 * found.abs().max(1e-4), (of, at));
        }
    }

    /// Returns a bumpy wall with opacities from 0.6 to 1.
    fn bumpy() -> Vec<f64> {
        let draws = RandomStream::new(3, 2, RandomUse::Sample);
        let mut unit = (0..).map(|at| draws.uniform(at));
        let mut next = |low: f64, high: f64| low + (high - low) * unit.next().unwrap_or(0.5);
        let pixel = |_| {
            let opacity = next(0.6, 1.0);
            [2.0 + next(0.0, 0.3), next(-0.6, 0.6), next(-0.6, 0.6), 1.0].map(|v| v * opacity)
        };
        (0..PIXELS).flat_map(pixel).collect()
    }

    #[test]
    fn gradients_over_the_opacity_agree_with_their_differences() {
        let mut surface = bumpy();
        // One transparent pixel, and one beyond a depth step.
        surface[4 * (3 * 11 + 4) + 3] = 0.2;
        surface[4 * (5 * 11 + 7)] *= 3.0;
        assert_gradients(&surface, NormalDepths::Opaque, |_| false);
        assert!(compared(&surface, NormalDepths::All, None).d_through.is_empty());
    }

    #[test]
    fn only_opaque_pixels_away_from_outlines_count() {
        let surface = bumpy();
        let compared = |surface: &[f64], mask| compared(surface, NormalDepths::Opaque, mask);
        let counts = |found: &ComparedNormals<f64>, pixel| {
            found.d_surface[3 * at(pixel) + 1..3 * at(pixel) + 3] != [0.0; 2]
        };
        let all = compared(&surface, None);
        assert!(AROUND.iter().all(|&pixel| counts(&all, pixel)));
        let mut transparent = surface.clone();
        transparent[4 * at(CENTRE) + 3] = 0.4;
        let mut far = surface.clone();
        far[4 * at(CENTRE)] *= 4.0;
        for (case, surface, mask) in [
            ("transparent", &transparent, None),
            ("far", &far, None),
            ("masked", &surface, Some(mask_without(CENTRE))),
        ] {
            let found = compared(surface, mask);
            for pixel in (1..10).flat_map(|x| (1..7).map(move |y| [x, y])) {
                assert_eq!(counts(&found, pixel), !AROUND.contains(&pixel), "{case}: {pixel:?}");
            }
            // A depth that no pixel uses has no gradient.
            assert_eq!(found.d_surface[3 * at(CENTRE)], 0.0, "{case}");
            assert_eq!(found.d_through[at(CENTRE)], 0.0, "{case}");
        }
        // Drawing nothing gives no reward.
        assert_eq!(compared(&[0.0; PIXELS * 4], None).mean, 0.0);
    }

    #[test]
    fn grazing_normals_and_missing_depths_give_finite_results() {
        let mut surface = plane(normalize([1.0, 0.2, -0.46]), 2.5);
        for (i, pixel) in surface.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            pixel[0] = pixel[0].abs();
            match i % 5 {
                0 => (pixel[1], pixel[2]) = (0.6, 0.8),
                1 => (pixel[1], pixel[2]) = (3.0, -1.0),
                2 => pixel[0] = 0.0,
                3 => pixel[0] *= 1e-30,
                _ => {}
            }
        }
        for of in BOTH {
            let found = compared(&surface, of, None);
            assert!((0.0..=2.0).contains(&found.mean), "{}", found.mean);
            assert!(found.d_surface.iter().all(|d| d.is_finite()));
        }
        // Empty pixels have no surface.
        let nothing = compared(&[0.0; PIXELS * 4], NormalDepths::All, None);
        assert_eq!(nothing.mean, 1.0);
        assert!(nothing.d_surface.iter().all(|&d| d == 0.0));
    }

    /// Number of pixels with four neighbours.
    const INNER: f64 = 9.0 * 6.0;

    const NONE: [i8; 3] = [0; 3];

    fn compared_with_map(
        inverse_depths: &[f64],
        normals: &[[i8; 3]],
        mask: Option<Vec<u8>>,
    ) -> ComparedDepths<f64> {
        let mut canvas = Canvas::blank(SIZE, &DrawSettings::DEFAULT);
        canvas.inverse_depths = inverse_depths.to_vec();
        let normals = NormalMap { values: normals.as_flattened().to_vec() };
        let photo = photo(mask, Some(normals));
        compare_with_map(&canvas, &view(), &photo, WEIGHT).expect("a map")
    }

    /// Encodes a normal as a map stores it.
    fn stored(normal: Vec3<f64>) -> [i8; 3] {
        let value = |component: f64| (component * STORED_ONE).round().floor_i32();
        normal.map(|component| i8::try_from(value(component)).unwrap())
    }

    /// Returns the inverse depths of a plane with this normal through a point of the view axis, at this opacity.
    fn inverse_plane(normal: Vec3<f64>, depth: f64, opacity: f64) -> Vec<f64> {
        let inverse = |pixel| opacity * dot(normal, ray(pixel)) / (depth * normal[2]);
        (0..PIXELS).map(inverse).collect()
    }

    #[test]
    fn normals_of_an_oblique_plane_do_not_depend_on_opacity() {
        for along in [[0.0, 0.0], [0.7, 0.0], [0.0, -0.7], [0.5, 0.4], [-0.6, 0.5]] {
            let normal = normalize([along[0], along[1], -1.0]);
            let turned = normalize([-along[0], -along[1], -1.0]);
            for opacity in [1.0, 0.3] {
                let inverse_depths = inverse_plane(normal, 2.5, opacity);
                for map in [normal, turned, normal.map(|n| -n)] {
                    let found = compared_with_map(&inverse_depths, &[stored(map); PIXELS], None);
                    // Decoding an 8-bit normal is exact.
                    let kept: Vec3<f64> = mapped_normal(stored(map)).unwrap();
                    let expected = INNER / PIXELS as f64 * (1.0 - dot(kept, normal));
                    assert_near(found.mean, expected, 1e-13, (along, opacity));
                    assert!(map != normal || found.mean < 1e-4, "{along:?}: {}", found.mean);
                }
            }
        }
    }

    /// Returns a bumpy wall and a map of random normals, some of them missing.
    fn bumpy_inverses() -> (Vec<f64>, Vec<[i8; 3]>) {
        let draws = RandomStream::new(3, 2, RandomUse::Sample);
        let uniform =
            |at: usize, low: f64, high: f64| low + (high - low) * draws.uniform(at as u64);
        let inverse_depths = (0..PIXELS).map(|at| uniform(at, 0.4, 0.5)).collect();
        let leaning = |pixel: usize| {
            let [x, y] = [0, 1].map(|axis| uniform(PIXELS * (axis + 1) + pixel, -0.8, 0.8));
            if pixel % 7 == 3 { NONE } else { stored(normalize([x, y, -1.0])) }
        };
        (inverse_depths, (0..PIXELS).map(leaning).collect())
    }

    #[test]
    fn gradients_of_inverse_depths_agree_with_their_differences() {
        let (mut inverse_depths, normals) = bumpy_inverses();
        // One pixel without depth, and one beyond a depth step.
        (inverse_depths[3 * 11 + 4], inverse_depths[5 * 11 + 7]) = (0.0, 1.5);
        let compared = |inverse_depths: &[f64]| {
            compared_with_map(inverse_depths, &normals, Some(mask_without([8, 2])))
        };
        let mut large = 0;
        for (pixel, found) in compared(&inverse_depths).d_inverse_depths.into_iter().enumerate() {
            let expected = five_point(1e-5, |by| {
                let mut inverse_depths = inverse_depths.clone();
                // Raising an empty pixel above 0 would be a jump.
                inverse_depths[pixel] += if inverse_depths[pixel] > 0.0 { by } else { 0.0 };
                WEIGHT * compared(&inverse_depths).mean
            });
            // The rounding error is 1e-17 / 1e-5.
            assert_near(found, expected, 1e-6 * found.abs().max(1e-4), pixel);
            large += usize::from(found.abs() > 1e-3);
        }
        assert!(large > 40, "{large} gradients tell");
    }

    #[test]
    fn pixel_without_both_normals_adds_nothing() {
        let (inverse_depths, mut normals) = bumpy_inverses();
        // A map with a normal at one pixel shows whether that pixel counts.
        let alone = |pixel: [usize; 2], inverse_depths: &[f64], mask: Option<Vec<u8>>| {
            let mut single = vec![NONE; PIXELS];
            single[at(pixel)] = stored(normalize([0.9, 0.0, -0.4]));
            compared_with_map(inverse_depths, &single, mask)
        };
        let counts = |found: &ComparedDepths<f64>| {
            let has_gradient = found.d_inverse_depths.iter().any(|&d| d != 0.0);
            assert_eq!(found.mean > 0.0, has_gradient);
            has_gradient
        };
        let mut empty = inverse_depths.clone();
        empty[at(CENTRE)] = 0.0;
        let mut near = inverse_depths.clone();
        near[at(CENTRE)] *= 4.0;
        for pixel in (0..11).flat_map(|x| (0..8).map(move |y| [x, y])) {
            let is_inner = (1..10).contains(&pixel[0]) && (1..7).contains(&pixel[1]);
            assert_eq!(counts(&alone(pixel, &inverse_depths, None)), is_inner, "{pixel:?}");
            let counts_beside = is_inner && !AROUND.contains(&pixel);
            for (case, inverse_depths, mask) in [
                ("empty", &empty, None),
                ("near", &near, None),
                ("masked", &inverse_depths, Some(mask_without(CENTRE))),
            ] {
                let found = counts(&alone(pixel, inverse_depths, mask));
                assert_eq!(found, counts_beside, "{case}: {pixel:?}");
            }
        }
        // Stored normals shorter than half the unit length count as missing.
        for (short, is_none) in [([0, 64, 0], false), ([0, 63, 0], true), ([36, -36, 36], true)] {
            normals.fill(short);
            let found = counts(&compared_with_map(&inverse_depths, &normals, None));
            assert_eq!(!found, is_none, "{short:?}");
        }
        assert_eq!(compared_with_map(&[0.0; PIXELS], &normals, None).mean, 0.0);
    }

    #[test]
    fn photograph_without_a_map_is_not_compared() {
        let canvas = Canvas::blank(SIZE, &DrawSettings::DEFAULT);
        assert!(compare_with_map(&canvas, &view(), &photo(None, None), WEIGHT).is_none());
    }
}
