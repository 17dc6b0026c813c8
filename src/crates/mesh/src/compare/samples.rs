//! Places spread evenly over a surface.

use crate::mesh::{Mesh, Vec3};
use crate::narrow::to_u32;
use crate::place::{area, corners};
use crate::random::RandomStream;
use crate::vector::{add, scale};

/// A place on a surface.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SurfaceSample {
    /// The place.
    pub place: Vec3,
    /// The face that it lies on.
    pub face: u32,
}

/// Samples of a checked mesh, uniform by area: systematic over the sums of its faces' areas, so that
/// each face has its share but for one sample, and uniform within a face. Computed as they are asked
/// for.
pub struct SurfaceSamples<'a> {
    mesh: &'a Mesh,
    /// Area of all faces up to each one.
    sums: Vec<f64>,
    count: usize,
    stream: RandomStream,
}

impl<'a> SurfaceSamples<'a> {
    /// As many samples as `count_of` answers to the whole area.
    pub fn new(mesh: &'a Mesh, count_of: impl FnOnce(f64) -> usize, key: u64) -> Self {
        let areas = mesh.faces.iter().map(|&face| area(corners(mesh, face)));
        let sums: Vec<f64> = areas
            .scan(0.0, |sum, area| {
                *sum += area;
                Some(*sum)
            })
            .collect();
        let total = sums.last().copied().unwrap_or(0.0);
        let count = if total > 0.0 { count_of(total) } else { 0 };
        Self { mesh, sums, count, stream: RandomStream::of_seed(key) }
    }

    /// Area of a checked mesh, square world units.
    pub fn area(mesh: &Mesh) -> f64 {
        mesh.faces.iter().map(|&face| area(corners(mesh, face))).sum()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none: the surface has no area.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Sample `index`: x = (1 - √u) a + √u (1 - v) b + √u v c of its face (Osada et al. 2002,
    /// equation 1).
    pub fn get(&self, index: usize) -> SurfaceSample {
        let total = self.sums.last().copied().unwrap_or(0.0);
        let at = (index as f64 + 0.5) / self.count.max(1) as f64 * total;
        let face =
            self.sums.partition_point(|&sum| sum <= at).min(self.sums.len().saturating_sub(1));
        let u = self.stream.uniform(2 * index as u64).sqrt();
        let v = self.stream.uniform(2 * index as u64 + 1);
        let [a, b, c] = corners(self.mesh, self.mesh.faces[face]);
        let place = add(scale(a, 1.0 - u), add(scale(b, u * (1.0 - v)), scale(c, u * v)));
        SurfaceSample { place, face: to_u32(face) }
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
mod tests {
    use super::*;
    use crate::known_meshes::{cube, mesh_of};

    #[test]
    fn faces_get_samples_by_their_area_and_all_of_it() {
        // Areas 1/2 and 2, and one without.
        let mesh = mesh_of(
            &[[0.0; 3], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [2.0, 0.0, 0.0], [0.0, 2.0, 0.0]],
            &[[0, 1, 2], [0, 0, 1], [0, 3, 4]],
        );
        let samples = SurfaceSamples::new(&mesh, |area| (area * 4000.0) as usize, 1);
        assert_eq!(samples.len(), 10_000);
        let all: Vec<SurfaceSample> = (0..10_000).map(|i| samples.get(i)).collect();
        let of = |face: u32| all.iter().filter(move |sample| sample.face == face);
        assert_eq!([of(0).count(), of(1).count(), of(2).count()], [2000, 0, 8000]);
        // The centroid: (2/3, 2/3), to four standard errors of .47/√8000.
        for axis in 0..2 {
            let mean = of(2).map(|sample| sample.place[axis]).sum::<f64>() / 8000.0;
            assert!((mean - 2.0 / 3.0).abs() < 0.021, "{mean}");
        }
        assert!(all.iter().all(|s| s.place[0] + s.place[1] <= 2.0 && s.place[2] == 0.0));
        let none = mesh_of(&cube().vertices, &[[0, 0, 1]]);
        assert!(SurfaceSamples::new(&none, |_| 5, 0).is_empty());
    }
}
