//! The shape of the sources: the order of the folders of `src/`, no cycle of files, folders and files that fit on
//! a screen. Cargo holds the order between the crates.

#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What each folder of `src/` may import from.
const MAY_IMPORT: [(&str, &[&str]); 14] = [
    ("egress", &[]),
    ("config", &["egress"]),
    ("policy", &["egress"]),
    ("store", &[]),
    ("executor", &[]),
    ("telemetry", &["config"]),
    ("check", &["config", "executor"]),
    ("job", &["egress", "config", "policy", "store", "executor"]),
    ("workspace", &["egress", "config", "policy", "store", "executor"]),
    ("evaluation", &["egress", "config", "policy", "store", "executor"]),
    ("case", &["egress", "config", "policy", "store", "executor", "job", "evaluation"]),
    ("engine", &["egress", "config", "executor", "workspace"]),
    ("http", &["egress", "config", "check", "job", "evaluation", "case", "workspace"]),
    (
        "cli",
        &[
            "config",
            "policy",
            "store",
            "egress",
            "executor",
            "check",
            "job",
            "evaluation",
            "case",
            "workspace",
            "telemetry",
            "http",
        ],
    ),
];
const FILE_LINES_MAX: usize = 500;
/// Files and folders in one folder.
const FOLDER_ENTRIES_MAX: usize = 14;
/// The same for `src/` itself, which has a folder for each contract.
const SRC_ENTRIES_MAX: usize = 18;
/// The data below `tests/`: a folder for each language with a file for each of its vectors, and a program
/// for each attack.
const DATA_FOLDERS: [&str; 2] = ["langs", "probes"];

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

#[test]
fn no_folder_has_more_than_14_entries() {
    let mut checked: BTreeSet<PathBuf> = BTreeSet::new();
    for root in source_roots() {
        checked.extend(sources(&root).iter().filter_map(|file| Some(file.parent()?.to_owned())));
    }
    checked.extend(test_folders());
    assert!(checked.len() > 80, "{} folders found", checked.len());
    for folder in checked {
        let entries = fs::read_dir(&folder).unwrap().count();
        let is_src = folder == Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let entries_max = if is_src { SRC_ENTRIES_MAX } else { FOLDER_ENTRIES_MAX };
        assert!(entries <= entries_max, "{}: {entries} entries", folder.display());
    }
}

/// Every folder below `tests/`, except those of data.
fn test_folders() -> Vec<PathBuf> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut pending = vec![tests.clone()];
    let mut found = Vec::new();
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() && !DATA_FOLDERS.iter().any(|data| entry == tests.join(data)) {
                found.push(entry.clone());
                pending.push(entry);
            }
        }
    }
    found
}

/// The folder of sources of each package.
fn source_roots() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = fs::read_dir(root.join("crates")).unwrap();
    let mut roots: Vec<PathBuf> = crates.map(|entry| entry.unwrap().path().join("src")).collect();
    roots.push(root.join("src"));
    roots
}

#[test]
fn no_files_use_each_other_in_a_cycle() {
    for root in source_roots() {
        let graph = uses(&root);
        assert!(graph.values().any(|used| !used.is_empty()), "{}: nothing found", root.display());
        for file in graph.keys() {
            let mut reached = BTreeSet::new();
            let mut pending: Vec<&PathBuf> = graph[file].iter().collect();
            while let Some(next) = pending.pop() {
                assert!(next != file, "{} uses itself through other files", file.display());
                if reached.insert(next) {
                    pending.extend(graph.get(next).into_iter().flatten());
                }
            }
        }
    }
}

/// The files below `root`, each with those that it uses outside of its tests.
fn uses(root: &Path) -> BTreeMap<PathBuf, BTreeSet<PathBuf>> {
    let is_test = |file: &Path| file.to_str().unwrap().contains("test");
    let files = sources(root).into_iter().filter(|file| {
        let name = file.strip_prefix(root).unwrap();
        !is_test(name) && !name.starts_with("init") && name != Path::new("main.rs")
    });
    files
        .map(|file| {
            let source = fs::read_to_string(&file).unwrap();
            let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let used = paths(&module_of(root, &file), code);
            let used = used.iter().filter_map(|path| file_of(root, path));
            let used = used.filter(|other| *other != file && !is_test(other)).collect();
            (file, used)
        })
        .collect()
}

/// The module of the file `file`, as the names below its crate.
fn module_of(root: &Path, file: &Path) -> Vec<String> {
    let name = file.strip_prefix(root).unwrap().with_extension("");
    let mut names: Vec<String> =
        name.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    names.pop_if(|last| ["mod", "lib", "main"].contains(&last.as_str()));
    names
}

/// The file of the longest part of `path` that is a module; none for the crate itself, whose file only
/// re-exports.
fn file_of(root: &Path, path: &[String]) -> Option<PathBuf> {
    (1..=path.len()).rev().find_map(|length| {
        let module = root.join(path[..length].join("/"));
        let candidates = [module.with_extension("rs"), module.join("mod.rs")];
        candidates.into_iter().find(|file| file.exists())
    })
}

/// The paths in `code` that begin at the crate or above `module`, or with a module below it.
fn paths(module: &[String], code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
        for (start, above) in [("crate::", None), ("super::", Some(1)), ("super::super::", Some(2))]
        {
            let base = match above {
                None => Vec::new(),
                Some(above) if above <= module.len() => module[..module.len() - above].to_vec(),
                Some(_) => continue,
            };
            for rest in line.split(start).skip(1) {
                found.push([base.clone(), names(rest)].concat());
            }
        }
        let import = line.trim_start_matches("pub ").strip_prefix("use ");
        found.extend(import.map(|rest| [module.to_vec(), names(rest)].concat()));
    }
    found
}

/// The names at the start of a path such as `a::b::{C, D}`.
fn names(path: &str) -> Vec<String> {
    let is_end = |c: char| !c.is_alphanumeric() && c != '_' && c != ':';
    let path = path.split(is_end).next().unwrap_or_default();
    path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect()
}
