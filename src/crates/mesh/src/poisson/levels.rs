//! The levels of the equations.

/// Levels by which the domain of the equations is larger than the cube of the surface: twice as wide.
///
/// At the domain's border the function is free (Neumann's condition), so that neither side of the
/// surface is taken for the outside. Were the border as near as the cube's, an open surface would be
/// drawn to it, where it is next, and not close.
pub(super) const WIDER: u32 = 1;

/// The coarsest level of the domain, which is solved everywhere.
pub(super) const COARSEST: u32 = SHALLOWEST + WIDER;

/// The least depth that is offered.
pub const SHALLOWEST: u32 = 4;

/// The largest depth that is offered.
pub const DEEPEST: u32 = 16;
