//! What is sent and received.

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

/// Whether all parts, the empty ones as well, name ranks of the group.
pub(crate) fn check_peers(parts: &[Part], world: u32) -> Result<(), NcclError> {
    match parts.iter().find(|part| part.peer >= world) {
        Some(part) => Err(NcclError::NoSuchPeer { peer: part.peer, world }),
        None => Ok(()),
    }
}
