//! Which paths of a patch are restored from the base before the tests, unless the solution changes them.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// Restored at any depth.
pub const WITHHELD_ANYWHERE: [&str; 18] = [
    "conftest.py",
    "sitecustomize.py",
    "usercustomize.py",
    "*.pth",
    "*.pyc",
    "__pycache__/**",
    "*.egg-info/**",
    "*.dist-info/**",
    "pytest.ini",
    ".pytest.ini",
    "pytest.toml",
    ".pytest.toml",
    "tox.ini",
    "jest.config.*",
    "vitest.config.*",
    "vite.config.*",
    ".mocharc*",
    ".npmrc",
];
/// Restored at the root.
pub const WITHHELD_AT_ROOT: [&str; 5] =
    [".cargo/**", "pytest.py", "pytest/**", "_pytest/**", "unittest/**"];

/// The set of all paths that are restored by their names.
///
/// # Errors
/// None is known: the patterns are constant.
pub fn withheld_paths() -> Result<GlobSet, globset::Error> {
    let mut set = GlobSetBuilder::new();
    let anywhere = WITHHELD_ANYWHERE.iter().map(|pattern| format!("**/{pattern}"));
    for pattern in anywhere.chain(WITHHELD_AT_ROOT.map(str::to_owned)) {
        set.add(GlobBuilder::new(&pattern).literal_separator(true).build()?);
    }
    set.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_decide_how_tests_run_are_withheld() {
        let set = withheld_paths().unwrap();
        for (path, is_withheld) in [
            ("conftest.py", true),
            ("a/b/conftest.py", true),
            ("a/x.pth", true),
            ("a/__pycache__/b/c", true),
            ("pytest/x.py", true),
            ("a/pytest/x.py", false),
            (".cargo/config.toml", true),
            ("src/conftest.pyx", false),
            ("vite.config.ts", true),
            ("setup.cfg", false),
        ] {
            assert_eq!(set.is_match(path), is_withheld, "{path}");
        }
    }
}
