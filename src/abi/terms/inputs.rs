//! What the terms of the loss need of a view.

/// What terms need beside the colours that are drawn.
#[expect(clippy::struct_excessive_bools, reason = "a set, of which any may be there")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    /// The inverse depths of the view.
    pub inverse_depths: bool,
    /// The squares of these, blended as they are.
    pub inverse_squares: bool,
    /// The maps of the view's depths and normals.
    pub maps: bool,
    /// The view's median depths.
    pub median: bool,
    /// Another view of the scene with its photograph.
    pub other_view: bool,
    /// The nearest neighbours of all Gaussians.
    pub neighbours: bool,
    /// Samples of the Gaussians that the view sees.
    pub samples: bool,
}

impl Inputs {
    /// Colours alone.
    pub const NONE: Self = Self {
        inverse_depths: false,
        inverse_squares: false,
        maps: false,
        median: false,
        other_view: false,
        neighbours: false,
        samples: false,
    };

    /// What either needs.
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
