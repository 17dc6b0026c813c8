//! Whether a model's rows are still those that something was found of.

use std::sync::Arc;

/// The rows of a model, as long as none comes, goes or changes places.
///
/// No two models share one, but a copy has that of what it was copied from: a number would be the same
/// of many. It is the address that counts, which lives as long as anybody holds it.
#[derive(Clone, Debug)]
pub(crate) struct RowsVersion(Arc<()>);

impl RowsVersion {
    /// One that nobody has seen.
    pub(crate) fn new() -> Self {
        Self(Arc::new(()))
    }
}

impl PartialEq for RowsVersion {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for RowsVersion {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_of_one_generation_and_others_are_not() {
        let (one, other) = (RowsVersion::new(), RowsVersion::new());
        assert_eq!(one, one.clone());
        assert_ne!(one, other);
        // Nor what comes where one was before.
        let held = one.clone();
        drop(one);
        assert!((0..100).all(|_| RowsVersion::new() != held));
    }
}
