//! Errors of the weights of LPIPS.

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
        "{path}: holds no weights of LPIPS: {problem}. Name one of the files that `splat help measuring` lists"
    )]
    NotWeights {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A network as torchvision has it, without what LPIPS adds to it.
    #[error(
        "{path}: is the network alone. Put lpips/weights/v0.1/{} of the lpips package beside it{}",
        .sought.first().map_or("", String::as_str),
        .sought.get(1).map_or(String::new(), |other| format!(", or pyiqa's {other}"))
    )]
    NoHeads {
        /// The network's file.
        path: PathBuf,
        /// Names that the other file may have.
        sought: Vec<String>,
    },
    /// A tensor is missing, or is not what the network has in its place.
    #[error(
        "{path}: `{tensor}` {problem}, as {net} requires. Write the file again with the script of `splat help measuring`"
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
