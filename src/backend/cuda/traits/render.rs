//! Drawing views and training on them.

use std::ops::Range;

#[cfg(feature = "bench")]
use crate::backend::Profiler;
use crate::backend::cuda::Cuda;
use crate::backend::cuda::dry_run;
use crate::backend::cuda::frame::{self, Frame, Gradients};
use crate::backend::cuda::model::tables::Model;
use crate::backend::cuda::photos::Target;
use crate::backend::cuda::primitive::CudaPrimitive;
use crate::backend::cuda::stage::expect::expect;
use crate::backend::cuda::stage::losses::PendingLosses;
use crate::backend::cuda::stage::neighbours::{self, NearestLists};
use crate::backend::cuda::stage::project::{DrawnView, Splats};
use crate::backend::frame_state::{Drawn, FrameState, Fresh, Scored, Shown, Trainable};
use crate::backend::neighbours::list_len;
use crate::backend::{
    AdamStep, DeviceError, Drawing, Inputs, Look, Measured, Neighbours, Objective, Render,
    RenderSettings, Rendered, Wants,
};
use crate::dataset::View;
use crate::memory::plan::view_scratch;
use crate::memory::{Bytes, Rung};

impl<P: CudaPrimitive> Neighbours<P> for Cuda {
    type Lists = NearestLists<P>;

    fn neighbours(&mut self, model: &Model<P>, count: u32) -> Result<NearestLists<P>, DeviceError> {
        let found = self.with_room(|session| neighbours::neighbours(session, model, count));
        let refused = found.as_ref().err().map(DeviceError::is_out_of_memory);
        // What is wrong with the question says nothing of memory.
        if refused != Some(false) {
            let count = list_len(count, model.len())?;
            self.session.list_room.asked_for(count, model.len(), refused.is_some());
        }
        found
    }

    fn read_neighbours(
        &mut self,
        lists: &NearestLists<P>,
        rows: Range<usize>,
    ) -> Result<Vec<u32>, DeviceError> {
        lists.read(&self.session, &rows)
    }

    fn max_neighbours(&self) -> u32 {
        self.session.list_room.most()
    }
}

impl Cuda {
    /// Draws a view for whatever follows.
    pub(in crate::backend::cuda) fn draw<S: Fresh, P: CudaPrimitive>(
        &mut self,
        model: &Model<P>,
        view: &View,
        settings: &Drawing,
    ) -> Result<Frame<S, P>, DeviceError> {
        let frame: Frame<S, P> =
            self.with_room(|session| frame::draw(session, model, view, settings))?;
        self.note_bands(&frame, model.len());
        Ok(frame)
    }

    /// Draws the splats of a view that ranks have projected of so many Gaussians of this one.
    pub(in crate::backend::cuda) fn draw_splats<S: Fresh>(
        &mut self,
        gaussians: usize,
        drawn: DrawnView<'_>,
        splats: Splats,
    ) -> Result<Frame<S>, DeviceError> {
        let earlier = Bytes(self.session.heap.live_scratch().0.saturating_sub(splats.bytes().0));
        let mut splats = Some(splats);
        let frame: Result<Frame<S>, _> =
            self.with_room(|session| frame::draw_splats(session, gaussians, drawn, &mut splats));
        let frame = self.note_refusal(drawn.camera.size, frame)?;
        self.note_bands(&frame, gaussians);
        if drawn.settings.trains {
            let (heap, ladder) = (&self.session.heap, &self.ladder);
            self.high_water.observe(&frame, gaussians, earlier, heap, ladder);
        }
        Ok(frame)
    }

    /// Writes down that a view is drawn in bands, where it is.
    fn note_bands<S: FrameState, P: CudaPrimitive>(
        &mut self,
        frame: &Frame<S, P>,
        gaussians: usize,
    ) {
        // What is only aimed at is no shortage.
        if frame.is_in_bands() && (!self.has_aim || self.ladder.is_given_up(Rung::Bands)) {
            let planned = frame.planned(gaussians, Inputs::NONE, false);
            let library = self.session.heap.cub_scratch();
            let whole = view_scratch(dry_run, library, gaussians as u64, planned);
            self.session.banded_need = self.session.banded_need.max(whole);
            self.ladder.record(Rung::Bands, Bytes(0));
        }
    }
}

impl Cuda {
    /// What became of a part of the step of a training view of this size: smaller views may help the next
    /// try where memory was short.
    pub(in crate::backend::cuda) fn note_refusal<R>(
        &mut self,
        px: [u32; 2],
        done: Result<R, DeviceError>,
    ) -> Result<R, DeviceError> {
        let refused = done.as_ref().err().is_some_and(DeviceError::is_out_of_memory);
        self.session.view_size.drawn(px, refused);
        done
    }
}

impl<P: CudaPrimitive> Render<P> for Cuda {
    type Frame<S: FrameState> = Frame<S, P>;
    type Gradients = Gradients<P>;
    type Losses = PendingLosses;

    fn render(
        &mut self,
        model: &Model<P>,
        view: &View,
        settings: &RenderSettings,
        look: Look,
    ) -> Result<Frame<Shown, P>, DeviceError> {
        self.draw(model, view, &Drawing::shown(settings, look))
    }

    fn render_train(
        &mut self,
        model: &Model<P>,
        view: &View,
        settings: &RenderSettings,
        wants: &Wants,
    ) -> Result<Frame<Drawn, P>, DeviceError> {
        // What earlier views of a batch left.
        let earlier = self.session.heap.live_scratch();
        let drawn = self.draw(model, view, &Drawing::trained(settings, wants));
        let frame = self.note_refusal([view.camera.width, view.camera.height], drawn)?;
        let (heap, ladder) = (&self.session.heap, &self.ladder);
        self.high_water.observe(&frame, model.len(), earlier, heap, ladder);
        Ok(frame)
    }

    fn objective<S: Trainable>(
        &mut self,
        model: &Model<P>,
        frame: Frame<S, P>,
        objective: &Objective<'_, Target, NearestLists<P>>,
    ) -> Result<(Frame<Scored<S>, P>, PendingLosses), DeviceError> {
        let px = frame.camera.size;
        // No second try: it would give away the photograph that the frame is compared with.
        let scored = frame.scored(&mut self.session, model, objective);
        let (mut frame, losses) = self.note_refusal(px, scored)?;
        if let Some(near) = objective.near.filter(|_| objective.terms.sdf_unit().is_some()) {
            let compared =
                self.with_room(|session| frame.compare_sampled_depths(session, model, near));
            self.note_refusal(px, compared)?;
        }
        Ok((frame, losses))
    }

    fn backward(
        &mut self,
        model: &mut Model<P>,
        frame: Frame<Scored<Drawn>, P>,
        near: Option<&NearestLists<P>>,
        gradients: &mut Gradients<P>,
    ) -> Result<PendingLosses, DeviceError> {
        let px = frame.camera.size;
        let done = frame.backward(&mut self.session, model, near, gradients);
        self.note_refusal(px, done)
    }

    fn expect(
        &mut self,
        model: &mut Model<P>,
        view: &View,
        settings: &RenderSettings,
    ) -> Result<(), DeviceError> {
        expect(&self.session, model, view, &Drawing::trained(settings, &Wants::default()))
    }

    fn step(
        &mut self,
        model: &mut Model<P>,
        gradients: Gradients<P>,
        step: &AdamStep,
    ) -> Result<(), DeviceError> {
        gradients.step(&mut self.session, model, None, step)
    }

    fn measure<S: FrameState>(
        &mut self,
        frame: &Frame<S, P>,
        target: &Target,
    ) -> Result<Measured, DeviceError> {
        frame.measure(&mut self.session, target)
    }

    fn image<S: FrameState>(&mut self, frame: &Frame<S, P>) -> Result<Rendered, DeviceError> {
        frame.image(&self.session)
    }

    #[cfg(feature = "bench")]
    fn profiler(&mut self) -> Option<&mut dyn Profiler<Model<P>, Frame<Drawn, P>>> {
        Some(self)
    }
}
