//! Inputs of the terms of the loss.

/// Set of inputs of terms besides rendered colours.
#[expect(clippy::struct_excessive_bools, reason = "a set, of which any may be there")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    /// Inverse depths of the view.
    pub inverse_depths: bool,
    /// Blended squared inverse depths.
    pub inverse_squares: bool,
    /// Maps of the view's depths and normals.
    pub maps: bool,
    /// Median depths of the view.
    pub median: bool,
    /// Another view of the scene with its photograph.
    pub other_view: bool,
    /// Nearest neighbours of all Gaussians.
    pub neighbours: bool,
    /// Samples of the visible Gaussians.
    pub samples: bool,
}

impl Inputs {
    /// No inputs besides colours.
    pub const NONE: Self = Self {
        inverse_depths: false,
        inverse_squares: false,
        maps: false,
        median: false,
        other_view: false,
        neighbours: false,
        samples: false,
    };

    /// Returns the union of two sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            inverse_depths: self.inverse_depths || other.inverse_depths,
            inverse_squares: self.inverse_squares || other.inverse_squares,
            maps: self.maps || other.maps,
            median: self.median || other.median,
            other_view: self.other_view || other.other_view,
            neighbours: self.neighbours || other.neighbours,
            samples: self.samples || other.samples,
        }
    }
}
