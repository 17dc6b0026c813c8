//! Mean values of terms over the views of a step.

use crate::backend::{LossValues, Terms};

/// Sums over views.
#[derive(Debug, Default)]
pub(super) struct MeanLosses {
    total: f64,
    views: u32,
    /// The terms of all views.
    pub(super) terms: Terms,
    sums: Vec<KeySum>,
}

/// What views add up to under a key.
#[derive(Debug)]
struct KeySum {
    key: &'static str,
    sum: f64,
    /// How many views have it.
    views: u32,
}

impl MeanLosses {
    /// Adds what a view's terms came to, at its pixels and at samples.
    pub(super) fn add(&mut self, terms: Terms, [pixels, samples]: [LossValues; 2]) {
        self.total += pixels.total;
        for (key, value) in [pixels.pairs, samples.pairs].concat() {
            match self.sums.iter_mut().find(|known| known.key == key) {
                Some(known) => (known.sum, known.views) = (known.sum + value, known.views + 1),
                None => self.sums.push(KeySum { key, sum: value, views: 1 }),
            }
        }
        if self.views == 0 {
            self.terms = terms;
        } else {
            terms.active().for_each(|weighted| self.terms.add(weighted.term, weighted.weight));
        }
        self.views += 1;
    }

    /// The mean loss.
    pub(super) fn total(&self) -> f64 {
        self.total / f64::from(self.views.max(1))
    }

    /// The mean value of each key, over the views that have it.
    pub(super) fn pairs(&self) -> Vec<(&'static str, f64)> {
        self.sums.iter().map(|of| (of.key, of.sum / f64::from(of.views))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Term;

    fn terms(list: &[Term]) -> Terms {
        let mut terms = Terms::default();
        list.iter().for_each(|&term| terms.add(term, 1.0));
        terms
    }

    fn values(total: f64, pairs: &[(&'static str, f64)]) -> LossValues {
        LossValues { total, pairs: pairs.to_vec() }
    }

    #[test]
    fn a_key_has_the_mean_of_the_views_that_have_it() {
        let photometric = Term::Photometric { lambda_dssim: 0.2 };
        let mut mean = MeanLosses::default();
        mean.add(terms(&[photometric]), [values(0.5, &[("l1", 0.25)]), LossValues::default()]);
        let with_depths = values(1.5, &[("l1", 0.75), ("depth_l1", 4.0)]);
        let samples = values(0.0, &[("entropy", 2.0)]);
        mean.add(terms(&[photometric, Term::InverseDepth, Term::Entropy]), [with_depths, samples]);
        assert_eq!(mean.total(), 1.0);
        assert_eq!(mean.pairs(), [("l1", 0.5), ("depth_l1", 4.0), ("entropy", 2.0)]);
        let active: Vec<Term> = mean.terms.active().map(|weighted| weighted.term).collect();
        assert_eq!(active, [photometric, Term::InverseDepth, Term::Entropy]);
    }

    #[test]
    fn of_one_view_they_are_its_own() {
        let mut mean = MeanLosses::default();
        let pairs = [("l1", 0.1), ("ssim", 0.7)];
        mean.add(Terms::default(), [values(0.3, &pairs), LossValues::default()]);
        assert_eq!((mean.total(), mean.pairs()), (0.3, pairs.to_vec()));
    }
}
