//! How large the triangles about a vertex are: the rates of positions may go by it, as they go by a Gaussian's scales.

use super::Real;
use super::linalg::{Vec3, cross, dot, sub};

/// Least mean area whose size is told apart, world units squared.
const AREA_MIN: f64 = 1e-20;

/// Of each of `rows` vertices the logarithm of its size, the root of the mean area of its triangles. Of one without
/// any it is 0.
pub fn log_sizes<R: Real>(
    rows: usize,
    faces: &[[u32; 3]],
    place: impl Fn(usize) -> Vec3<R>,
) -> Vec<R> {
    let mut sums = vec![(R::ZERO, R::ZERO); rows];
    for face in faces {
        let area = area(face.map(|row| place(row as usize)));
        for &row in face {
            let (sum, count) = &mut sums[row as usize];
            *sum += area;
            *count += R::ONE;
        }
    }
    sums.into_iter().map(|(sum, count)| log_size(sum, count)).collect()
}

/// Logarithm of the size of a vertex by the sum of the areas of its triangles and their number.
fn log_size<R: Real>(sum: R, count: R) -> R {
    let is_used = count > R::ZERO;
    if is_used { R::HALF * (sum / count).max(R::of(AREA_MIN)).ln() } else { R::ZERO }
}

/// Area of a triangle, world units squared.
fn area<R: Real>([a, b, c]: [Vec3<R>; 3]) -> R {
    let normal = cross(sub(b, a), sub(c, a));
    R::HALF * dot(normal, normal).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vertex_is_as_large_as_its_triangles_are_on_average() {
        let places: [Vec3<f64>; 6] =
            [[0.0; 3], [2.0, 0.0, 0.0], [0.0, 4.0, 0.0], [2.0, 16.0, 0.0], [5.0; 3], [5.0; 3]];
        // Areas of 4 and 16.
        let faces = [[0, 1, 2], [0, 3, 1], [4, 4, 4]];
        let sizes = log_sizes(6, &faces, |row| places[row]);
        let expected = [10.0, 10.0, 4.0, 16.0, AREA_MIN, 1.0].map(|area: f64| 0.5 * area.ln());
        for (found, expected) in sizes.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{sizes:?}");
        }
    }
}
