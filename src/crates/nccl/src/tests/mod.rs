//! What holds without a GPU, and for the most part without NCCL.

mod calls;
mod fake;
mod finding;
mod layout;
mod loading;
