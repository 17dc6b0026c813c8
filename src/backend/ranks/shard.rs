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

/// A rank's own device and its connection to the others.
pub trait Shard: Sized {
    /// The device.
    type Device: TrainDevice;
    /// The rank's rows of a model, and the facts about all rows that all ranks have.
    type Share;

    /// True if the other ranks always wait for the gradients of this rank's view. A failure of the view then ends the
    /// rank.
    const MUST_DRAW: bool;

    /// Returns the device.
    fn device(&mut self) -> &mut Self::Device;

    /// Returns the device, for queries.
    fn as_device(&self) -> &Self::Device;

    /// Returns the connection to the other ranks.
    fn line(&self) -> &RankLine;

    /// Returns the rank's rows.
    fn local(share: &Self::Share) -> &<Self::Device as Store<Gaussians>>::Model;

    /// Returns the rank's rows, for changes that concern no other rank.
    fn local_mut(share: &mut Self::Share) -> &mut <Self::Device as Store<Gaussians>>::Model;

    /// Connects the device to those of the other ranks.
    fn connect(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// Distribution, reading and sorting of rows.
pub trait DealtRows: Shard {
    /// Distributes the rows from rank 0, a chunk at a time; the others call [`Self::take_rows`].
    fn deal<S: Rows<Gaussians>>(
        &mut self,
        source: &mut S,
        sh_degree: u32,
    ) -> Result<Self::Share, S::Error>
    where
        S::Error: From<DeviceError>;

    /// Receives this rank's share of the N rows that rank 0 distributes.
    fn take_rows(&mut self, sh_degree: u32, rows: usize) -> Result<Self::Share, DeviceError>;

    /// Returns the rows of these numbers with moments and statistics, on rank 0.
    fn read(
        &mut self,
        share: &mut Self::Share,
        numbers: &Range<usize>,
    ) -> Result<Option<Snapshot<Gaussians>>, DeviceError>;

    /// Returns the parameters of the rows of these numbers, in this order, on rank 0.
    fn sample(
        &mut self,
        share: &mut Self::Share,
        numbers: &[usize],
    ) -> Result<Option<Gaussians>, DeviceError>;

    /// Returns the columns and bytes of the rows of all ranks.
    fn shape(&self, share: &Self::Share) -> ModelShape;

    /// Sorts the rows along the Z-curve of a cube.
    fn reorder(&mut self, share: &mut Self::Share, cube: &Cube) -> Result<(), DeviceError>;

    /// Returns the largest part of `wish`, the number of new Gaussians of all ranks, for which this rank has memory.
    fn grant(&mut self, share: &mut Self::Share, wish: usize) -> Result<usize, DeviceError>;
}

/// Views drawn by ranks: exchange of splats and of their gradients.
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

    /// Projects training views, except those that their ranks cannot compare. Also returns the news of all ranks.
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

    /// Sends the gradients of a frame's splats to the ranks of their rows, which add them to their gradients and
    /// statistics. A rank whose view failed has no frame.
    fn add_gradients(
        &mut self,
        share: &mut Self::Share,
        round: Self::Round,
        frame: Option<<Self::Device as Render<Gaussians>>::Frame<Scored<Drawn>>>,
        gradients: &mut <Self::Device as Render<Gaussians>>::Gradients,
    ) -> Result<(), DeviceError>;

    /// Replaces the statistics with the blend weights of all rows in these views.
    fn weigh(
        &mut self,
        share: &mut Self::Share,
        views: &[View],
        settings: &RenderSettings,
    ) -> Result<(), DeviceError>;

    /// Applies a step of Adam to the rows of this rank.
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

    /// Edits the selected rows of this rank. Returns the counts of all ranks.
    fn edit(
        &mut self,
        share: &mut Self::Share,
        selection: Self::Selection,
        rule: &EditRule,
    ) -> Result<Edited, DeviceError>;

    /// Changes all rows alike.
    fn adjust(&mut self, share: &mut Self::Share, adjust: &Adjust) -> Result<(), DeviceError>;

    /// Recomputes the 3D filter from these views.
    fn smooth(
        &mut self,
        share: &mut Self::Share,
        views: &[View],
        sampled_from: f64,
    ) -> Result<(), DeviceError>;
}

/// All operations that ranks do together.
pub trait RankShard: DealtRows + SharedViews + SharedEdits {}

impl<S: DealtRows + SharedViews + SharedEdits> RankShard for S {}
