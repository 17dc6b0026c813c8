//! Rank that follows rank 0: it loads the photographs of its own views and has no trainer.

use sha2::{Digest as _, Sha256};

use super::batches::RankImages;
use super::feed::Views;
use super::schedule::ViewOrder;
use super::terms::{self, TrainingStage, ViewExtras};
use crate::backend::ranks::{Follower, RankOrder, RankShard, RankTarget};
use crate::backend::{Device, DeviceError, Photo, RankView, Stay};
use crate::config::Config;
use crate::dataset::{Dataset, ImageLoader};

/// State of a run on a rank that follows rank 0.
pub struct FollowerRun<'a> {
    /// Scene.
    pub dataset: &'a Dataset,
    /// Images of the scene.
    pub images: &'a ImageLoader,
    /// Resolved configuration of rank 0.
    pub config: &'a Config,
    /// Callback that receives the first image number of each step.
    pub progress: &'a dyn Fn(u64),
}

impl FollowerRun<'_> {
    /// Follows the orders of rank 0 until the run ends.
    pub fn follow<S: RankShard>(&self, rank: &mut Follower<S>) -> Result<(), DeviceError> {
        let mut views = Views::new(self.dataset, self.images);
        let mut ahead = Ahead::new(self.dataset, self.config, rank.rank(), rank.world());
        loop {
            match rank.follow()? {
                RankOrder::Done => {}
                RankOrder::Train(all) => {
                    let of = |rank: u32| all.get(rank as usize).and_then(Option::as_ref);
                    if let Some(first) = of(0) {
                        (self.progress)(u64::from(first.image));
                    }
                    let comparison = match of(rank.rank()) {
                        None => None,
                        Some(view) => {
                            ahead.announce(&views, view.image);
                            Some(self.comparison(rank.device(), &mut views, view)?)
                        }
                    };
                    rank.train(&all, comparison)?;
                }
                RankOrder::End => return Ok(()),
            }
        }
    }

    /// Returns the target of a view, or the reason that its photograph cannot be loaded.
    fn comparison<D: Device>(
        &self,
        device: &mut D,
        views: &mut Views<'_>,
        view: &RankView,
    ) -> Result<Result<RankTarget<D::Target>, String>, DeviceError> {
        let Some(source) = self.dataset.sources.get(view.index) else {
            return Ok(Err(format!("there is no view {}", view.index)));
        };
        let target = match device.resident(view.index) {
            Some(target) => target,
            None => {
                let Some(image) = views.fetch_to_train(view.index) else {
                    let why = views.problem(view.index);
                    return Ok(Err(why.unwrap_or("its photograph cannot be decoded").to_owned()));
                };
                let stay = Stay::Resident(view.index);
                device.upload_target(Photo { image: &image, stay })?
            }
        };
        views.release(device, view.index);
        let (stage, extras) = (TrainingStage::Photometric, ViewExtras::of(source));
        let terms = terms::active(self.config, stage, view.iteration, extras);
        Ok(Ok(RankTarget { target, terms }))
    }
}

/// Scheduler that decodes coming views ahead.
struct Ahead {
    order: ViewOrder,
    own: RankImages,
    views: usize,
    /// Epoch whose views are scheduled.
    epoch: Option<usize>,
}

impl Ahead {
    fn new(dataset: &Dataset, config: &Config, rank: u32, world: u32) -> Self {
        let order = ViewOrder::new(config.run.seed, dataset.train.clone());
        let own = RankImages::of(config, rank, world);
        Self { order, own, views: dataset.train.len().max(1), epoch: None }
    }

    /// Schedules this rank's views from `image` to the end of the next epoch.
    fn announce(&mut self, views: &Views<'_>, image: u32) {
        let epoch = image.saturating_sub(1) as usize / self.views;
        if self.epoch.replace(epoch) == Some(epoch) {
            return;
        }
        let mut coming = self.order.coming(image).to_vec();
        coming.extend(self.order.following(image));
        let own = (image..).zip(coming).filter(|&(image, _)| self.own.has(image));
        let order: Vec<usize> =
            own.map(|(_, view)| view).filter(|&view| !views.is_broken(view)).collect();
        views.schedule_decoding(&order);
    }
}

/// Returns a hash of a scene: views, cameras, kinds of maps and points, but not the photographs' pixels.
pub fn fingerprint(dataset: &Dataset) -> u64 {
    let mut hasher = Sha256::new();
    for indices in [&dataset.train, &dataset.test] {
        hasher.update((indices.len() as u64).to_le_bytes());
        indices.iter().for_each(|&index| hasher.update((index as u64).to_le_bytes()));
    }
    for view in &dataset.views {
        hasher.update((view.name.len() as u64).to_le_bytes());
        hasher.update(&view.name);
        let camera = &view.camera;
        hasher.update([camera.width, camera.height].map(u32::to_le_bytes).as_flattened());
        let numbers = camera.focal_px.iter().chain(&camera.centre_px);
        let pose = view.pose.rotation.as_flattened().iter().chain(&view.pose.translation);
        numbers.chain(pose).for_each(|number| hasher.update(number.to_le_bytes()));
    }
    for source in &dataset.sources {
        let maps = [source.depth.is_some(), source.normals.is_some()];
        hasher.update(maps.map(u8::from));
        hasher.update([u8::from(source.may_have_mask())]);
    }
    let places = dataset.points.positions.as_flattened().iter();
    places.for_each(|number| hasher.update(number.to_le_bytes()));
    hasher.update(dataset.points.colors.as_flattened());
    first_bytes(hasher)
}

/// Returns a hash of a text.
pub fn fingerprint_of(text: &[u8]) -> u64 {
    first_bytes(Sha256::new_with_prefix(text))
}

fn first_bytes(hasher: Sha256) -> u64 {
    let digest = hasher.finalize();
    digest.iter().take(8).fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{Camera, Frame, PointCloud, Pose, View};

    fn scene() -> Dataset {
        let camera = Camera { width: 4, height: 3, focal_px: [5.0; 2], centre_px: [2.0, 1.5] };
        let pose = Pose { rotation: [[0.0; 3]; 3], translation: [1.0, 2.0, 3.0] };
        let view = |name: &str| View { name: name.to_owned(), camera, pose };
        Dataset {
            views: vec![view("a"), view("b"), view("c")],
            train: vec![0, 2],
            test: vec![1],
            points: PointCloud { positions: vec![[0.5; 3]], colors: vec![[1, 2, 3]] },
            root: "scene".into(),
            sources: Vec::new(),
            pseudo: Vec::new(),
            random_half_side: None,
            near_share: 0.0,
            frame: Frame::SCENE,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn different_scenes_have_different_fingerprints() {
        let same = fingerprint(&scene());
        assert_eq!(same, fingerprint(&scene()));
        let changes: [fn(&mut Dataset); 10] = [
            |scene| scene.train = vec![0],
            |scene| (scene.train, scene.test) = (vec![0, 2, 1], Vec::new()),
            |scene| scene.views[1].name.push('x'),
            |scene| scene.views[2].camera.height = 4,
            |scene| scene.views[2].camera.focal_px[1] = 5.5,
            |scene| scene.views[2].camera.centre_px[0] = 2.5,
            |scene| scene.views[0].pose.rotation[2][1] = 0.5,
            |scene| scene.views[0].pose.translation[1] += 1e-9,
            |scene| scene.points.positions[0][2] = 0.25,
            |scene| scene.points.colors.push([0; 3]),
        ];
        let mut found: Vec<u64> = changes
            .iter()
            .map(|change| {
                let mut scene = scene();
                change(&mut scene);
                fingerprint(&scene)
            })
            .collect();
        found.push(same);
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), 11);
    }
}
