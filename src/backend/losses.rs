//! The values of the loss's terms, and values that a device may still be computing.

use super::DeviceError;
use crate::abi::terms::{Inputs, Means, Terms, Topic, Weighted};

/// A value that the device may still be computing.
pub trait Pending<T> {
    /// Returns true if [`Self::read`] would not wait.
    fn is_ready(&self) -> bool;

    /// Waits for the value. Faults that the device found in the meantime, such as a loss that is not finite, may
    /// first be reported here.
    fn read(self) -> Result<T, DeviceError>;
}

/// Values of the loss's terms.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LossValues {
    /// Weighted sum of the terms that compare with the photograph.
    pub total: f64,
    /// Values of each term without its weight, by their keys in logs.
    pub pairs: Vec<(&'static str, f64)>,
}

impl LossValues {
    /// Returns the value with this key if its term is on.
    pub fn get(&self, key: &str) -> Option<f64> {
        self.pairs.iter().find(|(name, _)| *name == key).map(|&(_, value)| value)
    }

    pub(crate) fn of<'a>(terms: impl Iterator<Item = &'a Weighted>, means: &Means) -> Self {
        let mut all = Self::default();
        for Weighted { term, weight } in terms {
            if term.topic() == Topic::Photograph {
                all.total += weight * term.loss(means);
            }
            let pairs = term.values().iter().map(|value| (value.name, means[value.place as usize]));
            all.pairs.extend(pairs);
        }
        all
    }

    /// Fails if a value is not finite, because then the gradients are not finite either.
    pub(crate) fn checked(self) -> Result<Self, DeviceError> {
        let values = self.pairs.iter().map(|&(_, value)| value);
        let mut all = std::iter::once(self.total).chain(values);
        match all.find(|value| !value.is_finite()) {
            Some(value) => Err(DeviceError::LossNotFinite { value }),
            None => Ok(self),
        }
    }
}

/// Fails if a term lacks an input: maps of the frame, another view, or neighbours.
pub(crate) fn check_inputs(
    terms: &Terms,
    given: Inputs,
    has_neighbours: bool,
) -> Result<(), DeviceError> {
    for weighted in terms.active() {
        let (term, needs) = (weighted.term.name(), weighted.term.needs());
        let missing = |input| Err(DeviceError::MissingInput { term, input });
        if needs.inverse_depths && !given.inverse_depths {
            return missing("inverse depths");
        }
        if needs.inverse_squares && !given.inverse_squares {
            return missing("squares of inverse depths");
        }
        if needs.maps && !given.maps {
            return missing("maps of depths and normals");
        }
        if needs.median && !given.median {
            return missing("median depths");
        }
        if needs.other_view && !given.other_view {
            return missing("another view");
        }
        if needs.neighbours && !has_neighbours {
            return missing("lists of neighbours");
        }
    }
    Ok(())
}
