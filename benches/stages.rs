//! Times of the image loader and of the CPU's stages on a small synthetic scene.
//!
//! `cargo bench` measures all of them, `cargo bench -- loss` those with that name. `splat bench` measures iterations
//! on a real scene and on a GPU.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a measurement that cannot be taken should say so and stop"
)]

use std::path::Path;
use std::sync::{Arc, LazyLock};

use divan::Bencher;
use splat::backend::cpu::{Cpu, Frame, Gradients, Model, count};
use splat::backend::{
    Device as _, Drawn, Footprint, Neighbours as _, Objective, Photo, Render as _, RenderSettings,
    Scored, Stay, Store as _, Terms, TrainRequest,
};
use splat::config::{OptimizeOptions, SceneOptions};
use splat::dataset::{Dataset, Image, ImageLoader, Residency, View};
use splat::model::{Gaussians, from_points};
use splat::synth::{SynthOptions, write_scene};
use splat::train::near;

/// Folder of the scene, which is the same in every run.
const FOLDER: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/bench-scene");

const SIZE: SynthOptions = SynthOptions {
    seed: 1,
    views: 8,
    width: 640,
    height: 480,
    points: 20_000,
    ..SynthOptions::DEMO
};

const LAMBDA_DSSIM: f64 = 0.2;

/// The measured scene: the first view, and the initial Gaussians.
struct Scene {
    dataset: Dataset,
    photograph: Arc<Image>,
    gaussians: Gaussians,
    settings: RenderSettings,
}

static SCENE: LazyLock<Scene> = LazyLock::new(|| {
    write_scene(Path::new(FOLDER), &SIZE).expect("a scene");
    let options = SceneOptions { source_path: Some(FOLDER.into()), ..SceneOptions::default() };
    let dataset = Dataset::load(&options).expect("the scene that was written");
    let photograph = loader(&dataset).fetch(0).expect("its first photograph");
    let gaussians = from_points(&dataset.points, &OptimizeOptions::default(), 1);
    let settings = RenderSettings {
        sh_degree: gaussians.sh_degree,
        near: near(&dataset),
        ..RenderSettings::DEFAULT
    };
    Scene { dataset, photograph, gaussians, settings }
});

impl Scene {
    fn view(&self) -> &View {
        &self.dataset.views[0]
    }

    fn model(&self) -> Model<f32> {
        device().upload(&self.gaussians).unwrap()
    }

    fn drawn(&self, model: &Model<f32>) -> Frame<f32> {
        device().render_train(model, self.view(), &self.settings, &TrainRequest::default()).unwrap()
    }

    fn compared(&self, model: &Model<f32>, target: &Arc<Image>) -> Frame<f32, Scored<Drawn>> {
        compare(model, self.drawn(model), target)
    }

    fn target(&self) -> Arc<Image> {
        let photo = Photo { image: &self.photograph, stay: Stay::Resident(0) };
        device().upload_target(photo).unwrap()
    }
}

fn compare(
    model: &Model<f32>,
    frame: Frame<f32>,
    target: &Arc<Image>,
) -> Frame<f32, Scored<Drawn>> {
    let terms = &Terms::photometric(LAMBDA_DSSIM);
    let objective = Objective { target, terms, near: None, other: None };
    device().objective(model, frame, &objective).unwrap().0
}

/// Returns a device, which has no state.
fn device() -> Cpu<f32> {
    Cpu::new()
}

fn loader(dataset: &Dataset) -> ImageLoader {
    ImageLoader::new(dataset.sources.clone(), Residency::All)
}

#[divan::bench]
fn decode(bencher: Bencher<'_, '_>) {
    let scene = &*SCENE;
    bencher
        .with_inputs(|| loader(&scene.dataset))
        .bench_local_values(|images| images.fetch(0).unwrap());
}

/// Projects 20,000 Gaussians to the image and finds their tiles.
#[divan::bench]
fn project(bencher: Bencher<'_, '_>) {
    let scene = &*SCENE;
    let near = scene.settings.near;
    bencher.bench_local(|| count(&scene.gaussians, scene.view(), near, Footprint::DILATED));
}

#[divan::bench]
fn blend_forward(bencher: Bencher<'_, '_>) {
    let scene = &*SCENE;
    let model = scene.model();
    bencher.bench_local(|| scene.drawn(&model));
}

#[divan::bench]
fn loss(bencher: Bencher<'_, '_>) {
    let scene = &*SCENE;
    let model = scene.model();
    let target = scene.target();
    bencher
        .with_inputs(|| scene.drawn(&model))
        .bench_local_values(|frame| compare(&model, frame, &target));
}

/// Computes the splats' gradients from the image's.
#[divan::bench]
fn blend_backward(bencher: Bencher<'_, '_>) {
    let scene = &*SCENE;
    let model = scene.model();
    let (mut trained, target) = (scene.model(), scene.target());
    bencher.with_inputs(|| scene.compared(&model, &target)).bench_local_values(|frame| {
        let mut gradients = Gradients::default();
        device().backward(&mut trained, frame, None, &mut gradients).unwrap();
        gradients
    });
}

/// Finds the 16 nearest neighbours of each of 20,000 centres.
#[divan::bench]
fn neighbours(bencher: Bencher<'_, '_>) {
    let model = SCENE.model();
    bencher.bench_local(|| device().neighbours(&model, 16).unwrap());
}

fn main() {
    divan::Divan::from_args().max_time(std::time::Duration::from_secs(5)).main();
}
