//! Processes that work on one model together.
//!
//! Knows nothing of Gaussians, scenes or devices. A process of the group is a *rank*; the group's size is its
//! *world*. In the order of use:
//!
//! | part | what it does |
//! |---|---|
//! | [`launch`] | which rank this process is, by its launcher's environment |
//! | [`supervise`] | starts the ranks of one host, and ends them together |
//! | [`join`](mod@join) | how ranks meet: the handshake, and what must be equal on all of them |
//! | [`link`] | each rank's line to the coordinator: who is alive, who is gone, who is asked to stop |
//! | [`exchange`] | bytes between ranks, by threads or sockets |

mod claim;
pub mod coordinator;
mod departure;
pub mod exchange;
pub mod join;
pub mod launch;
pub mod link;
pub mod message;
pub mod node_list;
mod patient;
pub mod supervise;
mod token;
mod wire;
