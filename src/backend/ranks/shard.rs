//! Operations that ranks do together. All ranks call the same method at the same time. Each rank holds a share of the
//! rows of the model.

use std::ops::Range;

use super::line::{RankLine, RankNews};
use super::view::{RankView, ViewSetup};
use crate::backend::{
    AdamStep, Adjust, Candidates, DeviceError, DrawSettings, Drawn, EditRule, Edited, Fresh,
    ModelShape, Pick, Render, RenderSettings, Rows, ScoreRule, Scored, Snapshot, Store,
    TrainDevice,
};
use crate::dataset::View;
use crate::math::morton::Cube;
use crate::model::Gaussians;

/// A rank's own device and its way to the others.
pub trait Shard: Sized {
    /// The device.
    type Device: TrainDevice;
    /// The rows of a model that the rank has, and what all ranks know of all rows.
    type Share;

    /// True if the other ranks always wait for the gradients of this rank's view. A failure of the view then ends the
    /// rank.
    const MUST_DRAW: bool;

    /// The device.
    fn device(&mut self) -> &mut Self::Device;

    /// The device, for queries.
    fn as_device(&self) -> &Self::Device;

    /// The way to the other ranks.
    fn line(&self) -> &RankLine;

    /// The rank's rows.
    fn local(share: &Self::Share) -> &<Self::Device as Store<Gaussians>>::Model;

    /// The rank's rows, for changes that other ranks need not know.
    fn local_mut(share: &mut Self::Share) -> &mut <Self::Device as Store<Gaussians>>::Model;

    /// Makes the device ready to work with those of the others.
    fn meet(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// Rows given to ranks, read from them and put in order.
pub trait DealtRows: Shard {
    /// Rank 0's part of [`Self::take_rows`]: deals the rows out, of which it holds a chunk at a time.
    fn deal<S: Rows<Gaussians>>(
        &mut self,
        source: &mut S,
        sh_degree: u32,
    ) -> Result<Self::Share, S::Error>
    where
        S::Error: From<DeviceError>;

    /// The rows of this rank of so many that rank 0 deals out.
    fn take_rows(&mut self, sh_degree: u32, rows: usize) -> Result<Self::Share, DeviceError>;

    /// The rows of these numbers with their moments and statistics, on rank 0.
    fn read(
        &mut self,
        share: &mut Self::Share,
        numbers: &Range<usize>,
    ) -> Result<Option<Snapshot<Gaussians>>, DeviceError>;

    /// The parameters of the rows of these numbers, in their order, on rank 0.
    fn sample(
        &mut self,
        share: &mut Self::Share,
        numbers: &[usize],
    ) -> Result<Option<Gaussians>, DeviceError>;

    /// Returns the columns and bytes of the rows of all ranks.
    fn shape(&self, share: &Self::Share) -> ModelShape;

    /// Puts the rows in the order of their places along the Z-curve around a cube.
    fn reorder(&mut self, share: &mut Self::Share, cube: &Cube) -> Result<(), DeviceError>;

    /// Returns the largest part of `wish`, the number of new Gaussians of all ranks, for which this rank has memory.
    fn grant(&mut self, share: &mut Self::Share, wish: usize) -> Result<usize, DeviceError>;
}

/// Views drawn by ranks: splats on their way to who draws, and gradients on their way back.
pub trait SharedViews: Shard {
    /// The rank's own splats in the views of all ranks, until gradients come back.
    type Round;
    /// The splats of the view that this rank draws.
    type Splats;

    /// Projects the rows of all ranks into these views, by rank.
    fn project(
        &mut self,
        share: &Self::Share,
        setups: &[Option<&ViewSetup>],
    ) -> Result<(Self::Round, Self::Splats), DeviceError>;

    /// Projects training views, except those that their ranks cannot compare. Returns the news of all ranks too.
    #[expect(clippy::type_complexity, reason = "a few associated types")]
    fn project_to_train(
        &mut self,
        share: &Self::Share,
        views: &[Option<RankView>],
        news: RankNews,
    ) -> Result<(Self::Round, Self::Splats, Vec<RankNews>), DeviceError>;

    /// Draws the view of this rank.
    fn draw<S: Fresh>(
        &mut self,
        share: &Self::Share,
        view: &View,
        drawing: DrawSettings,
        splats: Self::Splats,
    ) -> Result<<Self::Device as Render<Gaussians>>::Frame<S>, DeviceError>;

    /// Brings the gradients of a frame's splats to the ranks of their rows, which add them to their own and
    /// to the statistics. A rank whose view came to nothing has no frame.
    fn add_gradients(
        &mut self,
        share: &mut Self::Share,
        round: Self::Round,
        frame: Option<<Self::Device as Render<Gaussians>>::Frame<Scored<Drawn>>>,
        gradients: &mut <Self::Device as Render<Gaussians>>::Gradients,
    ) -> Result<(), DeviceError>;

    /// Puts the blend weights of all rows in these views where the statistics were.
    fn weigh(
        &mut self,
        share: &mut Self::Share,
        views: &[View],
        settings: &RenderSettings,
    ) -> Result<(), DeviceError>;

    /// Moves the rows of this rank.
    fn step(
        &mut self,
        share: &mut Self::Share,
        gradients: <Self::Device as Render<Gaussians>>::Gradients,
        step: &AdamStep,
    ) -> Result<(), DeviceError>;
}

/// Density control and the 3D filter of the rows of all ranks.
pub trait SharedEdits: Shard {
    /// The selected rows.
    type Selection;

    /// Finds the candidates among the rows of all ranks, and counts them.
    fn score(&mut self, share: &Self::Share, rule: &ScoreRule) -> Result<Candidates, DeviceError>;

    /// Selects among the candidates of all ranks.
    fn select(
        &mut self,
        share: &mut Self::Share,
        candidates: &Candidates,
        pick: Pick,
    ) -> Result<Self::Selection, DeviceError>;

    /// Edits the rows of this rank by what was selected of all; returns what was done on all.
    fn edit(
        &mut self,
        share: &mut Self::Share,
        selection: Self::Selection,
        rule: &EditRule,
    ) -> Result<Edited, DeviceError>;

    /// Changes all rows alike.
    fn adjust(&mut self, share: &mut Self::Share, adjust: &Adjust) -> Result<(), DeviceError>;

    /// Finds the 3D filter anew from these views.
    fn smooth(
        &mut self,
        share: &mut Self::Share,
        views: &[View],
        sampled_from: f64,
    ) -> Result<(), DeviceError>;
}

/// All that ranks do together.
pub trait RankShard: DealtRows + SharedViews + SharedEdits {}

impl<S: DealtRows + SharedViews + SharedEdits> RankShard for S {}
