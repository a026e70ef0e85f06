//! The digest of a directory on the host.

use std::fs::OpenOptions;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::Serialize;

use crate::workspace::error::{EngineCode, EngineError};
use cofferdam_tree::files::{DirectoryDigest, digest_directory};
use cofferdam_tree::{StopCheck, TreeLimits};

/// The most files and directories of a tree; their contents may have any size.
const LIMITS: TreeLimits =
    TreeLimits { entries_max: 1_000_000, bytes_max: u64::MAX, depth_max: 65_536 };

/// The digest of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TreeDigest {
    /// The SHA-256 of the paths and contents, 64 hexadecimal digits.
    pub digest: String,
    /// The number of files.
    pub files: u64,
}

/// The digest of the regular files below the directory `root`: for each, ordered by its path, the
/// path, a NUL, the content, a NUL. Links, special files, permissions and directories do not count.
///
/// # Errors
/// A file cannot be read, or there are more than a million entries.
pub fn dir_digest(root: &Path) -> Result<TreeDigest, EngineError> {
    let failed = |words: String| EngineError::new(EngineCode::IoFailed, words);
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(root);
    let opened = opened.map_err(|error| failed(format!("{}: {error}", root.display())))?;
    let digest = digest_directory(opened.as_fd(), root, &LIMITS, StopCheck::never());
    let DirectoryDigest { digest, files, .. } =
        digest.map_err(|error| failed(error.to_string()))?;
    Ok(TreeDigest { digest, files })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use cofferdam_core::values::digest::Digest;
    use tempfile::{TempDir, tempdir};

    use super::*;

    const OF_NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn tree(files: &[(&str, &str)]) -> TempDir {
        let root = tempdir().unwrap();
        for (name, content) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    fn digest_of(root: &TempDir) -> (String, u64) {
        let TreeDigest { digest, files } = dir_digest(root.path()).unwrap();
        (digest, files)
    }

    #[test]
    fn known_trees_have_known_digests() {
        let known = |text: &str, files| (text.to_owned(), files);
        let root = tree(&[("a/b/x.txt", "one"), ("a/c.txt", "two")]);
        let one = known("d5eed389030d3cf3ca8173debfe3cf5ff3d1b861c1c6a7367b907e082b67f243", 2);
        assert_eq!(digest_of(&root), one);
        fs::write(root.path().join("a/c.txt"), "changed").unwrap();
        let changed = known("3be5399eb3717c998805318c9ce50203011ddc7296127e0c7ab1c32552a62b7a", 2);
        assert_eq!(digest_of(&root), changed);
        assert_eq!(digest_of(&tree(&[])), known(OF_NOTHING, 0));
    }

    #[test]
    fn only_the_paths_and_contents_of_regular_files_count() {
        let files = [("a.txt", "1"), ("a/b", "2"), ("a0", "3")];
        let root = tree(&files);
        let plain = digest_of(&root);
        let mut digest = Digest::default();
        for (name, content) in files {
            digest.update(format!("{name}\0{content}\0").as_bytes());
        }
        assert_eq!(plain, (digest.finish(), 3), "ordered by the whole path");
        fs::create_dir(root.path().join("empty")).unwrap();
        symlink("a.txt", root.path().join("link")).unwrap();
        symlink("missing", root.path().join("dangling")).unwrap();
        symlink("a", root.path().join("directory")).unwrap();
        let pipe = root.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mode = fs::Permissions::from_mode(0o700);
        fs::set_permissions(root.path().join("a.txt"), mode).unwrap();
        assert_eq!(digest_of(&root), plain);
        fs::rename(root.path().join("a0"), root.path().join("a1")).unwrap();
        assert_ne!(digest_of(&root), plain);
    }

    #[test]
    fn a_missing_root_is_an_error() {
        let root = tempdir().unwrap();
        assert!(dir_digest(&root.path().join("missing")).is_err());
        let file = tree(&[("f", "")]);
        assert!(dir_digest(&file.path().join("f")).is_err());
    }
}
