//! Removing Gaussians that harm what the training views show.
//!
//! That the error would be less without a Gaussian says nothing of removing many of them: neighbours answer
//! for one another. So the worst few go, and all is measured anew. Those that were blamed for what was before
//! them come back as soon as that has gone.

use super::cleaner::Cleaner;
use super::rule::CleanRule;
use crate::backend::TrainDevice;
use crate::math::Real;
use crate::train::TrainError;

/// Rounds at most.
const ROUNDS: u32 = 40;

/// Share of the Gaussians that go in the first round, at most.
const FIRST_SHARE: f64 = 0.005;

/// Share of a Gaussian's weight by which the error must fall without it.
const HARM_MIN: f64 = 2e-3;

/// By how much a round has to raise the PSNR, dB.
const RISE_MIN: f64 = 2e-3;

/// Where the error fell by this share of what was expected, more go in the next round.
const AS_EXPECTED: f64 = 0.5;

/// Rounds one after the other that did not help, before it ends. Each has a quarter as many as the one
/// before.
const FAILURES: u32 = 3;

/// Removes the worst, round by round, as long as the PSNR rises.
pub(super) fn drop_harmful<B: TrainDevice>(
    cleaner: &mut Cleaner<'_, '_, B>,
) -> Result<(), TrainError> {
    let mut most = (FIRST_SHARE * cleaner.gone.len() as f64).max(1.0);
    let mut failures = 0;
    for round in 1..=ROUNDS {
        let changes = worst(cleaner, most.floor_i32().unsigned_abs() as usize);
        if changes.is_empty() {
            break;
        }
        let mut gone = cleaner.gone.clone();
        for &row in &changes {
            gone[row] = if gone[row].is_some() { None } else { Some(CleanRule::Harmful) };
        }
        let error_change = |&row: &usize| f64::from(cleaner.now.worths[row].error_change);
        let expected: f64 = changes.iter().map(error_change).sum();
        let proposal = cleaner.propose(gone)?;
        let fell = cleaner.now.squared_error - proposal.judged.squared_error;
        tracing::info!(
            "round {round}: {} change, PSNR {:.3} dB",
            changes.len(),
            proposal.judged.psnr
        );
        if proposal.judged.psnr < cleaner.now.psnr + RISE_MIN {
            failures += 1;
            most = (most / 4.0).max(1.0);
            if failures == FAILURES {
                break;
            }
            continue;
        }
        failures = 0;
        most = if fell > -AS_EXPECTED * expected { most * 2.0 } else { (most / 2.0).max(1.0) };
        cleaner.accept(proposal);
    }
    Ok(())
}

/// The rows whose change lowers the error most: those left that would go, and those gone that would come
/// back.
fn worst<B: TrainDevice>(cleaner: &Cleaner<'_, '_, B>, most: usize) -> Vec<usize> {
    let may_change = |row: &usize| {
        let gone = cleaner.gone[*row];
        gone.is_none_or(|rule| rule == CleanRule::Harmful) && cleaner.harm(*row) < -HARM_MIN
    };
    let mut rows: Vec<usize> = (0..cleaner.gone.len()).filter(may_change).collect();
    let change = |row: usize| cleaner.now.worths[row].error_change;
    rows.sort_by(|&a, &b| change(a).total_cmp(&change(b)));
    rows.truncate(most);
    rows
}
