//! A CPU that keeps photographs and runs out of memory, as a device with memory of its own does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use splat::backend::cpu::{Cpu, Model};
use splat::backend::{DeviceError, LadderState, Photo, Stay};
use splat::dataset::Image;
use splat::memory::{Bytes, Entry, HostDemand, Kind, Refusal, Rung, RungChange, TrainingScale};

use super::hooked::{Call, Hooked, Hooks};

/// The CPU with such constraints.
pub type ConstrainedBackend = Hooked<Cpu<f32>, Constraints>;

/// Room of its own for so many photographs, of which the one used longest ago goes first; and where
/// memory is short.
pub struct Constraints {
    pub room: usize,
    pub held: BTreeMap<usize, (u64, Arc<Image>)>,
    pub clock: u64,
    /// Photographs that training had to wait for.
    pub late_uploads: Vec<usize>,
    /// Photographs that were on their way in time.
    pub prefetched: Vec<usize>,
    /// Photographs that were shown for one look.
    pub transient_uploads: usize,
    /// Near planes of the frames drawn.
    pub nears: Vec<f64>,
    /// Their backgrounds.
    pub backgrounds: Vec<[f32; 3]>,
    /// The frame from which on there is no room at all.
    pub gives_way: usize,
    /// What it takes to read any rows.
    pub pause: Duration,
    /// Frames that are refused as memory is short, counted from 1 with those refused.
    pub refused_frames: BTreeSet<usize>,
    /// Whether it is the host's memory that is short, of which nothing can be given up.
    pub is_host_short: bool,
    /// Whether there is too little memory for LPIPS.
    pub refuses_lpips: bool,
    /// How often something can be given up after a refusal.
    pub reliefs: usize,
    /// The most births that a round is granted.
    pub births: usize,
    /// Rounds of density control with births that are refused as memory is short.
    pub refused_rounds: usize,
    /// Births of each round that was asked for.
    pub rounds: Vec<usize>,
    /// The longest lists of neighbours that there is room for.
    pub most_neighbours: u32,
    /// What they are from the first relief on.
    pub fewer_neighbours: u32,
    /// Lengths of the lists that were found.
    pub found_lists: Vec<u32>,
    /// How often a relief makes training views smaller.
    pub smaller_views: usize,
    /// The frame from which on they have their full size again.
    pub full_size_from: usize,
    /// The size that they are to have.
    pub scale: TrainingScale,
    /// Whether there is memory for training views of any size.
    pub is_ample: bool,
    /// Sizes of the views that were trained on, px, each with those that followed.
    pub trained_px: Vec<([u32; 2], usize)>,
    /// Names of the views that were trained on.
    pub trained: Vec<String>,
    /// Views that were expected, each with how many had been trained on before.
    pub expected: Vec<(usize, String)>,
    /// What was given up and not yet told.
    pub changes: Vec<RungChange>,
}

/// A refusal as of a device whose memory is full.
fn refusal() -> DeviceError {
    let entry = Entry {
        label: "sh",
        kind: Kind::Region,
        used: Bytes(3 << 20),
        mapped: Bytes(3 << 20),
        peak: Bytes(3 << 20),
        at_peak: Bytes(3 << 20),
    };
    let (wanted, held, budget) = (Bytes(2 << 20), Bytes(3 << 20), Bytes(4 << 20));
    Refusal { label: "splats", wanted, held, budget, largest: vec![entry], sharing: None }.into()
}

impl ConstrainedBackend {
    pub fn new(room: usize) -> Self {
        let hooks = Constraints {
            room,
            held: BTreeMap::new(),
            clock: 0,
            late_uploads: Vec::new(),
            prefetched: Vec::new(),
            transient_uploads: 0,
            nears: Vec::new(),
            backgrounds: Vec::new(),
            gives_way: usize::MAX,
            pause: Duration::ZERO,
            refused_frames: BTreeSet::new(),
            is_host_short: false,
            refuses_lpips: false,
            reliefs: 0,
            births: usize::MAX,
            refused_rounds: 0,
            rounds: Vec::new(),
            most_neighbours: 32,
            fewer_neighbours: 32,
            found_lists: Vec::new(),
            smaller_views: 0,
            full_size_from: usize::MAX,
            scale: TrainingScale::FULL,
            is_ample: false,
            trained_px: Vec::new(),
            trained: Vec::new(),
            expected: Vec::new(),
            changes: Vec::new(),
        };
        Self { device: Cpu::new(), hooks }
    }
}

impl Constraints {
    fn refusal(&self) -> DeviceError {
        if !self.is_host_short {
            return refusal();
        }
        let (label, wanted, demand) = ("sh", Bytes(4 << 20), Some(HostDemand::Growth));
        DeviceError::OutOfHostMemory { label, wanted, demand }
    }

    fn tell(&mut self, rung: Rung, given_up: bool) {
        self.changes.push(RungChange { rung, given_up, bytes: Bytes(1 << 20) });
    }

    /// A copy, as on a device: the host's may go.
    fn keep(&mut self, view: usize, image: &Image) -> Arc<Image> {
        self.clock += 1;
        let copy = Arc::new(image.clone());
        self.held.insert(view, (self.clock, Arc::clone(&copy)));
        while self.held.len() > self.room {
            let oldest = self.held.iter().min_by_key(|(_, (used, _))| *used).unwrap();
            let oldest = *oldest.0;
            self.held.remove(&oldest);
        }
        copy
    }
}

impl Hooks<Cpu<f32>> for Constraints {
    fn before(&mut self, call: Call<'_>) -> Result<(), DeviceError> {
        match call {
            Call::Train(view) => {
                self.trained.push(view.name.clone());
                let px = [view.camera.width, view.camera.height];
                match self.trained_px.last_mut() {
                    Some((last, count)) if *last == px => *count += 1,
                    _ => self.trained_px.push((px, 1)),
                }
            }
            Call::Expect(view) => self.expected.push((self.trained.len(), view.name.clone())),
            Call::Read => sleep(self.pause),
            Call::Neighbours(count) => self.found_lists.push(count),
            Call::LoadLpips if self.refuses_lpips => return Err(self.refusal()),
            Call::LoadLpips => {}
            Call::Grow(births) => {
                self.rounds.push(births);
                if births > 0 && self.refused_rounds > 0 {
                    self.refused_rounds -= 1;
                    return Err(self.refusal());
                }
            }
            Call::Render(settings) => {
                self.nears.push(settings.near);
                self.backgrounds.push(settings.background);
                if self.nears.len() == self.full_size_from {
                    self.scale = TrainingScale::FULL;
                    self.tell(Rung::Resolution, false);
                }
                if self.nears.len() == self.gives_way {
                    self.room = 0;
                    self.held.clear();
                }
                if self.refused_frames.contains(&self.nears.len()) {
                    return Err(self.refusal());
                }
            }
        }
        Ok(())
    }

    fn upload_target(
        &mut self,
        _cpu: &mut Cpu<f32>,
        photo: Photo<'_>,
    ) -> Result<Arc<Image>, DeviceError> {
        let Photo { image, stay } = photo;
        Ok(match stay {
            Stay::Transient => {
                self.transient_uploads += 1;
                Arc::new(Image::clone(image))
            }
            Stay::Resident(view) => {
                self.late_uploads.push(view);
                self.keep(view, image)
            }
            Stay::Ahead(view) => {
                self.prefetched.push(view);
                self.keep(view, image)
            }
        })
    }

    fn resident(&mut self, _cpu: &mut Cpu<f32>, view: usize) -> Option<Arc<Image>> {
        self.clock += 1;
        let (used, image) = self.held.get_mut(&view)?;
        *used = self.clock;
        Some(Arc::clone(image))
    }

    fn is_resident(&self, _cpu: &Cpu<f32>, view: usize) -> bool {
        self.held.contains_key(&view)
    }

    fn take_changes(&mut self, _cpu: &mut Cpu<f32>) -> Option<LadderState> {
        let changes = std::mem::take(&mut self.changes);
        Some(LadderState { changes, held: Bytes(3 << 20), budget: Bytes(4 << 20) })
    }

    fn relieve(
        &mut self,
        _cpu: &mut Cpu<f32>,
        _model: &mut Model<f32>,
        error: &DeviceError,
    ) -> Result<bool, DeviceError> {
        assert!(error.is_out_of_memory());
        if self.reliefs == 0 {
            return Ok(false);
        }
        self.reliefs -= 1;
        if self.smaller_views > 0 {
            self.smaller_views -= 1;
            self.scale = self.scale.smaller().unwrap();
            self.tell(Rung::Resolution, true);
            return Ok(true);
        }
        self.most_neighbours = self.fewer_neighbours;
        self.tell(Rung::Compact, true);
        Ok(true)
    }

    fn births(&mut self, granted: usize) -> usize {
        granted.min(self.births)
    }

    fn max_neighbours(&self, _cpu: &Cpu<f32>) -> u32 {
        self.most_neighbours
    }

    fn training_scale(&self, _cpu: &Cpu<f32>) -> TrainingScale {
        self.scale
    }

    fn use_training_scale(
        &mut self,
        _cpu: &mut Cpu<f32>,
        scale: TrainingScale,
    ) -> Result<(), DeviceError> {
        if self.is_ample {
            return Ok(());
        }
        self.scale = scale;
        self.held.clear();
        Ok(())
    }
}
