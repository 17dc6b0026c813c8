//! Model sizes and the regions of a model on the device.

use std::marker::PhantomData;

use serde::{Deserialize, Serialize};

use super::schema::{
    Column, Forms, LANES, Rate, RowForm, Schema, Space, TABLE_PARTS, Table, Width,
};
use super::slot::{CallLen, Count, Lifetime, ModelLen, Purpose, Slot};
use crate::abi;

/// Maximum number of regions of a model.
pub const REGIONS: usize = abi::TABLES as usize + 8;

/// Corners of a triangle, and ends of an edge.
const CORNERS: u32 = 3;
const ENDS: u32 = 2;

/// Words of a triangle and its statistics.
const FACE_WORDS: u32 = CORNERS + 3;

/// Triangles of a closed surface per vertex: V - E + F is negligible.
pub const FACES_PER_VERTEX: u64 = 2;

slots! {
    ModelLen {
        pub FACES: u32 = "faces", Parameters, ModelLen, CORNERS, "triangles";
        pub FACE_WEIGHTS: f32 = "faces", Parameters, ModelLen, 1, "triangles";
        pub FACE_REACHES: f32 = "faces", Parameters, ModelLen, 1, "triangles";
        pub FACE_GRADIENT_NORMS: f32 = "faces", Parameters, ModelLen, 1, "triangles";
    }
    CallLen {
        pub MIDPOINTS: u32 = "midpoints", Densify, CallLen, ENDS, "edges that are split";
    }
    ModelCount {
        pub SH_STEPS: u32 = "sh, steps taken", Moments, ModelCount::LaneBlocks, 1,
            "which step the colours of each 32 Gaussians are at";
        pub SH_DRIFTS: f32 = "sh, drifts", Moments, ModelCount::Drifts, 2,
            "how far colours have moved that were left behind";
        pub SH_LINES: u32 = "sh, lines", Moments, ModelCount::LineWords, 1,
            "colours of the host's memory that views see";
        pub GRADIENT_NORM_SUMS: f32 = "density statistics, gradients", Statistics, ModelCount::Rows,
            1, "what density control decides by";
        pub VIEWS_SEEN: u32 = "density statistics, views", Statistics, ModelCount::Rows, 1,
            "what density control decides by";
        pub ABSOLUTE_NORM_SUMS: f32 = "density statistics, absolute gradients", Statistics,
            ModelCount::AbsoluteNormSums, 1, "what density control decides by";
        pub FILTER_3D: f32 = "3d filter", Parameters, ModelCount::Filter3d, 1,
            "how far each Gaussian is smoothed";
        pub ALL_FACES: u32 = "faces", Parameters, ModelCount::Faces, FACE_WORDS, "triangles";
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
    }
}

/// Returns the slots of a primitive's tables: parameters, first and second moments of each.
pub fn table_slots(schema: &Schema) -> impl Iterator<Item = Slot<u32, ModelCount>> + '_ {
    let labels = schema.tables.iter().flat_map(|table| table.labels.into_iter().enumerate());
    labels.enumerate().map(|(number, (part, label))| {
        let purpose = if part == 0 { Purpose::Parameters } else { Purpose::Moments };
        Slot { label, purpose, count: ModelCount::Table(number), width: 1, element: PhantomData }
    })
}

/// Index spaces of a model.
#[derive(Clone, Copy, Debug)]
pub enum ModelCount {
    /// Words of a table, in whole lane blocks of rows.
    Table(usize),
    /// Lane blocks, if the schema has lazy tables.
    LaneBlocks,
    /// Steps that a lazy row may be behind, if the schema has lazy tables.
    Drifts,
    /// Words of the cache for tables in the host's memory, the cache's tables included.
    LineWords,
    /// Gaussians.
    Rows,
    /// Gaussians, if absolute gradients are summed.
    AbsoluteNormSums,
    /// Gaussians, if there is a 3D filter.
    Filter3d,
    /// Triangles of a closed surface, twice: the present ones and their successors.
    Faces,
}

impl Count for ModelCount {
    type Sizes = ModelSize;

    const LIFETIME: Lifetime = Lifetime::Model;

    fn of(self, size: &ModelSize) -> u64 {
        let where_there = |there: bool| if there { size.gaussians } else { 0 };
        match self {
            Self::Table(number) => {
                table_len(size.gaussians, size.widths().nth(number).unwrap_or(0).into())
            }
            Self::LaneBlocks if !size.schema.is_lazy() => 0,
            Self::LaneBlocks => size.gaussians.div_ceil(LANES.into()),
            Self::Drifts if !size.schema.is_lazy() => 0,
            Self::Drifts => abi::DRIFT_STEPS.into(),
            Self::LineWords => {
                let (cache_tables, lane) = (size.cache_tables(), size.words_in(MemoryPlace::Host));
                cache_tables
                    .words()
                    .saturating_add(cache_tables.lines.saturating_mul(u64::from(LANES) * lane))
            }
            Self::Rows => size.gaussians,
            Self::AbsoluteNormSums => where_there(size.optional.absolute_norm_sums),
            Self::Filter3d => where_there(size.optional.filter_3d),
            Self::Faces => {
                where_there(size.schema.has_faces()).saturating_mul(2 * FACES_PER_VERTEX)
            }
        }
    }
}

/// Returns the values of a table with this number of rows and columns, the padding of the last lane block included.
pub const fn table_len(rows: u64, width: u64) -> u64 {
    rows.next_multiple_of(LANES as u64) * width
}

/// Precision of colours and moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Storage {
    /// 32 bits a value.
    #[default]
    Full,
    /// Colours in 16 bits, the rest in 32.
    HalfColors,
    /// Colours in 16 bits, moments in 16 and 8.
    Compact,
    /// Compact, with colours and their moments in the host's memory.
    Offloaded,
}

impl Storage {
    /// Returns true if colours have 16 bits, and moments 16 and 8.
    pub const fn is_compact(self) -> bool {
        matches!(self, Self::Compact | Self::Offloaded)
    }

    /// Returns the memory that holds a table. Lazy tables may be on the host, since a view needs only the visible
    /// rows.
    pub const fn place_of(self, table: &Table) -> MemoryPlace {
        match self {
            Self::Offloaded if table.is_lazy => MemoryPlace::Host,
            _ => MemoryPlace::Device,
        }
    }
}

/// Memory that holds a table or buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MemoryPlace {
    /// Memory of the device.
    #[default]
    Device,
    /// Page-locked memory of the host, which kernels access over the bus.
    Host,
}

/// Columns that only some runs need.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct OptionalColumns {
    /// True if Gaussians have a 3D filter (Mip-Splatting).
    pub filter_3d: bool,
    /// True if absolute gradients are summed for density control (GOF).
    pub absolute_norm_sums: bool,
}

impl OptionalColumns {
    /// No optional columns.
    pub const NONE: Self = Self { filter_3d: false, absolute_norm_sums: false };

    /// Returns the number of optional columns.
    pub fn count(self) -> u64 {
        u64::from(self.filter_3d) + u64::from(self.absolute_norm_sums)
    }
}

/// Number of Gaussians, and their columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelSize {
    /// Gaussians, or rows of another primitive.
    pub gaussians: u64,
    /// Tables and columns.
    pub schema: &'static Schema,
    /// Highest degree of the spherical harmonics.
    pub sh_degree: u32,
    /// Precision of colours and moments.
    pub storage: Storage,
    /// Columns beside parameters, moments and statistics.
    pub optional: OptionalColumns,
}

impl ModelSize {
    /// Returns the size with another number of Gaussians.
    pub fn with(self, gaussians: u64) -> Self {
        Self { gaussians, ..self }
    }

    /// Returns the values of a row in each part of each table: values, first and second moments.
    pub fn values(&self) -> impl Iterator<Item = u32> + use<> {
        self.schema.values(self.sh_degree).flat_map(|values| [values; TABLE_PARTS])
    }

    /// Returns the encoding of each part of each table.
    pub fn forms(&self) -> impl Iterator<Item = RowForm> + use<> {
        forms(self.schema, self.storage)
    }

    /// Returns the words of a row in each part of each table.
    pub fn widths(&self) -> impl Iterator<Item = u32> + use<> {
        self.forms().zip(self.values()).map(|(form, values)| form.words(values))
    }

    /// Returns the words of a row in all tables.
    pub fn words(&self) -> u64 {
        self.widths().map(u64::from).sum()
    }

    /// Returns the words of a row in the tables of one memory.
    fn words_in(&self, there: MemoryPlace) -> u64 {
        self.widths_in(there).map(u64::from).sum()
    }

    /// Returns the words of a row in each part of each table of one memory.
    pub fn widths_in(&self, there: MemoryPlace) -> impl Iterator<Item = u32> + use<> {
        let tables = self.widths().zip(self.memory_places());
        tables.filter(move |&(_, place)| place == there).map(|(width, _)| width)
    }

    /// Returns the layout of the colour cache, empty if no table is in the host's memory.
    fn cache_tables(&self) -> CacheTables {
        let has_lines = self.memory_places().any(|place| place == MemoryPlace::Host);
        CacheTables::of(if has_lines { self.gaussians.div_ceil(LANES.into()) } else { 0 })
    }

    /// Returns the words of a row in the widest part of a table.
    pub fn widest(&self) -> u64 {
        self.widths().max().unwrap_or(1).into()
    }

    /// Returns the parameters of a row.
    pub fn parameters(&self) -> u64 {
        self.schema.row_values(self.sh_degree).into()
    }

    /// Returns the memory of each part of each table.
    pub fn memory_places(&self) -> impl Iterator<Item = MemoryPlace> + use<> {
        let (schema, storage) = (self.schema, self.storage);
        schema.tables.iter().flat_map(move |table| [storage.place_of(table); TABLE_PARTS])
    }

    /// Returns the label and size of each table; 0 bytes for a table in the other memory.
    fn table_bytes(&self, there: MemoryPlace) -> impl Iterator<Item = (&'static str, u64)> {
        table_slots(self.schema).zip(self.memory_places()).map(move |(table, place)| {
            (table.label, if place == there { table.bytes(self) } else { 0 })
        })
    }

    /// Returns the label and bytes of each table in the host's memory.
    pub fn host_tables(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.table_bytes(MemoryPlace::Host).filter(|&(_, bytes)| bytes > 0)
    }

    /// Returns the label and device bytes of each region, in the order of growth.
    pub fn region_bytes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let tables = self.table_bytes(MemoryPlace::Device);
        let row_regions = tables.chain([
            (SH_STEPS.label, SH_STEPS.bytes(self)),
            (SH_DRIFTS.label, SH_DRIFTS.bytes(self)),
            (GRADIENT_NORM_SUMS.label, GRADIENT_NORM_SUMS.bytes(self)),
            (VIEWS_SEEN.label, VIEWS_SEEN.bytes(self)),
            (ABSOLUTE_NORM_SUMS.label, ABSOLUTE_NORM_SUMS.bytes(self)),
            (FILTER_3D.label, FILTER_3D.bytes(self)),
            (SH_LINES.label, SH_LINES.bytes(self)),
        ]);
        let faces = || (ALL_FACES.label, ALL_FACES.bytes(self));
        row_regions.chain(self.schema.has_faces().then(faces))
    }
}

/// Returns the encoding of each part of each table.
pub fn forms(schema: &'static Schema, storage: Storage) -> impl Iterator<Item = RowForm> {
    schema.tables.iter().flat_map(move |table| {
        let forms = match storage {
            Storage::Full => table.full,
            Storage::HalfColors => Forms { values: table.compact.values, ..table.full },
            Storage::Compact | Storage::Offloaded => table.compact,
        };
        forms.all()
    })
}

// Lines of a device's cache for colours in the host's memory.

/// Lane blocks per line: a view of a large scene shows a few hundredths of the scene.
const BLOCKS_PER_LINE: u64 = 16;

/// Lines of a small model, if it has at least this number of lane blocks.
const LINES_MIN: u64 = 64;

/// Layout of the cache's tables, which precede the lines in one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheTables {
    /// Lane blocks of the model.
    pub lane_blocks: u64,
    /// Lines of the cache.
    pub lines: u64,
}

impl CacheTables {
    /// Creates the layout for a model with this number of lane blocks.
    pub fn of(lane_blocks: u64) -> Self {
        let few = lane_blocks.min(LINES_MIN);
        Self { lane_blocks, lines: lane_blocks.div_ceil(BLOCKS_PER_LINE).max(few) }
    }

    /// Returns the first words of the seven tables: the counts, two columns by lane block, four by line.
    pub fn firsts(&self) -> [u64; 7] {
        let Self { lane_blocks, lines } = *self;
        let of_lines = 2 + 2 * lane_blocks;
        let line = |column: u64| of_lines + column * lines;
        [0, 2, 2 + lane_blocks, line(0), line(1), line(2), line(3)]
    }

    /// Returns the words of all tables, rounded up to whole lane blocks.
    pub fn words(&self) -> u64 {
        let words = 2 + 2 * self.lane_blocks + 4 * self.lines;
        if self.lane_blocks == 0 { 0 } else { words.next_multiple_of(LANES.into()) }
    }
}

// Schemas of Gaussians and of triangles.

/// Position, shape, opacity and colour of Gaussians. Compact state (`kernels/state.cuh`) is rounded stochastically,
/// so that it is unbiased.
pub const GAUSSIANS: Schema = Schema {
    spaces: &[Space { one: "Gaussian", many: "Gaussians" }],
    tables: &[
        Table {
            labels: [GEOMETRY.label, GEOMETRY_FIRST.label, GEOMETRY_SECOND.label],
            space: 0,
            full: Forms::FLOATS,
            compact: Forms { first: RowForm::Bfloats, ..Forms::FLOATS },
            is_lazy: false,
        },
        Table {
            labels: [SH.label, SH_FIRST.label, SH_SECOND.label],
            space: 0,
            full: Forms::FLOATS,
            compact: Forms {
                values: RowForm::Halves,
                first: RowForm::Firsts,
                second: RowForm::Seconds,
            },
            is_lazy: true,
        },
    ],
    columns: &[
        column("means", Width::Fixed(3), Rate::Means, 0, "centre"),
        column("log_scales", Width::Fixed(3), Rate::LogScales, 0, "log-scale"),
        column("quats", Width::Fixed(4), Rate::Quats, 0, "rotation"),
        column("opacity_logits", Width::Fixed(1), Rate::OpacityLogits, 0, "opacity"),
        column("sh_dc", Width::Fixed(3), Rate::ShDc, 1, "colour"),
        column("sh_rest", Width::ShRest, Rate::ShRest, 1, "SH coefficient"),
    ],
};

/// Vertices of triangles in the tables of Gaussians. Scales and rotations are unused.
pub const TRIANGLES: Schema = Schema {
    spaces: &[
        Space { one: "vertex", many: "vertices" },
        Space { one: "triangle", many: "triangles" },
    ],
    ..GAUSSIANS
};

const fn column(
    name: &'static str,
    width: Width,
    rate: Rate,
    table: u8,
    words: &'static str,
) -> Column {
    Column { name, width, rate, table, words }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_gaussian_match_the_documentation() {
        let words = |storage, sh_degree| {
            let (schema, optional) = (&GAUSSIANS, OptionalColumns::NONE);
            let size = ModelSize { gaussians: 1, schema, sh_degree, storage, optional };
            size.widths().collect::<Vec<_>>()
        };
        assert_eq!(words(Storage::Full, 3), [11, 11, 11, 48, 48, 48]);
        assert_eq!(words(Storage::HalfColors, 3), [11, 11, 11, 24, 48, 48]);
        assert_eq!(words(Storage::Compact, 3), [11, 6, 11, 24, 13, 13]);
        assert_eq!(words(Storage::Compact, 0), [11, 6, 11, 2, 2, 2]);
        assert_eq!(words(Storage::Offloaded, 3), words(Storage::Compact, 3));
        assert_eq!(table_len(33, 11), 64 * 11);
    }

    #[test]
    fn lazy_tables_are_offloaded() {
        let (schema, optional) = (&GAUSSIANS, OptionalColumns::NONE);
        let size = |storage| ModelSize { gaussians: 33, schema, sh_degree: 3, storage, optional };
        let (compact, offloaded) = (size(Storage::Compact), size(Storage::Offloaded));
        let host: Vec<_> = offloaded.host_tables().collect();
        let words = |width: u64| 64 * width * 4;
        assert_eq!(
            host,
            [
                ("sh", words(24)),
                ("sh, first moments", words(13)),
                ("sh, second moments", words(13))
            ]
        );
        assert_eq!(compact.host_tables().count(), 0);
        // Two lane blocks have a line each, behind 16 numbers.
        let lines = 4 * (32 + 2 * 32 * (24 + 13 + 13));
        let offloaded: Vec<_> = offloaded.region_bytes().collect();
        assert!(offloaded.contains(&(SH_LINES.label, lines)), "{offloaded:?}");
        let tables = compact.region_bytes().zip(offloaded);
        for ((label, all), (same, left)) in tables.filter(|((of, _), _)| *of != SH_LINES.label) {
            let gone = host.iter().any(|&(of_host, bytes)| of_host == label && bytes == all);
            assert_eq!((label, left), (same, if gone { 0 } else { all }));
        }
    }

    #[test]
    fn regions_have_whole_lane_blocks_or_rows() {
        let optional = OptionalColumns { filter_3d: true, ..OptionalColumns::NONE };
        let size = ModelSize {
            gaussians: 33,
            schema: &GAUSSIANS,
            sh_degree: 1,
            storage: Storage::Full,
            optional,
        };
        let bytes: Vec<u64> = size.region_bytes().map(|(_, bytes)| bytes / 4).collect();
        let (table, sh) = (64 * 11, 64 * 12);
        let drifts = 2 * u64::from(abi::DRIFT_STEPS);
        assert_eq!(bytes, [table, table, table, sh, sh, sh, 2, drifts, 33, 33, 0, 33, 0]);
        let mesh = ModelSize { schema: &TRIANGLES, ..size };
        // Two triangles of six words for each vertex, twice.
        assert_eq!(ALL_FACES.bytes(&mesh), 33 * 2 * 6 * 4 * 2);
    }

    #[test]
    fn small_models_have_a_line_for_each_lane_block_large_ones_fewer() {
        let lines = |blocks| CacheTables::of(blocks).lines;
        assert_eq!([0, 1, 64, 65, 1024, 1040].map(lines), [0, 1, 64, 64, 64, 65]);
        assert_eq!(CacheTables::of(0).words(), 0);
    }

    #[test]
    fn tables_are_adjacent() {
        let cache_tables = CacheTables::of(2000);
        let lengths = [2, 2000, 2000, 125, 125, 125, 125];
        let mut next = 0;
        for (first, length) in cache_tables.firsts().into_iter().zip(lengths) {
            assert_eq!(first, next);
            next += length;
        }
        assert_eq!(cache_tables.words(), next.next_multiple_of(32));
    }

    #[test]
    fn a_row_has_the_values_that_kernels_read() {
        for (degree, sh) in [(0, 3), (1, 12), (2, 27), (3, 48)] {
            let values: Vec<u32> = GAUSSIANS.values(degree).collect();
            assert_eq!(values, [abi::GEOMETRY_WIDTH, sh]);
        }
        assert_eq!(3 * GAUSSIANS.tables.len(), abi::TABLES as usize);
        assert!(GAUSSIANS.columns.is_sorted_by_key(|column| column.table));
        let spaces = GAUSSIANS.spaces.len();
        assert!(GAUSSIANS.tables.iter().all(|table| usize::from(table.space) < spaces));
        assert_eq!(GAUSSIANS.places(), Some(0));
    }
}
