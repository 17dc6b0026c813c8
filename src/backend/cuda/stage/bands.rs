//! Drawing and blending of a view's lists, at once or in bands of tile rows if the lists exceed the memory left. The
//! pixels are equal. The backward pass lists and draws each band again.

use std::ops::Range;

use super::bin::{self, Bins, Extent, INSTANCES_MAX, Sorted};
use super::blend::{self, Canvas, Pixels};
use super::project::{DrawnView, Splats};
use super::rays;
use crate::backend::DrawSettings;
use crate::backend::cuda::prelude::*;
use crate::backend::cuda::session::BandPolicy;
use crate::layout::{INSTANCES, ListSizes, Records, Slot, ViewRequest, need_of_list};

/// Maximum number of blocks for a band; without virtual memory each may fill whole granules.
const BLOCKS: u64 = 12;

/// Callback that receives the lists of a view or of a band.
pub(crate) type PaintLists<'a> = dyn FnMut(&Session, &Splats, &Bins, DrawnView<'_>) -> Result + 'a;

pub(crate) enum Lists {
    /// Lists of all tiles.
    Whole(Bins),
    /// Lists are made band by band.
    Bands(Bands),
}

impl Lists {
    pub(crate) fn bytes(&self) -> Bytes {
        match self {
            Self::Whole(bins) => bins.bytes(),
            Self::Bands(bands) => Bytes(bands.sorted.bytes()),
        }
    }

    pub(crate) fn bands(&self) -> u32 {
        match self {
            Self::Whole(_) => 1,
            Self::Bands(bands) => bands.count,
        }
    }
}

pub(crate) struct Bands {
    sorted: Sorted,
    /// Number of instances of each row of tiles.
    rows: Vec<u64>,
    count: u32,
}

/// Lists the splats, sorted in the buffer of indices `front_to_back`, and paints them at once or in bands.
pub(crate) fn draw(
    session: &Session,
    splats: &mut Splats,
    front_to_back: usize,
    view: DrawnView<'_>,
    paint: &mut PaintLists<'_>,
) -> Result<Lists> {
    let DrawnView { camera, settings } = view;
    let whole = Extent::whole(camera, splats.instances);
    let request = &blend::request(settings);
    match (session.bands, whole) {
        (BandPolicy::Never, whole) => {
            let whole = whole?;
            reserve_list(session, &whole, None, request)?;
            let bins = draw_whole(session, splats, front_to_back, view, whole, paint)?;
            return Ok(Lists::Whole(bins));
        }
        (BandPolicy::WhenNeeded, Ok(whole))
            if need(session, &whole, None, request) <= room(session) =>
        {
            match draw_whole(session, splats, front_to_back, view, whole, paint) {
                // Other programs may have taken memory that the ledger counts as free.
                Err(error) if is_refusal(&error) => {}
                done => return done.map(Lists::Whole),
            }
        }
        (BandPolicy::WhenNeeded | BandPolicy::AtLeast(_) | BandPolicy::Rows(_), _) => {}
    }
    let order =
        ListSizes { counted: Some(splats.visible as u64), ..ListSizes::whole(camera.tiles, 0) };
    let sorted = bin::keep_order(session, splats, front_to_back, &order)?;
    let rows = bin::rows(session, splats, &sorted, camera)?;
    let mut bands = Bands { sorted, rows, count: 0 };
    // Asked now, while a refusal can free memory. The backward pass needs most.
    let fullest = bands.rows.iter().copied().max().unwrap_or(0);
    let row = Extent::band(camera, 0..1, fullest)?;
    reserve_list(session, &row, Some(splats.visible), request)?;
    bands.count = bands.forward(session, splats, view, paint)?;
    Ok(Lists::Bands(bands))
}

fn draw_whole(
    session: &Session,
    splats: &mut Splats,
    front_to_back: usize,
    view: DrawnView<'_>,
    extent: Extent,
    paint: &mut PaintLists<'_>,
) -> Result<Bins> {
    let bins = bin::list_whole(session, splats, front_to_back, view.camera, extent)?;
    paint(session, splats, &bins, view)?;
    Ok(bins)
}

/// Requests the memory of a list as one block if it seems too large, so that the refusal says how much is missing.
fn reserve_list(
    session: &Session,
    extent: &Extent,
    counted: Option<usize>,
    request: &ViewRequest,
) -> Result {
    let need = need(session, extent, counted, request);
    // The need is an upper bound. Over the budget nothing more can be had, so the present memory has to do.
    if need <= room(session) || session.heap.excess() > Bytes(0) {
        return Ok(());
    }
    session.heap.take(&Slot::<u8, _>::unlisted(INSTANCES.label), &need).map(drop)
}

/// Returns the bytes of the arena to list and draw. `counted` splats are counted again.
fn need(session: &Session, extent: &Extent, counted: Option<usize>, request: &ViewRequest) -> u64 {
    need_of_list(session.heap.cub_scratch(), &extent.sizes(counted), request)
}

/// Returns the bytes that the arena can still get, rounded down to granules.
fn room(session: &Session) -> u64 {
    let heap = &session.heap;
    let rounding = if heap.is_virtual() { 1 } else { BLOCKS };
    heap.available_bytes().0.saturating_sub(rounding * heap.granule().0)
}

fn is_refusal(error: &DeviceError) -> bool {
    matches!(error, DeviceError::Refused(_) | DeviceError::OutOfMemory { .. })
}

impl Bands {
    /// Paints all bands and keeps nothing. Returns their number.
    fn forward(
        &self,
        session: &Session,
        splats: &Splats,
        view: DrawnView<'_>,
        paint: &mut PaintLists<'_>,
    ) -> Result<u32> {
        let camera = view.camera;
        let settings = DrawSettings { trains: false, ..*view.settings };
        let view = DrawnView { camera, settings: &settings };
        self.each(session, splats.visible, &blend::request(&settings), camera, |extent| {
            let bins = bin::list_band(session, splats, &self.sorted, camera, extent)?;
            paint(session, splats, &bins, view)
        })
    }

    /// Computes the gradients of every splat from those of the pixels.
    pub(crate) fn backward(
        &self,
        session: &Session,
        splats: &mut Splats,
        view: DrawnView<'_>,
        pixels: &mut Pixels<'_>,
    ) -> Result {
        let begun = session.timers.begin(Stage::BlendBackward, &session.stream)?;
        splats.clear_gradients(&session.stream)?;
        session.timers.end(&begun, &session.stream)?;
        let request = blend::request(view.settings);
        self.each(session, splats.visible, &request, view.camera, |extent| {
            let bins = bin::list_band(session, splats, &self.sorted, view.camera, extent)?;
            forward(session, splats, &bins, view, pixels.canvas)?;
            let begun = session.timers.begin(Stage::BlendBackward, &session.stream)?;
            add_gradients(session, splats, &bins, view, pixels)?;
            pixels.canvas.kept = None;
            session.timers.end(&begun, &session.stream)?;
            rays::add_median_gradients(session, splats, &bins, view.camera, pixels)
        })
        .map(drop)
    }

    /// Visits all bands from the top of the view, each as large as the present memory allows. Returns their number.
    fn each(
        &self,
        session: &Session,
        visible: usize,
        request: &ViewRequest,
        camera: &ViewCamera,
        mut visit: impl FnMut(Extent) -> Result,
    ) -> Result<u32> {
        let mut max_rows = max_rows(session.bands, camera.tiles[1]);
        let total: u64 = self.rows.iter().sum();
        let (mut first, mut count) = (0, 0);
        while first < camera.tiles[1] {
            let room = room(session);
            // A bound for all rows, which take a little more than a band.
            let most = largest(bounded(total), |instances| {
                let extent = Extent::whole(camera, instances.into())?;
                Ok(need(session, &extent, Some(visible), request) <= room)
            })?;
            let (rows, instances) = band(&self.rows, first, max_rows, most);
            let end = rows.end;
            match visit(Extent::band(camera, rows, instances)?) {
                // Other programs may have taken memory that the ledger counts as free.
                Err(error) if is_refusal(&error) && end - first > 1 => {
                    max_rows = (end - first) / 2;
                    continue;
                }
                done => done?,
            }
            (first, count) = (end, count + 1);
        }
        Ok(count)
    }
}

fn max_rows(policy: BandPolicy, rows: u32) -> u32 {
    match policy {
        BandPolicy::Never | BandPolicy::WhenNeeded => rows,
        BandPolicy::AtLeast(bands) => (rows / bands.max(1)).max(1),
        BandPolicy::Rows(most) => most.max(1),
    }
}

/// Limits a number of instances to that of one list.
fn bounded(instances: u64) -> u32 {
    u32::try_from(instances).map_or(INSTANCES_MAX, |instances| instances.min(INSTANCES_MAX))
}

/// Returns the largest number up to `most` that fits, or 0. Fits must be monotonic.
fn largest(most: u32, mut fits: impl FnMut(u32) -> Result<bool>) -> Result<u32> {
    if fits(most)? {
        return Ok(most);
    }
    let (mut low, mut high) = (0, most.saturating_sub(1));
    while low < high {
        let middle = high - (high - low) / 2;
        if fits(middle)? { low = middle } else { high = middle - 1 }
    }
    Ok(low)
}

/// Returns the rows of the band from row `first` and their instances: as many rows as fit, at least one.
fn band(rows: &[u64], first: u32, max_rows: u32, instances_most: u32) -> (Range<u32>, u64) {
    let (mut end, mut instances) = (first, 0_u64);
    for &row in rows.iter().skip(first as usize).take(max_rows as usize) {
        if end > first && instances.saturating_add(row) > u64::from(instances_most) {
            break;
        }
        instances = instances.saturating_add(row);
        end += 1;
    }
    (first..end, instances)
}

/// Draws the listed tiles with the kernels of the splats' records.
pub(crate) fn forward(
    session: &Session,
    splats: &Splats,
    bins: &Bins,
    view: DrawnView<'_>,
    canvas: &mut Canvas,
) -> Result {
    match splats.kind {
        Records::Ellipses | Records::Surfels => blend::forward(session, splats, bins, view, canvas),
        Records::Triangles => blend::forward_triangles(session, splats, bins, view, canvas),
    }
}

pub(crate) fn backward(
    session: &Session,
    splats: &mut Splats,
    bins: &Bins,
    view: DrawnView<'_>,
    pixels: &mut Pixels<'_>,
) -> Result {
    let begun = session.timers.begin(Stage::BlendBackward, &session.stream)?;
    splats.clear_gradients(&session.stream)?;
    add_gradients(session, splats, bins, view, pixels)?;
    session.timers.end(&begun, &session.stream)
}

/// Adds the gradients from the pixels of the listed tiles.
pub(crate) fn add_gradients(
    session: &Session,
    splats: &mut Splats,
    bins: &Bins,
    view: DrawnView<'_>,
    pixels: &mut Pixels<'_>,
) -> Result {
    match splats.kind {
        Records::Ellipses | Records::Surfels => {
            blend::add_gradients(session, splats, bins, view, pixels)
        }
        Records::Triangles => blend::add_triangle_gradients(session, splats, bins, view, pixels),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::backend::cuda::memory::heap::Heap;
    use crate::backend::cuda::memory::heap::tests::heap_of;
    use crate::layout::{BackwardSlots, CountSlots, Keys, LIBRARY_SCRATCH, List, Use};

    fn bands(rows: &[u64], max_rows: u32, instances_most: u32) -> Vec<(Range<u32>, u64)> {
        let (mut first, mut found) = (0, Vec::new());
        while (first as usize) < rows.len() {
            let (of_band, instances) = band(rows, first, max_rows, instances_most);
            first = of_band.end;
            found.push((of_band, instances));
        }
        found
    }

    #[test]
    fn bands_are_filled_row_by_row() {
        let rows = [3, 0, 4, 9, 1, 1, 1, 0];
        let expected = vec![(0..3, 7), (3..4, 9), (4..8, 3)];
        assert_eq!(bands(&rows, 8, 8), expected);
        assert_eq!(bands(&rows, 8, 18), vec![(0..6, 18), (6..8, 1)]);
        assert_eq!(bands(&rows, 8, u32::MAX), vec![(0..8, 19)]);
        assert_eq!(bands(&rows, 3, u32::MAX), vec![(0..3, 7), (3..6, 11), (6..8, 1)]);
        assert_eq!(bands(&[0, 0], 2, 0), vec![(0..2, 0)]);
    }

    proptest! {
        #[test]
        fn bands_cover_all_rows_once_and_are_as_few_as_rows_in_order_allow(
            rows in vec(0..1000_u64, 1..60),
            max_rows in 1..70_u32,
            most in 0..5000_u32,
        ) {
            let found = bands(&rows, max_rows, most);
            prop_assert_eq!(found[0].0.start, 0);
            prop_assert_eq!(found[found.len() - 1].0.end as usize, rows.len());
            for pair in found.windows(2) {
                prop_assert_eq!(pair[0].0.end, pair[1].0.start);
                // The next row would not have fitted.
                let and_next = pair[0].1 + rows[pair[1].0.start as usize];
                let is_full = pair[0].0.len() == max_rows as usize;
                prop_assert!(is_full || and_next > u64::from(most));
            }
            for (range, instances) in found {
                let of_rows = &rows[range.start as usize..range.end as usize];
                prop_assert_eq!(instances, of_rows.iter().sum::<u64>());
                prop_assert!((1..=max_rows as usize).contains(&range.len()));
                prop_assert!(range.len() == 1 || instances <= u64::from(most));
            }
        }

        #[test]
        fn the_largest_that_fits_is_found(most in 0..u32::MAX, limit in 0..u32::MAX) {
            let mut requested = 0;
            let found = largest(most, |n| {
                requested += 1;
                Ok(n <= limit)
            });
            prop_assert_eq!(found.unwrap(), most.min(limit));
            prop_assert!(requested <= 33);
        }

        #[test]
        fn there_are_at_least_the_requested_bands(rows in 1..5000_u32, wanted in 0..6000_u32) {
            let of_each = max_rows(BandPolicy::AtLeast(wanted), rows);
            prop_assert!(of_each >= 1);
            let bands = rows.div_ceil(of_each);
            prop_assert!(bands >= wanted.min(rows), "{} bands", bands);
            prop_assert!(wanted > 1 || bands == 1);
            prop_assert_eq!(max_rows(BandPolicy::WhenNeeded, rows), rows);
        }
    }

    #[test]
    fn instances_are_limited_to_one_list() {
        assert_eq!(bounded(7), 7);
        assert_eq!(bounded(INSTANCES_MAX.into()), INSTANCES_MAX);
        assert_eq!(bounded(u64::from(INSTANCES_MAX) + 1), INSTANCES_MAX);
        assert_eq!(bounded(u64::MAX), INSTANCES_MAX);
    }

    /// Allocates as drawing does, including the library's scratch. The result lies in the spare half of the list.
    fn take(heap: &Heap, sizes: &ListSizes, request: &ViewRequest) -> Result {
        let List { ranges, splat_from_instance, spare } = List::reserve(heap, sizes)?;
        let library = |bytes: u64| heap.take(&LIBRARY_SCRATCH, &bytes.max(1)).map(drop);
        let counts = sizes.counted.map(|_| CountSlots::reserve(heap, sizes)).transpose()?;
        if let Some(counted @ 1..) = sizes.counted {
            library(heap.cub_scratch().sum32.bytes(counted))?;
        }
        let keys = Keys::reserve(heap, sizes)?;
        if sizes.instances > 0 {
            let sort = match keys {
                Keys::Bits16(_) => heap.cub_scratch().sort16,
                Keys::Bits32(_) => heap.cub_scratch().sort32,
            };
            library(sort.bytes(sizes.instances, sizes.key_bits()))?;
        }
        drop((counts, keys, splat_from_instance));
        let kept = BackwardSlots::reserve_if_kept(heap, sizes, request)?;
        drop((ranges, spare, kept));
        Ok(())
    }

    proptest! {
        /// A heap with one granule less than the need refuses; one with the need does not.
        #[test]
        fn the_need_equals_the_allocations(
            tiles in prop_oneof![[1..200_u32, 1..100_u32], Just([512, 129])],
            rows in 0.0..1.0_f64,
            instances in 0..20_000_000_u64,
            counted in proptest::option::of(0..3_000_000_u64),
            drawn_for in prop_oneof![Just(Use::Image), Just(Use::Backward)],
            (inverse_depths, maps) in (any::<bool>(), any::<bool>()),
        ) {
            let rows = Real::floor_i32(rows * f64::from(tiles[1])).unsigned_abs() + 1;
            let sizes = ListSizes { tiles, rows, instances, counted };
            let request = ViewRequest { drawn_for, inverse_depths, maps, ..ViewRequest::default() };
            let heap = heap_of(Bytes(0));
            let (need, granule) = (need_of_list(heap.cub_scratch(), &sizes, &request), heap.granule().0);
            let least = need.div_ceil(granule) * granule;
            let taken = take(&heap_of(Bytes(least)), &sizes, &request);
            prop_assert!(taken.is_ok(), "{} of {least} bytes: {:?}", need, taken.err());
            let refused = take(&heap_of(Bytes(least - granule)), &sizes, &request);
            prop_assert!(matches!(refused, Err(DeviceError::Refused(_))), "one less than {least}");
        }
    }
}
