//! Where a photograph lies on the device, and how.

use std::cell::Cell;
use std::rc::Rc;

use crate::abi::In;
use crate::backend::DeviceError;
use crate::backend::cuda::device::stream::{CudaEvent, Stream};
use crate::dataset::Image;
use crate::layout::ALIGNMENT;

/// Where a photograph lies.
pub(super) struct PhotoPlace {
    /// Changes when the resident photographs leave.
    pub(super) address: Cell<u64>,
    form: PhotoForm,
    /// Inverse depth of a step of the map, and where the map is 0.
    depth_fit: Option<[f32; 2]>,
    size: [u32; 2],
    /// The photograph is there.
    pub(super) uploaded: CudaEvent,
    /// The last computation that reads it is done.
    pub(super) used: CudaEvent,
}

/// How a photograph lies in memory: colours, the mask, the map of inverse depths, and that of normals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PhotoForm {
    rgb_len: usize,
    mask_len: usize,
    /// Values of 16 bits.
    depth_len: usize,
    normals_len: usize,
}

impl PhotoForm {
    pub(super) fn of(image: &Image) -> Self {
        Self {
            rgb_len: image.rgb.len(),
            mask_len: image.mask.as_ref().map_or(0, Vec::len),
            depth_len: image.depth.as_ref().map_or(0, |map| map.values.len()),
            normals_len: image.normals.as_ref().map_or(0, |map| map.values.len()),
        }
    }

    /// Where the map of inverse depths begins: behind colours and mask, and aligned.
    pub(super) fn depth_offset(self) -> usize {
        (self.rgb_len + self.mask_len).next_multiple_of(size_of::<u16>())
    }

    /// Where the map of normals begins: behind all else.
    pub(super) fn normals_offset(self) -> usize {
        match self.depth_len {
            0 => self.rgb_len + self.mask_len,
            len => self.depth_offset() + len * size_of::<u16>(),
        }
    }

    fn bytes(self) -> usize {
        self.normals_offset() + self.normals_len
    }
}

/// A photograph on the device. It stays there as long as the device does not hold another in its
/// place, which is not before two more were asked for.
#[derive(Clone)]
pub struct Target {
    pub(super) place: Rc<PhotoPlace>,
}

impl Target {
    /// A photograph of this size in a dry run, where nobody reads it.
    pub(in crate::backend::cuda) fn dry(
        stream: &Stream,
        size: [u32; 2],
        has_maps: bool,
    ) -> Result<Self, DeviceError> {
        let pixels = size.map(|side| side as usize).iter().product::<usize>();
        let map_len = if has_maps { pixels } else { 0 };
        let form = PhotoForm {
            rgb_len: 3 * pixels,
            mask_len: 0,
            depth_len: map_len,
            normals_len: 3 * map_len,
        };
        let place = PhotoPlace {
            address: Cell::new(ALIGNMENT),
            form,
            depth_fit: has_maps.then_some([1.0, 0.0]),
            size,
            uploaded: stream.event()?,
            used: stream.event()?,
        };
        Ok(Self { place: Rc::new(place) })
    }

    /// Width and height in px.
    pub(in crate::backend::cuda) fn size(&self) -> [u32; 2] {
        self.place.size
    }

    /// [h, w, 3]
    pub(in crate::backend::cuda) fn rgb(&self) -> In<'_, u8> {
        In::at(self.place.address.get())
    }

    /// [h, w], or null.
    pub(in crate::backend::cuda) fn mask(&self) -> In<'_, u8> {
        let form = self.place.form;
        match form.mask_len {
            0 => In::NULL,
            _ => In::at(self.place.address.get() + form.rgb_len as u64),
        }
    }

    /// The map of inverse depths, where there is one: [h, w], with the inverse depth of a step and the
    /// one at 0.
    pub(in crate::backend::cuda) fn depth(&self) -> Option<(In<'_, u16>, [f32; 2])> {
        let first = self.place.address.get() + self.place.form.depth_offset() as u64;
        self.place.depth_fit.map(|fit| (In::at(first), fit))
    }

    /// The map of normals, where there is one: [h, w, 3], times 127 in camera axes.
    pub(in crate::backend::cuda) fn normals(&self) -> Option<In<'_, i8>> {
        let form = self.place.form;
        let first = self.place.address.get() + form.normals_offset() as u64;
        (form.normals_len > 0).then(|| In::at(first))
    }

    /// Has the stream wait until the photograph is there.
    pub(in crate::backend::cuda) fn wait(&self, stream: &Stream) -> Result<(), DeviceError> {
        stream.wait(&self.place.uploaded)
    }

    /// Marks where the stream has read it.
    pub(in crate::backend::cuda) fn used(&self, stream: &Stream) -> Result<(), DeviceError> {
        self.place.used.record(stream)
    }
}

/// Whether there is a [`Target`] of this place; the device's own reference is one.
pub(super) fn in_use(place: &Rc<PhotoPlace>) -> bool {
    Rc::strong_count(place) > 1
}

pub(super) fn bytes(image: &Image) -> usize {
    PhotoForm::of(image).bytes()
}

fn depth_fit(image: &Image) -> Option<[f32; 2]> {
    image.depth.as_ref().map(|map| [map.scale_of_step(), map.offset])
}

impl PhotoPlace {
    /// Whether the photograph has this place's form.
    pub(super) fn fits(&self, image: &Image) -> bool {
        self.size == [image.width, image.height]
            && self.form == PhotoForm::of(image)
            && self.depth_fit == depth_fit(image)
    }

    pub(super) fn bytes(&self) -> usize {
        self.form.bytes()
    }

    pub(super) fn new(stream: &Stream, address: u64, image: &Image) -> Result<Self, DeviceError> {
        Ok(Self {
            address: Cell::new(address),
            form: PhotoForm::of(image),
            depth_fit: depth_fit(image),
            size: [image.width, image.height],
            uploaded: stream.event()?,
            used: stream.event()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_lie_behind_colours_and_mask_and_inverse_depths_aligned() {
        let with = |mask_len, depth_len, normals_len| PhotoForm {
            rgb_len: 45,
            mask_len,
            depth_len,
            normals_len,
        };
        let form = |mask_len, depth_len| with(mask_len, depth_len, 0);
        assert_eq!((form(0, 0).bytes(), form(15, 0).bytes()), (45, 60));
        assert_eq!((form(0, 15).depth_offset(), form(0, 15).bytes()), (46, 76));
        assert_eq!((form(15, 15).depth_offset(), form(15, 15).bytes()), (60, 90));
        for (mask_len, depth_len, first) in [(0, 0, 45), (15, 0, 60), (0, 15, 76), (15, 15, 90)] {
            let form = with(mask_len, depth_len, 45);
            assert_eq!((form.normals_offset(), form.bytes()), (first, first + 45));
        }
    }
}
