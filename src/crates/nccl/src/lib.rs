//! NCCL, NVIDIA's library that moves memory between GPUs, loaded at run time.
//!
//! The crate is independent of Gaussians and of CUDA contexts: device addresses are numbers, and a stream is the
//! driver's handle. A process of a group is a *rank*, and the size of the group is its *world*. A program with this
//! crate starts on machines without NCCL, because only [`Library::find`] searches for the library.
//!
//! | type | content |
//! |---|---|
//! | [`Library`] | the library of this machine, its version, and the ids of groups |
//! | [`Communicator`] | the communicator of one rank |
//! | [`NcclError`] | errors of the search and of calls |
//!
//! One rank creates a [`UniqueId`] and sends it to the others. Then all ranks join at once.

mod communicator;
mod library;
mod symbols;
#[cfg(test)]
mod tests;

pub use communicator::{Communicator, Part};
pub use library::{Library, NcclError, Version};
pub use symbols::UniqueId;
