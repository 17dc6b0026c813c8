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
mod depths;
mod fixtures;
mod foreign_files;
mod init;
mod lpips;
mod plan;
mod profile;
mod remedies;
#[cfg(unix)]
mod resume;
mod strategies;
mod sugar;
mod typed;
mod unusual_input;
