//! Stage `appearance`: colours as cameras change them, and the fit of a render's colours to a photograph.

use crate::abi::{
    COLOR_SHARES, CoastArgs, ColorBwdArgs, CompensateArgs, FIT_SUMS, FitArgs, GRID_SHARES, GRID_X,
    GRID_Y, GatherArgs, MoveArgs,
};
use crate::backend::appearance::LazyTableStep;
use crate::backend::cuda::memory::heap::Region;
use crate::backend::cuda::model::lanes::LANES;
use crate::backend::cuda::photos::{Target, check_size};
use crate::backend::cuda::prelude::*;
use crate::backend::{AppearanceTables, Compensation, TableStep};
use crate::layout::{self, COLOR_TABLES, ColorUse, ViewSizes};
use crate::math::appearance::fit;

/// Blocks of `grid_bwd`: shares of each cell's pixels.
const GRID_BLOCKS: usize = ((GRID_X - 1) * (GRID_Y - 1) * GRID_SHARES) as usize;

/// The tables of all training views.
pub struct ColorTables {
    kind: Compensation,
    /// Number of the last step that each table has taken.
    steps: Vec<u32>,
    /// Values, first and second moments; [3, views, width].
    tables: Region<f32>,
}

#[derive(Clone, Copy)]
enum TablePart {
    Values,
    FirstMoments,
    SecondMoments,
}

impl ColorTables {
    pub(crate) fn new(session: &Session, host: &AppearanceTables) -> Result<Self> {
        let mut tables = session.heap.region(&COLOR_TABLES)?;
        let len = host.values.len();
        tables.grow(3 * len)?;
        let parts = [&host.values, &host.first_moments, &host.second_moments];
        for (i, values) in parts.into_iter().enumerate() {
            tables.upload(&session.stream, i * len, values)?;
        }
        Ok(Self { kind: host.kind, steps: host.steps.clone(), tables })
    }

    pub(crate) fn read(&self, session: &Session) -> Result<AppearanceTables> {
        let mut host = AppearanceTables::identity(self.kind, self.steps.len());
        host.steps.clone_from(&self.steps);
        let len = host.values.len();
        let parts = [&mut host.values, &mut host.first_moments, &mut host.second_moments];
        for (i, values) in parts.into_iter().enumerate() {
            self.tables.download(&session.stream, i * len, values)?;
        }
        Ok(host)
    }

    fn check(&self, view: usize) -> Result {
        let views = self.steps.len();
        if view < views { Ok(()) } else { Err(DeviceError::NoSuchTable { view, views }) }
    }

    /// Returns the address of a part of an existing view's table.
    fn address(&self, view: usize, part: TablePart) -> u64 {
        let row = part as usize * self.steps.len() + view;
        self.tables.address() + (row * self.kind.width() * size_of::<f32>()) as u64
    }

    fn values(&self, view: usize) -> In<'_, f32> {
        In::at(self.address(view, TablePart::Values))
    }

    /// Returns values, first and second moments, for a kernel that moves them.
    fn parts_mut(&mut self, view: usize) -> [Out<'_, f32>; 3] {
        [TablePart::Values, TablePart::FirstMoments, TablePart::SecondMoments]
            .map(|part| Out::at(self.address(view, part)))
    }
}

/// Scratch for the compared colours, if they differ from the drawn ones.
pub(crate) struct ColorScratch {
    /// [h, w, 3]
    image: Block<f32>,
    /// True if the colours were computed.
    is_there: bool,
    /// Partial sums of blocks.
    sums: Block<f32>,
    /// Gradient of a table, or map from a render to its photograph.
    map: Block<f32>,
}

impl ColorScratch {
    pub(crate) fn reserve(heap: &Heap, sizes: &ViewSizes, colors: ColorUse) -> Result<Self> {
        let layout::ColorSlots { image, sums, map } =
            layout::ColorSlots::reserve(heap, sizes.pixels, colors)?;
        Ok(Self { image, is_there: false, sums, map })
    }

    /// Returns the colours once they are computed.
    pub(crate) fn image(&self) -> Option<&Block<f32>> {
        self.is_there.then_some(&self.image)
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.image.bytes() + self.sums.bytes() + self.map.bytes()
    }
}

/// The drawn colours of a view, and scratch for the compared ones.
pub(crate) struct ViewColors<'a> {
    /// [h, w, 3]
    pub(crate) drawn: &'a Block<f32>,
    pub(crate) camera: &'a ViewCamera,
    pub(crate) compared: &'a mut ColorScratch,
}

/// Values that the blocks of `fit_colors` write.
const FIT_WIDTH: usize = (COLOR_SHARES * FIT_SUMS) as usize;

/// Computes the compared colours with the view's table, which first takes its skipped steps as in dense Adam.
pub(crate) fn compensate(
    session: &Session,
    appearance: &mut ColorTables,
    ViewColors { drawn, camera, compared }: ViewColors<'_>,
    step: &TableStep,
) -> Result {
    let view = step.view;
    appearance.check(view)?;
    let begun = session.timers.begin(Stage::Loss, &session.stream)?;
    let kind = appearance.kind;
    let before = step.number.saturating_sub(1);
    if let Some(lazy_step) = LazyTableStep::<f32>::new(&step.rule, appearance.steps[view], before) {
        let [values, first_moments, second_moments] = appearance.parts_mut(view);
        let args = CoastArgs {
            values,
            first_moments,
            second_moments,
            drift: lazy_step.drift,
            decay_1: lazy_step.decay_1,
            decay_2: lazy_step.decay_2,
            epsilon: lazy_step.epsilon,
            width: count_u32(kind.width())?,
            reserved: 0,
        };
        session.kernels.coast_table.over(&session.stream, kind.width(), &args)?;
        appearance.steps[view] = before;
    }
    let args = CompensateArgs {
        image: drawn.read(),
        table: appearance.values(view),
        compensated: compared.image.write(),
        size: camera.size,
        clamp: 0,
        reserved: 0,
    };
    let kernel = match kind {
        Compensation::Exposure => &session.kernels.compensate_exposure,
        Compensation::BilateralGrid => &session.kernels.compensate_grid,
    };
    kernel.over(&session.stream, drawn.len() / 3, &args)?;
    compared.is_there = true;
    session.timers.end(&begun, &session.stream)
}

/// Steps the view's table, and turns the gradient of the compared colours into that of the drawn colours.
pub(crate) fn learn(
    session: &Session,
    appearance: &mut ColorTables,
    ViewColors { drawn, camera, compared }: ViewColors<'_>,
    d_image: &mut Block<f32>,
    step: &TableStep,
) -> Result {
    let view = step.view;
    appearance.check(view)?;
    let begun = session.timers.begin(Stage::Loss, &session.stream)?;
    let (kind, stream, kernels) = (appearance.kind, &session.stream, &session.kernels);
    let args = ColorBwdArgs {
        image: drawn.read(),
        table: appearance.values(view),
        d_image: d_image.write(),
        sums: compared.sums.write(),
        size: camera.size,
    };
    match kind {
        Compensation::Exposure => {
            kernels.exposure_bwd.blocks(stream, COLOR_SHARES as usize, &args)?;
        }
        Compensation::BilateralGrid => kernels.grid_bwd.blocks(stream, GRID_BLOCKS, &args)?,
    }
    let args = GatherArgs {
        sums: compared.sums.read(),
        table: appearance.values(view),
        gradient: compared.map.write(),
        total_variation: step.rule.total_variation.to_f32(),
        reserved: 0,
    };
    match kind {
        Compensation::Exposure => {
            kernels.gather_exposure.over(stream, kind.width() * LANES, &args)?;
        }
        Compensation::BilateralGrid => kernels.gather_grid.over(stream, kind.width(), &args)?,
    }
    // A table moves once per iteration, also if the backward pass was refused memory and is repeated.
    if appearance.steps[view] >= step.number {
        return session.timers.end(&begun, &session.stream);
    }
    let coefficients = step.coefficients::<f32>();
    let [values, first_moments, second_moments] = appearance.parts_mut(view);
    let args = MoveArgs {
        values,
        first_moments,
        second_moments,
        gradient: compared.map.read(),
        rate: coefficients.rate,
        inverse_root_correction: coefficients.inverse_root_correction,
        beta_1: coefficients.beta_1,
        beta_2: coefficients.beta_2,
        one_less_beta_1: coefficients.one_less_beta_1,
        one_less_beta_2: coefficients.one_less_beta_2,
        epsilon: coefficients.epsilon,
        width: count_u32(kind.width())?,
    };
    kernels.move_table.over(stream, kind.width(), &args)?;
    appearance.steps[view] = step.number;
    session.timers.end(&begun, &session.stream)
}

/// Computes the compared colours: an affine fit of the drawn ones, clamped to 0..1. Waits for the device.
pub(crate) fn correct(
    session: &Session,
    ViewColors { drawn, camera, compared }: ViewColors<'_>,
    target: &Target,
) -> Result {
    check_size(target.size(), camera.size)?;
    let stream = &session.stream;
    target.wait(stream)?;
    let mut shares = compared.sums.carve().take::<f64>(FIT_WIDTH)?;
    let args = FitArgs {
        image: drawn.read(),
        target: target.rgb(),
        mask: target.mask(),
        sums: shares.write(),
        size: camera.size,
    };
    session.kernels.fit_colors.blocks(stream, COLOR_SHARES as usize, &args)?;
    target.used(stream)?;
    let host = shares.download_vec(stream, 0..FIT_WIDTH)?;
    let mut sums = [0.0; FIT_SUMS as usize];
    for share in host.chunks_exact(sums.len()) {
        sums.iter_mut().zip(share).for_each(|(sum, share)| *sum += share);
    }
    compared.map.upload(stream, 0, &fit(&sums).map(Real::to_f32))?;
    let args = CompensateArgs {
        image: drawn.read(),
        table: compared.map.read(),
        compensated: compared.image.write(),
        size: camera.size,
        clamp: 1,
        reserved: 0,
    };
    session.kernels.compensate_exposure.over(stream, drawn.len() / 3, &args)?;
    compared.is_there = true;
    Ok(())
}
