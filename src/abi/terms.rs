//! Terms of the loss, their inputs, the values that they report, and the arguments of the kernels of stage `depth`.

use super::{In, Out};

constants! {
    /// Index of the mean absolute error among the sums of kernels.
    pub const VALUE_L1: u32 = 0;
    /// Index of the mean structural similarity.
    pub const VALUE_SSIM: u32 = 1;
    /// Index of the mean absolute error of the inverse depths.
    pub const VALUE_DEPTH_L1: u32 = 2;
    /// Index of the mean entropy of the opacities.
    pub const VALUE_ENTROPY: u32 = 3;
    /// Index of the mean absolute difference of the densities.
    pub const VALUE_DENSITY: u32 = 4;
    /// Index of the mean absolute difference of the distances.
    pub const VALUE_SDF: u32 = 5;
    /// Index of the mean squared difference of the normals.
    pub const VALUE_NORMAL: u32 = 6;
    /// Index of the mean disagreement of rendered normals with those of the rendered depths.
    pub const VALUE_DN: u32 = 7;
    /// Index of the mean disagreement of patches with another view.
    pub const VALUE_MULTI_VIEW: u32 = 8;
    /// Index of the mean depth distortion.
    pub const VALUE_DISTORTION: u32 = 9;
    /// Index of the mean disagreement of the rendered depths' normals with the photograph's normal map.
    pub const VALUE_NORMAL_MAP: u32 = 10;
    /// Number of reported values.
    pub const TERM_VALUES: u32 = 11;
    /// Index of the squared error, which is measured but belongs to no term.
    pub const SUM_SQUARED: u32 = 11;
    /// Number of sums.
    pub const TERM_SUMS: u32 = 12;

    /// Threads per block of `depth_loss`.
    pub const DEPTH_LOSS_BLOCK: u32 = 256;
    /// Threads per block of `measure_distortion`.
    pub const DISTORTION_BLOCK: u32 = 256;
    /// Depth that is mapped to 0, world units.
    pub const DISTORTION_NEAR: f32 = 0.2;
    /// Depth that is mapped to 1, world units.
    pub const DISTORTION_FAR: f32 = 100.0;
}

abi! {
    /// `depth_loss`: L1 of the inverse depths, and its gradient.
    pub struct DepthLossArgs<'a> {
        /// [h, w]
        pub inverse_depths: In<'a, f32>,
        /// [h, w]
        pub target: In<'a, u16>,
        /// [h, w], or null.
        pub mask: In<'a, u8>,
        /// [h, w]
        pub d_inverse_depths: Out<'a, f32>,
        /// Sum of the absolute differences; added to.
        pub sum: Out<'a, f64>,
        /// Number of pixels.
        pub pixels: u32,
        /// Inverse depth of a step of the target.
        pub scale: f32,
        /// Inverse depth where the target is 0.
        pub offset: f32,
        /// Gradient of |x - y| at a pixel.
        pub d_error: f32,
    }

    /// `measure_distortion`: the depth distortion of each pixel, and its gradients.
    pub struct DistortionArgs<'a> {
        /// [h, w]
        pub inverse_depths: In<'a, f32>,
        /// Blended squared inverse depths; [h, w].
        pub inverse_squares: In<'a, f32>,
        /// [h, w, 4]: depth, x and y of the normal, opacity.
        pub surface: In<'a, f32>,
        /// Mask of the photograph; [h, w], 0 for an excluded pixel; or null.
        pub mask: In<'a, u8>,
        /// Added to; [h, w].
        pub d_inverse_depths: Out<'a, f32>,
        /// [h, w]
        pub d_inverse_squares: Out<'a, f32>,
        /// [h, w, 4]; the last value of a pixel, for the final transmittance, is added to.
        pub d_surface: Out<'a, f32>,
        /// Sum over the pixels; added to.
        pub sum: Out<'a, f64>,
        /// Number of pixels.
        pub pixels: u32,
        /// Gradient of a pixel's term.
        pub d_mean: f32,
    }
}

/// A summand of the loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Term {
    /// (1 - λ) L1 + λ (1 - SSIM) against the photograph.
    Photometric {
        /// λ.
        lambda_dssim: f64,
        /// Weight of masked pixels, 0..1. At 0 both images are black there. Otherwise the photograph has the background's
        /// colour there, and the render's difference from it counts with this weight.
        empty_weight: f64,
    },
    /// Mean absolute error of the inverse depths against the photograph's map. Without a map it has no value and no
    /// gradient.
    InverseDepth,
    /// Mean over all pixels of 1 - cos between the normals of the surface that the inverse depths form and the
    /// photograph's normal map. Pixels without a normal in either, masked pixels, and pixels beside a step of depth
    /// add nothing. Without a map it has no value and no gradient.
    NormalMap,
    /// Mean over all pixels of 1 - cos between the rendered normals and those of the surface that depths form.
    DepthNormal {
        /// Source of the depths, and selection of pixels.
        depths: NormalDepths,
    },
    /// Mean over all pixels of 1 - the correlation of the photograph's patch around the pixel with another view's
    /// photograph, projected by the pixel's median depth and rendered normal. One pixel in four is compared, with
    /// fourfold weight. Uninformative patches add nothing.
    MultiView,
    /// Mean over all pixels of the depth distortion (2D Gaussian splatting, Huang et al. 2024, equation 13). Masked
    /// pixels add nothing.
    Distortion,
    /// Mean entropy of the opacities of visible Gaussians, nats. It drives opacities to 0 or 1.
    Entropy,
    /// Mean absolute difference between the density of the Gaussians and that of a surface.
    Density,
    /// Mean squared difference between a Gaussian's normal and its neighbours'.
    Normal,
    /// Mean absolute difference between the distances from the surface that the density and the view's depths
    /// imply. With this term, only Gaussians near the surface that the depths show are sampled.
    Sdf {
        /// Divisor of the distances, world units.
        unit: f64,
    },
}

/// Depths whose normals are compared with the rendered normals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormalDepths {
    /// Rendered depths of all pixels, as in SuGaR. Pixels at the border, or next to a pixel without a depth, count
    /// as a right angle and have no gradient.
    ///
    /// On an empty background, the term falls if something is drawn there: black Gaussians on black.
    All,
    /// Rendered depths over the opacity. A pixel counts if it and its four neighbours are opaque and not masked,
    /// with no step of depth between them. The selection has no gradient.
    Opaque,
    /// Median depths of the pixels that count for `Opaque`.
    Median,
}

/// Kind of comparison of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// The render with the photograph.
    Photograph,
    /// The Gaussians with the surface that they form (SuGaR, Guédon and Lepetit 2024, section 4.1).
    Surface,
}

/// Stage in which a term is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Pixels of the view, before the backward pass.
    Pixels,
    /// Gaussians or samples near them, after the backward pass.
    Samples,
}

/// A reported value, without the term's weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Key in logs.
    pub name: &'static str,
    /// Index among the sums; logs are in this order.
    pub place: u32,
    /// Set that the value is the mean over.
    pub over: Over,
}

/// Set that a mean is taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The pixels of the view.
    Pixels,
    /// The channels of these pixels.
    Channels,
    /// The windows of the structural similarity, channel by channel.
    Windows,
    /// The visible Gaussians.
    Seen,
    /// The samples.
    Samples,
}

impl Term {
    /// Returns the name in messages.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Photometric { .. } => "photometric",
            Self::InverseDepth => "inverse depth",
            Self::NormalMap => "normal map",
            Self::DepthNormal { .. } => "depth-normal",
            Self::MultiView => "multi-view",
            Self::Distortion => "distortion",
            Self::Entropy => "entropy",
            Self::Density => "density",
            Self::Normal => "normal",
            Self::Sdf { .. } => "SDF",
        }
    }

    /// Returns the reported values, in the order of logs.
    pub const fn values(&self) -> &'static [Value] {
        const fn value(name: &'static str, place: u32, over: Over) -> Value {
            Value { name, place, over }
        }
        match self {
            Self::Photometric { .. } => {
                const {
                    &[
                        value("l1", VALUE_L1, Over::Channels),
                        value("ssim", VALUE_SSIM, Over::Windows),
                    ]
                }
            }
            Self::InverseDepth => const { &[value("depth_l1", VALUE_DEPTH_L1, Over::Pixels)] },
            Self::NormalMap => const { &[value("normals", VALUE_NORMAL_MAP, Over::Pixels)] },
            Self::DepthNormal { .. } => const { &[value("dn", VALUE_DN, Over::Pixels)] },
            Self::MultiView => const { &[value("multi_view", VALUE_MULTI_VIEW, Over::Pixels)] },
            Self::Distortion => const { &[value("distortion", VALUE_DISTORTION, Over::Pixels)] },
            Self::Entropy => const { &[value("entropy", VALUE_ENTROPY, Over::Seen)] },
            Self::Density => const { &[value("density", VALUE_DENSITY, Over::Samples)] },
            Self::Normal => const { &[value("normal", VALUE_NORMAL, Over::Samples)] },
            Self::Sdf { .. } => const { &[value("sdf", VALUE_SDF, Over::Samples)] },
        }
    }

    /// Returns the derivative of [`Self::loss`] by the value at index `place`.
    pub fn d_loss(&self, place: u32) -> f64 {
        match (self, place) {
            (Self::Photometric { lambda_dssim, .. }, VALUE_L1) => 1.0 - lambda_dssim,
            (Self::Photometric { lambda_dssim, .. }, VALUE_SSIM) => -lambda_dssim,
            _ => 1.0,
        }
    }

    /// Returns the term's loss from the means of all values.
    pub fn loss(&self, means: &Means) -> f64 {
        match self {
            Self::Photometric { lambda_dssim, .. } => {
                let [l1, ssim] = [VALUE_L1, VALUE_SSIM].map(|place| means[place as usize]);
                (1.0 - lambda_dssim) * l1 + lambda_dssim * (1.0 - ssim)
            }
            _ => self.values().iter().map(|value| means[value.place as usize]).sum(),
        }
    }

    /// Returns the inputs besides colours.
    pub const fn needs(&self) -> Inputs {
        match self {
            Self::Photometric { .. } | Self::Entropy => Inputs::NONE,
            Self::InverseDepth | Self::NormalMap => Inputs { inverse_depths: true, ..Inputs::NONE },
            Self::DepthNormal { depths } => {
                let median = matches!(depths, NormalDepths::Median);
                Inputs { maps: true, median, ..Inputs::NONE }
            }
            Self::MultiView => {
                Inputs { maps: true, median: true, other_view: true, ..Inputs::NONE }
            }
            Self::Distortion => {
                Inputs { inverse_depths: true, inverse_squares: true, maps: true, ..Inputs::NONE }
            }
            Self::Density | Self::Normal => {
                Inputs { neighbours: true, samples: true, ..Inputs::NONE }
            }
            Self::Sdf { .. } => {
                Inputs { maps: true, neighbours: true, samples: true, ..Inputs::NONE }
            }
        }
    }

    /// Returns the stage of evaluation. The gradient of [`Term::Sdf`] by the rendered depths is computed at the
    /// pixels.
    pub const fn at(&self) -> At {
        match self {
            Self::Entropy | Self::Density | Self::Normal | Self::Sdf { .. } => At::Samples,
            _ => At::Pixels,
        }
    }

    /// Returns the kind of comparison.
    pub const fn topic(&self) -> Topic {
        match self {
            Self::Photometric { .. } | Self::InverseDepth | Self::NormalMap => Topic::Photograph,
            _ => Topic::Surface,
        }
    }
}

/// Values of all terms by index; 0 for terms that are off.
pub type Means = [f64; TERM_VALUES as usize];

/// A term and its weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weighted {
    /// The term.
    pub term: Term,
    /// Weight in the loss; 0 turns the term off.
    pub weight: f64,
}

/// Random samples of the visible Gaussians, uniform and with replacement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleRule {
    /// Number of samples; at 0 the terms that need them are off.
    pub count: u32,
    /// Seed of the positions.
    pub seed: u64,
    /// Number of finished iterations, which varies the positions.
    pub iteration: u32,
}

/// The terms of one iteration's loss.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Terms {
    list: Vec<Weighted>,
    /// Samples of the terms at [`At::Samples`].
    pub samples: SampleRule,
}

impl Terms {
    /// Returns the loss of 3D Gaussian splatting: [`Term::Photometric`] alone.
    pub fn photometric(lambda_dssim: f64) -> Self {
        Self::default().with(Term::Photometric { lambda_dssim, empty_weight: 0.0 }, 1.0)
    }

    /// Returns the weight of masked pixels in the colours' term.
    pub fn empty_weight(&self) -> f64 {
        self.active()
            .find_map(|weighted| match weighted.term {
                Term::Photometric { empty_weight, .. } => Some(empty_weight),
                _ => None,
            })
            .unwrap_or(0.0)
    }

    /// Returns the terms with another one, which replaces one of its kind.
    #[must_use]
    pub fn with(mut self, term: Term, weight: f64) -> Self {
        self.add(term, weight);
        self
    }

    /// Adds a term, which replaces one of its kind.
    pub fn add(&mut self, term: Term, weight: f64) {
        let kind = std::mem::discriminant(&term);
        self.list.retain(|weighted| std::mem::discriminant(&weighted.term) != kind);
        self.list.push(Weighted { term, weight });
    }

    /// Returns the terms with other samples.
    #[must_use]
    pub fn sampled_by(mut self, samples: SampleRule) -> Self {
        self.samples = samples;
        self
    }

    /// Returns the terms that are on, in the order in which they were added.
    pub fn active(&self) -> impl Iterator<Item = &Weighted> {
        let has_samples = self.samples.count > 0;
        self.list.iter().filter(move |weighted| {
            weighted.weight != 0.0 && (has_samples || !weighted.term.needs().samples)
        })
    }

    /// Returns the active terms of a stage.
    pub fn active_at(&self, at: At) -> impl Iterator<Item = &Weighted> {
        self.active().filter(move |weighted| weighted.term.at() == at)
    }

    /// True if a term of this kind of comparison is on.
    pub fn has_topic(&self, topic: Topic) -> bool {
        self.active().any(|weighted| weighted.term.topic() == topic)
    }

    /// Returns the union of the terms' inputs.
    pub fn needs(&self) -> Inputs {
        self.active().fold(Inputs::NONE, |needs, weighted| needs.and(weighted.term.needs()))
    }

    /// Returns the weight of the term that reports the value at index `place`; 0 if it is off.
    pub fn weight(&self, place: u32) -> f64 {
        let reports =
            |weighted: &&Weighted| weighted.term.values().iter().any(|value| value.place == place);
        self.active().find(reports).map_or(0.0, |weighted| weighted.weight)
    }

    /// Returns the unit of [`Term::Sdf`] if it is on.
    pub fn sdf_unit(&self) -> Option<f64> {
        self.active().find_map(|weighted| match weighted.term {
            Term::Sdf { unit } => Some(unit),
            _ => None,
        })
    }
}

/// Set of inputs of terms besides rendered colours.
#[expect(clippy::struct_excessive_bools, reason = "a set, of which any may be there")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    /// Inverse depths of the view.
    pub inverse_depths: bool,
    /// Blended squared inverse depths.
    pub inverse_squares: bool,
    /// Maps of the view's depths and normals.
    pub maps: bool,
    /// Median depths of the view.
    pub median: bool,
    /// Another view of the scene with its photograph.
    pub other_view: bool,
    /// Nearest neighbours of all Gaussians.
    pub neighbours: bool,
    /// Samples of the visible Gaussians.
    pub samples: bool,
}

impl Inputs {
    /// No inputs besides colours.
    pub const NONE: Self = Self {
        inverse_depths: false,
        inverse_squares: false,
        maps: false,
        median: false,
        other_view: false,
        neighbours: false,
        samples: false,
    };

    /// Returns the union of two sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            inverse_depths: self.inverse_depths || other.inverse_depths,
            inverse_squares: self.inverse_squares || other.inverse_squares,
            maps: self.maps || other.maps,
            median: self.median || other.median,
            other_view: self.other_view || other.other_view,
            neighbours: self.neighbours || other.neighbours,
            samples: self.samples || other.samples,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Term; 10] = [
        Term::Photometric { lambda_dssim: 0.2, empty_weight: 0.1 },
        Term::InverseDepth,
        Term::NormalMap,
        Term::DepthNormal { depths: NormalDepths::All },
        Term::MultiView,
        Term::Distortion,
        Term::Entropy,
        Term::Density,
        Term::Normal,
        Term::Sdf { unit: 0.1 },
    ];

    fn all() -> Terms {
        let mut terms = Terms::default();
        ALL.iter().for_each(|&term| terms.add(term, 0.5));
        terms.sampled_by(SampleRule { count: 3, seed: 1, iteration: 1 })
    }

    #[test]
    fn derivatives_match_the_change_of_the_loss() {
        for term in ALL {
            for value in term.values() {
                let mut means = [0.25; TERM_VALUES as usize];
                let before = term.loss(&means);
                means[value.place as usize] += 1.0;
                // The loss is linear, so only rounding remains.
                let change = term.loss(&means) - before;
                assert!((change - term.d_loss(value.place)).abs() < 1e-12, "{}", value.name);
            }
        }
    }

    #[test]
    fn values_are_means_over_a_set_of_their_stage() {
        for term in ALL {
            for value in term.values() {
                let of_pixels = matches!(value.over, Over::Pixels | Over::Channels | Over::Windows);
                assert_eq!(of_pixels, term.at() == At::Pixels, "{}", value.name);
            }
        }
    }

    #[test]
    fn values_have_distinct_indices_and_names() {
        let values: Vec<Value> = ALL.iter().flat_map(|term| term.values()).copied().collect();
        assert_eq!(values.len(), TERM_VALUES as usize);
        for (i, value) in values.iter().enumerate() {
            assert!(value.place < TERM_VALUES);
            let same = |other: &&Value| other.place == value.place || other.name == value.name;
            assert!(values[i + 1..].iter().find(same).is_none(), "{value:?}");
        }
    }

    #[test]
    fn terms_without_weight_or_samples_are_off() {
        let mut terms = all();
        assert_eq!(terms.active().count(), ALL.len());
        let every = Inputs {
            inverse_depths: true,
            inverse_squares: true,
            maps: true,
            median: true,
            other_view: true,
            neighbours: true,
            samples: true,
        };
        assert_eq!(terms.needs(), every);
        terms.samples.count = 0;
        let left: Vec<&str> = terms.active().map(|weighted| weighted.term.name()).collect();
        let of_maps = ["photometric", "inverse depth", "normal map"];
        let of_surfaces = ["depth-normal", "multi-view", "distortion", "entropy"];
        assert_eq!(left, [&of_maps[..], &of_surfaces].concat());
        assert!(!terms.needs().neighbours && terms.sdf_unit().is_none());
        terms.add(Term::DepthNormal { depths: NormalDepths::Opaque }, 0.0);
        terms.add(Term::MultiView, 0.0);
        terms.add(Term::Distortion, 0.0);
        assert_eq!(terms.needs(), Inputs { inverse_depths: true, ..Inputs::NONE });
        assert_eq!((terms.weight(VALUE_DN), terms.weight(VALUE_SSIM)), (0.0, 0.5));
    }

    #[test]
    fn added_term_replaces_one_of_its_kind() {
        let terms = all().with(Term::Sdf { unit: 0.7 }, 0.25);
        assert_eq!(terms.active().count(), ALL.len());
        assert_eq!((terms.weight(VALUE_SDF), terms.sdf_unit()), (0.25, Some(0.7)));
    }
}
