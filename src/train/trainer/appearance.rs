//! What a run learns of its photographs' colours: where the tables come from and go to.

use super::Trainer;
use crate::backend::{AppearanceTables, Compensation, TableStep, TrainDevice};
use crate::config::OptimizeOptions;
use crate::export::{remove_exposure_json, write_exposure_json};
use crate::train::TrainError;
use crate::train::appearance::{ColorStep, EarlierTables, compensation, rule, tables};
use crate::train::event::Split;
use crate::train::finite::check_tables;

impl<B: TrainDevice> Trainer<'_, B> {
    /// Puts the tables on the device, where the run has such: those of a checkpoint with the views that
    /// it was trained on, or new ones.
    pub(super) fn begin_appearance(
        &mut self,
        stored: Option<EarlierTables<'_>>,
    ) -> Result<(), TrainError> {
        let kind = compensation(&self.setup.config.optimize);
        let lost = stored.is_some_and(|stored| Some(stored.tables.kind) != kind);
        if lost {
            self.warn(
                "what the checkpoint knows of the photographs' colours is left behind: it was \
                 trained with other options (--exposure, --bilateral-grid)"
                    .to_owned(),
            )?;
        }
        if let Some(kind) = kind {
            let views = self.feed.views.names(Split::Train);
            let tables = tables(kind, &views, stored);
            self.appearance = Some(self.device.upload_tables(&tables)?);
        }
        Ok(())
    }

    /// Writes what was learned of the photographs' exposures beside the model, where that is wanted;
    /// where it is not, what an earlier part of the run wrote goes.
    pub(super) fn write_exposures(&mut self) -> Result<(), TrainError> {
        match self.read_appearance()? {
            Some(AppearanceTables { kind: Compensation::Exposure, values, .. }) => {
                let names = self.feed.views.names(Split::Train);
                Ok(write_exposure_json(self.setup.model_path, &names, &values)?)
            }
            Some(_) | None => Ok(remove_exposure_json(self.setup.model_path)?),
        }
    }

    /// The tables as they are now, to be saved; fails where they are not finite.
    pub(super) fn read_appearance(&mut self) -> Result<Option<AppearanceTables>, TrainError> {
        let read = |tables| self.device.read_tables(tables);
        let tables = self.appearance.as_ref().map(read).transpose()?;
        tables.as_ref().map_or(Ok(()), check_tables)?;
        Ok(tables)
    }
}

/// The table of the view of image `number`, by its index in the dataset, and how it learns in a run of so many
/// images.
pub(super) fn color_step<'a, A>(
    tables: Option<&'a mut A>,
    options: &OptimizeOptions,
    trained: &[usize],
    view: usize,
    [number, images]: [u32; 2],
) -> Option<ColorStep<'a, A>> {
    let kind = compensation(options)?;
    let place = trained.iter().position(|&other| other == view)?;
    let step = TableStep { view: place, number, rule: rule(options, kind, images) };
    Some(ColorStep { tables: tables?, step })
}
