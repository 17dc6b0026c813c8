//! `cfg_args`: options that 3DGS trainers record as a line of Python.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;

use super::exit::DataError;
use crate::config::{Config, ConfigLayer, SceneOptions};
use crate::math::splat::DILATION_PX2;

/// Name of the file in a model folder.
pub(super) const CFG_ARGS: &str = "cfg_args";

/// Scene and filter options of an earlier run, used unless the command line sets them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct RecordedOptions {
    pub(super) scene: SceneOptions,
    pub(super) optimize: KeptFilter,
}

/// Filter that renders a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct KeptFilter {
    pub(super) antialiasing: bool,
    pub(super) kernel_size: f64,
}

impl Default for KeptFilter {
    fn default() -> Self {
        let usual = Config::default().optimize;
        Self { antialiasing: usual.antialiasing, kernel_size: usual.kernel_size }
    }
}

impl RecordedOptions {
    /// Returns the options as a configuration layer with lower priority than the command line.
    pub(super) fn layer(&self, origin: &Path) -> anyhow::Result<ConfigText> {
        let text = toml::to_string(self).context("options of an earlier run are plain values")?;
        Ok(ConfigText { origin: origin.display().to_string(), text })
    }
}

/// Reads the options in a model folder's `cfg_args`, if there is one.
pub(super) fn read(model_path: &Path) -> Result<Option<RecordedOptions>, DataError> {
    let path = model_path.join(CFG_ARGS);
    let shown = path.display();
    match fs::read_to_string(&path) {
        Ok(text) => match of_namespace(&text) {
            Some(options) => Ok(Some(options)),
            None => Err(DataError(format!(
                "{shown}: is not `Namespace(source_path='SCENE', ...)`, as trainers of 3DGS write it. \
                 Correct or remove it, and name the scene with -s"
            ))),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => {
            Err(DataError(format!("{shown}: cannot be read: {error}. Check its permissions")))
        }
    }
}

/// Parses the kept options from `Namespace(key=value, ...)`. The text is parsed, never run as Python.
fn of_namespace(text: &str) -> Option<RecordedOptions> {
    let values = values(text)?;
    let value = |key: &str| values.get(key).map(String::as_str).filter(|value| !value.is_empty());
    let is_true = |key: &str| value(key) == Some("True");
    let mut kept = RecordedOptions::default();
    let scene = &mut kept.scene;
    scene.eval = is_true("eval");
    scene.white_background = is_true("white_background");
    scene.source_path = value("source_path").map(PathBuf::from);
    if let Some(images) = value("images") {
        scene.images = images.to_owned();
    }
    if let Some(resolution) = value("resolution").and_then(|value| value.parse().ok()) {
        scene.resolution = resolution;
    }
    // Mip-Splatting's trainer writes this key. The dilation of 3DGS means no filter.
    let variance = value("kernel_size").and_then(|value| value.parse::<f64>().ok());
    if let Some(variance) = variance.filter(|variance| variance.total_cmp(&DILATION_PX2).is_ne()) {
        kept.optimize = KeptFilter { antialiasing: true, kernel_size: variance };
    }
    Some(kept)
}

/// Returns the keys and values of a namespace. Values lose their quotes.
fn values(text: &str) -> Option<BTreeMap<String, String>> {
    let inside = text.trim().strip_prefix("Namespace(")?.strip_suffix(')')?;
    let mut values = BTreeMap::new();
    let mut letters = inside.chars();
    loop {
        let key: String = letters.by_ref().take_while(|&letter| letter != '=').collect();
        if key.trim().is_empty() {
            return Some(values);
        }
        let mut value = String::new();
        let (mut quote, mut depth, mut has_text) = (None, 0_usize, false);
        while let Some(letter) = letters.next() {
            match (quote, letter) {
                (Some(_), '\\') => value.extend(letters.next()),
                (Some(open), _) if letter == open => quote = None,
                (None, '\'' | '"') => {
                    // For `PosixPath('a')` the value is the quoted text.
                    if !has_text && depth > 0 {
                        value.clear();
                    }
                    (quote, has_text) = (Some(letter), true);
                }
                (None, ',') if depth == 0 => break,
                (None, '(' | '[' | '{') => depth += 1,
                (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
                (None, _) if has_text => {}
                _ => value.push(letter),
            }
        }
        values
            .insert(key.trim().to_owned(), if has_text { value } else { value.trim().to_owned() });
    }
}

// Options as text.

/// TOML text of options.
#[derive(Clone, Debug)]
pub(super) struct ConfigText {
    /// Source of the text for error messages: a file or a description.
    pub(super) origin: String,
    pub(super) text: String,
}

impl ConfigText {
    pub(super) fn layer(&self) -> ConfigLayer<'_> {
        ConfigLayer { origin: &self.origin, text: &self.text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cfg_args_of_3dgs_gives_scene_and_split() {
        let kept = of_namespace(
            "Namespace(data_device='cuda', depths='', eval=True, images='images_4', \
             model_path='out/garden', resolution=2, sh_degree=3, source_path='/data/garden', \
             train_test_exp=False, white_background=False)\n",
        );
        let kept = kept.expect("a namespace");
        let scene = &kept.scene;
        assert_eq!((scene.eval, scene.white_background, scene.resolution), (true, false, 2));
        assert_eq!(scene.source_path.as_deref(), Some(Path::new("/data/garden")));
        assert_eq!(scene.images, "images_4");
        assert_eq!(kept.optimize, KeptFilter::default());
    }

    #[test]
    fn paths_are_read_as_python_writes_them() {
        for (written, expected) in [
            ("'/a b/c, (d)=e'", "/a b/c, (d)=e"),
            ("\"/it's\"", "/it's"),
            (r"'C:\\scenes\\a'", r"C:\scenes\a"),
            ("PosixPath('/a,b')", "/a,b"),
        ] {
            let text = format!("Namespace(resolution=-1, source_path={written}, eval=True)");
            let kept = of_namespace(&text).expect("a namespace").scene;
            assert_eq!(kept.source_path.as_deref(), Some(Path::new(expected)), "{text}");
            assert!(kept.eval && kept.resolution == -1, "{text}");
        }
        for text in ["garbage", "", "Namespace(eval=True", "{'eval': True}"] {
            assert_eq!(of_namespace(text), None);
        }
    }

    #[test]
    fn cfg_args_of_mip_splatting_gives_the_filter() {
        let filter = |text: &str| of_namespace(text).expect("a namespace").optimize;
        let mip = filter("Namespace(eval=False, kernel_size=0.1, resolution=-1)");
        assert_eq!(mip, KeptFilter { antialiasing: true, kernel_size: 0.1 });
        assert_eq!(filter("Namespace(eval=False, kernel_size=0.3)"), KeptFilter::default());
    }
}
