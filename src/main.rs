//! The `splat` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    splat::cli::main(std::env::args_os())
}
