//! Stage `lpips`: LPIPS of a render and its photograph, always in single precision.
//!
//! Features are stored as [row, column, channel], so that a convolution is one matrix product: the patch around each
//! pixel, [pixels, window x inputs], times the weights.

use std::ops::Range;

use rayon::prelude::*;

use super::blend::Canvas;
use super::loss::{common_size, masked};
use crate::backend::DeviceError;
use crate::dataset::Image;
use crate::math::Real;
use crate::perceptual::{
    COMPARED, Convolution, EPSILON, LayerKind, LayerSizes, LayerWindow, LpipsInput, LpipsNet,
    LpipsWeights, SCALE, SHIFT, StripPlace,
};

/// Minimum number of pixels per matrix product, which reorders the weights each time.
const PIXELS_MIN: usize = 256;

/// A network in the layout that the CPU uses.
#[derive(Clone, Debug)]
pub struct LpipsModel {
    net: LpipsNet,
    /// Weights as [window, inputs, outputs].
    convolutions: Vec<Convolution>,
    linear: [Vec<f32>; COMPARED],
}

impl LpipsModel {
    /// Reorders the weights for the CPU.
    pub fn new(weights: &LpipsWeights) -> Self {
        let shapes = weights.net().layers().iter().filter_map(|layer| match layer.kind {
            LayerKind::Convolution { inputs, outputs, .. } => {
                let side = layer.window.side as usize;
                Some([side * side, inputs as usize, outputs as usize])
            }
            LayerKind::MaxPool => None,
        });
        let convolutions = shapes.zip(weights.convolutions());
        Self {
            net: weights.net(),
            convolutions: convolutions.map(|(shape, given)| in_order(given, shape)).collect(),
            linear: weights.linear().clone(),
        }
    }

    /// Returns the network.
    pub fn net(&self) -> LpipsNet {
        self.net
    }

    /// Returns the LPIPS of two images, `[height, width, 3]` in 0..1. `strips` defaults to a count with modest memory
    /// use.
    pub fn distance(
        &self,
        images: [&[f32]; 2],
        size: [u32; 2],
        strips: Option<u32>,
        input: LpipsInput,
    ) -> Result<f64, DeviceError> {
        let least = self.net.side_min();
        let sizes =
            LayerSizes::new(self.net, size).ok_or(DeviceError::TooSmallForLpips { size, least })?;
        let count = strips.or_else(|| sizes.strips_within(sizes.wish()));
        let count = count.unwrap_or(sizes.most()).clamp(1, sizes.most());
        let images = images.map(|image| fed(image, input));
        let mut sums = [0.0; COMPARED];
        for index in 0..count {
            self.add_strip(&images, &sizes, StripPlace { index, count }, &mut sums);
        }
        let compared = self.net.layers().iter().enumerate().filter(|(_, layer)| layer.compared);
        let means = compared.zip(sums).map(|((at, _), sum)| {
            let [_, width, height] = sizes.size(at + 1).map(f64::from);
            sum / (width * height)
        });
        Ok(means.sum())
    }

    /// Adds the contribution of one strip to the sum of each compared layer.
    fn add_strip(
        &self,
        images: &[Vec<f32>; 2],
        sizes: &LayerSizes,
        strip: StripPlace,
        sums: &mut [f64; COMPARED],
    ) {
        let rows = sizes.rows(strip);
        let part = |at: usize| Strip::new(sizes.size(at), &rows[at]);
        let mut features = images.each_ref().map(|image| rows_of(image, &part(0)).to_vec());
        let mut convolutions = self.convolutions.iter();
        let mut sums = sums.iter_mut().zip(&self.linear);
        for (at, layer) in self.net.layers().iter().enumerate() {
            let parts = [part(at), part(at + 1)];
            features = match (layer.kind, layer.window) {
                (LayerKind::Convolution { .. }, window) => {
                    let Some(convolution) = convolutions.next() else { return };
                    features.map(|values| convolve(&values, &parts, window, convolution))
                }
                (LayerKind::MaxPool, window) => {
                    features.map(|values| pool(&values, &parts, window))
                }
            };
            if layer.compared
                && let Some((sum, linear)) = sums.next()
            {
                let own = sizes.own(at + 1, strip);
                *sum += lpips_distance(&features, &parts[1].within(&own), linear);
            }
        }
    }
}

/// Returns the LPIPS of a frame, clamped to 0..1, and its photograph, both masked.
pub(crate) fn perceive<R: Real>(
    net: &LpipsModel,
    canvas: &Canvas<R>,
    target: &Image,
    input: LpipsInput,
) -> Result<f64, DeviceError> {
    common_size(canvas.size, target)?;
    let held = canvas.image.iter().map(|value| value.to_f64().clamp(0.0, 1.0).to_f32());
    let x = masked(held, target);
    let y = masked(target.rgb.iter().map(|&value| f32::from(value) / 255.0), target);
    net.distance([&x, &y], canvas.size, None, input)
}

/// Reorders weights from [outputs, inputs, window] to [window, inputs, outputs].
fn in_order(given: &Convolution, [area, inputs, outputs]: [usize; 3]) -> Convolution {
    let mut weights = vec![0.0; given.weights.len()];
    for (at, seen) in given.weights.chunks_exact(area).enumerate() {
        let (output, input) = (at / inputs, at % inputs);
        for (place, &weight) in seen.iter().enumerate() {
            weights[(place * inputs + input) * outputs + output] = weight;
        }
    }
    Convolution { weights, bias: given.bias.clone() }
}

/// A range of rows of the image or of its features.
#[derive(Clone, Debug)]
struct Strip {
    channels: usize,
    width: usize,
    /// Number of rows of the whole image.
    height: usize,
    rows: Range<usize>,
}

impl Strip {
    fn new([channels, width, height]: [u32; 3], rows: &Range<u32>) -> Self {
        let [channels, width, height] = [channels, width, height].map(|length| length as usize);
        Self { channels, width, height, rows: rows.start as usize..rows.end as usize }
    }

    fn row_len(&self) -> usize {
        self.width * self.channels
    }

    /// Selects some of the strip's rows.
    fn within(&self, rows: &Range<u32>) -> PartOf<'_> {
        let [from, to] = [rows.start, rows.end].map(|row| row as usize - self.rows.start);
        PartOf { part: self, values: from * self.row_len()..to * self.row_len() }
    }
}

/// Some rows of a strip.
struct PartOf<'a> {
    part: &'a Strip,
    values: Range<usize>,
}

/// Normalises an image in 0..1 as the networks expect.
fn fed(image: &[f32], input: LpipsInput) -> Vec<f32> {
    let value = |value: f32| match input {
        LpipsInput::Stretched => 2.0 * value - 1.0,
        LpipsInput::EightBits => (value * 255.0 + 0.5).floor() * (1.0 / 255.0),
    };
    let channels = image.iter().enumerate();
    channels.map(|(at, &v)| (value(v) - SHIFT[at % 3]) / SCALE[at % 3]).collect()
}

/// Returns the rows of an image that belong to a strip.
fn rows_of<'a>(image: &'a [f32], part: &Strip) -> &'a [f32] {
    &image[part.rows.start * part.row_len()..part.rows.end * part.row_len()]
}

/// Applies a convolution with bias, then max(x, 0).
fn convolve(
    values: &[f32],
    [before, behind]: &[Strip; 2],
    window: LayerWindow,
    convolution: &Convolution,
) -> Vec<f32> {
    let outputs = behind.channels;
    let mut features = vec![0.0; behind.rows.len() * behind.row_len()];
    let rows_at_once = PIXELS_MIN.div_ceil(behind.width);
    let pieces = features.par_chunks_mut(rows_at_once * behind.row_len()).enumerate();
    pieces.for_each(|(piece, features)| {
        let first = behind.rows.start + piece * rows_at_once;
        let rows = first..first + features.len() / behind.row_len();
        let seen = seen(values, before, rows, behind.width, window);
        for pixel in features.chunks_exact_mut(outputs) {
            pixel.copy_from_slice(&convolution.bias);
        }
        add_product(&seen, &convolution.weights, features, outputs);
        for feature in features {
            // Keeps NaN.
            *feature = if *feature < 0.0 { 0.0 } else { *feature };
        }
    });
    features
}

/// Gathers the patch around each pixel of these rows, `[pixels, window, channels]`; zeros outside the image.
fn seen(
    values: &[f32],
    before: &Strip,
    rows: Range<usize>,
    width: usize,
    window: LayerWindow,
) -> Vec<f32> {
    let [side, stride, padding] =
        [window.side, window.stride, window.padding].map(|length| length as usize);
    let channels = before.channels;
    let mut seen = vec![0.0; rows.len() * width * side * side * channels];
    let places = rows.flat_map(|row| (0..width).map(move |column| [row, column]));
    for (pixel, [row, column]) in seen.chunks_exact_mut(side * side * channels).zip(places) {
        for (at, values_seen) in pixel.chunks_exact_mut(channels).enumerate() {
            let place = |start: usize, at: usize, end: usize| {
                (start * stride + at).checked_sub(padding).filter(|&place| place < end)
            };
            let row = place(row, at / side, before.height);
            let column = place(column, at % side, before.width);
            if let (Some(row), Some(column)) = (row, column) {
                let first = ((row - before.rows.start) * before.width + column) * channels;
                values_seen.copy_from_slice(&values[first..first + channels]);
            }
        }
    }
    seen
}

/// Adds the product of `[pixels, depth]` and `[depth, outputs]` to `[pixels, outputs]`.
fn add_product(seen: &[f32], weights: &[f32], features: &mut [f32], outputs: usize) {
    let (pixels, depth) = (features.len() / outputs, weights.len() / outputs);
    assert_eq!(seen.len(), pixels * depth, "as many pixels on both sides");
    let stride = |length: usize| isize::try_from(length).unwrap_or(isize::MAX);
    let ([seen_stride, stride], [seen, weights]) =
        ([stride(depth), stride(outputs)], [seen.as_ptr(), weights.as_ptr()]);
    let features = features.as_mut_ptr();
    // SAFETY: the row-major matrices hold pixels x depth, depth x outputs and pixels x outputs values, as asserted
    // above, and `features` is borrowed exclusively.
    unsafe {
        matrixmultiply::sgemm(
            pixels,
            depth,
            outputs,
            1.0,
            seen,
            seen_stride,
            1,
            weights,
            stride,
            1,
            1.0,
            features,
            stride,
            1,
        );
    }
}

/// Returns the maximum of each window. No window exceeds the image.
fn pool(values: &[f32], [before, behind]: &[Strip; 2], window: LayerWindow) -> Vec<f32> {
    let [side, stride] = [window.side, window.stride].map(|length| length as usize);
    let channels = behind.channels;
    let mut features = vec![f32::NEG_INFINITY; behind.rows.len() * behind.row_len()];
    features.par_chunks_mut(behind.row_len()).zip(behind.rows.clone()).for_each(|(out, row)| {
        for (column, pixel) in out.chunks_exact_mut(channels).enumerate() {
            for at in 0..side * side {
                let seen_row = row * stride + at / side - before.rows.start;
                let first = (seen_row * before.width + column * stride + at % side) * channels;
                for (most, &value) in pixel.iter_mut().zip(&values[first..first + channels]) {
                    // Keeps NaN.
                    if !most.is_nan() && (value > *most || value.is_nan()) {
                        *most = value;
                    }
                }
            }
        }
    });
    features
}

/// Sums, over the pixels of these rows, the weighted squared differences of the normalised features.
fn lpips_distance([x, y]: &[Vec<f32>; 2], own: &PartOf<'_>, linear: &[f32]) -> f64 {
    let (row_len, channels) = (own.part.row_len(), own.part.channels);
    let rows =
        x[own.values.clone()].par_chunks(row_len).zip(y[own.values.clone()].par_chunks(row_len));
    // Rows are summed in order, so that the thread count has no effect.
    let sums: Vec<f64> = rows
        .map(|(x, y)| {
            let pixels = x.chunks_exact(channels).zip(y.chunks_exact(channels));
            pixels.map(|(x, y)| f64::from(pixel_distance([x, y], linear))).sum()
        })
        .collect();
    sums.into_iter().sum()
}

fn pixel_distance(features: [&[f32]; 2], linear: &[f32]) -> f32 {
    let lengths = features
        .map(|values| values.iter().map(|value| value * value).sum::<f32>().sqrt() + EPSILON);
    let [x, y] = features;
    let terms = x.iter().zip(y).zip(linear).map(|((x, y), weight)| {
        let difference = x / lengths[0] - y / lengths[1];
        weight * (difference * difference)
    });
    terms.sum()
}
