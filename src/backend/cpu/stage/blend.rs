//! Stage `blend`: blends splats into pixels front to back, and pixel gradients back to splats.
//!
//! Rows of tiles run in parallel; within a tile each splat visits only the pixels in its bounds.

use rayon::prelude::*;

use super::bin::Bins;
use crate::backend::cpu::primitive::Splat;
use crate::backend::{DrawSettings, Footprint, Rendered};
use crate::math::Real;
use crate::math::blend::{PixelWalk, ScreenGradient, Shade, TRANSMITTANCE_MIN, blend_bwd_of};
use crate::math::linalg::Vec3;
use crate::math::splat::{Rect, TILE};
use crate::memory::Bytes;

/// A drawn image and the inputs of its backward pass.
#[derive(Debug)]
pub(crate) struct Canvas<R> {
    /// Size, px.
    pub(crate) size: [u32; 2],
    /// Colours over the background, `[height, width, 3]`.
    pub(crate) image: Vec<R>,
    /// Weighted sums of inverse depths, per world unit, `[height, width]`; empty if not drawn.
    pub(crate) inverse_depths: Vec<R>,
    /// Weighted sums of squared inverse depths, `[height, width]`; empty if not drawn.
    pub(crate) inverse_squares: Vec<R>,
    /// Depth, x and y of the normal, and opacity, `[height, width, 4]`; empty if not drawn.
    pub(crate) surface: Vec<R>,
    /// Median depths, `[height, width]`; for ellipses empty until stage `rays`.
    pub(crate) median_depths: Vec<R>,
    pixels: Vec<Pixel>,
}

impl<R: Real> Canvas<R> {
    /// Creates a black canvas with the requested maps.
    pub(crate) fn blank(size: [u32; 2], settings: &DrawSettings) -> Self {
        let pixels = size[0] as usize * size[1] as usize;
        // Stage `rays` finds those of ellipses.
        let with_medians = settings.median && settings.footprint == Footprint::Surfel;
        let room = |is_drawn, width| vec![R::ZERO; if is_drawn { pixels * width } else { 0 }];
        Self {
            size,
            image: room(true, 3),
            inverse_depths: room(settings.inverse_depths, 1),
            inverse_squares: room(settings.inverse_squares, 1),
            surface: room(settings.surface, 4),
            median_depths: room(with_medians, 1),
            pixels: Vec::new(),
        }
    }

    pub(crate) fn bytes(&self) -> Bytes {
        let Self { inverse_depths, inverse_squares, surface, median_depths, .. } = self;
        let maps = [inverse_depths, inverse_squares, surface, median_depths];
        let values = self.image.capacity() + maps.map(Vec::capacity).iter().sum::<usize>();
        Bytes::of::<R>(values) + Bytes::of::<Pixel>(self.pixels.capacity())
    }

    pub(crate) fn rendered(&self, with_counts: bool) -> Rendered {
        let counts = || self.pixels.iter().map(|pixel| pixel.blended).collect();
        let if_drawn =
            |map: &[R]| (!map.is_empty()).then(|| map.iter().map(|value| value.to_f32()).collect());
        Rendered {
            width: self.size[0],
            height: self.size[1],
            rgb: self.image.iter().map(|value| value.to_f32()).collect(),
            blended: with_counts.then(counts),
            inverse_depths: if_drawn(&self.inverse_depths),
            inverse_squares: if_drawn(&self.inverse_squares),
            surface: if_drawn(&self.surface),
            median_depths: if_drawn(&self.median_depths),
        }
    }
}

/// Blends the image.
pub(crate) fn forward<R: Real>(
    splats: &[Splat<R>],
    bins: &Bins,
    size: [u32; 2],
    settings: &DrawSettings,
) -> Canvas<R> {
    let background = settings.background.map(R::of_f32);
    let width = size[0] as usize;
    let pixels = vec![Pixel::default(); width * size[1] as usize];
    let mut canvas = Canvas { pixels, ..Canvas::blank(size, settings) };
    let with_map = !(canvas.surface.is_empty()
        && canvas.median_depths.is_empty()
        && canvas.inverse_squares.is_empty());
    let band = width * TILE as usize;
    let Canvas { image, inverse_depths, inverse_squares, surface, median_depths, pixels, .. } =
        &mut canvas;
    let maps = [inverse_depths, inverse_squares, surface, median_depths].map(Vec::as_mut_slice);
    let maps = MapBands::of(maps, bins.tiles[1], band);
    let blend_tile: BlendTile<R> =
        if with_map { blend_tile::<R, true> } else { blend_tile::<R, false> };
    image
        .par_chunks_mut(band * 3)
        .zip(maps)
        .zip(pixels.par_chunks_mut(band))
        .zip(0..bins.tiles[1])
        .for_each(|(((image, mut maps), pixels), tile_y)| {
            for (area, list) in bins.row(tile_y, size) {
                let tile = blend_tile(splats, list, area);
                tile.store(area, width, background, image, pixels);
                tile.store_beside(area, width, &mut maps);
            }
        });
    canvas
}

type BlendTile<R> = fn(&[Splat<R>], &[usize], Rect) -> TileState<R>;

/// Blends a tile. Monomorphised over `SURFACE`, which costs time at every pixel.
fn blend_tile<R: Real, const SURFACE: bool>(
    splats: &[Splat<R>],
    list: &[usize],
    area: Rect,
) -> TileState<R> {
    let mut tile = TileState::new();
    let mut open = (area.x1 - area.x0) * (area.y1 - area.y0);
    for (position, &index) in (1..).zip(list) {
        if open == 0 {
            break;
        }
        let splat = &splats[index];
        let reach = splat.pixels.intersection(&area);
        for y in reach.y0..reach.y1 {
            for x in reach.x0..reach.x1 {
                let i = place_in_tile(x, y);
                if tile.finished[i] {
                    continue;
                }
                let Some(at) = splat.in_pixel(x, y) else { continue };
                let alpha = at.alpha;
                let after = tile.transmittance[i] * (R::ONE - alpha);
                if after < R::of(TRANSMITTANCE_MIN) {
                    tile.finished[i] = true;
                    open -= 1;
                    continue;
                }
                let weight = alpha * tile.transmittance[i];
                let Shade { color, inverse_depth, surface } = splat.shade(&at);
                for c in 0..3 {
                    tile.color[i][c] += weight * color[c];
                    if SURFACE {
                        tile.surface[i][c] += weight * surface[c];
                    }
                }
                tile.inverse_depth[i] += weight * inverse_depth;
                if SURFACE {
                    tile.inverse_square[i] += weight * inverse_depth * inverse_depth;
                }
                if SURFACE && after <= R::HALF && tile.transmittance[i] > R::HALF {
                    tile.half_depth[i] = splat.depth_in(&at);
                }
                tile.transmittance[i] = after;
                tile.pixels[i].blended += 1;
                tile.pixels[i].end = position;
            }
        }
    }
    tile
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CanvasGradient<'a, R> {
    /// Gradient of the image, `[height, width, 3]`.
    pub(crate) image: &'a [R],
    /// Gradient of the inverse depths, `[height, width]`, or empty.
    pub(crate) inverse_depths: &'a [R],
    /// Gradient of the squared inverse depths, `[height, width]`, or empty.
    pub(crate) inverse_squares: &'a [R],
    /// Gradient of depth and of x and y of the normal, `[height, width, 3]`, or empty.
    pub(crate) surface: &'a [R],
    /// Gradient of the final transmittance without that through the background, `[height, width]`, or empty. Always
    /// empty if `surface` is.
    pub(crate) through: &'a [R],
}

impl<'a, R> CanvasGradient<'a, R> {
    /// Creates the gradient of an image without maps.
    pub(crate) const fn of_image(image: &'a [R]) -> Self {
        let (inverse_depths, inverse_squares, surface, through) = (&[], &[], &[], &[]);
        Self { image, inverse_depths, inverse_squares, surface, through }
    }
}

/// Returns the gradient of every splat, `[visible]`.
pub(crate) fn backward<R: Real>(
    splats: &[Splat<R>],
    bins: &Bins,
    canvas: &Canvas<R>,
    d_canvas: CanvasGradient<'_, R>,
) -> Vec<ScreenGradient<R>> {
    let with_surface = !d_canvas.surface.is_empty();
    let visit = |area: Rect, list: &[usize], out: &mut [ScreenGradient<R>]| {
        if with_surface {
            blend_tile_bwd::<R, true>(splats, list, out, area, canvas, d_canvas);
        } else {
            blend_tile_bwd::<R, false>(splats, list, out, area, canvas, d_canvas);
        }
    };
    bins.sums(splats.len(), canvas.size, visit, ScreenGradient::add)
}

fn blend_tile_bwd<R: Real, const SURFACE: bool>(
    splats: &[Splat<R>],
    list: &[usize],
    out: &mut [ScreenGradient<R>],
    area: Rect,
    canvas: &Canvas<R>,
    d_canvas: CanvasGradient<'_, R>,
) {
    let width = canvas.size[0] as usize;
    let at = |x: u32, y: u32| y as usize * width + x as usize;
    let triple = |values: &[R], at: usize| [values[at * 3], values[at * 3 + 1], values[at * 3 + 2]];
    let single = |values: &[R], at: usize| values.get(at).copied().unwrap_or(R::ZERO);
    let mut walks = [PixelWalk { transmittance: R::ONE, ..PixelWalk::default() }; TILE_PIXELS];
    let mut longest = 0;
    for y in area.y0..area.y1 {
        for x in area.x0..area.x1 {
            let at = at(x, y);
            let walk = &mut walks[place_in_tile(x, y)];
            walk.behind = triple(&canvas.image, at);
            walk.d_color = triple(d_canvas.image, at);
            walk.inverse_depth_behind = single(&canvas.inverse_depths, at);
            walk.d_inverse_depth = single(d_canvas.inverse_depths, at);
            if SURFACE {
                walk.inverse_square_behind = single(&canvas.inverse_squares, at);
                walk.d_inverse_square = single(d_canvas.inverse_squares, at);
                walk.surface_behind = std::array::from_fn(|c| canvas.surface[at * 4 + c]);
                walk.d_surface = triple(d_canvas.surface, at);
            }
            if !d_canvas.through.is_empty() {
                walk.through = (R::ONE - canvas.surface[at * 4 + 3]) * d_canvas.through[at];
            }
            longest = longest.max(canvas.pixels[at].end);
        }
    }
    for (position, (&index, sums)) in (1..=longest).zip(list.iter().zip(out)) {
        let splat = &splats[index];
        let reach = splat.pixels.intersection(&area);
        for y in reach.y0..reach.y1 {
            for x in reach.x0..reach.x1 {
                if position > canvas.pixels[at(x, y)].end {
                    continue;
                }
                let Some(at) = splat.in_pixel(x, y) else { continue };
                let walk = &mut walks[place_in_tile(x, y)];
                let mut of_shade = ScreenGradient::default();
                let shade = splat.shade(&at);
                let d_alpha = blend_bwd_of::<R, SURFACE>(walk, &shade, at.alpha, &mut of_shade);
                splat.in_pixel_bwd(&at, d_alpha, of_shade, sums);
            }
        }
    }
}

// State of a tile's pixels during blending.

const TILE_PIXELS: usize = (TILE * TILE) as usize;

/// Blending state of a pixel that the backward pass needs.
#[derive(Clone, Copy, Debug, Default)]
struct Pixel {
    /// Number of splats that changed the pixel.
    blended: u32,
    /// Position after the last such splat in the tile's list.
    end: u32,
}

/// Returns the index of a pixel in its tile.
pub(super) fn place_in_tile(x: u32, y: u32) -> usize {
    ((y % TILE) * TILE + x % TILE) as usize
}

/// One row of tiles of each map beside the colours; empty for maps that are not drawn.
#[derive(Default)]
struct MapBands<'a, R> {
    inverse_depths: &'a mut [R],
    inverse_squares: &'a mut [R],
    surface: &'a mut [R],
    median_depths: &'a mut [R],
}

impl<'a, R> MapBands<'a, R> {
    /// Splits the maps into `rows` bands of `pixels` pixels.
    fn of(maps: [&'a mut [R]; 4], rows: u32, pixels: usize) -> Vec<Self> {
        let [inverse_depths, inverse_squares, surface, median_depths] = maps;
        let mut inverse_depths = inverse_depths.chunks_mut(pixels);
        let mut inverse_squares = inverse_squares.chunks_mut(pixels);
        let mut surface = surface.chunks_mut(pixels * 4);
        let mut median_depths = median_depths.chunks_mut(pixels);
        let next = |_| Self {
            inverse_depths: inverse_depths.next().unwrap_or_default(),
            inverse_squares: inverse_squares.next().unwrap_or_default(),
            surface: surface.next().unwrap_or_default(),
            median_depths: median_depths.next().unwrap_or_default(),
        };
        (0..rows).map(next).collect()
    }
}

/// Running state of a tile's pixels, in rows of [`TILE`].
struct TileState<R> {
    color: [Vec3<R>; TILE_PIXELS],
    inverse_depth: [R; TILE_PIXELS],
    inverse_square: [R; TILE_PIXELS],
    surface: [Vec3<R>; TILE_PIXELS],
    /// Depth of the splat behind which half of the light is stopped; 0 if there is none.
    half_depth: [R; TILE_PIXELS],
    transmittance: [R; TILE_PIXELS],
    finished: [bool; TILE_PIXELS],
    pixels: [Pixel; TILE_PIXELS],
}

impl<R: Real> TileState<R> {
    fn new() -> Self {
        Self {
            color: [[R::ZERO; 3]; TILE_PIXELS],
            inverse_depth: [R::ZERO; TILE_PIXELS],
            inverse_square: [R::ZERO; TILE_PIXELS],
            surface: [[R::ZERO; 3]; TILE_PIXELS],
            half_depth: [R::ZERO; TILE_PIXELS],
            transmittance: [R::ONE; TILE_PIXELS],
            finished: [false; TILE_PIXELS],
            pixels: [Pixel::default(); TILE_PIXELS],
        }
    }

    /// Writes the tile's colours to its band of the image.
    fn store(
        &self,
        area: Rect,
        width: usize,
        background: Vec3<R>,
        image: &mut [R],
        pixels: &mut [Pixel],
    ) {
        for y in area.y0..area.y1 {
            for x in area.x0..area.x1 {
                let (i, at) = (place_in_tile(x, y), (y % TILE) as usize * width + x as usize);
                for c in 0..3 {
                    image[at * 3 + c] = self.color[i][c] + self.transmittance[i] * background[c];
                }
                pixels[at] = self.pixels[i];
            }
        }
    }

    /// Writes the tile's maps.
    fn store_beside(&self, area: Rect, width: usize, maps: &mut MapBands<'_, R>) {
        let store = |map: &mut [R], at: usize, value: R| {
            if let Some(pixel) = map.get_mut(at) {
                *pixel = value;
            }
        };
        for y in area.y0..area.y1 {
            for x in area.x0..area.x1 {
                let (i, at) = (place_in_tile(x, y), (y % TILE) as usize * width + x as usize);
                store(maps.inverse_depths, at, self.inverse_depth[i]);
                store(maps.inverse_squares, at, self.inverse_square[i]);
                store(maps.median_depths, at, self.half_depth[i]);
                if let Some(pixel) = maps.surface.get_mut(at * 4..at * 4 + 4) {
                    let [depth, normal_x, normal_y] = self.surface[i];
                    let opacity = R::ONE - self.transmittance[i];
                    pixel.copy_from_slice(&[depth, normal_x, normal_y, opacity]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::stage::bin::bin;
    use crate::math::differences::{assert_near, central};
    use crate::math::random::{RandomStream, RandomUse};
    use crate::math::splat::Ellipse;

    const SIZE: [u32; 2] = [9, 7];

    const PIXELS: usize = 63;

    const SETTINGS: DrawSettings = DrawSettings {
        inverse_depths: true,
        surface: true,
        background: [0.2, 0.5, 0.9],
        ..DrawSettings::DEFAULT
    };

    /// Returns uniform numbers in -1..1; each stream has its own.
    fn draws(stream: u64, count: usize) -> Vec<f64> {
        let stream = RandomStream::new(5, stream, RandomUse::Sample);
        (0..count as u64).map(|i| 2.0 * stream.uniform(i) - 1.0).collect()
    }

    /// Returns splats so wide that all of them affect every pixel and no cutoff is near.
    fn splats() -> Vec<Splat<f64>> {
        let splat = |i: usize| {
            let d = draws(i as u64, 10);
            let (xx, xy, yy) = (0.05 + 0.01 * d[0], 0.01 * d[1], 0.05 + 0.01 * d[2]);
            let det = xx * yy - xy * xy;
            Splat {
                row: i,
                ellipse: Ellipse {
                    mean_px: [4.5 + 3.0 * d[3], 3.5 + 2.0 * d[4]],
                    depth: 1.5 + d[5],
                    cov_px2: [yy / det, -xy / det, xx / det],
                    conic: [xx, xy, yy],
                    kept: 1.0,
                },
                surfel: None,
                opacity: 0.5 + 0.3 * d[6],
                color: [d[7], d[8], d[9]].map(|c| 0.5 + 0.4 * c),
                surface: [1.5 + d[5], 0.6 * d[8], 0.6 * d[9]],
                pixels: Rect { x0: 0, y0: 0, x1: SIZE[0], y1: SIZE[1] },
                exponent_min: -20.0,
            }
        };
        (0..6).map(splat).collect()
    }

    /// Returns gradients of the image, of the inverse depths and of the surface.
    fn d_pixels() -> [Vec<f64>; 3] {
        [draws(100, PIXELS * 3), draws(101, PIXELS), draws(102, PIXELS * 3)]
    }

    fn drawn(splats: &[Splat<f64>]) -> (Bins, Canvas<f64>) {
        let bins = bin(splats, SIZE);
        let canvas = forward(splats, &bins, SIZE, &SETTINGS);
        (bins, canvas)
    }

    fn gradients(splats: &[Splat<f64>], d_pixels: &[Vec<f64>; 3]) -> Vec<ScreenGradient<f64>> {
        let (bins, canvas) = drawn(splats);
        let [image, inverse_depths, surface] = d_pixels;
        let d_canvas =
            CanvasGradient { image, inverse_depths, inverse_squares: &[], surface, through: &[] };
        backward(splats, &bins, &canvas, d_canvas)
    }

    #[test]
    fn gradients_of_every_channel_agree_with_their_differences() {
        let d_pixels = d_pixels();
        let [d_image, d_depths, d_surface] = &d_pixels;
        let splats = splats();
        let objective = |splats: &[Splat<f64>]| -> f64 {
            let (_, canvas) = drawn(splats);
            let sum =
                |values: &[f64], d: &[f64]| values.iter().zip(d).map(|(v, d)| v * d).sum::<f64>();
            let channels = canvas.surface.chunks_exact(4).flat_map(|pixel| pixel[..3].to_vec());
            sum(&canvas.image, d_image)
                + sum(&canvas.inverse_depths, d_depths)
                + sum(&channels.collect::<Vec<_>>(), d_surface)
        };
        let found = gradients(&splats, &d_pixels);
        for (i, found) in found.iter().enumerate() {
            let assert_agrees = |name: &str, found: f64, moved: &dyn Fn(&mut Splat<f64>, f64)| {
                // Central differences have a curvature error of 1e-8 and a rounding error of 1e-16 / 1e-4.
                let expected = central(1e-4, |h| {
                    let mut splats = splats.clone();
                    moved(&mut splats[i], h);
                    objective(&splats)
                });
                assert_near(found, expected, 1e-6 * expected.abs().max(1.0), (i, name));
                assert!(found.abs() > 1e-6, "{i} {name} takes no gradient");
            };
            for k in 0..2 {
                assert_agrees("mean", found.d_mean_px[k], &|s, h| s.ellipse.mean_px[k] += h);
            }
            for k in 0..3 {
                // The conic is small, and the exponent is steep in the conic.
                let d_conic = 0.01 * found.d_conic[k];
                assert_agrees("conic", d_conic, &|s, h| s.ellipse.conic[k] += 0.01 * h);
                assert_agrees("color", found.d_color[k], &|s, h| s.color[k] += h);
                assert_agrees("surface", found.d_surface[k], &|s, h| s.surface[k] += h);
            }
            assert_agrees("opacity", found.d_opacity, &|s, h| s.opacity += h);
            // The bins are fixed, and the depths are too far apart for the order to change.
            assert_agrees("inverse depth", found.d_inverse_depth, &|s, h| {
                s.ellipse.depth = 1.0 / (1.0 / s.ellipse.depth + h);
            });
        }
    }

    #[test]
    fn absolute_gradients_sum_each_pixel_alone() {
        let d_pixels = d_pixels();
        let splats = splats();
        let found = gradients(&splats, &d_pixels);
        let mut expected = vec![[0.0; 2]; splats.len()];
        for pixel in 0..PIXELS {
            let mut alone = d_pixels.clone();
            for values in &mut alone {
                let width = values.len() / PIXELS;
                values[..pixel * width].fill(0.0);
                values[(pixel + 1) * width..].fill(0.0);
            }
            for (sum, gradient) in expected.iter_mut().zip(gradients(&splats, &alone)) {
                for (sum, d) in sum.iter_mut().zip(gradient.d_mean_px) {
                    *sum += d.abs();
                }
            }
        }
        for (found, expected) in found.iter().zip(&expected) {
            for axis in 0..2 {
                let (net, expected) = (found.d_mean_px[axis].abs(), expected[axis]);
                // The 63 terms are summed in another order.
                assert_near(found.d_mean_abs[axis], expected, 1e-12 * expected, axis);
                assert!(net < 0.9 * expected, "nothing cancels: {found:?}");
            }
        }
    }

    #[test]
    fn inverse_depths_are_drawn_on_request_without_background() {
        let splats = splats();
        let bins = bin(&splats, SIZE);
        let map = |settings: &DrawSettings| forward(&splats, &bins, SIZE, settings).inverse_depths;
        assert_eq!(map(&SETTINGS).len(), PIXELS);
        assert!(map(&DrawSettings { inverse_depths: false, ..SETTINGS }).is_empty());
        let alone = &splats[..1];
        let canvas = forward(alone, &bin(alone, SIZE), SIZE, &SETTINGS);
        let mut white = alone.to_vec();
        white[0].color = [1.0; 3];
        let black = DrawSettings { background: [0.0; 3], ..SETTINGS };
        let weights = forward(&white, &bin(&white, SIZE), SIZE, &black).image;
        for (inverse_depth, weight) in canvas.inverse_depths.iter().zip(weights.chunks_exact(3)) {
            // One rounding of each factor.
            assert!((inverse_depth - weight[0] / alone[0].ellipse.depth).abs() < 1e-15);
        }
        let nothing = forward::<f64>(&[], &bin::<f64>(&[], SIZE), SIZE, &SETTINGS);
        assert_eq!(nothing.inverse_depths, vec![0.0; PIXELS]);
    }

    #[test]
    fn surface_maps_are_drawn_on_request_and_hold_the_opacity() {
        let splats = splats();
        let bins = bin(&splats, SIZE);
        let map = |settings: &DrawSettings| forward(&splats, &bins, SIZE, settings).surface;
        assert_eq!(map(&SETTINGS).len(), PIXELS * 4);
        assert!(map(&DrawSettings { surface: false, ..SETTINGS }).is_empty());
        let mut white = splats.clone();
        for splat in &mut white {
            splat.color = [1.0; 3];
        }
        let black = DrawSettings { background: [0.0; 3], ..SETTINGS };
        let weights = forward(&white, &bins, SIZE, &black).image;
        for (pixel, weight) in map(&SETTINGS).chunks_exact(4).zip(weights.chunks_exact(3)) {
            // The opacity is a sum of weights in one and 1 less a product in the other.
            assert_near(pixel[3], weight[0], 1e-14, "opacity");
        }
    }
}
