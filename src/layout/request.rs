//! What a view is drawn for, and what of it.

use super::colors::ColorUse;
use super::faces::FACES_PER_VERTEX;
use crate::abi::terms::Inputs;
use crate::abi::{RECORD_WIDTH, SURFEL_RECORD_WIDTH, TRIANGLE_RECORD_WIDTH};
use crate::math::Divisor;

/// What a view is drawn for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Use {
    /// Its pixels.
    #[default]
    Image,
    /// Its pixels, and how many Gaussians each is blended of.
    Counts,
    /// The backward pass, which follows.
    Backward,
}

/// What the records of a view's splats hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Records {
    /// Ellipses.
    #[default]
    Ellipses,
    /// Surfels.
    Surfels,
    /// Triangles.
    Triangles,
}

impl Records {
    /// The most that there may be of so many rows: of triangles those of a closed surface.
    pub const fn most(self, rows: u64) -> u64 {
        match self {
            Self::Ellipses | Self::Surfels => rows,
            Self::Triangles => rows.saturating_mul(FACES_PER_VERTEX),
        }
    }

    /// Floats of one, and of its gradients.
    pub const fn width(self) -> u32 {
        match self {
            Self::Ellipses => RECORD_WIDTH,
            Self::Surfels => SURFEL_RECORD_WIDTH,
            Self::Triangles => TRIANGLE_RECORD_WIDTH,
        }
    }
}

/// What is drawn of a view.
#[expect(clippy::struct_excessive_bools, reason = "a set, of which any may be there")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewRequest {
    /// What for.
    pub drawn_for: Use,
    /// As what.
    pub records: Records,
    /// Inverse depths beside the colours.
    pub inverse_depths: bool,
    /// Squares of inverse depths beside the colours.
    pub inverse_squares: bool,
    /// Maps of depths and normals beside the colours.
    pub maps: bool,
    /// Median depths beside the colours.
    pub median: bool,
    /// Other colours that are compared in place of those drawn.
    pub colors: Option<ColorUse>,
    /// By how much it is smaller than its photograph, which is made smaller for it.
    pub divisor: Divisor,
}

impl ViewRequest {
    /// Whether a backward pass follows.
    pub fn backward(&self) -> bool {
        self.drawn_for == Use::Backward
    }

    /// The same with what terms need of the view beside the colours, and nothing else beside them.
    pub fn beside(&self, inputs: Inputs) -> Self {
        let Inputs { inverse_depths, inverse_squares, maps, median, .. } = inputs;
        Self { inverse_depths, inverse_squares, maps, median, ..*self }
    }

    /// The same of a band's forward pass: the backward pass draws the band anew.
    pub fn forward_only(&self) -> Self {
        match self.drawn_for {
            Use::Backward => Self { drawn_for: Use::Image, ..*self },
            Use::Image | Use::Counts => *self,
        }
    }
}
