//! Runs on a device that is not there: the real stages on a heap that rejects what a driver would reject,
//! and on queues that do no work and answer the counts of a case.

mod offload;
mod primitives;
mod sizes;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use super::device::dry::DryQueue;
use super::dry::{AT_REST, Reported};
use super::memory::heap::Heap;
use super::memory::heap::tests::heap_of;
use super::session::Session;
use super::{Cuda, CudaOptions, Gradients, Model, Target, dry};
use crate::backend::{Compensation, DeviceError, RenderSettings, Statistics, Terms, Wants};
use crate::dataset::{Image, View};
use crate::math::Divisor;
use crate::memory::Bytes;
use crate::memory::plan::Storage;

/// A run, and what its views show.
#[derive(Clone, Copy, Debug)]
struct Case {
    gaussians: usize,
    sh_degree: u32,
    storage: Storage,
    px: [u32; 2],
    visible: u32,
    instances: u64,
    compensation: Option<Compensation>,
    /// By how much views are smaller than their photographs.
    divisor: Divisor,
}

impl Case {
    const SMALL: Self = Self {
        gaussians: 5000,
        sh_degree: 3,
        storage: Storage::Full,
        px: [97, 61],
        visible: 3000,
        instances: 9000,
        compensation: None,
        divisor: Divisor::One,
    };

    fn settings(&self) -> RenderSettings {
        RenderSettings { sh_degree: self.sh_degree, ..RenderSettings::DEFAULT }
    }

    fn wants(&self) -> Wants {
        let &Self { compensation, divisor, .. } = self;
        Wants { observe: Some(Statistics::Norms), compensation, divisor, ..Wants::default() }
    }

    fn terms() -> Terms {
        Terms::photometric(0.2)
    }

    fn view(&self) -> View {
        dry::view(self.px)
    }

    fn photograph(&self) -> Arc<Image> {
        let [width, height] = self.px;
        let rgb = vec![0; 3 * width as usize * height as usize];
        Arc::new(Image { width, height, rgb, mask: None, depth: None, normals: None })
    }
}

/// A device that is not there.
struct DryRun {
    case: Case,
    device: Cuda,
    reported: Rc<Cell<Reported>>,
}

impl DryRun {
    fn open_with(case: Case, options: &CudaOptions, budget: Bytes) -> Result<Self, DeviceError> {
        Self::over(case, options, heap_of(budget))
    }

    fn over(case: Case, options: &CudaOptions, heap: Heap) -> Result<Self, DeviceError> {
        let reported: Rc<Cell<Reported>> = Rc::default();
        let answer = Rc::clone(&reported);
        let queue = DryQueue::new(Rc::new(move |label, host| answer.get().write(label, host)));
        let device = Cuda::over(Session::dry(heap, [queue.clone(), queue])?, options)?;
        let run = Self { case, device, reported };
        run.show(case.visible, case.instances);
        Ok(run)
    }

    /// Views show this from now on.
    fn show(&self, visible: u32, instances: u64) {
        // Each row of tiles has its share of the instances.
        let bands = u64::from(self.case.px[1].div_ceil(crate::abi::TILE));
        self.reported.set(Reported { visible, instances, bands, ..Reported::default() });
    }
}
