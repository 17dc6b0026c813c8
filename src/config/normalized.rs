//! What becomes of a command line before it is parsed.

use std::ffi::OsString;

/// A command line ready to be parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Normalized {
    /// The arguments, program name first.
    pub args: Vec<OsString>,
    /// What was left out and why, one sentence each.
    pub notices: Vec<String>,
    /// Flags of stages that this program does not have.
    pub missing_stages: Vec<String>,
}

impl Normalized {
    /// Why the command cannot run: it asks for stages that this program does not have.
    pub fn refusal(&self) -> Option<String> {
        if self.missing_stages.is_empty() {
            return None;
        }
        Some(format!(
            "{}: this version ends with SuGaR's coarse stage (--regularize); it has no stage that makes or \
             refines a mesh yet. Leave these flags out. To go on from a coarse stage of this program, use \
             --resume or --start-checkpoint; to make a mesh, give the trained MODEL to SuGaR's own \
             extract_mesh.py with -c MODEL --use_vanilla_3dgs True",
            self.missing_stages.join(", ")
        ))
    }
}
