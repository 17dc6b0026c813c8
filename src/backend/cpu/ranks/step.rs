//! A step of Adam on the rows of each rank.

use super::share::{CpuShard, ModelShare};
use crate::backend::cpu::stage::adam;
use crate::backend::cpu::stage::gradients::Gradients;
use crate::backend::{AdamStep, DeviceError};

impl CpuShard {
    /// Moves the rows of this rank; an error of any rank is one of all.
    pub(super) fn move_rows(
        &mut self,
        share: &mut ModelShare,
        gradients: Gradients<f32>,
        step: &AdamStep,
    ) -> Result<(), DeviceError> {
        // Rows of two ranks are rounded by different numbers.
        let seed = self.cpu.seed ^ u64::from(self.rank()) << 32;
        let moved = adam::step(&mut share.local, &gradients, step, seed, None);
        let moved = gradients.views.into_iter().find_map(|view| view.fault).map_or(moved, Err);
        let moved = moved.map_err(|error| numbered(error, share));
        let faults = self.line.all_gather(&moved.as_ref().err().map(ToString::to_string))?;
        moved?;
        let mut faults = (0..).zip(faults);
        let found = faults.find_map(|(rank, fault)| fault.map(|message| (rank, message)));
        found.map_or(Ok(()), |(rank, message)| Err(DeviceError::OfRank { rank, message }))
    }
}

/// The error of a row by the row's number.
fn numbered(error: DeviceError, share: &ModelShare) -> DeviceError {
    match error {
        DeviceError::NotFinite { primitive, index, group, value } => {
            let number = usize::try_from(share.local.number(index)).unwrap_or(index);
            DeviceError::NotFinite { primitive, index: number, group, value }
        }
        error => error,
    }
}
