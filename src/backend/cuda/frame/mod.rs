//! The frame: what is known of one drawn view, and the gradients that come of it.

mod colors;
mod draw;
mod gradients;
mod score;
mod view;

pub(super) use draw::{add_worths, draw, draw_splats, transmittances};
pub use gradients::Gradients;
pub(super) use gradients::ViewGradients;
pub use view::Frame;
