//! A place that photographs take in turns.

use std::rc::Rc;

use super::place::{PhotoForm, PhotoPlace, bytes, in_use};
use crate::backend::DeviceError;
use crate::backend::cuda::memory::heap::{Heap, Pinned, Region};
use crate::dataset::Image;
use crate::layout::{PHOTOS_IN_TURN, PHOTOS_ON_THEIR_WAY};

/// A place that photographs take in turns, and the page-locked memory that they come through.
pub(super) struct StreamedPhoto {
    pub(super) memory: Region<u8>,
    pub(super) staging: Option<Pinned<u8>>,
    /// The photograph that is there.
    pub(super) held: Option<HeldPhoto>,
}

/// A photograph in such a place.
pub(super) struct HeldPhoto {
    /// Its view, unless it is there for one look.
    pub(super) view: Option<usize>,
    pub(super) place: Rc<PhotoPlace>,
}

impl StreamedPhoto {
    pub(super) fn new(heap: &Heap) -> Result<Self, DeviceError> {
        Ok(Self { memory: heap.region(&PHOTOS_IN_TURN)?, staging: None, held: None })
    }

    /// Whether somebody is about to read what is there.
    pub(super) fn in_use(&self) -> bool {
        self.held.as_ref().is_some_and(|held| in_use(&held.place))
    }

    /// Page-locked memory with the photograph in it, once the one before has left.
    pub(super) fn stage(&mut self, heap: &Heap, image: &Image) -> Result<&Pinned<u8>, DeviceError> {
        let len = bytes(image);
        let staging = match self.staging.take() {
            Some(staging) if staging.len() >= len => staging,
            _ => heap.pinned(&PHOTOS_ON_THEIR_WAY, &(len as u64))?,
        };
        let staging = self.staging.insert(staging);
        let (rgb, rest) = staging.as_mut_slice()?.split_at_mut(image.rgb.len());
        rgb.copy_from_slice(&image.rgb);
        if let Some(mask) = &image.mask {
            rest[..mask.len()].copy_from_slice(mask);
        }
        if let Some(map) = &image.depth {
            let first = PhotoForm::of(image).depth_offset() - image.rgb.len();
            let values: &[u8] = bytemuck::cast_slice(&map.values);
            rest[first..first + values.len()].copy_from_slice(values);
        }
        if let Some(map) = &image.normals {
            let first = PhotoForm::of(image).normals_offset() - image.rgb.len();
            let values: &[u8] = bytemuck::cast_slice(&map.values);
            rest[first..first + values.len()].copy_from_slice(values);
        }
        Ok(staging)
    }
}
