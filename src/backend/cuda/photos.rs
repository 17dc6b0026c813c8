//! Photographs on the device, 8 bits a value: resident where the budget allows, else two places that
//! take turns. They travel from page-locked memory on a stream of their own, so that an upload runs
//! beside the computation.

mod compared;
mod place;
mod streamed;

use std::collections::BTreeMap;
use std::rc::Rc;

use self::place::{PhotoPlace, bytes, in_use};
use self::streamed::{HeldPhoto, StreamedPhoto};
use super::memory::heap::{Buffer, Heap, Region, host_len};
use super::session::Session;
use crate::backend::DeviceError;
use crate::dataset::Image;
use crate::layout::{RESIDENT_PHOTOS, fair_share, photo_after};
use crate::memory::Bytes;

pub(super) use self::compared::Photograph;
pub use self::place::Target;

/// Photographs and their places.
pub(super) struct PhotoStore {
    resident: Region<u8>,
    place_from_view: BTreeMap<usize, Rc<PhotoPlace>>,
    /// Bytes of every view's photograph that was sent, resident or not.
    bytes_from_view: BTreeMap<usize, usize>,
    /// Whether there was room the last time.
    has_room: bool,
    turns: [StreamedPhoto; 2],
    /// The turn that is next.
    next: usize,
}

/// How much of what photographs hold is given back where so many bytes are missing: an eighth more than
/// that, since waiting for the device costs more than sending a few photographs anew.
fn enough(missing: Bytes, held: usize) -> usize {
    usize::try_from(missing.0).map_or(held, |missing| missing.saturating_add(held / 8).min(held))
}

/// Whether all photographs together may take `wanted` bytes where they hold some and nobody holds what
/// is left.
fn within_share(wanted: u64, held: u64, left: u64) -> bool {
    wanted <= fair_share(held + left)
}

impl PhotoStore {
    pub(super) fn new(session: &Session) -> Result<Self, DeviceError> {
        let heap = &session.heap;
        Ok(Self {
            resident: heap.region(&RESIDENT_PHOTOS)?,
            place_from_view: BTreeMap::new(),
            bytes_from_view: BTreeMap::new(),
            // Without virtual memory growth would move those that are there.
            has_room: heap.is_virtual(),
            turns: [StreamedPhoto::new(heap)?, StreamedPhoto::new(heap)?],
            next: 0,
        })
    }

    /// The photograph of a view, where it is on the device or on its way there.
    pub(super) fn held(&self, view: usize) -> Option<Target> {
        let in_turn = self.turns.iter().filter_map(|turn| turn.held.as_ref());
        self.place_from_view
            .get(&view)
            .or_else(|| {
                in_turn.filter(|held| held.view == Some(view)).map(|held| &held.place).next()
            })
            .map(|place| Target { place: Rc::clone(place) })
    }

    /// Whether the photograph stays.
    pub(super) fn is_resident(&self, view: usize) -> bool {
        self.place_from_view.contains_key(&view)
    }

    /// Sends the photograph of a view to the device, to stay where there is room.
    pub(super) fn send(
        &mut self,
        session: &Session,
        view: usize,
        image: &Image,
    ) -> Result<Target, DeviceError> {
        if let Some(place) = self.place_from_view.get(&view).filter(|place| place.fits(image)) {
            // Another photograph of the view takes the place of the one before.
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

    /// Sends a photograph to its resident place.
    fn send_to(
        &mut self,
        session: &Session,
        image: &Image,
        place: &PhotoPlace,
    ) -> Result<(), DeviceError> {
        let turn = &mut self.turns[self.next];
        self.next = 1 - self.next;
        let staged = turn.stage(&session.heap, image)?;
        let offset = place.address.get() - self.resident.address();
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        self.resident.upload_pinned(&session.copies, offset, staged, 0..bytes(image))?;
        place.uploaded.record(&session.copies)
    }

    /// Sends a photograph that nobody will ask for again; it takes no place that another could keep.
    pub(super) fn upload_transient(
        &mut self,
        session: &Session,
        image: &Image,
    ) -> Result<Target, DeviceError> {
        self.upload_streamed(session, None, image)
    }

    fn upload_streamed(
        &mut self,
        session: &Session,
        view: Option<usize>,
        image: &Image,
    ) -> Result<Target, DeviceError> {
        if self.turns[self.next].in_use() && !self.turns[1 - self.next].in_use() {
            self.next = 1 - self.next;
        }
        let turn = &mut self.turns[self.next];
        self.next = 1 - self.next;
        if let Some(HeldPhoto { place: before, .. }) = turn.held.take() {
            session.copies.wait(&before.used)?;
        }
        if turn.memory.len() < bytes(image) {
            // Growth may move it where memory cannot be mapped: nothing may be on its way.
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

    /// Whether the resident photographs could be made `len` bytes long, the last of them `last`
    /// bytes.
    fn make_room(&mut self, heap: &Heap, len: usize, last: usize) -> Result<bool, DeviceError> {
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

    /// The turns come first: what is in use moves there when the others leave, and then there is
    /// no memory to be had.
    fn grow(&mut self, len: usize, last: usize) -> Result<(), DeviceError> {
        for turn in &mut self.turns {
            turn.memory.grow(last)?;
        }
        self.resident.grow(len)
    }

    /// Bytes that the resident photographs have taken of the device.
    pub(super) fn resident_bytes(&self) -> Bytes {
        self.resident.mapped()
    }

    /// Bytes of the photographs that were sent and are not resident.
    pub(super) fn absent(&self) -> Bytes {
        let known: usize = self.bytes_from_view.values().sum();
        Bytes(known.saturating_sub(self.resident.len()) as u64)
    }

    /// Whether photographs come in turns because memory is short.
    pub(super) fn is_short_of_room(&self, heap: &Heap) -> bool {
        heap.is_virtual() && !self.has_room
    }

    /// Whether all photographs could be resident, as far as they are known.
    pub(super) fn all_fit(&self, heap: &Heap) -> bool {
        let held = self.resident.capacity() as u64;
        let left = heap.budget().0.saturating_sub(heap.total().0);
        within_share(held + self.absent().0, held, left)
    }

    /// Lets photographs stay again where there is room: those in the places of the turns, too, when
    /// they are sent the next time.
    pub(super) fn allow_resident(&mut self, heap: &Heap) {
        self.has_room = heap.is_virtual();
        for turn in &mut self.turns {
            // Kept until then, since a copy to the place may still be under way.
            turn.held = turn.held.take().map(|held| HeldPhoto { view: None, ..held });
        }
    }

    /// Gives back at least `missing` bytes, if there are as many, of the memory of the resident
    /// photographs, the last first; those come in turns from now on. What somebody is about to read
    /// moves to the place of a turn. Says how much was given back.
    pub(super) fn evict(
        &mut self,
        session: &Session,
        missing: Bytes,
    ) -> Result<Bytes, DeviceError> {
        let held = self.resident.capacity();
        let kept = held.saturating_sub(enough(missing, held));
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
        // The one that comes up first goes last, so that what moves there stays longest.
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

    /// Drops all photographs, which nobody reads any more; those that come are of other sizes.
    pub(super) fn forget_all(&mut self, session: &Session) -> Result<(), DeviceError> {
        session.copies.synchronize()?;
        session.stream.synchronize()?;
        self.place_from_view.clear();
        for turn in &mut self.turns {
            turn.held = None;
        }
        self.resident.shrink(0);
        self.resident.trim()
    }

    /// Copies the resident photograph of a view to the place of a turn.
    fn move_to_turn(
        &mut self,
        session: &Session,
        turn: usize,
        view: usize,
    ) -> Result<(), DeviceError> {
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

    /// Where a resident place lies in the region.
    fn offset(&self, place: &PhotoPlace) -> usize {
        let offset = place.address.get().saturating_sub(self.resident.address());
        usize::try_from(offset).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn photographs_together_leave_half_to_the_model() {
        let (budget, one) = (1000, 30);
        let mut held = 0;
        while within_share(held + one, held, budget - held) {
            held += one;
        }
        assert_eq!(held, 480);
        // The model has grown since: those that are there take more than half.
        assert!(!within_share(held, held, 400));
    }
}
