//! Turns the faces of a surface alike.

use rayon::prelude::*;

/// An edge as a face has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FaceSide {
    lower: u32,
    higher: u32,
    face: u32,
    /// Whether the face runs from the lower end to the higher.
    rises: bool,
}

/// Turns faces so that two at an edge run along it in opposite directions, breadth first; each
/// piece of the surface so that the sum of `agreement` of its faces, as they were, is above zero.
///
/// Returns the edges of two faces that run along them alike still. Edges of more faces join
/// nothing.
pub(super) fn orient(faces: &mut [[u32; 3]], agreement: &[f64]) -> usize {
    let sides = sides(faces);
    let pairs: Vec<[FaceSide; 2]> = sides
        .chunk_by(|a, b| (a.lower, a.higher) == (b.lower, b.higher))
        .filter_map(|sides| <[FaceSide; 2]>::try_from(sides).ok())
        .collect();
    let links = Links::of(&pairs, faces.len());
    let mut is_turned: Vec<Option<bool>> = vec![None; faces.len()];
    let mut piece = Vec::new();
    for first in 0..faces.len() {
        if is_turned[first].is_some() {
            continue;
        }
        piece.clear();
        piece.push(first);
        is_turned[first] = Some(false);
        let mut next = 0;
        while let Some(&face) = piece.get(next) {
            next += 1;
            let turned = is_turned[face].unwrap_or(false);
            for &(other, alike) in links.at(face) {
                let other = other as usize;
                if is_turned[other].is_none() {
                    is_turned[other] = Some(turned != alike);
                    piece.push(other);
                }
            }
        }
        let signed = |&face: &usize| {
            if is_turned[face] == Some(true) { -agreement[face] } else { agreement[face] }
        };
        if piece.iter().map(signed).sum::<f64>() < 0.0 {
            for &face in &piece {
                is_turned[face] = is_turned[face].map(|turned| !turned);
            }
        }
    }
    for (face, _) in faces.iter_mut().zip(&is_turned).filter(|(_, turned)| **turned == Some(true)) {
        face.swap(1, 2);
    }
    let conflicts = |[a, b]: &&[FaceSide; 2]| {
        let alike = a.rises == b.rises;
        let (a, b) = (is_turned[a.face as usize], is_turned[b.face as usize]);
        alike == (a == b)
    };
    pairs.iter().filter(conflicts).count()
}

/// All sides, those of an edge together.
fn sides(faces: &[[u32; 3]]) -> Vec<FaceSide> {
    let mut sides: Vec<FaceSide> = (0..)
        .zip(faces)
        .flat_map(|(face, &[a, b, c])| {
            [(a, b), (b, c), (c, a)].map(|(from, to)| FaceSide {
                lower: from.min(to),
                higher: from.max(to),
                face,
                rises: from < to,
            })
        })
        .collect();
    sides.par_sort_unstable();
    sides
}

/// The faces across the edges of each, and whether both run along the edge alike.
struct Links {
    first: Vec<usize>,
    links: Vec<(u32, bool)>,
}

impl Links {
    fn of(pairs: &[[FaceSide; 2]], faces: usize) -> Self {
        let both = |&[a, b]: &[FaceSide; 2]| {
            let alike = a.rises == b.rises;
            [(a.face, b.face, alike), (b.face, a.face, alike)]
        };
        let mut links: Vec<(u32, u32, bool)> = pairs.iter().flat_map(both).collect();
        links.par_sort_unstable();
        let mut first = vec![0; faces + 1];
        for &(face, ..) in &links {
            first[face as usize + 1] += 1;
        }
        for face in 0..faces {
            first[face + 1] += first[face];
        }
        Self { first, links: links.into_iter().map(|(_, other, alike)| (other, alike)).collect() }
    }

    fn at(&self, face: usize) -> &[(u32, bool)] {
        &self.links[self.first[face]..self.first[face + 1]]
    }
}
