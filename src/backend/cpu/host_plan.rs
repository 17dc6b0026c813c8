//! Memory plan of the CPU backend, to respect a limit on host memory.

use std::mem::size_of;

use super::model::Model;
use super::primitive::Splat;
use crate::backend::CHUNK_ROWS;
use crate::math::blend::ScreenGradient;
use crate::memory::Bytes;
use crate::memory::plan::{OptionalColumns, PlannedRow, PlannedStage, Storage, ViewSize};
use crate::model::{Gaussians, Primitive as _};

/// Bytes per pixel of a drawn image: colours and the number of blended splats.
const IMAGE: u64 = 12 + 8;

/// Additional bytes per pixel if depths and normals are drawn.
const SURFACE: u64 = 16 + 4 + 16;

/// Additional bytes per pixel if inverse depths are compared: the depths and their gradient.
const INVERSE_DEPTHS: u64 = 2 * 4;

/// Additional bytes per pixel for the distortion term: inverse depths, their squares, and the gradients of both and
/// of the transmittance.
const DISTORTION: u64 = 2 * 4 + 3 * 4;

/// Bytes per pixel during the comparison with the photograph: both images and the gradient.
const COMPARED: u64 = 3 * 12;

/// Bytes per pixel of SSIM with its gradient: five moments of three channels, the gradients of three moments, and
/// these gradients filtered along columns.
const SIMILARITY: u64 = 3 * (5 * 4 + 3 * 4 + 3 * 4);

/// Bytes per pixel while moments are summed along rows and then along columns.
const MOMENTS: u64 = 3 * 2 * (5 * 4);

/// Bytes per pixel of a measurement in double precision: both images.
const MEASURED: u64 = 2 * 24;

/// Additional bytes per pixel to measure like `metrics.py`: both images with a border.
const REFERENCE: u64 = 4 * 24;

/// Bytes per thread and pixel of a row during a measurement: moments of a band of rows.
const BAND: u64 = 3 * (5 * 8) * (32 + 10 + 32);

/// Bytes per pixel of the pictures of a view: the drawing and four pictures, each while its buffer grows.
const PICTURES: u64 = 16 + 4 * 2 * 3;

/// Bytes per instance while splats are binned, and in the tile lists.
const LISTING: u64 = 16;
const LISTED: u64 = 8;

/// Number of geometry values per row that terms at samples differentiate.
const GEOMETRY: u64 = 11;

/// A model on the CPU and the work to plan.
#[derive(Clone, Debug)]
pub struct CpuWork {
    /// Highest SH degree.
    pub sh_degree: u32,
    /// Storage of the model.
    pub storage: Storage,
    /// Optional columns.
    pub optional: OptionalColumns,
    /// Number of Gaussians.
    pub gaussians: u64,
    /// The most demanding view.
    pub view: ViewSize,
    /// Kind of work.
    pub kind: WorkKind,
    /// True if evaluations also measure like the reference's `metrics.py`.
    pub with_reference: bool,
    /// Number of threads.
    pub threads: u64,
}

/// Work on a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// Drawing and measuring.
    Shown,
    /// Training.
    Trained {
        /// Number of initial Gaussians on the host.
        start: u64,
        /// Number of views per step.
        batch_views: u64,
        /// True if depths and normals are drawn.
        surface: bool,
        /// True if inverse depths are compared.
        inverse_depths: bool,
        /// True if the distortion term is on.
        distortion: bool,
        /// Number of listed neighbours per Gaussian.
        neighbours: u64,
    },
}

impl WorkKind {
    /// Returns the bytes per pixel beside its colours.
    fn bytes_beside_colors(self) -> u64 {
        let Self::Trained { surface, inverse_depths, distortion, .. } = self else { return 0 };
        let of_rays = match (distortion, inverse_depths) {
            // Includes the inverse depths.
            (true, _) => DISTORTION,
            (false, true) => INVERSE_DEPTHS,
            (false, false) => 0,
        };
        of_rays + if surface { SURFACE } else { 0 }
    }
}

impl CpuWork {
    /// Name of the stage that reorders rows.
    pub const ORDERING: &'static str = "putting Gaussians in order";

    /// Name of the stage that writes rows to files.
    pub const SAVING: &'static str = "saving";

    /// Returns the memory of each stage, without the program and its photographs.
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

    /// Plans the steps of training; a pixel takes `beside` bytes beside its colours.
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

    /// Plans the stages that move whole rows: ordering and saving.
    fn moving(&self, start: u64) -> [PlannedStage; 2] {
        let widest = self.shape().groups().iter().map(|group| group.width).max().unwrap_or(0);
        // A reordered column, the order, and the sort keys.
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

    /// Returns the bytes of splats and tile lists.
    fn lists(&self) -> u64 {
        let ViewSize { visible, instances, .. } = self.view;
        visible * size_of::<Splat<f32>>() as u64 + instances * LISTED + 8 * self.view.tiles()
    }

    /// Returns the bytes during binning, when each thread's splats are merged.
    fn listing(&self) -> u64 {
        let ViewSize { visible, instances, .. } = self.view;
        let splats = visible * size_of::<Splat<f32>>() as u64;
        splats + splats.max(2 * 8 * visible + instances * (LISTING + LISTED))
    }

    fn gradient(&self) -> u64 {
        size_of::<ScreenGradient<f32>>() as u64
    }

    /// Returns one row with arbitrary values.
    fn shape(&self) -> Gaussians {
        Gaussians::zeros(self.sh_degree, 1)
    }

    fn parameters(&self) -> u64 {
        self.shape().groups().iter().map(|group| group.width as u64).sum()
    }

    /// Returns the bytes of a row with its moments and statistics.
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
    fn row_bytes_match_a_model_of_one_row() {
        let total = |storage| work(1000, storage).stages()[0].rows[0].bytes;
        assert_eq!(total(Storage::Full), Bytes(1000 * (3 * 59 * 4 + 8)));
        assert!(total(Storage::Compact) < total(Storage::HalfColors));
        assert!(total(Storage::HalfColors) < total(Storage::Full));
    }

    #[test]
    fn stages_add_up_and_grow_with_gaussians() {
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
    fn inverse_depths_are_counted_once() {
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
    fn image_bytes_match_the_plan() {
        use crate::backend::{DrawSettings, RenderRequest, RenderSettings};
        let bins = bin::bin::<f32>(&[], [100, 50]);
        let drawing = DrawSettings::shown(&RenderSettings::DEFAULT, RenderRequest::IMAGE);
        let canvas = blend::forward::<f32>(&[], &bins, [100, 50], &drawing);
        assert_eq!(canvas.bytes(), Bytes(100 * 50 * IMAGE));
    }
}
