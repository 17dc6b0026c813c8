//! The pixels of a tile while it is blended, and where they go.

use crate::math::Real;
use crate::math::linalg::Vec3;
use crate::math::splat::{Rect, TILE};

/// Pixels of a tile.
pub(super) const TILE_PIXELS: usize = (TILE * TILE) as usize;

/// What blending leaves of a pixel besides its colour.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pixel {
    /// Splats that changed the pixel.
    pub(super) blended: u32,
    /// Position behind the last of them in the tile's list.
    pub(super) end: u32,
}

/// Place of a pixel in its tile.
pub(in crate::backend::cpu::stage) fn place_in_tile(x: u32, y: u32) -> usize {
    ((y % TILE) * TILE + x % TILE) as usize
}

/// A band of each of the maps beside the colours: a row of tiles. Empty of a map that is not drawn.
#[derive(Default)]
pub(super) struct MapBands<'a, R> {
    inverse_depths: &'a mut [R],
    inverse_squares: &'a mut [R],
    surface: &'a mut [R],
    median_depths: &'a mut [R],
}

impl<'a, R> MapBands<'a, R> {
    /// Those of so many rows of tiles, which have so many pixels each.
    pub(super) fn of(maps: [&'a mut [R]; 4], rows: u32, pixels: usize) -> Vec<Self> {
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

/// Running state of a tile's pixels, rows of [`TILE`].
pub(super) struct TileState<R> {
    pub(super) color: [Vec3<R>; TILE_PIXELS],
    pub(super) inverse_depth: [R; TILE_PIXELS],
    pub(super) inverse_square: [R; TILE_PIXELS],
    pub(super) surface: [Vec3<R>; TILE_PIXELS],
    /// Depth of the splat behind which half of the light is stopped; 0 where there is none.
    pub(super) half_depth: [R; TILE_PIXELS],
    pub(super) transmittance: [R; TILE_PIXELS],
    pub(super) finished: [bool; TILE_PIXELS],
    pub(super) pixels: [Pixel; TILE_PIXELS],
}

impl<R: Real> TileState<R> {
    /// Nothing is blended.
    pub(super) fn new() -> Self {
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

    /// Copies the tile's colours into its band of the image.
    pub(super) fn store(
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

    /// The same of what is drawn beside them.
    pub(super) fn store_beside(&self, area: Rect, width: usize, maps: &mut MapBands<'_, R>) {
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
