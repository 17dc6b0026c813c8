//! Models of a camera's colour changes: one affine map per image, or a bilateral grid of affine maps (Wang et al.,
//! "Bilateral Guided Radiance Field Processing", 2024, section 4.1).
//!
//! An affine map is a row-major 3x4 matrix: three factors and an offset per channel. A grid has one map at each
//! corner of its cells, [luma, y, x, 12]. The map of a pixel is interpolated linearly along all three axes, at the
//! pixel's position and the luma of its colour.

use super::Real;
use super::linalg::Vec3;

/// Number of values of an affine map.
pub const AFFINE_WIDTH: usize = 12;

/// Corners of a grid along x, y and luma.
pub const GRID: [usize; 3] = [16, 16, 8];

/// Number of values of a grid.
pub const GRID_WIDTH: usize = GRID[0] * GRID[1] * GRID[2] * AFFINE_WIDTH;

/// Luma weights of the channels (ITU-R BT.601).
pub const LUMA: [f64; 3] = [0.299, 0.587, 0.114];

/// The identity map.
pub const IDENTITY: [f32; AFFINE_WIDTH] =
    [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0];

/// An affine colour map.
pub type Affine<R> = [R; AFFINE_WIDTH];

/// Applies a map to a colour.
#[inline]
pub fn affine<R: Real>(map: &Affine<R>, rgb: Vec3<R>) -> Vec3<R> {
    [0, 1, 2].map(|row| {
        let m = &map[row * 4..];
        m[0] * rgb[0] + m[1] * rgb[1] + m[2] * rgb[2] + m[3]
    })
}

/// Returns `d_rgb` of [`affine`].
#[inline]
pub fn affine_bwd<R: Real>(map: &Affine<R>, d_out: Vec3<R>) -> Vec3<R> {
    [0, 1, 2].map(|column| {
        map[column] * d_out[0] + map[4 + column] * d_out[1] + map[8 + column] * d_out[2]
    })
}

/// Adds a pixel's gradient of a map, times `weight`.
#[inline]
pub fn add_map_gradient<R: Real>(d_map: &mut [R], weight: R, rgb: Vec3<R>, d_out: Vec3<R>) {
    for (d_row, d_out) in d_map.chunks_exact_mut(4).zip(d_out) {
        let d = weight * d_out;
        for (d_value, value) in d_row.iter_mut().zip([rgb[0], rgb[1], rgb[2], R::ONE]) {
            *d_value += d * value;
        }
    }
}

/// A position between two grid corners along one axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Between<R> {
    /// Index of the lower corner.
    pub corner: usize,
    /// Fraction of the way to the next corner, 0..1.
    pub fraction: R,
}

/// Returns a pixel centre's position along one axis. The first and last corners lie on the image's edges. The
/// arithmetic is in integers, so that all devices agree.
#[inline]
pub fn place_of_pixel<R: Real>(pixel: u32, side: u32, corners: usize) -> Between<R> {
    let (cells, whole) = (corners as u64 - 1, 2 * u64::from(side.max(1)));
    let scaled = (2 * u64::from(pixel) + 1) * cells;
    let corner = usize::try_from(scaled / whole).unwrap_or(corners);
    Between { corner, fraction: R::of((scaled % whole) as f64 / whole as f64) }
}

/// Returns a colour's position along luma, and true if luma is strictly between 0 and 1, where it has a gradient.
#[inline]
pub fn place_of_luma<R: Real>(rgb: Vec3<R>) -> (Between<R>, bool) {
    let [r, g, b] = LUMA.map(R::of);
    let luma = r * rgb[0] + g * rgb[1] + b * rgb[2];
    let cells = GRID[2] - 1;
    let scaled = luma.max(R::ZERO).min(R::ONE) * R::of(cells as f64);
    let corner = usize::try_from(scaled.floor_i32()).unwrap_or(0).min(cells - 1);
    let fraction = scaled - R::of(corner as f64);
    (Between { corner, fraction }, luma > R::ZERO && luma < R::ONE)
}

/// The position in the grid at which a pixel's map is read.
#[derive(Clone, Copy, Debug)]
pub struct GridPlace<R> {
    /// Positions along x, y and luma.
    pub along: [Between<R>; 3],
    /// True if luma is not clamped, so that the position has a gradient.
    pub is_free: bool,
}

/// The map of one pixel and its derivative.
#[derive(Clone, Copy, Debug)]
pub struct Slice<R> {
    /// The pixel's map.
    pub map: Affine<R>,
    /// Derivative of the map by luma.
    pub slope: Affine<R>,
}

impl<R: Real> GridPlace<R> {
    /// Returns the position of a pixel of this colour in an image of `size`.
    pub fn new([x, y]: [u32; 2], size: [u32; 2], rgb: Vec3<R>) -> Self {
        let (luma, is_free) = place_of_luma(rgb);
        let along_x = place_of_pixel(x, size[0], GRID[0]);
        let along_y = place_of_pixel(y, size[1], GRID[1]);
        Self { along: [along_x, along_y, luma], is_free }
    }

    /// Returns the offsets and weights of the four corners below (`side` 0) or above (1) the luma. The weights add up
    /// to 1.
    fn corners(&self, side: usize) -> [(usize, R); 4] {
        let [x, y, luma] = self.along;
        let weight = |between: Between<R>, far: usize| {
            if far == 1 { between.fraction } else { R::ONE - between.fraction }
        };
        [[0, 0], [1, 0], [0, 1], [1, 1]].map(|[dx, dy]| {
            let corner = ((luma.corner + side) * GRID[1] + y.corner + dy) * GRID[0] + x.corner + dx;
            (corner * AFFINE_WIDTH, weight(x, dx) * weight(y, dy))
        })
    }

    /// Returns the maps at the luma corners below and above.
    fn planes(&self, grid: &[R]) -> [Affine<R>; 2] {
        [0, 1].map(|side| {
            let mut map = [R::ZERO; AFFINE_WIDTH];
            for (from, weight) in self.corners(side) {
                for (value, &corner) in map.iter_mut().zip(&grid[from..from + AFFINE_WIDTH]) {
                    *value += weight * corner;
                }
            }
            map
        })
    }

    /// Reads the map of the pixel.
    pub fn slice(&self, grid: &[R]) -> Slice<R> {
        let [low, high] = self.planes(grid);
        let cells = R::of((GRID[2] - 1) as f64);
        let difference: Affine<R> = std::array::from_fn(|k| high[k] - low[k]);
        let map = std::array::from_fn(|k| low[k] + self.along[2].fraction * difference[k]);
        Slice { map, slope: difference.map(|value| value * cells) }
    }

    /// Returns `d_rgb`, through the map and through the luma that selects it.
    pub fn slice_bwd(&self, grid: &[R], rgb: Vec3<R>, d_out: Vec3<R>) -> Vec3<R> {
        let Slice { map, slope } = self.slice(grid);
        let mut d_rgb = affine_bwd(&map, d_out);
        if self.is_free {
            let moved = affine(&slope, rgb);
            let d_luma = moved[0] * d_out[0] + moved[1] * d_out[1] + moved[2] * d_out[2];
            for (d, weight) in d_rgb.iter_mut().zip(LUMA) {
                *d += d_luma * R::of(weight);
            }
        }
        d_rgb
    }

    /// Adds the pixel's gradient of the grid.
    pub fn add_grid_gradient(&self, d_grid: &mut [R], rgb: Vec3<R>, d_out: Vec3<R>) {
        let fraction = self.along[2].fraction;
        for (side, along_luma) in [R::ONE - fraction, fraction].into_iter().enumerate() {
            for (from, weight) in self.corners(side) {
                let d_map = &mut d_grid[from..from + AFFINE_WIDTH];
                add_map_gradient(d_map, weight * along_luma, rgb, d_out);
            }
        }
    }
}

/// Distances in the table between neighbouring corners along each axis.
const STRIDES: [usize; 3] =
    [AFFINE_WIDTH, GRID[0] * AFFINE_WIDTH, GRID[0] * GRID[1] * AFFINE_WIDTH];

/// Returns the total variation of a grid: the mean squared difference of neighbours, summed over the axes (Wang et
/// al. 2024, section 4.1).
pub fn total_variation<R: Real>(grid: &[R]) -> R {
    let mut sum = R::ZERO;
    for (axis, stride) in STRIDES.into_iter().enumerate() {
        let corners = GRID[axis];
        let mut squares = R::ZERO;
        for k in (0..GRID_WIDTH).filter(|k| k / stride % corners + 1 < corners) {
            let difference = grid[k + stride] - grid[k];
            squares += difference * difference;
        }
        sum += squares * R::of(1.0 / pairs(axis));
    }
    sum
}

/// Returns the number of neighbour pairs along an axis.
fn pairs(axis: usize) -> f64 {
    (GRID_WIDTH / GRID[axis] * (GRID[axis] - 1)) as f64
}

/// Returns the gradient of [`total_variation`] by value `k` of the grid.
#[inline]
pub fn total_variation_bwd<R: Real>(grid: &[R], k: usize) -> R {
    let mut d = R::ZERO;
    for (axis, stride) in STRIDES.into_iter().enumerate() {
        let at = k / stride % GRID[axis];
        let mut differences = R::ZERO;
        if at > 0 {
            differences += grid[k] - grid[k - stride];
        }
        if at + 1 < GRID[axis] {
            differences += grid[k] - grid[k + stride];
        }
        d += R::of(2.0 / pairs(axis)) * differences;
    }
    d
}

/// Number of sums of a colour fit: products of (r, g, b, 1) with each other (upper triangle, row by row), then with
/// each channel of the photograph.
pub const FIT_SUMS: usize = 22;

/// Returns the terms that one pixel and its pixel in the photograph add to the sums.
#[inline]
pub fn fit_terms(rgb: Vec3<f64>, target: Vec3<f64>) -> [f64; FIT_SUMS] {
    let x = [rgb[0], rgb[1], rgb[2], 1.0];
    let mut terms = [0.0; FIT_SUMS];
    let mut next = 0;
    let mut put = |value| {
        terms[next] = value;
        next += 1;
    };
    for i in 0..4 {
        for j in i..4 {
            put(x[i] * x[j]);
        }
    }
    for y in target {
        for x in x {
            put(x * y);
        }
    }
    terms
}

/// Ridge per pixel. It prevents a division by zero and keeps the map of a constant channel at the identity.
const RIDGE: f64 = 1e-9;

/// Indices of the triangle's rows in the sums.
const TRIANGLE: [usize; 4] = [0, 4, 7, 9];

/// Returns the affine map that brings an image nearest to a photograph by least squares, from the sums of
/// [`fit_terms`]. Without pixels, or with a sum that is not finite, this is the identity.
pub fn fit(sums: &[f64; FIT_SUMS]) -> Affine<f64> {
    let mut map = IDENTITY.map(f64::from);
    let count = sums[9];
    if count <= 0.0 || !sums.iter().all(|sum| sum.is_finite()) {
        return map;
    }
    let normal = std::array::from_fn(|i| {
        std::array::from_fn(|j| {
            let (row, column) = (i.min(j), i.max(j));
            let ridge = if i == j { RIDGE } else { 0.0 };
            sums[TRIANGLE[row] + column - row] / count + ridge
        })
    });
    for channel in 0..3 {
        let mut right = [0.0; 4];
        for (k, value) in right.iter_mut().enumerate() {
            *value = sums[10 + channel * 4 + k] / count + RIDGE * map[channel * 4 + k];
        }
        map[channel * 4..][..4].copy_from_slice(&solve(normal, right));
    }
    map
}

/// Solves a positive definite system by Cholesky decomposition.
fn solve(matrix: [[f64; 4]; 4], right: [f64; 4]) -> [f64; 4] {
    let mut lower = [[0.0_f64; 4]; 4];
    for i in 0..4 {
        for j in 0..=i {
            let known: f64 = (0..j).map(|k| lower[i][k] * lower[j][k]).sum();
            let rest = matrix[i][j] - known;
            // Rounding may make a tiny pivot negative.
            lower[i][j] = if i == j { rest.max(RIDGE * RIDGE).sqrt() } else { rest / lower[j][j] };
        }
    }
    let mut x = right;
    for i in 0..4 {
        let known: f64 = (0..i).map(|k| lower[i][k] * x[k]).sum();
        x[i] = (x[i] - known) / lower[i][i];
    }
    for i in (0..4).rev() {
        let known: f64 = (i + 1..4).map(|k| lower[k][i] * x[k]).sum();
        x[i] = (x[i] - known) / lower[i][i];
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::random::{RandomStream, RandomUse};

    /// Returns distinct pseudo-random numbers in -1..1.
    fn drawn(seed: u64, count: usize) -> Vec<f64> {
        let stream = RandomStream::new(seed, 0, RandomUse::Sample);
        (0..count as u64).map(|i| 2.0 * stream.uniform(i) - 1.0).collect()
    }

    #[test]
    fn outermost_corners_lie_on_the_edges() {
        for side in [1, 2, 15, 16, 37, 1894, 65_535] {
            for pixel in [0, side / 2, side - 1] {
                let Between { corner, fraction } = place_of_pixel::<f64>(pixel, side, 16);
                let expected = (f64::from(pixel) + 0.5) / f64::from(side) * 15.0;
                assert!(corner <= 14 && (0.0..1.0).contains(&fraction), "{pixel} of {side}");
                // Rounding of numbers up to 15.
                assert!((corner as f64 + fraction - expected).abs() < 1e-12, "{pixel} of {side}");
            }
        }
    }

    #[test]
    fn luma_is_clamped() {
        let of = |value: f64| place_of_luma([value; 3]);
        assert_eq!(of(-0.5), (Between { corner: 0, fraction: 0.0 }, false));
        let (white, is_free) = of(1.5);
        assert_eq!((white, is_free), (Between { corner: 6, fraction: 1.0 }, false));
        let (grey, is_free) = of(0.5);
        assert!(is_free && grey.corner == 3 && (grey.fraction - 0.5).abs() < 1e-12);
        assert_eq!(of(f64::NAN).0.corner, 0);
    }

    #[test]
    fn constant_grid_gives_a_constant_map() {
        let map: Affine<f64> = drawn(1, AFFINE_WIDTH).try_into().unwrap();
        let grid: Vec<f64> = map.iter().copied().cycle().take(GRID_WIDTH).collect();
        for (i, &rgb) in (0..).zip(drawn(2, 300).as_chunks().0) {
            let place = GridPlace::new([i % 37, i % 29], [37, 29], rgb);
            let Slice { map: found, slope } = place.slice(&grid);
            // Rounding of sums of numbers below 1.
            assert!(found.iter().zip(map).all(|(found, map)| (found - map).abs() < 1e-14));
            assert!(slope.iter().all(|slope| slope.abs() < 1e-13));
        }
        assert_eq!(total_variation(&grid), 0.0);
    }

    #[test]
    fn corner_pixels_read_corner_maps() {
        let grid = drawn(3, GRID_WIDTH);
        // At this size the outermost pixels lie within 2e-4 of a cell from the edge.
        let size = [40_000, 40_000];
        for (x, y, luma) in [(0, 0, 0), (15, 0, 7), (0, 15, 7), (15, 15, 0)] {
            let rgb = [if luma == 0 { 0.0 } else { 1.0 }; 3];
            let pixel = [x, y].map(|at| if at == 0 { 0 } else { 39_999 });
            let Slice { map, .. } = GridPlace::new(pixel, size, rgb).slice(&grid);
            let from = ((luma * 16 + y) * 16 + x) * AFFINE_WIDTH;
            for (found, expected) in map.iter().zip(&grid[from..]) {
                assert!((found - expected).abs() < 2e-3, "{x} {y} {luma}: {found} {expected}");
            }
        }
    }

    #[test]
    fn fit_recovers_the_affine_map() {
        let map: Affine<f64> = drawn(4, AFFINE_WIDTH).try_into().unwrap();
        let mut sums = [0.0; FIT_SUMS];
        for &rgb in drawn(5, 600).as_chunks().0 {
            let terms = fit_terms(rgb, affine(&map, rgb));
            sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
        }
        let found = fit(&sums);
        // The ridge changes the map by 1e-9 of its distance from the identity, over variances of 1/3.
        assert!(found.iter().zip(map).all(|(found, map)| (found - map).abs() < 1e-7), "{found:?}");
    }

    #[test]
    fn fit_of_a_constant_or_empty_image_is_finite() {
        assert_eq!(fit(&[0.0; FIT_SUMS]), IDENTITY.map(f64::from));
        for grey in [0.0, 0.25, 1.0] {
            let mut sums = [0.0; FIT_SUMS];
            for _ in 0..50 {
                let terms = fit_terms([grey; 3], [0.5, 0.25, 0.75]);
                sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
            }
            let fitted = affine(&fit(&sums), [grey; 3]);
            for (found, expected) in fitted.into_iter().zip([0.5, 0.25, 0.75]) {
                // Effect of the ridge of 1e-9 where rounding brings pivots down to it.
                assert!((found - expected).abs() < 1e-5, "{fitted:?} of {grey}");
            }
        }
    }
}
