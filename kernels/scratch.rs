//! Asks CUB for the scratch sizes of its calls on each architecture, by `scratch_sizes.cpp`, and writes them as Rust.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::nvcc::Nvcc;

const SOURCE: &str = "scratch_sizes.cpp";

/// Writes `scratch_sizes.rs` into the output folder. If CUB cannot be asked, the table is empty and the source's own
/// table is used.
pub(crate) fn write_table(
    nvcc: &Nvcc,
    archs: &[u32],
    library: &Path,
    folders: [&Path; 2],
) -> Result<(), String> {
    let [source, out] = folders;
    let rows = rows(nvcc, archs, library, &[&source.join(SOURCE), &out.join("scratch_sizes")]);
    let rows = rows.unwrap_or_else(|why| {
        println!(
            "cargo::warning=CUB's scratch sizes are those that the source has for CUDA 13.0: {}",
            why.lines().next().unwrap_or_default()
        );
        String::new()
    });
    let path = out.join("scratch_sizes.rs");
    fs::write(&path, format!("&[\n{rows}]\n")).map_err(|error| crate::describe(&path, &error))
}

fn rows(
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
