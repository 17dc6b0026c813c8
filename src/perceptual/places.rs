//! Where weights of LPIPS may lie on this machine.

use std::env;
use std::path::{Path, PathBuf};

use super::network::LpipsNet;

/// The variable of the environment that names a file.
pub const WEIGHTS_VARIABLE: &str = "SPLAT_LPIPS_WEIGHTS";

/// What was found in the folders where weights may lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WeightsSearch {
    /// The network's file, if all that belongs to it is there.
    pub found: Option<PathBuf>,
    /// A network of torchvision that lacks the file of the `lpips` package.
    pub without_heads: Option<PathBuf>,
}

impl WeightsSearch {
    /// Looks for the weights of VGG16, whose LPIPS is the usual one, and else for those of `AlexNet`.
    pub fn run() -> Self {
        let folders = weight_folders();
        let mut search = Self::default();
        for net in LpipsNet::ALL {
            let whole = [format!("lpips_{}.safetensors", net.name())];
            if let Some(path) = first_file(&folders, &whole) {
                return Self { found: Some(path), ..search };
            }
            let Some(path) = first_file(&folders, network_files(net)) else { continue };
            if heads(net, &path).is_some() {
                return Self { found: Some(path), ..search };
            }
            search.without_heads.get_or_insert(path);
        }
        search
    }
}

/// The file that [`WEIGHTS_VARIABLE`] names.
pub fn named_by_environment() -> Option<PathBuf> {
    variable(WEIGHTS_VARIABLE)
}

/// Folders in which weights are looked for: this program's cache, that of `PyTorch`, and the package
/// `lpips` of the Python environment that is active.
fn weight_folders() -> Vec<PathBuf> {
    let caches = caches();
    caches.own.into_iter().chain(caches.torch).chain(python_packages()).collect()
}

/// Folders of this program and of `PyTorch`, where it is known where they are.
struct Caches {
    own: Option<PathBuf>,
    torch: Option<PathBuf>,
}

fn caches() -> Caches {
    let home = variable("HOME");
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(home.as_ref()?.join(".cache")));
    let torch = variable("TORCH_HOME").or_else(|| Some(cache.as_ref()?.join("torch")));
    Caches {
        own: cache.map(|cache| cache.join("splat")),
        torch: torch.map(|torch| torch.join("hub").join("checkpoints")),
    }
}

/// Those of the package `lpips` in the Python environment that is active.
fn python_packages() -> Vec<PathBuf> {
    let prefixes = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable);
    prefixes.flat_map(|prefix| packages(&prefix)).collect()
}

/// The file beside the network's, or in one of the folders, that has the weights of LPIPS for its
/// channels.
pub(super) fn heads(net: LpipsNet, network: &Path) -> Option<PathBuf> {
    let beside = network.parent().map(Path::to_owned);
    let folders: Vec<PathBuf> = beside.into_iter().chain(weight_folders()).collect();
    first_file(&folders, &head_files(net))
}

/// Names of that file: of the `lpips` package, and as pyiqa stores it.
pub(super) fn head_files(net: LpipsNet) -> [&'static str; 2] {
    match net {
        LpipsNet::Vgg => ["vgg.pth", "LPIPS_v0.1_vgg-a78928a0.pth"],
        LpipsNet::Alex => ["alex.pth", "LPIPS_v0.1_alex-df73285e.pth"],
    }
}

/// Names of torchvision's file.
fn network_files(net: LpipsNet) -> &'static [&'static str] {
    match net {
        LpipsNet::Vgg => &["vgg16-397923af.pth"],
        LpipsNet::Alex => &["alexnet-owt-7be5be79.pth"],
    }
}

/// The first of these files that is there, by the order of folders.
fn first_file(folders: &[PathBuf], names: &[impl AsRef<Path>]) -> Option<PathBuf> {
    let paths = folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name)));
    paths.into_iter().find(|path| path.is_file())
}

/// The folders of the `lpips` package's weights below a Python environment.
fn packages(prefix: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(prefix.join("lib")) else { return Vec::new() };
    let pythons = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_python = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|it| it.starts_with("python3"))
    };
    let mut found: Vec<PathBuf> = pythons
        .filter(is_python)
        .map(|path| path.join("site-packages/lpips/weights/v0.1"))
        .collect();
    found.sort();
    found
}

/// A variable of the environment that names a path.
fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
