//! NCCL, NVIDIA's library that moves memory between GPUs, loaded at run time.
//!
//! Knows nothing of Gaussians, nor of CUDA's contexts: addresses of the device are numbers, and a stream is
//! the driver's handle. A process of a group is a *rank*; the group's size is its *world*. A program with
//! this crate starts on machines without NCCL: the library is looked for when [`Library::find`] is called.
//!
//! | part | what it is |
//! |---|---|
//! | [`Library`] | the library of this machine, its version, and the ids of groups |
//! | [`Communicator`] | one rank's part of a group |
//! | [`NcclError`] | why something is not there or has failed |
//!
//! One rank makes a [`UniqueId`] and gives it to the others by any means. Then all ranks join at once.

mod communicator;
mod library;
mod symbols;
#[cfg(test)]
mod tests;

pub use communicator::{Communicator, Part};
pub use library::{Library, NcclError, Version};
pub use symbols::UniqueId;
