//! Weights of a network, from files with the tensor names of the `lpips` package or of torchvision.

use std::env;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use safetensors::tensor::Metadata;
use safetensors::{Dtype, SafeTensors};

use super::network::{COMPARED, LayerKind, LpipsNet};
use super::torch_file::TorchFile;
use crate::files::entries;

/// Weights of a convolution.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    /// `lpips.LPIPS(net=...).state_dict()`: `net.slice1.0.weight`.
    Lpips,
    /// `torchvision.models.vgg16(...).state_dict()`: `features.0.weight`. The weights of LPIPS
    /// are in another file.
    Torchvision,
}

impl Names {
    /// Returns the name of a tensor of the convolution `layer` (in the names of LPIPS).
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
    /// Reads a file of `lpips.LPIPS(net=...).state_dict()`, or torchvision's file of the network together with the
    /// file of the `lpips` package, which is searched for. The shape of the first tensor determines the network.
    /// Other tensors are ignored.
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
        // The weights of LPIPS may have been saved with torchvision's network.
        if names == Names::Torchvision && !file.has(&head_name(0)) {
            let heads = heads(net, path).ok_or_else(|| LpipsError::NoHeads {
                path: path.to_owned(),
                sought: head_files(net).map(str::to_owned).to_vec(),
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

    /// Returns the network of the weights.
    pub fn net(&self) -> LpipsNet {
        self.net
    }

    /// Returns the files of the weights, the network's first.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Returns the convolutions in order of evaluation.
    pub fn convolutions(&self) -> &[Convolution] {
        &self.convolutions
    }

    /// Returns the weight of each channel of the compared layers.
    pub fn linear(&self) -> &[Vec<f32>; COMPARED] {
        &self.linear
    }
}

/// Returns the name of the channel weights of a compared layer.
fn head_name(layer: usize) -> String {
    format!("lin{layer}.model.1.weight")
}

/// Returns the network whose first convolution is in the file, and the naming.
fn net_of(file: &TensorFile) -> Result<(LpipsNet, Names), String> {
    let all = [Names::Lpips, Names::Torchvision];
    let mut is_there = false;
    for net in LpipsNet::ALL {
        let Some(first) = net.layers().first() else { continue };
        let LayerKind::Convolution { name, inputs, outputs } = first.kind else { continue };
        let shape = [outputs, inputs, first.window.side, first.window.side];
        let shape = shape.map(|length| length as usize);
        for names in all {
            let found = file.kind(&names.of(name, "weight"));
            is_there |= found.is_some();
            if found.is_some_and(|(_, found)| found == shape) {
                return Ok((net, names));
            }
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

/// Environment variable with the path of a weights file.
pub const WEIGHTS_VARIABLE: &str = "SPLAT_LPIPS_WEIGHTS";

/// Result of a search for weights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WeightsSearch {
    /// File of the network, if all weights were found.
    pub found: Option<PathBuf>,
    /// File of torchvision without the weights of the `lpips` package.
    pub without_heads: Option<PathBuf>,
}

impl WeightsSearch {
    /// Searches the weights of VGG16, the usual network of LPIPS, then the weights of `AlexNet`.
    pub fn run() -> Self {
        let folders = weight_folders();
        let mut search = Self::default();
        for net in LpipsNet::ALL {
            let whole = [format!("lpips_{}.safetensors", net.name())];
            if let Some(path) = first_file(&folders, &whole) {
                return Self { found: Some(path), ..search };
            }
            let Some(path) = first_file(&folders, network_files(net)) else { continue };
            if heads(net, &path).is_some() {
                return Self { found: Some(path), ..search };
            }
            search.without_heads.get_or_insert(path);
        }
        search
    }
}

/// Returns the file that [`WEIGHTS_VARIABLE`] names.
pub fn named_by_environment() -> Option<PathBuf> {
    variable(WEIGHTS_VARIABLE)
}

/// Returns the folders of the search: the caches of this program and of `PyTorch`, and the package `lpips` of the
/// active Python environment.
fn weight_folders() -> Vec<PathBuf> {
    let home = variable("HOME");
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(home.as_ref()?.join(".cache")));
    let torch = variable("TORCH_HOME").or_else(|| Some(cache.as_ref()?.join("torch")));
    let own = cache.map(|cache| cache.join("splat"));
    let torch = torch.map(|torch| torch.join("hub").join("checkpoints"));
    let prefixes = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable);
    let packages = prefixes.flat_map(|prefix| packages(&prefix));
    own.into_iter().chain(torch).chain(packages).collect()
}

/// Returns the file with the channel weights of LPIPS, beside the network's file or in a folder of the search.
pub(super) fn heads(net: LpipsNet, network: &Path) -> Option<PathBuf> {
    let beside = network.parent().map(Path::to_owned);
    let folders: Vec<PathBuf> = beside.into_iter().chain(weight_folders()).collect();
    first_file(&folders, &head_files(net))
}

/// Returns the file's names in the `lpips` package and in pyiqa.
pub(super) fn head_files(net: LpipsNet) -> [&'static str; 2] {
    match net {
        LpipsNet::Vgg => ["vgg.pth", "LPIPS_v0.1_vgg-a78928a0.pth"],
        LpipsNet::Alex => ["alex.pth", "LPIPS_v0.1_alex-df73285e.pth"],
    }
}

/// Returns the names of torchvision's file.
fn network_files(net: LpipsNet) -> &'static [&'static str] {
    match net {
        LpipsNet::Vgg => &["vgg16-397923af.pth"],
        LpipsNet::Alex => &["alexnet-owt-7be5be79.pth"],
    }
}

/// Returns the first existing file, in the order of the folders.
fn first_file(folders: &[PathBuf], names: &[impl AsRef<Path>]) -> Option<PathBuf> {
    let paths = folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name)));
    paths.into_iter().find(|path| path.is_file())
}

/// Returns the weight folders of the `lpips` package below a Python environment.
fn packages(prefix: &Path) -> Vec<PathBuf> {
    let is_python = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|it| it.starts_with("python3"))
    };
    let pythons = entries(&prefix.join("lib")).into_iter().filter(is_python);
    pythons.map(|path| path.join("site-packages/lpips/weights/v0.1")).collect()
}

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

// Files of named tensors: safetensors or `PyTorch`.

/// Maximum length of a safetensors file, bytes: VGG's has a tenth.
const LENGTH_MAX: u64 = 600 << 20;

/// Bytes that determine the kind of a file.
const HEAD: u64 = 512;

pub(super) struct TensorFile {
    path: PathBuf,
    content: Content,
}

enum Content {
    Safetensors { about: Metadata, bytes: Vec<u8>, data: usize },
    Torch(TorchFile),
}

impl TensorFile {
    pub(super) fn open(path: &Path) -> Result<Self, LpipsError> {
        let unreadable = |source| LpipsError::Unreadable { path: path.to_owned(), source };
        let wrong = |problem| LpipsError::NotWeights { path: path.to_owned(), problem };
        let mut file = File::open(path).map_err(unreadable)?;
        let mut head = Vec::new();
        file.by_ref().take(HEAD).read_to_end(&mut head).map_err(unreadable)?;
        file.rewind().map_err(unreadable)?;
        let content = if TorchFile::is_one(&head) {
            Content::Torch(TorchFile::open(file).map_err(wrong)?)
        } else {
            safetensors(file).map_err(unreadable)?.map_err(wrong)?
        };
        Ok(Self { path: path.to_owned(), content })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn has(&self, name: &str) -> bool {
        match &self.content {
            Content::Safetensors { about, .. } => about.info(name).is_some(),
            Content::Torch(file) => file.has(name),
        }
    }

    fn kind(&self, name: &str) -> Option<(String, Vec<usize>)> {
        match &self.content {
            Content::Safetensors { about, .. } => {
                let info = about.info(name)?;
                Some((format!("{:?}", info.dtype), info.shape.clone()))
            }
            Content::Torch(file) => {
                let (kind, shape) = file.kind(name)?;
                let shape = shape.iter().map(|&n| usize::try_from(n).unwrap_or(usize::MAX));
                Some((kind.to_owned(), shape.collect()))
            }
        }
    }

    /// Returns the values of a tensor of this shape, or its fault.
    pub(super) fn values(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, String> {
        let wanted = format!("{:?}", Dtype::F32);
        let (kind, found) = self.kind(name).ok_or("is missing")?;
        if kind != wanted || found != shape {
            return Err(format!("is {kind} {found:?} instead of {wanted} {shape:?}"));
        }
        let values = match &mut self.content {
            Content::Safetensors { about, bytes, data } => {
                let [first, last] = about.info(name).map_or([0, 0], |info| {
                    let (first, last) = info.data_offsets;
                    [*data + first, *data + last]
                });
                floats(bytes.get(first..last).unwrap_or_default())
            }
            Content::Torch(file) => file.values(name)?,
        };
        match values.iter().position(|value| !value.is_finite()) {
            Some(at) => Err(format!("is not finite at element {at}")),
            None => Ok(values),
        }
    }
}

/// Reads a file. The inner error describes a fault of the content.
fn safetensors(file: File) -> io::Result<Result<Content, String>> {
    let mut bytes = Vec::new();
    file.take(LENGTH_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LENGTH_MAX {
        return Ok(Err(format!("the file is longer than {} MiB", LENGTH_MAX >> 20)));
    }
    Ok(match SafeTensors::read_metadata(&bytes) {
        // The header follows its length.
        Ok((header, about)) => {
            Ok(Content::Safetensors { about, bytes, data: size_of::<u64>() + header })
        }
        Err(error) => Err(error.to_string()),
    })
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let number = |bytes: &[u8]| bytes.try_into().map(f32::from_le_bytes).unwrap_or(f32::NAN);
    bytes.chunks_exact(size_of::<f32>()).map(number).collect()
}

/// Error of the weights of LPIPS.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages explain variants and fields")]
pub enum LpipsError {
    #[error(
        "{path}: the weights of LPIPS cannot be read: {source}. Check the path and its permissions"
    )]
    Unreadable { path: PathBuf, source: io::Error },
    #[error(
        "{path}: holds no weights of LPIPS: {problem}. Name one of the files that `splat help measuring` lists"
    )]
    NotWeights { path: PathBuf, problem: String },
    #[error(
        "{path}: is the network alone. Put lpips/weights/v0.1/{} of the lpips package beside it{}",
        .sought.first().map_or("", String::as_str),
        .sought.get(1).map_or(String::new(), |other| format!(", or pyiqa's {other}"))
    )]
    NoHeads { path: PathBuf, sought: Vec<String> },
    #[error(
        "{path}: `{tensor}` {problem}, as {net} requires. Write the file again with the script of `splat help measuring`"
    )]
    Tensor { path: PathBuf, tensor: String, problem: String, net: &'static str },
}
