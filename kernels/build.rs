//! Compiles the kernels: each `.cu` to a fatbin that the program embeds, `cub.cu` to a static library, which is then
//! asked by `scratch_sizes.cpp` for the scratch sizes of its calls. Without nvcc the build warns and does not set the
//! cfg `kernels`.

#[path = "../src/abi/mod.rs"]
#[allow(dead_code, unreachable_pub, unused_imports, reason = "the library uses the rest")]
mod abi;
mod nvcc;

use std::collections::VecDeque;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Mutex, PoisonError};
use std::thread;

use nvcc::{Missing, Nvcc};

/// Name of the file that becomes a static library because it has host code.
const LIBRARY: &str = "cub";

/// Kernels of the tests' own primitive, and the variable that holds the path of their fatbin.
const TEST_KERNELS: &str = "tests/gpu/isotropic.cu";
const TEST_FATBIN: &str = "SPLAT_TEST_FATBIN";

fn main() -> ExitCode {
    println!("cargo::rustc-check-cfg=cfg(kernels)");
    println!("cargo::rerun-if-changed=kernels");
    println!("cargo::rerun-if-changed=src/abi");
    for variable in nvcc::variables() {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    if env::var_os("CARGO_FEATURE_CUDA").is_none() {
        return ExitCode::SUCCESS;
    }
    let nvcc = match Nvcc::find() {
        Ok(nvcc) => {
            println!("cargo::rerun-if-changed={}", nvcc.path.display());
            nvcc
        }
        Err(Missing::Unwanted) => return ExitCode::SUCCESS,
        Err(Missing::NotFound(why)) => {
            println!(
                "cargo::warning=no CUDA kernels are built, so this program cannot use a GPU: {why}. \
                 Install the CUDA toolkit 13.0 or newer, or name its compiler with NVCC=/path/to/nvcc"
            );
            return ExitCode::SUCCESS;
        }
        Err(Missing::Wrong(why)) => return fail(&why),
    };
    match build(&nvcc) {
        Ok(()) => {
            println!("cargo::rustc-cfg=kernels");
            ExitCode::SUCCESS
        }
        Err(why) => fail(&why),
    }
}

fn fail(why: &str) -> ExitCode {
    // The first line shows beside the error, the rest in the script's own output.
    println!("cargo::error={}", why.lines().next().unwrap_or_default());
    eprintln!("{why}\nWith NVCC= (empty) the program is built without CUDA kernels.");
    ExitCode::FAILURE
}

fn build(nvcc: &Nvcc) -> Result<(), String> {
    let folder = |name: &str| {
        env::var_os(name).map(PathBuf::from).ok_or_else(|| format!("cargo sets no {name}"))
    };
    let (out, root) = (folder("OUT_DIR")?, folder("CARGO_MANIFEST_DIR")?);
    let source = root.join("kernels");
    let (archs, warning) = nvcc.archs()?;
    if let Some(warning) = warning {
        println!("cargo::warning={warning}");
    }
    fs::write(out.join("abi.cuh"), abi::header()).map_err(|error| describe(&out, &error))?;

    let headers = [texts(&source, "cuh")?, vec![out.join("abi.cuh")]].concat();
    let folders = Folders { cache: cache(&out)?, out, source };
    let mut jobs = Vec::new();
    for file in texts(&folders.source, "cu")? {
        jobs.push(Job::new(nvcc, &archs, &file, &headers, &folders)?);
    }
    // Tests are built with this feature, releases are not.
    let for_tests = env::var_os("CARGO_FEATURE_BENCH").map(|_| root.join(TEST_KERNELS));
    let for_tests = for_tests.filter(|path| path.is_file());
    if let Some(file) = &for_tests {
        println!("cargo::rerun-if-changed={TEST_KERNELS}");
        let job = Job::new(nvcc, &archs, file, &headers, &folders)?;
        println!("cargo::rustc-env={TEST_FATBIN}={}", job.product.display());
        jobs.push(job);
    }
    // The library takes longest.
    jobs.sort_by_key(|job| job.name != LIBRARY);
    run_all(&jobs)?;
    for job in &jobs {
        job.warn_about_spills()?;
    }

    let out = &folders.out;
    if let Some(library) = jobs.iter().find(|job| job.name == LIBRARY) {
        write_scratch_sizes(nvcc, &archs, &library.product, [&folders.source, out])?;
    }
    jobs.retain(|job| for_tests.as_ref() != Some(&job.source));
    let table = table(&jobs, &archs, &nvcc.version);
    fs::write(out.join("fatbins.rs"), table).map_err(|error| describe(out, &error))?;
    link(nvcc, out);
    Ok(())
}

struct Folders {
    /// Outputs of this build.
    out: PathBuf,
    /// Products of all builds: clippy, tests and every profile compile the same kernels.
    cache: PathBuf,
    /// Kernels and headers.
    source: PathBuf,
}

/// Returns the folder `kernels` of the target folder, four levels above `out` (TARGET/PROFILE/build/PACKAGE/out).
fn cache(out: &Path) -> Result<PathBuf, String> {
    let target = out.ancestors().nth(4).unwrap_or(out);
    let cache = target.join("kernels");
    fs::create_dir_all(&cache).map_err(|error| describe(&cache, &error))?;
    Ok(cache)
}

fn describe(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn texts(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| describe(folder, &error))? {
        let path = entry.map_err(|error| describe(folder, &error))?.path();
        if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn link(nvcc: &Nvcc, out: &Path) {
    println!("cargo::rustc-link-search=native={}", out.display());
    if let Some(folder) = nvcc.folder_of_libraries() {
        println!("cargo::rustc-link-search=native={}", folder.display());
    }
    println!("cargo::rustc-link-lib=static=splat_{LIBRARY}");
    println!("cargo::rustc-link-lib=static=cudart_static");
    if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        for library in ["stdc++", "rt", "dl", "pthread"] {
            println!("cargo::rustc-link-lib={library}");
        }
    }
}

/// Returns the Rust text that embeds the fatbins.
fn table(jobs: &[Job], archs: &[u32], version: &str) -> String {
    let fatbins: Vec<&Job> = jobs.iter().filter(|job| job.name != LIBRARY).collect();
    let mut text = format!(
        "pub(in crate::backend) const ARCHS: &[u32] = &{archs:?};\n\
         pub(in crate::backend) const NVCC: &str = {version:?};\n\
         pub(in crate::backend) const FATBINS: &[(&str, &[u8])] = &[\n"
    );
    for job in fatbins {
        let path = job.product.display().to_string();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "    ({:?}, {{ static IMAGE: &Aligned<[u8]> = &Aligned(*include_bytes!({path:?})); \
             &IMAGE.0 }}),",
            job.name
        );
    }
    text + "];\n"
}

struct Job {
    name: String,
    source: PathBuf,
    product: PathBuf,
    /// Report of ptxas about registers and spills.
    report: PathBuf,
    /// File with the key of the product.
    stamp: PathBuf,
    /// Hash of all inputs of the product.
    key: String,
    /// Product and report in the cache.
    cached: [PathBuf; 2],
    program: PathBuf,
    arguments: Vec<String>,
}

impl Job {
    fn new(
        nvcc: &Nvcc,
        archs: &[u32],
        source: &Path,
        headers: &[PathBuf],
        Folders { out, cache, source: headers_of_kernels }: &Folders,
    ) -> Result<Self, String> {
        let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let is_library = name == LIBRARY;
        let product = out.join(if is_library {
            format!("libsplat_{name}.a")
        } else {
            format!("{name}.fatbin")
        });
        let mut arguments: Vec<String> = ["-std=c++17", "-O3", "-Xptxas", "-v"]
            .map(str::to_owned)
            .into_iter()
            .chain(code_of(archs))
            .collect();
        if let Some(folder) = nvcc.cccl_folder() {
            arguments.extend(["-isystem".to_owned(), folder.display().to_string()]);
        }
        let kind: &[&str] = if is_library {
            &["-lib", "-Xcompiler", "-fPIC", "--threads", "0"]
        } else {
            // Line numbers are for this program's code; in the library they would be most of the size.
            &["-fatbin", "-lineinfo", "-Werror", "all-warnings"]
        };
        arguments.extend(kind.iter().map(|&word| word.to_owned()));
        arguments.push(source.display().to_string());

        let mut hasher = DefaultHasher::new();
        (&nvcc.version, &nvcc.path, &arguments).hash(&mut hasher);
        // After the key, because the build's folders do not change the product.
        for folder in [out, headers_of_kernels] {
            arguments.extend(["-I".to_owned(), folder.display().to_string()]);
        }
        arguments.extend(["-o".to_owned(), product.display().to_string()]);
        for path in headers.iter().map(PathBuf::as_path).chain([source]) {
            fs::read(path).map_err(|error| describe(path, &error))?.hash(&mut hasher);
        }
        let key = format!("{:016x}", hasher.finish());
        Ok(Self {
            stamp: out.join(format!("{name}.key")),
            report: out.join(format!("{name}.ptxas")),
            cached: ["product", "ptxas"].map(|kind| cache.join(format!("{name}-{key}.{kind}"))),
            key,
            program: nvcc.path.clone(),
            source: source.to_owned(),
            name,
            product,
            arguments,
        })
    }

    /// Compiles unless a product of the same inputs exists.
    fn run(&self) -> Result<(), String> {
        if fs::read_to_string(&self.stamp).is_ok_and(|key| key == self.key)
            && self.product.is_file()
            && self.report.is_file()
        {
            return Ok(());
        }
        if self.cached.iter().all(|path| path.is_file()) {
            let [product, report] = &self.cached;
            copy(product, &self.product)?;
            copy(report, &self.report)?;
            return self.finish();
        }
        if self.product.is_file() {
            // nvcc would add to an existing archive.
            fs::remove_file(&self.product).map_err(|error| describe(&self.product, &error))?;
        }
        let output = Command::new(&self.program)
            .args(&self.arguments)
            .output()
            .map_err(|error| describe(&self.program, &error))?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        if !output.status.success() {
            let errors: Vec<&str> = text.lines().filter(|line| !is_information(line)).collect();
            return Err(format!(
                "{}: nvcc failed ({})\n{}",
                self.source.display(),
                output.status,
                errors.join("\n")
            ));
        }
        fs::write(&self.report, text.as_bytes()).map_err(|error| describe(&self.report, &error))?;
        self.forget_older()?;
        let [product, report] = &self.cached;
        copy(&self.product, product)?;
        copy(&self.report, report)?;
        self.finish()
    }

    fn finish(&self) -> Result<(), String> {
        fs::write(&self.stamp, &self.key).map_err(|error| describe(&self.stamp, &error))
    }

    /// Keeps the newest products of each file in the cache and removes the others.
    fn forget_older(&self) -> Result<(), String> {
        const KEPT: usize = 5;
        let [product, _] = &self.cached;
        let cache = product.parent().unwrap_or(product);
        let prefix = format!("{}-", self.name);
        let mut found = texts(cache, "product")?;
        found.retain(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
        });
        found.sort_by_key(|path| fs::metadata(path).and_then(|about| about.modified()).ok());
        let count = found.len().saturating_sub(KEPT);
        for path in &found[..count] {
            fs::remove_file(path).map_err(|error| describe(path, &error))?;
            // A report without its product is of no use, but harmless.
            let _ = fs::remove_file(path.with_extension("ptxas"));
        }
        Ok(())
    }

    fn warn_about_spills(&self) -> Result<(), String> {
        if self.name == LIBRARY {
            return Ok(());
        }
        let text =
            fs::read_to_string(&self.report).map_err(|error| describe(&self.report, &error))?;
        let mut entry = "";
        for line in text.lines() {
            if let Some((_, rest)) = line.split_once("Compiling entry function ") {
                entry = rest;
            }
            if line.contains("bytes spill stores") && !line.contains(" 0 bytes spill stores") {
                println!("cargo::warning=kernels/{}.cu: {entry}: {}", self.name, line.trim());
            }
        }
        Ok(())
    }
}

/// Copies a file so that readers see either all of it or nothing.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    // Another build may copy the same file.
    let part = to.with_extension(format!("{}.part", std::process::id()));
    fs::copy(from, &part).map_err(|error| describe(from, &error))?;
    fs::rename(&part, to).map_err(|error| describe(to, &error))
}

fn is_information(line: &str) -> bool {
    line.starts_with("ptxas info") || line.contains("bytes stack frame")
}

/// Returns the options for machine code of each architecture, and for PTX of the newest, which later GPUs can run.
fn code_of(archs: &[u32]) -> Vec<String> {
    let newest = archs.iter().max();
    let machine = archs.iter().map(|arch| format!("arch=compute_{arch},code=sm_{arch}"));
    let portable = newest.map(|arch| format!("arch=compute_{arch},code=compute_{arch}"));
    machine.chain(portable).flat_map(|code| ["-gencode".to_owned(), code]).collect()
}

/// Runs the jobs in parallel, as many as cargo allows.
fn run_all(jobs: &[Job]) -> Result<(), String> {
    let workers = env::var("NUM_JOBS").ok().and_then(|number| number.parse().ok()).unwrap_or(1);
    let waiting = Mutex::new(jobs.iter().collect::<VecDeque<_>>());
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some(job) = next else { return };
                    if let Err(why) = job.run() {
                        failures.lock().unwrap_or_else(PoisonError::into_inner).push(why);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n\n")) }
}

/// The program that asks CUB for the scratch sizes of its calls on each architecture.
const SIZES_SOURCE: &str = "scratch_sizes.cpp";

/// Writes `scratch_sizes.rs` into the output folder. If CUB cannot be asked, the table is empty and the source's own
/// table is used.
fn write_scratch_sizes(
    nvcc: &Nvcc,
    archs: &[u32],
    library: &Path,
    folders: [&Path; 2],
) -> Result<(), String> {
    let [source, out] = folders;
    let rows =
        size_rows(nvcc, archs, library, &[&source.join(SIZES_SOURCE), &out.join("scratch_sizes")]);
    let rows = rows.unwrap_or_else(|why| {
        println!(
            "cargo::warning=CUB's scratch sizes are those that the source has for CUDA 13.0: {}",
            why.lines().next().unwrap_or_default()
        );
        String::new()
    });
    let path = out.join("scratch_sizes.rs");
    fs::write(&path, format!("&[\n{rows}]\n")).map_err(|error| describe(&path, &error))
}

fn size_rows(
    nvcc: &Nvcc,
    archs: &[u32],
    library: &Path,
    [source, program]: &[&Path; 2],
) -> Result<String, String> {
    if env::var("HOST") != env::var("TARGET") {
        return Err("this machine does not run programs of the target".to_owned());
    }
    let mut compiler = Command::new(&nvcc.path);
    compiler.args(["-std=c++17", "-O2", "-cudart", "none", "-o"]).arg(program);
    run(compiler.arg(source).arg(library))?;
    archs.iter().map(|arch| run(Command::new(program).arg(arch.to_string()))).collect()
}

fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().display().to_string();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
