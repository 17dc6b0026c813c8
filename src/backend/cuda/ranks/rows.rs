//! Rows given to ranks, read from them and put in order.

use std::ops::Range;

use super::share::{CudaShard, CudaShare};
use crate::backend::ranks::numbering::Numbering;
use crate::backend::ranks::{DealtRows, dealt};
use crate::backend::{DeviceError, ModelShape, Rows, Snapshot, Store as _};
use crate::math::morton::Cube;
use crate::model::Gaussians;

impl DealtRows for CudaShard {
    fn deal<S: Rows<Gaussians>>(
        &mut self,
        source: &mut S,
        sh_degree: u32,
    ) -> Result<CudaShare, S::Error>
    where
        S::Error: From<DeviceError>,
    {
        let numbering = Numbering::dealt(self.world(), source.len());
        let mut rows = dealt::deal(&self.line, &numbering, source, sh_degree);
        let local = self.cuda.load(&mut rows)?;
        rows.end()?;
        Ok(CudaShare { local, numbering: numbering.in_turn() })
    }

    fn take_rows(&mut self, sh_degree: u32, rows: usize) -> Result<CudaShare, DeviceError> {
        let numbering = Numbering::dealt(self.world(), rows);
        let mut rows = dealt::take(&self.line, &numbering, sh_degree);
        let local = self.cuda.load(&mut rows)?;
        rows.end()?;
        Ok(CudaShare { local, numbering: numbering.in_turn() })
    }

    fn read(
        &mut self,
        share: &mut CudaShare,
        numbers: &Range<usize>,
    ) -> Result<Option<Snapshot<Gaussians>>, DeviceError> {
        let (cuda, local) = (&mut self.cuda, &mut share.local);
        dealt::read(&self.line, &share.numbering, numbers, |rows| cuda.read(local, rows))
    }

    fn sample(
        &mut self,
        share: &mut CudaShare,
        numbers: &[usize],
    ) -> Result<Option<Gaussians>, DeviceError> {
        let (cuda, local) = (&mut self.cuda, &mut share.local);
        dealt::sample(&self.line, &share.numbering, numbers, |rows| cuda.sample(local, rows))
    }

    fn shape(&self, share: &CudaShare) -> ModelShape {
        self.shape_of_all(share)
    }

    fn reorder(&mut self, share: &mut CudaShare, cube: &Cube) -> Result<(), DeviceError> {
        self.cuda.reorder(&mut share.local, cube)
    }

    fn grant(&mut self, share: &mut CudaShare, wish: usize) -> Result<usize, DeviceError> {
        let scale = share.scale();
        let own = rounded_up(wish as f64 / scale).min(wish);
        let granted = self.cuda.grant_births(&mut share.local, own)?;
        // Where all is granted, rounding is to refuse nothing.
        Ok(if granted == own { wish } else { rounded_up(granted as f64 * scale).min(wish) })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of rows, not below 0"
)]
fn rounded_up(rows: f64) -> usize {
    rows.ceil() as usize
}
