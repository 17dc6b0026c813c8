//! What nvcc made of the kernels.

/// The driver wants images to begin at a multiple of eight bytes, of which 16 is one.
#[repr(align(16))]
struct Aligned<T: ?Sized>(T);

include!(concat!(env!("OUT_DIR"), "/fatbins.rs"));
