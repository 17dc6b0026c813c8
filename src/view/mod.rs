//! A model folder as a page in a browser: what is in it, a run that goes on there, and the server.
//!
//! All is read from files, so that looking at a run costs it nothing but the Gaussians that it writes
//! for the page (`live/`). In the order of use:
//!
//! | file | does |
//! |---|---|
//! | `log_tail.rs` | follows `run.jsonl` |
//! | `run_events.rs` | what it says, numbered, and what the run is at |
//! | `shown_splats.rs` | the newest Gaussians, packed |
//! | `scene_facts.rs` | cameras, middle and lists of what there is |
//! | `meshes.rs`, `points.rs`, `photographs.rs` | what else can be looked at |
//! | `watching.rs` | says to the run that somebody looks, and what is wanted of it |
//! | `viewed_model.rs` | all of these, for one model folder |
//! | `server` | answers a browser |

mod run_events;
mod scene_facts;
mod server;
mod shown_splats;
mod viewed_model;

pub use scene_facts::{KnownCameras, ShownPhotographs, ViewedCamera};
pub use server::{Access, AccessToken, Server, ServerError};
pub use viewed_model::{ViewedModel, ViewedSource};
