//! What a rank and the coordinator say to each other.
//!
//! The coordinator speaks first: `Challenge`, by which a rank knows that it found its run. The rank
//! answers with `Hello`. Both prove that they know the secret of the run: the rank in its
//! `Hello`, the coordinator by `Proven`. When all have said theirs, each gets `Welcome`, or all get
//! `Refused`, `Missing` or `Ended`. From then on the connection is the rank's link.
//!
//! What follows the proofs is neither encrypted nor signed: they keep strangers out, not those who
//! change the packets of others. The key between ranks is safe from them, too.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::claim::{Claim, Refusal};
use crate::departure::Departure;

/// The first thing that the coordinator says.
pub(crate) const MAGIC: &str = "splat-ranks";

/// Changes with every change of the messages.
pub(crate) const PROTOCOL: u32 = 3;

/// A rank introduces itself. The fields up to `world` stay the same in all versions, so that
/// another version is told from garbage.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Introduction {
    /// The rank's [`PROTOCOL`].
    pub(crate) protocol: u32,
    pub(crate) rank: u32,
    pub(crate) world: u32,
    pub(crate) host: String,
    pub(crate) pid: u32,
    /// Where the other ranks reach it. An unspecified address: the host of the coordinator.
    pub(crate) data: SocketAddr,
    pub(crate) claims: Vec<Claim>,
    /// The rank's number used once (32 hexadecimal digits), for the coordinator's proof.
    pub(crate) nonce: String,
}

/// What a rank says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Said {
    /// An [`Introduction`] as text, and the proof that its sender knows the token: over the
    /// challenge's nonce and this text.
    Hello { introduction: String, proof: String },
    /// It lives, and has come so far.
    Beat { progress: u64 },
    /// All are to stop.
    Stop,
    /// It is done.
    Leave,
    /// It ends with an error of its own.
    Failed { code: u8, message: String },
}

/// What the coordinator says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Told {
    /// Which run this is, and a number used once (32 hexadecimal digits).
    Challenge { magic: String, protocol: u32, run: String, nonce: String },
    /// The coordinator knows the token, too: the proof is over the introduction's nonce and text.
    Proven { proof: String },
    /// All are there.
    Welcome(Welcome),
    /// This one is not let in; the others go on waiting.
    Turned { why: String },
    /// The ranks do not fit together.
    Refused(Refusal),
    /// These ranks did not come in time.
    Missing { ranks: Vec<u32>, world: u32, seconds: u64 },
    /// A rank is gone.
    Ended(Departure),
    /// Stop in an orderly way.
    Stop,
    /// The coordinator lives.
    Beat,
    /// The coordinator ends in an orderly way; the others may go on.
    Farewell,
}

/// What each rank needs to reach the others.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Welcome {
    /// Where each rank is reached, by rank.
    pub(crate) data: Vec<SocketAddr>,
    /// 32 hexadecimal digits, new for every meeting. The key of the connections between ranks is made of
    /// the salt and the token.
    pub(crate) salt: String,
    /// The coordinator as it is named should it go.
    pub(crate) coordinator: Departure,
}
