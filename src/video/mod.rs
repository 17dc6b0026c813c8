//! Paths of a camera through a scene: what a video shows, frame by frame.
//!
//! | file | does |
//! |---|---|
//! | `path_camera.rs` | one camera of a path, for frames of any size |
//! | `surroundings.rs` | what the scene's cameras say: up, what they look at, from how far |
//! | `around.rs` | paths around that: a circle, an ellipse |
//! | `through.rs` | a smooth path from camera to camera |
//! | `even.rs` | equal steps along a curve |
//! | `frames_file.rs` | paths that other programs write |

mod around;
mod frames_file;
mod path_camera;
mod through;

pub use around::{NoSurroundings, Surroundings, ellipse, orbit};
pub use frames_file::{FramesFile, FramesFileError, SceneTransform, read_frames};
pub use path_camera::PathCamera;
pub use through::through_cameras;
