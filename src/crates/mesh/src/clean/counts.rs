//! What cleaning did.

use std::fmt;

use serde::Serialize;

/// How much each step of cleaning found, over all rounds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CleanCounts {
    /// Vertices at the place of another.
    pub equal_vertices: usize,
    /// Faces without area.
    pub degenerate_faces: usize,
    /// Faces with the vertices of another.
    pub duplicate_faces: usize,
    /// Edges of more than two faces.
    pub nonmanifold_edges: usize,
    /// Copies of vertices where fans were parted.
    pub split_vertices: usize,
    /// Components that were too small.
    pub small_components: usize,
    /// Their faces.
    pub component_faces: usize,
    /// Faces that were turned over.
    pub turned_faces: usize,
    /// Edges across which the surface has one side only, as a Moebius band has; those of the last
    /// round.
    pub one_sided_edges: usize,
    /// Boundaries that were closed.
    pub filled_holes: usize,
    /// Faces that closed them.
    pub added_faces: usize,
    /// Vertices without a face.
    pub unused_vertices: usize,
    /// Rounds.
    pub rounds: usize,
}

impl CleanCounts {
    /// A sum that grows with every change.
    pub(super) fn changes(&self) -> usize {
        self.degenerate_faces
            + self.duplicate_faces
            + self.nonmanifold_edges
            + self.split_vertices
            + self.component_faces
            + self.turned_faces
            + self.added_faces
    }
}

impl fmt::Display for CleanCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = [
            (self.equal_vertices, "equal vertices merged"),
            (self.degenerate_faces, "faces without area repaired"),
            (self.duplicate_faces, "duplicate faces dropped"),
            (self.nonmanifold_edges, "edges of more than two faces parted"),
            (self.split_vertices, "vertices split"),
            (self.small_components, "small components dropped"),
            (self.component_faces, "faces of theirs"),
            (self.turned_faces, "faces turned over"),
            (self.one_sided_edges, "edges without a consistent side left"),
            (self.filled_holes, "holes closed"),
            (self.added_faces, "faces added there"),
            (self.unused_vertices, "unused vertices dropped"),
        ];
        let mut found = steps.iter().filter(|step| step.0 > 0).peekable();
        if found.peek().is_none() {
            return f.write_str("nothing to clean");
        }
        for (index, (count, what)) in found.enumerate() {
            write!(f, "{}{count} {what}", if index > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}
