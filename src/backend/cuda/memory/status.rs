//! Words that kernels report in, the lengths of neighbour lists, and the size of training views.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use super::heap::{Buffer, Heap, Pinned, Region};
use crate::abi::terms::{TERM_SUMS, VALUE_DENSITY, VALUE_ENTROPY, VALUE_NORMAL, VALUE_SDF};
use crate::abi::{Counts, FAULT_GROUPS, Out, SurfaceSums};
use crate::backend::cuda::device::stream::Stream;
use crate::backend::{DeviceError, MOST_NEIGHBOURS, Result};
use crate::layout::{self, GAUSSIANS, REPORTS, STATUS, Schema};
use crate::memory::plan::{FEWER_NEIGHBOURS, neighbour_lists};
use crate::memory::{Bytes, Gain, TrainingScale};

/// Words of [`Counts`]: instances, visible.
const COUNTS: Range<usize> = 0..2;

/// Word of the first fault, next to the sums so that one copy fetches both.
const FAULT: usize = 2;

/// Words of the sums of the terms.
const SUMS: Range<usize> = FAULT + 1..FAULT + 1 + TERM_SUMS as usize;

const REPORT: Range<usize> = FAULT..SUMS.end;

const WORDS: usize = SUMS.end;

const WORD: u64 = 8;

const _: () = assert!(size_of::<Counts>() == 2 * size_of::<u64>(), "words of the counts");

const _: () = assert!(size_of::<SurfaceSums>() == 4 * size_of::<u64>(), "words of surfaces");

const _: () = {
    let first = VALUE_ENTROPY;
    let next = [first + 1, first + 2, first + 3];
    assert!(next[0] == VALUE_DENSITY && next[1] == VALUE_SDF && next[2] == VALUE_NORMAL, "order");
};

const NO_FAULT: u64 = u64::MAX;

/// The words that kernels report in.
pub(crate) struct Status {
    words: Region<u64>,
    counts: Pinned<u64>,
    /// Host buffers of reports, for reuse.
    places: ReportBuffers,
    /// Schema of the model whose kernels reported last, for messages about faults.
    schema: &'static Schema,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SplatCounts {
    /// Number of pairs of a splat and a tile.
    pub(crate) instances: u64,
    pub(crate) visible: usize,
}

type ReportBuffers = Rc<RefCell<Vec<Pinned<u64>>>>;

/// A report on its way to the host.
pub(crate) struct StatusReport {
    /// `Some` until the buffer is returned for reuse.
    place: Option<Pinned<u64>>,
    places: ReportBuffers,
    schema: &'static Schema,
}

impl Status {
    pub(crate) fn new(heap: &Heap, stream: &Stream) -> Result<Self> {
        let mut words = heap.region(&STATUS)?;
        words.grow(WORDS)?;
        let mut at_first = [0; WORDS];
        at_first[FAULT] = NO_FAULT;
        words.upload(stream, 0, &at_first)?;
        let counts = heap.pinned(&layout::COUNTS, &(COUNTS.len() as u64))?;
        Ok(Self { words, counts, places: ReportBuffers::default(), schema: &GAUSSIANS })
    }

    pub(crate) fn clear_counts(&mut self, stream: &Stream) -> Result {
        self.words.zero_range(stream, COUNTS)
    }

    /// Returns pointers to the counts and the fault, for a projection.
    pub(crate) fn counts_and_fault(
        &mut self,
        schema: &'static Schema,
    ) -> (Out<'_, Counts>, Out<'_, u64>) {
        self.schema = schema;
        let [counts, fault] =
            [COUNTS.start, FAULT].map(|word| self.words.address() + word as u64 * WORD);
        (Out::at(counts), Out::at(fault))
    }

    /// Returns the counts of the projection. Waits for the device.
    pub(crate) fn read_counts(&mut self, stream: &Stream) -> Result<SplatCounts> {
        self.words.download_pinned(stream, COUNTS, &mut self.counts)?;
        let words = self.counts.as_slice()?;
        // The upper half of the second word has no meaning.
        let visible = usize::try_from(words[1] & u64::from(u32::MAX)).unwrap_or(usize::MAX);
        Ok(SplatCounts { instances: words[0], visible })
    }

    pub(crate) fn clear_sums(&mut self, stream: &Stream) -> Result {
        self.words.zero_range(stream, SUMS)
    }

    /// Returns a pointer to all sums, `[TERM_SUMS]`.
    pub(crate) fn sums(&mut self) -> Out<'_, f64> {
        self.sum(0)
    }

    pub(crate) fn sum(&mut self, place: u32) -> Out<'_, f64> {
        Out::at(self.words.address() + (SUMS.start as u64 + u64::from(place)) * WORD)
    }

    /// Returns a pointer to the sums of the sampled terms.
    pub(crate) fn surface(&mut self) -> Out<'_, SurfaceSums> {
        Out::at(self.sum(VALUE_ENTROPY).address())
    }

    /// Returns a pointer to the fault, for a step.
    pub(crate) fn fault(&mut self, schema: &'static Schema) -> Out<'_, u64> {
        self.schema = schema;
        Out::at(self.words.address() + FAULT as u64 * WORD)
    }

    /// Clears a fault of a model that is replaced. Waits for the device.
    pub(crate) fn clear_fault(&mut self, stream: &Stream) -> Result {
        self.words.upload(stream, FAULT, &[NO_FAULT])
    }

    /// Starts to copy sums and fault to the host, behind the queued work.
    pub(crate) fn report(&mut self, heap: &Heap, stream: &Stream) -> Result<StatusReport> {
        let free = self.places.borrow_mut().pop();
        let mut place = match free {
            Some(place) => place,
            None => heap.pinned(&REPORTS, &(REPORT.len() as u64))?,
        };
        self.words.download_pinned(stream, REPORT, &mut place)?;
        let places = Rc::clone(&self.places);
        Ok(StatusReport { place: Some(place), places, schema: self.schema })
    }
}

impl StatusReport {
    pub(crate) fn is_ready(&self) -> bool {
        // An error shows when the report is read.
        self.place.as_ref().is_none_or(|place| place.is_ready().unwrap_or(true))
    }

    /// Waits for the sums. Fails if a parameter is not finite.
    pub(crate) fn read(&self) -> Result<[f64; TERM_SUMS as usize]> {
        let words = self.place.as_ref().map_or(Ok(&[][..]), Pinned::as_slice)?;
        let mut sums = [0.0; TERM_SUMS as usize];
        if let Some((&fault, words)) = words.split_first() {
            check(fault, self.schema)?;
            sums.iter_mut().zip(words).for_each(|(sum, &word)| *sum = f64::from_bits(word));
        }
        Ok(sums)
    }
}

impl Drop for StatusReport {
    fn drop(&mut self) {
        self.places.borrow_mut().extend(self.place.take());
    }
}

/// Decodes a fault: 2 (index [`FAULT_GROUPS`] + column), plus 1 for an infinity.
fn check(fault: u64, schema: &Schema) -> Result {
    if fault == NO_FAULT {
        return Ok(());
    }
    let (place, value) =
        (fault / 2, if fault.is_multiple_of(2) { f64::NAN } else { f64::INFINITY });
    let group = usize::try_from(place % u64::from(FAULT_GROUPS)).unwrap_or(0);
    let index = usize::try_from(place / u64::from(FAULT_GROUPS)).unwrap_or(usize::MAX);
    let group = schema.columns.get(group).map_or("parameter", |column| column.words);
    Err(DeviceError::NotFinite { primitive: schema.one(), index, group, value })
}

/// Size of neighbour lists: `count` neighbours for each of `gaussians` Gaussians.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ListSize {
    count: u32,
    gaussians: u64,
}

impl ListSize {
    fn bytes(self, count: u32) -> u64 {
        neighbour_lists(self.gaussians, count).bytes.0
    }
}

/// The requested and the allowed length of neighbour lists. The trainer drops lists that are too long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListRoom {
    most: u32,
    /// Length of the longest lists requested so far.
    longest: u32,
    /// Size of the lists requested last.
    requested: Option<ListSize>,
    /// True if the lists requested last did not fit in memory.
    refused: bool,
}

impl Default for ListRoom {
    fn default() -> Self {
        Self { most: MOST_NEIGHBOURS, longest: 0, requested: None, refused: false }
    }
}

impl ListRoom {
    pub(crate) fn most(&self) -> u32 {
        self.most
    }

    /// Records a request for lists; `refused` if they did not fit in memory.
    pub(crate) fn asked_for(&mut self, count: u32, gaussians: usize, refused: bool) {
        self.longest = self.longest.max(count);
        self.requested = Some(ListSize { count, gaussians: gaussians as u64 });
        self.refused = refused;
    }

    /// Shortens the lists from the next search on. `held` is the size of the present lists.
    pub(crate) fn shorten(&mut self, held: Bytes) -> Gain {
        let Some(lists) = self.requested.filter(|_| self.refused || held > Bytes(0)) else {
            return Gain::Nothing;
        };
        if lists.count > self.most {
            return Gain::Promised(Bytes(0));
        }
        let Some(fewer) = FEWER_NEIGHBOURS.into_iter().find(|&fewer| fewer < lists.count) else {
            return Gain::Nothing;
        };
        self.most = fewer;
        Gain::Promised(Bytes(lists.bytes(lists.count) - lists.bytes(fewer)))
    }

    /// True if the present or the refused lists are longer than allowed.
    pub(crate) fn is_waiting(&self) -> bool {
        self.requested.is_some_and(|lists| lists.count > self.most)
    }

    /// Returns the bytes of the longest lists beyond the present ones.
    pub(crate) fn missing(&self) -> Bytes {
        let more = |lists: ListSize| {
            lists.bytes(self.longest).saturating_sub(lists.bytes(lists.count.min(self.most)))
        };
        Bytes(self.requested.map_or(0, more))
    }

    pub(crate) fn gaussians(&self) -> u64 {
        self.requested.map_or(0, |lists| lists.gaussians)
    }

    pub(crate) fn lengthen(&mut self) {
        self.most = MOST_NEIGHBOURS;
    }
}

/// Minimum bytes per pixel of a training view: its colours, their gradient, and the state of the blending.
const PIXEL_BYTES: u64 = 24;

/// The present and the allowed size of training views. The trainer draws the views and follows the allowed size.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TrainingViewSize {
    /// Scale that memory allows.
    allowed: TrainingScale,
    /// Scale that views are drawn at.
    used: TrainingScale,
    /// Number of pixels of the largest view, as drawn.
    pixels: u64,
    /// True if memory was short for the last view.
    refused: bool,
}

impl TrainingViewSize {
    pub(crate) fn allowed(&self) -> TrainingScale {
        self.allowed
    }

    /// Sets the scale that views are drawn and allowed at.
    pub(crate) fn use_scale(&mut self, scale: TrainingScale) {
        *self = Self { allowed: scale, used: scale, pixels: 0, refused: false };
    }

    /// Records a training view; `refused` if its step did not fit in memory.
    pub(crate) fn drawn(&mut self, px: [u32; 2], refused: bool) {
        self.pixels = self.pixels.max(px.map(u64::from).iter().product());
        self.refused = refused;
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.refused
    }

    /// True if views are still drawn larger than allowed.
    pub(crate) fn is_waiting(&self) -> bool {
        self.allowed.is_below(self.used)
    }

    /// Makes views smaller from the next step on.
    pub(crate) fn lower(&mut self) -> Gain {
        if self.is_waiting() {
            return Gain::Promised(Bytes(0));
        }
        let Some(smaller) = self.allowed.smaller().filter(|_| self.pixels > 0) else {
            return Gain::Nothing;
        };
        let ratio = smaller.factor() / self.allowed.factor();
        let gained = share(Bytes(PIXEL_BYTES * self.pixels), 1.0 - ratio * ratio);
        self.allowed = smaller;
        Gain::Promised(gained)
    }

    /// Returns an upper bound of the bytes that full-size views take beyond `taken`; `None` at full size.
    pub(crate) fn missing(&self, taken: Bytes) -> Option<Bytes> {
        let factor = self.allowed.factor();
        let more = 1.0 / (factor * factor) - 1.0;
        (self.allowed != TrainingScale::FULL).then(|| share(taken, more))
    }

    pub(crate) fn restore(&mut self) {
        self.allowed = TrainingScale::FULL;
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes of a device's memory, not below 0"
)]
fn share(bytes: Bytes, share: f64) -> Bytes {
    Bytes((bytes.0 as f64 * share).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_names_the_gaussian_the_group_and_the_kind_of_value() {
        assert!(check(NO_FAULT, &GAUSSIANS).is_ok());
        let fault = (1021 * u64::from(FAULT_GROUPS) + 3) * 2 + 1;
        let found = check(fault, &GAUSSIANS).unwrap_err().to_string();
        assert!(
            found.starts_with("Gaussian 1021: its opacity, or a moment of it, is inf"),
            "{found}"
        );
    }

    const HELD: Bytes = Bytes(1);

    #[test]
    fn lists_shorten_step_by_step() {
        let mut room = ListRoom::default();
        assert_eq!((room.most(), room.shorten(Bytes(0))), (MOST_NEIGHBOURS, Gain::Nothing));
        room.asked_for(16, 1000, false);
        assert_eq!(room.shorten(HELD), Gain::Promised(Bytes(4 * 4 * 1000)));
        // Nothing more is given up until the trainer has dropped the old lists.
        assert_eq!((room.shorten(HELD), room.most()), (Gain::Promised(Bytes(0)), 12));
        assert!(room.is_waiting());
        room.asked_for(12, 1000, false);
        assert!(!room.is_waiting());
        assert_eq!((room.shorten(HELD), room.most()), (Gain::Promised(Bytes(8000)), 10));
        room.asked_for(10, 1000, false);
        assert_eq!((room.shorten(HELD), room.most()), (Gain::Nothing, 10));
        assert_eq!(room.missing(), Bytes(6 * 4 * 1000));
        room.lengthen();
        assert_eq!((room.most(), room.missing()), (MOST_NEIGHBOURS, Bytes(6 * 4 * 1000)));
    }

    #[test]
    fn only_held_or_refused_lists_free_memory() {
        let mut room = ListRoom::default();
        room.asked_for(32, 1000, false);
        assert_eq!((room.shorten(Bytes(0)), room.most()), (Gain::Nothing, MOST_NEIGHBOURS));
        room.asked_for(32, 1000, true);
        assert_eq!((room.shorten(Bytes(0)), room.most()), (Gain::Promised(Bytes(80_000)), 12));
        room.asked_for(12, 1000, true);
        assert_eq!((room.shorten(Bytes(0)), room.most()), (Gain::Promised(Bytes(8000)), 10));
        room.asked_for(10, 1000, true);
        assert_eq!(room.shorten(Bytes(0)), Gain::Nothing);
    }

    #[test]
    fn short_lists_are_not_shortened() {
        let mut room = ListRoom::default();
        room.asked_for(8, 1000, false);
        assert_eq!((room.shorten(HELD), room.most()), (Gain::Nothing, MOST_NEIGHBOURS));
    }

    #[test]
    fn views_shrink_step_by_step() {
        let mut size = TrainingViewSize::default();
        assert_eq!(size.lower(), Gain::Nothing, "nothing was drawn");
        size.drawn([100, 50], true);
        assert!(size.is_refused());
        assert_eq!(size.lower(), Gain::Promised(Bytes(22_800)));
        // Nothing more is given up until the trainer has followed.
        assert_eq!((size.lower(), size.is_waiting()), (Gain::Promised(Bytes(0)), true));
        for times in 1..=6 {
            assert_eq!(size.allowed().times(), times);
            size.use_scale(size.allowed());
            assert!(!size.is_waiting() && !size.is_refused());
            size.drawn([90, 45], false);
            assert_eq!(size.lower() == Gain::Nothing, times == 6);
        }
    }

    #[test]
    fn the_full_size_costs_in_proportion_to_the_pixels() {
        let mut size = TrainingViewSize::default();
        assert_eq!(size.missing(Bytes(1000)), None);
        size.use_scale(TrainingScale::after(1));
        assert_eq!(size.missing(Bytes(81_000)), Some(Bytes(19_000)));
        size.restore();
        assert_eq!((size.missing(Bytes(1)), size.is_waiting()), (None, false));
        assert_eq!(size.allowed(), TrainingScale::FULL);
    }
}
