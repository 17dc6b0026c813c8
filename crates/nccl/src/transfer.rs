//! What is sent, received and reduced.

use std::ffi::c_int;

use crate::NcclError;

/// Bytes for one rank, or from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The other rank, from 0. Several parts of one peer arrive in the order in which they are sent.
    pub peer: u32,
    /// Where the bytes lie in the device's memory.
    pub address: u64,
    /// How many bytes there are: as many as the peer names. An empty part is skipped.
    pub bytes: usize,
}

/// The type of numbers that are reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `f32`, 4 bytes.
    F32,
    /// `u64`, 8 bytes.
    U64,
}

/// How numbers are reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Their sum. NCCL chooses the order of the additions.
    Sum,
    /// The greatest.
    Max,
}

impl Kind {
    /// NCCL's number for it.
    pub(crate) fn code(self) -> c_int {
        match self {
            Self::F32 => 7,
            Self::U64 => 5,
        }
    }
}

impl Op {
    /// NCCL's number for it.
    pub(crate) fn code(self) -> c_int {
        match self {
            Self::Sum => 0,
            Self::Max => 2,
        }
    }
}

/// Whether all parts, the empty ones as well, name ranks of the group.
pub(crate) fn check_peers(parts: &[Part], world: u32) -> Result<(), NcclError> {
    match parts.iter().find(|part| part.peer >= world) {
        Some(part) => Err(NcclError::NoSuchPeer { peer: part.peer, world }),
        None => Ok(()),
    }
}
