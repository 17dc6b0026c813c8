//! Stage `blend_triangles`: blends triangles into samples front to back and averages samples per pixel; the backward
//! pass maps pixel gradients to triangles.
//!
//! Each sample has its own transmittance. Only pixels are stored: the backward pass blends each tile again.

use std::ops::Range;

use rayon::prelude::*;

use super::bin::Bins;
use super::blend::{Canvas, CanvasGradient, place_in_tile};
use crate::backend::cpu::primitive::Splat;
use crate::backend::{DrawSettings, Window};
use crate::math::Real;
use crate::math::blend::{PixelWalk, ScreenGradient, Shade, TRANSMITTANCE_MIN, blend_bwd_of};
use crate::math::linalg::{Vec3, add, scale};
use crate::math::splat::{FallOff, HitGradient, Rect, TILE, Triangle, TriangleGradient};

/// Faces of a view in tile lists.
#[derive(Clone, Copy)]
pub(crate) struct FaceLayers<'a, R> {
    pub(crate) splats: &'a [Splat<R>],
    /// Triangle of each splat.
    pub(crate) triangles: &'a [Triangle<R>],
    pub(crate) bins: &'a Bins,
    pub(crate) window: Window,
    pub(crate) background: Vec3<R>,
}

/// Gradients and statistics of a face, summed over samples.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FaceSums<R> {
    pub(crate) gradient: TriangleGradient<R>,
    /// Largest blend weight in any sample.
    pub(crate) weight: R,
}

/// A sample during front-to-back blending.
#[derive(Clone, Copy, Debug)]
struct Sample<R> {
    color: Vec3<R>,
    inverse_depth: R,
    transmittance: R,
    /// Position after the last triangle that changed the sample, in the tile's list.
    end: u32,
    is_finished: bool,
}

impl<R: Real> Sample<R> {
    const OPEN: Self = Self {
        color: [R::ZERO; 3],
        inverse_depth: R::ZERO,
        transmittance: R::ONE,
        end: 0,
        is_finished: false,
    };

    fn color_on(&self, background: Vec3<R>) -> Vec3<R> {
        add(self.color, scale(background, self.transmittance))
    }
}

impl<R: Real> FaceLayers<'_, R> {
    /// Returns the number of samples per pixel.
    fn samples(&self) -> usize {
        (self.window.samples * self.window.samples) as usize
    }

    /// Returns the weight of one sample in its pixel.
    fn share(&self) -> R {
        R::ONE / R::of(self.samples() as f64)
    }

    /// Returns the indices of a pixel's samples in its tile.
    fn places(&self, x: u32, y: u32) -> Range<usize> {
        let first = place_in_tile(x, y) * self.samples();
        first..first + self.samples()
    }

    /// Yields the tile's samples within a splat's bounds: index in the tile, and position in px.
    fn reached(&self, splat: usize, area: Rect) -> impl Iterator<Item = (usize, [R; 2])> {
        let side = self.window.samples;
        let offset = move |i: u32| (f64::from(i) + 0.5) / f64::from(side);
        let Rect { x0, y0, x1, y1 } = self.splats[splat].pixels.intersection(&area);
        let pixels = (y0..y1).flat_map(move |y| (x0..x1).map(move |x| [x, y]));
        pixels.flat_map(move |[x, y]| {
            (0..side * side).zip(self.places(x, y)).map(move |(k, place)| {
                let px = [f64::from(x) + offset(k % side), f64::from(y) + offset(k / side)];
                (place, px.map(R::of))
            })
        })
    }

    /// Blends the samples of a tile, ordered by pixel in rows of [`TILE`].
    fn blend_tile(&self, list: &[usize], area: Rect) -> Vec<Sample<R>> {
        let exponent = R::of(self.window.exponent);
        let mut tile = vec![Sample::OPEN; (TILE * TILE) as usize * self.samples()];
        let mut open = ((area.x1 - area.x0) * (area.y1 - area.y0)) as usize * self.samples();
        for (position, &index) in (1..).zip(list) {
            if open == 0 {
                break;
            }
            let triangle = &self.triangles[index];
            for (place, sample_px) in self.reached(index, area) {
                let sample = &mut tile[place];
                if sample.is_finished {
                    continue;
                }
                let Some(hit) = triangle.hit(sample_px, exponent) else { continue };
                let after = sample.transmittance * (R::ONE - hit.alpha);
                // The triangle that finishes a sample counts: it would show if a solid triangle before it moved away.
                if after < R::of(TRANSMITTANCE_MIN) {
                    sample.is_finished = true;
                    open -= 1;
                }
                let weight = hit.alpha * sample.transmittance;
                sample.color = add(sample.color, scale(triangle.color_at(&hit), weight));
                sample.inverse_depth += weight * triangle.inverse_depth_at(&hit);
                sample.transmittance = after;
                sample.end = position;
            }
        }
        tile
    }

    /// Adds the contributions of a tile's samples to each face in its list.
    fn blend_tile_bwd(
        &self,
        list: &[usize],
        out: &mut [FaceSums<R>],
        area: Rect,
        width: usize,
        d_canvas: CanvasGradient<'_, R>,
    ) {
        let fall_off = FallOff {
            exponent: R::of(self.window.exponent),
            strip_px: R::of(self.window.strip_px),
        };
        let tile = self.blend_tile(list, area);
        let mut walks = self.walks(&tile, area, width, d_canvas);
        let longest = tile.iter().map(|sample| sample.end).max().unwrap_or(0);
        for (position, (&index, sums)) in (1..=longest).zip(list.iter().zip(out)) {
            let triangle = &self.triangles[index];
            for (place, sample_px) in self.reached(index, area) {
                if position > tile[place].end {
                    continue;
                }
                let Some(hit) = triangle.hit(sample_px, fall_off.exponent) else { continue };
                let walk = &mut walks[place];
                sums.weight = sums.weight.max(hit.alpha * walk.transmittance);
                let shade = Shade {
                    color: triangle.color_at(&hit),
                    inverse_depth: triangle.inverse_depth_at(&hit),
                    surface: [R::ZERO; 3],
                };
                let mut of_shade = ScreenGradient::default();
                let d_alpha = blend_bwd_of::<R, false>(walk, &shade, hit.alpha, &mut of_shade);
                let ScreenGradient { d_color, d_inverse_depth, .. } = of_shade;
                let d = HitGradient { d_alpha, d_color, d_inverse_depth };
                triangle.hit_bwd(&hit, &fall_off, &d, &mut sums.gradient);
            }
        }
    }

    /// Returns the backward-pass state of a tile's samples, in front of the first triangle.
    fn walks(
        &self,
        tile: &[Sample<R>],
        area: Rect,
        width: usize,
        d_canvas: CanvasGradient<'_, R>,
    ) -> Vec<PixelWalk<R>> {
        let start = |sample: &Sample<R>| PixelWalk {
            transmittance: R::ONE,
            behind: sample.color_on(self.background),
            inverse_depth_behind: sample.inverse_depth,
            ..PixelWalk::default()
        };
        let mut walks: Vec<PixelWalk<R>> = tile.iter().map(start).collect();
        for y in area.y0..area.y1 {
            for x in area.x0..area.x1 {
                let at = y as usize * width + x as usize;
                let d_color = [0, 1, 2].map(|c| d_canvas.image[at * 3 + c] * self.share());
                let d_inverse_depth = d_canvas.inverse_depths.get(at).copied().unwrap_or(R::ZERO);
                for walk in &mut walks[self.places(x, y)] {
                    walk.d_color = d_color;
                    walk.d_inverse_depth = d_inverse_depth * self.share();
                }
            }
        }
        walks
    }
}

/// Blends the image.
pub(crate) fn forward<R: Real>(
    layers: &FaceLayers<'_, R>,
    size: [u32; 2],
    settings: &DrawSettings,
) -> Canvas<R> {
    let mut canvas = Canvas::blank(size, settings);
    let width = size[0] as usize;
    let band = width * TILE as usize;
    let mut depth_bands = canvas.inverse_depths.chunks_mut(band);
    let depths: Vec<&mut [R]> =
        (0..layers.bins.tiles[1]).map(|_| depth_bands.next().unwrap_or_default()).collect();
    let bands = canvas.image.par_chunks_mut(band * 3).zip(depths).zip(0..layers.bins.tiles[1]);
    bands.for_each(|((image, depths), tile_y)| {
        for (area, list) in layers.bins.row(tile_y, size) {
            let tile = layers.blend_tile(list, area);
            for y in area.y0..area.y1 {
                for x in area.x0..area.x1 {
                    let at = (y % TILE) as usize * width + x as usize;
                    let samples = &tile[layers.places(x, y)];
                    let color = samples.iter().fold([R::ZERO; 3], |sum, sample| {
                        add(sum, sample.color_on(layers.background))
                    });
                    image[at * 3..][..3].copy_from_slice(&scale(color, layers.share()));
                    if let Some(depth) = depths.get_mut(at) {
                        let sum: R = samples.iter().map(|sample| sample.inverse_depth).sum();
                        *depth = sum * layers.share();
                    }
                }
            }
        }
    });
    canvas
}

/// Returns the gradients and the largest weight of every visible face.
pub(crate) fn backward<R: Real>(
    layers: &FaceLayers<'_, R>,
    size: [u32; 2],
    d_canvas: CanvasGradient<'_, R>,
) -> Vec<FaceSums<R>> {
    let visit = |area: Rect, list: &[usize], out: &mut [FaceSums<R>]| {
        layers.blend_tile_bwd(list, out, area, size[0] as usize, d_canvas);
    };
    layers.bins.sums(layers.splats.len(), size, visit, |sums, more| {
        sums.gradient.add(&more.gradient);
        sums.weight = sums.weight.max(more.weight);
    })
}
