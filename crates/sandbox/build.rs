//! Builds what the crate embeds: the init of a sandbox, which is a freestanding program, and the
//! compiled profiles.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a build script reports its errors by panicking"
)]

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cofferdam_seccomp::locks::{self, LockCalls};
use cofferdam_seccomp::profile::{BUILTIN, Profile};
use cofferdam_seccomp::syscalls::Arch;

const INIT: &str = "src/init/main.rs";

fn main() {
    println!("cargo:rerun-if-changed=src/init");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    build_init(&out.join("init"));
    let arch = target_arch();
    fs::write(out.join("profiles.rs"), compiled_profiles(arch)).expect("cannot write to OUT_DIR");
    fs::write(out.join("locks.rs"), compiled_locks(arch)).expect("cannot write to OUT_DIR");
}

fn target_arch() -> Arch {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    match arch.as_str() {
        "x86_64" => Arch::X86_64,
        "aarch64" => Arch::Aarch64,
        other => panic!("no system-call table for {other}"),
    }
}

/// The programs that `src/locks/mod.rs` includes.
fn compiled_locks(arch: Arch) -> String {
    let mut table = String::new();
    for (name, calls) in [("WATCHED", LockCalls::Watched), ("REFUSED", LockCalls::Refused)] {
        let program = locks::filter(calls, arch).expect("the filter compiles").program;
        writeln!(table, "const {name}: &[Instruction] = &{program:?};")
            .expect("a string takes everything");
    }
    table
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

/// The table that `src/plan/builtin_profile.rs` includes.
fn compiled_profiles(arch: Arch) -> String {
    let mut table = format!("const COMPILED: [BuiltinProfile; {}] = [\n", BUILTIN.len());
    for (name, _) in BUILTIN {
        let profile = Profile::parse_builtin(arch, name);
        let Profile { name, description, filter, writable_binds_filter, root } =
            profile.unwrap_or_else(|error| panic!("sandbox-profiles/{name}.toml: {error}"));
        writeln!(
            table,
            "BuiltinProfile {{ name: {name:?}, description: {description:?}, program: &{:?}, \
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
