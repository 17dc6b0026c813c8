//! Stage `shrink`: a photograph made smaller by a whole divisor, by means over squares of its pixels.

use crate::dataset::{Image, InverseDepthMap, NormalMap};
use crate::math::Divisor;

/// The photograph made smaller. Pixels at the right and bottom edges that fill no square are dropped; a
/// pixel counts if all of its square count, and is black otherwise. Inverse depths and normals are means,
/// too, as what is drawn of a square is. Means are rounded, half a step up.
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

/// The squares of an image's pixels that become one each.
struct Squares {
    /// Squares in a row and in a column.
    px: [usize; 2],
    /// Pixels in a row of the image.
    full_width: usize,
    side: usize,
}

impl Squares {
    fn of(image: &Image, divisor: Divisor) -> Self {
        let px = divisor.px([image.width, image.height]).map(|side| side as usize);
        Self { px, full_width: image.width as usize, side: divisor.get() as usize }
    }

    /// All of them, by column and row, rows from the top.
    fn each(&self) -> impl Iterator<Item = [usize; 2]> {
        let [width, height] = self.px;
        (0..height).flat_map(move |y| (0..width).map(move |x| [x, y]))
    }

    /// The pixels of one.
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
        // A mean is not above the largest of its values.
        T::try_from((sum + count / 2) / count).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 5 x 3 px of different values.
    fn image(mask: Option<Vec<u8>>) -> Image {
        let rgb = (0..45).map(|i| 5 * i).collect();
        let values = (0..15).map(|i| 4000 * i).collect();
        let depth = Some(InverseDepthMap { values, scale: 2.0, offset: 0.5 });
        let values = (0..45).map(|i| i8::try_from(5 * i - 110).unwrap()).collect();
        let normals = Some(NormalMap { values });
        Image { width: 5, height: 3, rgb, mask, depth, normals }
    }

    #[test]
    fn a_pixel_is_the_rounded_mean_of_its_square_and_rests_are_dropped() {
        let small = shrunk(&image(None), Divisor::Two);
        assert_eq!((small.width, small.height, &small.mask), (2, 1, &None));
        // Of pixels 0, 1, 5 and 6 the first values are 0, 15, 75 and 90.
        assert_eq!(small.rgb, [45, 50, 55, 75, 80, 85]);
        let map = small.depth.unwrap();
        assert_eq!((map.values, map.scale, map.offset), (vec![12_000, 20_000], 2.0, 0.5));
        // Of pixels 0, 1, 5 and 6 the first are -110, -95, -35 and -20.
        assert_eq!(small.normals.unwrap().values, [-65, -60, -55, -35, -30, -25]);
        // 2 / 4 becomes 1, and 1 / 4 becomes 0.
        let rgb = vec![0, 1, 255, 1, 0, 255, 1, 0, 255, 0, 0, 255];
        let image = Image { width: 2, height: 2, rgb, mask: None, depth: None, normals: None };
        assert_eq!(shrunk(&image, Divisor::Two).rgb, [1, 0, 255]);
        assert_eq!(shrunk(&image, Divisor::One), image);
    }

    #[test]
    fn a_pixel_counts_if_all_of_its_square_count() {
        let mut mask = vec![255; 15];
        // In the second square; the other two are in none.
        (mask[7], mask[4], mask[11]) = (0, 0, 0);
        let small = shrunk(&image(Some(mask)), Divisor::Two);
        assert_eq!(small.mask, Some(vec![255, 0]));
        assert_eq!(small.rgb, [45, 50, 55, 0, 0, 0]);
    }
}
