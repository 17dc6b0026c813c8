//! A model folder as a page in a browser: what is in it, a run that goes on there, and the server.
//!
//! All is read from files, so that looking at a run costs it nothing but the Gaussians that it writes
//! for the page (`live/`). In the order of use:
//!
//! | file | does |
//! |---|---|
//! | `run_events.rs` | follows `run.jsonl`, numbers its events, and says where the run stands |
//! | `shown_splats.rs` | the newest Gaussians, packed |
//! | `scene_facts.rs` | cameras, middle, photographs, points and meshes of a scene |
//! | `viewed_model.rs` | all of these for one model folder, and requests to its run |
//! | `server.rs` | answers a browser |

mod run_events;
mod scene_facts;
mod server;
mod shown_splats;
mod viewed_model;

pub use scene_facts::{KnownCameras, ShownPhotographs, ViewedCamera};
pub use server::{Access, AccessToken, Server, ServerError};
pub use viewed_model::{ViewedModel, ViewedSource};
