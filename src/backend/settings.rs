//! Settings of a drawn view, and the maps of its frame.

use serde::{Deserialize, Serialize};

use super::{Compensation, DeviceError};
use crate::abi::terms::Inputs;
use crate::dataset::View;
use crate::layout::Records;
use crate::math::splat::{DILATION_PX2, PlaceGradients, Viewpoint};
use crate::math::{Divisor, Real};

/// Shape of a primitive on the screen.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum Footprint {
    /// An ellipse by a linearised projection (EWA splatting, Zwicker et al. 2001), widened by a filter so that no
    /// ellipse falls between the centres of pixels.
    Ellipse {
        /// Variance added to every splat along both axes, px².
        variance_px2: f64,
        /// True if the opacity falls as the splat is widened, so that its sum stays: the 2D filter of Mip-Splatting
        /// (Yu et al. 2024, section 4.2).
        compensates: bool,
    },
    /// A surfel: a disc that rays meet, spanned by the first two axes. The third scale is ignored (2D Gaussian
    /// splatting, Huang et al. 2024).
    Surfel,
    /// Triangles between vertices (MeshSplatting, Held et al. 2025). A row is a vertex, whose scales and rotation are
    /// not drawn, and the model has faces ([`super::Faces`]).
    Triangle(Window),
}

/// Falloff, sampling and gradients of triangles.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Window {
    /// s in (1 - t)^s, where t is 0 in the middle and 1 at the edges: 1 is a pyramid, values near 0 a solid triangle.
    pub exponent: f64,
    /// Smallest opacity of a vertex. The opacity of a logit w is floor + (1 - floor) sigmoid(w).
    pub opacity_floor: f64,
    /// Samples along each side of a pixel, 1 to [`MOST_SAMPLES`]. The pixel is their mean.
    pub samples: u32,
    /// Radius of the inscribed circle above which a triangle is drawn, px.
    pub inradius_min_px: f64,
    /// Width of the strips along edges in which gradients take the mean slope of the opacity, px. With 0 each sample
    /// takes its own slope, so that edges of solid triangles have almost no gradient.
    pub strip_px: f64,
    /// Gradients of the vertices' positions.
    pub gradients: PlaceGradients,
}

impl Window {
    /// Solid triangles, opaque, one sample a pixel.
    pub const SOLID: Self = Self {
        exponent: 1e-4,
        opacity_floor: 0.9999,
        samples: 1,
        inradius_min_px: 0.01,
        strip_px: 1.0,
        gradients: PlaceGradients::All,
    };
}

/// Largest number of samples along a side of a pixel.
pub const MOST_SAMPLES: u32 = 4;

impl Footprint {
    /// The ellipse of 3D Gaussian splatting (Kerbl et al. 2023): widened by 0.3 px² and not compensated.
    pub const DILATED: Self = Self::Ellipse { variance_px2: DILATION_PX2, compensates: false };

    /// Returns the format of the splats' records.
    pub const fn records(self) -> Records {
        match self {
            Self::Ellipse { .. } => Records::Ellipses,
            Self::Surfel => Records::Surfels,
            Self::Triangle(_) => Records::Triangles,
        }
    }

    pub(crate) fn require_volumes(self, what: &'static str) -> Result<(), DeviceError> {
        match self {
            Self::Ellipse { .. } => Ok(()),
            Self::Surfel => Err(DeviceError::Unsupported { primitives: "surfels", what }),
            Self::Triangle(_) => Err(DeviceError::Unsupported { primitives: "triangles", what }),
        }
    }

    pub(crate) fn require_gaussians(self, what: &'static str) -> Result<(), DeviceError> {
        match self {
            Self::Ellipse { .. } | Self::Surfel => Ok(()),
            Self::Triangle(_) => self.require_volumes(what),
        }
    }
}

/// Name of the losses that surfels lack, in messages.
pub(crate) const MEDIAN_GRADIENTS: &str = "losses of median depths";
/// Name of the light between positions and a camera, in messages.
pub(crate) const TRANSMITTANCES: &str = "transmittances between places";

/// Statistics of the observed views for density control.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Statistics {
    /// Norms of the gradients of the splats' centres, each summed over the pixels first (Kerbl et al. 2023).
    Norms,
    /// Norms of the sums of the pixels' absolute values (AbsGS, Ye et al. 2024).
    AbsoluteNorms,
    /// Disagreement of the pixels of each view about the opacity: the sum over the pixels of (g - mean g)², where g
    /// is a pixel's gradient of the opacity's logarithm. Only views that blend the splat are counted.
    Disagreement,
    /// The norms, and beside them the sums of the absolute values over both axes (GOF, Yu et al. 2024).
    Both,
}

/// Settings of a drawn view.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct RenderSettings {
    /// Degree of the spherical harmonics in use, at most the model's.
    pub sh_degree: u32,
    /// Colour of the background, 0..1.
    pub background: [f32; 3],
    /// Depth that a Gaussian must exceed to be drawn, world units along the view axis.
    pub near: f64,
    /// Shape of the primitives on the screen.
    pub footprint: Footprint,
    /// Depth above which splats report their whole gradient to density control, world units along the view axis.
    /// Nearer splats report less, by the square of their share of this depth (Pixel-GS, Zhang et al. 2024). With 0
    /// all report the whole gradient.
    pub fade_depth: f64,
    /// True if Gaussians whose centres lie more than the image's width or height outside the image are not drawn. Their
    /// projection is inaccurate. Other primitives are drawn in either case.
    pub cuts_sides: bool,
}

impl RenderSettings {
    /// Settings of 3D Gaussian splatting on black.
    pub const DEFAULT: Self = Self {
        sh_degree: 0,
        background: [0.0; 3],
        near: 0.01,
        footprint: Footprint::DILATED,
        fade_depth: 0.0,
        cuts_sides: false,
    };
}

/// Maps beside the colours of a shown view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extra {
    /// Nothing.
    #[default]
    None,
    /// Number of blended Gaussians of each pixel.
    Counts,
    /// A set of maps.
    Maps {
        /// True if inverse depths are drawn.
        inverse_depths: bool,
        /// True if depths and normals of the surface are drawn.
        surface: bool,
        /// True if median depths are drawn.
        median: bool,
    },
}

/// Request for a view that is shown or measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenderRequest {
    /// Maps beside the colours.
    pub extra: Extra,
    /// True if the frame has a buffer for corrected colours ([`super::Appearance::correct`]).
    pub corrects_colors: bool,
}

impl RenderRequest {
    /// The image alone.
    pub const IMAGE: Self = Self::of(Extra::None);

    /// The image with the depths and normals of the surface.
    pub const SURFACE: Self =
        Self::of(Extra::Maps { inverse_depths: false, surface: true, median: false });

    /// The image with the depths and normals of the surface and the median depths.
    pub const MEDIAN: Self =
        Self::of(Extra::Maps { inverse_depths: false, surface: true, median: true });

    /// The image with the inverse depths.
    pub const INVERSE_DEPTHS: Self =
        Self::of(Extra::Maps { inverse_depths: true, surface: false, median: false });

    /// The image with the number of blended Gaussians of each pixel.
    pub const COUNTS: Self = Self::of(Extra::Counts);

    const fn of(extra: Extra) -> Self {
        Self { extra, corrects_colors: false }
    }
}

/// Request for a view that is trained on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrainRequest {
    /// Statistics of density control that the backward pass updates.
    pub observe: Option<Statistics>,
    /// Maps that the terms of the loss need.
    pub inputs: Inputs,
    /// Colour change that is applied before the comparison.
    pub compensation: Option<Compensation>,
    /// Ratio of the photograph's size to the view's. The photograph is scaled down for the comparison.
    pub divisor: Divisor,
}

/// Settings and request of a drawn view, for the stages of a device.
#[expect(clippy::struct_excessive_bools, reason = "a set, of which any may be there")]
#[derive(Clone, Copy, Debug)]
pub struct DrawSettings {
    pub(crate) sh_degree: u32,
    pub(crate) background: [f32; 3],
    pub(crate) near: f64,
    pub(crate) footprint: Footprint,
    pub(crate) fade_depth: f64,
    pub(crate) cuts_sides: bool,
    /// True if the blended Gaussians of each pixel are counted.
    pub(crate) counts: bool,
    pub(crate) inverse_depths: bool,

    pub(crate) inverse_squares: bool,

    pub(crate) surface: bool,

    pub(crate) median: bool,

    pub(crate) trains: bool,
    /// Statistics that the backward pass updates.
    pub(crate) observe: Option<Statistics>,

    pub(crate) colors: Option<ColorRoom>,
    /// Ratio of the photograph's size to the view's.
    pub(crate) divisor: Divisor,
}

/// Use of the buffer for changed colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColorRoom {
    /// Colours changed by a table, and the table's gradient.
    Learned(Compensation),
    /// Colours fitted to the photograph.
    Corrected,
}

impl DrawSettings {
    #[cfg(test)]
    pub(crate) const DEFAULT: Self = Self::plain(&RenderSettings::DEFAULT);

    pub(crate) fn shown(settings: &RenderSettings, request: RenderRequest) -> Self {
        let (inverse_depths, surface, median) = match request.extra {
            Extra::None | Extra::Counts => (false, false, false),
            Extra::Maps { inverse_depths, surface, median } => (inverse_depths, surface, median),
        };
        Self {
            counts: request.extra == Extra::Counts,
            inverse_depths,
            surface,
            median,
            colors: request.corrects_colors.then_some(ColorRoom::Corrected),
            ..Self::plain(settings)
        }
    }

    pub(crate) fn trained(settings: &RenderSettings, request: &TrainRequest) -> Self {
        Self {
            inverse_depths: request.inputs.inverse_depths,
            inverse_squares: request.inputs.inverse_squares,
            surface: request.inputs.maps,
            median: request.inputs.median,
            trains: true,
            observe: request.observe,
            colors: request.compensation.map(ColorRoom::Learned),
            divisor: request.divisor,
            ..Self::plain(settings)
        }
    }

    pub(crate) fn inputs(&self) -> Inputs {
        let &Self { inverse_depths, inverse_squares, surface: maps, median, .. } = self;
        Inputs { inverse_depths, inverse_squares, maps, median, ..Inputs::NONE }
    }

    /// Fails if the footprint cannot draw a requested map. An ellipse has one depth for all of its pixels, so that
    /// its squares of inverse depths say nothing of the spread along a ray.
    pub(crate) fn check_footprint(&self) -> Result<(), DeviceError> {
        match self.footprint {
            Footprint::Ellipse { .. } | Footprint::Triangle(_) if self.inverse_squares => {
                Err(DeviceError::NeedsSurfels { what: "squares of inverse depths" })
            }
            Footprint::Triangle(_) if self.surface || self.median || self.counts => {
                self.footprint.require_volumes("maps of depths and normals, and counts")
            }
            Footprint::Ellipse { .. } | Footprint::Surfel | Footprint::Triangle(_) => Ok(()),
        }
    }

    /// Converts a view to the precision of the computation.
    pub(crate) fn viewpoint<R: Real>(&self, view: &View) -> Viewpoint<R> {
        let &Self { near, footprint, cuts_sides, .. } = self;
        Viewpoint { cuts_sides, ..viewpoint(view, near, footprint) }
    }

    const fn plain(settings: &RenderSettings) -> Self {
        let &RenderSettings { sh_degree, background, near, footprint, fade_depth, cuts_sides } =
            settings;
        Self {
            sh_degree,
            background,
            near,
            footprint,
            fade_depth,
            cuts_sides,
            counts: false,
            inverse_depths: false,
            inverse_squares: false,
            surface: false,
            median: false,
            trains: false,
            observe: None,
            colors: None,
            divisor: Divisor::One,
        }
    }
}

/// Converts a view to the precision of the computation. `near` is in world units. The filter of ellipses is part of
/// the result; other footprints have none.
pub(super) fn viewpoint<R: Real>(view: &View, near: f64, footprint: Footprint) -> Viewpoint<R> {
    let (variance_px2, compensates) = match footprint {
        Footprint::Ellipse { variance_px2, compensates } => (variance_px2, compensates),
        Footprint::Surfel | Footprint::Triangle(_) => (0.0, false),
    };
    Viewpoint {
        rotation: view.pose.rotation.map(|row| row.map(R::of)),
        translation: view.pose.translation.map(R::of),
        centre_world: view.pose.centre_world().map(R::of),
        focal_px: view.camera.focal_px.map(R::of),
        centre_px: view.camera.centre_px.map(R::of),
        size: [view.camera.width, view.camera.height],
        near: R::of(near),
        variance_px2: R::of(variance_px2),
        compensates,
        cuts_sides: false,
    }
}
