//! Gaussians for tests.

use crate::splats::{FLAT_LOG_SCALE, SplatColumns, SplatPrimitive, Splats, sh_rest_count};
use splat_mesh::narrow::to_f32;
use splat_mesh::random::RandomSequence;

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

/// Creates random surfels.
pub(crate) fn random_surfels(count: usize, sh_degree: u32, seed: u64) -> Splats {
    let mut splats = random_splats(count, sh_degree, seed);
    let columns = splats.columns_mut();
    columns.primitive = SplatPrimitive::Surfels;
    columns.log_scales.iter_mut().for_each(|[.., third]| *third = FLAT_LOG_SCALE);
    splats
}

/// Creates Gaussians at these centres.
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
        columns.log_scales[row] = if row % 2 == 0 { [5.0, 5.5, 4.0] } else { [-9.5, -8.0, -9.9] };
        columns.opacity_logits[row] = if row % 3 == 0 { 20.0 } else { -20.0 };
        columns.sh_dc[row] = [2.5, -2.0, 0.0];
    }
    Splats::from_columns(columns).unwrap().splats
}
