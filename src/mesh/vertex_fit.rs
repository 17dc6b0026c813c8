//! Fit of vertex colours to photographs.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use splat_mesh::Mesh;
use splat_mesh::draw::{RayHits, VertexSum};

use crate::backend::camera_of;
use crate::math::Real as _;
use crate::math::linalg::{Mat3, Vec3, cross, dot, mul, sub};
use crate::train::Views;
use crate::train::event::Split;
use crate::train::pictures::byte;

/// Passes over the photographs. Each reduces the error of large patches; more would fit details of triangle size, and
/// noise.
const PASSES: usize = 6;

/// Result of a fit of vertex colours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VertexFit {
    /// Number of compared photographs.
    pub photographs: usize,
    /// PSNR of all their pixels before the fit, dB.
    pub psnr_before: f64,
    /// PSNR after the pass before the last, dB.
    pub psnr_after: f64,
}

/// Fits the colours of a checked mesh, drawn without lighting over this background, to the training photographs:
/// least squares by simultaneous iterative reconstruction (Gilbert 1972). A vertex that no photograph shows keeps its
/// colour. Returns `None` without a photograph to compare.
pub fn fit_vertex_colors(
    mesh: &mut Mesh,
    views: &mut Views<'_>,
    background: [f32; 3],
    exposures: &Exposures,
) -> Option<VertexFit> {
    let mut fit: Option<VertexFit> = None;
    for number in 1..=PASSES {
        let mut pass = FitPass::new(mesh.vertices.len());
        let order = views.split(Split::Train);
        views.schedule_decoding(order);
        for &index in order {
            let Some(photograph) = views.fetch(index) else { continue };
            if views.is_hidden(index) {
                continue;
            }
            let view = views.view(index);
            let rays = RayHits::of(mesh, &camera_of(view), views.near());
            let undone = exposures.undo(&view.name, photograph.rgb.as_chunks::<3>().0);
            let to_share = |color: [u8; 3]| color.map(|channel| f32::from(channel) / 255.0);
            let shown = FitTarget {
                colors: undone.into_iter().map(to_share).collect(),
                mask: photograph.mask.as_deref(),
            };
            pass.add(mesh, &rays, background, &shown);
        }
        let (photographs, psnr) = (pass.photographs, pass.psnr());
        if photographs == 0 {
            return None;
        }
        tracing::info!(
            "before round {number} of {PASSES}: {psnr:.2} dB on {photographs} photographs"
        );
        pass.apply(&mut mesh.colors);
        let psnr_before = fit.map_or(psnr, |fit| fit.psnr_before);
        fit = Some(VertexFit { photographs, psnr_before, psnr_after: psnr });
    }
    fit
}

struct FitTarget<'a> {
    /// Colours without the exposure, 0 to 1.
    colors: Vec<[f32; 3]>,
    /// 0 in pixels that do not count.
    mask: Option<&'a [u8]>,
}

struct FitPass {
    sums: Vec<VertexSum>,
    photographs: usize,
    squares: f64,
    values: u64,
}

impl FitPass {
    fn new(vertices: usize) -> Self {
        Self { sums: vec![VertexSum::default(); vertices], photographs: 0, squares: 0.0, values: 0 }
    }

    /// Compares the mesh with a photograph outside its mask.
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

    /// Adds the mean residual of its pixels to each colour.
    fn apply(&self, colors: &mut [[f32; 3]]) {
        for (color, sum) in colors.iter_mut().zip(&self.sums).filter(|(_, sum)| sum.share > 0.0) {
            for (channel, value) in color.iter_mut().zip(sum.value) {
                *channel = (f64::from(*channel) + value / sum.share).clamp(0.0, 1.0).to_f32();
            }
        }
    }
}

const FILE: &str = "exposure.json";
const MIN_DETERMINANT: f64 = 1e-3;

/// Inverse exposures of the training photographs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exposures {
    /// Inverse exposures by photograph name.
    inverses: BTreeMap<String, InverseExposure>,
}

/// Error of reading an exposure file.
#[derive(Debug, thiserror::Error)]
#[error(
    "{path}: {source}. Write the exposures of the run again with splat train --resume, or use the \
     colours of the model instead"
)]
pub struct ExposureFileError {
    path: PathBuf,
    source: io::Error,
}

/// Inverse exposure: c = A^-1 (p - b), with a photograph's colour p.
#[derive(Clone, Copy, Debug, PartialEq)]
struct InverseExposure {
    inverse: Mat3<f64>,
    offset: Vec3<f64>,
}

impl Exposures {
    /// Reads the exposures of a model folder, in the format of [`crate::export::write_exposure_json`].
    pub fn read(model_path: &Path) -> Result<Self, ExposureFileError> {
        let path = model_path.join(FILE);
        let fail = |source| ExposureFileError { path: path.clone(), source };
        let text = std::fs::read(&path).map_err(fail)?;
        let maps: BTreeMap<String, [[f64; 4]; 3]> =
            serde_json::from_slice(&text).map_err(|error| fail(error.into()))?;
        let inverses = maps.into_iter().filter_map(|(name, rows)| {
            // The file has the transposed matrix, with the offset last in each row.
            let matrix = std::array::from_fn(|row| std::array::from_fn(|column| rows[column][row]));
            let inverse = inverse(&matrix)?;
            Some((name, InverseExposure { inverse, offset: rows.map(|row| row[3]) }))
        });
        Ok(Self { inverses: inverses.collect() })
    }

    /// Returns true if the photograph of this name has an exposure.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.inverses.contains_key(name)
    }

    /// Removes the exposure from a photograph's colours; without an exposure returns them unchanged.
    pub(super) fn undo(&self, name: &str, colors: &[[u8; 3]]) -> Vec<[u8; 3]> {
        let Some(InverseExposure { inverse, offset }) = self.inverses.get(name) else {
            return colors.to_vec();
        };
        let undo = |color: &[u8; 3]| {
            let shifted = sub(color.map(|channel| f64::from(channel) / 255.0), *offset);
            mul(inverse, shifted).map(byte)
        };
        colors.iter().map(undo).collect()
    }
}

/// Inverts a matrix; `None` if it is nearly singular.
fn inverse(matrix: &Mat3<f64>) -> Option<Mat3<f64>> {
    let [a, b, c] = *matrix;
    let determinant = dot(a, cross(b, c));
    if !determinant.is_finite() || determinant.abs() < MIN_DETERMINANT {
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

    /// Returns two triangles with a common side, in these colours.
    fn mesh(colors: [[f32; 3]; 4]) -> Mesh {
        Mesh {
            vertices: vec![[-1.0, -1.0, 2.0], [1.0, -1.0, 2.0], [-1.0, 1.0, 2.5], [1.0, 1.0, 2.5]],
            faces: vec![[0, 1, 2], [2, 1, 3]],
            colors: colors.to_vec(),
            ..Mesh::default()
        }
    }

    #[test]
    fn passes_find_the_colours_of_a_photograph() {
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
            let mut pass = FitPass::new(4);
            pass.add(&fitted, &rays, BACKGROUND, &photograph);
            psnr.push(pass.psnr());
            pass.apply(&mut fitted.colors);
        }
        assert!(psnr.is_sorted(), "no pass is worse than the one before: {psnr:?}");
        for (found, expected) in fitted.colors.as_flattened().iter().zip(colors.as_flattened()) {
            assert!((found - expected).abs() < 0.01, "{found} for {expected}");
        }
    }

    #[test]
    fn invisible_and_masked_vertices_keep_their_colours() {
        let mut hidden = mesh([[0.4; 3]; 4]);
        hidden.vertices.push([0.0, 0.0, -3.0]);
        hidden.colors.push([0.7; 3]);
        let rays = RayHits::of(&hidden, &CAMERA, 0.1);
        let white = |mask| FitTarget { colors: vec![[1.0; 3]; 256], mask };
        let mut pass = FitPass::new(5);
        pass.add(&hidden, &rays, BACKGROUND, &white(Some(&[0; 256])));
        pass.apply(&mut hidden.colors);
        assert_eq!(hidden.colors, [&[[0.4; 3]; 4][..], &[[0.7; 3]]].concat());
        // A masked half does not slow the other half.
        let half: Vec<u8> = (0..256).map(|pixel| u8::from(pixel % 2 == 0)).collect();
        let mut pass = FitPass::new(5);
        pass.add(&hidden, &rays, BACKGROUND, &white(Some(&half)));
        pass.apply(&mut hidden.colors);
        // Full convergence, but for the background in pixels at the border.
        assert!(hidden.colors[1][0] > 0.95 && hidden.colors[4] == [0.7; 3], "{hidden:?}");
    }

    #[test]
    fn learned_exposures_are_inverted() {
        let folder = tempfile::tempdir().unwrap();
        let map = [0.8, 0.1, 0.0, 0.02, 0.05, 0.9, 0.0, -0.01, 0.0, 0.2, 0.7, 0.03_f32];
        let none = [0.0; 12];
        let names = ["a".to_owned(), "b".to_owned()];
        write_exposure_json(folder.path(), &names, &[map, none].concat()).unwrap();
        let exposures = Exposures::read(folder.path()).unwrap();
        let color = [0.3_f32, 0.6, 0.5];
        let shown = crate::math::appearance::affine(&map, color).map(|c| byte(f64::from(c)));
        let restored = exposures.undo("a", &[shown])[0];
        for (found, expected) in restored.into_iter().zip(color) {
            assert!((f32::from(found) - 255.0 * expected).abs() < 1.5, "{restored:?}");
        }
        // Singular and missing maps have no inverse.
        assert!(exposures.knows("a") && !exposures.knows("b") && !exposures.knows("c"));
        assert_eq!(exposures.undo("b", &[[1, 2, 3]]), [[1, 2, 3]]);
        std::fs::write(folder.path().join(FILE), "{").unwrap();
        let error = Exposures::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("exposure.json") && error.contains("--resume"), "{error}");
    }
}
