//! Refusals and notices as rows of a condition and a message.

use std::fmt::Display;

use super::exit::UsageError;
use crate::train::Views;

/// Returns the message of the first row that applies as an error.
pub(super) fn check<S: Into<String>>(
    rows: impl IntoIterator<Item = (bool, S)>,
) -> Result<(), UsageError> {
    match rows.into_iter().find(|(applies, _)| *applies) {
        Some((_, message)) => Err(UsageError::new(message)),
        None => Ok(()),
    }
}

/// Logs the messages of all rows that apply as warnings.
pub(super) fn warn<S: Display>(rows: impl IntoIterator<Item = (bool, S)>) {
    for (_, message) in rows.into_iter().filter(|(applies, _)| *applies) {
        tracing::warn!("{message}");
    }
}

/// Logs the warnings about a scene's images since the last call.
pub(super) fn warn_about_images(views: &mut Views<'_>) {
    warn(views.take_warnings().into_iter().map(|message| (true, message)));
}
