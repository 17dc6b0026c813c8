//! What a run saves holds finite numbers only.

use crate::backend::{AppearanceTables, Compensation, DeviceError, Snapshot};
use crate::model::Primitive;

/// An error with the first value that is infinite or NaN, of rows of which the first is number `first`
/// of its model. Training looks at the rows that a view has seen; files hold the others, too.
pub(super) fn check_finite<P: Primitive>(rows: &P, first: usize) -> Result<(), DeviceError> {
    for (group, column) in rows.groups().iter().zip(P::SCHEMA.columns) {
        let Some(at) = first_not_finite(group.values) else { continue };
        return Err(DeviceError::NotFinite {
            primitive: P::SCHEMA.one(),
            index: first + at / group.width,
            group: column.words,
            value: f64::from(group.values[at]),
        });
    }
    Ok(())
}

/// The same of all that a checkpoint holds of these rows; statistics of density control may be anything.
pub(super) fn check_snapshot<P: Primitive>(
    rows: &Snapshot<P>,
    first: usize,
) -> Result<(), DeviceError> {
    for part in [&rows.parameters, &rows.first_moments, &rows.second_moments] {
        check_finite(part, first)?;
    }
    match first_not_finite(&rows.filter_3d) {
        None => Ok(()),
        Some(at) => Err(DeviceError::NotFinite {
            primitive: P::SCHEMA.one(),
            index: first + at,
            group: "3D filter",
            value: f64::from(rows.filter_3d[at]),
        }),
    }
}

/// The same of what was learned of the photographs' colours.
pub(super) fn check_tables(tables: &AppearanceTables) -> Result<(), DeviceError> {
    for values in [&tables.values, &tables.first_moments, &tables.second_moments] {
        let Some(at) = first_not_finite(values) else { continue };
        return Err(DeviceError::NotFinite {
            primitive: "training view",
            index: at / tables.kind.width(),
            group: match tables.kind {
                Compensation::Exposure => "exposure",
                Compensation::BilateralGrid => "bilateral grid",
            },
            value: f64::from(values[at]),
        });
    }
    Ok(())
}

/// Where the first value stands that is infinite or NaN.
fn first_not_finite(values: &[f32]) -> Option<usize> {
    // Without a way out of the inner loop it takes several values at once.
    let is_finite = |part: &[f32]| part.iter().fold(true, |all, value| all & value.is_finite());
    let part = values.chunks(4096).position(|part| !is_finite(part))?;
    let first = 4096 * part;
    values[first..].iter().position(|value| !value.is_finite()).map(|at| first + at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Gaussians;

    #[test]
    fn the_first_value_that_is_no_number_is_named_with_its_row() {
        let mut rows = Gaussians::zeros(1, 5);
        check_finite(&rows, 0).unwrap();
        rows.log_scales[3 * 4 + 1] = f32::INFINITY;
        rows.sh_rest[7] = f32::NAN;
        let error = check_finite(&rows, 100).unwrap_err().to_string();
        assert!(error.contains("104") && error.contains("inf"), "{error}");
    }
}
