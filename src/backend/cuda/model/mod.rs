//! Models on the GPU: tables, storage, and transfers to the host.

pub(crate) mod color_cache;
pub(crate) mod lanes;
pub(crate) mod lazy_adam;
pub(crate) mod tables;
pub(crate) mod transfer;
