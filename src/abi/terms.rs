//! The vocabulary of the loss: its terms, what each of them needs, and the values that it reports.

mod inputs;

pub use inputs::Inputs;

constants! {
    /// Where the value of a term stands among the sums that kernels add up: the mean absolute error.
    pub const VALUE_L1: u32 = 0;
    /// The mean structural similarity.
    pub const VALUE_SSIM: u32 = 1;
    /// The mean absolute error of the inverse depths.
    pub const VALUE_DEPTH_L1: u32 = 2;
    /// The mean entropy of the opacities.
    pub const VALUE_ENTROPY: u32 = 3;
    /// The mean absolute difference of the densities.
    pub const VALUE_DENSITY: u32 = 4;
    /// The mean absolute difference of the distances.
    pub const VALUE_SDF: u32 = 5;
    /// The mean squared difference of the normals.
    pub const VALUE_NORMAL: u32 = 6;
    /// The mean disagreement of drawn normals and those of the drawn depths.
    pub const VALUE_DN: u32 = 7;
    /// The mean disagreement of patches and of what another view has in their place.
    pub const VALUE_MULTI_VIEW: u32 = 8;
    /// The mean spread of what a pixel is blended of along its ray.
    pub const VALUE_DISTORTION: u32 = 9;
    /// The mean disagreement of the normals of drawn depths and of those of the photograph's map.
    pub const VALUE_NORMAL_MAP: u32 = 10;
    /// Number of values of terms.
    pub const TERM_VALUES: u32 = 11;
    /// The squared error, which is measured but is a value of no term.
    pub const SUM_SQUARED: u32 = 11;
    /// Number of sums.
    pub const TERM_SUMS: u32 = 12;
}

/// A summand of the loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Term {
    /// (1 - λ) L1 + λ (1 - SSIM) against the photograph.
    Photometric {
        /// λ.
        lambda_dssim: f64,
    },
    /// Mean absolute error of the inverse depths against the photograph's map of them. Without such a
    /// map it has no value and no gradient.
    InverseDepth,
    /// Mean over all pixels of 1 - cos between the normals of the surface that the inverse depths make up and
    /// those of the photograph's map. Pixels that have no normal, there or here, that the photograph's mask
    /// excludes, or that lie beside a step of depth add nothing. Without such a map it has no value and no
    /// gradient.
    NormalMap,
    /// Mean over all pixels of 1 - cos between the drawn normals and those of the surface that depths
    /// make up.
    DepthNormal {
        /// Which depths, and of which pixels.
        depths: NormalDepths,
    },
    /// Mean over all pixels of 1 - the correlation between the patch of the photograph around the pixel
    /// and what another view's photograph has where the pixel's median depth and drawn normal put it. One
    /// pixel in four is looked at and stands for all four; one whose patch says nothing adds nothing.
    MultiView,
    /// Mean over all pixels of how far apart along the ray lies what the pixel is blended of (depth
    /// distortion; 2D Gaussian splatting, Huang et al. 2024, equation 13). Pixels that the photograph's
    /// mask excludes add nothing.
    Distortion,
    /// Mean entropy of the opacities of the Gaussians that the view sees, nats. It drives them to 0 or 1.
    Entropy,
    /// Mean absolute difference between the density of the Gaussians and that of a surface.
    Density,
    /// Mean squared difference between a Gaussian's normal and its neighbours'.
    Normal,
    /// Mean absolute difference between the distances from the surface by the Gaussians' density and
    /// by the view's depths. With it, samples are taken only of Gaussians near the surface that the
    /// depths show.
    Sdf {
        /// What these distances are divided by, world units.
        unit: f64,
    },
}

/// The depths whose normals the drawn ones are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormalDepths {
    /// Those drawn, of all pixels, as SuGaR has it. A pixel of the image's border, and one without depths
    /// next to it, counts like a right angle and has no gradient.
    ///
    /// In an empty background it falls when something is drawn there: black Gaussians on black.
    All,
    /// Those drawn, over the opacity. A pixel counts where it and the four beside it are opaque and no
    /// mask of the photograph excludes them, and where no step of depth is between them. Any other adds
    /// nothing. Which pixels count has no gradient.
    Opaque,
    /// The median depths, of such pixels.
    Median,
}

/// What a term compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// What is drawn, with the photograph.
    Photograph,
    /// The Gaussians, with the surface that they form (SuGaR, Guédon and Lepetit 2024, section 4.1).
    Surface,
}

/// Where a term is evaluated, and with it when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// At the pixels of the view, before its backward pass.
    Pixels,
    /// At Gaussians or at samples near them, after it.
    Samples,
}

/// A value that a term reports, without the term's weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Its key in logs.
    pub name: &'static str,
    /// Its place among the sums; logs have values in this order.
    pub place: u32,
    /// What its sum is divided by.
    pub over: Over,
}

/// What a value is the mean over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The pixels of the view.
    Pixels,
    /// Their channels.
    Channels,
    /// The windows of the structural similarity, channel by channel.
    Windows,
    /// The Gaussians that the view sees.
    Seen,
    /// The samples.
    Samples,
}

impl Term {
    /// Its name in messages.
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

    /// What it reports, in the order of logs.
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

    /// The derivative of [`Self::loss`] by the value at this place.
    pub fn d_loss(&self, place: u32) -> f64 {
        match (self, place) {
            (Self::Photometric { lambda_dssim }, VALUE_L1) => 1.0 - lambda_dssim,
            (Self::Photometric { lambda_dssim }, VALUE_SSIM) => -lambda_dssim,
            _ => 1.0,
        }
    }

    /// What is minimised of it, by the means of all values.
    pub fn loss(&self, means: &Means) -> f64 {
        match self {
            Self::Photometric { lambda_dssim } => {
                let [l1, ssim] = [VALUE_L1, VALUE_SSIM].map(|place| means[place as usize]);
                (1.0 - lambda_dssim) * l1 + lambda_dssim * (1.0 - ssim)
            }
            Self::InverseDepth
            | Self::NormalMap
            | Self::DepthNormal { .. }
            | Self::MultiView
            | Self::Distortion
            | Self::Entropy
            | Self::Density
            | Self::Normal
            | Self::Sdf { .. } => {
                self.values().iter().map(|value| means[value.place as usize]).sum()
            }
        }
    }

    /// What it needs beside colours.
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

    /// Where it is evaluated. Of [`Term::Sdf`] the gradient of the drawn depths is found at the pixels
    /// already.
    pub const fn at(&self) -> At {
        match self {
            Self::Photometric { .. }
            | Self::InverseDepth
            | Self::NormalMap
            | Self::DepthNormal { .. }
            | Self::MultiView
            | Self::Distortion => At::Pixels,
            Self::Entropy | Self::Density | Self::Normal | Self::Sdf { .. } => At::Samples,
        }
    }

    /// What it compares.
    pub const fn topic(&self) -> Topic {
        match self {
            Self::Photometric { .. } | Self::InverseDepth | Self::NormalMap => Topic::Photograph,
            Self::DepthNormal { .. }
            | Self::MultiView
            | Self::Distortion
            | Self::Entropy
            | Self::Density
            | Self::Normal
            | Self::Sdf { .. } => Topic::Surface,
        }
    }
}

/// The values of all terms by their places; 0 of those that are off.
pub type Means = [f64; TERM_VALUES as usize];

/// A term and what it counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weighted {
    /// The term.
    pub term: Term,
    /// Its weight in the loss; at 0 it is off.
    pub weight: f64,
}

/// Which samples of the Gaussians are taken: each of those that the view sees is as likely, with
/// replacement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleRule {
    /// How many; without any, the terms that need them are off.
    pub count: u32,
    /// Seed of their places.
    pub seed: u64,
    /// Finished iterations, which change the places.
    pub iteration: u32,
}

/// The terms of one iteration's loss.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Terms {
    list: Vec<Weighted>,
    /// Where [`At::Samples`] is.
    pub samples: SampleRule,
}

impl Terms {
    /// The loss of 3D Gaussian splatting: [`Term::Photometric`] alone.
    pub fn photometric(lambda_dssim: f64) -> Self {
        Self::default().with(Term::Photometric { lambda_dssim }, 1.0)
    }

    /// These and one more, in place of one of the same kind.
    #[must_use]
    pub fn with(mut self, term: Term, weight: f64) -> Self {
        self.add(term, weight);
        self
    }

    /// Adds a term, in place of one of the same kind.
    pub fn add(&mut self, term: Term, weight: f64) {
        let kind = std::mem::discriminant(&term);
        self.list.retain(|weighted| std::mem::discriminant(&weighted.term) != kind);
        self.list.push(Weighted { term, weight });
    }

    /// These with other samples.
    #[must_use]
    pub fn sampled_by(mut self, samples: SampleRule) -> Self {
        self.samples = samples;
        self
    }

    /// The terms that are on, in their order.
    pub fn active(&self) -> impl Iterator<Item = &Weighted> {
        let has_samples = self.samples.count > 0;
        self.list.iter().filter(move |weighted| {
            weighted.weight != 0.0 && (has_samples || !weighted.term.needs().samples)
        })
    }

    /// Those of them that are evaluated there.
    pub fn active_at(&self, at: At) -> impl Iterator<Item = &Weighted> {
        self.active().filter(move |weighted| weighted.term.at() == at)
    }

    /// Whether a term of this topic is on.
    pub fn has_topic(&self, topic: Topic) -> bool {
        self.active().any(|weighted| weighted.term.topic() == topic)
    }

    /// What the terms need together.
    pub fn needs(&self) -> Inputs {
        self.active().fold(Inputs::NONE, |needs, weighted| needs.and(weighted.term.needs()))
    }

    /// The weight of the term that reports this value; 0 where it is off.
    pub fn weight(&self, place: u32) -> f64 {
        let reports =
            |weighted: &&Weighted| weighted.term.values().iter().any(|value| value.place == place);
        self.active().find(reports).map_or(0.0, |weighted| weighted.weight)
    }

    /// The unit of [`Term::Sdf`], where it is on.
    pub fn sdf_unit(&self) -> Option<f64> {
        self.active().find_map(|weighted| match weighted.term {
            Term::Sdf { unit } => Some(unit),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests;
