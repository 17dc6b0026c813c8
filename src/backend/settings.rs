//! How a view is drawn, and what a frame has beside its colours.

use serde::{Deserialize, Serialize};

use super::{Compensation, DeviceError};
use crate::abi::terms::Inputs;
use crate::layout::Records;
use crate::math::Divisor;
use crate::math::splat::{DILATION_PX2, PlaceGradients};

/// What a Gaussian is on the screen.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum Footprint {
    /// An ellipse, to which its projection is linearised (EWA splatting, Zwicker et al. 2001), widened by
    /// a filter so that none falls between the centres of pixels.
    Ellipse {
        /// Variance added to every splat along both axes, px².
        variance_px2: f64,
        /// Whether opacity falls as the splat is widened, so that it adds up to as much as before: the
        /// 2D filter of Mip-Splatting (Yu et al. 2024, section 4.2).
        compensates: bool,
    },
    /// A disc that rays meet: a surfel, which its first two axes span and whose third scale is not looked
    /// at (2D Gaussian splatting, Huang et al. 2024).
    Surfel,
    /// Triangles between vertices: a row is a vertex, whose scales and rotation are not drawn, and the model
    /// has faces ([`super::Faces`]; MeshSplatting, Held et al. 2025).
    Triangle(Window),
}

/// How a triangle falls off from its middle to its edges, how it is sampled, and what its gradients follow.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Window {
    /// s in (1 - t)^s: 1 is a pyramid, next to 0 a solid triangle.
    pub exponent: f64,
    /// The opacity that every vertex has at least: of a logit w it is floor + (1 - floor) sigmoid(w).
    pub opacity_floor: f64,
    /// Samples along each side of a pixel, 1 to [`MOST_SAMPLES`], whose mean the pixel is.
    pub samples: u32,
    /// Radius of the inscribed circle above which a triangle is drawn, px.
    pub inradius_min_px: f64,
    /// Width of the strips along edges in which gradients take the mean slope of the opacity, px. With 0 each
    /// sample takes its own slope; edges of solid triangles then have next to no gradient.
    pub strip_px: f64,
    /// What gradients of the vertices' places follow.
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

/// Most samples along a side of a pixel.
pub const MOST_SAMPLES: u32 = 4;

impl Footprint {
    /// As in 3D Gaussian splatting (Kerbl et al. 2023): widened by 0.3 px² and not compensated.
    pub const DILATED: Self = Self::Ellipse { variance_px2: DILATION_PX2, compensates: false };

    /// What the records of its splats hold.
    pub const fn records(self) -> Records {
        match self {
            Self::Ellipse { .. } => Records::Ellipses,
            Self::Surfel => Records::Surfels,
            Self::Triangle(_) => Records::Triangles,
        }
    }

    /// Fails where surfels are asked for what only volumes have.
    pub(crate) fn require_volumes(self, what: &'static str) -> Result<(), DeviceError> {
        match self {
            Self::Ellipse { .. } => Ok(()),
            Self::Surfel => Err(DeviceError::Unsupported { primitives: "surfels", what }),
            Self::Triangle(_) => Err(DeviceError::Unsupported { primitives: "triangles", what }),
        }
    }

    /// Fails where triangles are asked for what only Gaussians have, as ellipses or as surfels.
    pub(crate) fn require_gaussians(self, what: &'static str) -> Result<(), DeviceError> {
        match self {
            Self::Ellipse { .. } | Self::Surfel => Ok(()),
            Self::Triangle(_) => self.require_volumes(what),
        }
    }
}

/// What surfels lack, as messages call it.
pub(crate) const MEDIAN_GRADIENTS: &str = "losses of median depths";
/// The same of light on its way to places.
pub(crate) const TRANSMITTANCES: &str = "transmittances between places";

/// What density control gathers of the views that it observes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Statistics {
    /// Norms of the gradients of the splats' centres, each summed over the pixels first (Kerbl et
    /// al. 2023).
    Norms,
    /// Norms of sums of the absolute values that the pixels give (AbsGS, Ye et al. 2024).
    AbsoluteNorms,
    /// How much the pixels of each view disagree about the opacity: with g what a pixel gives to the gradient of
    /// its logarithm, the sum over the pixels of (g - mean g)². The views that blend it are counted.
    Disagreement,
    /// The norms, and beside them sums of the absolute values over both axes (GOF, Yu et al. 2024).
    Both,
}

/// How a view is drawn.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct RenderSettings {
    /// Degree of the spherical harmonics in use, at most the model's.
    pub sh_degree: u32,
    /// Colour behind everything, 0..1.
    pub background: [f32; 3],
    /// Depth that a Gaussian must exceed to be drawn, world units along the view axis.
    pub near: f64,
    /// What Gaussians are on the screen.
    pub footprint: Footprint,
    /// Depth above which splats report their whole gradient to density control; nearer ones report
    /// less, by the square of their share of this depth (Pixel-GS, Zhang et al. 2024). World units
    /// along the view axis; at 0 all count alike.
    pub fade_depth: f64,
}

impl RenderSettings {
    /// A view on black as 3D Gaussian splatting draws it.
    pub const DEFAULT: Self = Self {
        sh_degree: 0,
        background: [0.0; 3],
        near: 0.01,
        footprint: Footprint::DILATED,
        fade_depth: 0.0,
    };
}

/// What a shown view has beside its colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extra {
    /// Nothing.
    #[default]
    None,
    /// How many Gaussians each pixel is blended of.
    Counts,
    /// Maps of what is drawn.
    Maps {
        /// The inverse depths.
        inverse_depths: bool,
        /// The depths and normals of the surface.
        surface: bool,
        /// The median depths.
        median: bool,
    },
}

/// What a view is drawn for that is shown or measured, and not trained on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// What it has beside its colours.
    pub extra: Extra,
    /// Whether it has room for colours that are corrected ([`super::Appearance::correct`]).
    pub corrects_colors: bool,
}

impl Look {
    /// The image alone.
    pub const IMAGE: Self = Self { extra: Extra::None, corrects_colors: false };

    /// The image with the depths and normals of the surface.
    pub const SURFACE: Self = Self {
        extra: Extra::Maps { inverse_depths: false, surface: true, median: false },
        corrects_colors: false,
    };

    /// The same with the median depths.
    pub const MEDIAN: Self = Self {
        extra: Extra::Maps { inverse_depths: false, surface: true, median: true },
        corrects_colors: false,
    };

    /// The image with the inverse depths.
    pub const INVERSE_DEPTHS: Self = Self {
        extra: Extra::Maps { inverse_depths: true, surface: false, median: false },
        corrects_colors: false,
    };

    /// The image, and how many Gaussians each pixel is blended of.
    pub const COUNTS: Self = Self { extra: Extra::Counts, corrects_colors: false };
}

/// What a view is drawn for that is trained on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// What the backward pass adds to the statistics of density control.
    pub observe: Option<Statistics>,
    /// What the terms of the loss need.
    pub inputs: Inputs,
    /// What changes the colours before they are compared.
    pub compensation: Option<Compensation>,
    /// By how much it is smaller than its photograph, which is made smaller for the comparison.
    pub divisor: Divisor,
}

/// How the stages of a device draw a view: the settings with what the frame is for.
#[expect(clippy::struct_excessive_bools, reason = "a set, of which any may be there")]
#[derive(Clone, Copy, Debug)]
pub struct Drawing {
    pub(crate) sh_degree: u32,
    pub(crate) background: [f32; 3],
    pub(crate) near: f64,
    pub(crate) footprint: Footprint,
    pub(crate) fade_depth: f64,
    /// Whether the Gaussians that each pixel is blended of are counted.
    pub(crate) counts: bool,
    pub(crate) inverse_depths: bool,
    /// Whether the squares of inverse depths are drawn, too.
    pub(crate) inverse_squares: bool,
    /// Whether the depths and normals of the surface are drawn.
    pub(crate) surface: bool,
    /// Whether the median depths are found.
    pub(crate) median: bool,
    /// Whether a backward pass follows.
    pub(crate) trains: bool,
    /// What that adds to the statistics of density control.
    pub(crate) observe: Option<Statistics>,
    /// Room for changed colours.
    pub(crate) colors: Option<ColorRoom>,
    /// By how much it is smaller than its photograph.
    pub(crate) divisor: Divisor,
}

/// What room for changed colours is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColorRoom {
    /// For those that a table changes, and the table's gradient.
    Learned(Compensation),
    /// For those that fit the photograph best.
    Corrected,
}

impl Drawing {
    /// A view on black that is shown.
    #[cfg(test)]
    pub(crate) const DEFAULT: Self = Self::plain(&RenderSettings::DEFAULT);

    /// A view that is shown.
    pub(crate) fn shown(settings: &RenderSettings, look: Look) -> Self {
        let (inverse_depths, surface, median) = match look.extra {
            Extra::None | Extra::Counts => (false, false, false),
            Extra::Maps { inverse_depths, surface, median } => (inverse_depths, surface, median),
        };
        Self {
            counts: look.extra == Extra::Counts,
            inverse_depths,
            surface,
            median,
            colors: look.corrects_colors.then_some(ColorRoom::Corrected),
            ..Self::plain(settings)
        }
    }

    /// A view that is trained on.
    pub(crate) fn trained(settings: &RenderSettings, wants: &Wants) -> Self {
        Self {
            inverse_depths: wants.inputs.inverse_depths,
            inverse_squares: wants.inputs.inverse_squares,
            surface: wants.inputs.maps,
            median: wants.inputs.median,
            trains: true,
            observe: wants.observe,
            colors: wants.compensation.map(ColorRoom::Learned),
            divisor: wants.divisor,
            ..Self::plain(settings)
        }
    }

    /// What terms may use of the frame.
    pub(crate) fn inputs(&self) -> Inputs {
        let &Self { inverse_depths, inverse_squares, surface: maps, median, .. } = self;
        Inputs { inverse_depths, inverse_squares, maps, median, ..Inputs::NONE }
    }

    /// Fails where something is asked for that is drawn of surfels alone. An ellipse has one depth for
    /// all of its pixels, of which no spread along a ray says anything.
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

    const fn plain(settings: &RenderSettings) -> Self {
        let &RenderSettings { sh_degree, background, near, footprint, fade_depth } = settings;
        Self {
            sh_degree,
            background,
            near,
            footprint,
            fade_depth,
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
