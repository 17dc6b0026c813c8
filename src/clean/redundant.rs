//! Removing Gaussians without which the training views hardly change.
//!
//! How much they change is no question of weight: one that has the colour of what lies behind it can go,
//! however opaque it is. What stands in for those that went then counts for more. So a few go at a time, and
//! all is measured anew.

use super::cleaner::Cleaner;
use super::rule::CleanRule;
use crate::backend::TrainDevice;
use crate::math::Real;
use crate::train::TrainError;

/// Share of those left that goes in the first round.
const FIRST_SHARE: f64 = 0.1;

/// Halvings of that share, each after a round that cost too much, before it ends: the last is of 0.6 %.
const HALVINGS: u32 = 4;

/// Rounds at most, whatever may be lost: some 1.5 % of the Gaussians would be left.
const ROUNDS: u32 = 40;

/// Removes those that change the views least, as many as the loss allows.
pub(super) fn drop_redundant<B: TrainDevice>(
    cleaner: &mut Cleaner<'_, '_, B>,
) -> Result<(), TrainError> {
    let (mut share, mut halvings) = (FIRST_SHARE, 0);
    for round in 1..=ROUNDS {
        let rows = least_changing(cleaner, share);
        if rows.is_empty() {
            break;
        }
        let proposal = cleaner.without(&rows, CleanRule::Redundant)?;
        let psnr = proposal.judged.psnr;
        tracing::info!("redundant, round {round}: {}, PSNR {psnr:.3} dB", rows.len());
        if psnr >= cleaner.least() {
            cleaner.accept(proposal);
        } else if halvings < HALVINGS {
            halvings += 1;
            share /= 2.0;
        } else {
            break;
        }
    }
    Ok(())
}

/// The rows of this share of those left, without which the views change least.
fn least_changing<B: TrainDevice>(cleaner: &Cleaner<'_, '_, B>, share: f64) -> Vec<usize> {
    let mut rows = cleaner.left(|_| true);
    let change = |row: usize| cleaner.now.worths[row].squared_change;
    rows.sort_by(|&a, &b| change(a).total_cmp(&change(b)));
    rows.truncate((share * rows.len() as f64).floor_i32().unsigned_abs() as usize);
    rows
}
