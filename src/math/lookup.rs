//! Where a point lies in a map of a view, and what the map shows there: between the centres of its
//! pixels by their distances (bilinear), and beyond those of the border as at the border.

use super::Real;
use super::linalg::Vec3;
use super::splat::Viewpoint;

/// Where a point of the camera's space lies in the image, px; `None` if it lies outside or
/// not beyond [`Viewpoint::near`].
pub fn place_px<R: Real>(view: &Viewpoint<R>, [x, y, z]: Vec3<R>) -> Option<[R; 2]> {
    // Written so that NaN is rejected too.
    if !(z > view.near && z.is_finite()) {
        return None;
    }
    let slope = [x / z, y / z];
    let place = [0, 1].map(|axis| view.focal_px[axis] * slope[axis] + view.centre_px[axis]);
    let is_inside =
        |axis: usize| place[axis] >= R::ZERO && place[axis] <= R::of(f64::from(view.size[axis]));
    (is_inside(0) && is_inside(1)).then_some(place)
}

/// `d_point_cam` of [`place_px`], for points that have a position in the image.
pub fn place_px_bwd<R: Real>(view: &Viewpoint<R>, [x, y, z]: Vec3<R>, d_place: [R; 2]) -> Vec3<R> {
    let [d_x, d_y] = [0, 1].map(|axis| d_place[axis] * view.focal_px[axis] / z);
    [d_x, d_y, -(d_x * x + d_y * y) / z]
}

/// The four pixels that a place lies between.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PixelQuad<R> {
    /// Column and row of the first.
    pub low: [u32; 2],
    /// Of the last; the same as the first's beyond the centres of the border.
    pub high: [u32; 2],
    /// How far the place is on the way from the first to the last.
    pub share: [R; 2],
}

/// Where a place in an image of this size lies between the centres of pixels.
pub fn cell<R: Real>(place_px: [R; 2], size: [u32; 2]) -> PixelQuad<R> {
    let mut cell = PixelQuad { low: [0; 2], high: [0; 2], share: [R::ZERO; 2] };
    for axis in 0..2 {
        let (place, last) = (place_px[axis] - R::HALF, size[axis].saturating_sub(1));
        if place > R::ZERO {
            let low = u32::try_from(place.floor_i32()).unwrap_or(0).min(last);
            cell.low[axis] = low;
            cell.high[axis] = (low + 1).min(last);
            if low < last {
                cell.share[axis] = place - R::of(f64::from(low));
            }
        }
    }
    cell
}

impl<R: Real> PixelQuad<R> {
    /// Its four pixels, row by row.
    pub fn pixels(&self) -> [[u32; 2]; 4] {
        let ([x0, y0], [x1, y1]) = (self.low, self.high);
        [[x0, y0], [x1, y0], [x0, y1], [x1, y1]]
    }

    /// What each of them counts.
    pub fn weights(&self) -> [R; 4] {
        let [x, y] = self.share;
        let (left, above) = (R::ONE - x, R::ONE - y);
        [left * above, x * above, left * y, x * y]
    }
}

/// The value at the place and how it rises along x and y, per px, from those of the four pixels.
pub fn between<R: Real>(cell: &PixelQuad<R>, [a, b, c, d]: [R; 4]) -> (R, [R; 2]) {
    let [x, y] = cell.share;
    let (above, below) = (a + x * (b - a), c + x * (d - c));
    let along_x = (b - a) + y * ((d - c) - (b - a));
    (above + y * (below - above), [along_x, below - above])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: [u32; 2] = [5, 4];

    #[test]
    fn a_pixel_centre_reads_that_pixel_and_a_midpoint_the_mean_of_two() {
        let value = |[x, y]: [u32; 2]| f64::from(x * x + 10 * y);
        let at = |place| {
            let cell = cell(place, SIZE);
            between(&cell, cell.pixels().map(value))
        };
        for pixel in (0..5).flat_map(|x| (0..4).map(move |y| [x, y])) {
            let centre = pixel.map(|i| f64::from(i) + 0.5);
            assert_eq!(at(centre).0, value(pixel), "{pixel:?}");
        }
        assert_eq!(at([2.0, 1.0]), (7.5, [3.0, 10.0]));
        // A quarter of the way along both axes.
        assert_eq!(at([2.75, 1.75]), (4.0 + 0.25 * 5.0 + 12.5, [5.0, 10.0]));
    }

    #[test]
    fn beyond_the_centres_of_the_border_everything_is_as_at_the_border() {
        for (place, pixel) in [
            ([0.0, 0.2], [0, 0]),
            ([0.5, 0.5], [0, 0]),
            ([5.0, 0.3], [4, 0]),
            ([4.7, 4.0], [4, 3]),
            ([4.5, 3.5], [4, 3]),
        ] {
            let cell = cell::<f64>(place, SIZE);
            assert_eq!(cell.pixels(), [pixel; 4], "{place:?}");
            assert_eq!(cell.weights(), [1.0, 0.0, 0.0, 0.0]);
            assert_eq!(between(&cell, [7.0; 4]), (7.0, [0.0; 2]));
        }
        // An image of one pixel is all border.
        assert_eq!(cell([0.9, 0.1], [1, 1]).pixels(), [[0, 0]; 4]);
    }

    #[test]
    fn weights_are_how_the_value_follows_the_four_pixels() {
        let cell = cell([2.3, 1.9], SIZE);
        let values = [0.3, -1.2, 2.5, 0.7];
        let sum: f64 = cell.weights().iter().zip(values).map(|(w, v)| w * v).sum();
        // Rounding of a few terms of order 1.
        assert!((between(&cell, values).0 - sum).abs() < 1e-15);
        assert!((cell.weights().iter().sum::<f64>() - 1.0).abs() < 1e-15);
    }
}
