//! How the two ends of a connection show each other that they know the key, without telling it.
//!
//! Each end says who it is and a fresh random number. The proof is HMAC-SHA256 of both greetings under the
//! key. It also names the side that proves, so that neither end can pass with the other's own proof.

use hmac::{Hmac, Mac};
use sha2::Sha256;

/// What each greeting begins with: the protocol and its version.
const CONTEXT: [u8; 16] = *b"splat exchange 1";

/// Length of a greeting in bytes.
pub(super) const GREETING_LEN: usize = 60;

/// Length of a proof in bytes.
pub(super) const PROOF_LEN: usize = 32;

/// Bytes that SHA-256 takes at a time: HMAC pads its key to as many with zeros.
const BLOCK: usize = 64;

/// The end of a connection that proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The one that connects.
    Guest,
    /// The one that listens.
    Host,
}

/// What each end of a connection says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    /// The rank that speaks.
    pub(super) from: u32,
    /// The rank that it takes the other end for.
    pub(super) to: u32,
    /// How many ranks it expects.
    pub(super) world: u32,
    /// A fresh random number, which makes old proofs worthless.
    pub(super) nonce: [u8; 32],
}

impl Greeting {
    pub(super) fn to_bytes(self) -> [u8; GREETING_LEN] {
        let mut bytes = [0; GREETING_LEN];
        bytes[..16].copy_from_slice(&CONTEXT);
        bytes[16..20].copy_from_slice(&self.from.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.to.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.world.to_le_bytes());
        bytes[28..].copy_from_slice(&self.nonce);
        bytes
    }

    /// None if these bytes begin with another protocol or version.
    pub(super) fn from_bytes(bytes: &[u8; GREETING_LEN]) -> Option<Self> {
        let rest = bytes.strip_prefix(&CONTEXT)?;
        let (from, rest) = rest.split_first_chunk()?;
        let (to, rest) = rest.split_first_chunk()?;
        let (world, rest) = rest.split_first_chunk()?;
        let [from, to, world] = [from, to, world].map(|number| u32::from_le_bytes(*number));
        Some(Self { from, to, world, nonce: rest.try_into().ok()? })
    }
}

/// The greetings of both ends of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Greetings {
    pub(super) guest: Greeting,
    pub(super) host: Greeting,
}

impl Greetings {
    /// What this side sends.
    pub(super) fn proof(&self, key: &[u8; 16], side: Side) -> [u8; PROOF_LEN] {
        self.code(key, side).finalize().into_bytes().into()
    }

    /// Whether this side knows the key. Takes the same time wherever a proof is wrong.
    pub(super) fn is_proven(&self, key: &[u8; 16], side: Side, proof: &[u8; PROOF_LEN]) -> bool {
        self.code(key, side).verify_slice(proof).is_ok()
    }

    fn code(&self, key: &[u8; 16], side: Side) -> Hmac<Sha256> {
        let mut block = [0; BLOCK];
        block[..key.len()].copy_from_slice(key);
        let mut code = Hmac::<Sha256>::new(&block.into());
        code.update(match side {
            Side::Guest => b"guest",
            Side::Host => b"host.",
        });
        code.update(&self.guest.to_bytes());
        code.update(&self.host.to_bytes());
        code
    }
}
