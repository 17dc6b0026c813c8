//! Where kernels are found.

/// A piece of code for the GPU.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// A file of `kernels/` without its extension, which the program holds.
    Program(&'static str),
    /// A fatbin as nvcc wrote it.
    Fatbin {
        /// The file that it was made of, for messages.
        source: &'static str,
        /// Its bytes.
        image: &'static [u8],
    },
}

impl Code {
    /// The file that it was made of.
    pub(crate) fn source(self) -> String {
        match self {
            Self::Program(file) => format!("kernels/{file}.cu"),
            Self::Fatbin { source, .. } => source.to_owned(),
        }
    }
}

/// A kernel by its name in a piece of code.
#[derive(Clone, Copy)]
pub struct KernelName {
    /// What holds it.
    pub code: Code,
    /// The function, without mangling.
    pub function: &'static str,
}
