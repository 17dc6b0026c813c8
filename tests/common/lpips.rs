//! Weights of LPIPS that are made by a recipe, and images, as they were given to the `lpips` package.

use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize_to_file};
use splat::perceptual::{LayerKind, LpipsNet, LpipsWeights};

/// Number `i` of a sequence in 0..1: 24 bits of a hash.
pub fn uniform(seed: u64, i: u64) -> f64 {
    let mut z = ((seed << 32) + i).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z ^= z >> 32;
    z = z.wrapping_mul(0xD6E8_FEB8_6659_FD93);
    z ^= z >> 32;
    (z >> 40) as f64 / f64::from(1 << 24)
}

/// A tensor with its name and shape.
pub struct Tensor {
    pub name: String,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
    pub dtype: Dtype,
}

impl Tensor {
    fn new(name: String, shape: &[usize], value: impl Fn(u64) -> f64) -> Self {
        let count = shape.iter().product::<usize>() as u64;
        #[expect(clippy::cast_possible_truncation, reason = "rounded to the file's precision")]
        let bytes = (0..count).flat_map(|i| (value(i) as f32).to_le_bytes()).collect();
        Self { name, shape: shape.to_vec(), bytes, dtype: Dtype::F32 }
    }
}

/// All tensors: those of tensor `t` from sequence 2 t + 1. Weights of a convolution lie within
/// ±√(6 / values that it sees), so that features neither die out nor grow; its bias within ±0.1.
pub fn tensors(net: LpipsNet) -> Vec<Tensor> {
    let mut shapes: Vec<(String, Vec<usize>)> = Vec::new();
    for layer in net.layers() {
        if let LayerKind::Convolution { name, inputs, outputs } = layer.kind {
            let [inputs, outputs, side] = [inputs, outputs, layer.window.side].map(|n| n as usize);
            shapes.push((format!("{name}.weight"), vec![outputs, inputs, side, side]));
            shapes.push((format!("{name}.bias"), vec![outputs]));
        }
    }
    for (at, channels) in net.channels().enumerate() {
        shapes.push((format!("lin{at}.model.1.weight"), vec![1, channels as usize, 1, 1]));
    }
    let tensor = |(seed, (name, shape)): (u64, (String, Vec<usize>))| {
        let seen: usize = shape[1..].iter().product();
        let bound = if name.ends_with(".bias") { 0.1 } else { (6.0 / seen as f64).sqrt() };
        let is_linear = name.starts_with("lin");
        Tensor::new(name, &shape, |i| match uniform(seed, i) {
            u if is_linear => u,
            u => (2.0 * u - 1.0) * bound,
        })
    };
    (0..).map(|t| 2 * t + 1).zip(shapes).map(tensor).collect()
}

/// Writes tensors as `safetensors.torch.save_file` does.
pub fn write(path: &Path, tensors: &[Tensor]) {
    let views = tensors.iter().map(|tensor| {
        let Tensor { name, shape, bytes, dtype } = tensor;
        (name.clone(), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    serialize_to_file(views, None, path).unwrap();
}

/// The weights of the recipe, by way of a file.
pub fn weights(net: LpipsNet) -> LpipsWeights {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    write(&path, &tensors(net));
    LpipsWeights::read(&path).unwrap()
}

/// Two images of this width and height, [h, w, 3]: slanted stripes, and the same with noise.
pub fn images([width, height]: [u32; 2], seed: u64) -> [Vec<u8>; 2] {
    let values =
        (0..height).flat_map(|y| (0..width).flat_map(move |x| (0..3).map(move |c| [x, y, c])));
    let stripes: Vec<u8> =
        values.map(|[x, y, c]| u8::try_from((3 * x + 2 * y + 40 * c) % 256).unwrap()).collect();
    let noisy = (0..).zip(&stripes).map(|(i, value)| {
        let noise = (0..64).rev().find(|&n| f64::from(n) <= 64.0 * uniform(seed, i)).unwrap_or(0);
        value.saturating_add(noise)
    });
    let noisy = noisy.collect();
    [stripes, noisy]
}
