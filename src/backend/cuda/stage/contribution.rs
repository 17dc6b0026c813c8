//! Stage `contribution`: the contributions of Gaussians to a view, and their blend weights.

use super::bin::Bins;
use super::project::{DrawnView, Splats};
use crate::abi::{
    AddContributionsArgs, AddWeightsArgs, CONTRIBUTION_WIDTH, ContributionArgs, WhitenArgs,
};
use crate::backend::cuda::photos::Target;
use crate::backend::cuda::prelude::*;
use crate::backend::{Contribution, Held};
use crate::layout::{ABSENT, CONTRIBUTIONS, VIEW_CONTRIBUTIONS};
use crate::model::Primitive;

/// Contributions of Gaussians in the views so far.
pub struct ContributionSums {
    /// Flags of removed Gaussians, not 0 if removed; `[n]`.
    absent: Block<u8>,
    /// [n, 4]
    sums: Block<f32>,
    count: usize,
}

impl ContributionSums {
    pub(crate) fn new(session: &Session, absent: &[bool]) -> Result<Self> {
        let count = absent.len();
        // A buffer has one element at least.
        let room = count.max(1) as u64;
        let flags: Vec<u8> = absent.iter().map(|&is_absent| u8::from(is_absent)).collect();
        let mut on_device = session.heap.take(&ABSENT, &room)?;
        on_device.upload(&session.stream, 0, &flags)?;
        let mut sums = session.heap.take(&CONTRIBUTIONS, &room)?;
        sums.zero(&session.stream)?;
        Ok(Self { absent: on_device, sums, count })
    }

    pub(crate) fn read(&self, session: &Session) -> Result<Vec<Contribution>> {
        let values = 0..self.count * CONTRIBUTION_WIDTH as usize;
        let host = self.sums.download_vec(&session.stream, values)?;
        let (rows, _) = host.as_chunks();
        let read = |row: &[f32; CONTRIBUTION_WIDTH as usize]| {
            let &[weight, weight_max, error_change, squared_change] = row;
            Contribution { weight, weight_max, error_change, squared_change }
        };
        Ok(rows.iter().map(read).collect())
    }
}

impl Held for ContributionSums {
    fn bytes(&self) -> Bytes {
        self.absent.bytes() + self.sums.bytes()
    }
}

/// Contributions of a view's splats.
pub(crate) struct ViewContributions(Block<f32>);

impl ViewContributions {
    pub(crate) fn new(session: &Session, splats: &Splats) -> Result<Self> {
        let mut contributions =
            session.heap.take(&VIEW_CONTRIBUTIONS, &(splats.visible.max(1) as u64))?;
        contributions.zero(&session.stream)?;
        Ok(Self(contributions))
    }

    /// Draws the listed tiles without removed Gaussians, and adds the contributions. The photograph has arrived.
    pub(crate) fn judge(
        &mut self,
        session: &Session,
        listed: ListedSplats<'_>,
        sums: &ContributionSums,
        target: &Target,
        image: &mut Block<f32>,
    ) -> Result {
        let ListedSplats { splats, bins, view: DrawnView { camera, settings } } = listed;
        let begun = session.timers.begin(Stage::BlendForward, &session.stream)?;
        let args = ContributionArgs {
            splats: splats.records.read(),
            splat_from_instance: bins.splat_from_instance.read(),
            ranges: bins.ranges.read(),
            absent: sums.absent.read(),
            target: target.rgb(),
            mask: target.mask(),
            image: image.write(),
            contributions: self.0.write(),
            size: camera.size,
            background: settings.background,
            tiles_wide: camera.tiles[0],
            first_tile: bins.extent.rows.start * camera.tiles[0],
            reserved: 0,
        };
        let tiles = bins.extent.tiles_listed();
        session.kernels.blend(splats.kind)?.contribution_pixels.blocks(
            &session.stream,
            tiles,
            &args,
        )?;
        session.timers.end(&begun, &session.stream)
    }

    /// Adds the view's contributions to the sums.
    pub(crate) fn add_to(
        &self,
        session: &Session,
        splats: &Splats,
        sums: &mut ContributionSums,
    ) -> Result {
        let args = AddContributionsArgs {
            splats: splats.records.read(),
            contributions: self.0.read(),
            sums: sums.sums.write(),
            visible: count_u32(splats.visible)?,
            record_width: splats.kind.width(),
        };
        session.kernels.add_contributions.over(&session.stream, splats.visible, &args)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct ListedSplats<'a> {
    pub(crate) splats: &'a Splats,
    pub(crate) bins: &'a Bins,
    pub(crate) view: DrawnView<'a>,
}

/// Prepares a backward pass that yields blend weights: sets all colours and the gradients of all pixels to 1.
pub(crate) fn prepare_weights(
    session: &Session,
    splats: &mut Splats,
    d_image: &mut Block<f32>,
) -> Result {
    let Splats { visible, records, kind, .. } = splats;
    let record_width = kind.width();
    let args = WhitenArgs { splats: records.write(), visible: count_u32(*visible)?, record_width };
    session.kernels.whiten.over(&session.stream, *visible, &args)?;
    d_image.fill_words(&session.stream, 1.0_f32.to_bits())
}

/// Adds the view's weights to the sums, which lie in the place of the gradient norms.
pub(crate) fn add_weights<P: Primitive>(
    session: &Session,
    model: &mut Model<P>,
    splats: &Splats,
) -> Result {
    let gaussians = splats.splat_from_gaussian.len();
    let args = AddWeightsArgs {
        splat_from_gaussian: splats.splat_from_gaussian.read(),
        gradients: splats.gradients.read(),
        weights: model.gradient_norm_sums.write(),
        gaussians: count_u32(gaussians)?,
        record_width: splats.kind.width(),
    };
    session.kernels.add_weights.over(&session.stream, gaussians, &args)
}
