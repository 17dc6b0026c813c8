//! Largest number of new Gaussians in a densification step, found before anything grows.

use super::forecast::largest_that_fits;
use super::refinement;
use super::rows::Granule;
use super::work::{DryRun, Work, search_scratch};
use crate::layout::{Library, ModelSize, REGIONS, Scratch};
use crate::memory::Bytes;

/// Divisor of the margin on an iteration's scratch: views differ, and the capacity for splats is a twentieth too large.
const MARGIN_SHARE: u64 = 16;

/// Largest number that kernels count.
const MAX_GAUSSIANS: u64 = u32::MAX as u64;

/// The memory of a device before a densification step.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    /// Bytes that may be held.
    pub budget: Bytes,
    /// Bytes of everything that is neither the model nor scratch, and stays: context and code, photographs.
    pub others: Bytes,
    /// Size of the model before the step.
    pub model: ModelSize,
    /// Mapped bytes of each region, in the order of [`ModelSize::regions`]. They exceed the region's size after a
    /// step that removed Gaussians. Missing columns are zero.
    pub mapped: [Bytes; REGIONS],
    /// Peak of an iteration's used scratch, for as many views as the present batch or a recent one has. Unused arena
    /// memory does not count: it is returned when memory is short.
    pub iteration_scratch: Bytes,
    /// Allocation unit of the device.
    pub granule: Granule,
    /// True if regions grow in place; otherwise a region's old and new memory are held at once.
    pub is_virtual: bool,
    /// Gaussians left after density control, if they are pruned then.
    pub target: Option<u64>,
    /// The coarse stage, if one follows.
    pub coarse: Option<CoarseGrowth>,
    /// Memory of the host for tables of the model, if some lie there.
    pub host: Option<HostGrowth>,
    /// The stages of the device.
    pub dry_run: DryRun,
}

/// Memory of the host for the tables of a model that lie there.
#[derive(Clone, Copy, Debug)]
pub struct HostGrowth {
    /// Bytes of all tables.
    pub room: Bytes,
    /// Allocation unit of the host.
    pub granule: Granule,
    /// True if tables grow in place; otherwise a table's old and new memory are held at once.
    pub is_virtual: bool,
}

impl HostGrowth {
    /// Returns true if there is room for the tables of a model.
    fn holds(self, grown: &ModelSize) -> bool {
        let tables = || grown.host_tables().map(|(_, bytes)| self.granule.whole(Bytes(bytes)));
        let copied = if self.is_virtual { Bytes(0) } else { tables().max().unwrap_or_default() };
        tables().sum::<Bytes>() + copied <= self.room
    }
}

/// Memory of SuGaR's coarse stage, before the model enters the stage.
#[derive(Clone, Copy, Debug)]
pub struct CoarseGrowth {
    /// Neighbours in a Gaussian's list.
    pub neighbours: u32,
    /// Scratch of the stage's iterations for the present model.
    pub scratch: Bytes,
}

impl Growth {
    /// Returns the peak from the step on if `new_gaussians` of the `wanted` Gaussians are created. The peak includes
    /// the scratch of the step, of the reordering and of later iterations.
    fn peak(&self, wanted: u64, new_gaussians: u64) -> Bytes {
        let grown = self.model.with(self.model.gaussians + new_gaussians);
        let mut regions = Bytes(0);
        let mut largest = Bytes(0);
        for (row, mapped) in grown.regions().iter().zip(self.mapped) {
            let whole = self.granule.whole(row.bytes);
            if whole > mapped && !self.is_virtual {
                largest = largest.max(mapped);
            }
            regions += whole.max(mapped);
        }
        let iteration = self.iteration(&grown, self.iteration_scratch);
        let step_scratch = self.densify_scratch(&grown, wanted, new_gaussians);
        let scratch = self.granule.after_trim(Bytes(step_scratch.reach())).max(iteration);
        let coarse = self.coarse.map_or(Bytes(0), |coarse| self.surfaces(&grown, coarse));
        self.others + regions + (largest + scratch).max(coarse)
    }

    /// Returns the scratch of the step, of the reordering and of the final prune.
    fn densify_scratch(&self, grown: &ModelSize, wanted: u64, new_gaussians: u64) -> Scratch {
        let dry_run = |model, work| (self.dry_run)(&Library::default(), model, &work);
        // Moving dead Gaussians takes less than this.
        let step = dry_run(&self.model, Work::Densify { new_gaussians, wanted })
            .then(&dry_run(grown, Work::Reorder));
        let candidates = grown.gaussians;
        match self.target.filter(|&target| target < candidates) {
            Some(kept) => step.then(&dry_run(grown, Work::Retain { candidates, kept })),
            None => step,
        }
    }

    /// Returns the bytes of the coarse stage beside the grown model.
    fn surfaces(&self, grown: &ModelSize, coarse: CoarseGrowth) -> Bytes {
        let lists = refinement::neighbour_lists(grown.gaussians, coarse.neighbours).bytes;
        let search = self.granule.after_trim(search_scratch(self.dry_run, grown.gaussians));
        self.granule.whole(lists) + search.max(self.iteration(grown, coarse.scratch))
    }

    /// Scales the scratch of an iteration with the number of Gaussians. The result is too large, since the pixels
    /// stay and denser Gaussians are smaller.
    fn iteration(&self, grown: &ModelSize, scratch: Bytes) -> Bytes {
        let now = u128::from(scratch.0);
        let before = u128::from(self.model.gaussians.max(1));
        let scaled = now * u128::from(grown.gaussians.max(1)) / before;
        let bytes = scaled + scaled / u128::from(MARGIN_SHARE);
        self.granule.after_trim(Bytes(u64::try_from(bytes).unwrap_or(u64::MAX / 4)))
    }
}

/// Returns how many of the `wanted` new Gaussians stay within the budget until the next step. Zero always fits.
pub fn most_new_gaussians(growth: &Growth, wanted: u64) -> u64 {
    let wanted = wanted.min(MAX_GAUSSIANS.saturating_sub(growth.model.gaussians));
    let fits = |new_gaussians| {
        let grown = growth.model.with(growth.model.gaussians + new_gaussians);
        growth.peak(wanted, new_gaussians) <= growth.budget
            && growth.host.is_none_or(|host| host.holds(&grown))
    };
    // Creating all candidates needs no scratch to choose among them.
    if fits(wanted) {
        return wanted;
    }
    largest_that_fits(0, wanted, fits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::backend::cuda::dry_run;
    use crate::memory::plan::work::plain;
    use crate::memory::plan::{OptionalColumns, Storage};

    const MIB: u64 = 1 << 20;

    /// A device that runs a densification step and panics if it exceeds the budget.
    struct GrowingDevice {
        budget: u64,
        others: u64,
        regions: [u64; REGIONS],
        arena: u64,
        is_virtual: bool,
    }

    impl GrowingDevice {
        fn of(growth: &Growth) -> Self {
            Self {
                budget: growth.budget.0,
                others: growth.others.0,
                regions: growth.mapped.map(|bytes| bytes.0),
                arena: 0,
                is_virtual: growth.is_virtual,
            }
        }

        fn held(&self) -> u64 {
            self.others + self.regions.iter().sum::<u64>() + self.arena
        }

        fn scratch(&mut self, bytes: u64) {
            self.arena = self.arena.max(bytes.next_multiple_of(2 * MIB));
            assert!(self.held() <= self.budget, "scratch: {} MiB over", self.excess());
        }

        fn grow(&mut self, model: &ModelSize) {
            for (region, row) in model.regions().iter().enumerate() {
                let wanted = row.bytes.0.next_multiple_of(2 * MIB);
                let before = self.regions[region];
                if wanted <= before {
                    continue;
                }
                let both = if self.is_virtual { 0 } else { before };
                self.regions[region] = wanted;
                assert!(self.held() + both <= self.budget, "region {region}: {}", self.excess());
            }
        }

        fn excess(&self) -> f64 {
            (self.held() as f64 - self.budget as f64) / MIB as f64
        }
    }

    /// Runs the step, the reordering and the iterations until the next step.
    fn play(growth: &Growth, wanted: u64, new_gaussians: u64) {
        let mut device = GrowingDevice::of(growth);
        let grown = growth.model.with(growth.model.gaussians + new_gaussians);
        let dry_run = |model, work| dry_run(&Library::default(), model, &work).reach();
        device.scratch(dry_run(&growth.model, Work::Densify { new_gaussians, wanted }));
        device.grow(&grown);
        device.scratch(dry_run(&grown, Work::Reorder));
        let candidates = grown.gaussians;
        if let Some(kept) = growth.target.filter(|&target| target < candidates) {
            device.scratch(dry_run(&grown, Work::Retain { candidates, kept }));
        }
        let per_gaussian = growth.iteration_scratch.0.div_ceil(growth.model.gaussians);
        device.scratch(per_gaussian * grown.gaussians);
        let Some(coarse) = growth.coarse else { return };
        // Density control is over, and its scratch is freed.
        device.arena = 0;
        device.others += grown.gaussians * grown.gaussians.min(coarse.neighbours.into()) * 4;
        device.scratch(search_scratch(growth.dry_run, grown.gaussians).0);
        device.scratch(coarse.scratch.0.div_ceil(growth.model.gaussians) * grown.gaussians);
    }

    fn growth() -> impl Strategy<Value = Growth> {
        let sizes = (1_u64..5_000_000, 0_u32..=3, any::<bool>(), any::<bool>(), any::<bool>());
        let coarse = prop::option::of((10_u32..=32, 1_u64..600));
        let target = prop::option::of(1_u64..5_000_000);
        let bytes = (0_u64..8 << 30, 0_u64..2 << 30, 1_u64..600, 0_u64..50, target, coarse);
        (sizes, bytes).prop_map(
            |(
                (gaussians, sh_degree, compact, is_virtual, all),
                (budget, others, scratch, pruned, target, coarse),
            )| {
                let storage = if compact { Storage::Compact } else { Storage::Full };
                let optional = OptionalColumns { filter_3d: all, absolute_norm_sums: all };
                let model = ModelSize { sh_degree, storage, optional, ..plain(gaussians) };
                let granule = Granule::default();
                let before = model.with(gaussians + gaussians * pruned / 100);
                Growth {
                    budget: Bytes(budget),
                    others: Bytes(others),
                    model,
                    mapped: std::array::from_fn(|i| {
                        let region = before.regions().get(i).map_or(Bytes(0), |row| row.bytes);
                        granule.whole(region)
                    }),
                    iteration_scratch: Bytes(scratch * gaussians),
                    granule,
                    is_virtual,
                    target,
                    coarse: coarse.map(|(neighbours, scratch)| CoarseGrowth {
                        neighbours,
                        scratch: Bytes(scratch * gaussians),
                    }),
                    host: None,
                    dry_run,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn grants_are_the_largest_within_the_budget(
            growth in growth(),
            wanted in 0_u64..3_000_000,
            more in 0_u64..1 << 30,
        ) {
            let granted = most_new_gaussians(&growth, wanted);
            prop_assert!(granted <= wanted);
            if granted > 0 {
                play(&growth, wanted, granted);
            }
            if granted < wanted {
                prop_assert!(growth.peak(wanted, granted + 1) > growth.budget, "one more fits");
            }
            let larger = Growth { budget: Bytes(growth.budget.0 + more), ..growth };
            prop_assert!(most_new_gaussians(&larger, wanted) >= granted, "a larger budget");
            let full = Growth { budget: Bytes(growth.model.bytes().0), ..growth };
            prop_assert_eq!(most_new_gaussians(&full, wanted), 0, "the model takes the budget");
        }
    }

    /// Returns a model of 1000 Gaussians on a device with more memory than they need.
    fn roomy(storage: Storage) -> Growth {
        Growth {
            budget: Bytes(u64::MAX / 2),
            others: Bytes(0),
            model: ModelSize { sh_degree: 3, storage, ..plain(1000) },
            mapped: [Bytes(0); REGIONS],
            iteration_scratch: Bytes(500_000),
            granule: Granule::default(),
            is_virtual: true,
            target: None,
            coarse: None,
            host: None,
            dry_run,
        }
    }

    #[test]
    fn a_large_card_grants_everything_that_can_be_numbered() {
        let growth = roomy(Storage::Full);
        assert_eq!(most_new_gaussians(&growth, 12_345), 12_345);
        assert_eq!(most_new_gaussians(&growth, u64::MAX), MAX_GAUSSIANS - 1000);
        // 716 bytes of model and 500 of scratch per Gaussian, and a margin.
        let tight = Growth { budget: Bytes(1 << 30), ..growth };
        let new_gaussians = most_new_gaussians(&tight, 10_000_000);
        let each = (1 << 30) as f64 / (new_gaussians + 1000) as f64;
        assert!((each - 1250.0).abs() < 30.0, "{each} bytes each");
        // 64 bytes of neighbours and 100 of scratch per Gaussian more.
        let coarse = CoarseGrowth { neighbours: 16, scratch: Bytes(600_000) };
        let new_gaussians =
            most_new_gaussians(&Growth { coarse: Some(coarse), ..tight }, 10_000_000);
        let each = (1 << 30) as f64 / (new_gaussians + 1000) as f64;
        assert!((each - 1420.0).abs() < 35.0, "{each} bytes each");
    }

    #[test]
    fn the_host_limits_new_gaussians_by_memory_for_their_colours() {
        let host =
            HostGrowth { room: Bytes(200 * MIB), granule: Granule::default(), is_virtual: true };
        let growth = Growth { host: Some(host), ..roomy(Storage::Offloaded) };
        let most = |growth: &Growth| 1000 + most_new_gaussians(growth, 10_000_000);
        // 96, 52 and 52 bytes per Gaussian, in whole granules.
        let each = (200 * MIB) as f64 / most(&growth) as f64;
        assert!((200.0..204.0).contains(&each), "{each} bytes each");
        // The largest table exists twice while it grows.
        let copying = HostGrowth { is_virtual: false, ..host };
        let copying = Growth { host: Some(copying), ..growth };
        let each = (200 * MIB) as f64 / most(&copying) as f64;
        assert!((296.0..302.0).contains(&each), "{each} bytes each");
        let full = Growth { host: Some(HostGrowth { room: Bytes(0), ..host }), ..growth };
        assert_eq!(most_new_gaussians(&full, 9), 0);
        // The device has 120 of the 320 bytes, a sixteenth of the others, and the scratch.
        let roomy = Some(HostGrowth { room: Bytes(1 << 40), ..host });
        let tight = Growth { host: roomy, budget: Bytes(1 << 30), ..growth };
        let each = (1 << 30) as f64 / most(&tight) as f64;
        assert!((each - 675.0).abs() < 20.0, "{each} bytes each");
    }
}
