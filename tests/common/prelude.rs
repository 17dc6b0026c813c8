//! Imports of nearly every test of a device: its traits, and types that draw and train.
#![allow(unused_imports, reason = "each test program uses its part")]

pub use splat::backend::{
    Appearance as _, Bind as _, Device as _, Edit as _, Faces as _, Filter3d as _, Fuse as _,
    Held as _, Lpips as _, NeighbourLists as _, Neighbours as _, Pending as _, Render as _,
    Store as _, Transmittances as _, Worths as _,
};

pub use super::drawing::{Drawing, Loss, Pass, Seen, Steps};
