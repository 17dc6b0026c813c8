//! Chunks of rows in which a model is copied between host and device, so that the host never holds a second copy.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::DeviceError;
use crate::memory::plan::OptionalColumns;
use crate::model::Primitive;

/// Rows of a chunk: 46 MB of parameters, moments and statistics at SH degree 3.
pub const CHUNK_ROWS: usize = 1 << 16;

/// Returns `count` rows in chunks, in their order. All but the last have [`CHUNK_ROWS`].
pub fn chunks(count: usize) -> impl Iterator<Item = Range<usize>> {
    (0..count).step_by(CHUNK_ROWS).map(move |first| first..count.min(first + CHUNK_ROWS))
}

/// A source of a model's rows.
pub trait Rows<P> {
    /// Error of a source that cannot be read.
    type Error;

    /// Returns the number of rows.
    fn len(&self) -> usize;

    /// Returns true if there are no rows.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns an empty model with the widths of these rows.
    fn shape(&mut self) -> Result<P, Self::Error>;

    /// Returns the columns beside parameters, moments and statistics.
    fn optional(&self) -> OptionalColumns {
        OptionalColumns::NONE
    }

    /// Returns all rows if the host holds them already, which saves a copy.
    fn whole(&self) -> Option<&Snapshot<P>> {
        None
    }

    /// Returns the parameters of all rows if the host holds them already, all moments and statistics are zero, and
    /// there are no other columns.
    fn fresh(&self) -> Option<&P> {
        None
    }

    /// Reads some rows, in their order.
    fn read(&mut self, rows: Range<usize>) -> Result<Snapshot<P>, Self::Error>;
}

impl<P: Primitive> Rows<P> for Snapshot<P> {
    type Error = DeviceError;

    fn len(&self) -> usize {
        self.views_seen.len()
    }

    fn shape(&mut self) -> Result<P, DeviceError> {
        Ok(self.parameters.rows(0..0))
    }

    fn optional(&self) -> OptionalColumns {
        Self::optional(self)
    }

    fn whole(&self) -> Option<&Self> {
        Some(self)
    }

    fn read(&mut self, rows: Range<usize>) -> Result<Self, DeviceError> {
        check_rows(&rows, self.len())?;
        let optional_column =
            |values: &[f32]| values.get(rows.clone()).unwrap_or_default().to_vec();
        Ok(Self {
            parameters: self.parameters.rows(rows.clone()),
            first_moments: self.first_moments.rows(rows.clone()),
            second_moments: self.second_moments.rows(rows.clone()),
            gradient_norm_sums: self.gradient_norm_sums[rows.clone()].to_vec(),
            views_seen: self.views_seen[rows.clone()].to_vec(),
            absolute_norm_sums: optional_column(&self.absolute_norm_sums),
            filter_3d: optional_column(&self.filter_3d),
        })
    }
}

/// Returns an error if a model of `len` rows lacks some of these rows.
pub(crate) fn check_rows(rows: &Range<usize>, len: usize) -> Result<(), DeviceError> {
    if rows.start <= rows.end && rows.end <= len {
        return Ok(());
    }
    Err(DeviceError::NoSuchRow { row: rows.start.max(rows.end.saturating_sub(1)), len })
}

/// A model's parameters, moments, statistics and filters on the host.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Snapshot<P> {
    /// The parameters.
    pub parameters: P,
    /// Adam's running means of the gradients, before bias correction.
    pub first_moments: P,
    /// Adam's running means of the squared gradients, before bias correction.
    pub second_moments: P,
    /// Sums of the norms of the screen-space gradients since the last densification step.
    pub gradient_norm_sums: Vec<f32>,
    /// Number of views that showed each Gaussian since then.
    pub views_seen: Vec<u32>,
    /// Sums of the absolute screen-space gradients since then; empty if the model has none.
    pub absolute_norm_sums: Vec<f32>,
    /// Standard deviation of each Gaussian's 3D filter, world units; empty if the model has none.
    pub filter_3d: Vec<f32>,
}

impl<P: Primitive> Snapshot<P> {
    pub(crate) fn zeros(sh_degree: u32, rows: usize, optional: OptionalColumns) -> Self {
        let zeros = || P::zeros(sh_degree, rows);
        let optional_column = |is_there| vec![0.0; if is_there { rows } else { 0 }];
        Self {
            parameters: zeros(),
            first_moments: zeros(),
            second_moments: zeros(),
            gradient_norm_sums: vec![0.0; rows],
            views_seen: vec![0; rows],
            absolute_norm_sums: optional_column(optional.absolute_norm_sums),
            filter_3d: optional_column(optional.filter_3d),
        }
    }

    pub(crate) fn append(&mut self, others: Self) {
        self.parameters.append(others.parameters);
        self.first_moments.append(others.first_moments);
        self.second_moments.append(others.second_moments);
        self.gradient_norm_sums.extend(others.gradient_norm_sums);
        self.views_seen.extend(others.views_seen);
        self.absolute_norm_sums.extend(others.absolute_norm_sums);
        self.filter_3d.extend(others.filter_3d);
    }
}

impl<P: Primitive> Extend<Self> for Snapshot<P> {
    fn extend<I: IntoIterator<Item = Self>>(&mut self, parts: I) {
        parts.into_iter().for_each(|part| self.append(part));
    }
}

impl<P> Snapshot<P> {
    /// Returns the optional columns that exist. A model without rows has none.
    pub fn optional(&self) -> OptionalColumns {
        OptionalColumns {
            filter_3d: !self.filter_3d.is_empty(),
            absolute_norm_sums: !self.absolute_norm_sums.is_empty(),
        }
    }
}

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
    use crate::model::Gaussians;

    #[test]
    fn chunks_cover_all_rows_in_order() {
        for count in [0, 1, CHUNK_ROWS - 1, CHUNK_ROWS, CHUNK_ROWS + 1, 3 * CHUNK_ROWS + 7] {
            let mut next = 0;
            for rows in chunks(count) {
                assert_eq!(rows.start, next);
                assert!(rows.len() == CHUNK_ROWS || rows.end == count, "{rows:?} of {count}");
                assert!(!rows.is_empty());
                next = rows.end;
            }
            assert_eq!(next, count);
        }
    }

    fn all_different(count: usize) -> Snapshot<Gaussians> {
        let mut value = 0.0;
        let mut next = || {
            value += 0.5;
            value
        };
        let mut fill = || {
            let mut host = Gaussians::zeros(1, count);
            host.groups_mut().into_iter().flatten().for_each(|v| *v = next());
            host
        };
        Snapshot {
            parameters: fill(),
            first_moments: fill(),
            second_moments: fill(),
            gradient_norm_sums: (0..count).map(|_| next()).collect(),
            views_seen: (1..).take(count).collect(),
            absolute_norm_sums: Vec::new(),
            filter_3d: (0..count).map(|_| next()).collect(),
        }
    }

    #[test]
    fn a_snapshot_reads_the_requested_rows() {
        let mut all = all_different(5);
        let some = all.read(1..4).unwrap();
        assert_eq!(some.parameters.quats, all.parameters.quats[4..16]);
        assert_eq!(some.first_moments.sh_rest, all.first_moments.sh_rest[9..36]);
        assert_eq!(some.second_moments.opacity_logits, all.second_moments.opacity_logits[1..4]);
        assert_eq!(some.gradient_norm_sums, all.gradient_norm_sums[1..4]);
        assert_eq!(some.views_seen, [2, 3, 4]);
        assert_eq!(some.filter_3d, all.filter_3d[1..4]);
        let filter = OptionalColumns { filter_3d: true, ..OptionalColumns::NONE };
        assert_eq!((some.optional(), Rows::optional(&all)), (filter, filter));
        assert_eq!((some.parameters.sh_degree, Rows::len(&some)), (1, 3));
        assert!(all.read(5..5).unwrap().is_empty());
        let message = all.read(3..6).unwrap_err().to_string();
        assert!(message.contains("row 5") && message.contains("5 Gaussians"), "{message}");
        assert_eq!(all.shape().unwrap(), Gaussians::zeros(1, 0));
    }

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
