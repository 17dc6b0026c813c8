//! Lane blocks.

/// Rows of a lane block, one for each lane of a warp: tables come in whole ones.
pub const LANES: u32 = 32;
