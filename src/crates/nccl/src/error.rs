//! Why NCCL is not there, or fails.

use std::path::PathBuf;

use crate::Version;

/// Why NCCL is not there, or fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NcclError {
    /// The library is nowhere.
    #[error(
        "not found, needed for --gpus. Install NCCL {} or later, and name its folder in SPLAT_NCCL: \
         pip install nvidia-nccl-cu13",
        Version::OLDEST
    )]
    NotFound {
        /// The places, in the order of the search, for `Debug`.
        looked_in: Vec<String>,
    },
    /// `SPLAT_NCCL` names a place without the library. No other place is looked at.
    #[error(
        "SPLAT_NCCL names {}, which is neither a file nor a folder that holds libnccl.so.2 or \
         libnccl.so; name one of them, or unset SPLAT_NCCL",
        path.display()
    )]
    NamesNothing {
        /// What the variable names.
        path: PathBuf,
    },
    /// A file is there, but it does not load or does not answer.
    #[error(
        "cannot use {} as NCCL: {why}; install NCCL {} or later, and name its folder in SPLAT_NCCL",
        path.display(),
        Version::OLDEST
    )]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The system's answer, or the library's.
        why: String,
    },
    /// The library is too old.
    #[error(
        "{} is NCCL {version}, but {} or later is needed: install it, for instance by \
         `pip install nvidia-nccl-cu13`, and name its folder in SPLAT_NCCL",
        path.display(),
        Version::OLDEST
    )]
    TooOld {
        /// The library's file.
        path: PathBuf,
        /// Its version.
        version: Version,
    },
    /// The library lacks a function: it is another library, or a part of one.
    #[error(
        "{} has no function {symbol}: it is not NCCL {} or later; name the right one in SPLAT_NCCL",
        path.display(),
        Version::OLDEST
    )]
    MissingSymbol {
        /// The library's file.
        path: PathBuf,
        /// The function's name.
        symbol: &'static str,
    },
    /// NCCL's communicators do not block, which only the environment can have asked for.
    #[error("NCCL's calls do not block as they should: unset NCCL_COMM_BLOCKING on all ranks")]
    NotBlocking,
    /// A call of NCCL fails. The communicator is of no more use.
    #[error(
        "{call} failed: {message} (result {code}). Read the other ranks' messages; NCCL_DEBUG=WARN shows more"
    )]
    Failed {
        /// NCCL's function.
        call: &'static str,
        /// Its result.
        code: i32,
        /// The result in words, and what NCCL says of its last error.
        message: String,
    },
    /// Something that was enqueued before has failed. The communicator is of no more use.
    #[error(
        "an exchange between ranks failed: {message} (result {code}). Read the other ranks' messages; \
         NCCL_DEBUG=WARN shows more"
    )]
    Broken {
        /// NCCL's result.
        code: i32,
        /// The result in words, and what NCCL says of its last error.
        message: String,
    },
    /// A rank that the group does not have was to join.
    #[error("rank {rank} cannot be one of {world} ranks: ranks count from 0")]
    NoSuchRank {
        /// The rank.
        rank: u32,
        /// Ranks of the group.
        world: u32,
    },
    /// A part is for a rank, or from one, that the group does not have. Nothing was enqueued.
    #[error("there is no rank {peer} among {world} ranks: ranks count from 0")]
    NoSuchPeer {
        /// The rank that the part names.
        peer: u32,
        /// Ranks of the group.
        world: u32,
    },
}
