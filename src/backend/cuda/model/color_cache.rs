//! A cache of device memory for colours that lie on the host (`kernels/state.cuh`).

use std::cell::Cell;

use crate::abi::{self, Out};
use crate::backend::cuda::device::stream::Stream;
use crate::backend::cuda::memory::heap::{Buffer, Heap, Region, host_len};
use crate::backend::cuda::session::Session;
use crate::backend::{DeviceError, Result};
use crate::layout::{self, CacheTables, MemoryPlace, ModelSize};
use crate::memory::Bytes;

/// Words of the counts, at the beginning.
const COUNTS: usize = 2;

/// The cache lines of a model; empty if the colours lie on the device.
pub(crate) struct ColorLines {
    /// Indices as in [`CacheTables`], then the content of the lines.
    words: Region<u32>,
    lane_blocks: u64,
    /// True if the indices are valid.
    is_known: bool,
    /// True if a line may hold something.
    is_in_use: bool,
    /// Step, from 1, whose view was projected last.
    projected_for: Cell<u32>,
}

impl ColorLines {
    pub(crate) fn new(heap: &Heap) -> Result<Self> {
        Ok(Self {
            words: heap.region(&layout::SH_LINES)?,
            lane_blocks: 0,
            is_known: false,
            is_in_use: false,
            projected_for: Cell::new(0),
        })
    }

    /// Grows the empty cache for a model of this size. On a refusal there are no lines.
    pub(crate) fn grow(&mut self, size: &ModelSize) -> Result {
        let grown = self.words.grow(words(size));
        if grown.as_ref().is_err_and(DeviceError::is_out_of_memory) {
            self.words.shrink(0);
            self.words.trim()?;
        } else {
            grown?;
            self.words.shrink(words(size));
        }
        self.forget(size);
        Ok(())
    }

    /// Shrinks the cache for a model of this size. All lines are empty before and after.
    pub(crate) fn shrink(&mut self, size: &ModelSize) {
        self.words.shrink(words(size));
        self.forget(size);
    }

    fn forget(&mut self, size: &ModelSize) {
        debug_assert!(!self.is_in_use, "what is in lines would be lost");
        self.lane_blocks = size.gaussians.div_ceil(layout::LANES.into());
        (self.is_known, self.is_in_use) = (false, false);
    }

    pub(crate) fn trim(&mut self) -> Result {
        self.words.trim()
    }

    pub(crate) fn mapped(&self) -> Bytes {
        self.words.mapped()
    }

    pub(crate) fn bytes(&self) -> Bytes {
        Bytes::of::<u32>(self.words.len())
    }

    pub(crate) fn is_in_use(&self) -> bool {
        self.is_in_use
    }

    /// Records the projection of a view of this step, so that the lines it needs are known.
    pub(crate) fn note_projection(&self, step: u32) {
        self.projected_for.set(step);
    }

    pub(crate) fn is_projected_for(&self, step: u32) -> bool {
        self.projected_for.get() == step
    }

    /// Initialises new lines. Returns true if they were initialised before.
    pub(crate) fn make_ready(&mut self, stream: &Stream) -> Result<bool> {
        if self.words.is_empty() || self.is_known {
            return Ok(self.is_known);
        }
        let numbers = CacheTables::of(self.lane_blocks).words();
        self.words.zero_range(stream, 0..host_len(numbers))?;
        self.is_known = true;
        self.forget_projection();
        Ok(false)
    }

    fn forget_projection(&self) {
        self.projected_for.set(0);
    }

    pub(crate) fn begin(&mut self, stream: &Stream) -> Result {
        self.is_in_use = true;
        self.words.zero_range(stream, 0..COUNTS)
    }

    /// Makes later work of the stream wait for the lines.
    pub(crate) fn wait(&self, session: &Session) -> Result {
        if self.is_in_use { session.stream.wait(&session.filled) } else { Ok(()) }
    }

    pub(crate) fn mark_empty(&mut self) {
        self.is_in_use = false;
        // Filling is ordered behind projections, not behind the kernel that emptied the lines.
        self.forget_projection();
    }

    /// Returns the lines for kernels before this step; null pointers without valid lines.
    pub(crate) fn args(&self, size: &ModelSize, step: u32) -> abi::ColorCache<'_> {
        let cache_tables = CacheTables::of(self.lane_blocks);
        let [counts, blocks, missed, line, used, changed, wanted] =
            cache_tables.firsts().map(|first| {
                if self.is_known { Out::at(self.words.address() + 4 * first) } else { Out::NULL }
            });
        let mut first = self.words.address() + 4 * cache_tables.words();
        let mut widths = size.widths_in(MemoryPlace::Host);
        let mut table = || {
            let here = Out::at(first);
            let row = u64::from(layout::LANES) * 4;
            first += cache_tables.lines * u64::from(widths.next().unwrap_or(0)) * row;
            here
        };
        let [sh, sh_first, sh_second] = [table(), table(), table()];
        abi::ColorCache {
            line_of_block: blocks,
            missed_in: missed,
            block_of_line: line,
            used_in: used,
            is_changed: changed,
            wanted,
            counts,
            sh,
            sh_first,
            sh_second,
            step,
            lines: u32::try_from(cache_tables.lines).unwrap_or(u32::MAX),
        }
    }
}

fn words(size: &ModelSize) -> usize {
    host_len(layout::SH_LINES.len(size))
}
