//! One colour for each vertex, such that the mesh looks like its photographs.

use splat_mesh::Mesh;
use splat_mesh::draw::{MetRays, VertexSum};

use super::Exposures;
use crate::backend::camera_of;
use crate::dataset::Image;
use crate::math::Real as _;
use crate::train::Views;
use crate::train::event::Split;

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
            let rays = MetRays::of(mesh, &camera_of(view), views.near());
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
        rays: &MetRays,
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

#[cfg(test)]
mod tests {
    use splat_mesh::Camera;

    use super::*;

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
        let rays = MetRays::of(&truth, &CAMERA, 0.1);
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
        let rays = MetRays::of(&hidden, &CAMERA, 0.1);
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
}
