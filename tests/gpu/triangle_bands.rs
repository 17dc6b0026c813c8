//! Views of triangles that a GPU draws in bands of rows of tiles, against the same views drawn at once.

use crate::common::cuda;
use crate::common::oracle::{gradients, relative_error};
use crate::common::prelude::*;
use crate::common::scene::resized;
use crate::common::view;
use crate::parity_triangles::{drawing, mesh, shot_of, step, upload, window};
use crate::support::wide;
use splat::backend::Rendered;
use splat::backend::cuda::{BandPolicy, Cuda};
use splat::dataset::View;
use splat::model::TriangleMesh;

const POLICIES: [BandPolicy; 3] =
    [BandPolicy::AtLeast(1), BandPolicy::AtLeast(2), BandPolicy::AtLeast(u32::MAX)];

fn drawn(
    device: &mut Cuda,
    mesh: &TriangleMesh,
    (view, drawing): (&View, &Drawing),
    bands: BandPolicy,
) -> (Rendered, bool) {
    device.set_bands(bands);
    let model = upload(device, mesh);
    let frame = device.draw(&model, view, drawing).unwrap();
    (device.image(&frame).unwrap(), frame.is_in_bands())
}

#[test]
#[ignore = "needs a CUDA device"]
fn triangles_in_bands_have_the_image_and_the_step_of_the_view_at_once() {
    let device = &mut cuda::open();
    let view = resized(&view(), [203, 147]);
    let mesh = mesh(150, 5);
    for samples in [1, 2, 4] {
        let drawing = Drawing { inverse_depth: true, ..drawing(4, window(0.5, samples)) };
        let (whole, in_bands) = drawn(device, &mesh, (&view, &drawing), BandPolicy::Never);
        assert!(!in_bands);
        let shots = [shot_of(&mesh, &view, drawing)];
        let (expected, shown) = step(device, &mesh, &shots);
        for policy in POLICIES {
            let (image, in_bands) = drawn(device, &mesh, (&view, &drawing), policy);
            assert!(in_bands, "{policy:?}");
            assert_eq!(image.rgb, whole.rgb, "{samples} samples, {policy:?}");
            assert_eq!(image.inverse_depths, whole.inverse_depths, "{samples} samples");
            let (found, shown_in_bands) = step(device, &mesh, &shots);
            let pairs = gradients(&found).into_iter().zip(gradients(&expected));
            for ((name, _, found), (_, _, expected)) in pairs {
                // Sums in another order.
                let error = relative_error(&found, &expected);
                assert!(error < 1e-4, "{samples} samples, {policy:?}: {name} is {error:.1e} off");
            }
            assert_eq!(shown_in_bands.weights, shown.weights);
            assert_eq!(shown_in_bands.reaches_px, shown.reaches_px);
            let norms = [&shown_in_bands, &shown].map(|shown| wide(&shown.gradient_norms));
            assert!(relative_error(&norms[0], &norms[1]) < 1e-4, "{samples} samples, {policy:?}");
        }
        device.set_bands(BandPolicy::Never);
    }
}
