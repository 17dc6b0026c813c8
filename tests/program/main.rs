//! The program as a user runs it.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot continue says so and stops"
)]

#[path = "../common/mod.rs"]
mod common;

mod bad_input;
mod batches;
mod cli;
#[cfg(unix)]
mod coarse;
mod completions;
mod depths;
mod fixtures;
mod init;
mod lpips;
mod plan;
mod profile;
#[cfg(unix)]
mod resume;
mod strategies;
mod sugar;
mod unusual_input;
