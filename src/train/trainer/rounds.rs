//! The views of a step, as many at once as the device has ranks.

use super::Trainer;
use super::pending::PendingView;
use crate::backend::{RankOutcome, RankView, Sight, TrainDevice};
use crate::train::TrainError;
use crate::train::pace::Turn;
use crate::train::span::ImageSpan;
use crate::train::terms::ViewExtras;
use crate::train::view_divisor::view_divisor;

impl<B: TrainDevice> Trainer<'_, B> {
    /// Adds the gradients of these images to those of their step: of the first on this rank, of the others on
    /// ranks of their own. A view that its rank cannot decode is left out.
    pub(super) fn add_round(
        &mut self,
        round: ImageSpan,
        turn: Turn,
        gradients: &mut B::Gradients,
    ) -> Result<Vec<PendingView<B>>, TrainError> {
        let others = (round.before + 2)..=round.after;
        let others: Vec<RankView> = others
            .map(|image| self.rank_view(image, turn.iteration_of(image)))
            .collect::<Result<_, _>>()?;
        let known: Vec<_> = others.iter().map(|view| (view.index, view.terms.clone())).collect();
        let first = round.before + 1;
        self.device.share_views(first, others);
        let mut views = vec![self.add_view(first, turn.iteration_of(first), gradients)?];
        for (outcome, (index, terms)) in self.device.take_shared().into_iter().zip(known) {
            match outcome {
                RankOutcome::Added(losses) => views.push(PendingView { terms, losses }),
                RankOutcome::Undecodable(why) => self.feed.views.leave_out(index, &why),
            }
        }
        Ok(views)
    }

    /// The view of an image that another rank draws. Such a view is compared with its photograph alone.
    fn rank_view(&mut self, image: u32, iteration: u32) -> Result<RankView, TrainError> {
        let index = self.feed.assigned(image)?;
        let terms = self.terms(iteration, ViewExtras::of(&self.setup.dataset.sources[index]));
        let (settings, observe) = (self.settings_in(image, iteration), self.observes(iteration));
        let divisor = view_divisor(self.setup.config, iteration);
        let (view, divisor) = self.feed.views.divided_view(index, divisor);
        let (view, surface) = (view.into_owned(), terms.needs().maps);
        Ok(RankView {
            image,
            iteration,
            index,
            sight: Sight { view, settings, surface, observe, divisor },
            terms,
        })
    }
}
