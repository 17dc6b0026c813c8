//! Order of the training views and upload of their photographs.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;

use super::TrainError;
use super::batches::RankImages;
use super::coarse::CoarseSchedule;
use super::event::Split;
use super::other_views::OtherViews;
use super::schedule::ViewOrder;
use crate::backend::{Device, DeviceError, OtherView, Photo, Stay, seen_from};
use crate::config::Config;
use crate::dataset::{Dataset, Image, ImageLoader, View};
use crate::math::Divisor;
use crate::math::patches::OtherCamera;
use crate::memory::{Bytes, TrainingScale};

/// Smallest lead at which the photographs of an evaluation are decoded, iterations. At one millisecond per iteration
/// it is enough for a few dozen.
const EVALUATED_AHEAD: usize = 2000;

/// Training views in order.
pub(crate) struct Feed<'a> {
    pub(crate) views: Views<'a>,
    order: ViewOrder,
    /// Images of this process, whose photographs are decoded ahead, if other ranks draw the rest.
    pub(super) own: Option<RankImages>,
    /// Epoch whose views are decoded ahead.
    epoch: Option<usize>,
    ahead: Option<Chosen>,
    /// Views that were not scheduled for decoding because the device held them.
    left_out: BTreeSet<usize>,
    /// Iterations after which held-out views are evaluated. Their photographs are decoded ahead.
    pub(super) evaluations: Vec<u32>,
    pub(super) others: Option<ComparedViews>,
}

/// Neighbour views for comparisons.
pub(super) struct ComparedViews {
    pub(super) views: OtherViews,
    /// First iteration that compares views. It is compared with numbers of images, which equal iterations in runs with
    /// such a stage.
    from: u32,
}

/// Neighbour view with its photograph on the device.
pub(crate) struct TakenOther<T> {
    target: T,
    camera: OtherCamera<f64>,
    first_px: [u32; 2],
}

impl<T> TakenOther<T> {
    pub(crate) fn as_view(&self) -> OtherView<'_, T> {
        OtherView { target: &self.target, camera: self.camera, first_px: self.first_px }
    }
}

/// View that is trained next.
struct Chosen {
    /// Number of the image in the run, from 1.
    number: u32,
    view: usize,
    /// Photograph. `None` if the device already held it.
    image: Option<Arc<Image>>,
}

impl<'a> Feed<'a> {
    /// Orders the training views by the seed.
    pub(crate) fn new(views: Views<'a>, seed: u64) -> Self {
        let order = ViewOrder::new(seed, views.dataset.views_to_train());
        let (left_out, evaluations) = (BTreeSet::new(), Vec::new());
        let (own, epoch) = (None, None);
        Self { views, order, own, epoch, ahead: None, left_out, evaluations, others: None }
    }

    /// Enables comparisons with neighbour views in the iterations that need them.
    pub(crate) fn compare_views(&mut self, dataset: &Dataset, config: &Config) {
        let schedule = CoarseSchedule::of(config).filter(|_| config.sugar.compares_views());
        self.others = schedule.map(|schedule| ComparedViews {
            views: OtherViews::of(dataset, config.run.seed),
            from: schedule.prune.max(schedule.start).saturating_add(1),
        });
    }

    /// Returns the neighbour view of image `number` of the run (from 1).
    fn other_of(&self, number: u32, view: usize) -> Option<usize> {
        let others = self.others.as_ref().filter(|others| number >= others.from)?;
        others.views.drawn(number, view, |other| !self.views.is_broken(other))
    }

    /// Uploads the neighbour view of image `number`, if there is one. Call it after [`Self::take`], whose
    /// photograph stays resident.
    pub(crate) fn take_other<B: Device>(
        &mut self,
        device: &mut B,
        number: u32,
        view: usize,
    ) -> Result<Option<TakenOther<B::Target>>, TrainError> {
        while let Some(other) = self.other_of(number, view) {
            let target = match device.resident(other) {
                Some(target) => target,
                None => match self.fetch(device, number, other) {
                    Some(image) => self.upload(device, other, image)?,
                    // The next choice skips views that cannot be decoded.
                    None => continue,
                },
            };
            let Some(compared) = &self.others else { break };
            let views = &self.views;
            let camera = seen_from(views.training_view(view), views.training_view(other));
            let first_px = compared.views.first_px(number);
            return Ok(Some(TakenOther { target, camera, first_px }));
        }
        Ok(None)
    }

    /// Returns the view of image `number` with its photograph on the device.
    pub(crate) fn take<B: Device>(
        &mut self,
        device: &mut B,
        number: u32,
    ) -> Result<(usize, B::Target), TrainError> {
        loop {
            let chosen = self.ahead.take().filter(|chosen| chosen.number == number);
            let Chosen { view, image, .. } = match chosen {
                Some(chosen) => chosen,
                None => self.choose(device, number)?,
            };
            if let Some(target) = device.resident(view) {
                // The prefetched image is already on the device.
                drop(image);
                self.views.release(device, view);
                return Ok((view, target));
            }
            // The next choice skips views that cannot be decoded.
            let Some(image) = image.or_else(|| self.fetch(device, number, view)) else {
                continue;
            };
            return Ok((view, self.upload(device, view, image)?));
        }
    }

    fn upload<B: Device>(
        &self,
        device: &mut B,
        view: usize,
        image: Arc<Image>,
    ) -> Result<B::Target, DeviceError> {
        let target = device.upload_target(Photo { image: &image, stay: Stay::Resident(view) })?;
        drop(image);
        self.views.release(device, view);
        Ok(target)
    }

    /// Returns the view of image `number`, whose photograph another rank loads.
    pub(crate) fn assigned(&mut self, number: u32) -> Result<usize, TrainError> {
        let views = &self.views;
        let is_whole = |view: &usize| !views.is_broken(*view);
        let coming = self.order.coming(number).iter().copied().find(is_whole);
        let found = coming.or_else(|| self.order.following(number).into_iter().find(is_whole));
        found.ok_or_else(|| self.no_images())
    }

    fn no_images(&self) -> TrainError {
        let first = self.views.first_problem().unwrap_or("nothing").to_owned();
        TrainError::NoImages { views: self.views.split(Split::Train).len(), first }
    }

    /// Draws the training views at the scale that fits the device's memory, from image `number` on. Returns the earlier
    /// scale if it has changed.
    pub(crate) fn follow_training_scale<B: Device>(
        &mut self,
        device: &mut B,
        number: u32,
    ) -> Result<Option<TrainingScale>, DeviceError> {
        let (scale, before) = (device.training_scale(), self.views.training_scale());
        if scale == before {
            return Ok(None);
        }
        device.use_training_scale(scale)?;
        self.views.set_training_scale(scale);
        // The prefetched image has the old size.
        self.ahead = None;
        self.schedule_decoding(device, number);
        Ok(Some(before))
    }

    /// Starts the upload of the photograph of a coming image. Without memory nothing is uploaded before it is needed.
    pub(crate) fn prefetch<B: Device>(
        &mut self,
        device: &mut B,
        number: u32,
    ) -> Result<(), TrainError> {
        let chosen = self.choose(device, number)?;
        if let Some(image) = &chosen.image {
            let stay = Stay::Ahead(chosen.view);
            match device.upload_target(Photo { image, stay }) {
                Err(error) if error.is_out_of_memory() => return Ok(()),
                done => drop(done?),
            }
        }
        self.ahead = Some(chosen);
        Ok(())
    }

    /// Schedules decoding of the images that the device will lack: the rest of the epoch from image `number` on,
    /// the next epoch, and the held-out images of a coming evaluation.
    pub(crate) fn schedule_decoding<B: Device>(&mut self, device: &B, number: u32) {
        let at_hand = self.ahead.as_ref().is_some_and(|chosen| chosen.number == number);
        let mut coming = self.order.coming(number).to_vec();
        coming.extend(self.order.following(number));
        let mut order = Vec::new();
        self.epoch = Some(self.epoch_of(number));
        let is_own = |image| self.own.as_ref().is_none_or(|own| own.has(image));
        for (later, view) in (number..).zip(coming).filter(|&(later, _)| is_own(later)) {
            order.extend((!at_hand || later > number).then_some(view));
            order.extend(self.other_of(later, view));
        }
        self.left_out = order.iter().copied().filter(|&view| device.is_resident(view)).collect();
        let ahead = (2 * self.order.view_count()).max(EVALUATED_AHEAD);
        let soon = number..=number.saturating_add(u32::try_from(ahead).unwrap_or(u32::MAX));
        if self.evaluations.iter().any(|at| soon.contains(at)) {
            order.extend(self.views.split(Split::Test));
        }
        order.retain(|view| !self.views.is_broken(*view) && !self.left_out.contains(view));
        self.views.schedule_decoding(&order);
    }

    /// Loads the image of a view. If the device held the view at the last scheduling, it has probably dropped others
    /// too, and decoding is scheduled again.
    fn fetch<B: Device>(&mut self, device: &B, number: u32, view: usize) -> Option<Arc<Image>> {
        if self.left_out.contains(&view) {
            self.schedule_decoding(device, number);
        }
        self.views.fetch_to_train(view)
    }

    /// Chooses the view of this image, or the next one whose photograph can be loaded.
    fn choose<B: Device>(&mut self, device: &B, number: u32) -> Result<Chosen, TrainError> {
        if self.epoch != Some(self.epoch_of(number)) {
            self.schedule_decoding(device, number);
        }
        let mut next = 0;
        while let Some(&view) = self.order.coming(number).get(next) {
            if let Some(chosen) = self.try_view(device, number, view) {
                return Ok(chosen);
            }
            next += 1;
        }
        let following = self.order.following(number);
        let chosen = following.into_iter().find_map(|it| self.try_view(device, number, it));
        chosen.ok_or_else(|| self.no_images())
    }

    /// Returns the epoch of image `number`, from 0.
    fn epoch_of(&self, number: u32) -> usize {
        number.saturating_sub(1) as usize / self.order.view_count().max(1)
    }

    fn try_view<B: Device>(&mut self, device: &B, number: u32, view: usize) -> Option<Chosen> {
        if device.is_resident(view) {
            return Some(Chosen { number, view, image: None });
        }
        let image = Some(self.fetch(device, number, view)?);
        Some(Chosen { number, view, image })
    }
}

// Views of a run without undecodable images.

/// Views and images of a scene. Undecodable images are remembered and skipped.
pub struct Views<'a> {
    dataset: &'a Dataset,
    loader: &'a ImageLoader,
    near: f64,
    /// Reduced training views, if training uses them.
    smaller: Option<SmallerViews>,
    broken: BTreeMap<usize, String>,
    /// Fetched views that their masks hide completely.
    hidden: BTreeSet<usize>,
    /// Warnings that are not yet reported.
    fresh: Vec<String>,
}

/// Views of a scene at a reduced size.
struct SmallerViews {
    scale: TrainingScale,
    views: Vec<View>,
}

impl<'a> Views<'a> {
    /// Prepares all views of the dataset.
    pub fn new(dataset: &'a Dataset, loader: &'a ImageLoader) -> Self {
        Self {
            dataset,
            loader,
            near: super::near(dataset),
            smaller: None,
            broken: BTreeMap::new(),
            hidden: BTreeSet::new(),
            fresh: Vec::new(),
        }
    }

    /// Returns camera and pose of a view at full size.
    pub fn view(&self, index: usize) -> &'a View {
        &self.dataset.views[index]
    }

    /// Returns a view at training size.
    pub fn training_view(&self, index: usize) -> &View {
        self.smaller.as_ref().map_or(self.view(index), |smaller| &smaller.views[index])
    }

    /// Returns the training view reduced by a divisor, as far as its size allows. Its photograph is that of
    /// [`Self::training_view`].
    pub fn divided_view(&self, index: usize, divisor: Divisor) -> (Cow<'_, View>, Divisor) {
        let view = self.training_view(index);
        let divisor = divisor.within([view.camera.width, view.camera.height]);
        if divisor == Divisor::One {
            return (Cow::Borrowed(view), divisor);
        }
        (Cow::Owned(View { camera: view.camera.divided(divisor), ..view.clone() }), divisor)
    }

    /// Returns the scale of the training views.
    pub fn training_scale(&self) -> TrainingScale {
        self.smaller.as_ref().map_or(TrainingScale::FULL, |smaller| smaller.scale)
    }

    /// Sets the scale of the training views.
    pub fn set_training_scale(&mut self, scale: TrainingScale) {
        let smaller = |view: &View| {
            let [width, height] = scale.px([view.camera.width, view.camera.height]);
            View { camera: view.camera.resized(width, height), ..view.clone() }
        };
        self.smaller = (scale != TrainingScale::FULL).then(|| SmallerViews {
            scale,
            views: self.dataset.views.iter().map(smaller).collect(),
        });
    }

    /// Sets the near plane to that of a `--near-share`, which may have changed since the scene was opened.
    pub fn with_near_share(self, near_share: f64) -> Self {
        Self { near: super::near_of_share(self.dataset, near_share), ..self }
    }

    /// Returns the near plane of the views, see [`super::near`].
    pub fn near(&self) -> f64 {
        self.near
    }

    /// Returns the indices of a split's views in the order of names.
    pub fn split(&self, split: Split) -> &'a [usize] {
        match split {
            Split::Train | Split::EvalTrain => &self.dataset.train,
            Split::Test => &self.dataset.test,
        }
    }

    /// Returns the names of a split's views.
    pub fn names(&self, split: Split) -> Vec<String> {
        self.split(split).iter().map(|&index| self.view(index).name.clone()).collect()
    }

    /// Schedules decoding of the next views.
    pub fn schedule_decoding(&self, order: &[usize]) {
        self.loader.schedule_decoding(order);
    }

    /// Loads the image of a view at training size.
    pub fn fetch_to_train(&mut self, index: usize) -> Option<Arc<Image>> {
        let image = self.fetch(index)?;
        if self.smaller.is_none() {
            return Some(image);
        }
        let camera = &self.training_view(index).camera;
        match self.loader.resized(index, &image, [camera.width, camera.height]) {
            Ok(smaller) => Some(Arc::new(smaller)),
            Err(error) => {
                self.leave_out(index, &error);
                None
            }
        }
    }

    /// Loads the image of a view. Returns `None` and records a warning if it cannot be decoded.
    pub fn fetch(&mut self, index: usize) -> Option<Arc<Image>> {
        if self.broken.contains_key(&index) {
            return None;
        }
        match self.loader.fetch(index) {
            Ok(image) => {
                if image.is_hidden() && self.hidden.insert(index) {
                    self.fresh.push(format!(
                        "{}: its mask hides every pixel, so that there is nothing to learn from it, \
                         and it is left out of the means of evaluations",
                        self.view(index).name
                    ));
                }
                Some(image)
            }
            Err(error) => {
                self.leave_out(index, &error);
                None
            }
        }
    }

    /// Excludes a view and records the reason.
    pub(super) fn leave_out(&mut self, index: usize, error: &dyn Display) {
        self.broken.insert(index, error.to_string());
        self.fresh.push(format!(
            "{error}. The view is left out ({} of {} so far)",
            self.broken.len(),
            self.dataset.views.len()
        ));
    }

    /// Drops the host's image of a view that the device holds.
    pub fn release<B: Device>(&self, device: &B, index: usize) {
        if device.is_resident(index) {
            self.loader.forget(index);
        }
    }

    /// True if a view's image may have masked pixels.
    pub fn may_have_mask(&self, index: usize) -> bool {
        self.dataset.sources[index].may_have_mask()
    }

    /// True if a view's image is known to be undecodable.
    pub fn is_broken(&self, index: usize) -> bool {
        self.broken.contains_key(&index)
    }

    /// True if a view is known to be hidden by its mask.
    pub fn is_hidden(&self, index: usize) -> bool {
        self.hidden.contains(&index)
    }

    /// Returns the reason why a view's image cannot be loaded, if known.
    pub(super) fn problem(&self, index: usize) -> Option<&str> {
        self.broken.get(&index).map(String::as_str)
    }

    /// Returns the error of the first undecodable image.
    pub fn first_problem(&self) -> Option<&str> {
        self.broken.values().next().map(String::as_str)
    }

    /// Records a warning about the views.
    pub(super) fn warn(&mut self, message: String) {
        self.fresh.push(message);
    }

    /// Returns the warnings since the last call.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.fresh)
    }

    /// Returns the host memory of decoded images.
    pub fn held(&self) -> Bytes {
        self.loader.held()
    }
}
