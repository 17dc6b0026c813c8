//! Stage `blend`: splats to pixels front to back, and pixel gradients back to splats.
//!
//! Rows of tiles run in parallel; within a tile each splat visits only the pixels in its bounds.

#[cfg(test)]
mod tests;
mod tile;

use rayon::prelude::*;

pub(super) use self::tile::place_in_tile;
use self::tile::{MapBands, Pixel, TILE_PIXELS, TileState};
use super::bin::Bins;
use crate::backend::cpu::splat::Splat;
use crate::backend::{Drawing, Footprint, Rendered};
use crate::math::Real;
use crate::math::blend::{PixelWalk, ScreenGradient, Shade, TRANSMITTANCE_MIN, blend_bwd_of};
use crate::math::splat::{Rect, TILE};
use crate::memory::Bytes;

/// A drawn image with what the backward pass starts from.
#[derive(Debug)]
pub(crate) struct Canvas<R> {
    /// Size, px.
    pub(crate) size: [u32; 2],
    /// Colours with the background, [height, width, 3].
    pub(crate) image: Vec<R>,
    /// Sums of the weights over the depths, per world unit, [height, width]; empty where they are not
    /// drawn.
    pub(crate) inverse_depths: Vec<R>,
    /// Sums of the weights over the squares of the depths, [height, width]; empty where they are not
    /// drawn.
    pub(crate) inverse_squares: Vec<R>,
    /// Depth, x and y of the normal, opacity, [height, width, 4]; empty where they are not drawn.
    pub(crate) surface: Vec<R>,
    /// Median depths, [height, width]; of ellipses empty until stage `median` finds them.
    pub(crate) median_depths: Vec<R>,
    pixels: Vec<Pixel>,
}

impl<R: Real> Canvas<R> {
    /// Black, with room for what is drawn beside the colours; without counts.
    pub(crate) fn blank(size: [u32; 2], settings: &Drawing) -> Self {
        let pixels = size[0] as usize * size[1] as usize;
        // Those of ellipses are found by stage `median`.
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

/// Draws the image.
pub(crate) fn forward<R: Real>(
    splats: &[Splat<R>],
    bins: &Bins,
    size: [u32; 2],
    settings: &Drawing,
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
            for tile_x in 0..bins.tiles[0] {
                let area = Rect::of_tile(tile_x, tile_y, size);
                let list = &bins.splat_from_instance[bins.range(tile_x, tile_y)];
                let tile = blend_tile(splats, list, area);
                tile.store(area, width, background, image, pixels);
                tile.store_beside(area, width, &mut maps);
            }
        });
    canvas
}

/// Blends the splats of a tile's list in its area.
type BlendTile<R> = fn(&[Splat<R>], &[usize], Rect) -> TileState<R>;

/// Blends a tile, and a surface only where it is drawn: it would cost every pixel of the others.
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

/// What the backward pass starts from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CanvasGradient<'a, R> {
    /// Of the image, [height, width, 3].
    pub(crate) image: &'a [R],
    /// Of the inverse depths, [height, width]; empty where they have none.
    pub(crate) inverse_depths: &'a [R],
    /// Of the squares of inverse depths, [height, width]; empty where they have none.
    pub(crate) inverse_squares: &'a [R],
    /// Of depth and of x and y of the normal, [height, width, 3]; empty where they have none.
    pub(crate) surface: &'a [R],
    /// Of the final transmittance, besides the background, [height, width]; empty where it has
    /// none, and never there without the surface's.
    pub(crate) through: &'a [R],
}

impl<'a, R> CanvasGradient<'a, R> {
    /// Of the image alone.
    pub(crate) const fn of_image(image: &'a [R]) -> Self {
        let (inverse_depths, inverse_squares, surface, through) = (&[], &[], &[], &[]);
        Self { image, inverse_depths, inverse_squares, surface, through }
    }
}

/// Gradients of every splat from those of the image and of what is drawn beside it; `[visible]`.
pub(crate) fn backward<R: Real>(
    splats: &[Splat<R>],
    bins: &Bins,
    canvas: &Canvas<R>,
    d_canvas: CanvasGradient<'_, R>,
) -> Vec<ScreenGradient<R>> {
    let mut per_instance = vec![ScreenGradient::default(); bins.splat_from_instance.len()];
    let with_surface = !d_canvas.surface.is_empty();
    split_by_tile_row(&mut per_instance, bins).into_par_iter().for_each(|(tile_y, row)| {
        let row_start = bins.range(0, tile_y).start;
        for tile_x in 0..bins.tiles[0] {
            let range = bins.range(tile_x, tile_y);
            let out = &mut row[range.start - row_start..range.end - row_start];
            let list = &bins.splat_from_instance[range];
            let area = Rect::of_tile(tile_x, tile_y, canvas.size);
            if with_surface {
                blend_tile_bwd::<R, true>(splats, list, out, area, canvas, d_canvas);
            } else {
                blend_tile_bwd::<R, false>(splats, list, out, area, canvas, d_canvas);
            }
        }
    });
    // One thread adds in the order of the instances, so that the sums never depend on timing.
    let mut per_splat = vec![ScreenGradient::default(); splats.len()];
    for (&splat, gradient) in bins.splat_from_instance.iter().zip(&per_instance) {
        per_splat[splat].add(gradient);
    }
    per_splat
}

/// One slice of the instances for each row of tiles.
pub(super) fn split_by_tile_row<'a, T>(
    mut rest: &'a mut [T],
    bins: &Bins,
) -> Vec<(u32, &'a mut [T])> {
    let mut rows = Vec::with_capacity(bins.tiles[1] as usize);
    for tile_y in 0..bins.tiles[1] {
        let length = bins.range(bins.tiles[0] - 1, tile_y).end - bins.range(0, tile_y).start;
        let (row, behind) = rest.split_at_mut(length);
        rows.push((tile_y, row));
        rest = behind;
    }
    rows
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
    let start = PixelWalk {
        transmittance: R::ONE,
        behind: [R::ZERO; 3],
        d_color: [R::ZERO; 3],
        inverse_depth_behind: R::ZERO,
        d_inverse_depth: R::ZERO,
        inverse_square_behind: R::ZERO,
        d_inverse_square: R::ZERO,
        surface_behind: [R::ZERO; 3],
        d_surface: [R::ZERO; 3],
        through: R::ZERO,
    };
    let mut walks = [start; TILE_PIXELS];
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
