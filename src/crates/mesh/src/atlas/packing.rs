//! Rectangles in rows.

/// A rectangle in world units; wider than high.
pub(super) type Size = [f64; 2];

/// Where rectangles lie on a picture.
pub(super) struct Packed {
    /// Texels a world unit.
    pub(super) density: f64,
    /// The upper left corner of each, in texels.
    pub(super) corners: Vec<[u32; 2]>,
    /// Rows of texels that are used.
    pub(super) height: u32,
}

/// Steps in which the density is narrowed down: to a thousandth.
const STEPS: usize = 14;

/// Packs rectangles from the highest to the lowest, each in the first row that has room for it (Coffman et
/// al. 1980), at the greatest density that fits a square of `side_px`, each with `padding_px` about it. None
/// where not even points fit.
pub(super) fn pack(sizes: &[Size], side_px: u32, padding_px: u32) -> Option<Packed> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by(|&a, &b| sizes[b][1].total_cmp(&sizes[a][1]).then(a.cmp(&b)));
    let area: f64 = sizes.iter().map(|size| size[0] * size[1]).sum();
    let widest = sizes.iter().map(|size| size[0]).fold(0.0, f64::max);
    let side = f64::from(side_px);
    // Beyond this, not all area or the widest of them fits.
    let mut high = (side / area.sqrt()).min(side / widest);
    let mut low = 0.0;
    if !high.is_finite() {
        high = 0.0;
    }
    let rows = ShelfRows { sizes, order: &order, side_px, padding_px };
    let mut best = rows.at(0.0)?;
    for _ in 0..STEPS {
        let density = 0.5 * (low + high);
        match rows.at(density) {
            Some(packed) => {
                best = packed;
                low = density;
            }
            None => high = density,
        }
    }
    Some(best)
}

/// A row with room at its end.
struct OpenRow {
    x: u64,
    y: u64,
}

struct ShelfRows<'a> {
    sizes: &'a [Size],
    order: &'a [usize],
    side_px: u32,
    padding_px: u32,
}

impl ShelfRows<'_> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    fn at(&self, density: f64) -> Option<Packed> {
        let padding = 2 * u64::from(self.padding_px);
        let side = u64::from(self.side_px);
        let texels = |length: f64| ((length * density).ceil() as u64).max(1) + padding;
        let mut corners = vec![[0; 2]; self.sizes.len()];
        let least = self.sizes.iter().map(|size| texels(size[0])).min().unwrap_or(0);
        let mut rows: Vec<OpenRow> = Vec::new();
        let mut end = 0;
        for &index in self.order {
            let [width, height] = self.sizes[index].map(texels);
            let row = match rows.iter().position(|row| row.x + width <= side) {
                Some(row) => row,
                None if width > side || end + height > side => return None,
                None => {
                    rows.push(OpenRow { x: 0, y: end });
                    end += height;
                    rows.len() - 1
                }
            };
            let OpenRow { x, y } = &mut rows[row];
            corners[index] = [*x, *y].map(|at| at as u32 + self.padding_px);
            *x += width;
            if *x + least > side {
                // Nothing fits it any more.
                rows.remove(row);
            }
        }
        Some(Packed { density, corners, height: end as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rectangles_keep_apart_and_fill_the_picture() {
        let sizes: Vec<Size> = (0..200)
            .map(|i| [1.0 + f64::from(i * 37 % 50) / 10.0, 0.2 + f64::from(i % 9) / 10.0])
            .collect();
        let packed = pack(&sizes, 512, 2).unwrap();
        let area: f64 = sizes.iter().map(|size| size[0] * size[1]).sum();
        let filled = area * packed.density.powi(2) / 512_f64.powi(2);
        assert!(filled > 0.6 && packed.height <= 512, "{filled}");
        let of = |i: usize, axis: usize| {
            let low = f64::from(packed.corners[i][axis]);
            (low, low + sizes[i][axis] * packed.density)
        };
        for i in 0..sizes.len() {
            for axis in 0..2 {
                assert!(of(i, axis).0 >= 2.0 && of(i, axis).1 <= 510.0);
            }
            for j in 0..i {
                let apart = (0..2).any(|axis| {
                    let ((a, b), (c, d)) = (of(i, axis), of(j, axis));
                    a >= d + 4.0 || c >= b + 4.0
                });
                assert!(apart, "{i} {j}");
            }
        }
        assert!(pack(&sizes, 60, 2).is_none());
        assert_eq!(pack(&[[0.0, 0.0]], 64, 2).unwrap().corners, [[2, 2]]);
    }
}
