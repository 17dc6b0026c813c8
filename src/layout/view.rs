//! Buffers of a view: splats, pixels, and the input of surface terms.

use super::request::{Records, Use, ViewRequest};
use super::slot::{Count, Lifetime, Source, Taken};
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

/// Buffers of splats and their gradients.
pub struct SplatSlots<A: Source> {
    /// Gradients, [capacity, record]; scratch of the sort before the backward pass.
    pub gradients: A::Block<f32>,
    /// [capacity, record]
    pub records: A::Block<f32>,
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

impl<A: Source> SplatSlots<A> {
    /// Reserves the buffers. The splats are last, so that their memory is free when they are dropped first.
    pub fn reserve(source: &A, sizes: &ViewSizes) -> Result<Self, A::Error> {
        Ok(Self {
            gradients: source.take(&SPLAT_GRADIENTS, sizes)?,
            records: source.take(&SPLATS, sizes)?,
        })
    }
}

/// Buffers of a rank's Gaussians in a view of another rank. After the splats are sent, gradients overwrite them.
pub struct SentSplats<A: Source> {
    /// Splat index of each Gaussian; `[gaussians]`.
    pub splat_from_gaussian: A::Block<u32>,
    /// [capacity, record]
    pub records: A::Block<f32>,
}

impl<A: Source> SentSplats<A> {
    /// Reserves the buffers with the capacity that earlier views needed.
    pub fn reserve(source: &A, sizes: &ViewSizes) -> Result<Self, A::Error> {
        let splat_from_gaussian = source.take(&SPLAT_FROM_GAUSSIAN, sizes)?;
        Ok(Self { splat_from_gaussian, records: source.take(&SPLATS, sizes)? })
    }
}

/// Features of splats, which are blended into surface maps.
pub struct FeatureSlots<A: Source> {
    /// Depth, x and y of the normal in camera axes, inverse depth; [visible, 4].
    pub values: A::Block<f32>,
    /// Gradients of the features, if a backward pass follows; [visible, 4].
    pub gradients: Option<A::Block<f32>>,
}

impl<A: Source> FeatureSlots<A> {
    /// Reserves the buffers, for at least one splat.
    pub fn reserve(source: &A, sizes: &ViewSizes, request: &ViewRequest) -> Result<Self, A::Error> {
        Ok(Self {
            values: source.take(&FEATURES, sizes)?,
            gradients: source.take_if(request.backward(), &FEATURE_GRADIENTS, sizes)?,
        })
    }
}

/// Buffers of splats in ray space.
pub struct RaySlots<A: Source> {
    /// [visible, 16]
    pub values: A::Block<f32>,
    /// Gradients, if a backward pass follows; [visible, 16].
    pub gradients: Option<A::Block<f32>>,
}

impl<A: Source> RaySlots<A> {
    /// Reserves the buffers, for at least one splat.
    pub fn reserve(source: &A, sizes: &ViewSizes, request: &ViewRequest) -> Result<Self, A::Error> {
        Ok(Self {
            values: source.take(&RAYS, sizes)?,
            gradients: source.take_if(request.backward(), &RAY_GRADIENTS, sizes)?,
        })
    }
}

/// Buffers of the drawn pixels.
pub struct CanvasSlots<A: Source> {
    /// Colours over the background, [height, width, 3].
    pub image: A::Block<f32>,
    /// Number of splats blended in each pixel; [height, width].
    pub blended: Option<A::Block<u32>>,
    /// Sums of weight / depth, per world unit; [height, width].
    pub inverse_depths: Option<A::Block<f32>>,
    /// Sums of weight / depth²; [height, width].
    pub inverse_squares: Option<A::Block<f32>>,
    /// Depth, x and y of the normal, opacity; [height, width, 4].
    pub maps: Option<A::Block<f32>>,
    /// [height, width]
    pub median_depths: Option<A::Block<f32>>,
}

impl<A: Source> CanvasSlots<A> {
    /// Reserves the buffers.
    pub fn reserve(source: &A, sizes: &ViewSizes, request: &ViewRequest) -> Result<Self, A::Error> {
        Ok(Self {
            image: source.take(&IMAGE, sizes)?,
            blended: source.take_if(request.drawn_for == Use::Counts, &BLENDED, sizes)?,
            inverse_depths: source.take_if(request.inverse_depths, &INVERSE_DEPTHS, sizes)?,
            inverse_squares: source.take_if(request.inverse_squares, &INVERSE_SQUARES, sizes)?,
            maps: source.take_if(request.maps, &MAPS, sizes)?,
            median_depths: source.take_if(request.median, &MEDIAN_DEPTHS, sizes)?,
        })
    }

    /// Returns the bytes of all buffers.
    pub fn bytes(&self) -> u64 {
        let Self { inverse_depths, inverse_squares, maps, median_depths, .. } = self;
        let maps = [inverse_depths, inverse_squares, maps, median_depths].map(Taken::bytes);
        self.image.bytes() + self.blended.bytes() + maps.iter().sum::<u64>()
    }
}

/// Gradients of the pixels of all compared maps.
pub struct PixelGradients<A: Source> {
    /// [height, width, 3]
    pub image: A::Block<f32>,
    /// [height, width]
    pub inverse_depths: Option<A::Block<f32>>,
    /// [height, width]
    pub inverse_squares: Option<A::Block<f32>>,
    /// [height, width, 4]
    pub maps: Option<A::Block<f32>>,
    /// [height, width]
    pub median_depths: Option<A::Block<f32>>,
}

impl<A: Source> PixelGradients<A> {
    /// Reserves the buffers. Called when the view is drawn, when a fallback can still free memory: the photograph is
    /// in use while the loss is computed.
    pub fn reserve(source: &A, sizes: &ViewSizes, request: &ViewRequest) -> Result<Self, A::Error> {
        Ok(Self {
            image: source.take(&D_IMAGE, sizes)?,
            inverse_depths: source.take_if(request.inverse_depths, &D_INVERSE_DEPTHS, sizes)?,
            inverse_squares: source.take_if(request.inverse_squares, &D_INVERSE_SQUARES, sizes)?,
            maps: source.take_if(request.maps, &D_MAPS, sizes)?,
            median_depths: source.take_if(request.median, &D_MEDIAN_DEPTHS, sizes)?,
        })
    }

    /// Returns the bytes of all buffers.
    pub fn bytes(&self) -> u64 {
        let Self { inverse_depths, inverse_squares, maps, median_depths, .. } = self;
        let maps = [inverse_depths, inverse_squares, maps, median_depths].map(Taken::bytes);
        self.image.bytes() + maps.iter().sum::<u64>()
    }
}

/// Depths of a view, with which samples are compared.
pub struct Samples<A: Source> {
    /// [height, width]
    pub depths: A::Block<f32>,
    /// Largest depth; `[1]`.
    pub farthest: A::Block<u32>,
}

impl<A: Source> Samples<A> {
    /// Reserves the buffers for a drawn view.
    pub fn reserve(source: &A, sizes: &ViewSizes) -> Result<Self, A::Error> {
        Ok(Self {
            depths: source.take(&SHOWN_DEPTHS, sizes)?,
            farthest: source.take(&FARTHEST_DEPTH, sizes)?,
        })
    }

    /// Returns the bytes of all buffers.
    pub fn bytes(&self) -> u64 {
        self.depths.bytes() + self.farthest.bytes()
    }
}

/// Rows of all visible Gaussians, which are sampled.
pub struct SurfaceRows<A: Source> {
    /// Ascending; `[visible]`.
    pub rows: A::Block<u32>,
    /// Number of rows of each lane block, and the index of its first row.
    pub counts: [A::Block<u32>; 2],
}

impl<A: Source> SurfaceRows<A> {
    /// Reserves the buffers for all visible Gaussians.
    pub fn reserve(source: &A, sizes: &ViewSizes) -> Result<Self, A::Error> {
        Ok(Self {
            rows: source.take(&SURFACE_ROWS, sizes)?,
            counts: source.take_two(&SURFACE_COUNTS, sizes)?,
        })
    }
}

/// Rows of visible Gaussians near the drawn surface, which are sampled.
pub struct NearRows<A: Source> {
    /// Rows, ascending; `[visible]`, the first `total` are valid.
    pub rows: A::Block<u32>,
    /// `[1]`
    pub total: A::Block<u32>,
    /// Bit mask of the near lanes of each lane block.
    pub masks: A::Block<u32>,
    /// Number of rows of each lane block, and the index of its first row.
    pub counts: [A::Block<u32>; 2],
}

impl<A: Source> NearRows<A> {
    /// Reserves the buffers for all visible Gaussians.
    pub fn reserve(source: &A, sizes: &ViewSizes) -> Result<Self, A::Error> {
        Ok(Self {
            rows: source.take(&SURFACE_ROWS, sizes)?,
            total: source.take(&SURFACE_TOTAL, sizes)?,
            masks: source.take(&SURFACE_COUNTS, sizes)?,
            counts: source.take_two(&SURFACE_COUNTS, sizes)?,
        })
    }
}

// The downsampled photograph beside the pixels of its view.

/// Buffers of a downsampled photograph.
pub struct ShrunkSlots<A: Source> {
    /// [height, width, 3]
    pub colors: A::Block<u8>,
    /// [height, width]. Reserved without a mask too: masks are known only with the photograph.
    pub mask: A::Block<u8>,
    /// Inverse depths, if they are compared; [height, width].
    pub depths: Option<A::Block<u16>>,
    /// Normals, which may be compared with the normals of inverse depths; [height, width, 3].
    pub normals: Option<A::Block<i8>>,
}

impl<A: Source> ShrunkSlots<A> {
    /// Reserves the buffers for the view's size; `None` if the photograph has that size.
    pub fn reserve(
        source: &A,
        sizes: &ViewSizes,
        request: &ViewRequest,
    ) -> Result<Option<Self>, A::Error> {
        if request.divisor == Divisor::One {
            return Ok(None);
        }
        Ok(Some(Self {
            colors: source.take(&SMALL_COLORS, sizes)?,
            mask: source.take(&SMALL_MASK, sizes)?,
            depths: source.take_if(request.inverse_depths, &SMALL_DEPTHS, sizes)?,
            normals: source.take_if(request.inverse_depths, &SMALL_NORMALS, sizes)?,
        }))
    }

    /// Returns the bytes of all buffers.
    pub fn bytes(&self) -> u64 {
        self.colors.bytes() + self.mask.bytes() + self.depths.bytes() + self.normals.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Replay;

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
            let Ok(room) = ShrunkSlots::reserve(&Replay::default(), &sizes, &request);
            room.map_or(0, |room| room.bytes())
        };
        let (one, two) = (Divisor::One, Divisor::Two);
        assert_eq!([bytes(one, true), bytes(two, false), bytes(two, true)], [0, 4000, 9000]);
    }
}
