//! Builds what the library embeds: the init of a box, a freestanding program, the compiled
//! profiles, and the workspaces of the languages.

#![allow(clippy::expect_used, clippy::panic, reason = "a build script has nobody else to tell")]

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::PermissionsExt;
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
const LANGS: &str = "langs";
/// The recipes that build a root file system. A run does not need them.
const RECIPES: &str = "toolchains";

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
    println!("cargo:rerun-if-changed={LANGS}");
    fs::write(out.join("langs.rs"), shipped_workspaces()).expect("cannot write to OUT_DIR");
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

/// The table that `src/lang/shipped.rs` includes.
fn shipped_workspaces() -> String {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join(LANGS);
    let mut files = Vec::new();
    list_files(&root, &mut files);
    files.retain(|path| !path.starts_with(root.join(RECIPES)));
    files.sort();
    let mut digest = DefaultHasher::new();
    let mut table = format!("static FILES: [ShippedFile; {}] = [\n", files.len());
    for file in &files {
        let path = file.strip_prefix(&root).expect("it was listed below");
        let mode = fs::metadata(file).expect("it was listed").permissions().mode();
        let executable = mode & 0o111 != 0;
        (path, executable, fs::read(file).expect("a file of langs/")).hash(&mut digest);
        writeln!(
            table,
            "ShippedFile {{ path: {path:?}, executable: {executable}, bytes: include_bytes!({file:?}) }},"
        )
        .expect("a string takes everything");
    }
    format!("{table}];\nconst DIGEST: u64 = {:#x};\n", digest.finish())
}

fn list_files(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory of langs/") {
        let path = entry.expect("an entry of langs/").path();
        if path.is_dir() { list_files(&path, files) } else { files.push(path) }
    }
}
