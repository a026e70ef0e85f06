//! Builds the init of a box: a freestanding program embedded in the library.

use std::env;
use std::path::Path;
use std::process::Command;

const SOURCE: &str = "src/sandbox/init/main.rs";

#[expect(clippy::expect_used, reason = "a build script has nobody else to tell")]
fn main() {
    for file in ["main.rs", "sys.rs", "wire.rs"] {
        println!("cargo:rerun-if-changed=src/sandbox/init/{file}");
    }
    let out_dir = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let output = Path::new(&out_dir).join("init");
    let status = Command::new(env::var_os("RUSTC").expect("cargo sets RUSTC"))
        .args(["--edition=2024", "--crate-name=init", "--crate-type=bin"])
        .arg("--target")
        .arg(env::var_os("TARGET").expect("cargo sets TARGET"))
        // No C library, no start-up code, one fixed address: nothing to relocate at exec.
        .args(["-Cpanic=abort", "-Copt-level=s", "-Clto=fat", "-Cstrip=symbols"])
        .args(["-Crelocation-model=static", "-Ctarget-feature=+crt-static"])
        .args(["-Clink-arg=-nostartfiles", "-Clink-arg=-nostdlib", "-Clink-arg=-static"])
        .args(["-Clink-arg=-Wl,--build-id=none,-z,norelro,--gc-sections"])
        .arg("-o")
        .arg(&output)
        .arg(SOURCE)
        .status();
    assert!(status.is_ok_and(|status| status.success()), "could not build {SOURCE}");
}
