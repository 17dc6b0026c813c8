//! Finds nvcc, its version and its architectures.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Oldest toolkit that has the interfaces that the kernels and the driver calls use.
const OLDEST: (u32, u32) = (13, 0);

/// Default architectures: every generation from Turing on.
const EVERY_ARCH: [u32; 7] = [75, 80, 86, 89, 90, 100, 120];

/// Returns the environment variables that decide the compiler and the architectures.
pub(crate) fn variables() -> Vec<&'static str> {
    let mut variables = vec!["NVCC", "SPLAT_CUDA_ARCHS"];
    if env::var_os("NVCC").is_none() {
        variables.extend(["CUDA_HOME", "CUDA_PATH", "PATH"]);
    }
    variables
}

pub(crate) struct Nvcc {
    pub(crate) path: PathBuf,
    /// Version such as `13.0.88`.
    pub(crate) version: String,
    /// Compute capabilities that the compiler supports, as 10 major + minor.
    known_archs: Vec<u32>,
}

pub(crate) enum Missing {
    /// The user turned kernels off.
    Unwanted,
    /// No usable compiler is installed.
    NotFound(String),
    /// The compiler that the user named is missing or unusable.
    Wrong(String),
}

impl Nvcc {
    /// Finds the compiler that the environment names, or else one in the usual places.
    pub(crate) fn find() -> Result<Self, Missing> {
        if let Some(named) = env::var_os("NVCC") {
            if named.is_empty() {
                return Err(Missing::Unwanted);
            }
            return Self::at(Path::new(&named)).map_err(|reason| {
                Missing::Wrong(format!("NVCC={}: {reason}", named.to_string_lossy()))
            });
        }
        let mut refused = Vec::new();
        for path in usual_places().into_iter().filter(|path| path.is_file()) {
            match Self::at(&path) {
                Ok(nvcc) => return Ok(nvcc),
                Err(reason) => refused.push(format!("{}: {reason}", path.display())),
            }
        }
        Err(Missing::NotFound(if refused.is_empty() {
            "there is no nvcc in NVCC, CUDA_HOME, CUDA_PATH, PATH or /usr/local/cuda".to_owned()
        } else {
            refused.join("; ")
        }))
    }

    fn at(path: &Path) -> Result<Self, String> {
        let query = |flag: &str| -> Result<String, String> {
            let output =
                Command::new(path).arg(flag).output().map_err(|error| error.to_string())?;
            if !output.status.success() {
                return Err(format!(
                    "`nvcc {flag}` failed: {}",
                    String::from_utf8_lossy(&output.stderr).trim()
                ));
            }
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let text = query("--version")?;
        let version = text
            .split_whitespace()
            .find_map(|word| word.strip_prefix('V').filter(|rest| rest.contains('.')))
            .ok_or("`nvcc --version` names no version")?
            .to_owned();
        let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
        let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        if found < OLDEST {
            return Err(format!(
                "this is CUDA {}.{}, but {}.{} or newer is needed",
                found.0, found.1, OLDEST.0, OLDEST.1
            ));
        }
        let known_archs = query("--list-gpu-arch")?
            .lines()
            .filter_map(|line| line.trim().strip_prefix("compute_")?.parse().ok())
            .collect();
        Ok(Self { path: path.to_owned(), version, known_archs })
    }

    /// Returns the compute capabilities to compile for, ascending, and a warning.
    pub(crate) fn archs(&self) -> Result<(Vec<u32>, Option<String>), String> {
        let wanted = env::var("SPLAT_CUDA_ARCHS").unwrap_or_default();
        let (mut archs, warning) = match wanted.trim() {
            "" => match self.present_archs() {
                Ok(present) if present.is_empty() => (EVERY_ARCH.to_vec(), None),
                Ok(present) => (present, None),
                Err(warning) => (EVERY_ARCH.to_vec(), Some(warning)),
            },
            "all" => (EVERY_ARCH.to_vec(), None),
            list => (self.parse_archs(list)?, None),
        };
        archs.sort_unstable();
        archs.dedup();
        Ok((archs, warning))
    }

    fn parse_archs(&self, list: &str) -> Result<Vec<u32>, String> {
        list.split(',')
            .map(|arch| {
                let number = arch.trim().replace('.', "").parse::<u32>().map_err(|error| {
                    format!(
                        "SPLAT_CUDA_ARCHS={list}: `{arch}` is no compute capability ({error}); \
                         write a list like `86,90`, or `all`"
                    )
                })?;
                if self.known_archs.contains(&number) {
                    return Ok(number);
                }
                Err(format!(
                    "SPLAT_CUDA_ARCHS={list}: nvcc {} does not compile for {number}, only for {:?}",
                    self.version, self.known_archs
                ))
            })
            .collect()
    }

    /// Returns the compute capabilities of this machine's GPUs; none if `nvidia-smi` is missing.
    fn present_archs(&self) -> Result<Vec<u32>, String> {
        let query = Command::new("nvidia-smi")
            .args(["--query-gpu=compute_cap", "--format=csv,noheader"])
            .output();
        let Ok(output) = query else { return Ok(Vec::new()) };
        let present: Vec<u32> = String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| line.trim().replace('.', "").parse().ok())
            .collect();
        let usable: Vec<u32> =
            present.iter().copied().filter(|arch| self.known_archs.contains(arch)).collect();
        if usable.is_empty() && !present.is_empty() {
            return Err(format!(
                "nvcc {} does not compile for this machine's GPUs ({present:?}): kernels are built \
                 for {EVERY_ARCH:?} instead",
                self.version
            ));
        }
        Ok(usable)
    }

    /// Returns the folder of the toolkit, with symbolic links resolved.
    pub(crate) fn root(&self) -> PathBuf {
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        path.ancestors().nth(2).unwrap_or(&path).to_owned()
    }

    /// Returns the folder of `libcudart_static.a`, in toolkits as installed and as unpacked by pip.
    pub(crate) fn folder_of_libraries(&self) -> Option<PathBuf> {
        ["lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"]
            .into_iter()
            .map(|folder| self.root().join(folder))
            .find(|folder| folder.join("libcudart_static.a").is_file())
    }

    /// Returns the folder of the CUB headers if nvcc does not find it by itself.
    pub(crate) fn cccl_folder(&self) -> Option<PathBuf> {
        ["include/cccl", "targets/x86_64-linux/include/cccl", "targets/sbsa-linux/include/cccl"]
            .into_iter()
            .map(|folder| self.root().join(folder))
            .find(|folder| folder.is_dir())
    }
}

fn usual_places() -> Vec<PathBuf> {
    let homes = ["CUDA_HOME", "CUDA_PATH"]
        .into_iter()
        .filter_map(env::var_os)
        .map(|home| Path::new(&home).join("bin"));
    let path = env::var_os("PATH").unwrap_or_default();
    homes
        .chain(env::split_paths(&path))
        .chain([PathBuf::from("/usr/local/cuda/bin")])
        .map(|folder| folder.join(format!("nvcc{}", env::consts::EXE_SUFFIX)))
        .collect()
}
