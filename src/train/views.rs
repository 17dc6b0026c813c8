//! The views of a run, without those whose image turned out to be undecodable.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;

use super::event::Split;
use crate::backend::Device;
use crate::dataset::{Dataset, Image, ImageLoader, View};
use crate::math::Divisor;
use crate::memory::{Bytes, TrainingScale};

/// Gives out images, and remembers which cannot be had.
pub struct Views<'a> {
    dataset: &'a Dataset,
    loader: &'a ImageLoader,
    near: f64,
    /// Training views smaller than the scene's, where they are.
    smaller: Option<SmallerViews>,
    broken: BTreeMap<usize, String>,
    /// Views whose masks leave nothing of them, as far as they were fetched.
    hidden: BTreeSet<usize>,
    /// Warnings not yet told.
    fresh: Vec<String>,
}

/// The views of a scene at another size.
struct SmallerViews {
    scale: TrainingScale,
    views: Vec<View>,
}

impl<'a> Views<'a> {
    /// All views of the dataset.
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

    /// Camera and pose of a view.
    pub fn view(&self, index: usize) -> &'a View {
        &self.dataset.views[index]
    }

    /// The same as it is drawn for training.
    pub fn training_view(&self, index: usize) -> &View {
        self.smaller.as_ref().map_or(self.view(index), |smaller| &smaller.views[index])
    }

    /// The same smaller by a divisor, or as far as its size allows. Its photograph is that of
    /// [`Self::training_view`]: where memory is short, both smaller sizes go together.
    pub fn divided_view(&self, index: usize, divisor: Divisor) -> (Cow<'_, View>, Divisor) {
        let view = self.training_view(index);
        let divisor = divisor.within([view.camera.width, view.camera.height]);
        if divisor == Divisor::One {
            return (Cow::Borrowed(view), divisor);
        }
        (Cow::Owned(View { camera: view.camera.divided(divisor), ..view.clone() }), divisor)
    }

    /// The size at which views are drawn for training.
    pub fn training_scale(&self) -> TrainingScale {
        self.smaller.as_ref().map_or(TrainingScale::FULL, |smaller| smaller.scale)
    }

    /// Has them drawn at another size.
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

    /// Depth from which on the views are drawn, as [`super::near`] has it.
    pub fn near(&self) -> f64 {
        self.near
    }

    /// Indices of a split's views in the order of names.
    pub fn split(&self, split: Split) -> &'a [usize] {
        match split {
            Split::Train | Split::EvalTrain => &self.dataset.train,
            Split::Test => &self.dataset.test,
        }
    }

    /// Names of a split's views.
    pub fn names(&self, split: Split) -> Vec<String> {
        self.split(split).iter().map(|&index| self.view(index).name.clone()).collect()
    }

    /// Says which views come next, so that they are decoded ahead.
    pub fn schedule_decoding(&self, order: &[usize]) {
        self.loader.schedule_decoding(order);
    }

    /// The image of a view at the size at which it is drawn for training.
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

    /// The image of a view; nothing, and a warning to tell, where it cannot be decoded.
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

    /// Leaves out a view whose image cannot be had, and says why.
    pub(super) fn leave_out(&mut self, index: usize, error: &dyn Display) {
        self.broken.insert(index, error.to_string());
        self.fresh.push(format!(
            "{error}. The view is left out ({} of {} so far)",
            self.broken.len(),
            self.dataset.views.len()
        ));
    }

    /// Lets an image go that the device holds now.
    pub fn release<B: Device>(&self, device: &B, index: usize) {
        if device.is_resident(index) {
            self.loader.forget(index);
        }
    }

    /// Whether a view's image may have pixels that do not count.
    pub fn may_have_mask(&self, index: usize) -> bool {
        self.dataset.sources[index].may_have_mask()
    }

    /// Whether a view's image is known to be undecodable.
    pub fn is_broken(&self, index: usize) -> bool {
        self.broken.contains_key(&index)
    }

    /// Whether a view's mask is known to leave nothing of it.
    pub fn is_hidden(&self, index: usize) -> bool {
        self.hidden.contains(&index)
    }

    /// Whether all views of a split are known to be hidden by their masks.
    pub fn hides_all(&self, split: Split) -> bool {
        self.split(split).iter().all(|&index| self.is_hidden(index))
    }

    /// Why a view's image cannot be had, where that is known.
    pub(super) fn problem(&self, index: usize) -> Option<&str> {
        self.broken.get(&index).map(String::as_str)
    }

    /// The reason that the first undecodable image gave.
    pub fn first_problem(&self) -> Option<&str> {
        self.broken.values().next().map(String::as_str)
    }

    /// Something of these views that the user should know.
    pub(super) fn warn(&mut self, message: String) {
        self.fresh.push(message);
    }

    /// Warnings since the last call.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.fresh)
    }

    /// Host memory that decoded images take.
    pub fn held(&self) -> Bytes {
        self.loader.held()
    }
}
