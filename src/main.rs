//! The `splat` program.

fn main() {}
