//! Imports of nearly every stage.

pub(crate) use super::device::driver::count_u32;
pub(crate) use super::device::timers::Stage;
pub(crate) use super::memory::heap::{Block, Buffer, Heap};
pub(crate) use super::model::tables::Model;
pub(crate) use super::primitive::CudaPrimitive;
pub(crate) use super::session::Session;
pub(crate) use crate::abi::{In, Out, ViewCamera};
pub(crate) use crate::backend::{DeviceError, Result};
pub(crate) use crate::math::Real;
pub(crate) use crate::memory::Bytes;
