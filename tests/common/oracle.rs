//! A device against the CPU backend in double precision.

use std::sync::Arc;

use splat::backend::cpu::{Cpu, Gradients, Model, Parameter};
use splat::backend::{
    AdamStep, Candidates, DeviceError, Edit, EditRule, Edited, Grow, Into, Keep, Pick, Rates,
    Rendered, ScoreRule, Snapshot, Term, Terms, TrainDevice,
};
use splat::dataset::{Image, View};
use splat::math::Real;
use splat::math::linalg::dot;
use splat::math::random::{RandomStream, RandomUse};
use splat::math::splat::{EllipseGradient, Shape, Viewpoint, project, project_bwd};
use splat::model::{Gaussians, Primitive};

use super::prelude::*;
use super::scene::{NEAR, Pixel, RATES, composite, tame_gaussians};
use super::{Draws, assert_relative, derivative, derivative_between_cuts, with};

/// Adam's decay of the running mean of the gradients.
const BETA_1: f64 = 0.9;

/// One view with its photograph.
#[derive(Clone, Debug)]
pub struct Shot {
    /// Which view of a dataset it is.
    pub index: usize,
    pub view: View,
    pub photo: Arc<Image>,
    pub settings: DrawSettings,
    pub terms: Terms,
}

impl Shot {
    /// The terms, with that of the inverse depths where they are drawn.
    pub fn terms_drawn(&self) -> Terms {
        let terms = self.terms.clone();
        if self.settings.inverse_depth {
            terms.with(Term::InverseDepth, DEPTH_WEIGHT)
        } else {
            terms
        }
    }

    /// Width and height of the photograph.
    pub fn size(&self) -> [u32; 2] {
        [self.photo.width, self.photo.height]
    }
}

/// Which pixels count in a [`Shot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// All of them, none of which is borderline.
    All,
    /// Pixels that are not borderline.
    Clear,
    /// Three in four of those that are not borderline.
    Some,
}

/// Settings that differ in every value.
pub fn settings(sh_degree: u32, seed: u64) -> DrawSettings {
    let background = Draws::new(seed).array::<3>(0.0, 1.0).map(f64::to_f32);
    DrawSettings { pass: Pass::Observe, sh_degree, background, near: NEAR, ..DrawSettings::DEFAULT }
}

/// Share of borderline pixels that a comparison may leave out before it means nothing.
const BORDERLINE_MAX: f64 = 0.02;

/// Pixels in which both precisions must come to the same decisions.
pub fn clear_pixels(pixels: &[Pixel]) -> Vec<bool> {
    let clear: Vec<bool> = pixels.iter().map(|pixel| !pixel.borderline).collect();
    let borderline = clear.iter().filter(|&&clear| !clear).count();
    // A single pixel of a tiny image is more than its share.
    let allowed = (pixels.len() as f64 * BORDERLINE_MAX).max(1.0);
    assert!(borderline as f64 <= allowed, "{borderline} of {} are borderline", pixels.len());
    clear
}

/// A photograph of noise that differs from the image in every value, so that no precision takes
/// the error's sign for another.
pub fn noise(pixels: &[Pixel], view: &View, seed: u64, counted: Counted) -> Arc<Image> {
    let mut draws = Draws::new(seed);
    let rgb = pixels
        .iter()
        .flat_map(|pixel| pixel.rgb)
        .map(|value| {
            let byte = u8::try_from(draws.uniform(0.0, 256.0).floor_i32()).unwrap();
            // 1e-4: single precision leaves a value right to a tenth of that.
            let tied = (f64::from(byte) / 255.0 - value).abs() < 1e-4;
            if tied { byte ^ 1 } else { byte }
        })
        .collect();
    let clear = clear_pixels(pixels);
    let mut mask = |share: f64| -> Vec<u8> {
        let counts = |clear: &bool| if *clear && draws.uniform(0.0, 1.0) < share { 255 } else { 0 };
        clear.iter().map(counts).collect()
    };
    let mask = match counted {
        Counted::All => {
            assert!(!clear.contains(&false), "choose a scene without borderline pixels");
            None
        }
        Counted::Clear => Some(mask(2.0)),
        Counted::Some => Some(mask(0.75)),
    };
    let (width, height) = (view.camera.width, view.camera.height);
    Arc::new(Image { width, height, rgb, mask, depth: None, normals: None })
}

/// Gaussians of which no pixel is borderline in any of these views.
pub fn clear_gaussians(count: usize, seed: u64, frames: &[(&View, DrawSettings)]) -> Gaussians {
    let clear = |gaussians: &Gaussians| {
        frames.iter().all(|(view, settings)| {
            composite(gaussians, view, settings).iter().all(|pixel| !pixel.borderline)
        })
    };
    (0..1000)
        .map(|attempt| tame_gaussians(count, seed * 1000 + attempt, 3))
        .find(clear)
        .expect("one scene in a thousand without borderline pixels")
}

/// A view of these Gaussians with a photograph of noise.
pub fn shot(
    gaussians: &Gaussians,
    view: &View,
    settings: DrawSettings,
    (seed, counted): (u64, Counted),
) -> Shot {
    let pixels = composite(gaussians, view, &settings);
    let photo = noise(&pixels, view, seed, counted);
    let terms = Terms::photometric(0.2);
    Shot { index: 0, view: view.clone(), photo, settings, terms }
}

/// Views from three sides and of three sizes, the last one's given, with photographs of noise.
pub fn three_shots(gaussians: &Gaussians, last: [u32; 2]) -> Vec<Shot> {
    let aside = moved(&resized(&view(), last), [0.4, -0.2, 0.5]);
    let numbered = |(index, view): (usize, View)| {
        let seed = index as u64;
        let shot = shot(gaussians, &view, settings(3, seed), (seed, Counted::Clear));
        Shot { index, ..shot }
    };
    [view(), straight(), aside].into_iter().enumerate().map(numbered).collect()
}

/// Weight of the inverse depths in the loss, where they are drawn.
pub const DEPTH_WEIGHT: f64 = 0.4;

/// One step over a view; its loss.
pub fn step<B: TrainDevice>(
    device: &mut B,
    model: &mut B::Model,
    shot: &Shot,
    (number, rates): (u32, Rates),
) -> Loss {
    let target = device.target(shot.index, &shot.photo).unwrap();
    let terms = shot.terms_drawn();
    let mut gradients = Default::default();
    let seen = (&shot.view, &shot.settings);
    let loss = device.add_view(model, seen, (&target, &terms), &mut gradients).unwrap();
    device.step(model, gradients, &AdamStep::new(number, rates)).unwrap();
    loss.read().unwrap().into()
}

/// Rates at which moments and statistics grow and parameters stay.
pub const AT_REST: Rates = Rates::NONE;

/// A model that has seen these views once, its parameters as they were.
pub fn observed<B: TrainDevice>(device: &mut B, gaussians: &Gaussians, shots: &[Shot]) -> B::Model {
    let mut model = device.upload(gaussians).unwrap();
    for (number, shot) in (1..).zip(shots) {
        step(device, &mut model, shot, (number, AT_REST));
    }
    model
}

/// State after the first step.
#[derive(Clone, Debug)]
pub struct FirstStep {
    pub loss: Loss,
    pub snapshot: Snapshot<Gaussians>,
}

impl FirstStep {
    pub fn taken_by<B: TrainDevice>(device: &mut B, gaussians: &Gaussians, shot: &Shot) -> Self {
        let mut model = device.upload(gaussians).unwrap();
        let loss = step(device, &mut model, shot, (1, RATES));
        Self { loss, snapshot: device.snapshot(&mut model).unwrap() }
    }

    pub fn of_the_oracle(gaussians: &Gaussians, shot: &Shot) -> Self {
        Self::taken_by(&mut Cpu::<f64>::new(), gaussians, shot)
    }
}

/// Names, widths and values of groups of parameters.
pub type Groups = Vec<(&'static str, usize, Vec<f64>)>;

/// The gradient of every raw parameter after one step: the first moments began at zero.
pub fn gradients<P: Primitive>(after: &Snapshot<P>) -> Groups {
    let scaled = |v: &f32| f64::from(*v) / (1.0 - BETA_1);
    let groups = after.first_moments.groups();
    groups.iter().map(|g| (g.name, g.width, g.values.iter().map(scaled).collect())).collect()
}

/// Each column within 1e-3 of its largest gradient. One in which all cancels is held to a share of the
/// largest of all.
pub fn assert_columns_agree(found: &Groups, expected: &Groups, of_all_share: f64, what: &str) {
    let largest =
        |values: &mut dyn Iterator<Item = &f64>| values.fold(0.0, |a: f64, v| a.max(v.abs()));
    let of_all = largest(&mut expected.iter().flat_map(|(.., values)| values));
    for ((name, width, found), (.., expected)) in found.iter().zip(expected) {
        assert_eq!(found.len(), expected.len(), "{what}: {name}");
        for column in 0..*width {
            let of_column = largest(&mut expected.iter().skip(column).step_by(*width));
            let allowed = 1e-3 * of_column + of_all_share * of_all;
            let pairs = found.iter().zip(expected).skip(column).step_by(*width);
            for (row, (found, expected)) in pairs.enumerate() {
                assert!(
                    (found - expected).abs() <= allowed,
                    "{what}: {name} {column} of Gaussian {row}: {found:e} for {expected:e}, \
                     largest {of_column:e}"
                );
            }
        }
    }
}

/// Tolerance of gradients in single precision.
pub const GRADIENT_TOLERANCE: f64 = 1e-3;

/// Tolerance for an image of this size: where the SSIM window has one tap, its variance is
/// x² - x², of which single precision leaves rounding only.
pub fn gradient_tolerance(size: [u32; 2]) -> f64 {
    if size[0].min(size[1]) < 3 { 2e-2 } else { GRADIENT_TOLERANCE }
}

/// Asserts that two sets of gradients agree: each group as a whole, and each element.
///
/// An element is a sum over pixels in which positive and negative terms cancel. Where little is
/// left of it, rounding of the terms shows; it is held against a tenth of the mean element then.
pub fn assert_gradients_agree<P: Primitive>(
    found: &Snapshot<P>,
    expected: &Snapshot<P>,
    (tolerance, what): (f64, &str),
) {
    for ((name, width, found), (_, _, expected)) in
        gradients(found).into_iter().zip(gradients(expected))
    {
        assert_eq!(found.len(), expected.len());
        let error = relative_error(&found, &expected);
        assert!(error < tolerance, "{what}: {name} is {error:.1e} off");
        let floor = 0.1 * mean_size(&expected);
        for (i, (&found, &expected)) in found.iter().zip(&expected).enumerate() {
            let error = (found - expected).abs();
            assert!(
                error <= tolerance * expected.abs().max(floor),
                "{what}: {name} {} of row {}: {found:e} instead of {expected:e}",
                i % width,
                i / width
            );
        }
    }
}

/// The image, loss and gradients of these Gaussians against the oracle's.
pub fn assert_agrees<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    view: &View,
    what: &str,
) -> FirstStep {
    let settings = settings(3, 77);
    assert_images_agree(device, gaussians, view, &settings);
    let shot = shot(gaussians, view, settings, (78, Counted::Clear));
    assert_first_steps_agree(device, gaussians, &shot, what)
}

/// Loss and gradients of one step of the device and of the oracle, compared; what the device left
/// is handed back.
pub fn assert_first_steps_agree<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    shot: &Shot,
    what: &str,
) -> FirstStep {
    let found = FirstStep::taken_by(device, gaussians, shot);
    assert_same_steps(&found, &FirstStep::of_the_oracle(gaussians, shot), (shot.size(), what));
    found
}

/// Compares losses and gradients of two first steps over a photograph of this size.
pub fn assert_same_steps(found: &FirstStep, expected: &FirstStep, (size, what): ([u32; 2], &str)) {
    assert_losses_agree(&found.loss, &expected.loss, (size, what));
    let tolerance = gradient_tolerance(size);
    assert_gradients_agree(&found.snapshot, &expected.snapshot, (tolerance, what));
}

/// L1, SSIM and total within 1e-5; in images narrower than the SSIM window within 2e-4: where a window
/// has one tap the variance is the rounding of x² - x², 1e-7, against C2 = 9e-4.
pub fn assert_losses_agree(found: &Loss, expected: &Loss, (size, what): ([u32; 2], &str)) {
    let tolerance = if size[0].min(size[1]) < 11 { 2e-4 } else { 1e-5 };
    for (name, found, expected) in [
        ("l1", found.l1, expected.l1),
        ("ssim", found.ssim, expected.ssim),
        ("total", found.total, expected.total),
        ("depth_l1", found.depth_l1.unwrap_or(-1.0), expected.depth_l1.unwrap_or(-1.0)),
    ] {
        let error = (found - expected).abs();
        assert!(error < tolerance, "{what}: {name} is {found} instead of {expected}");
    }
}

/// |found - expected| / |expected|; 0 where there is nothing.
pub fn relative_error(found: &[f64], expected: &[f64]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let apart = norm(&mut found.iter().zip(expected).map(|(found, expected)| found - expected));
    if apart == 0.0 { 0.0 } else { apart / norm(&mut expected.iter().copied()) }
}

/// Mean absolute value of what is not zero.
pub fn mean_size(values: &[f64]) -> f64 {
    let sizes: Vec<f64> = values.iter().map(|v| v.abs()).filter(|&v| v > 0.0).collect();
    sizes.iter().sum::<f64>() / sizes.len().max(1) as f64
}

/// The image of these Gaussians, with the counts of those blended in each pixel.
pub fn draw<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    view: &View,
    settings: &DrawSettings,
) -> Rendered {
    let model = device.upload(gaussians).unwrap();
    let settings = DrawSettings { pass: Pass::Picture, ..*settings };
    let frame = device.show(&model, view, &settings).unwrap();
    let image = device.image(&frame).unwrap();
    assert!(image.blended.is_some(), "a picture comes with its counts");
    image
}

/// Colours within 1e-4 and the same number of Gaussians in every pixel that is not borderline.
pub fn assert_images_agree<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    view: &View,
    settings: &DrawSettings,
) {
    let found = draw(device, gaussians, view, settings);
    let expected = draw(&mut Cpu::<f64>::new(), gaussians, view, settings);
    assert_eq!((found.width, found.height), (view.camera.width, view.camera.height));
    assert_eq!(found.rgb.len(), expected.rgb.len());
    let clear = clear_pixels(&composite(gaussians, view, settings));
    let blended = [&found, &expected].map(|image| image.blended.as_deref().unwrap());
    for (pixel, _) in clear.iter().enumerate().filter(|&(_, &clear)| clear) {
        let place = [pixel % found.width as usize, pixel / found.width as usize];
        assert_eq!(blended[0][pixel], blended[1][pixel], "{place:?}");
        for (found, expected) in found.rgb[pixel * 3..][..3].iter().zip(&expected.rgb[pixel * 3..])
        {
            assert!((found - expected).abs() < 1e-4, "{place:?}: {found} instead of {expected}");
        }
    }
}

// Gradients of the CPU backend against differences of what they are gradients of.

/// Holds the gradient of a projection to its differences. A sum of pixel coordinates is rounded a
/// hundred times as much as a function of order 1.
pub fn assert_projection_differences(
    view: &Viewpoint<f64>,
    shape: &Shape<f64>,
    d: &EllipseGradient<f64>,
) {
    const EXACT: (f64, f64) = (1e-6, 1e-4);
    let objective = |shape: &Shape<f64>| {
        let e = project(view, shape).expect("in front of the camera");
        let centre: f64 = (0..2).map(|i| e.mean_px[i] * d.d_mean_px[i]).sum();
        centre + dot(e.conic, d.d_conic) + d.d_log_kept * e.kept.ln() + d.d_depth * e.depth
    };
    let found = project_bwd(view, shape, d).expect("in front of the camera");
    for i in 0..3 {
        let f = |x| objective(&Shape { mean_world: with(shape.mean_world, i, x), ..*shape });
        let expected = derivative(shape.mean_world[i], f);
        assert_relative(found.d_mean_world[i], expected, EXACT, "mean");
        let f = |x| objective(&Shape { log_scale: with(shape.log_scale, i, x), ..*shape });
        let expected = derivative(shape.log_scale[i], f);
        assert_relative(found.d_log_scale[i], expected, EXACT, "log scale");
    }
    for i in 0..4 {
        let f = |x| objective(&Shape { quat: with(shape.quat, i, x), ..*shape });
        assert_relative(found.d_quat[i], derivative(shape.quat[i], f), EXACT, "quat");
    }
}

/// Holds the gradients of these parameters of every Gaussian to the differences of `loss`, with a
/// tolerance and a floor as of [`assert_relative`]. Says how many differences of each parameter are
/// above the floor, and so large enough to tell.
pub fn assert_differences(
    device: &mut Cpu<f64>,
    (model, gradients): (&Model<f64>, &Gradients<f64>),
    parameters: &[Parameter],
    tolerance: (f64, f64),
    mut loss: impl FnMut(&mut Cpu<f64>, &Model<f64>) -> f64,
) -> Vec<usize> {
    let mut compared = vec![0; parameters.len()];
    for index in 0..model.len() {
        let gradient = device.parameter_gradient(model, gradients, index);
        for (&parameter, compared) in parameters.iter().zip(&mut compared) {
            let width = model.column(parameter).width;
            for (k, &found) in gradient.row(parameter)[..width].iter().enumerate() {
                let at = index * width + k;
                let start = model.column(parameter).values[at];
                let expected = derivative_between_cuts(start, |x| {
                    let mut moved = model.clone();
                    moved.column_mut(parameter).values[at] = x;
                    loss(device, &moved)
                });
                let what = format!("Gaussian {index} {parameter:?}[{k}]");
                assert_relative(found, expected, tolerance, &what);
                *compared += usize::from(expected.abs() > tolerance.1);
            }
        }
    }
    compared
}

/// Colours of the common view in training.
pub const COLOURS: DrawSettings = DrawSettings {
    pass: Pass::Observe,
    sh_degree: 3,
    background: [0.2, 0.5, 0.9],
    near: NEAR,
    ..DrawSettings::DEFAULT
};

/// Compares the gradients of a view of the common camera with differences. Terms that compare a surface with itself are
/// not in the total of the loss: `beside` has their names and weights.
pub fn assert_view_differences(
    model: &mut Model<f64>,
    drawing: &DrawSettings,
    (target, terms, beside): (&Arc<Image>, &Terms, &[(&str, f64)]),
    parameters: &[Parameter],
) -> Vec<usize> {
    let (device, mut gradients) = (&mut Cpu::<f64>::new(), Gradients::default());
    device.add_view(model, (&view(), drawing), (target, terms), &mut gradients).unwrap();
    let loss = |device: &mut Cpu<f64>, moved: &Model<f64>| {
        let frame = device.draw(moved, &view(), drawing).unwrap();
        let (_, loss) = device.compare(moved, frame, target, terms).unwrap();
        let values = loss.read().unwrap();
        let beside = beside.iter().map(|(name, weight)| weight * values.get(name).unwrap_or(0.0));
        values.total + beside.sum::<f64>()
    };
    // A loss of 0.3 has a rounding of 3e-17, 1e-11 after division by the step: above 1e-4 the difference has six
    // digits.
    assert_differences(device, (model, &gradients), parameters, (1e-6, 1e-4), loss)
}

// Rules of densification steps in tests.

/// Rule of a densification step that grows by gradients.
#[derive(Clone, Copy, Debug)]
pub struct DensifyRule {
    pub gradient_min: f64,
    pub small_max: f64,
    pub opacity_min: f64,
    pub scale_max: Option<f64>,
    pub seed: u64,
    pub iteration: u32,
    pub with_quantile: bool,
}

impl DensifyRule {
    /// By which all Gaussians grow and none is removed.
    pub const ALL: Self = Self {
        gradient_min: 0.0,
        small_max: 1e9,
        opacity_min: 0.0,
        scale_max: None,
        seed: 3,
        iteration: 600,
        with_quantile: false,
    };

    fn score(&self) -> ScoreRule {
        let Self { gradient_min: min, small_max, .. } = *self;
        match self.with_quantile {
            true => ScoreRule::GradientOrQuantile { min, small_max },
            false => ScoreRule::Gradient { min, small_max },
        }
    }

    fn edit(&self) -> EditRule {
        let key = RandomStream::new(self.seed, u64::from(self.iteration), RandomUse::Split).key();
        EditRule::Grow {
            large: Grow::SplitRandom { shrink: 1.6, key },
            keep: Keep { opacity_min: self.opacity_min, scale_max: self.scale_max, unseen: true },
        }
    }
}

/// Rule of a densification step that moves and copies by opacities.
#[derive(Clone, Copy, Debug)]
pub struct RelocateRule {
    pub opacity_min: f64,
    pub seed: u64,
    pub iteration: u32,
}

impl RelocateRule {
    fn apply<D: Edit<Gaussians>>(
        &self,
        device: &mut D,
        model: &mut D::Model,
        (into, purpose): (Into, RandomUse),
    ) -> Result<Edited, DeviceError> {
        let key = RandomStream::new(self.seed, u64::from(self.iteration), purpose).key();
        let candidates = device.score(model, &ScoreRule::Opacity { min: self.opacity_min })?;
        let pick = Pick::WithReplacement { into, key };
        let selection = device.select(model, &candidates, pick)?;
        device.edit(model, selection, &EditRule::Share)
    }
}

/// Gaussians that would grow.
pub fn score<D: Edit<Gaussians>>(
    device: &mut D,
    model: &D::Model,
    rule: &DensifyRule,
) -> Candidates {
    device.score(model, &rule.score()).unwrap()
}

/// Runs one densification step with a limit of new Gaussians.
pub fn densify<D: Edit<Gaussians>>(
    device: &mut D,
    model: &mut D::Model,
    rule: &DensifyRule,
    new_gaussians: usize,
) -> Result<Edited, DeviceError> {
    let candidates = device.score(model, &rule.score())?;
    let selection = device.select(model, &candidates, Pick::Best(new_gaussians))?;
    device.edit(model, selection, &rule.edit())
}

/// Relocates dead Gaussians. Returns their number.
pub fn relocate<D: Edit<Gaussians>>(
    device: &mut D,
    model: &mut D::Model,
    rule: &RelocateRule,
) -> Result<usize, DeviceError> {
    Ok(rule.apply(device, model, (Into::Dead, RandomUse::Relocate))?.moved)
}

/// Adds copies of Gaussians.
pub fn multiply<D: Edit<Gaussians>>(
    device: &mut D,
    model: &mut D::Model,
    rule: &RelocateRule,
    new_gaussians: usize,
) -> Result<(), DeviceError> {
    rule.apply(device, model, (Into::NewRows(new_gaussians), RandomUse::Multiply)).map(drop)
}
