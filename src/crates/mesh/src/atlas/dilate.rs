//! Texels about charts, filled with the nearest texel of one: what filters read across a seam.

use rayon::prelude::*;

/// No texel within the radius.
const NONE: i8 = i8::MAX;

/// Greatest radius in texels.
const MOST_PX: u8 = 64;

/// Gives each unset texel the value of the nearest set one within `radius_px` (64 at most) on a picture
/// of so many texels a row; which texels are set then. Exact, where jump flooding may miss by a texel,
/// and the same for any number of threads. Of several at one distance, the one in the nearest row, the
/// upper, the left.
///
/// Texels beyond whole rows, or without a flag, stay as they are.
pub fn dilate<T: Copy + Send + Sync>(
    texels: &mut [T],
    is_set: &[bool],
    width: usize,
    radius_px: u8,
) -> Vec<bool> {
    let radius = i16::from(radius_px.min(MOST_PX));
    let count = texels.len().min(is_set.len());
    if width == 0 || count < width {
        return is_set.to_vec();
    }
    let rows = count / width;
    let mut across = vec![NONE; rows * width];
    across
        .par_chunks_mut(width)
        .zip(is_set.par_chunks(width))
        .for_each(|(across, is_set)| nearest_in_row(across, is_set, radius));
    let old = texels.to_vec();
    let mut set = is_set.to_vec();
    let nearest = NearestTexel { across: &across, width, rows, radius };
    texels.par_chunks_mut(width).zip(set.par_chunks_mut(width)).enumerate().take(rows).for_each(
        |(y, (texels, set))| {
            for x in 0..width {
                if let Some(source) = (!set[x]).then(|| nearest.to(x, y)).flatten() {
                    texels[x] = old[source];
                    set[x] = true;
                }
            }
        },
    );
    set
}

/// How far the nearest set texel of the row is from each, to the right.
fn nearest_in_row(across: &mut [i8], is_set: &[bool], radius: i16) {
    let mut since = i16::MAX;
    for (nearest, &set) in across.iter_mut().zip(is_set) {
        since = if set { 0 } else { since.saturating_add(1) };
        if since <= radius {
            *nearest = small(-since);
        }
    }
    since = i16::MAX;
    for (nearest, &set) in across.iter_mut().zip(is_set).rev() {
        since = if set { 0 } else { since.saturating_add(1) };
        if since <= radius && (*nearest == NONE || since < -i16::from(*nearest)) {
            *nearest = small(since);
        }
    }
}

/// An offset within the greatest radius.
fn small(offset: i16) -> i8 {
    i8::try_from(offset).unwrap_or(NONE)
}

struct NearestTexel<'a> {
    across: &'a [i8],
    width: usize,
    rows: usize,
    radius: i16,
}

impl NearestTexel<'_> {
    /// The set texel that is nearest to one, within the radius.
    fn to(&self, x: usize, y: usize) -> Option<usize> {
        let mut best = i32::from(self.radius).pow(2) + 1;
        let mut found = None;
        for off in 0..=i32::from(self.radius) {
            if off * off >= best {
                break;
            }
            for down in [-off, off].into_iter().take(if off == 0 { 1 } else { 2 }) {
                let row = isize::try_from(down)
                    .ok()
                    .and_then(|down| y.checked_add_signed(down))
                    .filter(|&row| row < self.rows);
                let Some(row) = row else { continue };
                let across = self.across[row * self.width + x];
                let squared = off * off + i32::from(across).pow(2);
                if across != NONE && squared < best {
                    best = squared;
                    found = (row * self.width + x).checked_add_signed(isize::from(across));
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::RandomStream;

    #[test]
    fn each_texel_gets_the_nearest_value_within_the_radius() {
        let (width, height) = (61, 47);
        let stream = RandomStream::of_seed(5);
        let is_set: Vec<bool> =
            (0..width * height).map(|i| stream.uniform(i as u64) < 0.003).collect();
        let before: Vec<usize> = (0..width * height).collect();
        let mut texels = before.clone();
        let set = dilate(&mut texels, &is_set, width, 8);
        let gap = |a: usize, b: usize| {
            (a % width).abs_diff(b % width).pow(2) + (a / width).abs_diff(b / width).pow(2)
        };
        for texel in before {
            let sources = (0..is_set.len()).filter(|&other| is_set[other]);
            let least = sources.map(|other| gap(texel, other)).min().unwrap();
            assert_eq!(set[texel], least <= 64);
            let expected = if least <= 64 { least } else { 0 };
            assert_eq!(gap(texel, texels[texel]), expected, "{texel}");
        }
    }

    #[test]
    fn a_constant_stays_constant_and_odd_sizes_are_no_fault() {
        let mut texels = vec![[7_u8, 8, 9]; 100];
        let mut is_set = vec![false; 100];
        is_set[55] = true;
        let set = dilate(&mut texels, &is_set, 10, 200);
        assert!(texels.iter().all(|texel| *texel == [7, 8, 9]) && set.iter().all(|set| *set));
        for (count, width) in [(0, 10), (7, 10), (25, 10), (10, 0)] {
            let mut texels = vec![1; count];
            assert_eq!(dilate(&mut texels, &is_set[..count], width, 8).len(), count);
        }
        assert_eq!(dilate(&mut texels, &[true; 3], 10, 8), [true; 3]);
    }
}
