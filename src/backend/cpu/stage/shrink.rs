//! Stage `shrink`: downscales a photograph by an integer divisor, by averaging squares of pixels.

use crate::dataset::{Image, InverseDepthMap, NormalMap};
use crate::math::Divisor;

/// Downscales a photograph with its inverse depths and normals. Means are rounded, halves up. Incomplete squares at
/// the right and bottom are dropped. A pixel is masked and black if any of its source pixels is masked.
pub(crate) fn shrunk(image: &Image, divisor: Divisor) -> Image {
    let squares = Squares::of(image, divisor);
    let [width, height] = squares.px;
    let mask: Option<Vec<u8>> = image.mask.as_ref().map(|mask| {
        let counts = |at: [usize; 2]| squares.pixels(at).all(|pixel| mask[pixel] != 0);
        squares.each().map(|at| if counts(at) { 255 } else { 0 }).collect()
    });
    let mut rgb = Vec::with_capacity(width * height * 3);
    for (pixel, at) in squares.each().enumerate() {
        let counts = mask.as_ref().is_none_or(|mask| mask[pixel] != 0);
        rgb.extend([0, 1, 2].map(|channel| match counts {
            true => squares.mean(at, |pixel| image.rgb[pixel * 3 + channel]),
            false => 0,
        }));
    }
    let depth = image.depth.as_ref().map(|map| InverseDepthMap {
        values: squares.each().map(|at| squares.mean(at, |pixel| map.values[pixel])).collect(),
        scale: map.scale,
        offset: map.offset,
    });
    let normals = image.normals.as_ref().map(|map| {
        let value = |pixel: usize, axis| NormalMap::biased(map.values[pixel * 3 + axis]);
        let mean = |at| [0, 1, 2].map(|axis| squares.mean(at, |pixel| value(pixel, axis)));
        let values = squares.each().flat_map(mean).map(NormalMap::unbiased).collect();
        NormalMap { values }
    });
    let [width, height] = divisor.px([image.width, image.height]);
    Image { width, height, rgb, mask, depth, normals }
}

/// Squares of source pixels.
struct Squares {
    /// Number of squares per row and per column.
    px: [usize; 2],
    /// Number of pixels per row of the image.
    full_width: usize,
    side: usize,
}

impl Squares {
    fn of(image: &Image, divisor: Divisor) -> Self {
        let px = divisor.px([image.width, image.height]).map(|side| side as usize);
        Self { px, full_width: image.width as usize, side: divisor.get() as usize }
    }

    /// Yields the column and row of each square, row by row.
    fn each(&self) -> impl Iterator<Item = [usize; 2]> {
        let [width, height] = self.px;
        (0..height).flat_map(move |y| (0..width).map(move |x| [x, y]))
    }

    /// Yields the source pixels of a square.
    fn pixels(&self, [x, y]: [usize; 2]) -> impl Iterator<Item = usize> {
        let &Self { full_width, side, .. } = self;
        (y * side..(y + 1) * side)
            .flat_map(move |row| (x * side..(x + 1) * side).map(move |at| row * full_width + at))
    }

    fn mean<T>(&self, at: [usize; 2], value: impl Fn(usize) -> T) -> T
    where
        T: Into<u32> + TryFrom<u32> + Default,
    {
        let sum: u32 = self.pixels(at).map(|pixel| value(pixel).into()).sum();
        let count = u32::try_from(self.side * self.side).unwrap_or(1);
        // The mean is at most the largest value, so the conversion succeeds.
        T::try_from((sum + count / 2) / count).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates an image of 5 x 3 px with different values.
    fn image(mask: Option<Vec<u8>>) -> Image {
        let rgb = (0..45).map(|i| 5 * i).collect();
        let values = (0..15).map(|i| 4000 * i).collect();
        let depth = Some(InverseDepthMap { values, scale: 2.0, offset: 0.5 });
        let values = (0..45).map(|i| i8::try_from(5 * i - 110).unwrap()).collect();
        let normals = Some(NormalMap { values });
        Image { width: 5, height: 3, rgb, mask, depth, normals }
    }

    #[test]
    fn pixels_are_rounded_means_and_incomplete_squares_are_dropped() {
        let small = shrunk(&image(None), Divisor::Two);
        assert_eq!((small.width, small.height, &small.mask), (2, 1, &None));
        // Pixels 0, 1, 5 and 6 have the first values 0, 15, 75 and 90.
        assert_eq!(small.rgb, [45, 50, 55, 75, 80, 85]);
        let map = small.depth.unwrap();
        assert_eq!((map.values, map.scale, map.offset), (vec![12_000, 20_000], 2.0, 0.5));
        // Pixels 0, 1, 5 and 6 have the first values -110, -95, -35 and -20.
        assert_eq!(small.normals.unwrap().values, [-65, -60, -55, -35, -30, -25]);
        // 2 / 4 becomes 1, and 1 / 4 becomes 0.
        let rgb = vec![0, 1, 255, 1, 0, 255, 1, 0, 255, 0, 0, 255];
        let image = Image { width: 2, height: 2, rgb, mask: None, depth: None, normals: None };
        assert_eq!(shrunk(&image, Divisor::Two).rgb, [1, 0, 255]);
        assert_eq!(shrunk(&image, Divisor::One), image);
    }

    #[test]
    fn pixels_count_if_no_source_pixel_is_masked() {
        let mut mask = vec![255; 15];
        // The first is in the second square; the other two are in dropped squares.
        (mask[7], mask[4], mask[11]) = (0, 0, 0);
        let small = shrunk(&image(Some(mask)), Divisor::Two);
        assert_eq!(small.mask, Some(vec![255, 0]));
        assert_eq!(small.rgb, [45, 50, 55, 0, 0, 0]);
    }
}
