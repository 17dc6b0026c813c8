//! Models whose colours lie in the host's memory, on a device and a host that are not there.

use super::{Case, DryRun, Model};
use crate::backend::cuda::CudaOptions;
use crate::backend::cuda::memory::heap::host_tests::{heap_beside, heap_beside_exhausted};
use crate::backend::{Device as _, DeviceError, Store as _};
use crate::layout::Slot;
use crate::math::morton::Cube;
use crate::memory::plan::Storage;
use crate::memory::{Bytes, HostState, Kind, Rung};
use crate::model::Gaussians;

const MIB: u64 = 1 << 20;

/// Gaussians at the start: 7.2 MB in full precision, 3.2 compact, of which 2 are colours with their moments.
const START: usize = 10_000;

/// More than any test takes.
const CARD: Bytes = Bytes(1 << 30);

/// A host with so much to give.
fn host(mib: u64) -> HostState {
    // A thirty-second part stays with the system.
    let total = Bytes(64 * 1024 * MIB);
    HostState { total, available: Bytes((mib + 2048) * MIB), own: Bytes(100 * MIB) }
}

fn case(storage: Storage) -> Case {
    Case { gaussians: START, sh_degree: 3, storage, ..Case::SMALL }
}

fn run(storage: Storage, give_up: &[Rung], on_host: u64) -> Result<DryRun, DeviceError> {
    let options = CudaOptions { storage, give_up: give_up.to_vec(), ..CudaOptions::default() };
    DryRun::over(case(storage), &options, heap_beside(host(on_host), CARD))
}

impl DryRun {
    fn model(&mut self) -> Result<Model, DeviceError> {
        self.device.upload(&Gaussians::zeros(3, START))
    }

    /// Leaves so much beside what is held.
    fn leave(&self, bytes: u64) {
        let heap = &self.device.session.heap;
        heap.set_budget(Bytes(heap.total().0 + bytes));
    }

    /// What is said where all of the card is asked for.
    fn shortage(&self) -> DeviceError {
        let heap = &self.device.session.heap;
        heap.take(&Slot::<u8, _>::unlisted("frame"), &heap.budget().0).map(drop).unwrap_err()
    }

    fn given_up(&mut self) -> Vec<Rung> {
        let changes = self.device.take_changes().unwrap_or_default().changes;
        changes.iter().filter(|change| change.given_up).map(|change| change.rung).collect()
    }
}

/// Of each region, what the ledger has of it is what the schema says, where it says.
fn assert_places(run: &DryRun, model: &Model) {
    let ledger = run.device.session.heap.ledger();
    let used = |label, kind| {
        let of = ledger.iter().find(|entry| entry.label == label && entry.kind == kind);
        of.map_or(Bytes(0), |entry| entry.used)
    };
    let size = model.size();
    for row in size.regions() {
        assert_eq!(used(row.label, Kind::Region), row.bytes, "{} of {size:?}", row.label);
    }
    let host: Vec<_> = size.host_tables().collect();
    for &(label, bytes) in &host {
        assert_eq!(used(label, Kind::Pinned), Bytes(bytes), "{label} of {size:?}");
    }
    assert_eq!(host.len(), if model.storage() == Storage::Offloaded { 3 } else { 0 });
    let all: Bytes = size.regions().iter().map(|row| row.bytes).sum();
    let host: u64 = host.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(model.bytes().into_iter().sum::<Bytes>(), all + Bytes(host));
}

#[test]
fn tables_lie_where_the_schema_says_as_the_model_grows_and_shrinks() -> Result<(), DeviceError> {
    let mut run = run(Storage::Offloaded, &[], 4096)?;
    let mut model = run.model()?;
    assert_places(&run, &model);
    for rows in [300_000, 40_000, 41_000] {
        let more = usize::saturating_sub(rows, model.len());
        if more > 0 {
            model.grow(&run.device.session, more)?;
        } else {
            model.shrink(rows);
            model.trim()?;
        }
        assert_places(&run, &model);
        run.device.reorder(&mut model, &Cube { centre: [0.0; 3], half_side: 1.0 })?;
        assert_eq!(run.device.snapshot(&mut model)?.parameters.len(), rows);
    }
    drop(model);
    let ledger = run.device.session.heap.ledger();
    let sh = |kind| ledger.iter().find(|entry| entry.label == "sh" && entry.kind == kind).unwrap();
    assert_eq!((sh(Kind::Pinned).mapped, sh(Kind::Pinned).used), (Bytes(0), Bytes(0)));
    Ok(())
}

#[test]
fn colours_come_and_go_between_the_device_and_the_host() -> Result<(), DeviceError> {
    for storage in [Storage::Full, Storage::HalfColors, Storage::Compact] {
        let mut run = run(storage, &[], 4096)?;
        let mut model = run.model()?;
        run.device.trim_memory()?;
        let before = run.device.session.heap.total();
        let freed = run.device.offload(&mut model)?;
        run.device.trim_memory()?;
        assert_eq!(model.storage(), Storage::Offloaded);
        assert_places(&run, &model);
        assert!(freed > Bytes(0), "{storage:?}");
        assert_eq!(run.device.session.heap.total().0, before.0 - freed.0, "{storage:?}");
        assert_eq!(run.device.offload(&mut model)?, Bytes(0));
        assert_eq!(run.device.compact(&mut model)?, Bytes(0), "it is");
        run.device.expand(&mut model)?;
        assert_eq!(model.storage(), Storage::Full);
        assert_places(&run, &model);
    }
    Ok(())
}

#[test]
fn births_are_refused_only_after_colours_went_to_the_host() -> Result<(), DeviceError> {
    let rungs = [Rung::Slack, Rung::Compact, Rung::Offload, Rung::Births];
    // With ever less room, 100,000 births take 72 MB, 32 compact and 12 with their colours on the host,
    // beside the scratch of their round.
    let mut found = Vec::new();
    for mib in (4..240).rev().step_by(4) {
        let mut run = run(Storage::Full, &rungs, 4096)?;
        let mut model = run.model()?;
        run.device.trim_memory()?;
        run.leave(mib * MIB);
        let granted = run.device.grant_births(&mut model, 100_000)?;
        model.grow(&run.device.session, granted)?;
        assert_places(&run, &model);
        let step = (model.storage(), granted == 100_000, run.given_up());
        if found.last() != Some(&step) {
            found.push(step);
        }
    }
    let expected = [
        (Storage::Full, true, vec![]),
        (Storage::Compact, true, vec![Rung::Compact]),
        (Storage::Offloaded, true, vec![Rung::Compact, Rung::Offload]),
        (Storage::Offloaded, false, rungs[1..].to_vec()),
    ];
    assert_eq!(found, expected);
    Ok(())
}

#[test]
fn a_rung_without_the_one_before_it_makes_the_model_compact() -> Result<(), DeviceError> {
    let mut run = run(Storage::Full, &[Rung::Offload, Rung::Births], 4096)?;
    let mut model = run.model()?;
    run.device.trim_memory()?;
    run.leave(32 * MIB);
    let granted = run.device.grant_births(&mut model, 100_000)?;
    assert_eq!(
        (model.storage(), run.given_up().first()),
        (Storage::Offloaded, Some(&Rung::Offload))
    );
    assert!(granted > 0);
    Ok(())
}

#[test]
fn a_host_without_room_keeps_colours_on_the_device() -> Result<(), DeviceError> {
    let rungs = [Rung::Compact, Rung::Offload, Rung::Births];
    // Its page-locked staging takes some of it.
    let mut run = run(Storage::Full, &rungs, 1)?;
    let mut model = run.model()?;
    run.device.trim_memory()?;
    run.leave(32 * MIB);
    let granted = run.device.grant_births(&mut model, 100_000)?;
    assert!(granted < 100_000);
    assert_eq!((model.storage(), run.given_up()), (Storage::Compact, vec![rungs[0], rungs[2]]));
    assert_places(&run, &model);
    // Nor does a failure bring them there.
    let missing = run.shortage();
    assert!(!run.device.relieve(&mut model, &missing)?);
    Ok(())
}

#[test]
fn a_model_goes_to_the_host_only_where_that_holds_more_of_it() -> Result<(), DeviceError> {
    let rungs = [Rung::Compact, Rung::Offload, Rung::Births];
    let grant = |on_host| {
        let mut run = run(Storage::Full, &rungs, on_host)?;
        let mut model = run.model()?;
        run.device.trim_memory()?;
        run.leave(30 * MIB);
        let granted = run.device.grant_births(&mut model, 100_000)?;
        model.grow(&run.device.session, granted)?;
        assert_places(&run, &model);
        Ok::<_, DeviceError>((model.storage(), granted))
    };
    let (storage, without) = grant(1)?;
    assert_eq!(storage, Storage::Compact);
    // Room for the model as it is, and for little more.
    assert_eq!(grant(14)?, (Storage::Compact, without));
    let (storage, with) = grant(4096)?;
    assert!(storage == Storage::Offloaded && with > without, "{with} with, {without} without");
    Ok(())
}

#[test]
fn what_the_driver_refuses_of_the_host_leaves_the_model_compact() -> Result<(), DeviceError> {
    let options = CudaOptions { give_up: vec![Rung::Offload], ..CudaOptions::default() };
    let heap = heap_beside_exhausted(host(4096), CARD);
    let mut run = DryRun::over(case(Storage::Full), &options, heap)?;
    let mut model = run.model()?;
    run.device.trim_memory()?;
    let missing = run.shortage();
    assert!(run.device.relieve(&mut model, &missing)?);
    assert_eq!((model.storage(), run.given_up()), (Storage::Compact, vec![Rung::Compact]));
    assert_places(&run, &model);
    assert!(!run.device.relieve(&mut model, &missing)?, "nothing more comes of it");
    Ok(())
}

#[test]
fn a_host_without_room_leaves_the_other_rung_to_a_model_that_is_loaded() {
    for rungs in [[Rung::Offload, Rung::Compact], [Rung::Compact, Rung::Offload]] {
        let upload = |mib: u64| {
            let mut run = run(Storage::Full, &rungs, 1)?;
            run.leave(mib * MIB);
            // Enough for tables of many granules.
            let model = run.device.upload(&Gaussians::zeros(3, 10 * START))?;
            Ok::<_, DeviceError>((model.storage(), run.given_up(), run.device.session.storage))
        };
        let found = (4..120).find_map(|mib| upload(mib).ok()).unwrap();
        assert_eq!(found, (Storage::Compact, vec![Rung::Compact], Storage::Compact));
    }
}

#[test]
fn a_failure_moves_colours_to_the_host_where_the_rung_is_named() -> Result<(), DeviceError> {
    for is_named in [true, false] {
        let rungs: &[Rung] = if is_named { &[Rung::Offload] } else { &[] };
        let mut run = run(Storage::Compact, rungs, 4096)?;
        let mut model = run.model()?;
        let missing = run.shortage();
        assert_eq!(run.device.relieve(&mut model, &missing)?, is_named);
        assert_eq!(model.storage() == Storage::Offloaded, is_named);
        assert_places(&run, &model);
        // Once.
        assert!(!run.device.relieve(&mut model, &missing)?);
    }
    Ok(())
}

#[test]
fn the_host_bounds_births_of_a_model_whose_colours_it_has() -> Result<(), DeviceError> {
    let mut run = run(Storage::Offloaded, &[Rung::Births], 40)?;
    let mut model = run.model()?;
    let granted = run.device.grant_births(&mut model, 1_000_000)?;
    assert!(
        (150_000..273_000).contains(&granted),
        "{granted} of 200 bytes each in 40 MiB and what is mapped"
    );
    model.grow(&run.device.session, granted)?;
    assert_places(&run, &model);
    let error = model.grow(&run.device.session, 1_000_000).unwrap_err();
    assert!(matches!(error, DeviceError::HostRefused(_)), "{error}");
    assert_eq!(model.len(), START + granted, "nothing grew");
    assert_places(&run, &model);
    Ok(())
}

#[test]
fn a_run_that_went_to_the_host_is_taken_up_again_there() -> Result<(), DeviceError> {
    // Of 10,000 Gaussians compact tables take 16 granules of 2 MiB, and 10 without colours.
    let upload = |rungs: &[Rung], mib: u64| {
        let mut run = run(Storage::Full, rungs, 4096)?;
        run.leave(mib * MIB);
        let model = run.model()?;
        Ok::<_, DeviceError>((model.storage(), run.given_up()))
    };
    let named = [Rung::Slack, Rung::Compact, Rung::Offload];
    assert_eq!(upload(&named, 200)?, (Storage::Full, vec![]));
    assert!(upload(&named, 3).unwrap_err().is_out_of_memory());
    let found = (4..60).find_map(|mib| upload(&named, mib).ok()).unwrap();
    assert_eq!(found, (Storage::Offloaded, vec![Rung::Offload]));
    let without = (4..60).find_map(|mib| upload(&named[..2], mib).ok()).unwrap();
    assert_ne!(without.0, Storage::Offloaded);
    Ok(())
}
