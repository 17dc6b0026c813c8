#[path = "../src/abi/mod.rs"]
#[allow(dead_code, reason = "the library uses the rest")]
mod abi;
fn main() { println!("{}", abi::header()); println!("cargo::rustc-check-cfg=cfg(kernels)"); }
