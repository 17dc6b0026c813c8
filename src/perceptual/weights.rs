//! A network's weights, from a safetensors file with the names that the `lpips` package gives them.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use super::network::{COMPARED, LayerKind, LpipsNet};

/// No file of weights is longer: VGG's is a tenth of that.
const LENGTH_MAX: u64 = 600 << 20;

/// Weights that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LpipsError {
    /// The file cannot be opened or read.
    #[error("{path}: the weights of LPIPS cannot be read: {source}. Check --lpips-weights")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no safetensors file, or one of something else.
    #[error(
        "{path}: these are no weights of LPIPS: {problem}. Make the file as the README says, with \
         safetensors.torch.save_file, of lpips.LPIPS(net=\"vgg\") or (net=\"alex\")"
    )]
    NotWeights {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A tensor is missing, or is not what the network has in its place.
    #[error(
        "{path}: `{tensor}` {problem}, as {net} requires. Make the file again as the README describes, of \
         all of lpips.LPIPS(net=\"{net}\").state_dict() but its `lins.*`"
    )]
    Tensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// What is wrong with it.
        problem: String,
        /// The network.
        net: &'static str,
    },
}

/// The weights of one convolution.
#[derive(Clone, Debug, PartialEq)]
pub struct Convolution {
    /// [outputs, inputs, rows, columns]
    pub weights: Vec<f32>,
    /// `[outputs]`
    pub bias: Vec<f32>,
}

/// All weights of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct LpipsWeights {
    net: LpipsNet,
    convolutions: Vec<Convolution>,
    linear: [Vec<f32>; COMPARED],
}

impl LpipsWeights {
    /// Reads a file of `lpips.LPIPS(net=...).state_dict()`. Which network it is of shows in the shape
    /// of the first tensor; what else the file holds is left alone.
    pub fn read(path: &Path) -> Result<Self, LpipsError> {
        let bytes = read(path)?;
        let wrong = |problem| LpipsError::NotWeights { path: path.to_owned(), problem };
        let tensors = SafeTensors::deserialize(&bytes).map_err(|error| wrong(error.to_string()))?;
        let net = net_of(&tensors).map_err(wrong)?;
        let file = WeightTensors { path, tensors, net };
        let mut convolutions = Vec::new();
        for layer in net.layers() {
            if let LayerKind::Convolution { name, inputs, outputs } = layer.kind {
                let [side, inputs, outputs] =
                    [layer.window.side, inputs, outputs].map(|length| length as usize);
                let weights =
                    file.values(format!("{name}.weight"), &[outputs, inputs, side, side])?;
                let bias = file.values(format!("{name}.bias"), &[outputs])?;
                convolutions.push(Convolution { weights, bias });
            }
        }
        let mut linear: [Vec<f32>; COMPARED] = Default::default();
        for (at, (values, channels)) in linear.iter_mut().zip(net.channels()).enumerate() {
            *values =
                file.values(format!("lin{at}.model.1.weight"), &[1, channels as usize, 1, 1])?;
        }
        Ok(Self { net, convolutions, linear })
    }

    /// Which network's they are.
    pub fn net(&self) -> LpipsNet {
        self.net
    }

    /// The convolutions', from the image on.
    pub fn convolutions(&self) -> &[Convolution] {
        &self.convolutions
    }

    /// What the squared differences of the compared layers' channels are multiplied by.
    pub fn linear(&self) -> &[Vec<f32>; COMPARED] {
        &self.linear
    }
}

fn read(path: &Path) -> Result<Vec<u8>, LpipsError> {
    let unreadable = |source| LpipsError::Unreadable { path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(LENGTH_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > LENGTH_MAX {
        let problem = format!("the file is longer than {} MiB", LENGTH_MAX >> 20);
        return Err(LpipsError::NotWeights { path: path.to_owned(), problem });
    }
    Ok(bytes)
}

/// The network whose first convolution is in the file.
fn net_of(tensors: &SafeTensors<'_>) -> Result<LpipsNet, String> {
    for net in LpipsNet::ALL {
        let Some(first) = net.layers().first() else { continue };
        let LayerKind::Convolution { name, inputs, outputs } = first.kind else { continue };
        let name = format!("{name}.weight");
        let Ok(tensor) = tensors.tensor(&name) else {
            return Err(format!("there is no tensor `{name}`"));
        };
        let side = first.window.side;
        if *tensor.shape() == [outputs, inputs, side, side].map(|length| length as usize) {
            return Ok(net);
        }
    }
    Err("the first convolution is neither VGG16's nor AlexNet's".to_owned())
}

/// An open file.
struct WeightTensors<'a> {
    path: &'a Path,
    tensors: SafeTensors<'a>,
    net: LpipsNet,
}

impl WeightTensors<'_> {
    /// The values of a tensor of this shape.
    fn values(&self, name: String, shape: &[usize]) -> Result<Vec<f32>, LpipsError> {
        let found = match self.tensors.tensor(&name) {
            Ok(tensor) => values(&tensor, shape),
            Err(_) => Err("is missing".to_owned()),
        };
        found.map_err(|problem| LpipsError::Tensor {
            path: self.path.to_owned(),
            tensor: name,
            problem,
            net: self.net.name(),
        })
    }
}

fn values(tensor: &TensorView<'_>, shape: &[usize]) -> Result<Vec<f32>, String> {
    if tensor.dtype() != Dtype::F32 || tensor.shape() != shape {
        return Err(format!(
            "is {:?} {:?} instead of F32 {shape:?}",
            tensor.dtype(),
            tensor.shape()
        ));
    }
    let number = |bytes: &[u8]| bytes.try_into().map(f32::from_le_bytes).unwrap_or(f32::NAN);
    let values: Vec<f32> = tensor.data().chunks_exact(size_of::<f32>()).map(number).collect();
    match values.iter().position(|value| !value.is_finite()) {
        Some(at) => Err(format!("is not finite at element {at}")),
        None => Ok(values),
    }
}
