//! Models on the GPU.

use std::ops::Range;

use crate::backend::cuda::govern::{self, Parts};
use crate::backend::cuda::model::catch_up::catch_up;
use crate::backend::cuda::model::tables::Model;
use crate::backend::cuda::model::transfer::{self, Staging};
use crate::backend::cuda::primitive::CudaPrimitive;
use crate::backend::cuda::stage::reorder;
use crate::backend::cuda::{Cuda, growth};
use crate::backend::{DeviceError, ModelShape, Rows, Snapshot, Store, chunks};
use crate::math::morton::Cube;
use crate::memory::{Bytes, Holder as _, Rung};

impl<P: CudaPrimitive> Store<P> for Cuda {
    type Model = Model<P>;

    fn upload(&mut self, host: &P) -> Result<Model<P>, DeviceError> {
        self.session.forget_faults()?;
        let model = self.room_for_model(host.sh_degree(), host.len())?;
        transfer::upload(&self.session, host, model)
    }

    fn load<S: Rows<P>>(&mut self, source: &mut S) -> Result<Model<P>, S::Error>
    where
        S::Error: From<DeviceError>,
    {
        self.session.forget_faults()?;
        let (sh_degree, count) = (source.shape()?.sh_degree(), source.len());
        let mut model = self.room_for_model(sh_degree, count)?;
        let mut staging = Staging::new(&self.session)?;
        for rows in chunks(count) {
            let chunk = source.read(rows.clone())?;
            self.with_room(|session| {
                transfer::write(session, &mut model, rows.start, &chunk, &mut staging)
            })?;
        }
        Ok(model)
    }

    fn read_parameters(
        &mut self,
        model: &mut Model<P>,
        rows: Range<usize>,
    ) -> Result<P, DeviceError> {
        self.bring_up_to_date(model)?;
        self.with_room(|session| transfer::read_parameters(session, model, &rows))
    }

    fn read(
        &mut self,
        model: &mut Model<P>,
        rows: Range<usize>,
    ) -> Result<Snapshot<P>, DeviceError> {
        self.bring_up_to_date(model)?;
        self.with_room(|session| transfer::read(session, model, &rows))
    }

    fn sample(&mut self, model: &mut Model<P>, rows: &[usize]) -> Result<P, DeviceError> {
        catch_up(&self.session, model)?;
        self.with_room(|session| transfer::sample(session, model, rows))
    }

    fn shape(&self, model: &Model<P>) -> ModelShape {
        let [parameters, optimizer] = model.bytes();
        ModelShape { rows: model.len(), optional: model.optional(), parameters, optimizer }
    }

    fn reorder(&mut self, model: &mut Model<P>, cube: &Cube) -> Result<(), DeviceError> {
        // As before density control.
        self.session.check_faults()?;
        catch_up(&self.session, model)?;
        self.with_room(|session| reorder::reorder(session, model, cube))
    }

    fn govern(&mut self, model: &mut Model<P>, iteration: u32) -> Result<(), DeviceError> {
        self.ladder.set_time(iteration.into());
        let before = self.governed_at.replace(iteration);
        if !is_due(self.trim_interval, before, iteration) {
            return Ok(());
        }
        let Self { images, session, ladder, .. } = self;
        govern::between_iterations(ladder, Parts { images, session, model: Some(model) })
    }

    fn relieve(&mut self, model: &mut Model<P>, error: &DeviceError) -> Result<bool, DeviceError> {
        let Self { images, session, ladder, .. } = self;
        govern::relieve(ladder, Parts { images, session, model: Some(model) }, error)
    }

    fn grant_births(&mut self, model: &mut Model<P>, wish: usize) -> Result<usize, DeviceError> {
        let Self { images, session, ladder, high_water, .. } = self;
        if !ladder.allows(Rung::Births) {
            return Ok(wish);
        }
        session.heap.update_foreign_use()?;
        model.trim()?;
        let mut granted = growth::births(high_water, model, wish, images, &session.heap, ladder);
        for rung in ladder.in_order(&[Rung::Compact, Rung::Offload]) {
            if granted == wish || !ladder.comes_before(rung, Rung::Births) {
                break;
            }
            // For good: not where the host would then hold fewer than the device does now.
            let more = model.len() + granted + 1;
            if rung == Rung::Offload && !govern::has_room_on_host(&session.heap, model, more) {
                continue;
            }
            let mut parts = Parts { images, session, model: Some(model) };
            if let Some((rung, bytes)) = parts.give_up(rung, Bytes(0))?.of(rung) {
                ladder.record(rung, bytes);
                granted = growth::births(high_water, model, wish, images, &session.heap, ladder);
            }
        }
        let each = model.bytes().into_iter().sum::<Bytes>().0 / model.len().max(1) as u64;
        ladder.record_grant(wish, granted, Bytes((wish - granted) as u64 * each));
        Ok(granted)
    }
}

/// Whether memory is put in order after `iteration`: at each multiple of the interval, and at the first
/// call after one where steps take several iterations.
fn is_due(interval: u32, before: Option<u32>, iteration: u32) -> bool {
    let interval = interval.max(1);
    match before.filter(|&before| before < iteration) {
        Some(before) => before / interval < iteration / interval,
        None => iteration.is_multiple_of(interval),
    }
}
