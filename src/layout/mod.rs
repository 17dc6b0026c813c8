//! Device memory, described once.

mod schema;

pub use schema::{Column, Forms, Rate, RowForm, Schema, Space, Table, Width, sh_rest_values};
