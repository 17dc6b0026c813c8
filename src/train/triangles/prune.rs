//! Which triangles stay, and which of their vertices.

use rayon::prelude::*;

use crate::backend::FaceStatistics;

/// What makes a triangle go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PruneRule {
    /// An opacity not above this.
    pub opacity_max: f32,
    /// A weight in all views not above this, where weights count.
    pub weight_max: Option<f32>,
    /// A reach above this, px.
    pub reach_max_px: f32,
}

/// Whether each triangle between vertices of these opacities stays.
pub fn stays(
    faces: &[[u32; 3]],
    opacities: &[f32],
    statistics: &FaceStatistics,
    rule: &PruneRule,
) -> Vec<bool> {
    let FaceStatistics { weights, reaches_px, .. } = statistics;
    faces
        .par_iter()
        .zip(weights)
        .zip(reaches_px)
        .map(|((face, &weight), &reach_px)| {
            let least = face.iter().map(|&v| opacities[v as usize]).fold(f32::INFINITY, f32::min);
            let is_seen = rule.weight_max.is_none_or(|most| weight > most);
            least > rule.opacity_max && is_seen && reach_px <= rule.reach_max_px
        })
        .collect()
}

/// What stays of a list.
pub fn kept<T: Copy>(all: &[T], stays: &[bool]) -> Vec<T> {
    all.iter().zip(stays).filter(|&(_, &stays)| stays).map(|(&value, _)| value).collect()
}

/// The vertices that triangles use, and their numbers among these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedVertices {
    /// Of each that is used its number before, ascending.
    pub kept: Vec<u32>,
    /// Of each before its number now; nothing that counts where it is not used.
    new_from_old: Vec<u32>,
}

impl UsedVertices {
    /// Those of these triangles between so many vertices.
    pub fn of(faces: &[[u32; 3]], vertices: usize) -> Self {
        let mut is_used = vec![false; vertices];
        for &corner in faces.as_flattened() {
            is_used[corner as usize] = true;
        }
        let mut kept = Vec::new();
        let mut new_from_old = vec![0; vertices];
        for ((old, new), _) in (0..).zip(&mut new_from_old).zip(is_used).filter(|&(_, used)| used) {
            *new = u32::try_from(kept.len()).unwrap_or(u32::MAX);
            kept.push(old);
        }
        Self { kept, new_from_old }
    }

    /// Gives the corners of triangles their new numbers. New vertices, whose numbers follow all that there
    /// were, follow those that are kept.
    pub fn renumber(&self, faces: &mut [[u32; 3]]) {
        let before = self.new_from_old.len();
        faces.as_flattened_mut().par_iter_mut().for_each(|corner| {
            let old = *corner as usize;
            *corner = match self.new_from_old.get(old) {
                Some(&new) => new,
                None => u32::try_from(old - before + self.kept.len()).unwrap_or(u32::MAX),
            };
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACES: [[u32; 3]; 4] = [[0, 1, 2], [2, 1, 3], [4, 5, 6], [6, 5, 8]];

    fn statistics() -> FaceStatistics {
        FaceStatistics {
            weights: vec![0.5, 0.2, 0.9, 0.6],
            reaches_px: vec![10.0, 20.0, 30.0, 40.0],
            gradient_norms: vec![0.0; 4],
        }
    }

    #[test]
    fn what_is_transparent_unseen_or_too_large_goes() {
        let opacities = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.0, 0.9];
        let of = |opacity_max, weight_max, reach_max_px| {
            let rule = PruneRule { opacity_max, weight_max, reach_max_px };
            stays(&FACES, &opacities, &statistics(), &rule)
        };
        assert_eq!(of(0.6, None, 100.0), [true, false, false, false]);
        assert_eq!(of(0.0, Some(0.5), 100.0), [false, false, true, true]);
        assert_eq!(of(0.0, None, 30.0), [true, true, true, false]);
        assert_eq!(kept(&FACES, &[false, true, false, true]), [FACES[1], FACES[3]]);
    }

    #[test]
    fn vertices_without_triangles_go_and_the_rest_keep_their_order() {
        let mut faces = [FACES[1], [3, 8, 9], [9, 10, 2]];
        let used = UsedVertices::of(&faces[..1], 9);
        assert_eq!(used.kept, [1, 2, 3]);
        let used = UsedVertices::of(&[FACES[1], FACES[3]], 9);
        assert_eq!(used.kept, [1, 2, 3, 5, 6, 8]);
        // Of 9 vertices before, 9 and 10 are new ones.
        used.renumber(&mut faces);
        assert_eq!(faces, [[1, 0, 2], [2, 5, 6], [6, 7, 1]]);
        assert_eq!(UsedVertices::of(&[], 3).kept, [0; 0]);
    }
}
