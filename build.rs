//! Embeds the workspaces of the languages.

#![allow(clippy::expect_used, reason = "a build script reports its errors by panicking")]

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const LANGS: &str = "langs";
/// The recipes that build a root file system. A run does not need them.
const RECIPES: &str = "toolchains";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // `cofferdam --version` prints it.
    let target = env::var("TARGET").expect("cargo sets TARGET");
    println!("cargo:rustc-env=COFFERDAM_TARGET={target}");
    println!("cargo:rerun-if-changed={LANGS}");
    fs::write(out.join("langs.rs"), shipped_workspaces()).expect("cannot write to OUT_DIR");
}

/// The table that `src/check/lang/shipped.rs` includes.
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
