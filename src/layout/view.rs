//! Buffers of a view: splats, pixels, and the input of surface terms.

use super::request::{Records, Use, ViewRequest};
use super::slot::{Count, Lifetime, Source};
use crate::abi::{FEATURES_WIDTH, RAY_WIDTH, RECORD_WIDTH, SURFACE_WIDTH, VERTEX_WIDTH};
use crate::layout::schema::LANES;
use crate::math::Divisor;

slots! {
    ViewCount {
        SPLAT_FROM_GAUSSIAN: u32 = "splat of each Gaussian", Projected, ViewCount::Gaussians, 1,
            "which Gaussians are in view";
        SPLAT_GRADIENTS: f32 = "gradients of splats", Projected, ViewCount::RecordFloats, 1,
            "gradients of Gaussians in view";
        SPLATS: f32 = "splats", Projected, ViewCount::RecordFloats, 1,
            "Gaussians in view, projected";
        VERTICES: f32 = "vertices", Projected, ViewCount::Gaussians, VERTEX_WIDTH,
            "vertices, projected";
        pub VERTEX_GRADIENTS: f32 = "gradients of vertices", Projected, ViewCount::Gaussians,
            RECORD_WIDTH, "gradients of vertices";
        FEATURES: f32 = "features of splats", Projected, ViewCount::VisibleOrOne, FEATURES_WIDTH,
            "depths and normals of Gaussians in view";
        FEATURE_GRADIENTS: f32 = "gradients of features", Projected, ViewCount::VisibleOrOne,
            FEATURES_WIDTH, "gradients of depths and normals of Gaussians in view";
        RAYS: f32 = "splats on rays", Projected, ViewCount::VisibleOrOne, RAY_WIDTH,
            "Gaussians in view, as rays meet them";
        RAY_GRADIENTS: f32 = "gradients on rays", Projected, ViewCount::VisibleOrOne, RAY_WIDTH,
            "gradients of Gaussians in view, as rays meet them";
        IMAGE: f32 = "image", Pixels, ViewCount::Pixels, 3, "the drawn view";
        BLENDED: u32 = "pixels", Pixels, ViewCount::Pixels, 1, "Gaussians blended in each pixel";
        INVERSE_DEPTHS: f32 = "inverse depths", Pixels, ViewCount::Pixels, 1,
            "inverse depths of the drawn view";
        INVERSE_SQUARES: f32 = "inverse squares", Pixels, ViewCount::Pixels, 1,
            "squares of inverse depths of the drawn view";
        MAPS: f32 = "surface maps", Pixels, ViewCount::Pixels, FEATURES_WIDTH, "depths and normals";
        MEDIAN_DEPTHS: f32 = "median depths", Pixels, ViewCount::Pixels, 1,
            "depths by which half of the light is stopped";
        D_IMAGE: f32 = "gradient of the image", Pixels, ViewCount::Pixels, 3, "gradient of the view";
        D_INVERSE_DEPTHS: f32 = "gradient of inverse depths", Pixels, ViewCount::Pixels, 1,
            "gradient of the inverse depths";
        D_INVERSE_SQUARES: f32 = "gradient of inverse squares", Pixels, ViewCount::Pixels, 1,
            "gradient of the squares of inverse depths";
        D_MAPS: f32 = "gradient of surface maps", Pixels, ViewCount::Pixels, FEATURES_WIDTH,
            "gradients of the depths and normals";
        D_MEDIAN_DEPTHS: f32 = "gradient of median depths", Pixels, ViewCount::Pixels, 1,
            "gradient of the median depths";
        SHOWN_DEPTHS: f32 = "shown depths", Surface, ViewCount::Pixels, 1,
            "depths that samples of surfaces are compared with";
        FARTHEST_DEPTH: u32 = "shown depths", Surface, ViewCount::One, 1,
            "depths that samples of surfaces are compared with";
        pub SURFACE_GRADIENTS: f32 = "surface gradients", Surface, ViewCount::Gaussians,
            SURFACE_WIDTH, "gradients of what surfaces should be like";
        SURFACE_ROWS: u32 = "surface rows", Surface, ViewCount::Visible, 1,
            "which Gaussians surfaces are sampled at";
        SURFACE_TOTAL: u32 = "surface counts", Surface, ViewCount::One, 1,
            "which Gaussians surfaces are sampled at";
        SURFACE_COUNTS: u32 = "surface counts", Surface, ViewCount::LaneBlocks, 1,
            "which Gaussians surfaces are sampled at";
        SMALL_COLORS: u8 = "smaller photograph", Pixels, ViewCount::Pixels, 3,
            "the photograph of a view that is drawn smaller";
        SMALL_MASK: u8 = "smaller photograph", Pixels, ViewCount::Pixels, 1,
            "the photograph of a view that is drawn smaller";
        SMALL_DEPTHS: u16 = "smaller photograph", Pixels, ViewCount::Pixels, 1,
            "the photograph of a view that is drawn smaller";
        SMALL_NORMALS: i8 = "smaller photograph", Pixels, ViewCount::Pixels, 3,
            "the photograph of a view that is drawn smaller";
    }
}

/// Minimum capacity for splats: parts of the buffer begin at aligned addresses.
const SPLATS_MIN: u64 = 1024;

/// Divisor of the spare capacity for splats, so that later views seldom have to be projected twice.
const HEADROOM: u64 = 20;

/// Returns the capacity for splats after a view with `visible` splats.
pub fn splat_capacity(visible: u64, gaussians: u64) -> u64 {
    (visible + visible / HEADROOM).clamp(SPLATS_MIN, gaussians.max(SPLATS_MIN))
}

/// Sizes of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewSizes {
    /// Gaussians of the model.
    pub gaussians: u64,
    /// Visible Gaussians.
    pub visible: u64,
    /// Capacity for splats; see [`splat_capacity`].
    pub capacity: u64,
    /// Kind of the splat records.
    pub records: Records,
    /// Number of pixels.
    pub pixels: u64,
}

/// Index spaces of a view.
#[derive(Clone, Copy, Debug)]
pub enum ViewCount {
    /// Gaussians of the model.
    Gaussians,
    /// Lane blocks of the model.
    LaneBlocks,
    /// Floats of the records at full capacity.
    RecordFloats,
    /// Splats.
    Visible,
    /// Splats, at least one.
    VisibleOrOne,
    /// Pixels.
    Pixels,
    /// A single element.
    One,
}

impl Count for ViewCount {
    type Sizes = ViewSizes;

    const LIFETIME: Lifetime = Lifetime::View;

    fn of(self, sizes: &ViewSizes) -> u64 {
        match self {
            Self::Gaussians => sizes.gaussians,
            Self::LaneBlocks => sizes.gaussians.div_ceil(LANES.into()),
            Self::RecordFloats => sizes.capacity * u64::from(sizes.records.width()),
            Self::Visible => sizes.visible,
            Self::VisibleOrOne => sizes.visible.max(1),
            Self::Pixels => sizes.pixels,
            Self::One => 1,
        }
    }
}

/// Buffers of projected Gaussians.
pub struct Projected<A: Source> {
    /// Splat index of each Gaussian; `[gaussians]`.
    pub splat_from_gaussian: A::Block<u32>,
    /// Projected vertices of triangles; [gaussians, 8].
    pub vertices: Option<A::Block<f32>>,
    /// Splats and their gradients.
    pub splats: SplatSlots<A>,
}

buffers! {
    /// Buffers of splats and their gradients. The splats are last, so that their memory is free when they are dropped
    /// first.
    pub struct SplatSlots(sizes: ViewSizes) {
        /// Gradients, [capacity, record]; scratch of the sort before the backward pass.
        gradients: f32 = SPLAT_GRADIENTS;
        /// [capacity, record]
        records: f32 = SPLATS;
    }

    /// Buffers of a rank's Gaussians in a view of another rank. After the splats are sent, gradients overwrite them.
    pub struct SentSplats(sizes: ViewSizes) {
        /// Splat index of each Gaussian; `[gaussians]`.
        splat_from_gaussian: u32 = SPLAT_FROM_GAUSSIAN;
        /// [capacity, record]
        records: f32 = SPLATS;
    }
}

impl<A: Source> Projected<A> {
    /// Reserves the buffers with the capacity that earlier views needed, before the splats are counted.
    pub fn reserve(source: &A, sizes: &ViewSizes) -> Result<Self, A::Error> {
        Ok(Self {
            splat_from_gaussian: source.take(&SPLAT_FROM_GAUSSIAN, sizes)?,
            vertices: source.take_if(sizes.records == Records::Triangles, &VERTICES, sizes)?,
            splats: SplatSlots::reserve(source, sizes)?,
        })
    }

    /// Reserves another capacity for splats, after the old buffers are freed.
    pub fn renew(self, source: &A, sizes: &ViewSizes) -> Result<Self, A::Error> {
        let Self { splat_from_gaussian, vertices, splats } = self;
        drop(splats);
        Ok(Self { splat_from_gaussian, vertices, splats: SplatSlots::reserve(source, sizes)? })
    }
}

buffers! {
    /// Features of splats, which are blended into surface maps.
    pub struct FeatureSlots(sizes: ViewSizes, request: ViewRequest) {
        /// Depth, x and y of the normal in camera axes, inverse depth; [visible, 4].
        values: f32 = FEATURES;
        /// Gradients of the features, if a backward pass follows; [visible, 4].
        gradients: f32 = FEATURE_GRADIENTS, if request.backward();
    }

    /// Buffers of splats in ray space.
    pub struct RaySlots(sizes: ViewSizes, request: ViewRequest) {
        /// [visible, 16]
        values: f32 = RAYS;
        /// Gradients, if a backward pass follows; [visible, 16].
        gradients: f32 = RAY_GRADIENTS, if request.backward();
    }

    /// Buffers of the drawn pixels.
    pub struct CanvasSlots(sizes: ViewSizes, request: ViewRequest) {
        /// Colours over the background, [height, width, 3].
        image: f32 = IMAGE;
        /// Number of splats blended in each pixel; [height, width].
        blended: u32 = BLENDED, if request.drawn_for == Use::Counts;
        /// Sums of weight / depth, per world unit; [height, width].
        inverse_depths: f32 = INVERSE_DEPTHS, if request.inverse_depths;
        /// Sums of weight / depth²; [height, width].
        inverse_squares: f32 = INVERSE_SQUARES, if request.inverse_squares;
        /// Depth, x and y of the normal, opacity; [height, width, 4].
        maps: f32 = MAPS, if request.maps;
        /// [height, width]
        median_depths: f32 = MEDIAN_DEPTHS, if request.median;
    }

    /// Gradients of the pixels of all compared maps. Reserved when the view is drawn, when a fallback can still free
    /// memory: the photograph is in use while the loss is computed.
    pub struct PixelGradients(sizes: ViewSizes, request: ViewRequest) {
        /// [height, width, 3]
        image: f32 = D_IMAGE;
        /// [height, width]
        inverse_depths: f32 = D_INVERSE_DEPTHS, if request.inverse_depths;
        /// [height, width]
        inverse_squares: f32 = D_INVERSE_SQUARES, if request.inverse_squares;
        /// [height, width, 4]
        maps: f32 = D_MAPS, if request.maps;
        /// [height, width]
        median_depths: f32 = D_MEDIAN_DEPTHS, if request.median;
    }

    /// Depths of a view, with which samples are compared.
    pub struct Samples(sizes: ViewSizes) {
        /// Depths relative to the farthest splat, along the view axis; [height, width].
        depths: f32 = SHOWN_DEPTHS;
        /// Bits of the depth of the farthest splat; `[1]`.
        farthest: u32 = FARTHEST_DEPTH;
    }

    /// Rows of all visible Gaussians, which are sampled.
    pub struct SurfaceRows(sizes: ViewSizes) {
        /// Ascending; `[visible]`.
        rows: u32 = SURFACE_ROWS;
        /// Number of rows of each lane block, and the index of its first row.
        counts: u32 = SURFACE_COUNTS, two;
    }

    /// Rows of visible Gaussians near the drawn surface, which are sampled.
    pub struct NearRows(sizes: ViewSizes) {
        /// Rows, ascending; `[visible]`, the first `total` are valid.
        rows: u32 = SURFACE_ROWS;
        /// `[1]`
        total: u32 = SURFACE_TOTAL;
        /// Bit mask of the near lanes of each lane block.
        masks: u32 = SURFACE_COUNTS;
        /// Number of rows of each lane block, and the index of its first row.
        counts: u32 = SURFACE_COUNTS, two;
    }
}

buffers! {
    /// Buffers of a downsampled photograph.
    pub struct ShrunkSlots(sizes: ViewSizes, request: ViewRequest) {
        /// [height, width, 3]
        colors: u8 = SMALL_COLORS;
        /// [height, width]. Reserved without a mask too: masks are known only with the photograph.
        mask: u8 = SMALL_MASK;
        /// Inverse depths, if they are compared; [height, width].
        depths: u16 = SMALL_DEPTHS, if request.inverse_depths;
        /// Normals, which may be compared with the normals of inverse depths; [height, width, 3].
        normals: i8 = SMALL_NORMALS, if request.inverse_depths;
    }
}

impl<A: Source> ShrunkSlots<A> {
    /// Reserves the buffers if the view is smaller than its photograph.
    pub fn reserve_if_smaller(
        source: &A,
        sizes: &ViewSizes,
        request: &ViewRequest,
    ) -> Result<Option<Self>, A::Error> {
        let is_smaller = request.divisor != Divisor::One;
        is_smaller.then(|| Self::reserve(source, sizes, request)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Replay, Taken as _};

    #[test]
    fn capacity_is_a_twentieth_more_and_no_more_than_the_model() {
        assert_eq!(splat_capacity(0, 5_000_000), 1024);
        assert_eq!(splat_capacity(400_000, 5_000_000), 420_000);
        assert_eq!(splat_capacity(400_000, 410_000), 410_000);
        assert_eq!(splat_capacity(7, 7), 1024);
    }

    #[test]
    fn a_training_view_takes_these_bytes() {
        let source = Replay::default();
        let records = Records::Ellipses;
        let pixels = 800 * 533;
        let sizes = ViewSizes { gaussians: 1000, visible: 0, capacity: 1024, records, pixels };
        let request =
            ViewRequest { drawn_for: Use::Backward, maps: true, ..ViewRequest::default() };
        let Ok(projected) = Projected::reserve(&source, &sizes);
        assert_eq!(projected.splat_from_gaussian.bytes(), 4000);
        assert_eq!(projected.splats.records.bytes(), 1024 * 48);
        let Ok(sent) = SentSplats::reserve(&source, &sizes);
        assert_eq!((sent.splat_from_gaussian.bytes(), sent.records.bytes()), (4000, 1024 * 48));
        // A view without splats has memory for one.
        let Ok(features) = FeatureSlots::reserve(&source, &sizes, &request);
        assert_eq!((features.values.bytes(), features.gradients.bytes()), (16, 16));
        let Ok(canvas) = CanvasSlots::reserve(&source, &sizes, &request);
        assert_eq!(canvas.bytes(), 800 * 533 * (12 + 16));
        let Ok(gradients) = PixelGradients::reserve(&source, &sizes, &request);
        assert_eq!(gradients.bytes(), 800 * 533 * (12 + 16));
        // Another capacity changes the splats only.
        let Ok(projected) = projected.renew(&source, &ViewSizes { capacity: 2000, ..sizes });
        assert_eq!(projected.splat_from_gaussian.bytes(), 4000);
        assert_eq!(projected.splats.gradients.bytes(), 2000 * 48);
        let Ok(projected) =
            projected.renew(&source, &ViewSizes { records: Records::Surfels, ..sizes });
        assert_eq!(projected.splats.records.bytes(), 1024 * 64);
    }

    #[test]
    fn a_smaller_photograph_takes_four_bytes_a_pixel_and_five_for_its_maps() {
        let sizes = ViewSizes {
            gaussians: 1,
            visible: 1,
            capacity: 1024,
            records: Records::Ellipses,
            pixels: 1000,
        };
        let bytes = |divisor, inverse_depths| {
            let request = ViewRequest { divisor, inverse_depths, ..ViewRequest::default() };
            let Ok(room) = ShrunkSlots::reserve_if_smaller(&Replay::default(), &sizes, &request);
            room.map_or(0, |room| room.bytes())
        };
        let (one, two) = (Divisor::One, Divisor::Two);
        assert_eq!([bytes(one, true), bytes(two, false), bytes(two, true)], [0, 4000, 9000]);
    }
}
