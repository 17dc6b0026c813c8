//! Gaussians of other programs' formats as those that are trained.

use splat_formats::{
    Antialiasing, CheckedSplats, SplatColumns, SplatPrimitive, Splats, SplatsError,
};

use super::ply::RenderMode;
use crate::model::Gaussians;

/// The same Gaussians; how they are meant to be drawn is not kept.
pub fn gaussians_of(splats: Splats) -> Gaussians {
    let columns = splats.into_columns();
    Gaussians {
        sh_degree: columns.sh_degree,
        means: columns.means.into_flattened(),
        log_scales: columns.log_scales.into_flattened(),
        quats: columns.rotations.into_flattened(),
        opacity_logits: columns.opacity_logits,
        sh_dc: columns.sh_dc.into_flattened(),
        sh_rest: columns.sh_rest.into_flattened(),
    }
}

/// The same the other way round, as they are read from a PLY that was written for this mode: rotations are
/// unit, and rows that cannot be drawn are left out.
pub fn splats_of(gaussians: &Gaussians, mode: RenderMode) -> Result<CheckedSplats, SplatsError> {
    let antialiasing = match mode {
        RenderMode::Mip => Antialiasing::On,
        RenderMode::Dilated | RenderMode::Surfels | RenderMode::Triangles { .. } => {
            Antialiasing::Off
        }
    };
    let primitive = match mode {
        RenderMode::Surfels => SplatPrimitive::Surfels,
        RenderMode::Dilated | RenderMode::Mip | RenderMode::Triangles { .. } => {
            SplatPrimitive::Gaussians
        }
    };
    Splats::from_columns(SplatColumns {
        sh_degree: gaussians.sh_degree,
        antialiasing,
        primitive,
        means: triples(&gaussians.means),
        log_scales: triples(&gaussians.log_scales),
        rotations: gaussians.quats.as_chunks().0.to_vec(),
        opacity_logits: gaussians.opacity_logits.clone(),
        sh_dc: triples(&gaussians.sh_dc),
        sh_rest: triples(&gaussians.sh_rest),
    })
}

fn triples(values: &[f32]) -> Vec<[f32; 3]> {
    values.as_chunks().0.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_keep_their_rows_and_the_order_of_their_values() {
        let columns = SplatColumns {
            sh_degree: 1,
            means: vec![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]],
            log_scales: vec![[-1.0, -2.0, -3.0]; 2],
            rotations: vec![[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]],
            opacity_logits: vec![0.5, -0.5],
            sh_dc: vec![[0.1, 0.2, 0.3]; 2],
            sh_rest: vec![[1.0; 3], [2.0; 3], [3.0; 3], [4.0; 3], [5.0; 3], [6.0; 3]],
            ..SplatColumns::default()
        };
        let gaussians = gaussians_of(Splats::from_columns(columns).unwrap().splats);
        assert_eq!(gaussians.means, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(gaussians.quats[4..], [0.0, 1.0, 0.0, 0.0]);
        // Three coefficients a row, each of three channels.
        assert_eq!(gaussians.sh_rest[..9], [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 3.0, 3.0, 3.0]);
        assert_eq!((gaussians.len(), gaussians.sh_degree), (2, 1));
        let back = splats_of(&gaussians, RenderMode::Mip).unwrap().splats;
        assert_eq!(back.columns().antialiasing, Antialiasing::On);
        assert_eq!(gaussians_of(back), gaussians);
    }
}
