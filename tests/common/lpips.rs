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

// Files of tensors as `PyTorch` writes them, byte by byte.

/// A pickle that is being written.
struct Pickle(Vec<u8>);

impl Pickle {
    fn new() -> Self {
        Self(vec![0x80, 2])
    }

    fn raw(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.0.extend(bytes.as_ref());
        self
    }

    fn name(self, module: &str, name: &str) -> Self {
        self.raw(format!("c{module}\n{name}\n"))
    }

    fn text(self, text: &str) -> Self {
        let length = u32::try_from(text.len()).unwrap().to_le_bytes();
        self.raw("X").raw(length).raw(text)
    }

    fn number(self, value: usize) -> Self {
        match (u8::try_from(value), u16::try_from(value)) {
            (Ok(value), _) => self.raw([b'K', value]),
            (_, Ok(value)) => self.raw("M").raw(value.to_le_bytes()),
            _ => self.raw("J").raw(i32::try_from(value).unwrap().to_le_bytes()),
        }
    }

    fn tuple(self, values: &[usize]) -> Self {
        let numbers = values.iter().fold(self.raw("("), |pickle, &value| pickle.number(value));
        numbers.raw("t")
    }

    /// `torch._utils._rebuild_tensor_v2(storage, 0, shape, strides, False, OrderedDict())`, or what
    /// came before it.
    fn tensor(self, tensor: &Tensor, key: &str, version: Version) -> Self {
        let length = tensor.bytes.len() / 4;
        let mut strides = vec![1; tensor.shape.len()];
        for axis in (1..strides.len()).rev() {
            strides[axis - 1] = strides[axis] * tensor.shape[axis];
        }
        let function =
            if version == Version::Zip { "_rebuild_tensor_v2" } else { "_rebuild_tensor" };
        let begun = match version {
            Version::Parameters => {
                self.name("torch.nn.parameter", "Parameter").name("torch._utils", function)
            }
            _ => self.name("torch._utils", function),
        };
        let storage = begun.raw("((").text("storage").name("torch", "FloatStorage").text(key);
        let storage = storage.text("cpu").number(length);
        let storage = if version == Version::Zip { storage } else { storage.raw("N") };
        let view = storage.raw("tQ").number(0).tuple(&tensor.shape).tuple(&strides);
        match version {
            Version::Zip => view.raw(b"\x89").name("collections", "OrderedDict").raw(")RtR"),
            Version::Stream => view.raw("tR"),
            // With the state that a wrapper of the first versions got afterwards.
            Version::Parameters => view.raw(b"tR\x88\x86R\x88\x89N\x87b"),
        }
    }

    /// An `OrderedDict` of named tensors, whose storages are called 0, 1 and so on.
    fn state_dict(tensors: &[Tensor], version: Version) -> Vec<u8> {
        let begun = Self::new().name("collections", "OrderedDict").raw("q\x00)Rq\x01(");
        let entries = tensors.iter().enumerate().fold(begun, |pickle, (at, tensor)| {
            pickle.text(&tensor.name).tensor(tensor, &at.to_string(), version)
        });
        entries.raw("u.").0
    }
}

/// A version of the format of `torch.save`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Since 1.6.
    Zip,
    /// Before.
    Stream,
    /// In the beginning, when networks stored their tensors in wrappers.
    Parameters,
}

/// The file of these tensors.
pub fn file(tensors: &[Tensor], version: Version) -> Vec<u8> {
    let described = Pickle::state_dict(tensors, version);
    if version == Version::Zip {
        return zip(tensors, &described);
    }
    let mut file = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.".to_vec();
    file.extend(Pickle::new().number(1001).raw(".").0);
    let machine = Pickle::new().raw("}(").text("protocol_version").number(1001);
    file.extend(machine.text("little_endian").raw(b"\x88u.").0);
    file.extend(described);
    let keys = (0..tensors.len()).fold(Pickle::new().raw("]("), |it, at| it.text(&at.to_string()));
    file.extend(keys.raw("e.").0);
    for tensor in tensors {
        file.extend((tensor.bytes.len() as u64 / 4).to_le_bytes());
        file.extend(&tensor.bytes);
    }
    file
}

/// A zip of `archive/data.pkl` and `archive/data/N`, none of them compressed.
fn zip(tensors: &[Tensor], described: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut archive = rawzip::ZipArchiveWriter::new(&mut file);
    let mut add = |name: &str, content: &[u8]| {
        let new = archive.new_file(name).compression_method(rawzip::CompressionMethod::STORE);
        let (mut entry, config) = new.start().unwrap();
        let mut writer = config.wrap(&mut entry);
        std::io::Write::write_all(&mut writer, content).unwrap();
        let (_, descriptor) = writer.finish().unwrap();
        entry.finish(descriptor).unwrap();
    };
    add("archive/data.pkl", described);
    add("archive/byteorder", b"little");
    for (at, tensor) in tensors.iter().enumerate() {
        add(&format!("archive/data/{at}"), &tensor.bytes);
    }
    add("archive/version", b"3\n");
    archive.finish().unwrap();
    file
}
