//! Stage `normal_map`: compares the normals of the drawn inverse depths with the photograph's normal map.

use rayon::prelude::*;

use super::blend::Canvas;
use super::depth::{self, ComparedDepths};
use super::normals::SlopedMap;
use crate::dataset::Image;
use crate::math::Real;
use crate::math::linalg::dot;
use crate::math::normals::{mapped_normal, surface_normal, surface_normal_bwd};
use crate::math::splat::Viewpoint;

/// Compares the normals of a frame's inverse depths with the photograph's map of equal size; `None` without a map.
///
/// A pixel counts if the map has a normal there, the pixel and its four neighbours have depths and are not masked, and
/// there is no depth step between them. Other pixels have no error; the mean of 1 - cos is over all pixels.
/// The selection has no gradient.
pub(crate) fn compare<R: Real>(
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
            let (slopes, ray) = (inverse.map(|slope| -slope), map.ray(at));
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
    use crate::backend::Drawing;
    use crate::backend::cpu::stage::bin::bin;
    use crate::backend::cpu::stage::blend::forward;
    use crate::dataset::NormalMap;
    use crate::math::linalg::{Vec3, normalize};
    use crate::math::normals::STORED_ONE;
    use crate::math::random::{RandomStream, RandomUse};

    const SIZE: [u32; 2] = [11, 8];

    const PIXELS: usize = 88;

    const WEIGHT: f64 = 1.7;

    /// Number of pixels with four neighbours.
    const INNER: f64 = 9.0 * 6.0;

    const NONE: [i8; 3] = [0; 3];

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
        }
    }

    fn compared(
        inverse_depths: &[f64],
        normals: &[[i8; 3]],
        mask: Option<Vec<u8>>,
    ) -> ComparedDepths<f64> {
        let settings = Drawing { inverse_depths: true, ..Drawing::DEFAULT };
        let mut canvas = forward(&[], &bin::<f64>(&[], SIZE), SIZE, &settings);
        canvas.inverse_depths = inverse_depths.to_vec();
        let [width, height] = SIZE;
        let normals = Some(NormalMap { values: normals.as_flattened().to_vec() });
        let rgb = vec![0; 3 * PIXELS];
        let photo = Image { width, height, rgb, mask, depth: None, normals };
        compare(&canvas, &view(), &photo, WEIGHT).expect("a map")
    }

    /// Encodes a normal as a map stores it.
    fn stored(normal: Vec3<f64>) -> [i8; 3] {
        let value = |component: f64| (component * STORED_ONE).round().floor_i32();
        normal.map(|component| i8::try_from(value(component)).unwrap())
    }

    /// Returns the inverse depths of a plane with this normal through a point of the view axis, at this opacity.
    fn plane(normal: Vec3<f64>, depth: f64, opacity: f64) -> Vec<f64> {
        let view = view();
        let inverse = |pixel: usize| {
            let at = [pixel % SIZE[0] as usize, pixel / SIZE[0] as usize];
            let [x, y] =
                [0, 1].map(|i| (at[i] as f64 + 0.5 - view.centre_px[i]) / view.focal_px[i]);
            opacity * dot(normal, [x, y, 1.0]) / (depth * normal[2])
        };
        (0..PIXELS).map(inverse).collect()
    }

    #[test]
    fn normals_of_an_oblique_plane_do_not_depend_on_opacity() {
        for along in [[0.0, 0.0], [0.7, 0.0], [0.0, -0.7], [0.5, 0.4], [-0.6, 0.5]] {
            let normal = normalize([along[0], along[1], -1.0]);
            let turned = normalize([-along[0], -along[1], -1.0]);
            for opacity in [1.0, 0.3] {
                let inverse_depths = plane(normal, 2.5, opacity);
                for map in [normal, turned, normal.map(|n| -n)] {
                    let found = compared(&inverse_depths, &[stored(map); PIXELS], None);
                    // Decoding an 8-bit normal is exact.
                    let kept: Vec3<f64> = mapped_normal(stored(map)).unwrap();
                    let expected = INNER / PIXELS as f64 * (1.0 - dot(kept, normal));
                    let error = (found.mean - expected).abs();
                    assert!(error < 1e-13, "{along:?}, {opacity}: {} for {expected}", found.mean);
                    if map == normal {
                        assert!(found.mean < 1e-4, "{along:?}: {}", found.mean);
                    }
                }
            }
        }
    }

    /// Returns a bumpy wall and a map of random normals, some of them missing.
    fn bumpy() -> (Vec<f64>, Vec<[i8; 3]>) {
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
        let (mut inverse_depths, normals) = bumpy();
        // One pixel without depth, and one beyond a depth step.
        (inverse_depths[3 * 11 + 4], inverse_depths[5 * 11 + 7]) = (0.0, 1.5);
        let mut mask = vec![255; PIXELS];
        mask[2 * 11 + 8] = 0;
        let mean = |inverse_depths: &[f64]| {
            WEIGHT * compared(inverse_depths, &normals, Some(mask.clone())).mean
        };
        let found = compared(&inverse_depths, &normals, Some(mask.clone())).d_inverse_depths;
        let mut large = 0;
        for (pixel, &found) in found.iter().enumerate() {
            let moved = |h: f64| {
                let mut inverse_depths = inverse_depths.clone();
                // Raising an empty pixel above 0 would be a jump.
                inverse_depths[pixel] += if inverse_depths[pixel] > 0.0 { h } else { 0.0 };
                mean(&inverse_depths)
            };
            let h = 1e-5;
            let expected =
                (8.0 * (moved(h) - moved(-h)) - (moved(2.0 * h) - moved(-2.0 * h))) / (12.0 * h);
            // The rounding error is 1e-17 / 1e-5.
            let error = (found - expected).abs() / found.abs().max(1e-4);
            assert!(error < 1e-6, "{pixel}: {found} for {expected}");
            large += usize::from(found.abs() > 1e-3);
        }
        assert!(large > 40, "{large} gradients tell");
    }

    #[test]
    fn pixel_without_both_normals_adds_nothing() {
        let (inverse_depths, mut normals) = bumpy();
        let at = |[x, y]: [usize; 2]| y * SIZE[0] as usize + x;
        let centre = [5, 4];
        let around = [centre, [4, 4], [6, 4], [5, 3], [5, 5]];
        // A map with a normal at one pixel shows whether that pixel counts.
        let alone = |pixel: [usize; 2], inverse_depths: &[f64], mask: Option<Vec<u8>>| {
            let mut single = vec![NONE; PIXELS];
            single[at(pixel)] = stored(normalize([0.9, 0.0, -0.4]));
            compared(inverse_depths, &single, mask)
        };
        let counts = |found: &ComparedDepths<f64>| {
            let has_gradient = found.d_inverse_depths.iter().any(|&d| d != 0.0);
            assert_eq!(found.mean > 0.0, has_gradient);
            has_gradient
        };
        let mut empty = inverse_depths.clone();
        empty[at(centre)] = 0.0;
        let mut near = inverse_depths.clone();
        near[at(centre)] *= 4.0;
        let mut mask = vec![255; PIXELS];
        mask[at(centre)] = 0;
        for pixel in (0..11).flat_map(|x| (0..8).map(move |y| [x, y])) {
            let is_inner = (1..10).contains(&pixel[0]) && (1..7).contains(&pixel[1]);
            assert_eq!(counts(&alone(pixel, &inverse_depths, None)), is_inner, "{pixel:?}");
            let counts_beside = is_inner && !around.contains(&pixel);
            for (inverse_depths, mask) in
                [(&empty, None), (&near, None), (&inverse_depths, Some(mask.clone()))]
            {
                assert_eq!(counts(&alone(pixel, inverse_depths, mask)), counts_beside, "{pixel:?}");
            }
        }
        // Stored normals shorter than half the unit length count as missing.
        for (short, is_none) in [([0, 64, 0], false), ([0, 63, 0], true), ([36, -36, 36], true)] {
            normals.fill(short);
            assert_eq!(!counts(&compared(&inverse_depths, &normals, None)), is_none, "{short:?}");
        }
        assert_eq!(compared(&[0.0; PIXELS], &normals, None).mean, 0.0);
    }

    #[test]
    fn photograph_without_a_map_is_not_compared() {
        let canvas = forward(&[], &bin::<f64>(&[], SIZE), SIZE, &Drawing::DEFAULT);
        let [width, height] = SIZE;
        let rgb = vec![0; 3 * PIXELS];
        let photo = Image { width, height, rgb, mask: None, depth: None, normals: None };
        assert!(compare(&canvas, &view(), &photo, WEIGHT).is_none());
    }
}
