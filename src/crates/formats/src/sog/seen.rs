//! From where Gaussians are seen, which is what makes an error of their harmonics count.

use rayon::prelude::*;

use super::palette::{HarmonicMetric, MOST};
use crate::camera::SceneCamera;
use crate::geometry::sigmoid;
use crate::harmonics::harmonics;
use crate::splats::{SplatColumns, sh_rest_count};
use splat_mesh::narrow::to_f32;

/// Cameras that are looked from without drawing, at most: those between see nearly the same. Of many
/// Gaussians fewer have to do, as many as this looks at all of them allow.
const MOST_CAMERAS: usize = 256;
const LEAST_CAMERAS: usize = 48;
const MOST_LOOKS: usize = 50_000_000;

/// Gaussians whose directions are compared with one another, at most.
const MOST_COMPARED: usize = 50_000;

/// Share of the harmonics' squares that has to vary: rounding of the means leaves about 1e-7.
const LEAST_SPREAD: f64 = 1e-5;

/// Rows of which sums are taken one after the other, so that they do not depend on the threads.
const ROWS_AT_A_TIME: usize = 4096;

/// How much each Gaussian shows, and in which directions.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenFrom {
    /// How much each counts, in any unit, not negative: the pixels that it covers, or its area.
    pub(super) weights: Vec<f32>,
    /// Means of the harmonics over the directions in which each is seen, by the weights: what a change of
    /// its harmonics adds to its colour whoever looks. Zeros from everywhere.
    pub(super) mean_harmonics: Vec<[f32; MOST]>,
    /// What a change of the harmonics does to the rest of the colour, in the mean of all.
    pub(super) metric: HarmonicMetric,
}

impl SeenFrom {
    /// Gaussians that are seen from everywhere, as much as their opacity times their two larger scales.
    pub fn everywhere(columns: &SplatColumns) -> Self {
        Self {
            weights: areas(columns),
            mean_harmonics: vec![[0.0; MOST]; columns.len()],
            metric: HarmonicMetric::even(sh_rest_count(columns.sh_degree)),
        }
    }

    /// Gaussians that these cameras have in their pictures, by opacity times pixels; everywhere without
    /// cameras. Nothing hides anything.
    pub fn of_cameras(columns: &SplatColumns, cameras: &[SceneCamera]) -> Self {
        if cameras.is_empty() {
            return Self::everywhere(columns);
        }
        let areas = areas(columns);
        let mut looks = Looks::at(columns);
        let most = (MOST_LOOKS / columns.len().max(1)).clamp(LEAST_CAMERAS, MOST_CAMERAS);
        for camera in cameras.iter().step_by(cameras.len().div_ceil(most)) {
            let rows = columns.means.par_iter().zip(&areas).with_min_len(ROWS_AT_A_TIME);
            let weights: Vec<f32> =
                rows.map(|(&mean, &area)| pixels_in(camera, mean, area)).collect();
            looks.add(camera.position, &weights);
        }
        looks.seen()
    }

    /// How much each Gaussian counts, not negative; the unit is that of what it was made of.
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// Has Gaussians that count nothing here count this share of what they do in another estimate of the
    /// same: cameras between those that were drawn from may show them.
    pub fn fill_from(&mut self, other: &Self, share: f32) {
        let rows = self.weights.iter_mut().zip(&mut self.mean_harmonics);
        let of_other = other.weights.iter().zip(&other.mean_harmonics);
        for ((weight, means), (other_weight, other_means)) in rows.zip(of_other) {
            if *weight <= 0.0 {
                (*weight, *means) = (share * other_weight, *other_means);
            }
        }
    }

    /// The same of these rows; what is not there counts nothing.
    pub(crate) fn rows(&self, rows: &[u32]) -> Self {
        let weight = |&row: &u32| self.weights.get(row as usize).copied().unwrap_or_default();
        let means = |&row: &u32| self.mean_harmonics.get(row as usize).copied().unwrap_or_default();
        Self {
            weights: rows.iter().map(weight).collect(),
            mean_harmonics: rows.iter().map(means).collect(),
            metric: self.metric.clone(),
        }
    }
}

/// Weighted sums over the views of Gaussians.
#[derive(Clone, Debug)]
pub struct Looks<'a> {
    columns: &'a SplatColumns,
    weights: Vec<f32>,
    harmonics: Vec<[f32; MOST]>,
    spread: Spread,
}

impl<'a> Looks<'a> {
    /// No view yet.
    pub fn at(columns: &'a SplatColumns) -> Self {
        let count = columns.len();
        Self {
            columns,
            weights: vec![0.0; count],
            harmonics: vec![[0.0; MOST]; count],
            spread: Spread::default(),
        }
    }

    /// Adds a view from a place, scene units, in which Gaussians have these blend weights, summed over its
    /// pixels: one for each; those that are missing show nothing.
    pub fn add(&mut self, position: [f64; 3], weights: &[f32]) {
        let step = self.compared_step();
        let Self { columns, weights: sums, harmonics: means, spread } = self;
        let parts: Vec<Spread> = columns
            .means
            .par_chunks(ROWS_AT_A_TIME)
            .zip(weights.par_chunks(ROWS_AT_A_TIME))
            .zip(sums.par_chunks_mut(ROWS_AT_A_TIME))
            .zip(means.par_chunks_mut(ROWS_AT_A_TIME))
            .map(|(((places, weights), sums), means)| {
                let mut spread = Spread::default();
                for (row, (&place, &weight)) in places.iter().zip(weights).enumerate() {
                    let Some(direction) = direction(position, place).filter(|_| weight > 0.0)
                    else {
                        continue;
                    };
                    let [_, rest @ ..] = harmonics(direction);
                    sums[row] += weight;
                    for (sum, harmonic) in means[row].iter_mut().zip(rest) {
                        *sum += weight * to_f32(harmonic);
                    }
                    if row.is_multiple_of(step) {
                        spread.add(weight.into(), &rest);
                    }
                }
                spread
            })
            .collect();
        parts.iter().for_each(|part| spread.join(part));
    }

    /// What all views come to.
    pub fn seen(self) -> SeenFrom {
        let step = self.compared_step();
        let count = sh_rest_count(self.columns.sh_degree);
        let Self { weights, harmonics: mut means, mut spread, .. } = self;
        let seen_trace = spread.trace();
        for (row, (means, &weight)) in means.iter_mut().zip(&weights).enumerate() {
            *means = means.map(|sum| if weight > 0.0 { sum / weight } else { 0.0 });
            if (row % ROWS_AT_A_TIME).is_multiple_of(step) {
                spread.take_out(weight.into(), &means.map(f64::from));
            }
        }
        SeenFrom { weights, mean_harmonics: means, metric: spread.metric(count, seen_trace) }
    }

    /// One of so many Gaussians is compared.
    fn compared_step(&self) -> usize {
        self.columns.len().div_ceil(MOST_COMPARED).max(1)
    }
}

/// Opacity times the two larger scales.
fn areas(columns: &SplatColumns) -> Vec<f32> {
    let area = |row: usize| {
        let scales = columns.log_scales[row].map(f64::from);
        let least = scales.into_iter().fold(f64::INFINITY, f64::min);
        let area = scales.iter().sum::<f64>() - least;
        to_f32((area.exp() * sigmoid(columns.opacity_logits[row])).min(f64::from(f32::MAX)))
    };
    (0..columns.len()).into_par_iter().map(area).collect()
}

/// The unit vector from one place to another; none between equal ones.
fn direction(from: [f64; 3], to: [f32; 3]) -> Option<[f64; 3]> {
    let apart: [f64; 3] = std::array::from_fn(|i| f64::from(to[i]) - from[i]);
    let distance = apart.iter().map(|x| x * x).sum::<f64>().sqrt();
    (distance > 0.0).then(|| apart.map(|x| x / distance))
}

/// How many pixels of a camera an area covers that looks at it, times its opacity; none where its middle is
/// not in the picture.
fn pixels_in(camera: &SceneCamera, mean: [f32; 3], area: f32) -> f32 {
    let apart: [f64; 3] = std::array::from_fn(|i| f64::from(mean[i]) - camera.position[i]);
    let along = |axis: usize| -> f64 { (0..3).map(|i| camera.rotation[i][axis] * apart[i]).sum() };
    let depth = along(2);
    let is_inside = |axis: usize| {
        let at_px = camera.focal_px[axis] * along(axis) / depth + camera.principal_px[axis];
        (0.0..=f64::from(camera.size_px[axis])).contains(&at_px)
    };
    if depth <= 0.0 || !is_inside(0) || !is_inside(1) {
        return 0.0;
    }
    let pixels = f64::from(camera.size_px[0]) * f64::from(camera.size_px[1]);
    let covered = f64::from(area) * camera.focal_px[0] * camera.focal_px[1] / (depth * depth);
    to_f32(covered.min(pixels))
}

/// How the harmonics vary over the directions in which one and the same Gaussian is seen, summed over many.
#[derive(Clone, Debug, Default)]
struct Spread {
    weight: f64,
    products: [[f64; MOST]; MOST],
}

impl Spread {
    fn add(&mut self, weight: f64, harmonics: &[f64; MOST]) {
        self.weight += weight;
        self.add_products(weight, harmonics);
    }

    /// Takes out what is the same in all directions.
    fn take_out(&mut self, weight: f64, means: &[f64; MOST]) {
        self.add_products(-weight, means);
    }

    fn add_products(&mut self, weight: f64, harmonics: &[f64; MOST]) {
        for (sums, a) in self.products.iter_mut().zip(harmonics) {
            for (sum, b) in sums.iter_mut().zip(harmonics) {
                *sum += weight * a * b;
            }
        }
    }

    fn join(&mut self, other: &Self) {
        self.weight += other.weight;
        let of_other = other.products.as_flattened();
        for (sum, other) in self.products.as_flattened_mut().iter_mut().zip(of_other) {
            *sum += other;
        }
    }

    fn trace(&self) -> f64 {
        (0..MOST).map(|i| self.products[i][i]).sum()
    }

    /// Even where next to nothing varies, against what was seen in all: from one direction alone harmonics
    /// change nothing but the colour as a whole.
    fn metric(&self, count: usize, seen_trace: f64) -> HarmonicMetric {
        if self.trace() <= LEAST_SPREAD * seen_trace {
            return HarmonicMetric::even(count);
        }
        let total = self.weight.max(f64::MIN_POSITIVE);
        let mean = self.products.map(|row| row.map(|sum| sum / total));
        HarmonicMetric::of(&mean, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::CameraSplit;
    use crate::known_splats::random_splats;

    /// At a place, looking along +z.
    fn camera(position: [f64; 3]) -> SceneCamera {
        SceneCamera {
            name: String::new(),
            position,
            rotation: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
            focal_px: [100.0; 2],
            principal_px: [50.0; 2],
            size_px: [100; 2],
            split: CameraSplit::Training,
        }
    }

    fn splats_before_it(place: [f32; 3]) -> SplatColumns {
        let mut splats = random_splats(1, 3, 1);
        let columns = splats.columns_mut();
        columns.means = vec![place];
        columns.log_scales = vec![[-3.0, -4.0, -9.0]];
        columns.opacity_logits = vec![0.0];
        columns.clone()
    }

    #[test]
    fn a_weight_is_opacity_times_pixels() {
        let seen = SeenFrom::of_cameras(&splats_before_it([0.0, 0.0, 4.0]), &[camera([0.0; 3])]);
        // Half of exp(-3) x exp(-4) squared units, at 25 px a unit.
        let expected = 0.5 * (-7.0_f32).exp() * 25.0 * 25.0;
        assert!((seen.weights[0] / expected - 1.0).abs() < 1e-6, "{:?}", seen.weights);
    }

    #[test]
    fn mean_harmonics_are_those_of_the_only_direction() {
        let seen = SeenFrom::of_cameras(&splats_before_it([1.0, 0.0, 4.0]), &[camera([0.0; 3])]);
        let length = 17.0_f64.sqrt();
        let [_, rest @ ..] = harmonics([1.0 / length, 0.0, 4.0 / length]);
        for (mean, expected) in seen.mean_harmonics[0].iter().zip(rest) {
            assert!((f64::from(*mean) - expected).abs() < 1e-6, "{mean} {expected}");
        }
    }

    #[test]
    fn what_no_camera_has_in_its_picture_has_no_weight() {
        for place in [[0.0, 0.0, -4.0], [9.0, 0.0, 4.0], [0.0, -9.0, 4.0]] {
            let seen = SeenFrom::of_cameras(&splats_before_it(place), &[camera([0.0; 3])]);
            assert_eq!((seen.weights[0], seen.mean_harmonics[0]), (0.0, [0.0; MOST]), "{place:?}");
        }
    }

    #[test]
    fn the_spread_is_that_of_the_directions_of_each() {
        // Two cameras to the left and to the right: what is odd in x varies, and what is even does not.
        let columns = splats_before_it([0.0, 0.0, 4.0]);
        let seen =
            SeenFrom::of_cameras(&columns, &[camera([-1.0, 0.0, 0.0]), camera([1.0, 0.0, 0.0])]);
        let length_after = |harmonic: usize| {
            let mut row = [0.0; 3 * MOST];
            row[3 * harmonic] = 1.0;
            let mut to = [0.0; 3 * MOST];
            seen.metric.apply(&row, &mut to);
            to.iter().map(|x| x * x).sum::<f32>()
        };
        let (odd, even) = (length_after(2), length_after(1));
        assert!(odd > 50.0 * even, "{odd} {even}");
    }

    #[test]
    fn the_sums_are_the_same_for_any_number_of_threads() {
        let splats = random_splats(9000, 2, 4);
        let cameras = [camera([0.0, 0.0, -9.0]), camera([1.0, 2.0, -8.0])];
        let made = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| SeenFrom::of_cameras(splats.columns(), &cameras))
        };
        assert!(made(1) == made(3));
    }

    #[test]
    fn from_one_direction_all_harmonics_count_alike() {
        let splats = random_splats(500, 3, 6);
        let mut looks = Looks::at(splats.columns());
        looks.add([0.0, 0.0, -40.0], &vec![2.5; 500]);
        assert_eq!(looks.seen().metric, HarmonicMetric::even(15));
    }

    #[test]
    fn what_was_not_drawn_is_filled_by_a_share_of_another_estimate() {
        let splats = random_splats(2, 1, 7);
        let mut looks = Looks::at(splats.columns());
        looks.add([0.0, 0.0, -40.0], &[3.0]);
        let mut seen = looks.seen();
        let mut other = Looks::at(splats.columns());
        other.add([0.0, 0.0, -40.0], &[8.0, 8.0]);
        let other = other.seen();
        seen.fill_from(&other, 0.25);
        assert_eq!(seen.weights, [3.0, 2.0]);
        assert_eq!(seen.mean_harmonics[1], other.mean_harmonics[1]);
    }
}
