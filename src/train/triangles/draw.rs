//! Which triangles are split: some at random, in proportion to their scores, and the largest.

use std::cmp::Ordering;

use rayon::prelude::*;

use crate::math::linalg::{cross, sub};
use crate::math::random::RandomStream;

/// Areas of triangles between these places.
pub fn areas(faces: &[[u32; 3]], places: &[[f32; 3]]) -> Vec<f32> {
    let area = |&[a, b, c]: &[u32; 3]| {
        let [a, b, c] = [a, b, c].map(|corner| places[corner as usize]);
        let doubled = cross(sub(b, a), sub(c, a));
        doubled.iter().map(|x| x * x).sum::<f32>().sqrt() * 0.5
    };
    faces.par_iter().map(area).collect()
}

/// What is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaceDraw {
    /// So many, as far as there are as many whose score is above 0.
    pub drawn: usize,
    /// None of an area below this.
    pub area_min: f32,
    /// And so many of the largest.
    pub largest: usize,
}

/// Triangles to split in the order of their importance, each once: the largest, and then others in the order
/// in which they are drawn without replacement in proportion to their scores.
///
/// Each gets the key ln(u) / score of a number u of its own, and those of the largest keys are drawn
/// (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006).
pub fn draw(scores: &[f32], areas: &[f32], rule: &FaceDraw, stream: RandomStream) -> Vec<u32> {
    let largest =
        first(ranked(areas, |_, area| (area > 0.0).then_some(f64::from(area))), rule.largest);
    let keys = ranked(scores, |face, score| {
        let may_be = score > 0.0 && areas[face] >= rule.area_min;
        may_be.then(|| (1.0 - stream.uniform(face as u64)).ln() / f64::from(score))
    });
    let mut order: Vec<u32> = largest.into_iter().map(|ranked| ranked.face).collect();
    let mut is_there = vec![false; scores.len()];
    order.iter().for_each(|&face| is_there[face as usize] = true);
    let drawn = first(keys, rule.drawn).into_iter().map(|ranked| ranked.face);
    order.extend(drawn.filter(|&face| !is_there[face as usize]));
    order
}

/// A triangle and what it is ranked by.
#[derive(Clone, Copy, Debug)]
struct RankedFace {
    key: f64,
    face: u32,
}

/// The triangles that have a key.
fn ranked(values: &[f32], key: impl Fn(usize, f32) -> Option<f64> + Sync) -> Vec<RankedFace> {
    let numbered = (0_u32..).zip(values).collect::<Vec<_>>();
    numbered
        .into_par_iter()
        .filter_map(|(face, &value)| key(face as usize, value).map(|key| RankedFace { key, face }))
        .collect()
}

/// So many of the largest keys, the largest first; of equal ones the triangle that comes first.
fn first(mut ranked: Vec<RankedFace>, count: usize) -> Vec<RankedFace> {
    let order = |a: &RankedFace, b: &RankedFace| -> Ordering {
        b.key.total_cmp(&a.key).then(a.face.cmp(&b.face))
    };
    if count == 0 {
        return Vec::new();
    }
    if count < ranked.len() {
        ranked.select_nth_unstable_by(count, order);
        ranked.truncate(count);
    }
    ranked.par_sort_unstable_by(order);
    ranked
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::random::RandomUse;

    fn stream(step: u64) -> RandomStream {
        RandomStream::new(1, step, RandomUse::SplitTriangles)
    }

    #[test]
    fn areas_are_those_of_triangles() {
        let places = [[0.0; 3], [3.0, 0.0, 0.0], [0.0, 4.0, 0.0], [3.0, 0.0, 2.0]];
        assert_eq!(areas(&[[0, 1, 2], [0, 1, 3], [0, 1, 1]], &places), [6.0, 3.0, 0.0]);
    }

    #[test]
    fn each_is_drawn_once_and_what_has_no_score_or_is_too_small_is_not() {
        let scores: Vec<f32> = (0..1000_u16).map(|face| f32::from(face % 5)).collect();
        let areas: Vec<f32> = (0..1000_u16).map(|face| f32::from(face % 7)).collect();
        let rule = FaceDraw { drawn: 300, area_min: 1.0, largest: 0 };
        let mut drawn = draw(&scores, &areas, &rule, stream(1));
        assert_eq!(drawn, draw(&scores, &areas, &rule, stream(1)));
        assert_ne!(drawn, draw(&scores, &areas, &rule, stream(2)));
        assert_eq!(drawn.len(), 300);
        assert!(drawn.iter().all(|face| face % 5 > 0 && face % 7 > 0));
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 300);
        let all = draw(&scores, &areas, &FaceDraw { drawn: 10_000, ..rule }, stream(1));
        assert_eq!(all.len(), (0..1000).filter(|face| face % 5 > 0 && face % 7 > 0).count());
        assert!(draw(&scores, &areas, &FaceDraw { drawn: 0, ..rule }, stream(1)).is_empty());
    }

    #[test]
    fn the_largest_come_first_and_are_not_drawn_again() {
        let scores = [1.0; 6];
        let areas = [0.1, 5.0, 0.2, 9.0, 5.0, 0.3];
        let rule = FaceDraw { drawn: 6, area_min: 0.0, largest: 3 };
        let drawn = draw(&scores, &areas, &rule, stream(1));
        assert_eq!((&drawn[..3], drawn.len()), (&[3, 1, 4][..], 6));
    }

    #[test]
    fn the_first_is_drawn_in_proportion_to_scores() {
        let (scores, areas) = ([1.0, 3.0], [1.0; 2]);
        let rule = FaceDraw { drawn: 1, area_min: 0.0, largest: 0 };
        let heavy =
            (0..4000).filter(|&step| draw(&scores, &areas, &rule, stream(step)) == [1]).count();
        // Four standard errors of 4000 draws.
        assert!(heavy.abs_diff(3000) < 110, "{heavy}");
    }
}
