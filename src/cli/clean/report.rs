//! What is said of a cleaning.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;

use crate::clean::{CleanOptions, CleanRule, Cleaning};
use crate::cli::scene::Opened;

/// What is said of a cleaning.
#[derive(Serialize)]
pub(super) struct CleanReport {
    from: PathBuf,
    /// Nothing where nothing is written.
    to: Option<PathBuf>,
    iteration: u32,
    gaussians_before: usize,
    pub(super) gaussians_after: usize,
    /// Share of the Gaussians that go, 0 to 1.
    removed_share: f64,
    removed: Vec<RuleReport>,
    /// Means over the training views, dB. The latter is before the cut by place, which is made last.
    psnr_before: f64,
    psnr_after: f64,
    max_loss: f64,
    train_views: usize,
    passes: u32,
    seconds: f64,
}

/// What a rule removes.
#[derive(Serialize)]
struct RuleReport {
    rule: CleanRule,
    removed: usize,
    /// Of all Gaussians, 0 to 1.
    share: f64,
}

impl CleanReport {
    pub(super) fn new(
        cleaning: &Cleaning,
        opened: &Opened,
        options: &CleanOptions,
        started: Instant,
    ) -> Self {
        let gaussians = cleaning.gone.len();
        let share = |removed: usize| removed as f64 / gaussians.max(1) as f64;
        let by_rule = cleaning.by_rule().into_iter();
        Self {
            from: PathBuf::new(),
            to: None,
            iteration: opened.iteration,
            gaussians_before: gaussians,
            gaussians_after: gaussians - cleaning.removed(),
            removed_share: share(cleaning.removed()),
            removed: by_rule
                .map(|of| RuleReport {
                    rule: of.rule,
                    removed: of.removed,
                    share: share(of.removed),
                })
                .collect(),
            psnr_before: cleaning.psnr_before,
            psnr_after: cleaning.psnr_after,
            max_loss: options.max_loss,
            train_views: opened.dataset.train.len(),
            passes: cleaning.passes,
            seconds: started.elapsed().as_secs_f64(),
        }
    }

    /// The same of a model folder, written to another.
    pub(super) fn at(self, from: &Path, to: Option<&Path>) -> Self {
        Self { from: from.to_owned(), to: to.map(Path::to_owned), ..self }
    }

    /// As a person reads it.
    pub(super) fn described(&self) -> String {
        let Self { gaussians_before, gaussians_after, psnr_before, psnr_after, .. } = self;
        let mut text = match &self.to {
            Some(to) => {
                format!("{}: {gaussians_after} of {gaussians_before} Gaussians", to.display())
            }
            None => format!(
                "{}: {gaussians_after} of {gaussians_before} Gaussians would be left",
                self.from.display()
            ),
        };
        write!(text, ", {:.1} % removed", 100.0 * self.removed_share).ok();
        for of in self.removed.iter().filter(|of| of.removed > 0) {
            let (name, share) = (of.rule.name(), 100.0 * of.share);
            write!(text, "\n  {name:<16}{:>9}  {share:>5.1} %", of.removed).ok();
        }
        let views = self.train_views;
        write!(text, "\n  PSNR of {views} training views {psnr_before:.3} -> {psnr_after:.3} dB")
            .ok();
        let is_cut = |of: &RuleReport| of.rule == CleanRule::Cropped && of.removed > 0;
        if self.removed.iter().any(is_cut) {
            text.push_str(", before the cut by place");
        }
        text
    }
}
