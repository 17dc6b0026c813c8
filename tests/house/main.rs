//! The rules that the files of this package keep.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot continue says so and stops"
)]

mod configs;
mod layers;
mod words;
