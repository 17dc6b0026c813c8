//! The lines of a model for kernels, and what was in them back in the host's memory.

use super::lanes::LANES;
use super::tables::{Model, pointers};
use crate::abi::{self, CacheArgs};
use crate::backend::cuda::session::Session;
use crate::backend::{DeviceError, Drawing};
use crate::model::Primitive;

impl<P: Primitive> Model<P> {
    /// What the device holds of tables in the host's memory, before the coming step.
    pub(crate) fn color_cache(&self) -> abi::ColorCache<'_> {
        self.lines.args(&self.size(), self.momentum.steps() + 1)
    }

    /// The same for a view that is drawn, whether a step follows or not.
    pub(crate) fn color_cache_of(&self, drawing: &Drawing) -> abi::ColorCache<'_> {
        let step = if drawing.trains { self.momentum.steps() + 1 } else { 0 };
        self.lines.args(&self.size(), step)
    }

    /// What moves colours between the host's memory and lines.
    pub(crate) fn cache_args(&mut self) -> CacheArgs<'_> {
        let [.., sh_words, moment_words, _] = self.kernel_widths();
        let cache = self.lines.args(&self.size(), self.momentum.steps() + 1);
        let [.., sh, sh_first, sh_second] = pointers(&mut self.tables);
        CacheArgs { cache, sh, sh_first, sh_second, sh_words, moment_words }
    }

    /// Empties all lines: the host's memory holds what was in them.
    pub(crate) fn write_lines_back(&mut self, session: &Session) -> Result<(), DeviceError> {
        if !self.lines.is_in_use() {
            return Ok(());
        }
        self.lines.wait(session)?;
        let args = self.cache_args();
        let threads = args.cache.lines as usize * LANES;
        session.kernels.write_lines_back.over(&session.stream, threads, &args)?;
        self.lines.mark_empty();
        Ok(())
    }
}
