//! Stage `normals`: how far the normals that are drawn are from those of the depths that are drawn, and
//! its gradient.

use rayon::prelude::*;

use super::blend::Canvas;
use crate::math::Real;
use crate::math::linalg::dot;
use crate::math::normals::{
    blended_normal, blended_normal_bwd, slope, slope_bwd, surface_normal, surface_normal_bwd,
};
use crate::math::splat::Viewpoint;
use crate::memory::Bytes;

/// What comes of comparing a frame's normals with its depths.
#[derive(Debug)]
pub(crate) struct ComparedNormals<R> {
    /// Mean over all pixels, not weighted.
    pub(crate) mean: f64,
    /// Gradient of depth and of x and y of the normals with the weight, [height, width, 3].
    pub(crate) d_surface: Vec<R>,
}

impl<R> ComparedNormals<R> {
    pub(crate) fn bytes(&self) -> Bytes {
        Bytes::of::<R>(self.d_surface.capacity())
    }
}

/// What a pixel adds to the sum, and the gradients of it.
#[derive(Clone, Copy, Debug)]
struct NormalPixel<R> {
    disagreement: R,
    /// Of the slopes of the depths along x and y.
    d_slopes: [R; 2],
    /// Of x and y of the normal.
    d_normal: [R; 2],
}

/// The maps of a view.
#[derive(Clone, Copy)]
struct SurfaceMapsOf<'a, R> {
    view: &'a Viewpoint<R>,
    /// [height, width, 4]
    surface: &'a [R],
}

/// Compares the normals of a frame with those of its depths.
pub(crate) fn compare<R: Real>(
    canvas: &Canvas<R>,
    view: &Viewpoint<R>,
    weight: f64,
    by_opacity: bool,
) -> ComparedNormals<R> {
    let maps = SurfaceMapsOf { view, surface: &canvas.surface };
    let width = canvas.size[0];
    let pixels = canvas.surface.len() / 4;
    let d_mean = R::of(weight / pixels as f64);
    let of_pixels: Vec<NormalPixel<R>> = (0..canvas.size[1])
        .into_par_iter()
        .flat_map_iter(|y| (0..width).map(move |x| maps.pixel([x, y], by_opacity, d_mean)))
        .collect();
    // Sums of blocks of fixed length, added in order: the same on any number of threads.
    const BLOCK: usize = 1 << 14;
    let sums: Vec<f64> = of_pixels
        .par_chunks(BLOCK)
        .map(|block| block.iter().map(|pixel| pixel.disagreement.to_f64()).sum())
        .collect();
    let mean = sums.iter().sum::<f64>() / pixels as f64;
    let d_surface = (0..canvas.size[1])
        .into_par_iter()
        .flat_map_iter(|y| (0..width).map(move |x| [x, y]))
        .flat_map_iter(|at| {
            let [x, y] = of_pixels[maps.index(at)].d_normal;
            [maps.d_depth(at, &of_pixels), x, y]
        })
        .collect();
    ComparedNormals { mean, d_surface }
}

impl<R: Real> SurfaceMapsOf<'_, R> {
    fn index(&self, [x, y]: [u32; 2]) -> usize {
        y as usize * self.view.size[0] as usize + x as usize
    }

    fn depth(&self, at: [u32; 2]) -> R {
        self.surface[self.index(at) * 4]
    }

    /// The pixels before and behind along an axis, where there are both.
    fn beside(&self, at: [u32; 2], axis: usize) -> Option<[[u32; 2]; 2]> {
        let (mut before, mut behind) = (at, at);
        before[axis] = at[axis].checked_sub(1)?;
        behind[axis] = at[axis] + 1;
        (behind[axis] < self.view.size[axis]).then_some([before, behind])
    }

    fn slope(&self, at: [u32; 2], axis: usize) -> Option<R> {
        let [before, behind] = self.beside(at, axis)?.map(|at| self.depth(at));
        slope(self.view.focal_px[axis], before, behind)
    }

    /// x/z and y/z of what the centre of a pixel shows.
    fn ray(&self, at: [u32; 2]) -> [R; 2] {
        [0, 1].map(|axis| {
            let centre = R::of(f64::from(at[axis])) + R::HALF;
            (centre - self.view.centre_px[axis]) / self.view.focal_px[axis]
        })
    }

    /// What a pixel adds; at the border, and where there are no depths beside it, all that it may add.
    fn pixel(&self, at: [u32; 2], by_opacity: bool, d_mean: R) -> NormalPixel<R> {
        let &[_, x, y, opacity] =
            self.surface.as_chunks().0.get(self.index(at)).unwrap_or(&[R::ZERO; 4]);
        let weight = if by_opacity { opacity } else { R::ONE };
        let (Some(along_x), Some(along_y)) = (self.slope(at, 0), self.slope(at, 1)) else {
            let nothing = [R::ZERO; 2];
            return NormalPixel { disagreement: weight, d_slopes: nothing, d_normal: nothing };
        };
        let (slopes, ray) = ([along_x, along_y], self.ray(at));
        let (drawn, expected) = (blended_normal([x, y]), surface_normal(slopes, ray));
        let d_dot = -d_mean * weight;
        NormalPixel {
            disagreement: weight * (R::ONE - dot(drawn, expected)),
            d_slopes: surface_normal_bwd(slopes, ray, drawn.map(|n| n * d_dot)),
            d_normal: blended_normal_bwd([x, y], expected.map(|n| n * d_dot)),
        }
    }

    /// Gradient of a depth, which the slopes of the four pixels beside it are made of.
    fn d_depth(&self, at: [u32; 2], of_pixels: &[NormalPixel<R>]) -> R {
        let mut sum = R::ZERO;
        for axis in 0..2 {
            let mut beside = [at; 2];
            beside[0][axis] = at[axis].wrapping_sub(1);
            beside[1][axis] = at[axis] + 1;
            for (side, place) in beside.into_iter().enumerate() {
                if place[axis] >= self.view.size[axis] || self.slope(place, axis).is_none() {
                    continue;
                }
                let Some(ends) = self.beside(place, axis) else { continue };
                let [before, behind] = ends.map(|at| self.depth(at));
                let d_slope = of_pixels[self.index(place)].d_slopes[axis];
                let d = slope_bwd(self.view.focal_px[axis], before, behind, d_slope);
                // Seen from the pixel before it, this one lies behind.
                sum += d[1 - side];
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::super::bin::bin;
    use super::super::blend::forward;
    use super::*;
    use crate::backend::Drawing;
    use crate::math::linalg::{Vec3, normalize, scale};
    use crate::math::random::{RandomStream, RandomUse};

    const SIZE: [u32; 2] = [11, 8];
    const PIXELS: usize = 88;

    fn view() -> Viewpoint<f64> {
        Viewpoint {
            rotation: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
            translation: [0.0; 3],
            centre_world: [0.0; 3],
            focal_px: [13.0, 9.0],
            centre_px: [5.2, 4.9],
            size: SIZE,
            near: 0.01,
            variance_px2: 0.3,
            compensates: false,
        }
    }

    /// A canvas of nothing with these maps.
    fn canvas(surface: Vec<f64>) -> Canvas<f64> {
        let settings = Drawing { surface: true, ..Drawing::DEFAULT };
        let mut canvas = forward(&[], &bin::<f64>(&[], SIZE), SIZE, &settings);
        assert_eq!(canvas.surface.len(), surface.len());
        canvas.surface = surface;
        canvas
    }

    fn compared(surface: &[f64], by_opacity: bool) -> ComparedNormals<f64> {
        compare(&canvas(surface.to_vec()), &view(), 1.7, by_opacity)
    }

    /// The maps of the plane of this unit normal through a point of the view axis.
    fn plane(normal: Vec3<f64>, depth: f64) -> Vec<f64> {
        let (view, mut surface) = (view(), Vec::new());
        for at in (0..PIXELS).map(|i| [i % SIZE[0] as usize, i / SIZE[0] as usize]) {
            let [x, y] =
                [0, 1].map(|i| (at[i] as f64 + 0.5 - view.centre_px[i]) / view.focal_px[i]);
            let depth = depth * normal[2] / dot(normal, [x, y, 1.0]);
            surface.extend([depth, normal[0], normal[1], 1.0]);
        }
        surface
    }

    /// Pixels at the border, as a share of all.
    const BORDER: f64 = 34.0 / 88.0;

    #[test]
    fn a_plane_at_any_angle_disagrees_at_the_border_only() {
        for along in [[0.0, 0.0], [0.7, 0.0], [0.0, -0.7], [0.5, 0.4], [-0.9, 0.6]] {
            let normal = normalize([along[0], along[1], -1.0]);
            for by_opacity in [false, true] {
                let found = compared(&plane(normal, 2.5), by_opacity);
                // Rounding of a hundred terms.
                assert!((found.mean - BORDER).abs() < 1e-13, "{along:?}: {}", found.mean);
            }
            // The other way round it disagrees all over, save where it faces the camera.
            let turned = normalize([-along[0], -along[1], -1.0]);
            let mut surface = plane(normal, 2.5);
            for pixel in surface.as_chunks_mut::<4>().0 {
                (pixel[1], pixel[2]) = (turned[0], turned[1]);
            }
            let expected = BORDER + (1.0 - BORDER) * (1.0 - dot(turned, normal));
            let found = compared(&surface, false).mean;
            assert!((found - expected).abs() < 1e-13, "{along:?}: {found} for {expected}");
        }
    }

    #[test]
    fn the_normal_of_depths_is_that_of_the_points_they_stand_for() {
        let (view, draws) = (view(), RandomStream::new(3, 1, RandomUse::Sample));
        let surface: Vec<f64> =
            (0..PIXELS as u64).flat_map(|i| [1.0 + draws.uniform(i), 0.0, 0.0, 1.0]).collect();
        let maps = SurfaceMapsOf { view: &view, surface: &surface };
        let point = |at: [u32; 2]| {
            let [x, y] = maps.ray(at);
            scale([x, y, 1.0], maps.depth(at))
        };
        for at in (1..10).flat_map(|x| (1..7).map(move |y| [x, y])) {
            let [left, right] = [[at[0] - 1, at[1]], [at[0] + 1, at[1]]].map(point);
            let [above, below] = [[at[0], at[1] - 1], [at[0], at[1] + 1]].map(point);
            let [down, along] =
                [(below, above), (right, left)].map(|(a, b)| crate::math::linalg::sub::<f64>(a, b));
            let expected = normalize(crate::math::linalg::cross(down, along));
            let slopes = [0, 1].map(|axis| maps.slope(at, axis).expect("depths"));
            let found = surface_normal(slopes, maps.ray(at));
            for (found, expected) in found.iter().zip(expected) {
                assert!((found - expected).abs() < 1e-13, "{found} for {expected}");
            }
        }
    }

    #[test]
    fn gradients_of_the_maps_agree_with_their_differences() {
        let draws = RandomStream::new(3, 0, RandomUse::Sample);
        let mut surface: Vec<f64> = (0..PIXELS as u64 * 4)
            .map(|i| draws.uniform(i))
            .enumerate()
            .map(|(i, u)| [1.0 + u, 1.2 * u - 0.6, 1.2 * u - 0.6, 0.2 + 0.8 * u][i % 4])
            .collect();
        // Nothing is drawn of two pixels that lie beside one.
        surface[4 * (3 * 11 + 4)] = 0.0;
        surface[4 * (3 * 11 + 6)] = 0.0;
        for by_opacity in [false, true] {
            let found = compared(&surface, by_opacity).d_surface;
            for pixel in 0..PIXELS {
                for channel in 0..3 {
                    let at = pixel * 4 + channel;
                    if channel == 0 && surface[at] == 0.0 {
                        // Where depth begins the slope beside it has a jump.
                        continue;
                    }
                    let moved = |h: f64| {
                        let mut surface = surface.clone();
                        surface[at] += h;
                        1.7 * compared(&surface, by_opacity).mean
                    };
                    let h = 1e-4;
                    let expected = (8.0 * (moved(h) - moved(-h))
                        - (moved(2.0 * h) - moved(-2.0 * h)))
                        / (12.0 * h);
                    let found = found[pixel * 3 + channel];
                    // Rounding leaves 1e-16 / 1e-4.
                    let error = (found - expected).abs() / found.abs().max(1e-4);
                    assert!(
                        error < 1e-7,
                        "by opacity {by_opacity}, pixel {pixel}: {found} for {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn grazing_normals_and_missing_depths_give_finite_results() {
        let mut surface = plane(normalize([1.0, 0.2, -0.46]), 2.5);
        for (i, pixel) in surface.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            pixel[0] = pixel[0].abs();
            match i % 5 {
                0 => (pixel[1], pixel[2]) = (0.6, 0.8),
                1 => (pixel[1], pixel[2]) = (3.0, -1.0),
                2 => pixel[0] = 0.0,
                3 => pixel[0] *= 1e-30,
                _ => {}
            }
        }
        for by_opacity in [false, true] {
            let found = compared(&surface, by_opacity);
            assert!((0.0..=2.0).contains(&found.mean), "{}", found.mean);
            assert!(found.d_surface.iter().all(|d| d.is_finite()));
        }
        // Of nothing at all there is no surface.
        let nothing = compared(&[0.0; PIXELS * 4], false);
        assert_eq!(nothing.mean, 1.0);
        assert!(nothing.d_surface.iter().all(|&d| d == 0.0));
    }
}
