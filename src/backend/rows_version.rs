//! Versions of a model's rows, which detect results of other rows.

use std::sync::Arc;

/// Version of a model's rows. It changes when a row is added, removed or moved.
///
/// Models share a version only if one is a copy of the other. Versions are compared by address, because a number
/// could repeat.
#[derive(Clone, Debug)]
pub(crate) struct RowsVersion(Arc<()>);

impl RowsVersion {
    /// Creates a version that differs from all others in use.
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
    fn only_copies_share_a_version() {
        let (one, other) = (RowsVersion::new(), RowsVersion::new());
        assert_eq!(one, one.clone());
        assert_ne!(one, other);
        // A held copy keeps the address from being reused.
        let held = one.clone();
        drop(one);
        assert!((0..100).all(|_| RowsVersion::new() != held));
    }
}
