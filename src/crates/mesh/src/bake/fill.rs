//! Colours of texels that no view sees.

use rayon::prelude::*;

use super::sight::byte;
use super::sums::TexelSums;
use super::texels::{FacePlane, FaceTexels, mixed};
use crate::atlas::{Atlas, dilate};
use crate::file::Picture;
use crate::mesh::{Mesh, Vec3};
use crate::narrow::to_f64s;
use crate::vector::scale;

/// Texels around faces that get a colour, for filters that read across a seam.
const DILATION_PX: u8 = 8;

/// A picture without holes.
pub(super) struct FilledPicture {
    pub(super) picture: Picture,
    /// Faces with texels of which no view sees any.
    pub(super) unseen_faces: usize,
}

pub(super) fn fill(
    mesh: &Mesh,
    atlas: &Atlas,
    texels: &FaceTexels,
    sums: &[TexelSums],
) -> FilledPicture {
    let mean_of_all = mean(sums);
    let unpainted = mean_of_all.unwrap_or([128; 3]);
    let color_faces = |faces: std::ops::Range<usize>| {
        let (mut colors, mut unseen) = (Vec::new(), 0);
        for face in faces {
            let numbers = texels.of_face(face);
            let own = &sums[numbers.clone()];
            let mean_of_face = mean(own);
            unseen += usize::from(mean_of_face.is_none() && !own.is_empty());
            let plane = FacePlane::new(atlas.corners_px(atlas.faces[face]));
            for (number, sums) in numbers.zip(own) {
                let color = match (mean(std::slice::from_ref(sums)), mean_of_face) {
                    (Some(color), _) | (None, Some(color)) => color,
                    _ if mesh.colors.is_empty() => unpainted,
                    _ => {
                        let corners = mesh.faces[face]
                            .map(|v| scale(to_f64s(mesh.colors[v as usize]), 255.0));
                        let color: Vec3 = mixed(corners, plane.shares(texels.at[number]));
                        color.map(byte)
                    }
                };
                colors.push(color);
            }
        }
        (colors, unseen)
    };
    const FACES_A_PIECE: usize = 1024;
    let faces = atlas.faces.len();
    let pieces: Vec<_> = (0..faces.div_ceil(FACES_A_PIECE))
        .into_par_iter()
        .map(|piece| piece * FACES_A_PIECE..faces.min((piece + 1) * FACES_A_PIECE))
        .map(color_faces)
        .collect();
    let mut picture = Picture::plain(atlas.width, atlas.height, unpainted);
    let mut is_set = vec![false; picture.texels.len()];
    let mut unseen_faces = 0;
    let mut at = texels.at.iter();
    for (colors, unseen) in pieces {
        unseen_faces += unseen;
        for (color, &[x, y]) in colors.into_iter().zip(at.by_ref()) {
            let texel = usize::from(y) * atlas.width as usize + usize::from(x);
            picture.texels[texel] = color;
            is_set[texel] = true;
        }
    }
    dilate(&mut picture.texels, &is_set, atlas.width as usize, DILATION_PX);
    FilledPicture { picture, unseen_faces }
}

/// The weighted mean; none where nothing was seen.
fn mean(sums: &[TexelSums]) -> Option<[u8; 3]> {
    let mut color = [0_u64; 3];
    let mut weight = 0_u64;
    for sums in sums {
        color = std::array::from_fn(|channel| color[channel] + u64::from(sums.color[channel]));
        weight += u64::from(sums.weight);
    }
    (weight > 0).then(|| color.map(|sum| ((sum + weight / 2) / weight).min(255) as u8))
}
