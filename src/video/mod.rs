//! Paths of a camera through a scene: what a video shows, frame by frame.
//!
//! | file | does |
//! |---|---|
//! | `path_camera.rs` | one camera of a path, for frames of any size |
//! | `around.rs` | up, middle and distance of the scene's cameras, and paths around it: a circle, an ellipse |
//! | `through.rs` | a smooth path from camera to camera, in equal steps |
//! | `frames_file.rs` | paths that other programs write |

mod around;
mod frames_file;
mod path_camera;
mod through;

pub use around::{NoSurroundings, Surroundings, ellipse, orbit};
pub use frames_file::{FramesFile, FramesFileError, SceneTransform, read_frames};
pub use path_camera::PathCamera;
pub use through::through_cameras;
