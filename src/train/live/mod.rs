//! A run and the page that shows it: `MODEL/live/`, where `splat view` says that somebody looks and what
//! they ask for, and where the run leaves the Gaussians as they are now.
//!
//! Nothing here changes what is trained. A run that nobody looks at looks for the folder once a second.

mod control;
mod folder;
mod pace;
mod page;
mod splats;
mod visible;

pub use self::control::ControlRequest;
pub use self::folder::LiveFolder;
pub(super) use self::page::LivePage;
pub(super) use self::splats::packing_bytes;
pub(super) use self::visible::{MOST_SPLATS, most_visible};
