//! One colour for each vertex, such that the mesh looks like its photographs.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use splat_mesh::Mesh;
use splat_mesh::draw::{RayHits, VertexSum};

use crate::backend::camera_of;
use crate::dataset::Image;
use crate::math::Real as _;
use crate::math::linalg::{Mat3, Vec3, cross, dot, mul, sub};
use crate::train::Views;
use crate::train::event::Split;
use crate::train::pictures::byte;

/// Rounds over the photographs. Each takes away most of what is left of the error of large patches; later ones
/// would sharpen what is as large as a triangle, and noise.
const ROUNDS: usize = 6;

/// How near to the photographs colours are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VertexFit {
    /// Photographs that are compared.
    pub photographs: usize,
    /// PSNR of all their pixels together before, dB.
    pub psnr_before: f64,
    /// The same after the last round but one.
    pub psnr_after: f64,
}

/// Fits the colours of a checked mesh to the training photographs, as it is drawn without light before this background:
/// least squares by simultaneous iterative reconstruction (Gilbert 1972). A vertex that no photograph shows keeps its
/// colour; nothing where there is no photograph to compare.
pub fn fit_vertex_colors(
    mesh: &mut Mesh,
    views: &mut Views<'_>,
    background: [f32; 3],
    exposures: &Exposures,
) -> Option<VertexFit> {
    let mut fit: Option<VertexFit> = None;
    for number in 1..=ROUNDS {
        let mut round = FitRound::new(mesh.vertices.len());
        let order = views.split(Split::Train);
        views.schedule_decoding(order);
        for &index in order {
            let Some(photograph) = views.fetch(index) else { continue };
            if views.is_hidden(index) {
                continue;
            }
            let view = views.view(index);
            let rays = RayHits::of(mesh, &camera_of(view), views.near());
            let shown = FitTarget {
                colors: colors_of(&photograph, exposures, &view.name),
                mask: photograph.mask.as_deref(),
            };
            round.add(mesh, &rays, background, &shown);
        }
        let (photographs, psnr) = (round.photographs, round.psnr());
        if photographs == 0 {
            return None;
        }
        tracing::info!(
            "before round {number} of {ROUNDS}: {psnr:.2} dB on {photographs} photographs"
        );
        round.apply(&mut mesh.colors);
        let psnr_before = fit.map_or(psnr, |fit| fit.psnr_before);
        fit = Some(VertexFit { photographs, psnr_before, psnr_after: psnr });
    }
    fit
}

/// A photograph as the model would show it, 0 to 1.
fn colors_of(photograph: &Image, exposures: &Exposures, name: &str) -> Vec<[f32; 3]> {
    let pixels = photograph.rgb.as_chunks::<3>().0;
    let to_share = |color: [u8; 3]| color.map(|channel| f32::from(channel) / 255.0);
    exposures.undo(name, pixels).into_iter().map(to_share).collect()
}

/// What the mesh is to look like.
struct FitTarget<'a> {
    /// As the model would show them, 0 to 1.
    colors: Vec<[f32; 3]>,
    /// 0 in pixels that say nothing.
    mask: Option<&'a [u8]>,
}

/// What one round over the photographs finds.
struct FitRound {
    sums: Vec<VertexSum>,
    photographs: usize,
    squares: f64,
    values: u64,
}

impl FitRound {
    fn new(vertices: usize) -> Self {
        Self { sums: vec![VertexSum::default(); vertices], photographs: 0, squares: 0.0, values: 0 }
    }

    /// Compares the mesh with a photograph, of which masked pixels say nothing.
    fn add(
        &mut self,
        mesh: &Mesh,
        rays: &RayHits,
        background: [f32; 3],
        photograph: &FitTarget<'_>,
    ) {
        let drawn = rays.draw(mesh, &mesh.colors);
        let FitTarget { colors, mask } = photograph;
        let pixels = drawn.colors.iter().zip(&drawn.covers).zip(colors).enumerate();
        let missing: Vec<Option<[f32; 3]>> = pixels
            .map(|(pixel, ((color, covers), truth))| {
                let counts = mask.is_none_or(|mask| mask[pixel] > 0);
                let behind = background.map(|channel| (1.0 - covers) * channel);
                counts.then(|| std::array::from_fn(|k| truth[k] - color[k] - behind[k]))
            })
            .collect();
        for value in missing.iter().flatten().flatten() {
            self.squares += f64::from(*value).powi(2);
            self.values += 1;
        }
        rays.draw_bwd(mesh, &missing, &mut self.sums);
        self.photographs += 1;
    }

    fn psnr(&self) -> f64 {
        -10.0 * (self.squares / self.values.max(1) as f64).log10()
    }

    /// Moves each colour by the mean of what its pixels miss.
    fn apply(&self, colors: &mut [[f32; 3]]) {
        for (color, sum) in colors.iter_mut().zip(&self.sums).filter(|(_, sum)| sum.share > 0.0) {
            for (channel, value) in color.iter_mut().zip(sum.value) {
                *channel = (f64::from(*channel) + value / sum.share).clamp(0.0, 1.0).to_f32();
            }
        }
    }
}

// Learned exposures of the cameras, undone: photographs as the model would show them.

/// The file in the model folder.
const FILE: &str = "exposure.json";

/// Least determinant of a map that can be undone.
const LEAST_DETERMINANT: f64 = 1e-3;

/// The maps from colours of the model to those of each photograph, undone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exposures {
    /// By the name of the photograph.
    undone: BTreeMap<String, UndoneExposure>,
}

/// An exposure file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(
    "{path}: {source}. Write the exposures of the run again with splat train --resume, or use the \
     colours of the model instead"
)]
pub struct ExposureFileError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// c = A^-1 (p - b), with p a photograph's colour.
#[derive(Clone, Copy, Debug, PartialEq)]
struct UndoneExposure {
    inverse: Mat3<f64>,
    offset: Vec3<f64>,
}

impl Exposures {
    /// Those that a model folder has, as [`crate::export::write_exposure_json`] writes them.
    pub fn read(model_path: &Path) -> Result<Self, ExposureFileError> {
        let path = model_path.join(FILE);
        let fail = |source| ExposureFileError { path: path.clone(), source };
        let text = std::fs::read(&path).map_err(fail)?;
        let maps: BTreeMap<String, [[f64; 4]; 3]> =
            serde_json::from_slice(&text).map_err(|error| fail(error.into()))?;
        let undone = maps.into_iter().filter_map(|(name, rows)| {
            // The file has the transposed matrix, what is added last in each row.
            let matrix = std::array::from_fn(|row| std::array::from_fn(|column| rows[column][row]));
            let inverse = inverse(&matrix)?;
            Some((name, UndoneExposure { inverse, offset: rows.map(|row| row[3]) }))
        });
        Ok(Self { undone: undone.collect() })
    }

    /// True if the photograph of this name has one.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.undone.contains_key(name)
    }

    /// Colours of a photograph as the model would show them; as they are where nothing was learned of it.
    pub(super) fn undo(&self, name: &str, colors: &[[u8; 3]]) -> Vec<[u8; 3]> {
        let Some(UndoneExposure { inverse, offset }) = self.undone.get(name) else {
            return colors.to_vec();
        };
        let undo = |color: &[u8; 3]| {
            let shifted = sub(color.map(|channel| f64::from(channel) / 255.0), *offset);
            mul(inverse, shifted).map(byte)
        };
        colors.iter().map(undo).collect()
    }
}

/// The inverse of a matrix; none where it hardly has one.
fn inverse(matrix: &Mat3<f64>) -> Option<Mat3<f64>> {
    let [a, b, c] = *matrix;
    let determinant = dot(a, cross(b, c));
    if !determinant.is_finite() || determinant.abs() < LEAST_DETERMINANT {
        return None;
    }
    // The columns of the adjugate are the cross products of the rows.
    let columns = [cross(b, c), cross(c, a), cross(a, b)];
    Some(std::array::from_fn(|row| columns.map(|column| column[row] / determinant)))
}

#[cfg(test)]
mod tests {
    use splat_mesh::Camera;

    use super::*;
    use crate::export::write_exposure_json;

    const CAMERA: Camera = Camera {
        width: 16,
        height: 16,
        focal_px: [12.0, 12.0],
        centre_px: [8.0, 8.0],
        rotation: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        translation: [0.0; 3],
    };

    const BACKGROUND: [f32; 3] = [0.1, 0.2, 0.3];

    /// Two triangles that share a side, in these colours.
    fn mesh(colors: [[f32; 3]; 4]) -> Mesh {
        Mesh {
            vertices: vec![[-1.0, -1.0, 2.0], [1.0, -1.0, 2.0], [-1.0, 1.0, 2.5], [1.0, 1.0, 2.5]],
            faces: vec![[0, 1, 2], [2, 1, 3]],
            colors: colors.to_vec(),
            ..Mesh::default()
        }
    }

    #[test]
    fn rounds_find_the_colours_that_a_photograph_was_made_with() {
        let colors = [[0.9, 0.1, 0.2], [0.2, 0.8, 0.4], [0.5, 0.5, 0.9], [0.1, 0.3, 0.6]];
        let truth = mesh(colors);
        let rays = RayHits::of(&truth, &CAMERA, 0.1);
        let drawn = rays.draw(&truth, &truth.colors);
        let photograph: Vec<[f32; 3]> = drawn
            .colors
            .iter()
            .zip(&drawn.covers)
            .map(|(color, covers)| [0, 1, 2].map(|k| color[k] + (1.0 - covers) * BACKGROUND[k]))
            .collect();
        let photograph = FitTarget { colors: photograph, mask: None };
        let mut fitted = mesh([[0.5; 3]; 4]);
        let mut psnr = Vec::new();
        for _ in 0..60 {
            let mut round = FitRound::new(4);
            round.add(&fitted, &rays, BACKGROUND, &photograph);
            psnr.push(round.psnr());
            round.apply(&mut fitted.colors);
        }
        assert!(psnr.is_sorted(), "no round is worse than the one before: {psnr:?}");
        for (found, expected) in fitted.colors.as_flattened().iter().zip(colors.as_flattened()) {
            assert!((found - expected).abs() < 0.01, "{found} for {expected}");
        }
    }

    #[test]
    fn what_no_pixel_shows_and_what_a_mask_hides_keeps_its_colour() {
        let mut hidden = mesh([[0.4; 3]; 4]);
        hidden.vertices.push([0.0, 0.0, -3.0]);
        hidden.colors.push([0.7; 3]);
        let rays = RayHits::of(&hidden, &CAMERA, 0.1);
        let white = |mask| FitTarget { colors: vec![[1.0; 3]; 256], mask };
        let mut round = FitRound::new(5);
        round.add(&hidden, &rays, BACKGROUND, &white(Some(&[0; 256])));
        round.apply(&mut hidden.colors);
        assert_eq!(
            hidden.colors,
            mesh([[0.4; 3]; 4]).colors.into_iter().chain([[0.7; 3]]).collect::<Vec<_>>()
        );
        // A half that is hidden does not slow the other.
        let half: Vec<u8> = (0..256).map(|pixel| u8::from(pixel % 2 == 0)).collect();
        let mut round = FitRound::new(5);
        round.add(&hidden, &rays, BACKGROUND, &white(Some(&half)));
        round.apply(&mut hidden.colors);
        // The whole way, but for what the background has in pixels at the border.
        assert!(hidden.colors[1][0] > 0.95 && hidden.colors[4] == [0.7; 3], "{hidden:?}");
    }

    #[test]
    fn what_was_learned_is_undone() {
        let folder = tempfile::tempdir().unwrap();
        let map = [0.8, 0.1, 0.0, 0.02, 0.05, 0.9, 0.0, -0.01, 0.0, 0.2, 0.7, 0.03_f32];
        let none = [0.0; 12];
        let names = ["a".to_owned(), "b".to_owned()];
        write_exposure_json(folder.path(), &names, &[map, none].concat()).unwrap();
        let exposures = Exposures::read(folder.path()).unwrap();
        let color = [0.3_f32, 0.6, 0.5];
        let shown = crate::math::appearance::affine(&map, color).map(|c| byte(f64::from(c)));
        let undone = exposures.undo("a", &[shown])[0];
        for (found, expected) in undone.into_iter().zip(color) {
            assert!((f32::from(found) - 255.0 * expected).abs() < 1.5, "{undone:?}");
        }
        // A map that loses colours cannot be undone, nor one that is not there.
        assert!(exposures.knows("a") && !exposures.knows("b") && !exposures.knows("c"));
        assert_eq!(exposures.undo("b", &[[1, 2, 3]]), [[1, 2, 3]]);
        std::fs::write(folder.path().join(FILE), "{").unwrap();
        let error = Exposures::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("exposure.json") && error.contains("--resume"), "{error}");
    }
}
