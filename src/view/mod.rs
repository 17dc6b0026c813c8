//! A model folder as a page in a browser: its contents, its active run, and the server.
//!
//! Everything is read from files. The page costs a run only the Gaussians that the run writes for it (`live/`).
//! In the order of use:
//!
//! | file | does |
//! |---|---|
//! | `run_events.rs` | follows `run.jsonl`, numbers its events, and finds the state of the run |
//! | `shown_splats.rs` | the newest Gaussians, packed |
//! | `scene_facts.rs` | cameras, centre, photographs, points and meshes of a scene |
//! | `viewed_model.rs` | all of these for one model folder, and commands to its run |
//! | `server.rs` | answers a browser |

mod run_events;
mod scene_facts;
mod server;
mod shown_splats;
mod viewed_model;

pub use scene_facts::{KnownCameras, ShownPhotographs, ViewedCamera};
pub use server::{Access, AccessToken, Server, ServerError};
pub use viewed_model::{ViewedModel, ViewedSource};
