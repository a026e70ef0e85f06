//! A root file system for sandboxes: some programs of the host and the libraries they are linked
//! to.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A directory used as the root of sandboxes.
#[derive(Debug)]
pub struct Root(TempDir);

impl Root {
    /// A root with these programs of the host, at the same paths.
    pub fn with(programs: &[&str]) -> Self {
        let root = Self(tempfile::tempdir().unwrap());
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for (link, to) in [("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")] {
            fs::create_dir_all(root.path().join(to)).unwrap();
            symlink(to, root.path().join(link)).unwrap();
        }
        // The top-level entries are read when a sandbox opens.
        for directory in ["opt", "tmp", "workspace"] {
            fs::create_dir(root.path().join(directory)).unwrap();
        }
        for program in programs {
            root.copy(Path::new(program));
            for library in libraries_of(program) {
                root.copy(&library);
            }
        }
        root
    }

    /// Its path on the host.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The path on the host of `path`, which is absolute inside.
    pub fn at(&self, path: &str) -> PathBuf {
        self.path().join(path.trim_start_matches('/'))
    }

    /// Writes an executable file.
    pub fn script(&self, path: &str, text: &str) {
        fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        fs::write(self.at(path), text).unwrap();
        fs::set_permissions(self.at(path), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn copy(&self, path: &Path) {
        let to = self.at(path.to_str().unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(path, to).unwrap();
    }
}

/// All libraries that the loader maps for `program`. None for a static one.
fn libraries_of(program: &str) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output().unwrap();
    let words = String::from_utf8(output.stdout).unwrap();
    words.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}
