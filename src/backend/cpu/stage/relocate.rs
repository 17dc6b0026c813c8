//! Stage `relocate`: density control by Markov chain Monte Carlo (Kheradmand et al. 2024, section 4.3).

use crate::backend::cpu::model::{Model, Parameter};
use crate::backend::{Edited, Into};
use crate::math::Real;
use crate::math::random::RandomStream;
use crate::math::relocate::{is_dead, place, share, weight};

/// Sources of copies and their destinations.
#[derive(Debug)]
pub(crate) struct DrawnSources {
    /// Source row of each copy.
    pub(crate) sources: Vec<usize>,
    /// Rows to overwrite; `None` to append new rows.
    pub(crate) dead: Option<Vec<usize>>,
    /// Minimum opacity after a split.
    pub(crate) opacity_min: f64,
}

/// Draws the sources of copies by opacity.
pub(crate) fn select<R: Real>(
    model: &Model<R>,
    opacity_min: f64,
    into: Into,
    stream: RandomStream,
) -> DrawnSources {
    let rows = 0..model.len();
    match into {
        Into::Dead => {
            let is_dead = |row: usize| is_dead(logit(model, row), opacity_min);
            let dead: Vec<usize> = rows.clone().filter(|&row| is_dead(row)).collect();
            let weights = rows.map(|row| if is_dead(row) { 0 } else { weight(logit(model, row)) });
            match draw(&sums(weights), stream, dead.len()) {
                Some(sources) => DrawnSources { sources, dead: Some(dead), opacity_min },
                None => DrawnSources { sources: Vec::new(), dead: Some(Vec::new()), opacity_min },
            }
        }
        Into::NewRows(new_gaussians) => {
            let weights = rows.map(|row| weight(logit(model, row)));
            let sources = draw(&sums(weights), stream, new_gaussians).unwrap_or_default();
            DrawnSources { sources, dead: None, opacity_min }
        }
    }
}

/// Writes the copies and splits the opacity between each source and its copies.
pub(crate) fn edit<R: Real>(model: &mut Model<R>, drawn: &DrawnSources) -> Edited {
    let DrawnSources { sources, dead, opacity_min } = drawn;
    let shared = split_opacity(model, *opacity_min, sources);
    let Some(dead) = dead else {
        model.append_copies(sources);
        return Edited { copied: sources.len(), ..Edited::default() };
    };
    for source in shared {
        model.forget_row(source);
    }
    if !dead.is_empty() {
        model.invalidate_rows();
    }
    for (&row, &source) in dead.iter().zip(sources) {
        model.copy_row(source, row);
    }
    Edited { moved: dead.len(), ..Edited::default() }
}

fn logit<R: Real>(model: &Model<R>, row: usize) -> f64 {
    model.row(Parameter::OpacityLogits, row)[0].to_f64()
}

/// Returns the inclusive prefix sums.
fn sums(weights: impl Iterator<Item = u64>) -> Vec<u64> {
    let add = |sum: &mut u64, weight| {
        *sum += weight;
        Some(*sum)
    };
    weights.scan(0, add).collect()
}

/// Draws `count` rows with replacement by weight; `None` if all weights are 0.
fn draw(sums: &[u64], stream: RandomStream, count: usize) -> Option<Vec<usize>> {
    let total = sums.last().copied().filter(|&total| total > 0)?;
    let drawn = |number| {
        let place = place(stream.bits(number), total);
        sums.partition_point(|&sum| sum <= place)
    };
    Some((0..count as u64).map(drawn).collect())
}

/// Splits the opacity of each source with its copies, and returns the sources, ascending.
pub(crate) fn split_opacity<R: Real>(
    model: &mut Model<R>,
    opacity_min: f64,
    sources: &[usize],
) -> Vec<usize> {
    let mut copies = vec![0_u32; model.len()];
    for &source in sources {
        copies[source] += 1;
    }
    let shared: Vec<usize> = (0..model.len()).filter(|&row| copies[row] > 0).collect();
    for &row in &shared {
        let share = share(logit(model, row), copies[row], opacity_min);
        model.column_mut(Parameter::OpacityLogits).values[row] = R::of(share.logit);
        for log_scale in &mut model.column_mut(Parameter::LogScales).values[row * 3..][..3] {
            *log_scale = R::of(log_scale.to_f64() + share.log_growth);
        }
    }
    shared
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::random::RandomUse;
    use crate::math::{inverse_sigmoid, sigmoid};
    use crate::model::Gaussians;

    /// Draws sources with opacities of at least 0.005 and writes the copies.
    fn copy(model: &mut Model<f32>, into: Into) -> Edited {
        let purpose = match into {
            Into::Dead => RandomUse::Relocate,
            Into::NewRows(_) => RandomUse::Multiply,
        };
        let drawn = select(model, 0.005, into, RandomStream::new(5, 600, purpose));
        edit(model, &drawn)
    }

    /// Creates Gaussians of these opacities with different parameters and moments of 1 and 2.
    fn model(opacities: &[f32]) -> Model<f32> {
        let mut host = Gaussians::zeros(1, opacities.len());
        for (i, &opacity) in opacities.iter().enumerate() {
            host.means[i * 3] = i as f32;
            host.log_scales[i * 3..][..3].copy_from_slice(&[-3.0, -4.0, -5.0 + i as f32 / 8.0]);
            host.quats[i * 4..][..4].copy_from_slice(&[0.9, 0.1, i as f32 / 8.0, 0.3]);
            host.opacity_logits[i] = inverse_sigmoid(opacity);
            host.sh_dc[i * 3] = i as f32 / 4.0;
            host.sh_rest[i * 9 + 8] = i as f32 + 0.5;
        }
        let mut model = Model::new(&host);
        for column in &mut model.columns {
            column.first_moments.fill(1.0);
            column.second_moments.fill(2.0);
        }
        model
    }

    fn moments(model: &Model<f32>, row: usize) -> [f32; 2] {
        let column = model.column(Parameter::ShRest);
        [column.first_moments[row * 9], column.second_moments[row * 9 + 8]]
    }

    /// Converts a value to an integer.
    fn number(value: f32) -> usize {
        (0..1_000_000).find(|&i| i as f32 == value).unwrap()
    }

    #[test]
    fn dead_rows_become_copies_that_share_opacity() {
        let mut model = model(&[0.001, 0.6, 0.004, 0.3, 0.003, 0.002]);
        let before = model.clone();
        assert_eq!(copy(&mut model, Into::Dead).moved, 4);
        assert_eq!(model.len(), 6);
        let mut copies = [0; 6];
        for row in [0, 2, 4, 5] {
            let source = number(model.row(Parameter::Means, row)[0]);
            assert!([1, 3].contains(&source), "row {row} is a copy of {source}");
            for parameter in Parameter::ALL {
                assert_eq!(model.row(parameter, row), model.row(parameter, source));
            }
            assert_eq!(moments(&model, row), [1.0, 2.0], "the dead keep their moments");
            copies[source] += 1;
        }
        for source in [1, 3] {
            let logit_before = f64::from(before.row(Parameter::OpacityLogits, source)[0]);
            if copies[source] == 0 {
                continue;
            }
            assert_eq!(moments(&model, source), [0.0, 0.0], "and sources forget theirs");
            let expected = share(logit_before, copies[source], 0.005);
            let found = model.row(Parameter::OpacityLogits, source)[0];
            // Rounding to single precision of logits and log-scales up to 5.
            assert!((f64::from(found) - expected.logit).abs() < 1e-6);
            for axis in 0..3 {
                let [old, new] =
                    [&before, &model].map(|m| f64::from(m.row(Parameter::LogScales, source)[axis]));
                assert!((new - old - expected.log_growth).abs() < 1e-6);
            }
        }
        assert_eq!(copy(&mut model, Into::Dead).moved, 0, "no row is dead");
    }

    #[test]
    fn sources_are_drawn_by_their_opacities() {
        let mut opacities = vec![0.001; 20_000];
        opacities[..3].copy_from_slice(&[0.1, 0.2, 0.5]);
        let mut model = model(&opacities);
        copy(&mut model, Into::Dead);
        let count = |mean: f32| {
            let means = &model.column(Parameter::Means).values;
            means.chunks(3).filter(|row| row[0] == mean).count() as f64 - 1.0
        };
        for (source, share) in [(0.0, 0.125), (1.0, 0.25), (2.0, 0.625)] {
            let expected = 19_997.0 * share;
            // Four standard deviations of a binomial count.
            let band = 4.0 * (expected * (1.0_f64 - share)).sqrt();
            assert!((count(source) - expected).abs() < band, "{source}: {}", count(source));
        }
    }

    #[test]
    fn copies_are_appended_with_zero_moments() {
        let mut model = model(&[0.5, 0.9, 0.001]);
        model.views_seen = vec![1, 2, 3];
        copy(&mut model, Into::NewRows(5));
        assert_eq!((model.len(), model.views_seen.clone()), (8, vec![1, 2, 3, 0, 0, 0, 0, 0]));
        assert_eq!(model.gradient_norm_sums.len(), 8);
        for row in 3..8 {
            let source = number(model.row(Parameter::Means, row)[0]);
            for parameter in Parameter::ALL {
                assert_eq!(model.row(parameter, row), model.row(parameter, source));
            }
            assert_eq!(moments(&model, row), [0.0, 0.0]);
            assert_eq!(moments(&model, source), [1.0, 2.0]);
            let shared = sigmoid(model.row(Parameter::OpacityLogits, row)[0]);
            assert!(shared < 0.9 && f64::from(shared) > 0.005, "{shared}");
        }
        copy(&mut model, Into::NewRows(0));
        assert_eq!(model.len(), 8);
    }

    #[test]
    fn invisible_model_does_not_change() {
        let mut model = model(&[1e-7, 1e-8]);
        let before = model.clone();
        assert_eq!(copy(&mut model, Into::Dead).moved, 0);
        copy(&mut model, Into::NewRows(3));
        assert_eq!(model.len(), 2);
        assert_eq!(model.columns[3].values, before.columns[3].values);
        let mut nothing = self::model(&[]);
        assert_eq!(copy(&mut nothing, Into::Dead).moved, 0);
        copy(&mut nothing, Into::NewRows(3));
        assert!(nothing.is_empty());
        assert!(sigmoid(f64::from(before.row(Parameter::OpacityLogits, 0)[0])) < 1.0 / 65_536.0);
    }
}
