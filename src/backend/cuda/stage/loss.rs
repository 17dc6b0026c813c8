//! Stage `loss`: (1 - λ) L1 + λ (1 - SSIM) against the photograph, its gradient, and the metrics of a render; and the
//! photograph scaled down for a smaller view.

use crate::abi::terms::{
    At, Means, Over, SUM_SQUARED, TERM_VALUES, Terms, VALUE_L1, VALUE_SSIM, Weighted,
};
use crate::abi::{LOSS_COLUMNS, LOSS_ROWS, LOSS_TAPS, LossArgs, ShrinkArgs};
use crate::backend::cuda::memory::status::StatusReport;
use crate::backend::cuda::photos::{Photograph, Target, check_size};
use crate::backend::cuda::prelude::*;
use crate::backend::{LossValues, Measured, Pending};
use crate::layout::ShrunkSlots;
use crate::math::Divisor;
use crate::math::ssim::taps;

/// Divisors of the sums over an image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LossCounts {
    pub(crate) pixels: f64,
    /// Number of values: pixels times channels.
    pub(crate) values: f64,
    /// Number of windows times channels.
    pub(crate) windows: f64,
}

impl LossCounts {
    pub(crate) fn of(size: [u32; 2]) -> Self {
        let (_, margin) = taps::<{ LOSS_TAPS as usize }>(size);
        let times = |[width, height]: [u32; 2]| f64::from(width) * f64::from(height);
        let pixels = times(size);
        let windows = times(size.map(|side| side - 2 * margin)) * 3.0;
        Self { pixels, values: pixels * 3.0, windows }
    }

    pub(crate) fn over(&self, over: Over) -> f64 {
        match over {
            Over::Pixels => self.pixels,
            Over::Channels => self.values,
            Over::Windows => self.windows,
            // No term at pixels uses these means, as a test of `abi/terms.rs` checks.
            Over::Seen | Over::Samples => 1.0,
        }
    }
}

/// Adds up the terms of an image's colours, and writes their gradient to `d_image`.
pub(crate) fn loss(
    session: &mut Session,
    (image, background): (&Block<f32>, [f32; 3]),
    camera: &ViewCamera,
    target: &Photograph<'_>,
    terms: &Terms,
    d_image: &mut Block<f32>,
) -> Result {
    let begun = session.timers.begin(Stage::Loss, &session.stream)?;
    let counts = LossCounts::of(camera.size);
    let mut d_values = [0.0; TERM_VALUES as usize];
    for Weighted { term, weight } in terms.active_at(At::Pixels) {
        for value in term.values() {
            let d_mean = weight * term.d_loss(value.place);
            d_values[value.place as usize] = f32::of(d_mean / counts.over(value.over));
        }
    }
    let empty = Empty::of(terms, background);
    launch(session, image, camera, (target, empty), d_values, Some(d_image))?;
    session.timers.end(&begun, &session.stream)
}

/// Returns the metrics of an image clamped to 0..1. Waits for the device.
pub(crate) fn measure(
    session: &mut Session,
    image: &Block<f32>,
    camera: &ViewCamera,
    target: &Target,
) -> Result<Measured> {
    session.status.clear_sums(&session.stream)?;
    let compared = (&target.whole(), Empty::default());
    launch(session, image, camera, compared, [0.0; TERM_VALUES as usize], None)?;
    let sums = session.status.report(&session.heap, &session.stream)?.read()?;
    let (counts, sum) = (LossCounts::of(camera.size), |place: u32| sums[place as usize]);
    Ok(Measured {
        mse: sum(SUM_SQUARED) / counts.values,
        l1: sum(VALUE_L1) / counts.values,
        ssim: sum(VALUE_SSIM) / counts.windows,
    })
}

/// Target of masked pixels; black without a weight.
#[derive(Clone, Copy, Debug, Default)]
struct Empty {
    color: [f32; 3],
    weight: f32,
}

impl Empty {
    fn of(terms: &Terms, background: [f32; 3]) -> Self {
        let weight = f32::of(terms.empty_weight());
        if weight > 0.0 { Self { color: background, weight } } else { Self::default() }
    }
}

/// Without `d_image` the image is clamped to 0..1 first.
fn launch(
    session: &mut Session,
    image: &Block<f32>,
    camera: &ViewCamera,
    (target, empty): (&Photograph<'_>, Empty),
    d_values: [f32; TERM_VALUES as usize],
    d_image: Option<&mut Block<f32>>,
) -> Result {
    check_size(target.size, camera.size)?;
    let (taps, margin) = taps::<{ LOSS_TAPS as usize }>(camera.size);
    target.wait(&session.stream)?;
    let args = LossArgs {
        image: image.read(),
        target: target.rgb,
        mask: target.mask,
        clamp: u32::from(d_image.is_none()),
        empty_color: empty.color,
        empty_weight: empty.weight,
        d_image: d_image.map_or(Out::NULL, Block::write),
        sums: session.status.sums(),
        size: camera.size,
        taps,
        margin,
        d_values,
    };
    let [width, height] = camera.size;
    let strips = width.div_ceil(LOSS_COLUMNS) as usize * height.div_ceil(LOSS_ROWS) as usize;
    session.kernels.loss.blocks(&session.stream, strips * 3, &args)?;
    target.used(&session.stream)
}

/// Values of terms on their way to the host.
pub struct PendingLosses {
    /// `None` without terms.
    report: Option<StatusReport>,
    terms: Vec<Weighted>,
    /// Divisors of the sums.
    counts: Means,
}

impl PendingLosses {
    pub(crate) fn none() -> Self {
        Self { report: None, terms: Vec::new(), counts: [1.0; TERM_VALUES as usize] }
    }

    /// Creates the values of the terms at the pixels of an image of this size.
    pub(crate) fn of_pixels(report: StatusReport, terms: Vec<Weighted>, size: [u32; 2]) -> Self {
        let image = LossCounts::of(size);
        Self::new(report, terms, |over| image.over(over))
    }

    /// Creates the values of sampled terms, for a view that sees `seen` Gaussians.
    pub(crate) fn of_samples(
        report: StatusReport,
        terms: Vec<Weighted>,
        seen: usize,
        samples: u32,
    ) -> Self {
        Self::new(report, terms, |over| match over {
            Over::Seen => seen.max(1) as f64,
            _ => f64::from(samples.max(1)),
        })
    }

    fn new(report: StatusReport, terms: Vec<Weighted>, count: impl Fn(Over) -> f64) -> Self {
        let mut counts = [1.0; TERM_VALUES as usize];
        for value in terms.iter().flat_map(|weighted| weighted.term.values()) {
            counts[value.place as usize] = count(value.over);
        }
        Self { report: Some(report), terms, counts }
    }
}

impl Pending<LossValues> for PendingLosses {
    fn is_ready(&self) -> bool {
        self.report.as_ref().is_none_or(StatusReport::is_ready)
    }

    fn read(self) -> Result<LossValues> {
        let Some(report) = &self.report else { return Ok(LossValues::default()) };
        let mut means = Means::default();
        for ((mean, sum), count) in means.iter_mut().zip(report.read()?).zip(self.counts) {
            *mean = sum / count;
        }
        LossValues::of(self.terms.iter(), &means).checked()
    }
}

/// Memory for a shrunken photograph.
pub(crate) type Shrunk = ShrunkSlots<Heap>;

impl Shrunk {
    /// Shrinks the photograph for a view of `view_px`.
    pub(in crate::backend::cuda) fn shrink<'a>(
        &'a mut self,
        session: &Session,
        target: &Target,
        view_px: [u32; 2],
        divisor: Divisor,
    ) -> Result<Photograph<'a>> {
        let size = divisor.px(target.size());
        check_size(size, view_px)?;
        let begun = session.timers.begin(Stage::Loss, &session.stream)?;
        target.wait(&session.stream)?;
        let Self { colors, mask, depths, normals } = &mut *self;
        let has_mask = target.mask().address() != In::<u8>::NULL.address();
        let map = depths.as_mut().zip(target.depth());
        let (depths, small_depths, fit) = match map {
            Some((depths, (map, fit))) => (map, depths.write(), Some(fit)),
            None => (In::NULL, Out::NULL, None),
        };
        let map = normals.as_mut().zip(target.normals());
        let has_normals = map.is_some();
        let (normals, small_normals) = match map {
            Some((normals, map)) => (map, normals.write()),
            None => (In::NULL, Out::NULL),
        };
        let args = ShrinkArgs {
            rgb: target.rgb(),
            mask: target.mask(),
            depths,
            normals,
            small_rgb: colors.write(),
            small_mask: if has_mask { mask.write() } else { Out::NULL },
            small_depths,
            small_normals,
            size,
            full_width: target.size()[0],
            divisor: divisor.get(),
        };
        let pixels = size[0] as usize * size[1] as usize;
        session.kernels.shrink.over(&session.stream, pixels, &args)?;
        target.used(&session.stream)?;
        session.timers.end(&begun, &session.stream)?;
        let Self { colors, mask, depths, normals } = self;
        Ok(Photograph {
            size,
            rgb: colors.read(),
            mask: if has_mask { mask.read() } else { In::NULL },
            depth: depths.as_ref().map(Block::read).zip(fit),
            normals: normals.as_ref().filter(|_| has_normals).map(Block::read),
            arrives: None,
        })
    }
}
