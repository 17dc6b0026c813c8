//! Stage `bin`: lists the splats of each tile, front to back.

use rayon::prelude::*;

use crate::backend::cpu::primitive::Splat;
use crate::math::Real;
use crate::math::splat::{Rect, Spans, TILE};
use crate::memory::Bytes;

/// Lists of splats by tile, in row-major order.
#[derive(Debug)]
pub(crate) struct Bins {
    /// Number of tiles per row and per column.
    pub(crate) tiles: [u32; 2],
    /// Start of each tile's list, and the end of the last; `[tiles + 1]`.
    pub(crate) starts: Vec<usize>,
    /// Indices of splats, front to back within a tile; `[instances]`.
    pub(crate) splat_from_instance: Vec<usize>,
}

impl Bins {
    /// Returns the range of instances of a tile.
    pub(crate) fn range(&self, x: u32, y: u32) -> std::ops::Range<usize> {
        let tile = self.tile(x, y);
        self.starts[tile]..self.starts[tile + 1]
    }

    pub(crate) fn bytes(&self) -> Bytes {
        Bytes::of::<usize>(self.starts.capacity() + self.splat_from_instance.capacity())
    }

    fn tile(&self, x: u32, y: u32) -> usize {
        y as usize * self.tiles[0] as usize + x as usize
    }

    /// Yields the pixels and the list of each tile in a row of tiles.
    pub(crate) fn row(
        &self,
        tile_y: u32,
        size: [u32; 2],
    ) -> impl Iterator<Item = (Rect, &[usize])> {
        (0..self.tiles[0]).map(move |tile_x| {
            let list = &self.splat_from_instance[self.range(tile_x, tile_y)];
            (Rect::of_tile(tile_x, tile_y, size), list)
        })
    }

    /// Returns the sum over the instances of each splat. `visit` adds to the values of a tile's instances; rows of
    /// tiles run in parallel.
    pub(crate) fn sums<T: Clone + Default + Send>(
        &self,
        splats: usize,
        size: [u32; 2],
        visit: impl Fn(Rect, &[usize], &mut [T]) + Sync,
        add: impl Fn(&mut T, &T),
    ) -> Vec<T> {
        let mut per_instance = vec![T::default(); self.splat_from_instance.len()];
        let mut rows = Vec::with_capacity(self.tiles[1] as usize);
        let mut rest = per_instance.as_mut_slice();
        for tile_y in 0..self.tiles[1] {
            let length = self.range(self.tiles[0] - 1, tile_y).end - self.range(0, tile_y).start;
            let (row, behind) = rest.split_at_mut(length);
            rows.push((tile_y, row));
            rest = behind;
        }
        rows.into_par_iter().for_each(|(tile_y, mut rest)| {
            for (area, list) in self.row(tile_y, size) {
                let (values, behind) = rest.split_at_mut(list.len());
                visit(area, list, values);
                rest = behind;
            }
        });
        // A single thread adds in instance order, so that sums do not depend on timing.
        let mut per_splat = vec![T::default(); splats];
        for (&splat, value) in self.splat_from_instance.iter().zip(&per_instance) {
            add(&mut per_splat[splat], value);
        }
        per_splat
    }
}

/// Lists every splat in the tiles that it overlaps. Equal depths keep the order of the rows.
pub(crate) fn bin<R: Real>(splats: &[Splat<R>], size: [u32; 2]) -> Bins {
    let tiles = size.map(|side| side.div_ceil(TILE));
    let count = tiles[0] as usize * tiles[1] as usize;
    let mut bins = Bins { tiles, starts: vec![0; count + 1], splat_from_instance: Vec::new() };

    let mut front_to_back: Vec<usize> = (0..splats.len()).collect();
    front_to_back.par_sort_by(|&a, &b| {
        // Depths are finite: `project` drops all others.
        let (a, b) = (splats[a].ellipse.depth, splats[b].ellipse.depth);
        a.partial_cmp(&b).unwrap_or(std::cmp::Ordering::Equal)
    });

    let mut instances = Vec::new();
    for splat in front_to_back {
        for_each_tile(&splats[splat], size, |x, y| {
            let tile = bins.tile(x, y);
            bins.starts[tile + 1] += 1;
            instances.push((tile, splat));
        });
    }
    for tile in 0..count {
        bins.starts[tile + 1] += bins.starts[tile];
    }
    let mut next = bins.starts.clone();
    bins.splat_from_instance = vec![0; instances.len()];
    for (tile, splat) in instances {
        bins.splat_from_instance[next[tile]] = splat;
        next[tile] += 1;
    }
    bins
}

/// Calls `visit` for each tile that the splat may overlap. A single candidate is not tested.
pub(crate) fn for_each_tile<R: Real>(
    splat: &Splat<R>,
    size: [u32; 2],
    mut visit: impl FnMut(u32, u32),
) {
    if splat.pixels.is_empty() {
        return;
    }
    let tiles = splat.pixels.tiles();
    if tiles.x1 - tiles.x0 == 1 && tiles.y1 - tiles.y0 == 1 {
        return visit(tiles.x0, tiles.y0);
    }
    let spans = Spans::new(&splat.ellipse, splat.exponent_min, size);
    for y in tiles.y0..tiles.y1 {
        let columns = spans.columns(y * TILE..((y + 1) * TILE).min(size[1]));
        if columns.is_empty() {
            continue;
        }
        for x in tiles.x0.max(columns.start / TILE)..tiles.x1.min(columns.end.div_ceil(TILE)) {
            visit(x, y);
        }
    }
}
