//! Files of all formats on the disk: known by their content, whole or not at all, safe against
//! whatever bytes they hold.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a test that cannot continue says so and stops"
)]

mod golden;
mod hostile;
mod known;
mod memory;
mod names;
