//! In-memory Gaussians, common to all formats.

use rayon::prelude::*;
use splat_mesh::narrow::{round_u8, to_f32};

use crate::geometry::{UnitQuat, logit_of_byte, normalised, sigmoid};

/// Highest supported SH degree.
pub const MAX_SH_DEGREE: u32 = 3;

/// Value of the first spherical harmonic: colour is 0.5 + `SH_C0` x coefficient.
pub const SH_C0: f64 = 0.282_094_791_773_878_14;

/// Replacement of an infinite opacity logit, which some programs write for an opacity of 255/255.
const LARGEST_LOGIT: f32 = 40.0;

/// Replacement of the log-scale of a zero scale: about the logarithm of the least f32.
pub(crate) const LEAST_LOG_SCALE: f32 = -87.0;

/// In-memory third log-scale of a surfel: about 2e-9 units.
pub const FLAT_LOG_SCALE: f32 = -20.0;

/// Tolerance of the squared length of a unit rotation: four times the rounding error of f32.
const UNIT_TOLERANCE: f64 = 1e-6;

/// Antialiasing with which Gaussians were trained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Antialiasing {
    /// Dilated by 0.3 px² on the screen (3D Gaussian splatting).
    #[default]
    Off,
    /// Dilated with compensated opacity (the 2D filter of Mip-Splatting).
    On,
}

/// Kind of primitive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SplatPrimitive {
    /// Gaussians with three scales (3D Gaussian splatting).
    #[default]
    Gaussians,
    /// Discs spanned by the first two axes (2D Gaussian splatting). The third scale serves viewers that draw Gaussians.
    Surfels,
}

/// Columns of n Gaussians, in the scene's axes and unit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SplatColumns {
    /// Highest SH degree, 0 to 3.
    pub sh_degree: u32,
    /// Antialiasing of the Gaussians.
    pub antialiasing: Antialiasing,
    /// Kind of the primitives.
    pub primitive: SplatPrimitive,
    /// Centres, `[n]`.
    pub means: Vec<[f32; 3]>,
    /// Natural logarithms of the scales, `[n]`.
    pub log_scales: Vec<[f32; 3]>,
    /// Rotations (w, x, y, z), `[n]`.
    pub rotations: Vec<UnitQuat>,
    /// Opacities before the sigmoid, `[n]`.
    pub opacity_logits: Vec<f32>,
    /// Coefficients of degree 0, red, green, blue, `[n]`.
    pub sh_dc: Vec<[f32; 3]>,
    /// Coefficients above degree 0, red, green, blue, `[n, k]` with k = (degree + 1)² - 1.
    pub sh_rest: Vec<[f32; 3]>,
}

/// Error of columns that do not form Gaussians.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum SplatsError {
    #[error("the SH degree is {0}; 0 to {MAX_SH_DEGREE} are supported: cut it")]
    Degree(u32),
    #[error("the column `{column}` has {found} rows, but {expected} are due: fill all columns")]
    Length { column: &'static str, found: usize, expected: usize },
}

/// Returns the number of coefficients per channel above degree 0.
pub const fn sh_rest_count(sh_degree: u32) -> usize {
    ((sh_degree + 1) * (sh_degree + 1) - 1) as usize
}

impl SplatColumns {
    /// Returns empty columns with capacity for `count` Gaussians.
    pub fn with_capacity(sh_degree: u32, count: usize) -> Self {
        Self {
            sh_degree,
            means: Vec::with_capacity(count),
            log_scales: Vec::with_capacity(count),
            rotations: Vec::with_capacity(count),
            opacity_logits: Vec::with_capacity(count),
            sh_dc: Vec::with_capacity(count),
            sh_rest: Vec::with_capacity(count * sh_rest_count(sh_degree)),
            ..Self::default()
        }
    }

    /// Returns the number of Gaussians.
    pub fn len(&self) -> usize {
        self.means.len()
    }

    /// True if there are no Gaussians.
    pub fn is_empty(&self) -> bool {
        self.means.is_empty()
    }

    /// Appends columns of the same degree.
    pub(crate) fn append(&mut self, other: &Self) {
        self.means.extend_from_slice(&other.means);
        self.log_scales.extend_from_slice(&other.log_scales);
        self.rotations.extend_from_slice(&other.rotations);
        self.opacity_logits.extend_from_slice(&other.opacity_logits);
        self.sh_dc.extend_from_slice(&other.sh_dc);
        self.sh_rest.extend_from_slice(&other.sh_rest);
    }

    /// Returns the coefficients above degree 0 of a row.
    pub fn rest(&self, row: usize) -> &[[f32; 3]] {
        let width = sh_rest_count(self.sh_degree);
        &self.sh_rest[row * width..][..width]
    }

    /// Returns red, green, blue and opacity of a row.
    pub(crate) fn color_bytes(&self, row: usize) -> [u8; 4] {
        let [r, g, b] = self.sh_dc[row].map(|c| round_u8(255.0 * (0.5 + SH_C0 * f64::from(c))));
        [r, g, b, round_u8(255.0 * sigmoid(self.opacity_logits[row]))]
    }

    /// Appends red, green, blue and opacity to their columns.
    pub(crate) fn push_color_bytes(&mut self, [r, g, b, opacity]: [u8; 4]) {
        let coefficient = |byte: u8| to_f32((f64::from(byte) / 255.0 - 0.5) / SH_C0);
        self.sh_dc.push([r, g, b].map(coefficient));
        self.opacity_logits.push(logit_of_byte(opacity));
    }

    /// Returns the coefficients above degree 0, row by row; none for degree 0.
    pub(crate) fn rest_rows_mut(&mut self) -> impl Iterator<Item = &mut [[f32; 3]]> {
        self.sh_rest.chunks_exact_mut(sh_rest_count(self.sh_degree).max(1))
    }

    fn check(&self) -> Result<(), SplatsError> {
        if self.sh_degree > MAX_SH_DEGREE {
            return Err(SplatsError::Degree(self.sh_degree));
        }
        let n = self.len();
        let lengths = [
            ("log_scales", self.log_scales.len(), n),
            ("rotations", self.rotations.len(), n),
            ("opacity_logits", self.opacity_logits.len(), n),
            ("sh_dc", self.sh_dc.len(), n),
            ("sh_rest", self.sh_rest.len(), n * sh_rest_count(self.sh_degree)),
        ];
        match lengths.into_iter().find(|(_, found, expected)| found != expected) {
            Some((column, found, expected)) => Err(SplatsError::Length { column, found, expected }),
            None => Ok(()),
        }
    }

    /// Normalises rotations and replaces meaningful infinities. Returns which rows are valid.
    fn tidy(&mut self) -> Vec<bool> {
        let width = sh_rest_count(self.sh_degree);
        let Self { means, log_scales, rotations, opacity_logits, sh_dc, sh_rest, .. } = self;
        let changed = (log_scales.par_iter_mut(), rotations.par_iter_mut(), opacity_logits);
        let rows = (means.par_iter(), sh_dc.par_iter(), changed).into_par_iter().enumerate();
        rows.map(|(row, (mean, color, (scales, rotation, logit)))| {
            if logit.is_infinite() {
                *logit = LARGEST_LOGIT.copysign(*logit);
            }
            for scale in scales.iter_mut().filter(|scale| **scale == f32::NEG_INFINITY) {
                *scale = LEAST_LOG_SCALE;
            }
            let Some(unit) = normalised(*rotation, UNIT_TOLERANCE) else { return false };
            *rotation = unit;
            let triples = [mean, &*scales, color].into_iter();
            let rest = &sh_rest[row * width..][..width];
            logit.is_finite() && triples.chain(rest).flatten().all(|value| value.is_finite())
        })
        .collect()
    }

    fn retain(&mut self, kept: &[bool]) {
        let width = sh_rest_count(self.sh_degree);
        retain_rows(&mut self.means, kept, 1);
        retain_rows(&mut self.log_scales, kept, 1);
        retain_rows(&mut self.rotations, kept, 1);
        retain_rows(&mut self.opacity_logits, kept, 1);
        retain_rows(&mut self.sh_dc, kept, 1);
        retain_rows(&mut self.sh_rest, kept, width);
    }
}

fn retain_rows<T: Copy>(column: &mut Vec<T>, kept: &[bool], width: usize) {
    let mut to = 0;
    for (row, _) in kept.iter().enumerate().filter(|(_, kept)| **kept) {
        column.copy_within(row * width..(row + 1) * width, to);
        to += width;
    }
    column.truncate(to);
}

/// Valid Gaussians: finite values, unit rotations, columns of equal length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Splats {
    columns: SplatColumns,
}

/// Gaussians, and a record of what was dropped or guessed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckedSplats {
    /// The Gaussians.
    pub splats: Splats,
    /// Number of rows that were dropped because of a non-finite value or a zero rotation.
    pub dropped: usize,
    /// Messages for the user about content that is not represented.
    pub notes: Vec<String>,
}

impl Splats {
    /// Validates columns. Normalises rotations, and replaces infinite opacity logits by ±40 and zero scales by e^-87.
    /// Drops rows with other non-finite values or zero rotations.
    ///
    /// Fails if columns differ in length or the SH degree is above 3.
    pub fn from_columns(mut columns: SplatColumns) -> Result<CheckedSplats, SplatsError> {
        columns.check()?;
        let kept = columns.tidy();
        let dropped = kept.iter().filter(|kept| !**kept).count();
        if dropped > 0 {
            columns.retain(&kept);
        }
        Ok(CheckedSplats { splats: Self { columns }, dropped, notes: Vec::new() })
    }

    /// Returns the columns.
    pub fn columns(&self) -> &SplatColumns {
        &self.columns
    }

    /// Returns the columns by value.
    pub fn into_columns(self) -> SplatColumns {
        self.columns
    }

    /// Returns the number of Gaussians.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// True if there are no Gaussians.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Returns the highest SH degree.
    pub fn sh_degree(&self) -> u32 {
        self.columns.sh_degree
    }

    /// Keeps the rows for which `keep` returns true. Returns the number of removed rows.
    pub fn retain(&mut self, keep: impl Fn(&SplatColumns, usize) -> bool) -> usize {
        let kept: Vec<bool> = (0..self.len()).map(|row| keep(&self.columns, row)).collect();
        self.columns.retain(&kept);
        kept.len() - self.len()
    }

    /// Removes coefficients above a degree.
    pub fn cut_sh_degree(&mut self, sh_degree: u32) {
        if sh_degree >= self.columns.sh_degree {
            return;
        }
        let [from, to] = [self.columns.sh_degree, sh_degree].map(sh_rest_count);
        let rest = &mut self.columns.sh_rest;
        for row in 0..self.columns.means.len() {
            rest.copy_within(row * from..row * from + to, row * to);
        }
        rest.truncate(self.columns.means.len() * to);
        self.columns.sh_degree = sh_degree;
    }

    /// Pads coefficients with zeros up to a degree, which must not be below the current one.
    #[must_use]
    pub(crate) fn with_sh_degree(mut self, sh_degree: u32) -> Self {
        let [from, to] = [self.columns.sh_degree, sh_degree].map(sh_rest_count);
        if to > from {
            let rows = (0..self.len()).flat_map(|row| {
                let rest = &self.columns.sh_rest[row * from..][..from];
                rest.iter().copied().chain(std::iter::repeat_n([0.0; 3], to - from))
            });
            self.columns.sh_rest = rows.collect();
            self.columns.sh_degree = sh_degree;
        }
        self
    }

    /// Copies these rows, in this order. Ignores row numbers that are out of range.
    #[must_use]
    pub fn rows(&self, order: &[u32]) -> Self {
        let from = &self.columns;
        let order = || order.par_iter().map(|&row| row as usize).filter(|&row| row < from.len());
        let columns = SplatColumns {
            sh_degree: from.sh_degree,
            antialiasing: from.antialiasing,
            primitive: from.primitive,
            means: order().map(|row| from.means[row]).collect(),
            log_scales: order().map(|row| from.log_scales[row]).collect(),
            rotations: order().map(|row| from.rotations[row]).collect(),
            opacity_logits: order().map(|row| from.opacity_logits[row]).collect(),
            sh_dc: order().map(|row| from.sh_dc[row]).collect(),
            sh_rest: order().flat_map_iter(|row| from.rest(row).iter().copied()).collect(),
        };
        Self { columns }
    }

    /// Replaces positions, scales and rotations by those of `other`, if it has equal length.
    #[must_use]
    pub fn with_geometry_of(mut self, other: &Self) -> Self {
        if self.len() == other.len() {
            let of_other = other.columns();
            self.columns.means.clone_from(&of_other.means);
            self.columns.log_scales.clone_from(&of_other.log_scales);
            self.columns.rotations.clone_from(&of_other.rotations);
        }
        self
    }

    /// Returns the columns for edits that keep values finite and rotations unit.
    pub(crate) fn columns_mut(&mut self) -> &mut SplatColumns {
        &mut self.columns
    }
}

// Cropping and opacity thresholds.

/// A closed axis-aligned box.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CropBox {
    /// Minimum x, y and z, scene units.
    pub low: [f64; 3],
    /// Maximum x, y and z, scene units.
    pub high: [f64; 3],
}

impl CropBox {
    /// True if the point is inside.
    pub fn contains(&self, place: [f32; 3]) -> bool {
        let inside = |i: usize| (self.low[i]..=self.high[i]).contains(&f64::from(place[i]));
        (0..3).all(inside)
    }
}

/// A closed ball.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CropSphere {
    /// Centre, scene units.
    pub center: [f64; 3],
    /// Radius, scene units.
    pub radius: f64,
}

impl CropSphere {
    /// True if the point is inside.
    pub fn contains(&self, place: [f32; 3]) -> bool {
        let squares = place.iter().zip(self.center).map(|(&x, c)| (f64::from(x) - c).powi(2));
        squares.sum::<f64>() <= self.radius * self.radius
    }
}

impl Splats {
    /// Keeps Gaussians whose centre is in any box; all if there are no boxes. Returns the number of removed Gaussians.
    pub fn crop_boxes(&mut self, boxes: &[CropBox]) -> usize {
        if boxes.is_empty() {
            return 0;
        }
        self.retain(|columns, row| boxes.iter().any(|it| it.contains(columns.means[row])))
    }

    /// Keeps Gaussians whose centre is in the ball. Returns the number of removed Gaussians.
    pub fn crop_sphere(&mut self, sphere: CropSphere) -> usize {
        self.retain(|columns, row| sphere.contains(columns.means[row]))
    }

    /// Keeps Gaussians with at least this opacity, 0 to 1. Returns the number of removed Gaussians.
    pub fn drop_faint(&mut self, min_opacity: f64) -> usize {
        self.retain(|columns, row| sigmoid(columns.opacity_logits[row]) >= min_opacity)
    }
}

/// Gaussians for tests.
#[cfg(test)]
pub(crate) mod known_splats {
    use splat_mesh::narrow::to_f32;
    use splat_mesh::random::RandomSequence;

    use super::{FLAT_LOG_SCALE, SplatColumns, SplatPrimitive, Splats, sh_rest_count};
    use crate::place::{CameraSplit, SceneCamera};

    /// Creates Gaussians like those of a trained scene: within 10 units, with scales of e^-6 to e^-1.
    pub(crate) fn random_splats(count: usize, sh_degree: u32, seed: u64) -> Splats {
        let mut random = RandomSequence::of_seed(seed);
        let mut between = |low: f64, high: f64| to_f32(low + (high - low) * random.uniform());
        let mut columns = SplatColumns::with_capacity(sh_degree, count);
        for _ in 0..count {
            columns.means.push(std::array::from_fn(|_| between(-10.0, 10.0)));
            columns.log_scales.push(std::array::from_fn(|_| between(-6.0, -1.0)));
            columns.rotations.push(std::array::from_fn(|_| between(-1.0, 1.0)));
            columns.opacity_logits.push(between(-4.0, 6.0));
            columns.sh_dc.push(std::array::from_fn(|_| between(-1.7, 1.7)));
            for _ in 0..sh_rest_count(sh_degree) {
                columns.sh_rest.push(std::array::from_fn(|_| between(-0.4, 0.4)));
            }
        }
        Splats::from_columns(columns).unwrap().splats
    }

    pub(crate) fn random_surfels(count: usize, sh_degree: u32, seed: u64) -> Splats {
        let mut splats = random_splats(count, sh_degree, seed);
        let columns = splats.columns_mut();
        columns.primitive = SplatPrimitive::Surfels;
        columns.log_scales.iter_mut().for_each(|[.., third]| *third = FLAT_LOG_SCALE);
        splats
    }

    pub(crate) fn splats_at(means: &[[f32; 3]]) -> Splats {
        let mut columns = random_splats(means.len(), 0, 0).into_columns();
        columns.means = means.to_vec();
        Splats::from_columns(columns).unwrap().splats
    }

    /// Creates edge cases: equal centres, huge and tiny scales, opaque and invisible, colours out of range.
    pub(crate) fn hard_splats(count: usize, sh_degree: u32) -> Splats {
        let mut columns = random_splats(count, sh_degree, 9).into_columns();
        for row in 0..count {
            columns.means[row] = [1.5, -2.5, 0.25];
            columns.log_scales[row] =
                if row % 2 == 0 { [5.0, 5.5, 4.0] } else { [-9.5, -8.0, -9.9] };
            columns.opacity_logits[row] = if row % 3 == 0 { 20.0 } else { -20.0 };
            columns.sh_dc[row] = [2.5, -2.0, 0.0];
        }
        Splats::from_columns(columns).unwrap().splats
    }

    pub(crate) fn camera(name: &str) -> SceneCamera {
        SceneCamera {
            name: name.to_owned(),
            position: [1.0, 2.0, -3.0],
            rotation: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
            focal_px: [500.0, 510.0],
            principal_px: [320.5, 240.25],
            size_px: [640, 480],
            split: CameraSplit::HeldOut,
        }
    }

    pub(crate) fn on_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::geometry::logit;
    use crate::splats::known_splats::{random_splats, splats_at};

    #[test]
    fn rows_that_cannot_be_drawn_are_dropped_and_counted() {
        let mut columns = random_splats(9, 2, 1).into_columns();
        let before = columns.clone();
        columns.means[0][1] = f32::NAN;
        columns.log_scales[2][0] = f32::INFINITY;
        columns.rotations[3] = [0.0; 4];
        columns.opacity_logits[4] = f32::NAN;
        columns.sh_dc[5][2] = f32::NEG_INFINITY;
        columns.sh_rest[6 * 8 + 7][2] = f32::NAN;
        let checked = Splats::from_columns(columns).unwrap();
        assert_eq!((checked.dropped, checked.splats.len()), (6, 3));
        let kept = checked.splats.into_columns();
        assert_eq!(kept.means, [before.means[1], before.means[7], before.means[8]]);
        assert_eq!(kept.rest(2), before.rest(8));
    }

    #[test]
    fn infinities_that_mean_something_become_finite() {
        let mut columns = random_splats(3, 0, 1).into_columns();
        columns.opacity_logits[0] = f32::INFINITY;
        columns.opacity_logits[1] = f32::NEG_INFINITY;
        columns.log_scales[2][1] = f32::NEG_INFINITY;
        let checked = Splats::from_columns(columns).unwrap();
        assert_eq!(checked.dropped, 0);
        let columns = checked.splats.columns();
        assert_eq!(columns.opacity_logits[..2], [40.0, -40.0]);
        assert_eq!(columns.log_scales[2][1], LEAST_LOG_SCALE);
    }

    #[test]
    fn only_rotations_that_are_not_unit_change() {
        let mut columns = random_splats(40, 0, 2).into_columns();
        let unit = columns.rotations.clone();
        columns.rotations[0] = [3.0, 0.0, 4.0, 0.0];
        columns.rotations[1] = [0.0, 1e-30, 0.0, 0.0];
        let splats = Splats::from_columns(columns).unwrap().splats;
        assert_eq!(splats.columns().rotations[..2], [[0.6, 0.0, 0.8, 0.0], [0.0, 1.0, 0.0, 0.0]]);
        assert_eq!(splats.columns().rotations[2..], unit[2..]);
    }

    #[test]
    fn columns_of_unlike_length_and_degrees_above_three_are_refused() {
        let mut columns = random_splats(4, 1, 1).into_columns();
        columns.sh_rest.pop();
        let error = Splats::from_columns(columns.clone()).unwrap_err().to_string();
        assert!(error.contains("`sh_rest` has 11 rows, but 12"), "{error}");
        columns.sh_degree = 4;
        assert_eq!(Splats::from_columns(columns).unwrap_err(), SplatsError::Degree(4));
    }

    #[rstest]
    #[case(3, 2)]
    #[case(3, 0)]
    #[case(2, 1)]
    #[case(1, 3)]
    fn a_cut_degree_keeps_the_first_coefficients(#[case] from: u32, #[case] to: u32) {
        let before = random_splats(5, from, 3);
        let mut after = before.clone();
        after.cut_sh_degree(to);
        assert_eq!(after.sh_degree(), from.min(to));
        for row in 0..5 {
            let kept = sh_rest_count(from.min(to));
            assert_eq!(after.columns().rest(row), &before.columns().rest(row)[..kept]);
        }
    }

    #[test]
    fn rows_are_copied_in_order() {
        let all = random_splats(6, 3, 4);
        let some = all.rows(&[5, 0, 9, 2]);
        assert_eq!(some.len(), 3);
        assert_eq!(some.columns().means[0], all.columns().means[5]);
        assert_eq!(some.columns().rest(2), all.columns().rest(2));
    }

    #[test]
    fn boxes_keep_what_any_of_them_holds() {
        let mut splats = splats_at(&[[0.0; 3], [1.0, 1.0, 1.0], [5.0, 0.0, 0.0], [9.0, 0.0, 0.0]]);
        let unit = CropBox { low: [0.0; 3], high: [1.0; 3] };
        let far = CropBox { low: [8.0, -1.0, -1.0], high: [10.0, 1.0, 1.0] };
        assert_eq!(splats.crop_boxes(&[]), 0);
        assert_eq!(splats.crop_boxes(&[unit, far]), 1);
        assert_eq!(splats.columns().means, [[0.0; 3], [1.0; 3], [9.0, 0.0, 0.0]]);
    }

    #[test]
    fn a_sphere_keeps_what_is_within_its_radius() {
        let mut splats = splats_at(&[[1.0, 0.0, 0.0], [4.0, 0.0, 0.0], [1.0, 2.1, 0.0]]);
        assert_eq!(splats.crop_sphere(CropSphere { center: [1.0, 0.0, 0.0], radius: 2.0 }), 2);
        assert_eq!(splats.columns().means, [[1.0, 0.0, 0.0]]);
    }

    #[test]
    fn faint_gaussians_are_removed() {
        let mut splats = splats_at(&[[0.0; 3]; 3]);
        splats.columns_mut().opacity_logits = vec![logit(0.1), logit(0.3), logit(0.004)];
        assert_eq!(splats.drop_faint(0.1 - 1e-6), 1);
        assert_eq!(splats.len(), 2);
    }
}
