//! What a long computation tells its caller, and how the caller ends it.

use std::sync::atomic::{AtomicBool, Ordering};

/// The caller asked for the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped on request. Give the same command again to start over")]
pub struct Stopped;

/// The caller's side of a long computation.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Set by the caller when the computation is to end.
    pub stop: &'a AtomicBool,
    /// Told a stage's name and the share of it that is done, 0 to 1.
    pub told: &'a (dyn Fn(&'static str, f64) + Sync),
}

impl Watch<'_> {
    /// An error once the caller wants the end.
    pub fn check(&self) -> Result<(), Stopped> {
        if self.stop.load(Ordering::Relaxed) { Err(Stopped) } else { Ok(()) }
    }

    /// Tells how far a stage is; an error once the caller wants the end.
    pub fn tell(&self, stage: &'static str, share: f64) -> Result<(), Stopped> {
        (self.told)(stage, share);
        self.check()
    }
}
