//! The model: what each Gaussian consists of, and the regions that hold it.

use super::schema::RowForm;
use super::slot::{Count, Lifetime, Slot};
use crate::abi;

/// Rows of a lane block, one for each lane of a warp: tables come in whole ones.
pub const LANES: u32 = 32;

/// Regions of a model.
pub const REGIONS: usize = 11;

/// Tables of a model.
const TABLE_COUNT: usize = abi::TABLES as usize;

slots! {
    ModelCount {
        GEOMETRY: u32 = "geometry", Parameters, ModelCount::Table(0), 1,
            "centres, scales, rotations and opacities";
        GEOMETRY_FIRST: u32 = "geometry, first moments", Moments, ModelCount::Table(1), 1,
            "means of their gradients (Adam)";
        GEOMETRY_SECOND: u32 = "geometry, second moments", Moments, ModelCount::Table(2), 1,
            "means of the squares of their gradients (Adam)";
        SH: u32 = "sh", Parameters, ModelCount::Table(3), 1, "colours";
        SH_FIRST: u32 = "sh, first moments", Moments, ModelCount::Table(4), 1,
            "means of their gradients (Adam)";
        SH_SECOND: u32 = "sh, second moments", Moments, ModelCount::Table(5), 1,
            "means of the squares of their gradients (Adam)";
        pub SH_STEPS: u32 = "sh, steps taken", Moments, ModelCount::LaneBlocks, 1,
            "which step the colours of each 32 Gaussians are at";
        pub GRADIENT_NORM_SUMS: f32 = "density statistics, gradients", Statistics, ModelCount::Rows,
            1, "what density control decides by";
        pub VIEWS_SEEN: u32 = "density statistics, views", Statistics, ModelCount::Rows, 1,
            "what density control decides by";
        pub ABSOLUTE_NORM_SUMS: f32 = "density statistics, absolute gradients", Statistics,
            ModelCount::AbsoluteNormSums, 1, "what density control decides by";
        pub FILTER_3D: f32 = "3d filter", Parameters, ModelCount::Filter3d, 1,
            "how far each Gaussian is smoothed";
    }
}

/// The tables: parameters, first and second moments of the geometry, then of the SH.
pub const TABLES: [Slot<u32, ModelCount>; TABLE_COUNT] =
    [GEOMETRY, GEOMETRY_FIRST, GEOMETRY_SECOND, SH, SH_FIRST, SH_SECOND];

/// Index spaces of a model.
#[derive(Clone, Copy, Debug)]
pub enum ModelCount {
    /// Words of a table: whole lane blocks of rows.
    Table(usize),
    /// Blocks of 32 rows.
    LaneBlocks,
    /// One for each Gaussian.
    Rows,
    /// The same where absolute gradients are gathered.
    AbsoluteNormSums,
    /// The same where there is a 3D filter.
    Filter3d,
}

impl Count for ModelCount {
    type Sizes = ModelSize;

    const LIFETIME: Lifetime = Lifetime::Model;

    fn of(self, size: &ModelSize) -> u64 {
        let where_there = |there: bool| if there { size.gaussians } else { 0 };
        match self {
            Self::Table(number) => table_len(size.gaussians, size.widths()[number].into()),
            Self::LaneBlocks => size.gaussians.div_ceil(LANES.into()),
            Self::Rows => size.gaussians,
            Self::AbsoluteNormSums => where_there(size.optional.absolute_norm_sums),
            Self::Filter3d => where_there(size.optional.filter_3d),
        }
    }
}

/// Length of a table of so many rows and columns; rows that fill up the last lane block included.
pub const fn table_len(rows: u64, width: u64) -> u64 {
    rows.next_multiple_of(LANES as u64) * width
}

/// How colours and moments are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Storage {
    /// 32 bits a value.
    #[default]
    Full,
    /// Colours in 16 bits, moments in 16 and 8.
    Compact,
}

/// Columns that a model has only where something needs them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionalColumns {
    /// The smallest details that views could have told of each Gaussian (Mip-Splatting).
    pub filter_3d: bool,
    /// Sums of absolute gradients, for density control (GOF).
    pub absolute_norm_sums: bool,
}

impl OptionalColumns {
    /// None of them.
    pub const NONE: Self = Self { filter_3d: false, absolute_norm_sums: false };

    /// How many there are.
    pub fn count(self) -> u64 {
        u64::from(self.filter_3d) + u64::from(self.absolute_norm_sums)
    }
}

/// How the values of each table lie in its words (`kernels/state.cuh`). Compact state is rounded at
/// random, so that on average nothing is lost.
pub const fn forms(storage: Storage) -> [RowForm; TABLE_COUNT] {
    use RowForm::{Bfloats, Firsts, Floats, Halves, Seconds};
    match storage {
        Storage::Full => [Floats; TABLE_COUNT],
        Storage::Compact => [Floats, Bfloats, Floats, Halves, Firsts, Seconds],
    }
}

/// Values of a Gaussian in each table.
pub const fn values(sh_degree: u32) -> [u32; TABLE_COUNT] {
    let geometry = abi::GEOMETRY_WIDTH;
    let sh = 3 * (sh_degree + 1).pow(2);
    [geometry, geometry, geometry, sh, sh, sh]
}

/// Words of a Gaussian in each table.
pub fn widths(storage: Storage, sh_degree: u32) -> [u32; TABLE_COUNT] {
    let (forms, values) = (forms(storage), values(sh_degree));
    std::array::from_fn(|table| forms[table].words(values[table]))
}

/// Gaussians, and what each of them consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelSize {
    /// Gaussians.
    pub gaussians: u64,
    /// Highest degree of the spherical harmonics.
    pub sh_degree: u32,
    /// How they are stored.
    pub storage: Storage,
    /// What there is beside parameters, moments and statistics.
    pub optional: OptionalColumns,
}

impl ModelSize {
    /// The same with another number of Gaussians.
    pub fn with(self, gaussians: u64) -> Self {
        Self { gaussians, ..self }
    }

    /// Words of a Gaussian in each table.
    pub fn widths(&self) -> [u32; TABLE_COUNT] {
        widths(self.storage, self.sh_degree)
    }

    /// Words of all tables per Gaussian.
    pub fn words(&self) -> u64 {
        self.widths().map(u64::from).iter().sum()
    }

    /// Words of the widest table per Gaussian.
    pub fn widest(&self) -> u64 {
        self.widths().into_iter().max().unwrap_or(1).into()
    }

    /// Values of the parameters per Gaussian.
    pub fn parameters(&self) -> u64 {
        let [geometry, _, _, sh, ..] = values(self.sh_degree);
        (geometry + sh).into()
    }

    /// Label and bytes of each region, in the order in which regions grow.
    pub fn region_bytes(&self) -> [(&'static str, u64); REGIONS] {
        let [geometry, geometry_first, geometry_second, sh, sh_first, sh_second] =
            TABLES.map(|table| (table.label, table.bytes(self)));
        [
            geometry,
            geometry_first,
            geometry_second,
            sh,
            sh_first,
            sh_second,
            (SH_STEPS.label, SH_STEPS.bytes(self)),
            (GRADIENT_NORM_SUMS.label, GRADIENT_NORM_SUMS.bytes(self)),
            (VIEWS_SEEN.label, VIEWS_SEEN.bytes(self)),
            (ABSOLUTE_NORM_SUMS.label, ABSOLUTE_NORM_SUMS.bytes(self)),
            (FILTER_3D.label, FILTER_3D.bytes(self)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_gaussian_are_those_of_the_documentation() {
        let words = |storage, degree| widths(storage, degree);
        assert_eq!(words(Storage::Full, 3), [11, 11, 11, 48, 48, 48]);
        assert_eq!(words(Storage::Compact, 3), [11, 6, 11, 24, 13, 13]);
        assert_eq!(words(Storage::Compact, 0), [11, 6, 11, 2, 2, 2]);
        assert_eq!(table_len(33, 11), 64 * 11);
    }

    #[test]
    fn regions_come_in_whole_lane_blocks_or_rows() {
        let optional = OptionalColumns { filter_3d: true, ..OptionalColumns::NONE };
        let size = ModelSize { gaussians: 33, sh_degree: 1, storage: Storage::Full, optional };
        let bytes = size.region_bytes().map(|(_, bytes)| bytes / 4);
        let (table, sh) = (64 * 11, 64 * 12);
        assert_eq!(bytes, [table, table, table, sh, sh, sh, 2, 33, 33, 0, 33]);
    }
}
