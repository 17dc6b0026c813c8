//! The prune to `--target-gaussians` as part of a run.

use std::time::Instant;

use super::Trainer;
use crate::backend::{EditRule, Pick, ScoreRule, TrainDevice};
use crate::dataset::View;
use crate::train::TrainError;
use crate::train::event::{Event, Phase, Split, TargetPsnr, TargetReport};
use crate::train::target::TargetPrune;
use crate::train::unexplained_growth::UnexplainedGrowth;

impl<B: TrainDevice> Trainer<'_, B> {
    /// Removes all Gaussians but those that matter most, where that is due after the last step.
    pub(super) fn prune_to_target(&mut self) -> Result<(), TrainError> {
        let prune = TargetPrune::of(self.setup.config);
        let Some(TargetPrune { target, .. }) = prune.filter(|prune| prune.is_due(self.last_step))
        else {
            return Ok(());
        };
        self.report_pending()?;
        let iteration = self.iteration;
        let gaussians = self.device.len(&self.model);
        let mut report = TargetReport { iteration, target, pruned: 0, gaussians, psnr: None };
        if gaussians > target {
            self.end_phase(self.phase());
            let before = self.psnr_of_target()?;
            report.pruned = self.retain_heaviest(target)?;
            report.gaussians = self.device.len(&self.model);
            let split = self.judged_split().name().to_owned();
            report.psnr = before.zip(self.psnr_of_target()?).map(|(before, after)| {
                let finite = |psnr: f64| Some(psnr).filter(|psnr| psnr.is_finite());
                TargetPsnr { split, before: finite(before), after: finite(after) }
            });
            // Other views were wanted in between.
            self.feed.schedule_decoding(self.device, self.pace.next_image());
        }
        self.sink.on(&Event::PrunedToTarget(report))?;
        Ok(())
    }

    fn psnr_of_target(&mut self) -> Result<Option<f64>, TrainError> {
        let psnr = self.within_training(|run| run.with_memory_retry(Self::mean_psnr))?;
        self.device.synchronize()?;
        self.end_phase(Phase::Evaluation);
        Ok(psnr)
    }

    /// Removes all but so many; says how many were removed.
    fn retain_heaviest(&mut self, target: usize) -> Result<usize, TrainError> {
        let started = Instant::now();
        // Left out like another round it would never come again.
        let pruned = self.with_memory_retry(|run| run.try_to_retain(target))?;
        self.device.synchronize()?;
        self.clock.add_beside_iterations(started);
        self.creep = UnexplainedGrowth::from(self.iteration);
        self.profile(Phase::DensityControl)?;
        self.end_phase(Phase::DensityControl);
        Ok(pruned)
    }

    fn try_to_retain(&mut self, target: usize) -> Result<usize, TrainError> {
        let settings = self.settings_of(self.iteration.max(1));
        let views = &self.feed.views;
        let trained: Vec<&View> =
            views.split(Split::Train).iter().map(|&index| views.training_view(index)).collect();
        let (device, model) = (&mut *self.device, &mut self.model);
        device.weigh(model, &trained, &settings)?;
        let candidates = device.score(model, &ScoreRule::Weight)?;
        let selection = device.select(model, &candidates, Pick::Best(target))?;
        Ok(device.edit(model, selection, &EditRule::Retain)?.removed)
    }

    /// Warns where a run continues from an iteration after the prune, and was not pruned then.
    pub(super) fn warn_of_missed_target(&mut self) -> Result<(), TrainError> {
        let prune = TargetPrune::of(self.setup.config);
        let Some(TargetPrune { iteration, target }) = prune else { return Ok(()) };
        let gaussians = self.device.len(&self.model);
        let is_loaded = self.setup.config.sugar.checkpoint_path.is_some();
        // A batch may end after that iteration, and the prune then comes before the next.
        let is_ahead = self.last_step.before < iteration
            && self.last_step.after < self.setup.config.optimize.iterations;
        if is_ahead || gaussians <= target || is_loaded {
            return Ok(());
        }
        self.warn(format!(
            "--target-gaussians {target} has no effect on the {gaussians} Gaussians: its prune follows iteration \
             {iteration}, and the run continues from {}. Start from an earlier checkpoint",
            self.last_step.after
        ))?;
        Ok(())
    }
}
