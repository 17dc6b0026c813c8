//! Outputs of a view, and their use.

use super::colors::ColorUse;
use super::model::FACES_PER_VERTEX;
use crate::abi::terms::Inputs;
use crate::abi::{RECORD_WIDTH, SURFEL_RECORD_WIDTH, TRIANGLE_RECORD_WIDTH};
use crate::math::Divisor;

/// Use of a drawn view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Use {
    /// The image.
    #[default]
    Image,
    /// The image, and the number of Gaussians blended in each pixel.
    Counts,
    /// A backward pass.
    Backward,
}

/// Content of a view's splat records.
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
    /// Returns the largest number of records for this number of rows; triangles form a closed surface.
    pub const fn most(self, rows: u64) -> u64 {
        match self {
            Self::Ellipses | Self::Surfels => rows,
            Self::Triangles => rows.saturating_mul(FACES_PER_VERTEX),
        }
    }

    /// Returns the floats of a record or of its gradient.
    pub const fn width(self) -> u32 {
        match self {
            Self::Ellipses => RECORD_WIDTH,
            Self::Surfels => SURFEL_RECORD_WIDTH,
            Self::Triangles => TRIANGLE_RECORD_WIDTH,
        }
    }
}

/// Outputs of a view.
#[expect(clippy::struct_excessive_bools, reason = "a set, of which any may be there")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewRequest {
    /// Use of the view.
    pub drawn_for: Use,
    /// Kind of the records.
    pub records: Records,
    /// True if inverse depths are drawn.
    pub inverse_depths: bool,
    /// True if squares of inverse depths are drawn.
    pub inverse_squares: bool,
    /// True if maps of depths and normals are drawn.
    pub maps: bool,
    /// True if median depths are drawn.
    pub median: bool,
    /// Colour correction before the comparison with the photograph.
    pub colors: Option<ColorUse>,
    /// Divisor of the sides of the view and its photograph.
    pub divisor: Divisor,
}

impl ViewRequest {
    /// Returns true if a backward pass follows.
    pub fn backward(&self) -> bool {
        self.drawn_for == Use::Backward
    }

    /// Returns the request with the maps that terms need, in place of its own maps.
    pub fn beside(&self, inputs: Inputs) -> Self {
        let Inputs { inverse_depths, inverse_squares, maps, median, .. } = inputs;
        Self { inverse_depths, inverse_squares, maps, median, ..*self }
    }
}
