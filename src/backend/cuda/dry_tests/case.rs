//! Cases, and what a device would answer in them.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::abi::TILE;
use crate::backend::cuda::dry::Reported;
use crate::backend::cuda::{BandPolicy, Target};
use crate::backend::{
    Compensation, Footprint, Inputs, NormalDepths, OtherView, RenderSettings, SampleRule,
    Statistics, Term, Terms, Wants, seen_from,
};
use crate::dataset::{Camera, Image, InverseDepthMap, NormalMap, Pose, View};
use crate::math::Divisor;
use crate::math::random::{RandomStream, RandomUse};
use crate::memory::plan::Storage;

/// What is drawn of surfaces in the coarse stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CoarseCase {
    Entropy,
    Density,
    Normals,
    Distances,
    /// With patches of another view, which is the same.
    Patches,
}

impl CoarseCase {
    fn draws_maps(self) -> bool {
        matches!(self, Self::Normals | Self::Distances | Self::Patches)
    }
}

/// What a view shows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SeenView {
    pub(super) visible: u32,
    pub(super) instances: u64,
}

/// A run.
#[expect(clippy::struct_excessive_bools, reason = "a set, of which any may be there")]
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) gaussians: usize,
    pub(super) sh_degree: u32,
    pub(super) storage: Storage,
    pub(super) px: [u32; 2],
    pub(super) bands: BandPolicy,
    pub(super) views: [SeenView; 2],
    pub(super) inverse_depth: bool,
    pub(super) compensation: Option<Compensation>,
    pub(super) statistics: Statistics,
    pub(super) antialiasing: bool,
    pub(super) filter_3d: bool,
    pub(super) coarse: Option<CoarseCase>,
    pub(super) neighbours: u32,
    /// Clones, splits and births granted.
    pub(super) densify: [usize; 3],
    /// Rows that a round removes, and rows from the first of them on.
    pub(super) pruned: [usize; 2],
    /// Gaussians that are dead, and copies born.
    pub(super) relocate: [usize; 2],
    /// Gaussians that are to stay of a prune to a number.
    pub(super) retained: usize,
    /// By how much views are smaller than their photographs before the coarse stage.
    pub(super) divisor: Divisor,
    /// Whether the model is one of surfels before the coarse stage.
    pub(super) surfels: bool,
}

/// Random numbers in turn.
struct Dice {
    stream: RandomStream,
    next: u64,
}

impl Dice {
    fn unit(&mut self) -> f64 {
        self.next += 1;
        self.stream.uniform(self.next)
    }

    fn chance(&mut self, share: f64) -> bool {
        self.unit() < share
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the range")]
    fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let count = range.end() - range.start() + 1;
        range.start() + ((self.unit() * count as f64) as u64).min(count - 1)
    }

    /// As likely small as large.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the range")]
    fn magnitude(&mut self, most: u64) -> u64 {
        let power = self.unit() * (most as f64 + 1.0).ln();
        (power.exp() as u64).min(most)
    }

    fn size(&mut self, most: usize) -> usize {
        usize::try_from(self.magnitude(most as u64)).unwrap_or(most)
    }
}

impl Case {
    pub(super) fn of(seed: u64) -> Self {
        let dice = &mut Dice { stream: RandomStream::new(seed, 0, RandomUse::Sample), next: 0 };
        let gaussians = dice.size(150_000).max(1);
        let px = [(); 2].map(|()| u32::try_from(dice.within(1..=500)).unwrap_or(1));
        // Every tenth has more tiles than keys of 16 bits tell apart.
        let px = if seed % 10 == 9 { [4112, 4096] } else { px };
        let wanted = [dice.size(gaussians / 2), dice.size(gaussians - gaussians / 2)];
        let births = dice.size(wanted.iter().sum());
        let births = if dice.chance(0.5) { wanted.iter().sum() } else { births };
        let pruned = if dice.chance(0.2) { 0 } else { dice.size(gaussians + births) };
        let hole = pruned + dice.size(gaussians + births - pruned);
        let coarse = match dice.within(0..=7) {
            0 => Some(CoarseCase::Entropy),
            1 => Some(CoarseCase::Density),
            2 => Some(CoarseCase::Normals),
            3 => Some(CoarseCase::Distances),
            4 => Some(CoarseCase::Patches),
            _ => None,
        };
        let compensation = match dice.within(0..=3) {
            0 => Some(Compensation::Exposure),
            1 => Some(Compensation::BilateralGrid),
            _ => None,
        };
        let statistics = match dice.within(0..=3) {
            0 => Statistics::Norms,
            1 => Statistics::AbsoluteNorms,
            2 => Statistics::Disagreement,
            _ => Statistics::Both,
        };
        let bands = match dice.within(0..=2) {
            0 => BandPolicy::AtLeast(u32::try_from(dice.within(1..=9)).unwrap_or(1)),
            _ => BandPolicy::Never,
        };
        Self {
            gaussians,
            sh_degree: u32::try_from(dice.within(0..=3)).unwrap_or(0),
            storage: match dice.unit() {
                unit if unit < 0.25 => Storage::Compact,
                unit if unit < 0.4 => Storage::Offloaded,
                unit if unit < 0.6 => Storage::HalfColors,
                _ => Storage::Full,
            },
            px,
            bands,
            views: [SeenView::of(dice, gaussians), SeenView::of(dice, gaussians)],
            inverse_depth: dice.chance(0.3),
            compensation,
            statistics,
            antialiasing: dice.chance(0.3),
            filter_3d: dice.chance(0.3),
            coarse,
            neighbours: u32::try_from(dice.within(1..=32)).unwrap_or(1),
            densify: [wanted[0], wanted[1], births],
            pruned: [pruned, if pruned == 0 { 0 } else { hole }],
            relocate: [dice.size(gaussians), dice.size(gaussians)],
            retained: dice.size(gaussians),
            divisor: match dice.within(0..=2) {
                // A photograph of a gigabyte is none to try.
                _ if px[0] > 4000 => Divisor::One,
                0 => Divisor::Four,
                1 => Divisor::Two,
                _ => Divisor::One,
            },
            surfels: dice.chance(0.3),
        }
    }

    pub(super) fn settings(&self) -> RenderSettings {
        let variance_px2 = 0.1;
        RenderSettings {
            sh_degree: self.sh_degree,
            footprint: match self.antialiasing {
                true => Footprint::Ellipse { variance_px2, compensates: true },
                false => Footprint::DILATED,
            },
            ..RenderSettings::DEFAULT
        }
    }

    /// What an iteration draws, in the coarse stage or before it.
    pub(super) fn wants(&self, coarse: Option<CoarseCase>) -> Wants {
        Wants {
            observe: coarse.is_none().then_some(self.statistics),
            inputs: Inputs {
                inverse_depths: self.inverse_depth,
                maps: coarse.is_some_and(CoarseCase::draws_maps),
                median: coarse == Some(CoarseCase::Patches),
                ..Inputs::NONE
            },
            compensation: self.compensation,
            divisor: if coarse.is_some() { Divisor::One } else { self.divisor },
        }
    }

    /// What an iteration compares.
    pub(super) fn terms(&self, coarse: Option<CoarseCase>) -> Terms {
        let weight = |on: bool| if on { 0.2 } else { 0.0 };
        let terms = Terms::photometric(0.2)
            .with(Term::InverseDepth, weight(self.inverse_depth))
            .with(Term::NormalMap, weight(self.inverse_depth));
        let Some(coarse) = coarse else { return terms };
        let has_entropy = coarse == CoarseCase::Entropy || self.neighbours.is_multiple_of(3);
        let has_density = !matches!(coarse, CoarseCase::Entropy | CoarseCase::Distances);
        let (normals, patches) = (coarse == CoarseCase::Normals, coarse == CoarseCase::Patches);
        let depths = if patches { NormalDepths::Median } else { NormalDepths::All };
        terms
            .with(Term::Entropy, weight(has_entropy))
            .with(Term::Density, weight(has_density))
            .with(Term::Normal, weight(coarse != CoarseCase::Entropy))
            .with(Term::Sdf { unit: 0.1 }, weight(coarse == CoarseCase::Distances))
            // Every second time patches alone.
            .with(Term::DepthNormal { depths }, weight(normals || patches && has_entropy))
            .with(Term::MultiView, weight(patches))
            .sampled_by(SampleRule { count: 1000, seed: 0, iteration: 7 })
    }

    /// How an iteration before the coarse stage draws surfels, what of them, and by what these are
    /// regularised: all, or normals alone.
    pub(super) fn of_surfels(
        &self,
        settings: RenderSettings,
        wants: Wants,
        terms: Terms,
    ) -> (RenderSettings, Wants, Terms) {
        let settings = RenderSettings { footprint: Footprint::Surfel, ..settings };
        let distortion = if self.neighbours.is_multiple_of(2) { 100.0 } else { 0.0 };
        let terms = terms
            .with(Term::DepthNormal { depths: NormalDepths::Opaque }, 0.05)
            .with(Term::Distortion, distortion);
        let inputs = wants.inputs.and(terms.needs());
        (settings, Wants { inputs, ..wants }, terms)
    }

    /// What patches are compared with in the coarse stage.
    pub(super) fn other<'a>(&self, target: &'a Target) -> Option<OtherView<'a, Target>> {
        let camera = seen_from(&self.view(), &self.view());
        Some(OtherView { target, camera, first_px: [0, 1] })
    }

    pub(super) fn view(&self) -> View {
        let [width, height] = self.px;
        View {
            name: "a.png".to_owned(),
            camera: Camera {
                width,
                height,
                focal_px: [100.0; 2],
                centre_px: self.px.map(|side| f64::from(side) / 2.0),
            },
            pose: Pose {
                rotation: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
                translation: [0.0; 3],
            },
        }
    }

    /// The photograph of the view that an iteration before the coarse stage draws.
    pub(super) fn larger_photograph(&self) -> Arc<Image> {
        Self { px: self.px.map(|side| (side + 1) * self.divisor.get() - 1), ..*self }.photograph()
    }

    pub(super) fn photograph(&self) -> Arc<Image> {
        let [width, height] = self.px;
        let pixels = width as usize * height as usize;
        let values = vec![0; pixels];
        let depth =
            self.inverse_depth.then_some(InverseDepthMap { values, scale: 1.0, offset: 0.0 });
        let normals = self.inverse_depth.then(|| NormalMap { values: vec![64; pixels * 3] });
        Arc::new(Image { width, height, rgb: vec![0; pixels * 3], mask: None, depth, normals })
    }

    /// Writes what the device would have in the buffer of a label.
    pub(super) fn answer(&self, seen: SeenView, label: &str, host: &mut [u8]) {
        let small = |count: usize| u32::try_from(count).unwrap_or(0);
        match label {
            "median depths" => {
                host.chunks_exact_mut(4)
                    .for_each(|word| word.copy_from_slice(&1_f32.to_le_bytes()));
            }
            "bricks in view" => host[0] = 3,
            _ => Reported {
                visible: seen.visible,
                instances: seen.instances,
                // Each row of tiles has its share.
                bands: u64::from(self.px[1].div_ceil(TILE)),
                candidates: [small(self.densify[0]), small(self.densify[1])],
                removed: self.pruned.map(small),
                dead: small(self.relocate[0]),
            }
            .write(label, host),
        }
    }
}

impl SeenView {
    fn of(dice: &mut Dice, gaussians: usize) -> Self {
        let visible = if dice.chance(0.1) { 0 } else { dice.size(gaussians) };
        let instances = if visible == 0 { 0 } else { dice.magnitude(3_000_000) };
        Self { visible: u32::try_from(visible).unwrap_or(0), instances }
    }
}
