//! Whether the view of `--timelapse` is there.

use super::exit::UsageError;
use super::intent::Intent;
use super::train_args::TrainArgs;
use crate::dataset::Dataset;

/// Refuses a view that the scene has not, or that is not the one of the run that goes on. A scene that has lost the
/// view of an earlier run costs the pictures, and not the run.
pub(super) fn check_timelapse(
    args: &TrainArgs,
    intent: &mut Intent,
    dataset: &Dataset,
) -> Result<(), UsageError> {
    let earlier = intent.checkpoint.as_ref().filter(|_| intent.goes_on);
    let earlier = earlier.and_then(|found| found.about.config.output.timelapse.clone());
    let Some(name) = intent.config.output.timelapse.clone() else { return Ok(()) };
    if let Some(earlier) = earlier.filter(|earlier| *earlier != name) {
        return Err(UsageError(format!(
            "--timelapse {name}: this run keeps pictures of {earlier}. Leave it out, or train into another folder"
        )));
    }
    if dataset.views.iter().any(|view| view.name == name) {
        return Ok(());
    }
    let is_typed = args.options.output.timelapse.is_some();
    let some: Vec<&str> = dataset.views.iter().take(3).map(|view| view.name.as_str()).collect();
    let problem = format!("--timelapse {name}: the scene has no such photograph");
    if is_typed {
        let like = some.join(", ");
        return Err(UsageError(format!("{problem}. Name one as the scene does, like {like}")));
    }
    tracing::warn!("{problem} any more: no pictures are kept");
    intent.config.output.timelapse = None;
    Ok(())
}
