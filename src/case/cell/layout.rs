//! Where the files of a Cell are: as commands see them, and below its root.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

/// The names that a sandbox shows at `/workspace`, `/env` and `/tmp`.
const SANDBOXED: [&str; 3] = ["workspace", "env", "tmp"];
/// The names in the directory of a Cell on the host.
const ON_HOST: [&str; 3] = ["sandbox", "env", "tmp"];

/// The directories of a Cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CellLayout {
    /// The sandbox, the environment and the temporary directory, as commands see them.
    seen: [PathBuf; 3],
    /// The same below the root.
    names: [&'static str; 3],
}

/// A place in a Cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CellPlace {
    /// As commands see it.
    pub(super) seen: PathBuf,
    /// Below the root.
    pub(super) in_root: PathBuf,
}

impl CellLayout {
    /// That of a Cell whose commands run in sandboxes.
    pub(super) fn sandboxed() -> Self {
        Self { seen: ["/workspace", "/env", "/tmp"].map(PathBuf::from), names: SANDBOXED }
    }

    /// That of a Cell in the directory `root` of the host.
    pub(super) fn on_host(root: &Path) -> Self {
        Self { seen: ON_HOST.map(|name| root.join(name)), names: ON_HOST }
    }

    /// The sandbox, as commands see it.
    pub(super) fn sandbox(&self) -> &Path {
        &self.seen[0]
    }

    /// The environment, as commands see it.
    pub(super) fn env(&self) -> &Path {
        &self.seen[1]
    }

    /// The temporary directory, as commands see it.
    pub(super) fn tmp(&self) -> &Path {
        &self.seen[2]
    }

    /// The place that `path` names: relative to the sandbox, or absolute as commands see it. `..` is resolved
    /// lexically. `None` if it is not in the Cell.
    pub(super) fn locate(&self, path: &str) -> Option<CellPlace> {
        if path.is_empty() || path.contains('\0') {
            return None;
        }
        let mut reached: Vec<&OsStr> = Vec::new();
        let whole = self.sandbox().join(path);
        for part in whole.components() {
            match part {
                Component::Normal(name) => reached.push(name),
                Component::ParentDir => drop(reached.pop()),
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
        let seen = Path::new("/").join(reached.iter().collect::<PathBuf>());
        let directories = self.seen.iter().zip(self.names);
        let mut places = directories.filter_map(|(directory, name)| {
            let below = seen.strip_prefix(directory).ok()?;
            Some([Path::new(name), below].iter().filter(|part| **part != Path::new("")).collect())
        });
        let in_root = places.next()?;
        Some(CellPlace { seen, in_root })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn located(layout: &CellLayout, path: &str) -> Option<(String, String)> {
        let CellPlace { seen, in_root } = layout.locate(path)?;
        Some((seen.display().to_string(), in_root.display().to_string()))
    }

    #[test]
    fn a_path_is_relative_to_the_sandbox_or_absolute_in_the_cell() {
        let sandboxed = CellLayout::sandboxed();
        let on_host = CellLayout::on_host(Path::new("/c"));
        for (path, inside, host) in [
            (".", Some(("/workspace", "workspace")), Some(("/c/sandbox", "sandbox"))),
            (
                "a//./b/",
                Some(("/workspace/a/b", "workspace/a/b")),
                Some(("/c/sandbox/a/b", "sandbox/a/b")),
            ),
            ("a/../b", Some(("/workspace/b", "workspace/b")), Some(("/c/sandbox/b", "sandbox/b"))),
            (
                "..a",
                Some(("/workspace/..a", "workspace/..a")),
                Some(("/c/sandbox/..a", "sandbox/..a")),
            ),
            ("../env/x", Some(("/env/x", "env/x")), Some(("/c/env/x", "env/x"))),
            ("/env", Some(("/env", "env")), None),
            ("/c/tmp/x", None, Some(("/c/tmp/x", "tmp/x"))),
            ("/tmp/x", Some(("/tmp/x", "tmp/x")), None),
            ("..", None, None),
            ("../..", None, None),
            ("/", None, None),
            ("/etc/passwd", None, None),
            ("/workspacex", None, None),
            ("/workspace/../etc", None, None),
            ("", None, None),
            ("a\0b", None, None),
        ] {
            let text = |pair: Option<(&str, &str)>| pair.map(|(a, b)| (a.to_owned(), b.to_owned()));
            assert_eq!(located(&sandboxed, path), text(inside), "{path:?}");
            assert_eq!(located(&on_host, path), text(host), "{path:?}");
        }
    }
}
