//! Memory that runs short on a GPU, because the budget is small or because others take it: training
//! goes on within the budget, and what was given up comes back.

use std::fs;

use serde_json::Value;
use splat::backend::cuda::heap::{Heap, Region};
use splat::backend::cuda::session::Session;
use splat::backend::cuda::{Model, NearestLists, Target};
use splat::backend::{
    DeviceInfo, FallbackState, MOST_NEIGHBOURS, NeighbourLists, Neighbours, nvidia,
};
use splat::layout::Slot;
use splat::memory::{Allowance, Fallback, FallbackChange, Limit};

use crate::common::program::{Ended, TestFolder, end, events_files, splat, values_of_tags};
use crate::prelude::*;
use crate::support::image;

const MIB: u64 = 1 << 20;

/// Photographs of 3 MiB each.
const SIZE: [u32; 2] = [1024, 1024];

const PHOTOGRAPHS: usize = 32;

const LONG: u32 = 32;

/// Iterations in which each view comes up once.
const PASS: u32 = 32;

fn photographs() -> Vec<Arc<Image>> {
    let [width, height] = SIZE;
    let shade = |index: usize| u8::try_from(index * 7).unwrap();
    let of = |index| image(SIZE, vec![shade(index); (width * height * 3) as usize]);
    (0..PHOTOGRAPHS).map(of).collect()
}

struct Bench {
    device: Cuda,
    model: Model,
    view: View,
    photographs: Vec<Arc<Image>>,
    iteration: u32,
}

impl Bench {
    fn new(options: &CudaOptions, gaussians: usize) -> Self {
        let mut device = cuda::open_with(options).expect("a CUDA device");
        let model = device.upload(&small_gaussians(gaussians, 41)).unwrap();
        let view = resized(&view(), SIZE);
        Self { device, model, view, photographs: photographs(), iteration: 0 }
    }

    /// Returns the photograph of an iteration's view, resident or uploaded now.
    fn target(&mut self, number: u32) -> Result<Target, DeviceError> {
        let index = number as usize % PHOTOGRAPHS;
        match self.device.resident(index) {
            Some(target) => Ok(target),
            None => self.device.target(index, &self.photographs[index]),
        }
    }

    /// Takes an iteration in which nothing moves, so that the loss of a view is always the same.
    fn try_iterate(&mut self) -> Result<Loss, DeviceError> {
        self.iteration += 1;
        let target = self.target(self.iteration)?;
        let device = &mut self.device;
        let mut gradients = Default::default();
        let loss = device.add_view(
            &mut self.model,
            (&self.view, &settings(3, 5)),
            (&target, &Terms::photometric(0.2)),
            &mut gradients,
        )?;
        let step = AdamStep::new(self.iteration, AT_REST);
        device.step(&mut self.model, gradients, &step)?;
        let loss = loss.read()?;
        device.govern(&mut self.model, self.iteration)?;
        Ok(loss.into())
    }

    /// Takes such an iteration with surface terms, of lists as long as there is room for.
    fn try_regularise(&mut self, near: &mut Option<NearestLists>) -> Result<Loss, DeviceError> {
        let most = Neighbours::<Gaussians>::max_neighbours(&self.device);
        near.take_if(|near| near.count() > most);
        let near = match near {
            Some(near) => near,
            None => near.insert(self.device.neighbours(&self.model, LONG.min(most))?),
        };
        let number = self.iteration + 1;
        let target = self.target(number)?;
        let device = &mut self.device;
        let mut gradients = Default::default();
        let (entropy, density, normal, samples) = (0.1, 0.2, 0.2, 10_000);
        let iteration = number;
        let rule =
            SurfaceRule { entropy, density, normal, samples, iteration, ..SurfaceRule::UNEQUAL };
        let seen = Seen {
            view: &self.view,
            drawing: &settings(3, 5),
            target: &target,
            terms: &rule.terms(),
            near: Some(near),
        };
        let [loss, terms] = device.add_seen(&mut self.model, &seen, &mut gradients)?;
        let step = AdamStep::new(number, AT_REST);
        device.step(&mut self.model, gradients, &step)?;
        assert!(terms.read()?.get("density") > Some(0.0));
        let loss = loss.read()?.into();
        self.iteration = number;
        device.govern(&mut self.model, number)?;
        Ok(loss)
    }

    /// Takes such iterations, each tried again as long as something can be given up. Returns the total losses.
    fn regularise(&mut self, iterations: u32, near: &mut Option<NearestLists>) -> Vec<f64> {
        (0..iterations).map(|_| self.regularise_once(near).total).collect()
    }

    fn regularise_once(&mut self, near: &mut Option<NearestLists>) -> Loss {
        // There are not more steps than that.
        for _ in 0..8 {
            match self.try_regularise(near) {
                Ok(loss) => return loss,
                Err(error) => {
                    assert!(self.device.relieve(&mut self.model, &error).unwrap(), "{error}");
                }
            }
        }
        panic!("what was given up has not helped");
    }

    /// Returns the memory between iterations without resident photographs, and with as much scratch as the last
    /// iterations needed.
    fn need(&mut self) -> Bytes {
        let entries = self.device.entries();
        let resident = entries.iter().filter(|entry| entry.label == "photographs");
        let resident: u64 = resident.map(|entry| entry.mapped.0).sum();
        let heap = self.device.heap();
        let others = heap.total().0 - heap.mapped_scratch().0 - resident;
        Bytes(others + heap.recent_scratch().0)
    }

    fn iterate(&mut self, iterations: u32) -> Vec<f64> {
        (0..iterations).map(|_| self.try_iterate().unwrap().total).collect()
    }

    /// True if memory can be mapped: without, photographs never stay, and scratch is not cut.
    fn is_virtual(&self) -> bool {
        self.device.heap().is_virtual()
    }

    fn resident(&self) -> usize {
        (0..PHOTOGRAPHS).filter(|&index| self.device.is_resident(index)).count()
    }

    fn assert_within_budget(&mut self) {
        let (held, budget) = (self.governed().held, self.governed().budget);
        assert!(held <= budget, "{held} of {budget}");
    }

    fn governed(&mut self) -> FallbackState {
        self.device.take_changes().expect("a device with memory of its own")
    }

    fn fallback_changes(&mut self) -> Vec<(Fallback, bool)> {
        let changes = |change: &FallbackChange| (change.fallback, change.given_up);
        self.governed().changes.iter().map(changes).collect()
    }
}

fn within(limit: Option<Bytes>, threshold: f64) -> CudaOptions {
    CudaOptions {
        vram_limit: limit.map(Limit::Bytes),
        vram_threshold: threshold,
        trim_interval: 10,
        ..CudaOptions::default()
    }
}

/// Another program, as far as the device under test can tell.
struct Other {
    memory: Region<u8>,
    session: Session,
}

impl Other {
    fn new() -> Self {
        let session = Session::open(None).unwrap();
        let heap =
            Heap::open_plain(&session.device, Allowance::new(None, 1.0, session.device.memory()));
        Self { memory: heap.unwrap().region(&Slot::unlisted("other")).unwrap(), session }
    }

    /// Takes all memory of the GPU but so much.
    fn leave(&mut self, left: Bytes) {
        let free = self.session.device.free().unwrap();
        self.memory.grow(usize::try_from(free.0 - left.0).unwrap()).unwrap();
    }

    fn go(&mut self) {
        self.memory.shrink(0);
        self.memory.trim().unwrap();
    }
}

fn assert_same(found: &[f64], expected: &[f64]) {
    // Sums in another order.
    assert_near(found, expected, |_| 1e-5, "loss");
}

#[test]
#[ignore = "needs a CUDA device"]
fn memory_of_others_evicts_photographs_and_they_come_back_later() {
    let _alone = alone();
    let mut other = Other::new();
    // A tenth of 4 GiB stays free, whoever has the rest.
    let mut bench = Bench::new(&within(Some(Bytes(4096 * MIB)), 0.9), 20_000);
    if !bench.is_virtual() {
        return;
    }
    let expected = bench.iterate(PASS);
    assert_eq!((bench.resident(), bench.fallback_changes()), (PHOTOGRAPHS, vec![]));
    let budget = bench.governed().budget;

    other.leave(Bytes(300 * MIB));
    let during = bench.iterate(2 * PASS);
    assert_same(&during[..PHOTOGRAPHS], &expected);
    assert_same(&during[PHOTOGRAPHS..], &expected);
    assert_eq!(bench.fallback_changes(), [(Fallback::Photographs, true)]);
    // 110 MiB are too many, of which the photographs hold 96.
    assert_eq!(bench.resident(), 0);
    assert!(bench.governed().budget < budget);

    other.go();
    let after = bench.iterate(40 * PASS);
    assert_eq!(bench.fallback_changes(), [(Fallback::Photographs, false)]);
    assert_eq!((bench.resident(), bench.governed().budget), (PHOTOGRAPHS, budget));
    assert_same(&after[..PHOTOGRAPHS], &expected);
    assert_same(&after[39 * PHOTOGRAPHS..], &expected);
}

/// All Gaussians would be cloned and none is removed.
const RULE: DensifyRule = DensifyRule::ALL;

#[test]
#[ignore = "needs a CUDA device"]
fn only_as_many_photographs_leave_as_the_model_needs_room() {
    let _alone = alone();
    let mut free = Bench::new(&within(None, 1.0), 40_000);
    if !free.is_virtual() {
        return;
    }
    free.iterate(PASS);
    let held = free.governed().held;
    drop(free);
    // Room for a part of what twice as many Gaussians take: 27 MiB, and their splats.
    let mut bench = Bench::new(&within(Some(Bytes(held.0 + 16 * MIB)), 1.0), 40_000);
    bench.device.trim_memory().unwrap();
    bench.iterate(PASS);
    let before = bench.resident();
    assert!(before > PHOTOGRAPHS / 2, "{before} photographs stay at first");
    densify(&mut bench.device, &mut bench.model, &RULE, usize::MAX).unwrap();
    let losses = bench.iterate(2 * PASS);
    let after = bench.resident();
    assert!(0 < after && after < before, "{after} of {before} photographs stay");
    assert_eq!(bench.fallback_changes(), [(Fallback::Photographs, true)]);
    bench.assert_within_budget();
    // Clones lie where their parents do: the picture is another one, and every view's alike.
    assert_same(&losses[PHOTOGRAPHS..], &losses[..PHOTOGRAPHS]);
}

#[test]
#[ignore = "needs a CUDA device"]
fn new_gaussians_are_granted_as_far_as_the_next_iterations_fit() {
    let _alone = alone();
    let mut free = Bench::new(&within(None, 1.0), 50_000);
    free.iterate(PASS);
    let held = free.governed().held;
    drop(free);
    // The photographs' room and a little more.
    let limit = Bytes(held.0 + 30 * MIB);
    let mut bench = Bench::new(&within(Some(limit), 1.0), 50_000);
    let mut gaussians = vec![50_000];
    for _ in 0..8 {
        bench.iterate(PASS);
        let wish = score(&mut bench.device, &bench.model, &RULE).count();
        let new_gaussians = bench.device.grant_new_gaussians(&mut bench.model, wish).unwrap();
        let done = densify(&mut bench.device, &mut bench.model, &RULE, new_gaussians).unwrap();
        assert_eq!(done.copied, new_gaussians, "a grant holds");
        gaussians.push(bench.model.len());
    }
    bench.iterate(2 * PASS);
    let (last, before) = (gaussians[8], gaussians[6]);
    assert!(last > 60_000, "there was room for some: {gaussians:?}");
    assert!(last - before < last / 20, "and then for no more: {gaussians:?}");
    let changes = bench.fallback_changes();
    assert!(changes.contains(&(Fallback::NewGaussians, true)), "{changes:?}");
    // Page-locked memory is listed, and no part of the GPU's.
    let entries = bench.device.entries();
    let on_device = entries.iter().filter(|entry| entry.kind != MemoryKind::Pinned);
    let peak: u64 = on_device.map(|entry| entry.at_peak.0).sum();
    assert!(peak <= limit.0, "{peak} of {limit}");
}

#[test]
#[ignore = "needs a CUDA device"]
fn neighbour_lists_shrink_before_dearer_fallbacks_and_grow_back() {
    let _alone = alone();
    let count = 500_000;
    // Nothing is forgotten of what the hungriest view needed.
    let patient = CudaOptions { trim_interval: 1000, ..within(None, 1.0) };
    let mut free = Bench::new(&patient, count);
    if !free.is_virtual() {
        return;
    }
    let mut near = None;
    let expected = free.regularise(PASS, &mut near);
    assert_eq!(near.as_ref().map(NeighbourLists::count), Some(LONG));
    assert_eq!(free.fallback_changes(), []);
    let need = free.need();
    drop((near.take(), free));

    // 61 MiB of lists, of which 38 go where there are 12 of 32. How much a limit leaves depends on what the
    // driver holds of its own by now: the first shortage that lists have to give way to is looked for.
    let order = [Fallback::Slack, Fallback::Photographs, Fallback::Neighbours, Fallback::Compact];
    let most = need.0 + 128 * MIB;
    let short_by = |step: u64| {
        let limit = Bytes(most - 16 * step * MIB);
        let options = CudaOptions { give_up: order.to_vec(), ..within(Some(limit), 1.0) };
        let (mut bench, mut near) = (Bench::new(&options, count), None);
        let losses = bench.regularise(2 * PASS, &mut near);
        let is_shorter = near.as_ref().is_some_and(|near| near.count() < LONG);
        is_shorter.then_some((limit, bench, near, losses))
    };
    let (limit, mut bench, mut near, losses) = (0..52).find_map(short_by).expect("a shortage");
    let length = near.as_ref().map(NeighbourLists::count);
    assert!(matches!(length, Some(12 | 10)), "{length:?}");
    let changes = bench.fallback_changes();
    assert!(changes.contains(&(Fallback::Neighbours, true)), "{changes:?}");
    assert!(changes.iter().all(|&(fallback, _)| fallback != Fallback::Compact), "{changes:?}");
    assert_eq!(bench.model.storage(), Storage::Full);
    assert_same(&losses[..PHOTOGRAPHS], &expected);
    assert_same(&losses[PHOTOGRAPHS..], &expected);
    bench.assert_within_budget();

    // Room again, when the steps were held for long enough: all come back, the dearest first.
    bench.device.heap().set_budget(Bytes(limit.0 + 2048 * MIB));
    bench.iteration += 20 * PASS;
    bench.regularise(PASS, &mut near);
    assert_eq!(Neighbours::<Gaussians>::max_neighbours(&bench.device), MOST_NEIGHBOURS);
    let changes = bench.fallback_changes();
    assert_eq!(changes.first(), Some(&(Fallback::Neighbours, false)), "{changes:?}");
    // The lists that are there stay until new ones are wanted.
    assert_eq!(near.take().map(|near| near.count()), length);
    bench.regularise(1, &mut near);
    assert_eq!(near.map(|near| near.count()), Some(LONG));
}

#[test]
#[ignore = "needs a CUDA device"]
fn lists_that_there_is_no_room_for_from_the_beginning_are_found_shorter() {
    let _alone = alone();
    let count = 500_000;
    let mut free = Bench::new(&within(None, 1.0), count);
    let held = free.governed().held;
    drop(free);
    // 61 MiB of lists do not fit, 23 do, with 13 to find them in: not one iteration would.
    let options = CudaOptions {
        give_up: vec![Fallback::Slack, Fallback::Neighbours],
        ..within(Some(Bytes(held.0 + 48 * MIB)), 1.0)
    };
    let mut bench = Bench::new(&options, count);
    let error = bench.device.neighbours(&bench.model, LONG).err().expect("a refusal");
    assert!(error.is_out_of_memory(), "{error}");
    assert!(bench.device.relieve(&mut bench.model, &error).unwrap());
    assert_eq!(Neighbours::<Gaussians>::max_neighbours(&bench.device), 12);
    let near = bench.device.neighbours(&bench.model, 12).unwrap();
    assert_eq!(near.count(), 12);
    assert_eq!(bench.fallback_changes(), [(Fallback::Neighbours, true)]);
}

#[test]
#[ignore = "needs a CUDA device"]
fn slack_goes_back_and_an_idle_run_takes_nothing_more() {
    let _alone = alone();
    let mut bench = Bench::new(&within(None, 1.0), 50_000);
    if !bench.is_virtual() {
        return;
    }
    bench.iterate(60);
    let frames = |bench: &mut Bench| -> u64 {
        bench.device.entries().iter().map(|entry| entry.mapped.0).sum()
    };
    let before = frames(&mut bench);
    // A frame of nine times as many pixels, once.
    let wide = resized(&bench.view, [3072, 3072]);
    drop(bench.device.draw(&bench.model, &wide, &settings(3, 5)).unwrap());
    assert!(frames(&mut bench) > before + 64 * MIB);
    bench.iterate(30);
    let after = frames(&mut bench);
    assert!(after <= before + 4 * MIB, "{before} before, {after} after");
    bench.iterate(300);
    assert_eq!(frames(&mut bench), after);
}

const UNTIL: u64 = 1000;

/// Long enough for the management library to be opened on the way.
const ITERATIONS: u64 = 3000;

fn run() -> (TestFolder, Ended, Vec<Value>) {
    cuda::share();
    let place = TestFolder::with_scene();
    let mut command = place.train();
    command.args(["--device", "cuda", "--eval", "--progress", "plain", "--profile-tensors"]);
    command.args(["--densify-from-iter", "100", "--densify-grad-threshold", "5e-5"]);
    command.args(["--densify-until-iter", &UNTIL.to_string()]);
    command.args(["--iterations", &ITERATIONS.to_string(), "--test-iterations", "1500"]);
    let ended = end(&mut command).done();
    let log = fs::read_to_string(place.model().join("run.jsonl")).unwrap();
    let log = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (place, ended, log)
}

fn of_kind<'a>(log: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    log.iter().filter(move |event| event["event"] == kind)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_run_tells_of_the_gpu_of_memory_and_of_every_buffer() {
    let (place, ended, log) = run();
    let born = |event: &Value| number(&event["cloned"]) + number(&event["split"]);
    let grown = of_kind(&log, "densified").any(|event| born(event) > 0);
    assert!(grown, "nothing was born: creep would not be put to the test");
    gpu_is_sampled(&log);
    tags_are_there(&place);
    nothing_creeps(&log);
    buffers_add_up(&log);
    profile_names_all(&place);
    evaluation_holds_no_more_than_training(&place, &ended, &log);
    let last = ended.stderr.lines().rfind(|line| line.starts_with("Training 3000/3000")).unwrap();
    assert!(!last.contains("V:-"), "{last}");
    assert_eq!(last.contains("C:-"), nvidia::list().is_err(), "{last}");
}

fn gpu_is_sampled(log: &[Value]) {
    let samples: Vec<&Value> = of_kind(log, "gpu").collect();
    if let Err(reason) = nvidia::list() {
        eprintln!("no figures of the GPU can be had here: {reason}");
        assert!(samples.is_empty(), "{samples:?}");
        return;
    }
    assert!(samples.len() >= 3, "{} samples in {ITERATIONS} iterations", samples.len());
    for sample in samples {
        assert_eq!(number(&sample["iteration"]) % 50, 0, "{sample}");
        let (used, total) = (number(&sample["memory_used"]), number(&sample["memory_total"]));
        assert!(used > 0 && used < total, "{sample}");
    }
    let uuid = of_kind(log, "started").next().unwrap()["gpu"].as_str().unwrap();
    let listed = nvidia::list().unwrap();
    assert!(listed.iter().any(|gpu| gpu.uuid.as_deref() == Some(uuid)), "{uuid}: {listed:?}");
}

fn tags_are_there(place: &TestFolder) {
    let values = values_of_tags(&events_files(&place.model())[0]);
    for tag in ["vram_allocated_gb", "vram_reserved_gb", "host_rss_gb"] {
        let reported = &values[&format!("memory/{tag}")];
        assert!(reported.iter().all(|&(_, value)| value > 0.0), "{tag}: {reported:?}");
        assert_eq!(reported.len(), 30, "{tag}");
    }
    assert_eq!(values["tensors/large_count"].len(), 30);
    for tag in ["parameters", "optimizer", "activations", "images"] {
        let reported = &values[&format!("tensors/{tag}_mb")];
        assert!(reported.iter().all(|&(_, value)| value > 0.0), "{tag}: {reported:?}");
    }
    for (_, percent) in &values["tensors/fragmentation_percent"] {
        assert!((0.0..100.0).contains(percent), "{percent}");
    }
    assert!(values["memory/vram_creep_gb"].iter().all(|&(_, creep)| creep == 0.0));
    assert!(values.contains_key("tensors/gradients_mb") && values.contains_key("memory/rung"));
}

fn nothing_creeps(log: &[Value]) {
    let steady: Vec<&Value> =
        of_kind(log, "memory").filter(|event| number(&event["iteration"]) > UNTIL + 100).collect();
    assert!(steady.len() > 15);
    for event in steady {
        assert_eq!(number(&event["vram"]["creep"]), 0, "{event}");
    }
}

/// Asserts that the mapped bytes of all buffers are what the run reports as reserved.
fn buffers_add_up(log: &[Value]) {
    let mut phases = Vec::new();
    for event in of_kind(log, "buffers") {
        let after = event["after"].as_str().unwrap();
        phases.push(after);
        let entries = event["entries"].as_array().unwrap();
        let on_device = entries.iter().filter(|entry| entry["kind"] != "pinned");
        let mapped: u64 = on_device.map(|entry| number(&entry["mapped"])).sum();
        if after != "training" {
            continue;
        }
        let memory = of_kind(log, "memory").find(|it| it["iteration"] == event["iteration"]);
        assert_eq!(number(&memory.unwrap()["vram"]["reserved"]), mapped, "{event}");
        // Blocks of an iteration are freed by now, but their peak stays.
        let splats = entries.iter().find(|entry| entry["label"] == "splats").unwrap();
        assert_eq!(number(&splats["bytes"]), 0, "{event}");
        assert!(number(&splats["peak"]) > 0, "{event}");
    }
    for phase in ["training", "density_control", "evaluation", "saving"] {
        assert!(phases.contains(&phase), "{phase}: {phases:?}");
    }
    assert_eq!(phases.iter().filter(|&&phase| phase == "training").count(), 30);
}

fn profile_names_all(place: &TestFolder) {
    let shown = end(splat().args(["profile", "--json"]).arg(place.model())).done().stdout;
    let profile: Value = serde_json::from_str(&shown).unwrap();
    let all: u64 = number(&profile["peak"]["bytes"]);
    let categories = profile["categories"].as_array().unwrap();
    assert_eq!(categories.iter().map(|it| number(&it["bytes"])).sum::<u64>(), all);
    const UNKNOWN: [&str; 3] =
        ["an iteration", "lives as long as the model", "page-locked memory of the host"];
    let buffers = profile["buffers"].as_array().unwrap().iter();
    let unnamed = buffers.filter(|it| UNKNOWN.contains(&it["purpose"].as_str().unwrap()));
    let unnamed: Vec<&Value> = unnamed.map(|buffer| &buffer["label"]).collect();
    assert!(unnamed.is_empty(), "buffers whose purpose `splat profile` does not know: {unnamed:?}");
    let budget = number(&profile["peak"]["budget"]);
    assert!(all <= budget, "{all} bytes were taken, {budget} may be");
}

/// Looks at every place where a run tells the peaks of its phases.
fn evaluation_holds_no_more_than_training(place: &TestFolder, ended: &Ended, log: &[Value]) {
    let peaks = &of_kind(log, "finished").last().unwrap()["peaks"];
    let vram = |phase: &str| number(&peaks[phase]["vram"]);
    let of_training = vram("training").max(vram("density_control"));
    assert!(vram("evaluation") > 0 && vram("evaluation") <= of_training, "{peaks}");
    let summary = fs::read_to_string(place.model().join("summary.json")).unwrap();
    let summary: Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(&summary["peaks"], peaks);
    assert!(number(&summary["peak_vram"]) >= vram("saving"), "{summary}");
    let values = values_of_tags(&events_files(&place.model())[0]);
    for phase in ["training", "density_control", "evaluation", "saving"] {
        let gib = values[&format!("memory/peak_{phase}_gb")].last().unwrap().1;
        let expected = vram(phase) as f64 / f64::from(1 << 30);
        assert!((f64::from(gib) - expected).abs() < 1e-3 * expected, "{phase}: {gib} {expected}");
    }
    assert!(ended.stderr.contains("  memory    GPU "), "{ended:#?}");
}

#[test]
#[ignore = "needs a CUDA device"]
fn the_gpu_that_is_watched_is_the_one_that_works() {
    let gpu = cuda::open();
    let DeviceInfo { name, uuid } = gpu.info();
    let uuid = uuid.expect("an identifier");
    match nvidia::watch(&uuid, |measure| measure()) {
        Ok(sample) => {
            let listed = nvidia::list().unwrap();
            let same = listed.iter().find(|it| it.uuid.as_deref() == Some(&uuid)).unwrap();
            assert!(name.starts_with(&same.name), "{name} is not {}", same.name);
            assert_eq!(sample.memory_total, Some(same.memory));
            let held = gpu.heap().total().gib();
            assert!(sample.memory_used.unwrap().gib() > 0.5 * held, "{sample:?}, we hold {held}");
        }
        Err(reason) => assert!(nvidia::list().is_err(), "{uuid}: {reason}"),
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn doctor_finds_the_gpu_and_says_that_training_runs() {
    cuda::share();
    let reported = end(splat().args(["doctor", "--json"])).done().stdout;
    let found: Value = serde_json::from_str(&reported).unwrap();
    assert_eq!(found["devices"], serde_json::json!(["cuda", "cpu"]), "{found}");
    let gpu = &found["trains_on_gpu"];
    assert!(number(&gpu["budget"]) > 0 && gpu["uuid"].as_str().unwrap().starts_with("GPU-"));
    let shown = end(splat().arg("doctor")).done().stdout;
    assert!(shown.contains("GPU        ") && shown.contains("training may take"), "{shown}");
}
