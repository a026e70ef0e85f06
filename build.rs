//! Builds what the library embeds: the init of a box, a freestanding program, and the compiled
//! profiles.

#![allow(clippy::expect_used, clippy::panic, reason = "a build script has nobody else to tell")]

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sandbox::profile::{BUILTIN, Profile};
use sandbox::seccomp::syscalls::Arch;

// The library's own modules, so that there is one compiler of profiles.
#[allow(dead_code, reason = "a part of them is enough here")]
#[path = "src/base"]
mod base {
    pub mod rel_path;
}
#[allow(dead_code, unused_imports, reason = "a part of them is enough here")]
#[path = "src/sandbox"]
mod sandbox {
    pub mod profile;
    pub mod seccomp;
}

const INIT: &str = "src/sandbox/init/main.rs";

fn main() {
    for input in ["base/rel_path.rs", "sandbox/init", "sandbox/profile", "sandbox/seccomp"] {
        println!("cargo:rerun-if-changed=src/{input}");
    }
    println!("cargo:rerun-if-changed=src/sandbox/profile.rs");
    println!("cargo:rerun-if-changed=sandbox-profiles");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    build_init(&out.join("init"));
    // For whoever asks what runs there.
    let target = env::var("TARGET").expect("cargo sets TARGET");
    println!("cargo:rustc-env=COFFERDAM_TARGET={target}");
    fs::write(out.join("profiles.rs"), compiled_profiles()).expect("cannot write to OUT_DIR");
}

fn build_init(output: &Path) {
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
        .arg(output)
        .arg(INIT)
        .status();
    assert!(status.is_ok_and(|status| status.success()), "could not build {INIT}");
}

/// The table that `src/sandbox/builtin.rs` includes.
fn compiled_profiles() -> String {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    let arch = match arch.as_str() {
        "x86_64" => Arch::X86_64,
        "aarch64" => Arch::Aarch64,
        other => panic!("no system-call table for {other}"),
    };
    let mut table = format!("const COMPILED: [Compiled; {}] = [\n", BUILTIN.len());
    for (name, _) in BUILTIN {
        let profile = Profile::parse_builtin(arch, name);
        let Profile { name, description, filter, writable_binds_filter, root } =
            profile.unwrap_or_else(|error| panic!("sandbox-profiles/{name}.toml: {error}"));
        writeln!(
            table,
            "Compiled {{ name: {name:?}, description: {description:?}, program: &{:?}, \
             writable_binds_program: &{:?}, hide: &{:?}, keep: &{:?}, devices: &{:?}, \
             proc_mask: &{:?} }},",
            filter.program,
            writable_binds_filter.program,
            root.hide,
            root.keep,
            root.devices,
            root.proc_mask
        )
        .expect("a string takes everything");
    }
    table + "];\n"
}
