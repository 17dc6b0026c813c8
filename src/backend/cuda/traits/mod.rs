//! What the traits of a device ask for, each handed to the file that does it.

mod device;
mod gaussians;
mod render;
mod store;
