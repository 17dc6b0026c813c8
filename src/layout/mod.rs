//! Device memory, described once: what a plan without a GPU and the code that takes memory share.

pub mod library;

pub use library::Library;
