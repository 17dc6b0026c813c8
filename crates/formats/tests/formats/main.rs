//! Files of all formats on the disk: known by their content, whole or not at all, safe against
//! whatever bytes they hold.

mod hostile;
mod known;
mod memory;
mod names;
