//! Streamed SOG, written.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;

use rayon::prelude::*;

use super::coarsen::coarser;
use super::meta::{
    LOD_META_NAME, StreamedAsset, StreamedBound, StreamedMeta, StreamedNode, StreamedRun, VERSION,
};
use super::tree::{LevelRow, SplitNode, SplitRule, bound_of, split, union};
use crate::folder::PartSink;
use crate::morton::morton_order;
use crate::sog::{SeenFrom, SogError, SogOptions, SogTools, write_in_order};
use crate::splats::Splats;
use crate::worst::WorstErrors;
use splat_mesh::narrow::to_u32;

/// Wide nodes with fewer Gaussians than these are not split.
const LEAST_SPLIT: usize = 1024;

/// The coarsest level of 16 holds one of 32,768 Gaussians.
const MOST_LEVELS: u32 = 16;

/// Files that are encoded at a time, each with several threads. They take some 600 bytes a Gaussian.
const FILES_AT_A_TIME: usize = 8;

/// How a scene is cut and thinned.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamedOptions {
    /// Levels of detail, each half of the one below: 1 to 16, others are taken as these.
    pub levels: u32,
    /// Gaussians of a file, about; at least 1.
    pub chunk_splats: usize,
    /// Widest box, scene units, above 0.
    pub extent: f64,
    /// Of the files.
    pub sog: SogOptions,
}

impl Default for StreamedOptions {
    fn default() -> Self {
        Self { levels: 4, chunk_splats: 512 * 1024, extent: 16.0, sog: SogOptions::default() }
    }
}

/// Writes the parts of a streamed SOG, `lod-meta.json` last. Returns how far from the argument the
/// finest level is.
pub fn write_streamed(
    splats: &Splats,
    options: &StreamedOptions,
    tools: &SogTools<'_>,
    sink: &mut dyn PartSink,
) -> Result<WorstErrors, SogError> {
    let mut levels = vec![Cow::Borrowed(splats)];
    for level in 1..options.levels.clamp(1, MOST_LEVELS) as usize {
        levels.push(Cow::Owned(coarser(&levels[level - 1])));
    }
    let mut rows: Vec<LevelRow> = (0..)
        .zip(&levels)
        .flat_map(|(level, splats)| {
            let places = (0..).zip(&splats.columns().means);
            places.map(move |(row, &place)| LevelRow { level, row, place })
        })
        .collect();
    let rule = SplitRule {
        most_rows: options.chunk_splats,
        most_extent: options.extent,
        least_rows: LEAST_SPLIT,
    };
    let tree = split(&mut rows, &rule);
    drop(rows);
    let leaves: Vec<LeafRuns> =
        leaves_of(&tree).into_par_iter().map(|rows| LeafRuns::of(rows, &levels)).collect();
    let mut chunks = ChunkLists { most_rows: options.chunk_splats, files: Vec::new() };
    let tree = chunks.describe(&tree, &mut leaves.into_iter());
    let files = chunks.files;
    let mut worst = WorstErrors::default();
    for files in files.chunks(FILES_AT_A_TIME) {
        let encoded: Vec<EncodedChunk> = files
            .par_iter()
            .map(|file| EncodedChunk::of(file, &levels, &options.sog, tools))
            .collect::<Result<_, _>>()?;
        for (file, chunk) in files.iter().zip(encoded) {
            chunk.parts.iter().try_for_each(|(name, bytes)| sink.put(name, bytes))?;
            if file.level == 0 {
                worst = worst.or(chunk.errors);
            }
        }
    }
    let counts: Vec<u64> = levels.iter().map(|level| level.len() as u64).collect();
    let meta = StreamedMeta {
        version: VERSION,
        asset: Some(StreamedAsset { generator: "splat".to_owned() }),
        count: counts.iter().sum(),
        counts,
        lod_levels: to_u32(levels.len()),
        filenames: files.into_iter().map(|file| file.name).collect(),
        tree,
    };
    sink.put(LOD_META_NAME, &serde_json::to_vec(&meta).map_err(io::Error::other)?)?;
    Ok(worst)
}

/// A file to be written: rows of one level.
struct ChunkFile {
    name: String,
    level: u32,
    rows: Vec<u32>,
}

/// The leaves of a tree, in its order.
fn leaves_of(node: &SplitNode) -> Vec<&[LevelRow]> {
    match node {
        SplitNode::Inner(children) => children.iter().flat_map(leaves_of).collect(),
        SplitNode::Leaf(rows) => vec![rows.as_slice()],
    }
}

/// What a leaf holds: rows of each level that has some, in the order of the curve.
struct LeafRuns {
    bound: StreamedBound,
    levels: Vec<(u32, Vec<u32>)>,
}

impl LeafRuns {
    fn of(rows: &[LevelRow], levels: &[Cow<'_, Splats>]) -> Self {
        let bounds = rows
            .par_iter()
            .map(|it| bound_of(levels[it.level as usize].columns(), it.row as usize));
        let bound = bounds.reduce_with(union).unwrap_or(NOWHERE);
        let run = |level: u32| {
            let of_level = || rows.iter().filter(move |it| it.level == level);
            let numbers: Vec<u32> = of_level().map(|it| it.row).collect();
            let places: Vec<[f32; 3]> = of_level().map(|it| it.place).collect();
            let order = morton_order(&places);
            (level, order.into_iter().map(|at| numbers[at as usize]).collect::<Vec<_>>())
        };
        let runs = (0..to_u32(levels.len())).map(run);
        Self { bound, levels: runs.filter(|(_, rows)| !rows.is_empty()).collect() }
    }
}

/// The files, filled leaf by leaf.
struct ChunkLists {
    most_rows: usize,
    files: Vec<ChunkFile>,
}

impl ChunkLists {
    /// The nodes as the list of files has them; takes the leaves in their order.
    fn describe(
        &mut self,
        node: &SplitNode,
        leaves: &mut impl Iterator<Item = LeafRuns>,
    ) -> StreamedNode {
        match node {
            SplitNode::Inner(children) => {
                let children: Vec<_> =
                    children.iter().map(|child| self.describe(child, leaves)).collect();
                let bounds = children.iter().map(|child| child.bound);
                let bound = bounds.reduce(union).unwrap_or(NOWHERE);
                StreamedNode { bound, children, lods: BTreeMap::new() }
            }
            SplitNode::Leaf(_) => {
                let LeafRuns { bound, levels } =
                    leaves.next().unwrap_or(LeafRuns { bound: NOWHERE, levels: Vec::new() });
                let lods = levels.into_iter().map(|(level, rows)| (level, self.add(level, rows)));
                StreamedNode { bound, children: Vec::new(), lods: lods.collect() }
            }
        }
    }

    /// Puts a run behind those of its level, or into a new file where that would be too long.
    fn add(&mut self, level: u32, rows: Vec<u32>) -> StreamedRun {
        let of_level = |file: &ChunkFile| file.level == level;
        let last = self.files.iter().rposition(of_level);
        let fits = |file: usize| self.files[file].rows.len() + rows.len() <= self.most_rows;
        let file = last.filter(|&file| fits(file)).unwrap_or_else(|| {
            let number = self.files.iter().filter(|file| of_level(file)).count();
            let name = format!("{level}_{number}/meta.json");
            self.files.push(ChunkFile { name, level, rows: Vec::new() });
            self.files.len() - 1
        });
        let (offset, count) = (self.files[file].rows.len(), rows.len());
        self.files[file].rows.extend(rows);
        StreamedRun { file, offset, count }
    }
}

/// The box of nothing.
const NOWHERE: StreamedBound = StreamedBound { min: [0.0; 3], max: [0.0; 3] };

/// The parts of a chunk, in the order in which they are written.
struct EncodedChunk {
    parts: Vec<(String, Vec<u8>)>,
    errors: WorstErrors,
}

impl EncodedChunk {
    fn of(
        file: &ChunkFile,
        levels: &[Cow<'_, Splats>],
        options: &SogOptions,
        tools: &SogTools<'_>,
    ) -> Result<Self, SogError> {
        let chunk = levels[file.level as usize].rows(&file.rows);
        let mut sink =
            PartList { folder: file.name.trim_end_matches("meta.json"), parts: Vec::new() };
        // Merged Gaussians are none of those that were drawn.
        let seen = match file.level {
            0 => tools.seen_of(&file.rows, chunk.columns(), options),
            _ => SeenFrom::of_cameras(chunk.columns(), &options.cameras),
        };
        let errors = write_in_order(chunk, &seen, options.seed, tools, &mut sink)?;
        Ok(Self { parts: sink.parts, errors })
    }
}

/// Parts in memory, under the names of a folder.
struct PartList<'a> {
    folder: &'a str,
    parts: Vec<(String, Vec<u8>)>,
}

impl PartSink for PartList<'_> {
    fn put(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.parts.push((format!("{}{name}", self.folder), bytes.to_vec()));
        Ok(())
    }
}
