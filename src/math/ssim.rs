//! Structural similarity (Wang et al. 2004): 11x11 Gaussian window of sigma 1.5, per channel, averaged over the valid
//! region, where the whole window lies inside the image.
//!
//! C1 = 0.01², C2 = 0.03² for values in 0..1. Images narrower than the window use the largest odd window that fits.

use std::ops::Range;

use rayon::prelude::*;

use super::Real;

/// Half the window, px; the window has 2·5 + 1 taps per side.
const RADIUS: usize = 5;
const SIGMA_PX: f64 = 1.5;
const C1: f64 = 1e-4;
const C2: f64 = 9e-4;

/// Window moments of two images at one position.
#[derive(Clone, Copy, Debug, Default)]
pub struct WindowMoments<R> {
    /// `E[x]`.
    pub x: R,
    /// `E[y]`.
    pub y: R,
    /// `E[x²]`.
    pub xx: R,
    /// `E[y²]`.
    pub yy: R,
    /// `E[xy]`.
    pub xy: R,
}

/// Returns the similarity at one position from the window's moments.
pub fn similarity<R: Real>(m: &WindowMoments<R>) -> R {
    let Factors { a1, a2, b1, b2 } = factors(m);
    (a1 * a2) / (b1 * b2)
}

/// Returns the gradients of `E[x]`, `E[x²]` and `E[xy]`.
pub fn similarity_bwd<R: Real>(m: &WindowMoments<R>, d_s: R) -> [R; 3] {
    let Factors { a1, a2, b1, b2 } = factors(m);
    let s = (a1 * a2) / (b1 * b2);
    let d_variance = -s / b2;
    let d_covariance = R::TWO * a1 / (b1 * b2);
    let d_mean = R::TWO * m.y * a2 / (b1 * b2) - R::TWO * m.x * s / b1;
    // var = E[x²] - E[x]², cov = E[xy] - E[x] E[y].
    let d_x = d_mean - R::TWO * m.x * d_variance - m.y * d_covariance;
    [d_x * d_s, d_variance * d_s, d_covariance * d_s]
}

/// Factors of the similarity a1 a2 / (b1 b2): of the means, the covariance, the squared means and the variances.
struct Factors<R> {
    a1: R,
    a2: R,
    b1: R,
    b2: R,
}

fn factors<R: Real>(m: &WindowMoments<R>) -> Factors<R> {
    let (c1, c2) = (R::of(C1), R::of(C2));
    Factors {
        a1: R::TWO * m.x * m.y + c1,
        a2: R::TWO * (m.xy - m.x * m.y) + c2,
        b1: m.x * m.x + m.y * m.y + c1,
        b2: (m.xx - m.x * m.x) + (m.yy - m.y * m.y) + c2,
    }
}

/// Returns the taps along one axis, which add up to 1.
fn window<R: Real>(radius: usize) -> Vec<R> {
    let taps: Vec<f64> = (0..=2 * radius)
        .map(|i| {
            let offset = i as f64 - radius as f64;
            (-offset * offset / (2.0 * SIGMA_PX * SIGMA_PX)).exp()
        })
        .collect();
    let sum: f64 = taps.iter().sum();
    taps.iter().map(|tap| R::of(tap / sum)).collect()
}

/// Returns half the window for an image of this size, px.
fn radius(size: [usize; 2]) -> usize {
    RADIUS.min((size[0].min(size[1]).max(1) - 1) / 2)
}

/// Returns the window for an image of this size, centred in `N` taps and padded with 0, and its half width. That many
/// pixels at each border have no window inside the image.
#[expect(clippy::cast_possible_truncation, reason = "a device's precision; at most 5 px")]
pub fn taps<const N: usize>(size: [u32; 2]) -> ([f32; N], u32) {
    const { assert!(N == 2 * RADIUS + 1, "the widest window") };
    let radius = radius(size.map(|side| side as usize));
    let mut taps = [0.0; N];
    for (tap, weight) in taps[RADIUS - radius..].iter_mut().zip(window::<f64>(radius)) {
        *tap = weight as f32;
    }
    (taps, radius as u32)
}

/// Two images of the same size, [height, width, 3], values in 0..1.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a, R> {
    /// The image under test.
    pub x: &'a [R],
    /// The photograph.
    pub y: &'a [R],
    /// Size, px.
    pub size: [usize; 2],
}

impl<R: Real> Pair<'_, R> {
    fn radius(&self) -> usize {
        radius(self.size)
    }

    fn valid(&self) -> [usize; 2] {
        self.size.map(|side| side - 2 * self.radius())
    }
}

/// Number of rows of the valid region per batch without gradients. The moments of a whole photograph would take 80
/// times its size.
const BAND: usize = 32;

/// Returns the mean similarity over the valid region and the channels. The size must not be zero.
pub fn ssim<R: Real>(pair: Pair<'_, R>) -> f64 {
    let [width, height] = pair.valid();
    let row_sums: Vec<Vec<f64>> = (0..height.div_ceil(BAND))
        .into_par_iter()
        .map(|band| {
            let rows = band * BAND..((band + 1) * BAND).min(height);
            moments(pair, rows).chunks(width * 3).map(similarity_sum).collect()
        })
        .collect();
    row_sums.iter().flatten().sum::<f64>() / (width * height * 3) as f64
}

/// Returns the mean similarity over all pixels, as the reference trainers' `metrics.py` computes it: always an 11x11
/// window, with zeros beyond the border.
pub fn zero_padded_ssim(pair: Pair<'_, f64>) -> f64 {
    let [width, height] = pair.size;
    let size = pair.size.map(|side| side + 2 * RADIUS);
    let padded = |image: &[f64]| {
        let mut padded = vec![0.0; size[0] * size[1] * 3];
        let rows = padded.chunks_exact_mut(size[0] * 3).skip(RADIUS).take(height);
        for (to, from) in rows.zip(image.chunks_exact(width * 3)) {
            to[RADIUS * 3..][..width * 3].copy_from_slice(from);
        }
        padded
    };
    let (x, y) = (padded(pair.x), padded(pair.y));
    ssim(Pair { x: &x, y: &y, size })
}

fn similarity_sum<R: Real>(row: &[WindowMoments<R>]) -> f64 {
    row.iter().map(|m| similarity(m).to_f64()).sum()
}

/// Returns the mean similarity and adds its gradient, times `d_mean`, to `d_x`.
pub fn ssim_with_gradient<R: Real>(pair: Pair<'_, R>, d_mean: R, d_x: &mut [R]) -> f64 {
    let valid = pair.valid();
    let count = (valid[0] * valid[1] * 3) as f64;
    let moments = moments(pair, 0..valid[1]);
    let d_s = d_mean / R::of(count);
    let row_sums: Vec<f64> = moments.par_chunks(valid[0] * 3).map(similarity_sum).collect();
    let d_moments: Vec<[R; 3]> = moments.par_iter().map(|m| similarity_bwd(m, d_s)).collect();
    spread(pair, &d_moments, d_x);
    row_sums.iter().sum::<f64>() / count
}

/// Returns the window moments over these rows of the valid region, [rows, valid width, 3].
fn moments<R: Real>(pair: Pair<'_, R>, rows: Range<usize>) -> Vec<WindowMoments<R>> {
    let taps = window::<R>(pair.radius());
    let (width, row_length) = (pair.size[0] * 3, pair.valid()[0] * 3);
    let mut along_rows =
        vec![WindowMoments::default(); row_length * (rows.len() + 2 * pair.radius())];
    along_rows.par_chunks_mut(row_length).enumerate().for_each(|(row, out)| {
        let row = rows.start + row;
        let (x, y) = (&pair.x[row * width..][..width], &pair.y[row * width..][..width]);
        for (i, m) in out.iter_mut().enumerate() {
            for (t, &weight) in taps.iter().enumerate() {
                let (x, y) = (x[i + 3 * t], y[i + 3 * t]);
                m.x += weight * x;
                m.y += weight * y;
                m.xx += weight * x * x;
                m.yy += weight * y * y;
                m.xy += weight * x * y;
            }
        }
    });
    let mut out = vec![WindowMoments::default(); row_length * rows.len()];
    out.par_chunks_mut(row_length).enumerate().for_each(|(row, out)| {
        for (t, &weight) in taps.iter().enumerate() {
            let line = &along_rows[(row + t) * row_length..][..row_length];
            for (m, part) in out.iter_mut().zip(line) {
                m.x += weight * part.x;
                m.y += weight * part.y;
                m.xx += weight * part.xx;
                m.yy += weight * part.yy;
                m.xy += weight * part.xy;
            }
        }
    });
    out
}

/// Applies the adjoint of [`moments`] for x: adds each moment's gradient to the pixels of its window.
fn spread<R: Real>(pair: Pair<'_, R>, d_moments: &[[R; 3]], d_x: &mut [R]) {
    let taps = window::<R>(pair.radius());
    let (width, [valid_width, valid_height]) = (pair.size[0] * 3, pair.valid());
    let row_length = valid_width * 3;
    let mut along_columns = vec![[R::ZERO; 3]; row_length * pair.size[1]];
    along_columns.par_chunks_mut(row_length).enumerate().for_each(|(row, out)| {
        for (t, &weight) in taps.iter().enumerate() {
            let Some(source) = row.checked_sub(t).filter(|&source| source < valid_height) else {
                continue;
            };
            let line = &d_moments[source * row_length..][..row_length];
            for (sum, part) in out.iter_mut().zip(line) {
                for k in 0..3 {
                    sum[k] += weight * part[k];
                }
            }
        }
    });
    d_x.par_chunks_mut(width).enumerate().for_each(|(row, out)| {
        let line = &along_columns[row * row_length..][..row_length];
        let mut sums = vec![[R::ZERO; 3]; width];
        for (i, part) in line.iter().enumerate() {
            for (t, &weight) in taps.iter().enumerate() {
                for k in 0..3 {
                    sums[i + 3 * t][k] += weight * part[k];
                }
            }
        }
        for (i, (d_x, sum)) in out.iter_mut().zip(sums).enumerate() {
            let (x, y) = (pair.x[row * width + i], pair.y[row * width + i]);
            *d_x += sum[0] + R::TWO * x * sum[1] + y * sum[2];
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_of_small_images_are_centred_and_normalised() {
        let (low, margin) = taps::<11>([40, 7]);
        assert_eq!((margin, low[..2].to_vec(), low[9..].to_vec()), (3, vec![0.0; 2], vec![0.0; 2]));
        // Rounding of eleven numbers in single precision.
        assert!((low.iter().sum::<f32>() - 1.0).abs() < 1e-6, "{low:?}");
        assert_eq!(taps::<11>([1, 1]).0[5], 1.0);
        assert_eq!(taps::<11>([400, 300]).1, 5);
    }

    /// Returns an image of a pattern, and the image mixed with another pattern.
    fn images(size: [usize; 2]) -> [Vec<f64>; 2] {
        let pattern = |seed: usize, [width, height]: [usize; 2]| -> Vec<f64> {
            let mut values = Vec::new();
            for y in 0..height {
                for x in 0..width {
                    for c in 0..3 {
                        let value = (x * 37 + y * 61 + c * 89 + seed * 101 + x * y * 13) % 256;
                        values.push(f64::from(u32::try_from(value).unwrap()) / 255.0);
                    }
                }
            }
            values
        };
        let (x, other) = (pattern(1, size), pattern(5, size));
        let y = x.iter().zip(&other).map(|(x, other)| 0.6 * x + 0.4 * other).collect();
        [x, y]
    }

    #[test]
    fn zero_padded_ssim_matches_nested_loops() {
        // Expected values: nested loops in Python.
        for (size, expected) in
            [([23, 17], 0.719_970_070_391_558_2), ([8, 5], 0.841_529_493_570_509_7)]
        {
            let [x, y] = images(size);
            let found = zero_padded_ssim(Pair { x: &x, y: &y, size });
            // Both sum in double precision; they differ by the order of the sums.
            assert!((found - expected).abs() < 1e-9, "{size:?}: {found} against {expected}");
        }
    }

    #[test]
    fn ssim_agrees_with_scikit_image() {
        // scikit-image 0.26, structural_similarity(gaussian_weights=True, sigma=1.5,
        // use_sample_covariance=False, data_range=1, channel_axis=2, win_size=11).
        let reference = [
            ([23, 17], 0.631_710_434_512),
            ([11, 11], 0.633_245_661_345),
            ([40, 12], 0.631_072_506_357),
        ];
        for (size, expected) in reference {
            let [x, y] = images(size);
            let found = ssim(Pair { x: &x, y: &y, size });
            // Both sum in double precision; they differ by the order of the sums.
            assert!((found - expected).abs() < 1e-9, "{size:?}: {found} against {expected}");
        }
    }
}
