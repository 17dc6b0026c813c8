//! What a reader of a comparison has to know of a run.

use crate::telemetry::{MeasuredSplit, RunState, RunSummary};

/// Sentences about a run beside its baseline, which may be itself.
pub(super) fn of(run: &RunSummary, baseline: &RunSummary) -> Vec<String> {
    let mut notes = Vec::new();
    let RunSummary { iteration, iterations, first_iteration, .. } = *run;
    match run.state {
        RunState::Training => notes.push(format!(
            "it is not finished: {iteration} of {iterations} iterations were done when its summary \
             was written last"
        )),
        RunState::Interrupted => notes.push(format!(
            "it is not finished: it was interrupted after {iteration} of {iterations} iterations"
        )),
        RunState::Complete => {}
    }
    if first_iteration > 0 {
        notes.push(format!(
            "its times and peaks are of the iterations after {first_iteration}, from where it was \
             resumed"
        ));
    }
    for (split, measured) in &run.metrics {
        if measured.iteration != iteration {
            notes.push(format!(
                "its {split} views were measured at iteration {} and not since",
                measured.iteration
            ));
        }
        if let Some(before) = baseline.metrics.get(split)
            && before.iteration != measured.iteration
        {
            notes.push(format!(
                "its {split} views were measured at iteration {}, those of the baseline at {}",
                measured.iteration, before.iteration
            ));
        }
        if baseline.metrics.contains_key(split) && measured.views.is_none() {
            notes.push(format!(
                "which {split} views it was measured on is not known, so they may be others than those \
                 of another run"
            ));
        }
        if let Some(before) = baseline.metrics.get(split)
            && let Some(difference) = other_views(measured, before)
        {
            notes.push(format!(
                "its {split} views are not those of the baseline, so their figures cannot be compared: \
                 {difference}"
            ));
        }
    }
    notes
}

/// How the measured views differ from those of the baseline, if it is known that they do.
pub(super) fn other_views(run: &MeasuredSplit, baseline: &MeasuredSplit) -> Option<String> {
    let (now, before) = (run.views.as_ref()?, baseline.views.as_ref()?);
    if now == before {
        return None;
    }
    let same = now.to_string() == before.to_string();
    let how = if same { " by other names or other sizes" } else { "" };
    Some(format!("{now}{how}, and {before} of the baseline"))
}
