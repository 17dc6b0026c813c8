//! Stage `relocate`: density control by Markov chain Monte Carlo (Kheradmand et al. 2024, section 4.3).

use super::densify::{append_copies, copy_row, forget_row};
use crate::backend::RelocateRule;
use crate::backend::cpu::model::{Model, Parameter};
use crate::math::Real;
use crate::math::random::{Purpose, Stream};
use crate::math::relocate::{is_dead, place, share, weight};

/// Moves the dead to where living Gaussians are.
pub(crate) fn relocate<R: Real>(model: &mut Model<R>, rule: &RelocateRule) -> usize {
    let is_dead = |row: usize| is_dead(logit(model, row), rule.opacity_min);
    let dead: Vec<usize> = (0..model.len()).filter(|&row| is_dead(row)).collect();
    let weights =
        (0..model.len()).map(|row| if is_dead(row) { 0 } else { weight(logit(model, row)) });
    let stream = Stream::new(rule.seed, u64::from(rule.iteration), Purpose::Relocate);
    let Some(sources) = draw(&sums(weights), stream, dead.len()) else {
        return 0;
    };
    for source in split_opacity(model, rule, &sources) {
        forget_row(model, source);
    }
    if !dead.is_empty() {
        model.invalidate_rows();
    }
    for (&row, &source) in dead.iter().zip(&sources) {
        copy_row(model, source, row);
    }
    dead.len()
}

/// Adds so many copies.
pub(crate) fn multiply<R: Real>(model: &mut Model<R>, rule: &RelocateRule, births: usize) {
    let weights = (0..model.len()).map(|row| weight(logit(model, row)));
    let stream = Stream::new(rule.seed, u64::from(rule.iteration), Purpose::Multiply);
    let Some(sources) = draw(&sums(weights), stream, births) else {
        return;
    };
    split_opacity(model, rule, &sources);
    append_copies(model, &sources);
}

fn logit<R: Real>(model: &Model<R>, row: usize) -> f64 {
    model.row(Parameter::OpacityLogits, row)[0].to_f64()
}

/// The sum of all up to each, its own included.
fn sums(weights: impl Iterator<Item = u64>) -> Vec<u64> {
    let add = |sum: &mut u64, weight| {
        *sum += weight;
        Some(*sum)
    };
    weights.scan(0, add).collect()
}

/// So many rows, each as often as its weight says; nothing where no row has any.
fn draw(sums: &[u64], stream: Stream, count: usize) -> Option<Vec<usize>> {
    let total = sums.last().copied().filter(|&total| total > 0)?;
    let drawn = |number| {
        let place = place(stream.bits(number), total);
        sums.partition_point(|&sum| sum <= place)
    };
    Some((0..count as u64).map(drawn).collect())
}

/// Gives each row its share of what it shares with its copies, and names these rows in their order.
fn split_opacity<R: Real>(
    model: &mut Model<R>,
    rule: &RelocateRule,
    sources: &[usize],
) -> Vec<usize> {
    let mut copies = vec![0_u32; model.len()];
    for &source in sources {
        copies[source] += 1;
    }
    let shared: Vec<usize> = (0..model.len()).filter(|&row| copies[row] > 0).collect();
    for &row in &shared {
        let share = share(logit(model, row), copies[row], rule.opacity_min);
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
    use crate::math::relocate::opacity;
    use crate::math::{inverse_sigmoid, sigmoid};
    use crate::model::Gaussians;

    const RULE: RelocateRule = RelocateRule { opacity_min: 0.005, seed: 5, iteration: 600 };

    /// Gaussians of these opacities, all their numbers different, with moments of 1 and 2.
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

    /// The number that a value is.
    fn number(value: f32) -> usize {
        (0..1_000_000).find(|&i| i as f32 == value).unwrap()
    }

    #[test]
    fn the_dead_become_copies_of_the_living_who_share_with_them() {
        let mut model = model(&[0.001, 0.6, 0.004, 0.3, 0.003, 0.002]);
        let before = model.clone();
        assert_eq!(relocate(&mut model, &RULE), 4);
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
            // Rounding to single precision, of logits and log-scales of up to 5.
            assert!((f64::from(found) - expected.logit).abs() < 1e-6);
            for axis in 0..3 {
                let [old, new] =
                    [&before, &model].map(|m| f64::from(m.row(Parameter::LogScales, source)[axis]));
                assert!((new - old - expected.log_growth).abs() < 1e-6);
            }
        }
        assert_eq!(relocate(&mut model, &RULE), 0, "nobody is dead any more");
    }

    #[test]
    fn sources_are_drawn_by_their_opacities() {
        let mut opacities = vec![0.001; 20_000];
        opacities[..3].copy_from_slice(&[0.1, 0.2, 0.5]);
        let mut model = model(&opacities);
        relocate(&mut model, &RULE);
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
    fn copies_are_added_behind_the_last_row_with_fresh_moments() {
        let mut model = model(&[0.5, 0.9, 0.001]);
        model.views_seen = vec![1, 2, 3];
        multiply(&mut model, &RULE, 5);
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
        multiply(&mut model, &RULE, 0);
        assert_eq!(model.len(), 8);
    }

    #[test]
    fn a_model_of_which_nothing_can_be_seen_stays_as_it_is() {
        let mut model = model(&[1e-7, 1e-8]);
        let before = model.clone();
        assert_eq!(relocate(&mut model, &RULE), 0);
        multiply(&mut model, &RULE, 3);
        assert_eq!(model.len(), 2);
        assert_eq!(model.columns[3].values, before.columns[3].values);
        let mut nothing = self::model(&[]);
        assert_eq!(relocate(&mut nothing, &RULE), 0);
        multiply(&mut nothing, &RULE, 3);
        assert!(nothing.is_empty());
        assert!(opacity(f64::from(before.row(Parameter::OpacityLogits, 0)[0])) < 1.0 / 65_536.0);
    }
}
