//! Harmonics that Gaussians share: the palette of a SOG, its picture and its labels.

use rayon::prelude::*;

use super::codebook::Codebook;
use super::lloyd::{Groups, weighted_means};
use super::meta::ENTRIES_A_LINE;
use super::palette::{PaletteLabels, entries_for};
use super::picture::PictureSize;
use super::rows::RowTable;
use super::search::RowSearch;
use super::seen::SeenFrom;
use crate::splats::{SH_C0, SplatColumns, Splats, sh_rest_count};
use splat_mesh::narrow::{to_f32, to_u32};

/// How little a Gaussian may count, against the mean of all.
const LEAST_WEIGHT: f64 = 1e-6;

/// Which Gaussians share their harmonics, and how much each counts.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedRows {
    /// The palette's entry of each.
    pub labels: Vec<u32>,
    /// Entries that there are.
    pub entries: usize,
    /// How much each counts, above 0; their mean is about 1.
    pub weights: Vec<f32>,
}

/// A palette as it is stored.
pub(super) struct SharedHarmonics {
    /// The entry of each Gaussian.
    pub(super) labels: PaletteLabels,
    pub(super) codebook: Codebook,
    /// Numbers of the codebook, harmonic by harmonic.
    pub(super) codes: Vec<[u8; 3]>,
    /// Harmonics of an entry.
    width: usize,
}

impl SharedHarmonics {
    /// The palette of Gaussians as they are seen.
    pub(super) fn of(
        columns: &SplatColumns,
        seen: &SeenFrom,
        seed: u64,
        search: &dyn RowSearch,
    ) -> Self {
        let labels = labels_of(columns, seen, seed, search);
        Self::of_labels(columns, seen, labels)
    }

    /// The palette of Gaussians of which those with one label share their harmonics.
    pub(super) fn of_labels(
        columns: &SplatColumns,
        seen: &SeenFrom,
        labels: PaletteLabels,
    ) -> Self {
        let weights = relative(&seen.weights);
        let width = sh_rest_count(columns.sh_degree);
        let groups = Groups::of(&labels.labels, labels.entries);
        let rest = |row: u32| columns.rest(row as usize).as_flattened();
        let entries = weighted_means(3 * width, rest, &weights, &groups);
        // The coefficients of an entry count as much as the rows that it stands for.
        let mut uses = vec![0.0_f32; labels.entries];
        for (&label, &weight) in labels.labels.iter().zip(&weights) {
            uses[label as usize] += weight;
        }
        let coefficients = |entry: usize| &entries.row(entry)[..3 * width];
        let values = (0..labels.entries).flat_map(|entry| coefficients(entry).iter().copied());
        let counts = uses.iter().flat_map(|&used| std::iter::repeat_n(used, 3 * width));
        let codebook = Codebook::of_weighted(values, counts);
        let coded = (0..labels.entries).flat_map(|entry| {
            let harmonics = coefficients(entry).as_chunks::<3>().0;
            harmonics.iter().map(|channels| channels.map(|c| codebook.nearest(c)))
        });
        let codes = coded.collect();
        Self { labels, codebook, codes, width }
    }

    /// Entries of the palette.
    pub(super) fn entries(&self) -> usize {
        self.codes.len() / self.width
    }

    /// The size of the picture of the entries.
    pub(super) fn size(&self) -> PictureSize {
        PictureSize {
            width: to_u32(ENTRIES_A_LINE * self.width),
            height: to_u32(self.entries().div_ceil(ENTRIES_A_LINE)),
        }
    }

    /// Which Gaussians share them.
    pub(super) fn alike(&self, seen: &SeenFrom) -> SharedRows {
        let PaletteLabels { labels, entries } = self.labels.clone();
        SharedRows { labels, entries, weights: relative(&seen.weights) }
    }

    /// Has the colours take over what the palette lacks.
    pub(super) fn compensate(self, splats: &mut Splats, seen: &SeenFrom) -> Self {
        let colors = self.compensated(splats.columns(), seen);
        splats.columns_mut().sh_dc = colors;
        self
    }

    /// The colours of degree 0 that take over what the palette lacks of each Gaussian's harmonics in the
    /// mean of the directions in which it is seen.
    fn compensated(&self, columns: &SplatColumns, seen: &SeenFrom) -> Vec<[f32; 3]> {
        let color = |row: usize| {
            let entry = &self.codes[self.labels.labels[row] as usize * self.width..][..self.width];
            let mut color = columns.sh_dc[row].map(f64::from);
            let rest = columns.rest(row).iter().zip(entry).zip(&seen.mean_harmonics[row]);
            for ((wanted, codes), &harmonic) in rest {
                for channel in 0..3 {
                    let stored = self.codebook.entries[usize::from(codes[channel])];
                    let lacking = f64::from(wanted[channel]) - f64::from(stored);
                    color[channel] += lacking * f64::from(harmonic) / SH_C0;
                }
            }
            color.map(to_f32)
        };
        (0..columns.len()).into_par_iter().map(color).collect()
    }
}

/// Weights against their mean, all above 0.
fn relative(weights: &[f32]) -> Vec<f32> {
    let finite = |weight: f32| if weight.is_finite() { f64::from(weight.max(0.0)) } else { 0.0 };
    let mean = weights.iter().map(|&weight| finite(weight)).sum::<f64>() / weights.len() as f64;
    let mean = if mean > 0.0 { mean } else { 1.0 };
    weights.iter().map(|&weight| to_f32((finite(weight) / mean).max(LEAST_WEIGHT))).collect()
}

/// Rows that look alike have a label.
fn labels_of(
    columns: &SplatColumns,
    seen: &SeenFrom,
    seed: u64,
    search: &dyn RowSearch,
) -> PaletteLabels {
    let width = 3 * sh_rest_count(columns.sh_degree);
    let rows = RowTable::filled(width, columns.len(), |row, to| {
        seen.metric.apply(columns.rest(row).as_flattened(), to);
    });
    let weights = relative(&seen.weights);
    let count = entries_for(columns.len());
    PaletteLabels::of(&rows, &weights, count, seed, search)
}

#[cfg(test)]
mod tests {
    use super::super::search::HostSearch;
    use super::super::seen::Looks;
    use super::*;
    use crate::harmonics::harmonics;
    use crate::known_splats::random_splats;

    /// Colour of a Gaussian along a direction, of the columns' colours and these harmonics.
    fn seen_along(dc: [f32; 3], rest: &[[f32; 3]], direction: [f64; 3]) -> [f64; 3] {
        let values = harmonics(direction);
        std::array::from_fn(|c| {
            let rest = rest.iter().zip(&values[1..]).map(|(r, y)| f64::from(r[c]) * y);
            SH_C0 * f64::from(dc[c]) + rest.sum::<f64>()
        })
    }

    #[test]
    fn from_the_only_camera_colours_are_as_before_the_palette() {
        let mut splats = random_splats(1500, 2, 5);
        let camera = [0.5, -1.0, -30.0];
        let columns = splats.columns().clone();
        let mut looks = Looks::at(&columns);
        looks.add(camera, &vec![1.0; columns.len()]);
        let seen = looks.seen();
        let shared =
            SharedHarmonics::of(&columns, &seen, 1, &HostSearch).compensate(&mut splats, &seen);
        let mut without = 0.0_f64;
        for row in 0..columns.len() {
            let apart: [f64; 3] =
                std::array::from_fn(|i| f64::from(columns.means[row][i]) - camera[i]);
            let length = apart.iter().map(|x| x * x).sum::<f64>().sqrt();
            let direction = apart.map(|x| x / length);
            let codes = &shared.codes[shared.labels.labels[row] as usize * 8..][..8];
            let stored: Vec<[f32; 3]> = codes
                .iter()
                .map(|codes| codes.map(|code| shared.codebook.entries[usize::from(code)]))
                .collect();
            let before = seen_along(columns.sh_dc[row], columns.rest(row), direction);
            let after = seen_along(splats.columns().sh_dc[row], &stored, direction);
            let plain = seen_along(columns.sh_dc[row], &stored, direction);
            for channel in 0..3 {
                // The harmonics of the direction are rounded to f32.
                assert!((before[channel] - after[channel]).abs() < 1e-5, "{row}");
                without = without.max((before[channel] - plain[channel]).abs());
            }
        }
        assert!(without > 0.1, "{without}");
    }

    #[test]
    fn weights_are_against_their_mean_and_never_nothing() {
        assert_eq!(relative(&[1.0, 3.0]), [0.5, 1.5]);
        assert_eq!(relative(&[0.0, 2.0, f32::NAN, f32::INFINITY]), [1e-6, 4.0, 1e-6, 1e-6]);
        assert_eq!(relative(&[0.0, 0.0]), [1e-6; 2]);
    }
}
