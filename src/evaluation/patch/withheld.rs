//! Which changes tests do not get: those that would decide how tests run (pure).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::changes::TreeChanges;
use super::entry::{FileForm, ancestors, split};
use super::settings::{MergedSettings, SettingsFormat};
use crate::evaluation::task::VerifyRules;
use cofferdam_tree::StopCheck;

/// Files that decide how tests run, at any depth and at the root.
const BUILT_IN: [&str; 24] = [
    "**/conftest.py",
    "**/sitecustomize.py",
    "**/usercustomize.py",
    "**/*.pth",
    "**/*.pyc",
    "**/__pycache__/**",
    "**/*.egg-info/**",
    "**/*.dist-info/**",
    "**/pytest.ini",
    "**/.pytest.ini",
    "**/pytest.toml",
    "**/.pytest.toml",
    "**/tox.ini",
    "**/jest.config.*",
    "**/vitest.config.*",
    "**/vite.config.*",
    "**/.mocharc*",
    "**/.npmrc",
    ".cargo/**",
    "pytest.py",
    "pytest/**",
    "_pytest/**",
    "unittest/**",
    // A directory may not become a file or a link either.
    "{.cargo,pytest,_pytest,unittest,**/__pycache__,**/*.egg-info,**/*.dist-info}",
];

/// What is restored from the base.
#[derive(Debug)]
pub struct RestoreRules {
    always: GlobSet,
    built_in: GlobSet,
    restore: GlobSet,
    keep: GlobSet,
    solution: BTreeSet<Vec<u8>>,
}

/// What tests get as the base has it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Changes that are left out.
    pub paths: BTreeSet<Vec<u8>>,
    /// Files of which some tables are the base's, with their contents.
    pub merged: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Restored {
    /// All paths of which something is restored, lossy, sorted.
    pub fn names(&self) -> Vec<String> {
        let all: BTreeSet<&Vec<u8>> = self.paths.iter().chain(self.merged.keys()).collect();
        all.into_iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect()
    }
}

impl RestoreRules {
    /// The rules of a task whose solution changes `solution`.
    ///
    /// # Errors
    /// The pattern that cannot be parsed.
    pub fn new(verify: &VerifyRules, solution: &[String]) -> Result<Self, String> {
        Ok(Self {
            always: GlobSet::empty(),
            built_in: globs(BUILT_IN)?,
            restore: globs(verify.restore.iter().map(String::as_str))?,
            keep: globs(verify.keep.iter().map(String::as_str))?,
            solution: solution.iter().map(|path| path.clone().into_bytes()).collect(),
        })
    }

    /// These rules, which restore whatever matches `patterns` even if the task or its solution would keep it.
    ///
    /// # Errors
    /// The pattern that cannot be parsed.
    pub fn always(self, patterns: &[String]) -> Result<Self, String> {
        Ok(Self { always: globs(patterns.iter().map(String::as_str))?, ..self })
    }

    fn restores(&self, path: &[u8], is_ignored: bool) -> bool {
        let is = |set: &GlobSet| {
            let matches = |path: &[u8]| set.is_match(Path::new(OsStr::from_bytes(path)));
            matches(path) || ancestors(path).any(matches)
        };
        if is(&self.always) {
            return true;
        }
        if is(&self.keep) {
            return false;
        }
        is(&self.restore) || (!self.solution.contains(path) && (is_ignored || is(&self.built_in)))
    }

    fn keeps(&self, path: &[u8]) -> bool {
        self.solution.contains(path) || self.keep.is_match(Path::new(OsStr::from_bytes(path)))
    }
}

/// Decides over every change; `None` if `stop` ended it. `ignored` are paths that the base ignores; `read`
/// returns the contents of a file before and after, if it was there.
pub fn withhold(
    changes: &TreeChanges,
    rules: &RestoreRules,
    ignored: &BTreeSet<Vec<u8>>,
    stop: StopCheck<'_>,
    read: impl Fn(&[u8]) -> (Option<Vec<u8>>, Option<Vec<u8>>),
) -> Option<Restored> {
    let mut restored = Restored::default();
    for (path, change) in &changes.files {
        if stop.is_set() {
            return None;
        }
        if rules.restores(path, ignored.contains(path)) {
            restored.paths.insert(path.clone());
            continue;
        }
        let Some(format) = SettingsFormat::of(split(path).1) else { continue };
        if rules.keeps(path) {
            continue;
        }
        let is_link = |form: Option<FileForm>| form == Some(FileForm::Link);
        let (before, after) = read(path);
        let merged = match (change.after, &after) {
            (Some(_), Some(after)) if !is_link(change.after) && !is_link(change.before) => {
                format.merge(before.as_deref(), after)
            }
            (None, _) => format.of_removed(before.as_deref()),
            _ => MergedSettings::Whole,
        };
        match merged {
            MergedSettings::Unchanged => {}
            MergedSettings::Whole => drop(restored.paths.insert(path.clone())),
            MergedSettings::Merged(contents) => {
                drop(restored.merged.insert(path.clone(), contents));
            }
        }
    }
    // What is restored has its place: nothing of the agent's lies above or below it.
    let needed: BTreeSet<Vec<u8>> = restored
        .paths
        .iter()
        .filter(|path| changes.files.get(*path).is_some_and(|change| change.before.is_some()))
        .cloned()
        .collect();
    let above: BTreeSet<&[u8]> = needed.iter().flat_map(|path| ancestors(path)).collect();
    for (path, change) in changes.files.iter().filter(|(_, change)| change.after.is_some()) {
        let is_below = ancestors(path).any(|ancestor| needed.contains(ancestor));
        if is_below || above.contains(path.as_slice()) {
            debug_assert!(change.after.is_some());
            restored.merged.remove(path);
            restored.paths.insert(path.clone());
        }
    }
    Some(restored)
}

fn globs<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<GlobSet, String> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let glob = GlobBuilder::new(pattern).literal_separator(true).build();
        set.add(glob.map_err(|error| error.to_string())?);
    }
    set.build().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::patch::changes::FileChange;

    const NEW: FileChange = FileChange { before: None, after: Some(FileForm::Plain) };
    const CHANGED: FileChange =
        FileChange { before: Some(FileForm::Plain), after: Some(FileForm::Plain) };
    const GONE: FileChange = FileChange { before: Some(FileForm::Plain), after: None };

    fn withheld(
        files: &[(&str, FileChange)],
        verify: &VerifyRules,
        solution: &[&str],
    ) -> Vec<String> {
        let changes = TreeChanges {
            files: files.iter().map(|(path, change)| (path.as_bytes().to_vec(), *change)).collect(),
            omitted: Vec::new(),
        };
        let solution: Vec<String> = solution.iter().map(ToString::to_string).collect();
        let rules = RestoreRules::new(verify, &solution).unwrap();
        let ignored = BTreeSet::from([b"built/x.so".to_vec()]);
        let never = StopCheck::never();
        withhold(&changes, &rules, &ignored, never, |_| (None, None)).unwrap().names()
    }

    #[test]
    fn files_that_decide_how_tests_run_are_withheld_at_any_depth() {
        let verify = VerifyRules::default();
        for path in [
            "conftest.py",
            "a/b/conftest.py",
            "sitecustomize.py",
            "a/usercustomize.py",
            "x.pth",
            "a.pyc",
            "a/__pycache__/b.cpython-313.pyc",
            "a/__pycache__/x",
            "__pycache__",
            "p.egg-info/PKG-INFO",
            "a/p.dist-info/RECORD",
            "pytest.ini",
            "a/.pytest.ini",
            "pytest.toml",
            "tox.ini",
            "jest.config.mjs",
            "a/vitest.config.ts",
            "vite.config.js",
            ".mocharc.json",
            ".npmrc",
            ".cargo/config.toml",
            "pytest.py",
            "pytest/__init__.py",
            "_pytest/a/b.py",
            "unittest/mock.py",
            "conftest.py/x",
            "built/x.so",
        ] {
            assert_eq!(withheld(&[(path, NEW)], &verify, &[]), [path], "{path}");
        }
        for path in [
            "a.py",
            "my_conftest.py",
            "conftest.pyi",
            "a/pytest.py",
            "src/unittest/a.py",
            "a/.cargo/config.toml",
            "tox.ini.bak",
            "built/y.so",
        ] {
            assert_eq!(withheld(&[(path, NEW)], &verify, &[]), [""; 0], "{path}");
        }
    }

    #[test]
    fn the_task_and_its_solution_say_what_else_is_withheld_and_what_is_not() {
        let verify = VerifyRules {
            restore: vec!["tests/**".to_owned(), "conftest.py".to_owned()],
            keep: vec!["a/conftest.py".to_owned(), "tests/data/**".to_owned()],
        };
        for (path, solution, is_withheld) in [
            ("tests/a.py", &[][..], true),
            ("tests/data/x", &[], false),
            ("a/conftest.py", &[], false),
            ("b/conftest.py", &[], true),
            ("b/conftest.py", &["b/conftest.py"], false),
            ("conftest.py", &["conftest.py"], true),
        ] {
            let names = withheld(&[(path, CHANGED)], &verify, solution);
            assert_eq!(!names.is_empty(), is_withheld, "{path} {solution:?}");
        }
    }

    #[test]
    fn what_is_always_restored_is_so_even_if_the_solution_changes_it() {
        let verify = VerifyRules { keep: vec!["**".to_owned()], ..VerifyRules::default() };
        let rules = RestoreRules::new(&verify, &["report.xml".to_owned()]).unwrap();
        let rules = rules.always(&["report*.xml".to_owned()]).unwrap();
        for (path, is_restored) in [("report.xml", true), ("report-1.xml", true), ("a.xml", false)]
        {
            assert_eq!(rules.restores(path.as_bytes(), false), is_restored, "{path}");
        }
    }

    #[test]
    fn a_stop_ends_the_decisions() {
        let changes = TreeChanges { files: [(b"a.py".to_vec(), NEW)].into(), omitted: Vec::new() };
        let rules = RestoreRules::new(&VerifyRules::default(), &[]).unwrap();
        let stop = StopCheck(&|| true);
        let none = BTreeSet::new();
        assert_eq!(withhold(&changes, &rules, &none, stop, |_| (None, None)), None);
    }

    #[test]
    fn nothing_takes_the_place_of_what_is_restored() {
        let verify = VerifyRules::default();
        let files = [("d", NEW), ("d/conftest.py", GONE), ("d/x.py", GONE)];
        assert_eq!(withheld(&files, &verify, &[]), ["d", "d/conftest.py"]);
    }
}
