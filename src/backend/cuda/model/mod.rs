//! Models on the GPU: their tables, both ways to store them, and transfers to the host.

pub(crate) mod catch_up;
pub(crate) mod color_cache;
pub(crate) mod convert;
pub(crate) mod faces;
pub(crate) mod lanes;
pub(crate) mod lazy_adam;
mod lines;
pub(crate) mod pack;
pub(crate) mod tables;
pub(crate) mod transfer;
