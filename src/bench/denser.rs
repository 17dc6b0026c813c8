//! A model with another number of Gaussians that looks and costs like a trained one of that size.

use crate::math::Real;
use crate::math::linalg::{add, mul, rotation, scale};
use crate::math::random::{RandomStream, RandomUse};
use crate::model::{Gaussians, Primitive};

/// Standard deviation of a copy's offset, in units of the original's. Copies overlap like neighbours in a trained
/// model, and together cover about the original.
const SPREAD: f64 = 0.5;

/// Returns exactly `count` Gaussians. Each is replaced by jittered copies, whose numbers differ by at most one, with
/// the scales divided by the square root of the number. If `count` is smaller than the model, Gaussians are left out
/// evenly over the order.
pub(super) fn denser(gaussians: &Gaussians, count: usize, seed: u64) -> Gaussians {
    let stream = RandomStream::new(seed, 0, RandomUse::Jitter);
    let original_from_copy = originals(gaussians.len(), count);
    let mut copies = gaussians.gather(original_from_copy.iter().copied());
    let mut group_start = 0;
    for group in original_from_copy.chunk_by(|a, b| a == b) {
        let among = group_start..group_start + group.len();
        group_start = among.end;
        if group.len() < 2 {
            continue;
        }
        let shrink = 0.5 * (group.len() as f64).ln();
        for copy in among {
            let [x, y, z] = [0, 1, 2].map(|axis| stream.normal(copy as u64 * 3 + axis));
            let quat = [0, 1, 2, 3].map(|k| f64::from(copies.quats[copy * 4 + k]));
            let row = copy * 3..copy * 3 + 3;
            let scales = [0, 1, 2].map(|k| f64::from(copies.log_scales[row.start + k]).exp());
            let offset = mul(&rotation(quat), [x * scales[0], y * scales[1], z * scales[2]]);
            let mean = [0, 1, 2].map(|k| f64::from(copies.means[row.start + k]));
            let mean = add(mean, scale(offset, SPREAD)).map(f64::to_f32);
            copies.means[row.clone()].copy_from_slice(&mean);
            for value in &mut copies.log_scales[row] {
                *value -= shrink.to_f32();
            }
        }
    }
    copies
}

/// Returns the original of each of `count` copies, in order. Originals are used evenly.
fn originals(len: usize, count: usize) -> Vec<usize> {
    let share = |i: usize| i as u128 * count as u128 / len.max(1) as u128;
    // Differences of shares are at most `count`.
    let copies = |i: usize| usize::try_from(share(i + 1) - share(i)).unwrap_or_default();
    (0..len).flat_map(|i| std::iter::repeat_n(i, copies(i))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(count: usize) -> Gaussians {
        let mut model = Gaussians::zeros(1, count);
        for (index, group) in model.groups_mut().into_iter().enumerate() {
            for (i, value) in group.iter_mut().enumerate() {
                *value = (index * 1000 + i) as f32 * 1e-3 + 0.1;
            }
        }
        model
    }

    #[test]
    fn the_count_is_exact_and_originals_are_used_evenly() {
        for count in [0, 1, 6, 7, 8, 20, 21, 1003] {
            assert_eq!(denser(&model(7), count, 1).len(), count);
            let originals = originals(7, count);
            let copies = |i| originals.iter().filter(|&&original| original == i).count();
            assert!((0..7).all(|i| copies(i) == count / 7 || copies(i) == count / 7 + 1));
        }
        assert_eq!(denser(&Gaussians::zeros(3, 0), 5, 1).len(), 0);
    }

    #[test]
    fn the_same_count_keeps_the_model() {
        assert_eq!(denser(&model(7), 7, 1), model(7));
        let fewer = denser(&model(7), 3, 1);
        assert_eq!(fewer, model(7).gather(originals(7, 3).into_iter()));
    }

    #[test]
    fn copies_shrink_by_the_root_of_their_number() {
        let (original, copies) = (model(2), denser(&model(2), 8, 1));
        for copy in 0..8 {
            let from = copy / 4;
            for k in 0..3 {
                let shrunk = original.log_scales[from * 3 + k] - 2.0_f32.ln();
                assert!((copies.log_scales[copy * 3 + k] - shrunk).abs() < 1e-6);
            }
            assert_eq!(copies.opacity_logits[copy], original.opacity_logits[from]);
            assert_eq!(copies.quats[copy * 4..][..4], original.quats[from * 4..][..4]);
            assert_eq!(copies.sh_rest[copy * 9..][..9], original.sh_rest[from * 9..][..9]);
        }
        assert_eq!(copies, denser(&model(2), 8, 1));
        assert_ne!(copies.means, denser(&model(2), 8, 2).means);
    }

    #[test]
    fn jitter_has_the_shape_of_the_gaussian() {
        // Turned by 90° about z: the long axis x lies along the world's y.
        let mut one = Gaussians::zeros(0, 1);
        one.quats = vec![0.5_f32.sqrt(), 0.0, 0.0, 0.5_f32.sqrt()];
        one.log_scales = vec![10.0_f32.ln(), 0.1_f32.ln(), 1e-3_f32.ln()];
        let copies = denser(&one, 20_000, 3);
        let deviation = |axis: usize| {
            let squares = copies.means.iter().skip(axis).step_by(3).map(|&x| f64::from(x).powi(2));
            (squares.sum::<f64>() / 20_000.0).sqrt()
        };
        for (axis, expected) in [(0, 0.05), (1, 5.0), (2, 5e-4)] {
            // The deviation of 20,000 draws has a relative error of 1/√40,000; four times that.
            assert!((deviation(axis) / expected - 1.0).abs() < 0.02, "{axis}: {}", deviation(axis));
        }
    }
}
