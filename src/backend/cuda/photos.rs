//! Photographs on the device, 8 bits a value: resident if the budget allows, else in two slots that take turns.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::device::stream::{CudaEvent, Stream};
use super::memory::heap::{Buffer, Heap, Pinned, Region, host_len};
use super::session::Session;
use crate::abi::In;
use crate::backend::{DeviceError, Result};
use crate::dataset::Image;
use crate::layout::{
    ALIGNMENT, PHOTOS_IN_TURN, PHOTOS_ON_THEIR_WAY, RESIDENT_PHOTOS, fair_share, photo_after,
};
use crate::memory::Bytes;

pub(super) struct PhotoStore {
    resident: Region<u8>,
    place_from_view: BTreeMap<usize, Rc<PhotoPlace>>,
    /// Size in bytes of every view's photograph, resident or not.
    bytes_from_view: BTreeMap<usize, usize>,
    /// True if there was memory for the last photograph.
    has_room: bool,
    turns: [StreamedPhoto; 2],
    next: usize,
}

/// Returns how many bytes to evict: an eighth of `held` more than `missing`, because waiting is slow.
fn bytes_to_evict(missing: Bytes, held: usize) -> usize {
    usize::try_from(missing.0).map_or(held, |missing| missing.saturating_add(held / 8).min(held))
}

/// True if all photographs together may take `wanted` bytes, with `left` bytes free.
fn within_share(wanted: u64, held: u64, left: u64) -> bool {
    wanted <= fair_share(held + left)
}

/// Fails if a photograph does not have the size of its view.
pub(super) fn check_size(target_px: [u32; 2], view_px: [u32; 2]) -> Result {
    if target_px == view_px { Ok(()) } else { Err(DeviceError::TargetSize { target_px, view_px }) }
}

impl PhotoStore {
    pub(super) fn new(session: &Session) -> Result<Self> {
        let heap = &session.heap;
        Ok(Self {
            resident: heap.region(&RESIDENT_PHOTOS)?,
            place_from_view: BTreeMap::new(),
            bytes_from_view: BTreeMap::new(),
            // Without virtual memory, growth would move the resident photographs.
            has_room: heap.is_virtual(),
            turns: [StreamedPhoto::new(heap)?, StreamedPhoto::new(heap)?],
            next: 0,
        })
    }

    /// Returns the photograph of a view if it is on the device or on its way.
    pub(super) fn held(&self, view: usize) -> Option<Target> {
        let in_turn = self.turns.iter().filter_map(|turn| turn.held.as_ref());
        self.place_from_view
            .get(&view)
            .or_else(|| {
                in_turn.filter(|held| held.view == Some(view)).map(|held| &held.place).next()
            })
            .map(|place| Target { place: Rc::clone(place) })
    }

    pub(super) fn is_resident(&self, view: usize) -> bool {
        self.place_from_view.contains_key(&view)
    }

    /// Uploads the photograph of a view, resident if there is room.
    pub(super) fn send(&mut self, session: &Session, view: usize, image: &Image) -> Result<Target> {
        if let Some(place) = self.place_from_view.get(&view).filter(|place| place.fits(image)) {
            // A new photograph of the view replaces the old one in place.
            let place = Rc::clone(place);
            session.copies.wait(&place.used)?;
            self.send_to(session, image, &place)?;
            return Ok(Target { place });
        }
        self.bytes_from_view.insert(view, host_len(photo_after(bytes(image) as u64)));
        let offset = host_len(photo_after(self.resident.len() as u64));
        if !self.make_room(&session.heap, offset + bytes(image), bytes(image))? {
            return self.upload_streamed(session, Some(view), image);
        }
        let place = Rc::new(PhotoPlace::new(
            &session.copies,
            self.resident.address() + offset as u64,
            image,
        )?);
        self.send_to(session, image, &place)?;
        self.place_from_view.insert(view, Rc::clone(&place));
        Ok(Target { place })
    }

    fn send_to(&mut self, session: &Session, image: &Image, place: &PhotoPlace) -> Result {
        let turn = &mut self.turns[self.next];
        self.next = 1 - self.next;
        let staged = turn.stage(&session.heap, image)?;
        let offset = place.address.get() - self.resident.address();
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        self.resident.upload_pinned(&session.copies, offset, staged, 0..bytes(image))?;
        place.uploaded.record(&session.copies)
    }

    /// Uploads a photograph to a turn; without a view it is used once.
    pub(super) fn upload_streamed(
        &mut self,
        session: &Session,
        view: Option<usize>,
        image: &Image,
    ) -> Result<Target> {
        if self.turns[self.next].in_use() && !self.turns[1 - self.next].in_use() {
            self.next = 1 - self.next;
        }
        let turn = &mut self.turns[self.next];
        self.next = 1 - self.next;
        if let Some(HeldPhoto { place: before, .. }) = turn.held.take() {
            session.copies.wait(&before.used)?;
        }
        if turn.memory.len() < bytes(image) {
            // Without virtual memory, growth may move the slot: no copy may be under way.
            session.copies.synchronize()?;
            let missing = bytes(image).saturating_sub(turn.memory.capacity());
            session.heap.make_room(session.heap.granule() + Bytes(missing as u64))?;
            turn.memory.grow(bytes(image))?;
        }
        let place = PhotoPlace::new(&session.copies, turn.memory.address(), image)?;
        turn.stage(&session.heap, image)?;
        if let Some(staged) = &turn.staging {
            turn.memory.upload_pinned(&session.copies, 0, staged, 0..bytes(image))?;
        }
        place.uploaded.record(&session.copies)?;
        let place = Rc::new(place);
        turn.held = Some(HeldPhoto { view, place: Rc::clone(&place) });
        Ok(Target { place })
    }

    /// Grows the resident memory to `len` bytes if there is room. The last photograph has `last` bytes.
    fn make_room(&mut self, heap: &Heap, len: usize, last: usize) -> Result<bool> {
        let held = self.resident.capacity();
        let in_turns: usize =
            self.turns.iter().map(|turn| last.saturating_sub(turn.memory.capacity())).sum();
        let left = heap.budget().0.saturating_sub(heap.total().0);
        let left = left.saturating_sub(in_turns as u64);
        if !self.has_room || !within_share(len.max(held) as u64, held as u64, left) {
            self.has_room = false;
            return Ok(false);
        }
        match self.grow(len, last) {
            Ok(()) => Ok(true),
            Err(DeviceError::Refused(_) | DeviceError::OutOfMemory { .. }) => {
                self.has_room = false;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Grows the turns first: evicted photographs in use move there, when no more memory can be had.
    fn grow(&mut self, len: usize, last: usize) -> Result {
        for turn in &mut self.turns {
            turn.memory.grow(last)?;
        }
        self.resident.grow(len)
    }

    pub(super) fn resident_bytes(&self) -> Bytes {
        self.resident.mapped()
    }

    /// Returns the bytes of the known photographs that are not resident.
    pub(super) fn absent(&self) -> Bytes {
        let known: usize = self.bytes_from_view.values().sum();
        Bytes(known.saturating_sub(self.resident.len()) as u64)
    }

    /// True if photographs are streamed because memory is short.
    pub(super) fn is_short_of_room(&self, heap: &Heap) -> bool {
        heap.is_virtual() && !self.has_room
    }

    /// True if all known photographs could be resident.
    pub(super) fn all_fit(&self, heap: &Heap) -> bool {
        let held = self.resident.capacity() as u64;
        let left = heap.budget().0.saturating_sub(heap.total().0);
        within_share(held + self.absent().0, held, left)
    }

    /// Allows resident photographs again. Streamed ones become resident with their next upload.
    pub(super) fn allow_resident(&mut self, heap: &Heap) {
        self.has_room = heap.is_virtual();
        for turn in &mut self.turns {
            // Kept until the next upload, because a copy to the slot may be under way.
            turn.held = turn.held.take().map(|held| HeldPhoto { view: None, ..held });
        }
    }

    /// Evicts at least `missing` bytes of resident photographs if possible, the last first. Returns the bytes freed.
    pub(super) fn evict(&mut self, session: &Session, missing: Bytes) -> Result<Bytes> {
        let held = self.resident.capacity();
        let kept = held.saturating_sub(bytes_to_evict(missing, held));
        let placed = self.place_from_view.iter();
        let mut leaving: Vec<(usize, usize)> = placed
            .filter(|(_, place)| self.offset(place) + place.bytes() > kept)
            .map(|(&view, place)| (self.offset(place), view))
            .collect();
        leaving.sort_unstable();
        let used: Vec<usize> = leaving
            .iter()
            .map(|&(_, view)| view)
            .filter(|view| self.place_from_view.get(view).is_some_and(in_use))
            .collect();
        let mut free: Vec<usize> = (0..2).filter(|&turn| !self.turns[turn].in_use()).collect();
        let Some(&(first, _)) = leaving.first() else { return Ok(Bytes(0)) };
        if used.len() > free.len() {
            return Ok(Bytes(0));
        }
        self.has_room = false;
        session.copies.synchronize()?;
        session.stream.synchronize()?;
        // The turn that is used next comes last, so that its photograph stays longest.
        free.sort_by_key(|&turn| turn == self.next);
        for (&turn, view) in free.iter().zip(used) {
            self.move_to_turn(session, turn, view)?;
        }
        session.stream.synchronize()?;
        for (_, view) in leaving {
            self.place_from_view.remove(&view);
        }
        self.resident.shrink(first);
        self.resident.trim()?;
        Ok(Bytes((held - self.resident.capacity()) as u64))
    }

    /// Drops all photographs before photographs of other sizes come. None may be in use.
    pub(super) fn forget_all(&mut self, session: &Session) -> Result {
        session.copies.synchronize()?;
        session.stream.synchronize()?;
        self.place_from_view.clear();
        for turn in &mut self.turns {
            turn.held = None;
        }
        self.resident.shrink(0);
        self.resident.trim()
    }

    fn move_to_turn(&mut self, session: &Session, turn: usize, view: usize) -> Result {
        let Some(place) = self.place_from_view.get(&view).map(Rc::clone) else { return Ok(()) };
        let first = self.offset(&place);
        let taken = &mut self.turns[turn];
        taken.memory.grow(place.bytes())?;
        let range = first..first.saturating_add(place.bytes());
        taken.memory.copy_from(&session.stream, 0, &self.resident, range)?;
        place.address.set(taken.memory.address());
        taken.held = Some(HeldPhoto { view: Some(view), place });
        Ok(())
    }

    fn offset(&self, place: &PhotoPlace) -> usize {
        let offset = place.address.get().saturating_sub(self.resident.address());
        usize::try_from(offset).unwrap_or(usize::MAX)
    }
}

/// The images of a photograph on the device, original or shrunken.
#[derive(Clone, Copy)]
pub(super) struct Photograph<'a> {
    /// Width and height in px.
    pub(super) size: [u32; 2],
    /// [h, w, 3]
    pub(super) rgb: In<'a, u8>,
    /// [h, w], or null.
    pub(super) mask: In<'a, u8>,
    /// Map of inverse depths, [h, w], with the inverse depth of a step and the one at 0.
    pub(super) depth: Option<(In<'a, u16>, [f32; 2])>,
    /// Map of normals in camera axes, times 127, [h, w, 3].
    pub(super) normals: Option<In<'a, i8>>,
    /// Photograph to wait for; `None` for images made of one that has arrived.
    pub(super) arrives: Option<&'a Target>,
}

impl Photograph<'_> {
    pub(super) fn wait(&self, stream: &Stream) -> Result {
        self.arrives.map_or(Ok(()), |target| target.wait(stream))
    }

    pub(super) fn used(&self, stream: &Stream) -> Result {
        self.arrives.map_or(Ok(()), |target| target.used(stream))
    }
}

struct PhotoPlace {
    /// Changes when the photograph is evicted.
    address: Cell<u64>,
    form: PhotoForm,
    /// Inverse depth of a step of the map, and inverse depth at 0.
    depth_fit: Option<[f32; 2]>,
    size: [u32; 2],
    /// Event behind the upload.
    uploaded: CudaEvent,
    /// Event behind the last computation that reads it.
    used: CudaEvent,
}

/// The parts of a photograph in memory: colours, mask, inverse depths, normals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PhotoForm {
    rgb_len: usize,
    mask_len: usize,
    /// Number of 16-bit values.
    depth_len: usize,
    normals_len: usize,
}

impl PhotoForm {
    fn of(image: &Image) -> Self {
        Self {
            rgb_len: image.rgb.len(),
            mask_len: image.mask.as_ref().map_or(0, Vec::len),
            depth_len: image.depth.as_ref().map_or(0, |map| map.values.len()),
            normals_len: image.normals.as_ref().map_or(0, |map| map.values.len()),
        }
    }

    /// Returns the offset of the inverse depths, aligned, behind colours and mask.
    fn depth_offset(self) -> usize {
        (self.rgb_len + self.mask_len).next_multiple_of(size_of::<u16>())
    }

    /// Returns the offset of the normals, behind all else.
    fn normals_offset(self) -> usize {
        match self.depth_len {
            0 => self.rgb_len + self.mask_len,
            len => self.depth_offset() + len * size_of::<u16>(),
        }
    }

    fn bytes(self) -> usize {
        self.normals_offset() + self.normals_len
    }
}

/// A photograph on the device. It stays valid until two more streamed photographs were requested.
#[derive(Clone)]
pub struct Target {
    place: Rc<PhotoPlace>,
}

impl Target {
    /// Returns the photograph at its full size.
    pub(super) fn whole(&self) -> Photograph<'_> {
        Photograph {
            size: self.size(),
            rgb: self.rgb(),
            mask: self.mask(),
            depth: self.depth(),
            normals: self.normals(),
            arrives: Some(self),
        }
    }

    /// Creates a photograph without content, for a dry run.
    pub(super) fn dry(stream: &Stream, size: [u32; 2], has_maps: bool) -> Result<Self> {
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

    /// Returns width and height in px.
    pub(super) fn size(&self) -> [u32; 2] {
        self.place.size
    }

    /// Returns the colours, [h, w, 3].
    pub(super) fn rgb(&self) -> In<'_, u8> {
        In::at(self.place.address.get())
    }

    /// Returns the mask, [h, w], or null.
    pub(super) fn mask(&self) -> In<'_, u8> {
        let form = self.place.form;
        match form.mask_len {
            0 => In::NULL,
            _ => In::at(self.place.address.get() + form.rgb_len as u64),
        }
    }

    /// Returns the map of inverse depths, [h, w], with the inverse depth of a step and the one at 0.
    pub(super) fn depth(&self) -> Option<(In<'_, u16>, [f32; 2])> {
        let first = self.place.address.get() + self.place.form.depth_offset() as u64;
        self.place.depth_fit.map(|fit| (In::at(first), fit))
    }

    /// Returns the map of normals in camera axes, times 127, [h, w, 3].
    pub(super) fn normals(&self) -> Option<In<'_, i8>> {
        let form = self.place.form;
        let first = self.place.address.get() + form.normals_offset() as u64;
        (form.normals_len > 0).then(|| In::at(first))
    }

    pub(super) fn wait(&self, stream: &Stream) -> Result {
        stream.wait(&self.place.uploaded)
    }

    pub(super) fn used(&self, stream: &Stream) -> Result {
        self.place.used.record(stream)
    }
}

/// True if there is a [`Target`] of this place beside the store's own reference.
fn in_use(place: &Rc<PhotoPlace>) -> bool {
    Rc::strong_count(place) > 1
}

fn bytes(image: &Image) -> usize {
    PhotoForm::of(image).bytes()
}

fn depth_fit(image: &Image) -> Option<[f32; 2]> {
    image.depth.as_ref().map(|map| [map.scale_of_step(), map.offset])
}

impl PhotoPlace {
    fn fits(&self, image: &Image) -> bool {
        self.size == [image.width, image.height]
            && self.form == PhotoForm::of(image)
            && self.depth_fit == depth_fit(image)
    }

    fn bytes(&self) -> usize {
        self.form.bytes()
    }

    fn new(stream: &Stream, address: u64, image: &Image) -> Result<Self> {
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

/// A slot for streamed photographs, and its page-locked memory.
struct StreamedPhoto {
    memory: Region<u8>,
    staging: Option<Pinned<u8>>,
    held: Option<HeldPhoto>,
}

struct HeldPhoto {
    /// Index of the view; `None` for a transient photograph.
    view: Option<usize>,
    place: Rc<PhotoPlace>,
}

impl StreamedPhoto {
    fn new(heap: &Heap) -> Result<Self> {
        Ok(Self { memory: heap.region(&PHOTOS_IN_TURN)?, staging: None, held: None })
    }

    /// True if a [`Target`] of the photograph exists.
    fn in_use(&self) -> bool {
        self.held.as_ref().is_some_and(|held| in_use(&held.place))
    }

    /// Returns page-locked memory with the photograph, after the copy of the one before.
    fn stage(&mut self, heap: &Heap, image: &Image) -> Result<&Pinned<u8>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn photographs_take_at_most_half() {
        let (budget, one) = (1000, 30);
        let mut held = 0;
        while within_share(held + one, held, budget - held) {
            held += one;
        }
        assert_eq!(held, 480);
        // The model has grown since, so the photographs exceed their share.
        assert!(!within_share(held, held, 400));
    }

    #[test]
    fn maps_follow_colours_and_mask() {
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
