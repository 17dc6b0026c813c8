//! Memory that the processor holds of a model at once, so that a limit on the host's memory can be kept.

use std::mem::size_of;

use super::model::Model;
use super::primitive::Splat;
use crate::backend::CHUNK_ROWS;
use crate::math::blend::ScreenGradient;
use crate::memory::Bytes;
use crate::memory::plan::{OptionalColumns, PlannedRow, PlannedStage, Storage, ViewSize};
use crate::model::{Gaussians, Primitive as _};

/// Bytes of a pixel that a drawn image takes: colours, and how many splats were blended.
const IMAGE: u64 = 12 + 8;

/// The same beside them where depths and normals are drawn.
const SURFACE: u64 = 16 + 4 + 16;

/// The same where inverse depths are compared: they and their gradient.
const INVERSE_DEPTHS: u64 = 2 * 4;

/// The same where the spread along rays is found: inverse depths with their squares, and the gradients of
/// both and of what passes.
const DISTORTION: u64 = 2 * 4 + 3 * 4;

/// Bytes of a pixel while it is compared with the photograph: both images, and their gradient.
const COMPARED: u64 = 3 * 12;

/// Bytes of a pixel that the similarity takes with its gradient: five moments of three channels, the
/// gradients of three of them, and these spread along columns.
const SIMILARITY: u64 = 3 * (5 * 4 + 3 * 4 + 3 * 4);

/// The same while moments are added up along rows and then along columns.
const MOMENTS: u64 = 3 * 2 * (5 * 4);

/// Bytes of a pixel where it is measured in double precision: both images.
const MEASURED: u64 = 2 * 24;

/// The same with those that `metrics.py` would read, which have a border.
const REFERENCE: u64 = 4 * 24;

/// Bytes that each thread takes for a pixel of a row while it measures: moments of a band of rows.
const BAND: u64 = 3 * (5 * 8) * (32 + 10 + 32);

/// Bytes of a pixel of the pictures of a view: what was drawn, and four pictures, each while it grows.
const PICTURES: u64 = 16 + 4 * 2 * 3;

/// Bytes of an instance while splats are listed by tile, and in the lists.
const LISTING: u64 = 16;
const LISTED: u64 = 8;

/// Values of a row's geometry that terms at samples have gradients of.
const GEOMETRY: u64 = 11;

/// A model on the processor, and what is done with it.
#[derive(Clone, Debug)]
pub struct CpuWork {
    /// Highest degree of the spherical harmonics.
    pub sh_degree: u32,
    /// How the model is kept.
    pub storage: Storage,
    /// Columns that not every model has.
    pub optional: OptionalColumns,
    /// Gaussians.
    pub gaussians: u64,
    /// The most demanding view.
    pub view: ViewSize,
    /// What is done.
    pub kind: WorkKind,
    /// True if evaluations measure as the reference's `metrics.py`.
    pub with_reference: bool,
    /// Threads that work at once.
    pub threads: u64,
}

/// What is done with a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// It is drawn and measured.
    Shown,
    /// It is trained.
    Trained {
        /// Gaussians that the host makes first.
        start: u64,
        /// Views of a step.
        batch_views: u64,
        /// True if depths and normals are drawn.
        surface: bool,
        /// True if inverse depths are compared.
        inverse_depths: bool,
        /// True if the spread along rays is found.
        distortion: bool,
        /// Neighbours of each Gaussian that are listed.
        neighbours: u64,
    },
}

impl WorkKind {
    /// Bytes of a pixel beside its colours.
    fn bytes_beside_colors(self) -> u64 {
        let Self::Trained { surface, inverse_depths, distortion, .. } = self else { return 0 };
        let of_rays = match (distortion, inverse_depths) {
            // With inverse depths.
            (true, _) => DISTORTION,
            (false, true) => INVERSE_DEPTHS,
            (false, false) => 0,
        };
        of_rays + if surface { SURFACE } else { 0 }
    }
}

impl CpuWork {
    /// The stage in which rows are put in order.
    pub const ORDERING: &'static str = "putting Gaussians in order";

    /// The stage in which rows go to files.
    pub const SAVING: &'static str = "saving";

    /// What is held in each part of the work, beside the program and its photographs.
    pub fn stages(&self) -> Vec<PlannedStage> {
        let pixels = self.view.pixels();
        let measured = MEASURED + if self.with_reference { REFERENCE } else { 0 };
        let bands = self.threads * u64::from(self.view.px[0]) * BAND;
        let drawn = pixels * IMAGE;
        let mut stages = vec![
            self.stage(
                "an evaluation",
                &[
                    row("splats and their lists", self.lists()),
                    row("the image, and figures of it", drawn + pixels * measured + bands),
                ],
            ),
            self.stage(
                "making pictures of a view",
                &[
                    row("splats and their lists", self.lists()),
                    row("the image, and pictures of it", drawn + pixels * PICTURES),
                ],
            ),
            self.stage("finding splats", &[row("splats and their lists", self.listing())]),
        ];
        if let WorkKind::Trained { start, batch_views, neighbours, .. } = self.kind {
            let beside = self.kind.bytes_beside_colors();
            stages.extend(self.training(batch_views, beside, neighbours));
            stages.extend(self.moving(start));
        }
        stages
    }

    /// Steps of training; a pixel has so many bytes beside its colours.
    fn training(&self, batch_views: u64, beside: u64, neighbours: u64) -> [PlannedStage; 2] {
        let pixels = self.view.pixels();
        let drawn = pixels * (IMAGE + beside);
        let earlier = batch_views.saturating_sub(1) * self.view.visible * (self.gradient() + 8);
        let listed =
            self.gaussians * if neighbours > 0 { 4 * neighbours + 4 * GEOMETRY } else { 0 };
        let beside = |rows: &[PlannedRow]| {
            [
                rows,
                &[row("gradients of a step's views", earlier), row("lists of neighbours", listed)],
            ]
            .concat()
        };
        let instances = (self.view.instances + self.view.visible) * self.gradient();
        let found = batch_views * self.view.visible * (self.gradient() + 8)
            + batch_views * 8 * self.gaussians;
        [
            self.stage(
                "the comparison with a photograph",
                &beside(&[
                    row("splats and their lists", self.lists()),
                    row("the image", drawn),
                    row("its comparison", pixels * (COMPARED + SIMILARITY.max(MOMENTS))),
                ]),
            ),
            self.stage(
                "the backward pass",
                &beside(&[
                    row("splats and their lists", self.lists()),
                    row("the image and its gradient", drawn + 12 * pixels),
                    row("gradients of splats", instances.max(found)),
                ]),
            ),
        ]
    }

    /// What moves whole rows: at the start, in density control, and to files.
    fn moving(&self, start: u64) -> [PlannedStage; 2] {
        let widest = self.shape().groups().iter().map(|group| group.width).max().unwrap_or(0);
        // A column in its new order, the order, and the keys that it is sorted by.
        let order = self.gaussians * (4 * widest as u64 + 8 + 16);
        let chunk = self.gaussians.min(CHUNK_ROWS as u64);
        let parameters = 4 * self.parameters();
        [
            self.stage(
                Self::ORDERING,
                &[
                    row("Gaussians as the host made them", start * parameters),
                    row("their order", order),
                ],
            ),
            self.stage(
                Self::SAVING,
                &[row("rows on their way to a file", chunk * (3 * parameters + 8))],
            ),
        ]
    }

    fn stage(&self, name: &'static str, rows: &[PlannedRow]) -> PlannedStage {
        let model = row("Gaussians and their moments", self.gaussians * self.row_bytes());
        let all = [model].into_iter().chain(rows.iter().copied());
        let rows: Vec<PlannedRow> = all.filter(|row| row.bytes > Bytes(0)).collect();
        let total = rows.iter().map(|row| row.bytes).sum();
        PlannedStage { name, rows, total }
    }

    /// Splats, and the lists of each tile's.
    fn lists(&self) -> u64 {
        let ViewSize { visible, instances, .. } = self.view;
        visible * size_of::<Splat<f32>>() as u64 + instances * LISTED + 8 * self.view.tiles()
    }

    /// The same while they are found: threads have splats of their own, which are put together.
    fn listing(&self) -> u64 {
        let ViewSize { visible, instances, .. } = self.view;
        let splats = visible * size_of::<Splat<f32>>() as u64;
        splats + splats.max(2 * 8 * visible + instances * (LISTING + LISTED))
    }

    fn gradient(&self) -> u64 {
        size_of::<ScreenGradient<f32>>() as u64
    }

    /// One row, whose values do not matter.
    fn shape(&self) -> Gaussians {
        Gaussians::zeros(self.sh_degree, 1)
    }

    fn parameters(&self) -> u64 {
        self.shape().groups().iter().map(|group| group.width as u64).sum()
    }

    /// Bytes of a row with its moments and statistics.
    fn row_bytes(&self) -> u64 {
        let model = Model::<f32>::stored(&self.shape(), self.storage);
        let bytes: Bytes = model.bytes().into_iter().sum();
        bytes.0 + 4 * self.optional.count()
    }
}

fn row(label: &'static str, bytes: u64) -> PlannedRow {
    PlannedRow { label, bytes: Bytes(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::stage::{bin, blend};

    fn work(gaussians: u64, storage: Storage) -> CpuWork {
        CpuWork {
            sh_degree: 3,
            storage,
            optional: OptionalColumns::NONE,
            gaussians,
            view: ViewSize { px: [100, 50], visible: 800, instances: 3000 },
            kind: WorkKind::Trained {
                start: 1000,
                batch_views: 1,
                surface: false,
                inverse_depths: false,
                distortion: false,
                neighbours: 0,
            },
            with_reference: false,
            threads: 2,
        }
    }

    #[test]
    fn a_row_takes_what_a_model_of_one_does() {
        let total = |storage| work(1000, storage).stages()[0].rows[0].bytes;
        assert_eq!(total(Storage::Full), Bytes(1000 * (3 * 59 * 4 + 8)));
        assert!(total(Storage::Compact) < total(Storage::HalfColors));
        assert!(total(Storage::HalfColors) < total(Storage::Full));
    }

    #[test]
    fn stages_add_up_and_name_what_each_holds() {
        for stage in work(1000, Storage::Full).stages() {
            let sum: Bytes = stage.rows.iter().map(|row| row.bytes).sum();
            assert_eq!(sum, stage.total, "{}", stage.name);
            assert!(stage.rows.iter().all(|row| row.bytes > Bytes(0)), "{}", stage.name);
        }
        let more = CpuWork { gaussians: 2000, ..work(1000, Storage::Full) };
        for (few, many) in work(1000, Storage::Full).stages().iter().zip(more.stages()) {
            assert!(few.total < many.total, "{}", few.name);
        }
    }

    #[test]
    fn inverse_depths_take_room_once() {
        let beside = |inverse_depths, distortion| {
            let (start, batch_views, neighbours) = (0, 1, 0);
            let surface = false;
            WorkKind::Trained {
                start,
                batch_views,
                surface,
                inverse_depths,
                distortion,
                neighbours,
            }
            .bytes_beside_colors()
        };
        assert_eq!([beside(false, false), beside(true, false)], [0, 8]);
        assert_eq!([beside(false, true), beside(true, true)], [20, 20]);
    }

    #[test]
    fn a_drawn_image_takes_what_is_planned() {
        use crate::backend::{Drawing, Look, RenderSettings};
        let bins = bin::bin::<f32>(&[], [100, 50]);
        let drawing = Drawing::shown(&RenderSettings::DEFAULT, Look::IMAGE);
        let canvas = blend::forward::<f32>(&[], &bins, [100, 50], &drawing);
        assert_eq!(canvas.bytes(), Bytes(100 * 50 * IMAGE));
    }
}
