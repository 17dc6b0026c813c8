//! A network's weights, from files with the names that the `lpips` package gives their tensors, or
//! torchvision.

use std::path::{Path, PathBuf};

use super::error::LpipsError;
use super::network::{COMPARED, LayerKind, LpipsNet};
use super::places;
use super::tensor_file::TensorFile;

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
    files: Vec<PathBuf>,
    convolutions: Vec<Convolution>,
    linear: [Vec<f32>; COMPARED],
}

/// Who named the tensors of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    /// `lpips.LPIPS(net=...).state_dict()`: `net.slice1.0.weight`.
    Lpips,
    /// `torchvision.models.vgg16(...).state_dict()`: `features.0.weight`. What LPIPS adds to the
    /// network is in another file.
    Torchvision,
}

impl Names {
    /// The name of a tensor of a convolution that LPIPS calls this.
    fn of(self, layer: &str, tensor: &str) -> String {
        match self {
            Self::Lpips => format!("{layer}.{tensor}"),
            Self::Torchvision => {
                let number = layer.rsplit_once('.').map_or(layer, |(_, number)| number);
                format!("features.{number}.{tensor}")
            }
        }
    }
}

impl LpipsWeights {
    /// Reads a file of `lpips.LPIPS(net=...).state_dict()`, or torchvision's file of the network and
    /// that of the `lpips` package that belongs to it, which is looked for. Which network it is of
    /// shows in the shape of the first tensor; what else the files hold is left alone.
    pub fn read(path: &Path) -> Result<Self, LpipsError> {
        let mut file = TensorFile::open(path)?;
        let (net, names) = net_of(&file)
            .map_err(|problem| LpipsError::NotWeights { path: path.to_owned(), problem })?;
        let mut convolutions = Vec::new();
        for layer in net.layers() {
            if let LayerKind::Convolution { name, inputs, outputs } = layer.kind {
                let [side, inputs, outputs] =
                    [layer.window.side, inputs, outputs].map(|length| length as usize);
                let shape = [outputs, inputs, side, side];
                let weights = values(&mut file, net, names.of(name, "weight"), &shape)?;
                let bias = values(&mut file, net, names.of(name, "bias"), &[outputs])?;
                convolutions.push(Convolution { weights, bias });
            }
        }
        let mut files = vec![path.to_owned()];
        // A network as torchvision has it may have been saved with them.
        if names == Names::Torchvision && !file.has(&head_name(0)) {
            let heads = places::heads(net, path).ok_or_else(|| LpipsError::NoHeads {
                path: path.to_owned(),
                sought: places::head_files(net).map(str::to_owned).to_vec(),
            })?;
            file = TensorFile::open(&heads)?;
            files.push(heads);
        }
        let mut linear: [Vec<f32>; COMPARED] = Default::default();
        for (at, (weights, channels)) in linear.iter_mut().zip(net.channels()).enumerate() {
            *weights = values(&mut file, net, head_name(at), &[1, channels as usize, 1, 1])?;
        }
        Ok(Self { net, files, convolutions, linear })
    }

    /// Which network's they are.
    pub fn net(&self) -> LpipsNet {
        self.net
    }

    /// The files that they were read from: the network's first.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
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

/// What the weights of a compared layer's channels are called.
fn head_name(layer: usize) -> String {
    format!("lin{layer}.model.1.weight")
}

/// The network whose first convolution is in the file, and who named it.
fn net_of(file: &TensorFile) -> Result<(LpipsNet, Names), String> {
    let all = [Names::Lpips, Names::Torchvision];
    let mut is_there = false;
    for net in LpipsNet::ALL {
        let Some(first) = net.layers().first() else { continue };
        let LayerKind::Convolution { name, inputs, outputs } = first.kind else { continue };
        let shape = [outputs, inputs, first.window.side, first.window.side];
        let shape = shape.map(|length| length as usize);
        for names in all {
            if file.has_shape(&names.of(name, "weight"), &shape) {
                return Ok((net, names));
            }
            is_there |= file.has(&names.of(name, "weight"));
        }
    }
    if is_there {
        return Err("the first convolution is neither VGG16's nor AlexNet's".to_owned());
    }
    let [ours, theirs] = all.map(|names| names.of("net.slice1.0", "weight"));
    let is_network = all.iter().any(|names| file.has(&names.of("net.slice1.0", "bias")));
    if file.has(&head_name(0)) && !is_network {
        return Err(
            "it is the part that the lpips package adds to torchvision's network, whose file is named instead"
                .to_owned(),
        );
    }
    Err(format!("there is no tensor `{ours}` or `{theirs}`"))
}

/// The values of a tensor of this shape.
fn values(
    file: &mut TensorFile,
    net: LpipsNet,
    name: String,
    shape: &[usize],
) -> Result<Vec<f32>, LpipsError> {
    file.values(&name, shape).map_err(|problem| LpipsError::Tensor {
        path: file.path().to_owned(),
        tensor: name,
        problem,
        net: net.name(),
    })
}
