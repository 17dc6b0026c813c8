//! Masks of photographs: those that a scene names, and those in a folder `masks`.

use std::path::{Path, PathBuf};

use super::finder::{Finder, Reach, Wanted};
use super::listing::first_few;
use super::shot::Shot;
use super::transforms::Frame;

/// Names of the folder of masks, which lies beside the folder of the photographs.
const FOLDERS: [&str; 3] = ["masks", "mask", "Masks"];

/// The folder of masks of a scene.
#[derive(Debug)]
pub(super) struct Masks {
    finder: Option<Finder>,
}

/// The masks that frames name.
#[derive(Debug)]
pub(super) struct NamedMasks {
    /// By frame.
    pub(super) files: Vec<Option<PathBuf>>,
    missing: Vec<String>,
}

impl Masks {
    /// The folder of masks beside the photographs, else in the scene, where there is one.
    pub(super) fn beside(photographs: &Path, root: &Path) -> Self {
        let above = photographs.parent().filter(|above| above.starts_with(root));
        let mut folders = above.into_iter().chain([root]);
        let folder = folders.find_map(|above| {
            FOLDERS.iter().map(|name| above.join(name)).find(|folder| folder.is_dir())
        });
        Self { finder: folder.map(|folder| Finder::new(folder, Reach::Anywhere)) }
    }

    /// The masks of photographs: of `a.jpg`, `a.jpg.png`, else `a.png`.
    pub(super) fn find(&self, names: &[&str]) -> Vec<Option<PathBuf>> {
        match &self.finder {
            Some(finder) => finder.find(names, Wanted::Mask).paths,
            None => vec![None; names.len()],
        }
    }

    /// The masks that frames name.
    pub(super) fn named(frames: &[Frame], in_scene: &Finder) -> NamedMasks {
        let names: Vec<&str> = frames.iter().filter_map(|frame| frame.mask.as_deref()).collect();
        let mut found = in_scene.find(&names, Wanted::Photograph).paths.into_iter();
        let mut masks = NamedMasks { files: Vec::with_capacity(frames.len()), missing: Vec::new() };
        for frame in frames {
            let Some(name) = &frame.mask else {
                masks.files.push(None);
                continue;
            };
            let file = found.next().flatten();
            if file.is_none() {
                masks.missing.push(name.clone());
            }
            masks.files.push(file);
        }
        masks
    }

    /// The warning if the folder of masks does not hold one for every photograph.
    pub(super) fn without_use(&self, shots: &[Shot]) -> Option<String> {
        let folder = self.finder.as_ref()?.folder();
        let without = shots.iter().filter(|shot| shot.mask.is_none()).count();
        (without > 0).then(|| {
            format!(
                "{}: holds no mask for {without} of {} photographs, which are used whole. The mask \
                 of a.jpg is a.jpg.png or a.png",
                folder.display(),
                shots.len()
            )
        })
    }
}

impl NamedMasks {
    /// The warning if masks are missing.
    pub(super) fn warning(&self) -> Option<String> {
        (!self.missing.is_empty()).then(|| {
            format!(
                "{} masks are missing, their photographs are used whole: {}",
                self.missing.len(),
                first_few(&self.missing)
            )
        })
    }
}
