//! A few words of device memory that kernels report in: counts, sums of the loss, faults.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use super::heap::{Buffer, Heap, Pinned, Region};
use crate::abi::terms::{TERM_SUMS, VALUE_DENSITY, VALUE_ENTROPY, VALUE_NORMAL, VALUE_SDF};
use crate::abi::{Counts, FAULT_GROUPS, Out, SurfaceSums};
use crate::backend::DeviceError;
use crate::backend::cuda::device::stream::Stream;
use crate::layout::{self, GAUSSIANS, REPORTS, STATUS, Schema};

/// Words of [`Counts`]: instances, visible.
const COUNTS: Range<usize> = 0..2;
/// The word of the first fault, next to the sums so that one copy brings both.
const FAULT: usize = 2;
/// Words of the sums that terms are computed of, each at its place.
const SUMS: Range<usize> = FAULT + 1..FAULT + 1 + TERM_SUMS as usize;
/// The words that a report is made of.
const REPORT: Range<usize> = FAULT..SUMS.end;
const WORDS: usize = SUMS.end;
/// Bytes of a word.
const WORD: u64 = 8;

const _: () = assert!(size_of::<Counts>() == 2 * size_of::<u64>(), "words of the counts");
const _: () = assert!(size_of::<SurfaceSums>() == 4 * size_of::<u64>(), "words of surfaces");
const _: () = {
    let first = VALUE_ENTROPY;
    let next = [first + 1, first + 2, first + 3];
    assert!(next[0] == VALUE_DENSITY && next[1] == VALUE_SDF && next[2] == VALUE_NORMAL, "order");
};

/// No fault so far.
const NO_FAULT: u64 = u64::MAX;

/// What kernels report in.
pub(crate) struct Status {
    words: Region<u64>,
    counts: Pinned<u64>,
    /// Places that reports are sent to, for use again.
    places: ReportBuffers,
    /// What the model consists of of which a kernel reports a fault.
    schema: &'static Schema,
}

/// What projection counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplatCounts {
    /// Pairs of a splat and a tile that it reaches.
    pub(crate) instances: u64,
    /// Splats.
    pub(crate) visible: usize,
}

type ReportBuffers = Rc<RefCell<Vec<ReportBuffer>>>;
type ReportBuffer = Pinned<u64>;

/// A report on its way to the host.
pub(crate) struct StatusReport {
    /// Taken out when it goes back to the others.
    place: Option<ReportBuffer>,
    places: ReportBuffers,
    schema: &'static Schema,
}

impl Status {
    pub(crate) fn new(heap: &Heap, stream: &Stream) -> Result<Self, DeviceError> {
        let mut words = heap.region(&STATUS)?;
        words.grow(WORDS)?;
        let mut at_first = [0; WORDS];
        at_first[FAULT] = NO_FAULT;
        words.upload(stream, 0, &at_first)?;
        let counts = heap.pinned(&layout::COUNTS, &(COUNTS.len() as u64))?;
        Ok(Self { words, counts, places: ReportBuffers::default(), schema: &GAUSSIANS })
    }

    pub(crate) fn clear_counts(&mut self, stream: &Stream) -> Result<(), DeviceError> {
        self.words.zero_range(stream, COUNTS)
    }

    /// What projection reports in.
    pub(crate) fn counts_and_fault(
        &mut self,
        schema: &'static Schema,
    ) -> (Out<'_, Counts>, Out<'_, u64>) {
        self.schema = schema;
        let [counts, fault] =
            [COUNTS.start, FAULT].map(|word| self.words.address() + word as u64 * WORD);
        (Out::at(counts), Out::at(fault))
    }

    /// What projection counted. Waits for the device.
    pub(crate) fn read_counts(&mut self, stream: &Stream) -> Result<SplatCounts, DeviceError> {
        self.words.download_pinned(stream, COUNTS, &mut self.counts)?;
        let words = self.counts.as_slice()?;
        // The upper half of the second word has no meaning.
        let visible = usize::try_from(words[1] & u64::from(u32::MAX)).unwrap_or(usize::MAX);
        Ok(SplatCounts { instances: words[0], visible })
    }

    /// Has all sums begin with 0.
    pub(crate) fn clear_sums(&mut self, stream: &Stream) -> Result<(), DeviceError> {
        self.words.zero_range(stream, SUMS)
    }

    /// All sums by their places; `[TERM_SUMS]`.
    pub(crate) fn sums(&mut self) -> Out<'_, f64> {
        self.sum(0)
    }

    /// One of the sums.
    pub(crate) fn sum(&mut self, place: u32) -> Out<'_, f64> {
        Out::at(self.words.address() + (SUMS.start as u64 + u64::from(place)) * WORD)
    }

    /// Those of the terms at samples.
    pub(crate) fn surface(&mut self) -> Out<'_, SurfaceSums> {
        Out::at(self.sum(VALUE_ENTROPY).address())
    }

    /// What a step of a model of this primitive reports in.
    pub(crate) fn fault(&mut self, schema: &'static Schema) -> Out<'_, u64> {
        self.schema = schema;
        Out::at(self.words.address() + FAULT as u64 * WORD)
    }

    /// Forgets a fault, which was of a model that another takes the place of. Waits for the device.
    pub(crate) fn clear_fault(&mut self, stream: &Stream) -> Result<(), DeviceError> {
        self.words.upload(stream, FAULT, &[NO_FAULT])
    }

    /// Sends sums and fault as they will be when the stream has come so far.
    pub(crate) fn report(
        &mut self,
        heap: &Heap,
        stream: &Stream,
    ) -> Result<StatusReport, DeviceError> {
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
    /// Whether it is there.
    pub(crate) fn is_ready(&self) -> bool {
        // An error comes to light when the report is read.
        self.place.as_ref().is_none_or(|place| place.is_ready().unwrap_or(true))
    }

    /// Waits for it: the sums by their places. A parameter that is not finite is an error.
    pub(crate) fn read(&self) -> Result<[f64; TERM_SUMS as usize], DeviceError> {
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

/// What projection and step found: twice (index times [`FAULT_GROUPS`] plus the column), plus 1 for an
/// infinity.
fn check(fault: u64, schema: &Schema) -> Result<(), DeviceError> {
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
}
