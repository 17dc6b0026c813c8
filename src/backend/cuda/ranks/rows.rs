//! Rows given to ranks, read from them and put in order.

use std::ops::Range;

use super::density::parts;
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
        match self.cuda.reorder(&mut share.local, cube) {
            // It costs this rank some speed, and the others go on as they are told.
            Err(error) if error.is_out_of_memory() => {
                tracing::debug!("the Gaussians of this rank are not put in order: {error}");
                Ok(())
            }
            done => done,
        }
    }

    fn grant(&mut self, share: &mut CudaShare, wish: usize) -> Result<usize, DeviceError> {
        // As births are dealt out.
        let rows = share.numbering.counts();
        let counts = self.scored.as_ref().map_or(rows, |scored| scored.counts.clone());
        let rank = self.rank() as usize;
        let own = parts(wish, &counts)[rank];
        let granted = self.cuda.grant_births(&mut share.local, own)?;
        if granted == own {
            return Ok(wish);
        }
        // Of which this rank's part, rounded either way, is at most what is granted.
        let all = counts.iter().sum::<usize>() as u128;
        let allowed = granted.saturating_sub(1) as u128 * all / counts[rank].max(1) as u128;
        Ok(usize::try_from(allowed).unwrap_or(wish).min(wish))
    }
}
