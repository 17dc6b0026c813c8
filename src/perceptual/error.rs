//! What can be wrong with the weights of LPIPS.

use std::io;
use std::path::PathBuf;

/// Weights that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LpipsError {
    /// The file cannot be opened or read.
    #[error(
        "{path}: the weights of LPIPS cannot be read: {source}. Check the path and its permissions"
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no file of tensors, or one of something else.
    #[error(
        "{path}: these are no weights of LPIPS: {problem}. Name a file that `splat help measuring` lists, or make one \
         as it says, with safetensors.torch.save_file, of lpips.LPIPS(net=\"vgg\") or (net=\"alex\")"
    )]
    NotWeights {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A network as torchvision has it, without what LPIPS adds to it.
    #[error(
        "{path}: this is the network alone. The weights that LPIPS learned for its channels are in \
         another file, {}, which is neither beside it nor in {folders}. Copy it beside it from the lpips package \
         (lpips/weights/v0.1/{})",
        .sought.join(" or "), .sought.first().map_or("", String::as_str)
    )]
    NoHeads {
        /// The network's file.
        path: PathBuf,
        /// Names that the other file may have.
        sought: Vec<String>,
        /// Where it was looked for, in words.
        folders: String,
    },
    /// A tensor is missing, or is not what the network has in its place.
    #[error(
        "{path}: `{tensor}` {problem}, as {net} requires. Make the file again as `splat help measuring` describes, of \
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
