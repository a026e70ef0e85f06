//! The order of the folders of `src/`. Cargo holds the order between the crates.

#![cfg(test)]

use std::fs;
use std::path::{Path, PathBuf};

/// What each folder of `src/` may import from.
const MAY_IMPORT: [(&str, &[&str]); 9] = [
    ("config", &[]),
    ("policy", &[]),
    ("store", &[]),
    ("executor", &[]),
    ("telemetry", &["config"]),
    ("check", &["config", "executor"]),
    ("job", &["config", "policy", "store", "executor"]),
    ("http", &["config", "check", "job"]),
    ("cli", &["config", "policy", "store", "executor", "check", "job", "telemetry", "http"]),
];
const FILE_LINES_MAX: usize = 500;

/// Every source file below `directory`.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut pending = vec![directory.to_owned()];
    let mut found = Vec::new();
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The first names of the paths from the crate's root in `source`, comments left out.
fn imports(source: &str) -> impl Iterator<Item = &str> {
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split("crate::").skip(1))
        .filter_map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next())
}

#[test]
fn folders_import_from_lower_folders_only() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut imported = 0;
    for path in sources(&src) {
        let name = path.strip_prefix(&src).unwrap().to_str().unwrap();
        let folder = name.split(['/', '.']).next().unwrap();
        let Some((_, allowed)) = MAY_IMPORT.iter().find(|(layer, _)| *layer == folder) else {
            assert!(
                ["lib", "main"].contains(&folder),
                "{name}: {folder} has no place in the order"
            );
            continue;
        };
        for used in imports(&fs::read_to_string(&path).unwrap()) {
            let is_folder = MAY_IMPORT.iter().any(|(layer, _)| *layer == used);
            let fine = !is_folder || used == folder || allowed.contains(&used);
            assert!(fine, "{name}: {folder} imports from {used}");
            imported += usize::from(is_folder);
        }
    }
    assert!(imported > 100, "{imported} imports found");
}

#[test]
fn no_file_is_longer_than_500_lines() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = [sources(&root.join("src")), sources(&root.join("crates"))].concat();
    assert!(files.len() > 300, "{} files found", files.len());
    for path in files {
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= FILE_LINES_MAX, "{}: {lines} lines", path.display());
    }
}
