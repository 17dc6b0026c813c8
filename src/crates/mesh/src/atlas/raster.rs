//! Texels of a triangle.

use rayon::prelude::*;

use super::Atlas;
use crate::narrow::to_u32;

/// Shows `visit` the texels whose centres lie in a triangle on a picture, row by row. Of two triangles
/// with a common side, exactly one has the centres on it.
pub fn for_each_texel(
    corners_px: [[f64; 2]; 3],
    [width, height]: [u32; 2],
    mut visit: impl FnMut(u32, u32),
) {
    let Some([a, b, c]) = turned_positive(corners_px) else { return };
    let sides = [EdgeSide::new(a, b), EdgeSide::new(b, c), EdgeSide::new(c, a)];
    let range = |axis: usize, size: u32| {
        let (low, high) = extent([a, b, c], axis);
        // Centres from low to high.
        (texel((low - 0.5).ceil(), size), texel((high - 0.5).floor() + 1.0, size))
    };
    let (columns, rows) = (range(0, width), range(1, height));
    for y in rows.0..rows.1 {
        for x in columns.0..columns.1 {
            let centre = [f64::from(x) + 0.5, f64::from(y) + 0.5];
            if sides.iter().all(|side| side.has_inside(centre)) {
                visit(x, y);
            }
        }
    }
}

/// Shows `visit` the texels that a triangle on a picture touches with more than a corner or a side, row by
/// row; nothing of a triangle without area.
pub(crate) fn for_each_touched(
    corners_px: [[f64; 2]; 3],
    [width, height]: [u32; 2],
    mut visit: impl FnMut(u32, u32),
) {
    let Some([a, b, c]) = turned_positive(corners_px) else { return };
    let range = |axis: usize, size: u32| {
        let (low, high) = extent([a, b, c], axis);
        (texel(low.floor(), size), texel(high.ceil(), size))
    };
    let (columns, rows) = (range(0, width), range(1, height));
    // The triangle's side of each line has positive areas: of a texel beside it, not even the corner that is
    // farthest to that side.
    let reaches = |from: [f64; 2], to: [f64; 2], [x, y]: [f64; 2]| {
        let far =
            [x + f64::from(u8::from(to[1] < from[1])), y + f64::from(u8::from(to[0] > from[0]))];
        doubled_area_px([from, to, far]) > 0.0
    };
    for y in rows.0..rows.1 {
        for x in columns.0..columns.1 {
            let corner = [f64::from(x), f64::from(y)];
            if reaches(a, b, corner) && reaches(b, c, corner) && reaches(c, a, corner) {
                visit(x, y);
            }
        }
    }
}

/// The corners in the order in which their area is positive; none of a triangle without area.
fn turned_positive(corners_px: [[f64; 2]; 3]) -> Option<[[f64; 2]; 3]> {
    let doubled = doubled_area_px(corners_px);
    let [a, b, c] = corners_px;
    let turned = if doubled < 0.0 { [a, c, b] } else { corners_px };
    (doubled != 0.0 && doubled.is_finite()).then_some(turned)
}

/// The least and the greatest place of the corners along an axis.
fn extent([a, b, c]: [[f64; 2]; 3], axis: usize) -> (f64, f64) {
    (a[axis].min(b[axis]).min(c[axis]), a[axis].max(b[axis]).max(c[axis]))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn texel(at: f64, size: u32) -> u32 {
    (at as u32).min(size)
}

/// Twice the signed area in square texels; positive from x to y.
pub(super) fn doubled_area_px([a, b, c]: [[f64; 2]; 3]) -> f64 {
    (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
}

/// A side of a triangle of positive area.
struct EdgeSide {
    /// The lesser end first, so that both triangles at a side compute the same.
    ends: [[f64; 2]; 2],
    is_swapped: bool,
    /// True if centres on the side belong to the triangle: so for one of both ways along it.
    takes_ties: bool,
}

impl EdgeSide {
    fn new(from: [f64; 2], to: [f64; 2]) -> Self {
        let is_swapped = (to[0], to[1]) < (from[0], from[1]);
        let ends = if is_swapped { [to, from] } else { [from, to] };
        Self { ends, is_swapped, takes_ties: is_swapped }
    }

    #[inline]
    fn has_inside(&self, centre: [f64; 2]) -> bool {
        let doubled = doubled_area_px([self.ends[0], self.ends[1], centre]);
        if doubled == 0.0 { self.takes_ties } else { (doubled > 0.0) != self.is_swapped }
    }
}

/// The face of each texel of a picture, row by row; `u32::MAX` where there is none.
pub fn texel_faces(atlas: &Atlas) -> Vec<u32> {
    let (width, height) = (atlas.width, atlas.height);
    let mut faces = vec![u32::MAX; width as usize * height as usize];
    for (index, &face) in atlas.faces.iter().enumerate() {
        for_each_texel(atlas.corners_px(face), [width, height], |x, y| {
            faces[y as usize * width as usize + x as usize] = to_u32(index);
        });
    }
    faces
}

// Texels about charts, filled with the nearest texel of one: what filters read across a seam.

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

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random::RandomStream;

    proptest! {
        #[test]
        fn a_fan_claims_each_texel_inside_it_once(
            rim in prop::collection::vec((0..64_u8, 0..64_u8), 3..12),
            middle in (0..64_u8, 0..64_u8),
        ) {
            // About a point in the middle, on halves and quarters, so that many centres are hit.
            let at = |(x, y): (u8, u8)| [f64::from(x) / 4.0, f64::from(y) / 4.0];
            let middle = at(middle);
            let mut rim: Vec<[f64; 2]> = rim.into_iter().map(at).collect();
            rim.push([0.0, 0.0]);
            rim.push([16.0, 0.0]);
            rim.push([16.0, 16.0]);
            rim.push([0.0, 16.0]);
            let angle = |p: &[f64; 2]| (p[1] - middle[1]).atan2(p[0] - middle[0]);
            rim.sort_by(|a, b| angle(a).total_cmp(&angle(b)));
            rim.dedup_by(|a, b| (angle(a) - angle(b)).abs() < 1e-12);
            let mut claims = vec![0; 256];
            for i in 0..rim.len() {
                let next = rim[(i + 1) % rim.len()];
                if doubled_area_px([middle, rim[i], next]) > 0.0 {
                    for_each_texel([middle, rim[i], next], [16, 16], |x, y| {
                        claims[(16 * y + x) as usize] += 1;
                    });
                }
            }
            prop_assert!(claims.iter().all(|&claims| claims <= 1));
        }
    }

    #[test]
    fn two_halves_of_a_square_claim_all_of_it() {
        let [a, b, c, d] = [[1.0, 1.0], [7.0, 1.0], [7.0, 7.0], [1.0, 7.0]];
        let mut count = 0;
        // Centres lie on the diagonal. The second half is given in the other sense.
        for corners in [[a, b, c], [a, d, c]] {
            for_each_texel(corners, [8, 8], |x, y| {
                assert!((1..7).contains(&x) && (1..7).contains(&y));
                count += 1;
            });
        }
        assert_eq!(count, 36);
        // What lies outside of the picture is cut off.
        for_each_texel([[-9.0, -9.0], [40.0, -9.0], [-9.0, 40.0]], [3, 2], |_, _| count += 1);
        assert_eq!(count, 42);
    }

    #[test]
    fn touched_texels_are_those_of_places_in_the_triangle() {
        let stream = RandomStream::of_seed(8);
        let mut at = 0;
        let mut number = || {
            at += 1;
            16.0 * stream.uniform(at)
        };
        for _ in 0..50 {
            let corners: [[f64; 2]; 3] = std::array::from_fn(|_| [number(), number()]);
            let mut is_touched = vec![false; 256];
            for_each_touched(corners, [16, 16], |x, y| is_touched[(16 * y + x) as usize] = true);
            let mut has_place = vec![false; 256];
            for _ in 0..20_000 {
                let (u, v) = (number() / 16.0, number() / 16.0);
                let [b, c] = if u + v > 1.0 { [1.0 - u, 1.0 - v] } else { [u, v] };
                let place: [f64; 2] = std::array::from_fn(|i| {
                    corners[0][i] * (1.0 - b - c) + corners[1][i] * b + corners[2][i] * c
                });
                has_place[(16 * place[1] as usize) + place[0] as usize] = true;
            }
            let missed = (0..256).filter(|&i| has_place[i] && !is_touched[i]).count();
            let spare = (0..256).filter(|&i| is_touched[i] && !has_place[i]).count();
            assert!(missed == 0 && spare <= 6, "{corners:?}: {missed} {spare}");
        }
    }

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
