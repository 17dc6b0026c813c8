//! Gaussians of other programs' formats as those that are trained.

use splat_formats::Splats;

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

#[cfg(test)]
mod tests {
    use splat_formats::SplatColumns;

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
    }
}
