//! What nvcc made of the kernels; nothing in a program without.

#[cfg(kernels)]
mod built {
    /// The driver wants images to begin at a multiple of eight bytes, of which 16 is one.
    #[repr(align(16))]
    struct Aligned<T: ?Sized>(T);

    include!(concat!(env!("OUT_DIR"), "/fatbins.rs"));
}

#[cfg(kernels)]
pub(super) use built::FATBINS;
#[cfg(kernels)]
pub(in crate::backend) use built::{ARCHS, NVCC};

#[cfg(not(kernels))]
pub(super) const ARCHS: &[u32] = &[];
#[cfg(not(kernels))]
pub(super) const FATBINS: &[(&str, &[u8])] = &[];
