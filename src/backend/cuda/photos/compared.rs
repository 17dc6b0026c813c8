//! A photograph as a view of its size is compared with it.

use super::place::Target;
use crate::abi::In;
use crate::backend::DeviceError;
use crate::backend::cuda::device::stream::Stream;

/// A photograph on the device, or what was made of it.
#[derive(Clone, Copy)]
pub(in crate::backend::cuda) struct Photograph<'a> {
    /// Width and height in px.
    pub(in crate::backend::cuda) size: [u32; 2],
    /// [h, w, 3]
    pub(in crate::backend::cuda) rgb: In<'a, u8>,
    /// [h, w], or null.
    pub(in crate::backend::cuda) mask: In<'a, u8>,
    /// The map of inverse depths, where there is one: [h, w], with the inverse depth of a step and the
    /// one at 0.
    pub(in crate::backend::cuda) depth: Option<(In<'a, u16>, [f32; 2])>,
    /// The map of normals, where there is one: [h, w, 3], times 127 in camera axes.
    pub(in crate::backend::cuda) normals: Option<In<'a, i8>>,
    /// Whose arrival is to be waited for; nothing of what was made of one that has arrived.
    pub(in crate::backend::cuda) arrives: Option<&'a Target>,
}

impl Photograph<'_> {
    /// Has the stream wait until it is there.
    pub(in crate::backend::cuda) fn wait(&self, stream: &Stream) -> Result<(), DeviceError> {
        self.arrives.map_or(Ok(()), |target| target.wait(stream))
    }

    /// Marks where the stream has read it.
    pub(in crate::backend::cuda) fn used(&self, stream: &Stream) -> Result<(), DeviceError> {
        self.arrives.map_or(Ok(()), |target| target.used(stream))
    }
}

impl Target {
    /// As it is.
    pub(in crate::backend::cuda) fn whole(&self) -> Photograph<'_> {
        Photograph {
            size: self.size(),
            rgb: self.rgb(),
            mask: self.mask(),
            depth: self.depth(),
            normals: self.normals(),
            arrives: Some(self),
        }
    }
}
