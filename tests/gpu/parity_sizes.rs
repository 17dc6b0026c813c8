//! Images of unusual sizes, on every device against the definition in double precision.

use crate::common::Draws;
use crate::common::oracle::{assert_agrees, draw, settings};
use crate::common::prelude::*;
use crate::common::scene::{Splat, composite_pixel, resized, splats, straight, tame_gaussians};
use splat::backend::{Rendered, TrainDevice};
use splat::dataset::View;
use splat::math::Real;
use splat::math::splat::bounds;
use splat::model::Gaussians;

each_backend!(
    images_one_pixel_wide_or_high_are_drawn_and_compared,
    images_8192_pixels_wide_or_high_are_drawn_and_compared,
    images_of_more_than_65535_tiles_are_drawn,
);

/// Gaussians on the axis of a camera with this image, in front of it, of a size in pixels that no
/// resolution changes by much.
fn scattered(count: usize, seed: u64, view: &View) -> Gaussians {
    let mut gaussians = tame_gaussians(count, seed, 3);
    let mut draws = Draws::new(seed + 1000);
    let camera = &view.camera;
    let longest = f64::from(camera.width.max(camera.height));
    for i in 0..count {
        let depth = draws.uniform(1.0, 3.0);
        let place = [0, 1].map(|axis| {
            let side = f64::from([camera.width, camera.height][axis]);
            let pixel = draws.uniform(-0.05, 1.05) * side;
            (pixel - camera.centre_px[axis]) / camera.focal_px[axis] * depth
        });
        let mean = [place[0], place[1], depth].map(f64::to_f32);
        gaussians.means[i * 3..][..3].copy_from_slice(&mean);
        for axis in 0..3 {
            // 8,192 px away a centre is right to half a thousandth of a pixel. That it does not
            // show, no splat is narrower than a few hundredths of the way.
            let radius_px = draws.uniform(0.004, 0.02) * longest + 0.5;
            let scale = radius_px * depth / camera.focal_px[0];
            gaussians.log_scales[i * 3 + axis] = scale.ln().to_f32();
        }
    }
    gaussians
}

/// A camera that looks along the z axis at an image of square pixels.
fn upright(size: [u32; 2]) -> View {
    let mut view = resized(&straight(), size);
    let focal_px = f64::from(size[0].max(size[1])) * 1.1;
    view.camera.focal_px = [focal_px, focal_px * 1.01];
    view
}

fn images_one_pixel_wide_or_high_are_drawn_and_compared<B: TrainDevice>(device: &mut B) {
    for (seed, size) in (1..).zip([[1, 1], [1, 2], [2, 1], [1, 129], [131, 1], [1, 17], [15, 1]]) {
        let view = upright(size);
        assert_agrees(device, &scattered(6, seed, &view), &view, &format!("{size:?} px"));
    }
}

fn images_8192_pixels_wide_or_high_are_drawn_and_compared<B: TrainDevice>(device: &mut B) {
    for (seed, size) in (1..).zip([[8192, 1], [1, 8192], [8192, 19], [13, 8192]]) {
        let view = upright(size);
        assert_agrees(device, &scattered(17, seed, &view), &view, &format!("{size:?} px"));
    }
}

/// 512 by 129 tiles.
const MANY_TILES: [u32; 2] = [8192, 2064];

fn images_of_more_than_65535_tiles_are_drawn<B: TrainDevice>(device: &mut B) {
    let view = upright(MANY_TILES);
    let settings = settings(3, 12);
    let mut gaussians = scattered(25, 13, &view);
    // One sits in the last tile.
    let camera = &view.camera;
    for (axis, side) in MANY_TILES.into_iter().enumerate() {
        let pixel = f64::from(side) - 7.3;
        let slope = (pixel - camera.centre_px[axis]) / camera.focal_px[axis];
        gaussians.means[axis] = slope.to_f32() * gaussians.means[2];
    }
    let image = draw(device, &gaussians, &view, &settings);
    let splats = splats(&gaussians, &view, &settings);
    let [width, height] = MANY_TILES;
    let corners = [0, width - 1].into_iter().flat_map(|x| [[x, 0], [x, height - 1]]);
    let mut draws = Draws::new(14);
    let spread = (0..4000).map(|_| {
        let [x, y] = MANY_TILES.map(|side| draws.uniform(0.0, f64::from(side)).floor_i32());
        [u32::try_from(x).unwrap(), u32::try_from(y).unwrap()]
    });
    let blended = assert_pixels(&image, &splats, corners.chain(spread), &settings);
    assert!(blended > 500, "only {blended} of the pixels show a Gaussian");
    assert!(counts(&image).last().is_some_and(|&count| count > 0), "the last tile is empty");
    assert_background_elsewhere(&image, &splats, &view, &settings);
}

fn counts(image: &Rendered) -> &[u32] {
    image.blended.as_deref().unwrap()
}

/// Compares these pixels with the definition; how many of them show a Gaussian.
fn assert_pixels(
    image: &Rendered,
    splats: &[Splat],
    places: impl Iterator<Item = [u32; 2]>,
    settings: &Drawing,
) -> usize {
    let mut blended = 0;
    for [x, y] in places {
        let expected = composite_pixel(splats, [x, y], settings.background);
        if expected.borderline {
            continue;
        }
        let at = y as usize * image.width as usize + x as usize;
        assert_eq!(counts(image)[at], expected.blended, "{x} {y}");
        for c in 0..3 {
            let error = (f64::from(image.rgb[at * 3 + c]) - expected.rgb[c]).abs();
            assert!(error < 1e-4, "{x} {y}: {error} apart");
        }
        blended += usize::from(expected.blended > 0);
    }
    blended
}

/// Asserts that no pixel outside of all bounds differs from the background.
fn assert_background_elsewhere(
    image: &Rendered,
    splats: &[Splat],
    view: &View,
    settings: &Drawing,
) {
    let size = [view.camera.width, view.camera.height];
    let mut inside = vec![false; counts(image).len()];
    for splat in splats {
        let Some(bounds) = bounds(&splat.ellipse, splat.opacity, size) else { continue };
        for y in bounds.pixels.y0..bounds.pixels.y1 {
            let row = y as usize * image.width as usize;
            inside[row + bounds.pixels.x0 as usize..row + bounds.pixels.x1 as usize].fill(true);
        }
    }
    let outside = inside.iter().filter(|&&inside| !inside).count();
    assert!(outside * 10 > inside.len(), "the Gaussians leave no background");
    for (i, pixel) in image.rgb.chunks(3).enumerate().filter(|&(i, _)| !inside[i]) {
        assert_eq!((pixel, counts(image)[i]), (&settings.background[..], 0), "pixel {i}");
    }
}

#[cfg(kernels)]
mod large {
    //! What only a GPU does in a bearable time.

    use splat::math::Real;
    use splat::model::Gaussians;

    use super::{MANY_TILES, counts, scattered, upright};
    use crate::common::cuda;
    use crate::common::oracle::{Counted, assert_first_steps_agree, draw, settings, shot};
    use crate::common::scene::{gaussian, together};

    #[test]
    #[ignore = "needs a CUDA device"]
    fn a_step_over_an_image_of_more_than_65535_tiles_agrees_with_the_oracle() {
        let view = upright(MANY_TILES);
        let gaussians = scattered(25, 13, &view);
        let shot = shot(&gaussians, &view, settings(3, 12), (15, Counted::Clear));
        assert_first_steps_agree(&mut cuda::open(), &gaussians, &shot, "66,048 tiles");
    }

    #[test]
    #[ignore = "needs a CUDA device with 24 GiB of memory"]
    fn more_than_four_gibibytes_of_tile_instances_are_blended_in_their_order() {
        // 2,100 Gaussians in each of 262,144 tiles: 550 million instances, more than 2^31 bytes
        // however few bytes an instance takes.
        const COUNT: u32 = 2100;
        const OPACITY: f64 = 0.0041;
        let (red, blue) = ([0.9, 0.2, 0.1], [0.1, 0.3, 0.8]);
        let view = upright([8192, 8192]);
        let parts: Vec<Gaussians> = (0..COUNT)
            .map(|i| {
                // Every other one is far away, so that the order of the indices is not the order of
                // the depths. A million pixels wide: over the image the exponent falls by 2e-5.
                let (near, color) = if i % 2 == 0 { (1.0, red) } else { (4.0, blue) };
                let depth = near + 1e-3 * i as f32;
                gaussian([0.0, 0.0, depth], 111.0 * depth, OPACITY.to_f32(), color)
            })
            .collect();
        let gaussians = together(&parts);
        let settings = settings(3, 16);
        let image = draw(&mut cuda::open(), &gaussians, &view, &settings);
        assert!(counts(&image).iter().all(|&count| count == COUNT));
        // (1 - α)^1050 of the far half, of the near half, of the background.
        let half = (1.0 - OPACITY).powi(1050);
        let expected = [0, 1, 2].map(|c| {
            (1.0 - half) * f64::from(red[c])
                + half * (1.0 - half) * f64::from(blue[c])
                + half * half * f64::from(settings.background[c])
        });
        for (i, pixel) in image.rgb.chunks(3).enumerate() {
            for c in 0..3 {
                // 2,100 factors rounded in single precision, and the exponent of up to 2e-5.
                let error = (f64::from(pixel[c]) - expected[c]).abs();
                assert!(error < 5e-4, "pixel {i}: {pixel:?} instead of {expected:?}");
            }
        }
    }
}
