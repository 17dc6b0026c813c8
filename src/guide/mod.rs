//! The guides: Markdown that GitHub shows, `splat help TOPIC` prints and the manual includes.
//!
//! A guide is a file `TOPIC.md` of this folder and a row of [`GUIDES`].

mod render;

use self::render::{linked, manual, terminal};

/// A guide.
#[derive(Clone, Copy, Debug)]
pub struct Guide {
    /// Topic, as `splat help` takes it.
    pub topic: &'static str,
    /// Markdown, with a title in its first line.
    pub markdown: &'static str,
}

macro_rules! guides {
    ($($topic:literal),* $(,)?) => {
        [$(Guide { topic: $topic, markdown: include_str!(concat!($topic, ".md")) }),*]
    };
}

/// All guides, in reading order.
pub const GUIDES: [Guide; 14] = guides![
    "scene",
    "quality",
    "memory",
    "surfaces",
    "meshes",
    "triangles",
    "export",
    "view",
    "gpus",
    "files",
    "resume",
    "ci",
    "measuring",
    "migrate",
];

/// Finds the guide of a topic.
pub fn guide(topic: &str) -> Option<Guide> {
    GUIDES.into_iter().find(|guide| guide.topic == topic)
}

/// Finds the guide that says most of a word: in its headings, or else in its text.
pub fn guide_about(word: &str) -> Option<Guide> {
    let word = word.to_lowercase();
    let count = |text: &str| text.to_lowercase().matches(&word).count();
    let headings = |guide: &Guide| {
        guide.markdown.lines().filter(|line| line.starts_with('#')).map(count).sum::<usize>()
    };
    let says = |guide: &Guide| (headings(guide), count(guide.markdown));
    let mut best = None;
    for guide in GUIDES.iter().filter(|guide| word.len() > 2 && says(guide).1 > 0) {
        if best.is_none_or(|best| says(guide) > says(best)) {
            best = Some(guide);
        }
    }
    best.copied()
}

impl Guide {
    /// Returns the heading of the first line.
    pub fn title(&self) -> &'static str {
        self.markdown.lines().next().unwrap_or_default().trim_start_matches('#').trim()
    }

    /// Returns the Markdown with links between guides as commands.
    pub fn plain(&self) -> String {
        linked(self.markdown)
    }

    /// Renders the guide for a terminal of `width` columns, with or without escape sequences.
    pub fn rendered(&self, width: usize, has_colors: bool) -> String {
        terminal(&self.plain(), width, has_colors)
    }

    /// Renders the guide as a manual page of section 7.
    pub fn manual(&self) -> String {
        manual(self.topic, &self.plain())
    }
}
