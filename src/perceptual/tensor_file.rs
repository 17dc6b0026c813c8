//! A file of named tensors: safetensors, or as `PyTorch` writes them.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use safetensors::tensor::Metadata;
use safetensors::{Dtype, SafeTensors};

use super::error::LpipsError;
use super::torch_file::TorchFile;

/// No safetensors file of weights is longer: VGG's is a tenth of that.
const LENGTH_MAX: u64 = 600 << 20;

/// Bytes from which the kind of a file shows.
const HEAD: u64 = 512;

/// An open file.
pub(super) struct TensorFile {
    path: PathBuf,
    content: Content,
}

enum Content {
    Safetensors {
        about: Metadata,
        bytes: Vec<u8>,
        /// Where the values begin.
        data: usize,
    },
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

    /// Whether there is a tensor of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        match &self.content {
            Content::Safetensors { about, .. } => about.info(name).is_some(),
            Content::Torch(file) => file.has(name),
        }
    }

    /// Whether there is a tensor of this name and shape.
    pub(super) fn has_shape(&self, name: &str, shape: &[usize]) -> bool {
        self.kind(name).is_some_and(|(_, found)| found == shape)
    }

    /// Kind of the values of a tensor, and its shape.
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

    /// The values of a tensor of this shape, or what is wrong with it.
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

/// Reads a file, or says what is wrong with its content.
fn safetensors(file: File) -> io::Result<Result<Content, String>> {
    let mut bytes = Vec::new();
    file.take(LENGTH_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LENGTH_MAX {
        return Ok(Err(format!("the file is longer than {} MiB", LENGTH_MAX >> 20)));
    }
    Ok(match SafeTensors::read_metadata(&bytes) {
        // The length of the header stands before it.
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
