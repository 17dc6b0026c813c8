//! Stage `lpips`: LPIPS of a render and its photograph, in strips that fit the memory.

use crate::abi::{
    LPIPS_BLOCK, LPIPS_CHANNELS, LPIPS_DEPTH, LPIPS_PIXELS, LpipsCompareArgs, LpipsInputArgs,
    LpipsLayerArgs,
};
use crate::backend::cuda::photos::{Target, check_size};
use crate::backend::cuda::prelude::*;
use crate::layout::{LPIPS_FEATURES, LPIPS_SUMS, LPIPS_WEIGHTS};
use crate::perceptual::{
    COMPARED, Convolution, Layer, LayerKind, LayerSizes, LpipsInput, LpipsNet, LpipsWeights,
    StripPlace,
};

const IMAGES: u64 = 2;

/// An LPIPS network on the GPU.
pub struct LpipsModel {
    net: LpipsNet,
    values: Block<f32>,
    /// Indices of the first weight and the first bias of each convolution.
    convolutions: Vec<[usize; 2]>,
    /// Index of the first channel weight of each compared layer.
    linear: [usize; COMPARED],
}

impl LpipsModel {
    pub(crate) fn upload(session: &Session, weights: &LpipsWeights) -> Result<Self> {
        let mut values = Vec::new();
        let mut put = |more: Vec<f32>| {
            let first = values.len();
            values.extend(more);
            first
        };
        let convolutions = weights
            .convolutions()
            .iter()
            .map(|given| [put(transpose(given)), put(given.bias.clone())])
            .collect();
        let linear = weights.linear().each_ref().map(|given| put(given.clone()));
        let mut block = session.heap.take(&LPIPS_WEIGHTS, &(values.len() as u64))?;
        block.upload(&session.stream, 0, &values)?;
        Ok(Self { net: weights.net(), values: block, convolutions, linear })
    }

    /// Returns the values from `first` on. All pieces begin at multiples of 64 values.
    fn from(&self, first: usize) -> In<'_, f32> {
        In::at(self.values.address() + Bytes::of::<f32>(first).0)
    }
}

/// Transposes weights [outputs, seen] to [seen, outputs], zero-padded to whole pieces.
fn transpose(given: &Convolution) -> Vec<f32> {
    let outputs = given.bias.len();
    let seen = given.weights.len() / outputs;
    let mut weights = vec![0.0; seen.next_multiple_of(LPIPS_DEPTH as usize) * outputs];
    for (output, row) in given.weights.chunks_exact(seen).enumerate() {
        for (at, &weight) in row.iter().enumerate() {
            weights[at * outputs + output] = weight;
        }
    }
    weights
}

/// Returns LPIPS of a frame, clamped to 0..1, and its photograph, both multiplied by the mask. Waits for the GPU.
pub(crate) fn perceive(
    session: &Session,
    net: &LpipsModel,
    image: &Block<f32>,
    camera: &ViewCamera,
    target: &Target,
    input: LpipsInput,
) -> Result<f64> {
    let size = camera.size;
    check_size(target.size(), size)?;
    let sizes = LayerSizes::new(net.net, size)
        .ok_or(DeviceError::TooSmallForLpips { size, least: net.net.side_min() })?;
    let Room { mut sums, mut features, strips } = Room::take(&session.heap, &sizes)?;
    sums.zero(&session.stream)?;
    target.wait(&session.stream)?;
    for index in 0..strips {
        let strip = StripPlace { index, count: strips };
        let rows = sizes.rows(strip);
        let [_, width, _] = sizes.size(0);
        let pixels = u64::from(width) * u64::from(rows[0].end - rows[0].start);
        let args = LpipsInputArgs {
            image: image.read(),
            target: target.rgb(),
            mask: target.mask(),
            input: features[0].write(),
            width,
            rows: rows[0].end - rows[0].start,
            first_row: rows[0].start,
            eight_bits: u32::from(input == LpipsInput::EightBits),
        };
        let threads = count(pixels)?;
        session.kernels.lpips_input.over(&session.stream, threads, &args)?;
        run_layers(session, net, &sizes, strip, &mut features, &mut sums)?;
    }
    target.used(&session.stream)?;
    let mut found = [0.0; COMPARED];
    sums.download(&session.stream, 0, &mut found)?;
    let compared = net.net.layers().iter().enumerate().filter(|(_, layer)| layer.compared);
    let means = compared.zip(found).map(|((at, _), sum)| {
        let [_, width, height] = sizes.size(at + 1).map(f64::from);
        sum / (width * height)
    });
    Ok(means.sum())
}

/// Runs a strip through the layers and adds up the compared layers.
fn run_layers(
    session: &Session,
    net: &LpipsModel,
    sizes: &LayerSizes,
    strip: StripPlace,
    features: &mut [Block<f32>; 2],
    sums: &mut Block<f64>,
) -> Result {
    let Session { stream, kernels, .. } = session;
    let rows = sizes.rows(strip);
    let mut convolutions = net.convolutions.iter();
    let mut compared = 0;
    for (at, layer) in net.net.layers().iter().enumerate() {
        let [channels, width, _] = sizes.size(at + 1);
        let plane = u64::from(width) * u64::from(rows[at + 1].end - rows[at + 1].start);
        let [first, second] = features;
        let (input, output) = if at % 2 == 0 { (first, second) } else { (second, first) };
        let args = LpipsLayerArgs {
            input: input.read(),
            output: output.write(),
            ..of_layer(layer, sizes, at, &rows)
        };
        let tiles = |pixels: u32| plane.div_ceil(pixels.into()) * IMAGES;
        match layer.kind {
            LayerKind::Convolution { .. } => {
                let Some(&[weights, bias]) = convolutions.next() else { break };
                let args =
                    LpipsLayerArgs { weights: net.from(weights), bias: net.from(bias), ..args };
                let blocks = tiles(LPIPS_BLOCK) * u64::from(channels / LPIPS_CHANNELS);
                kernels.lpips_convolution.blocks(stream, count(blocks)?, &args)?;
            }
            LayerKind::MaxPool => {
                let blocks = tiles(LPIPS_PIXELS) * u64::from(channels);
                kernels.lpips_pool.blocks(stream, count(blocks)?, &args)?;
            }
        }
        if layer.compared {
            let own = sizes.own(at + 1, strip);
            let args = LpipsCompareArgs {
                features: output.read(),
                weights: net.from(net.linear[compared]),
                sum: Out::at(sums.address() + Bytes::of::<f64>(compared).0),
                plane: width * (rows[at + 1].end - rows[at + 1].start),
                first: width * (own.start - rows[at + 1].start),
                count: width * (own.end - own.start),
                channels,
            };
            kernels.lpips_compare.over(stream, args.count as usize, &args)?;
            compared += 1;
        }
    }
    Ok(())
}

/// Returns a layer's arguments without pointers.
fn of_layer<'a>(
    layer: &Layer,
    sizes: &LayerSizes,
    at: usize,
    rows: &[std::ops::Range<u32>],
) -> LpipsLayerArgs<'a> {
    let [inputs, input_width, input_height] = sizes.size(at);
    let [outputs, output_width, _] = sizes.size(at + 1);
    let (before, behind) = (&rows[at], &rows[at + 1]);
    let side = layer.window.side;
    LpipsLayerArgs {
        input_width,
        input_rows: before.end - before.start,
        input_first: before.start,
        input_height,
        output_width,
        output_rows: behind.end - behind.start,
        output_first: behind.start,
        inputs,
        outputs,
        side,
        stride: layer.window.stride,
        padding: layer.window.padding,
        pieces: (inputs * side * side).div_ceil(LPIPS_DEPTH),
        ..LpipsLayerArgs::default()
    }
}

/// Converts a number of blocks or threads.
fn count(number: u64) -> Result<usize> {
    usize::try_from(number).map_err(|error| DeviceError::Driver {
        call: "cuLaunchKernel",
        reason: format!("{number} threads: {error}"),
    })
}

/// Scratch for the features of both images.
struct Room {
    /// Sums over pixels, one per compared layer.
    sums: Block<f64>,
    /// Features, which alternate between the two blocks.
    features: [Block<f32>; 2],
    strips: u32,
}

impl Room {
    /// Allocates the features of the largest strips that fit. Fails if the thinnest strips do not fit.
    fn take(heap: &Heap, sizes: &LayerSizes) -> Result<Self> {
        let sums = heap.take(&LPIPS_SUMS, &(COMPARED as u64))?;
        // The scratch of recent iterations is there in any case. A granule is lost to rounding.
        let reached = heap.recent_scratch().0.saturating_sub(heap.live_scratch().0);
        let room = heap.available_bytes().0.saturating_sub(heap.granule().0);
        // Thinner strips take many times as long, so the soft limit does not apply to efficient strips.
        let room = room.max(sizes.efficient().0.min(heap.obtainable_bytes().0));
        let mut limit = Bytes(sizes.wish().0.max(reached).min(room));
        loop {
            let strips = sizes.strips_within(limit).unwrap_or(sizes.most());
            let take = |values: u64| heap.take(&LPIPS_FEATURES, &(IMAGES * values));
            let [first, second] = sizes.turns(strips);
            match take(first).and_then(|first| Ok([first, take(second)?])) {
                Ok(features) => return Ok(Self { sums, features, strips }),
                // Memory may be fragmented, or other programs took it.
                Err(error) if error.is_out_of_memory() && strips < sizes.most() => {
                    limit = Bytes(sizes.bytes(strips).0 / 2);
                }
                Err(error) => return Err(error),
            }
        }
    }
}
