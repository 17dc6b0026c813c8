//! Measurements of the GPU for `splat bench`, from private data of stages.

use super::Cuda;
use super::device::stream::{CudaEvent, Stream};
use super::device::timers::Timers;
use super::frame::Frame;
use super::model::lanes::LANES;
use super::stage::bands::Lists;
use crate::abi::{BLEND_CHUNK, BLEND_WARP_TILES, TileRange, UNSEEN};
use crate::backend::cuda::prelude::*;
use crate::backend::{CopySpeed, Drawn, Profiler, RowWords, StageTime, Work};
use crate::layout::{COPY_TEST, Source as _};
use crate::model::Primitive;

/// Number of stages for which events are made in advance.
const STAGES_TIMED: usize = 64;

impl<P: Primitive> Profiler<Model<P>, Frame<Drawn, P>> for Cuda {
    fn time_stages(&mut self, on: bool) -> Result {
        self.session.timers = if on { Timers::on(STAGES_TIMED)? } else { Timers::off() };
        Ok(())
    }

    fn stage_times(&mut self) -> Result<Vec<StageTime>> {
        let times = self.session.timers.take()?;
        Ok(times.into_iter().map(|(stage, ms)| StageTime { stage, ms }).collect())
    }

    fn copy_speed(&mut self) -> Result<Option<CopySpeed>> {
        speed(&self.session)
    }

    fn work(&mut self, model: &Model<P>, frame: &Frame<Drawn, P>) -> Result<Option<Work>> {
        count(&self.session, model, frame)
    }

    fn trim_memory(&mut self) -> Result {
        self.trim_memory()
    }
}

/// Bytes of a copy, many times the size of caches.
const COPY_BYTES: usize = 1 << 30;

/// Smallest copy: below it, caches would be measured.
const COPY_BYTES_MIN: usize = 1 << 28;

/// Copies before the timed ones, because memory is slower at first.
const WARM_UP: u32 = 3;

const COPIES: u32 = 10;

/// Measures copies of up to 1 GiB, or less if memory is short. Waits for the GPU.
fn speed(session: &Session) -> Result<Option<CopySpeed>> {
    let mut bytes = COPY_BYTES;
    while bytes >= COPY_BYTES_MIN {
        match session.heap.take_two(&COPY_TEST, &(bytes as u64)) {
            Ok([from, to]) => return time(session, &from, to).map(Some),
            Err(DeviceError::Refused(_) | DeviceError::OutOfMemory { .. }) => bytes /= 2,
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn time(session: &Session, from: &Block<u8>, mut to: Block<u8>) -> Result<CopySpeed> {
    let stream = &session.stream;
    let [start, end] = [CudaEvent::timed()?, CudaEvent::timed()?];
    for _ in 0..WARM_UP {
        to.copy_from(stream, 0, from, 0..from.len())?;
    }
    start.record(stream)?;
    for _ in 0..COPIES {
        to.copy_from(stream, 0, from, 0..from.len())?;
    }
    end.record(stream)?;
    end.synchronize()?;
    // Each byte is read and written.
    let gigabytes = 2.0 * f64::from(COPIES) * from.len() as f64 * 1e-9;
    let seconds = end.ms_since(&start)? * 1e-3;
    Ok(CopySpeed { bytes: from.bytes(), gb_per_s: gigabytes / seconds })
}

/// Rows of a lane block whose values lie in one sector of 32 bytes.
const SECTOR_ROWS: usize = 8;

const WARP_TILES: usize = BLEND_WARP_TILES as usize;

/// Counts the work of the stages in a frame. Returns `None` without a backward pass or in bands, which keep no lists.
fn count<P: Primitive>(
    session: &Session,
    model: &Model<P>,
    frame: &Frame<Drawn, P>,
) -> Result<Option<Work>> {
    let (Some(kept), Lists::Whole(bins)) = (&frame.canvas.kept, &frame.lists) else {
        return Ok(None);
    };
    let splats = &frame.splats;
    let stream = &session.stream;
    let splat_from_gaussian = fetch(stream, &splats.splat_from_gaussian, 0)?;
    let sh_steps = fetch(stream, &model.sh_steps, 0)?;
    let seen = seen(&splat_from_gaussian, &sh_steps, model.momentum.steps());
    let lists = TileLists {
        visible: splats.visible,
        splat_from_instance: &fetch(stream, &bins.splat_from_instance, 0)?,
        ranges: &fetch(stream, &bins.ranges, TileRange { start: 0, end: 0 })?,
        reached: &fetch(stream, &kept.reached, 0)?,
        hits: &fetch(stream, &kept.hits, 0)?,
    };
    let walked = walked(&lists);
    let [width, height] = frame.camera.size.map(u64::from);
    Ok(Some(Work {
        gaussians: model.len() as u64,
        row_words: row_words(model.kernel_widths().map(u64::from)),
        visible: splats.visible as u64,
        lane_blocks_seen: seen.lane_blocks,
        rows_fetched: seen.rows_fetched,
        rows_late: seen.rows_late,
        pixels: width * height,
        tiles: bins.extent.tiles() as u64,
        instances: splats.instances,
        instances_reached: walked.instances,
        splats_hit: walked.splats,
        hit_words: walked.hit_words,
        chunks: walked.chunks,
        states: walked.states,
        pairs_evaluated: walked.hits * LANES as u64,
    }))
}

/// Sums the words per row of values and of moments, for geometry and for harmonics.
fn row_words([geometry, first, second, sh, sh_first, sh_second]: [u64; 6]) -> RowWords {
    let (geometry_moments, sh_moments) = (first + second, sh_first + sh_second);
    RowWords { geometry, geometry_moments, sh, sh_moments }
}

fn fetch<B: Buffer>(stream: &Stream, buffer: &B, filler: B::Item) -> Result<Vec<B::Item>> {
    let mut host = vec![filler; buffer.len()];
    buffer.download(stream, 0, &mut host)?;
    Ok(host)
}

#[derive(Debug, Default, PartialEq)]
struct SeenRows {
    lane_blocks: u64,
    rows_fetched: u64,
    rows_late: u64,
}

/// Counts the lane blocks and sectors that a view sees. Rows are late if their block has not taken all `steps`.
fn seen(splat_from_gaussian: &[u32], sh_steps: &[u32], steps: u32) -> SeenRows {
    let mut seen = SeenRows::default();
    for (block, &taken) in splat_from_gaussian.chunks(LANES).zip(sh_steps) {
        let is_seen = |rows: &&[u32]| rows.iter().any(|&splat| splat != UNSEEN);
        let rows = (block.chunks(SECTOR_ROWS).filter(is_seen).count() * SECTOR_ROWS) as u64;
        seen.lane_blocks += u64::from(rows > 0);
        seen.rows_fetched += rows;
        seen.rows_late += if taken == steps { 0 } else { rows };
    }
    seen
}

/// The tiles' lists, and the progress of the forward pass in them.
struct TileLists<'a> {
    visible: usize,
    splat_from_instance: &'a [u32],
    ranges: &'a [TileRange],
    /// [tiles, warp tiles]
    reached: &'a [u32],
    /// [words, warp tiles]
    hits: &'a [u32],
}

#[derive(Debug, Default, PartialEq)]
struct Walked {
    instances: u64,
    splats: u64,
    hit_words: u64,
    hits: u64,
    chunks: u64,
    states: u64,
}

fn walked(lists: &TileLists<'_>) -> Walked {
    let mut walked = Walked::default();
    let mut is_hit = vec![false; lists.visible];
    for ((tile, range), reached) in
        lists.ranges.iter().enumerate().zip(lists.reached.chunks(WARP_TILES))
    {
        let most = reached.iter().copied().max().unwrap_or(0);
        walked.instances += u64::from(most);
        walked.chunks += u64::from(most.div_ceil(BLEND_CHUNK));
        for &of_warp_tile in reached {
            // The state before the first chunk is known.
            walked.states += u64::from(of_warp_tile.div_ceil(BLEND_CHUNK).saturating_sub(1));
        }
        // Tiles start at a new word: the last word of a tile may not be full.
        let first_word = range.start as usize / LANES + tile;
        for word in 0..most.div_ceil(u32::BITS) {
            let mut of_any = 0;
            for (warp_tile, &of_warp_tile) in reached.iter().enumerate() {
                if word * u32::BITS >= of_warp_tile {
                    continue;
                }
                let hits = lists.hits[(first_word + word as usize) * WARP_TILES + warp_tile];
                walked.hit_words += 1;
                walked.hits += u64::from(hits.count_ones());
                of_any |= hits;
            }
            let first = (range.start + word * u32::BITS) as usize;
            for lane in (0..LANES).filter(|lane| of_any >> lane & 1 == 1) {
                is_hit[lists.splat_from_instance[first + lane] as usize] = true;
            }
        }
    }
    walked.splats = is_hit.iter().map(|&hit| u64::from(hit)).sum();
    walked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_in_sectors_and_move_in_lane_blocks() {
        let mut splat_from_gaussian = [UNSEEN; 100];
        assert_eq!(seen(&splat_from_gaussian, &[3, 4, 4, 4], 4), SeenRows::default());
        // Two sectors of a late block, one of another block, and one of the last.
        for row in [0, 7, 31, 64, 99] {
            splat_from_gaussian[row] = 5;
        }
        let expected = SeenRows { lane_blocks: 3, rows_fetched: 32, rows_late: 16 };
        assert_eq!(seen(&splat_from_gaussian, &[3, 3, 4, 4], 4), expected);
    }

    #[test]
    fn work_is_counted_up_to_the_end_of_parts() {
        // An empty tile, one of 40 instances, and one of 300 of the same splats.
        let range = |start, end| TileRange { start, end };
        let ranges = [range(0, 0), range(0, 40), range(40, 340)];
        let splat_from_instance: Vec<u32> = (0..340).map(|instance| instance % 100).collect();
        let mut reached = vec![0; 3 * WARP_TILES];
        // Warp tiles 0 (finished after 32) and 5 of the second tile, and 7 of the third.
        (reached[WARP_TILES], reached[WARP_TILES + 5], reached[2 * WARP_TILES + 7]) = (32, 40, 300);
        // Words that were not written hold anything.
        let mut hits = vec![u32::MAX; (340 / 32 + 3 + 1) * WARP_TILES];
        let second = WARP_TILES;
        hits[second] = 0b101;
        hits[second + 5] = 0b1;
        hits[second + WARP_TILES + 5] = 0b1000_0000;
        let third = (40 / 32 + 2) * WARP_TILES + 7;
        for word in 0..10 {
            hits[third + word * WARP_TILES] = u32::from(word == 9);
        }
        let walked = walked(&TileLists {
            visible: 100,
            splat_from_instance: &splat_from_instance,
            ranges: &ranges,
            reached: &reached,
            hits: &hits,
        });
        let expected = Walked {
            instances: 40 + 300,
            // 0 and 2; 39; 40 + 9 * 32 = 328, which is 28.
            splats: 4,
            hit_words: 1 + 2 + 10,
            hits: 5,
            chunks: 1 + 2,
            states: 1,
        };
        assert_eq!(walked, expected);
    }
}
