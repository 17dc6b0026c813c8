//! Device memory, described once: what a plan without a GPU and the code that takes memory share.

pub mod library;
mod schema;

pub use library::Library;
pub use schema::{Column, Forms, Rate, RowForm, Schema, Space, Table, Width, sh_rest_values};
