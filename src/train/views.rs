//! The views of a run, without those whose image turned out to be undecodable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::event::Split;
use crate::backend::Device;
use crate::dataset::{Dataset, Image, ImageLoader, View};
use crate::memory::Bytes;

/// Gives out images, and remembers which cannot be had.
pub struct Views<'a> {
    dataset: &'a Dataset,
    loader: &'a ImageLoader,
    near: f64,
    broken: BTreeMap<usize, String>,
    /// Views whose masks leave nothing of them, as far as they were fetched.
    hidden: BTreeSet<usize>,
    /// Warnings not yet told.
    fresh: Vec<String>,
}

impl<'a> Views<'a> {
    /// All views of the dataset.
    pub fn new(dataset: &'a Dataset, loader: &'a ImageLoader) -> Self {
        Self {
            dataset,
            loader,
            near: super::near(dataset),
            broken: BTreeMap::new(),
            hidden: BTreeSet::new(),
            fresh: Vec::new(),
        }
    }

    /// Camera and pose of a view.
    pub fn view(&self, index: usize) -> &'a View {
        &self.dataset.views[index]
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
                self.broken.insert(index, error.to_string());
                self.fresh.push(format!(
                    "{error}. The view is left out ({} of {} so far)",
                    self.broken.len(),
                    self.dataset.views.len()
                ));
                None
            }
        }
    }

    /// Lets an image go that the device holds now.
    pub fn release<B: Device>(&self, device: &B, index: usize) {
        if device.is_resident(index) {
            self.loader.forget(index);
        }
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
