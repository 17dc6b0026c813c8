//! Whether what is drawn of a model fits what may be taken of a GPU's memory, before anything is drawn.

use super::exit::DoesNotFit;
use crate::backend::{Device, MemoryKind, Peaks};
use crate::memory::Bytes;
use crate::memory::plan::{Forecast, PlannedRow, PlannedStage, ViewGrowth};

/// Rows of a refusal that are listed; the others stand together in one.
const LISTED: usize = 6;

/// What may be taken of a GPU.
pub(super) struct DeviceRoom {
    budget: Bytes,
    /// What context and code take.
    pub(super) context: Bytes,
}

/// What is looked at before it is drawn.
pub(super) struct DrawingPlan<'a> {
    /// What is made, in words that begin a sentence.
    pub(super) what: &'static str,
    /// What helps beside more memory.
    pub(super) remedy: &'static str,
    /// What views see at the most. Where that does not fit, it is counted.
    pub(super) seen_at_most: ViewGrowth,
    /// What views see, which takes a while to count.
    pub(super) count_seen: &'a dyn Fn() -> ViewGrowth,
}

impl DeviceRoom {
    /// Of a device with memory of its own; none of the processor.
    pub(super) fn of(device: &mut impl Device) -> Option<Self> {
        let memory = device.memory(Peaks::Keep)?;
        let context = memory.entries.iter().filter(|entry| entry.kind == MemoryKind::Context);
        Some(Self { budget: memory.budget, context: context.map(|entry| entry.mapped).sum() })
    }

    /// Refuses what does not fit whatever is given up.
    pub(super) fn check(
        &self,
        plan: &DrawingPlan<'_>,
        forecast: impl Fn(ViewGrowth, Bytes) -> Forecast,
    ) -> Result<(), DoesNotFit> {
        if forecast(plan.seen_at_most, self.budget).least <= self.budget {
            return Ok(());
        }
        let counted = forecast((plan.count_seen)(), self.budget);
        if counted.least <= self.budget {
            return Ok(());
        }
        Err(DoesNotFit(format!(
            "{} does not fit the GPU's memory. {}\nRaise --vram-limit, end other programs on the GPU, or {}",
            plan.what,
            shortage(&counted, self.budget),
            plan.remedy
        )))
    }
}

/// The stage that takes most, as a table, and what there is.
fn shortage(forecast: &Forecast, budget: Bytes) -> String {
    let most = forecast.stages.iter().max_by_key(|stage| stage.total);
    let Some(PlannedStage { name, rows, .. }) = most else { return String::new() };
    let line = |label: &str, bytes: Bytes| format!("{:>12.1} MiB  {label}\n", bytes.mib());
    let (listed, others) = rows.split_at(rows.len().min(LISTED));
    let mut table: String =
        listed.iter().map(|&PlannedRow { label, bytes }| line(label, bytes)).collect();
    if !others.is_empty() {
        let sum = others.iter().map(|row| row.bytes).sum();
        table.push_str(&line(&format!("{} others", others.len()), sum));
    }
    format!(
        "Its stage `{name}` takes most:\n{table}{:>12.1} MiB  at least\n{:>12.1} MiB  may be taken",
        forecast.least.mib(),
        budget.mib()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forecast(seen: ViewGrowth) -> Forecast {
        // What views see is all that it takes.
        let bytes = Bytes(seen.of(1 << 20).instances);
        let row = |label, bytes| PlannedRow { label, bytes };
        let rows = vec![row("instances", bytes), row("geometry", Bytes(1))];
        let stage = PlannedStage { name: "depths", rows, total: bytes };
        Forecast {
            stages: vec![stage],
            peak: bytes,
            least: bytes,
            in_bands: false,
            training_scale: 1.0,
            neighbours: None,
            photographs_resident: 0,
            photographs: 0,
        }
    }

    #[test]
    fn what_fits_at_the_most_is_not_counted_and_the_rest_by_its_count() {
        let seen = |share| ViewGrowth { px: [8, 8], share, surface: 0.0 };
        let check = |mib: u64, count_seen: &dyn Fn() -> ViewGrowth| {
            let room = DeviceRoom { budget: Bytes(mib << 18), context: Bytes(0) };
            let (what, remedy) = ("the mesh", "draw smaller views with -r 2");
            let plan = DrawingPlan { what, remedy, seen_at_most: seen(1.0), count_seen };
            room.check(&plan, |seen, _| forecast(seen)).map_err(|refusal| refusal.to_string())
        };
        assert_eq!(check(4, &|| panic!("it fits without a count")), Ok(()));
        assert_eq!(check(2, &|| seen(0.5)), Ok(()));
        let refusal = check(1, &|| seen(0.5)).unwrap_err();
        for part in ["`depths`", "0.5 MiB  instances", "0.2 MiB  may be taken", "with -r 2"] {
            assert!(refusal.contains(part), "{part}: {refusal}");
        }
    }
}
