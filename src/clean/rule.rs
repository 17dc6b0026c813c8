//! Why a Gaussian is removed.

use serde::Serialize;

/// Why a Gaussian is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CleanRule {
    /// No training view shows anything of it.
    Unseen,
    /// It is right before a training camera.
    Near,
    /// It is far larger than the scene, and shows little.
    Huge,
    /// The training views are nearer to their photographs without it.
    Harmful,
    /// It is far from all others, and hardly changes what views show.
    Isolated,
    /// The training views hardly change without it.
    Redundant,
    /// It is outside of the box or ball that is kept.
    Cropped,
}

impl CleanRule {
    /// All, in the order in which they are applied.
    pub const ALL: [Self; 7] = [
        Self::Unseen,
        Self::Near,
        Self::Huge,
        Self::Harmful,
        Self::Isolated,
        Self::Redundant,
        Self::Cropped,
    ];

    /// As reports call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unseen => "unseen",
            Self::Near => "before a camera",
            Self::Huge => "huge",
            Self::Harmful => "harmful",
            Self::Isolated => "isolated",
            Self::Redundant => "redundant",
            Self::Cropped => "cropped",
        }
    }
}
