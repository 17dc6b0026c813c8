//! The k-th smallest of the mean absolute gradients, exactly and without sorting: a radix select whose
//! histograms the device counts.

use crate::abi::{DIGITS, DigitsArgs};
use crate::backend::DeviceError;
use crate::backend::cuda::device::error::count_u32;
use crate::backend::cuda::memory::heap::{Block, Buffer};
use crate::backend::cuda::model::tables::Model;
use crate::backend::cuda::session::Session;
use crate::layout::DENSITY_DIGITS;
use crate::math::quantile::{between, place};

/// A digit of a number: some of its bits.
struct Digit {
    /// The lowest of them.
    shift: u32,
    /// How many.
    width: u32,
}

/// The digits from the highest down: all bits but the sign.
const PASSES: [Digit; 3] =
    [Digit { shift: 20, width: 11 }, Digit { shift: 10, width: 10 }, Digit { shift: 0, width: 10 }];

/// Blocks of a pass: each has all counts to add up.
const MOST_BLOCKS: usize = 512;

/// Gaussians that each block of a pass has at least, where there are as many.
const ROWS_A_BLOCK: usize = 4096;

/// The quantile 1 - `above / n` of the mean absolute gradients of all Gaussians, of which there is one
/// at least.
pub(crate) fn quantile(session: &Session, model: &Model, above: usize) -> Result<f32, DeviceError> {
    let mut counts = session.heap.take(&DENSITY_DIGITS, &1)?;
    let place = place(model.len(), above);
    let mut select = |rank| select(session, model, rank, &mut counts).map(f64::from);
    let low = select(place.rank)?;
    let high = if place.share > 0.0 { select(place.rank + 1)? } else { low };
    #[expect(clippy::cast_possible_truncation, reason = "rounded to the device's precision")]
    Ok(between(low, high, place.share) as f32)
}

/// The value of a rank, from 0, in ascending order.
fn select(
    session: &Session,
    model: &Model,
    mut rank: usize,
    counts: &mut Block<u32>,
) -> Result<f32, DeviceError> {
    let (mut known, mut prefix) = (0, 0);
    let mut host = [0; DIGITS as usize];
    for Digit { shift, width } in PASSES {
        let digit = (1 << width) - 1;
        counts.zero(&session.stream)?;
        let args = DigitsArgs {
            absolute_norm_sums: model.absolute_norm_sums.read(),
            views_seen: model.views_seen.read(),
            counts: counts.write(),
            n: count_u32(model.len())?,
            known,
            prefix,
            shift,
            digit,
            reserved: 0,
        };
        let blocks = model.len().div_ceil(ROWS_A_BLOCK).min(MOST_BLOCKS);
        session.kernels.count_digits.blocks(&session.stream, blocks, &args)?;
        counts.download(&session.stream, 0, &mut host)?;
        let (chosen, before) = digit_of(&host, rank);
        rank -= before;
        known |= digit << shift;
        prefix |= chosen << shift;
    }
    Ok(f32::from_bits(prefix))
}

/// The digit of the number of a rank, and how many numbers have a smaller one.
fn digit_of(counts: &[u32], rank: usize) -> (u32, usize) {
    let mut before = 0;
    for (digit, &count) in (0..).zip(counts) {
        let count = count as usize;
        if rank < before + count {
            return (digit, before);
        }
        before += count;
    }
    // There are as many numbers as there are ranks.
    (0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_cover_all_bits_but_the_sign() {
        let covered = PASSES.iter().fold(0_u32, |bits, Digit { shift, width }| {
            assert!(1 << width <= DIGITS);
            bits | ((1 << width) - 1) << shift
        });
        assert_eq!(covered, u32::MAX >> 1);
    }

    #[test]
    fn the_digit_of_a_rank_is_the_first_whose_numbers_reach_it() {
        let counts = [0, 3, 0, 2];
        let found: Vec<_> = (0..5).map(|rank| digit_of(&counts, rank)).collect();
        assert_eq!(found, [(1, 0), (1, 0), (1, 0), (3, 3), (3, 3)]);
    }
}
